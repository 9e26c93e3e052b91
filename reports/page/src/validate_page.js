// ddpsim validate --html: predictions beside executed runs. Classes of evidence and samples are
// never pooled.
import { axis, chart, legend, kMarks, mark } from "./charts.js";
import { choice, figure, h, section, table, tip } from "./dom.js";
import { colour } from "./theme.js";
import { percent, signedPercent, significant, time } from "./units.js";

const kClass = {
  system: "PyTorch itself, cells that repeat",
  system_other: "PyTorch itself, other cells",
  replay: "replay, timed computation",
  replay_real: "replay, real computation",
  system_gpu: "a GPU, PyTorch itself",
  replay_gpu: "a GPU, replay",
  system_one_gpu: "several ranks on one GPU, PyTorch itself",
  replay_one_gpu: "several ranks on one GPU, replay",
};
const kSample = { held_out: "held out", in_sample: "in sample" };
const nameOf = (evidence, sample) =>
  `${kClass[evidence] ?? evidence}, ${kSample[sample] ?? sample}`;
const three = (x) => (x === undefined ? "-" : (100 * x).toFixed(3));
const two = (x) => (x === undefined ? "-" : (100 * x).toFixed(2));

function groupsOf(pairs) {
  const groups = new Map();
  for (const p of pairs) {
    const key = `${p.evidence} ${p.sample}`;
    if (!groups.has(key))
      groups.set(key, { key, evidence: p.evidence, sample: p.sample, pairs: [] });
    groups.get(key).pairs.push(p);
  }
  return [...groups.values()];
}

const pairTip = (p) =>
  tip(p.key, [
    ["class", nameOf(p.evidence, p.sample)],
    ["file", p.file],
    ["measured", time(p.measured_ps)],
    ["predicted", `${time(p.predicted_ps)} (${time(p.step_low_ps)} to ${time(p.step_high_ps)})`],
    ["error", p.error === null ? "schedules differ" : signedPercent(p.error, 3)],
    ["verdict", p.verdict + (p.reason ? `: ${p.reason}` : "")],
    (p.noisy || p.loopback) && ["set aside", p.noisy ? "noisy" : "loopback"],
  ]);

// Limits of a class on |step error|, as lines at +- it.
function budgetLines(limits, group) {
  return limits
    .filter(
      (l) => l.max !== undefined && l.what.startsWith(`${group.evidence}.${group.sample}.step.`),
    )
    .map((l) => ({ name: l.what.split(".").pop().replace("_abs_error", ""), max: l.max }));
}

function scatters(v) {
  const pairs = v.pairs.filter((p) => p.error !== null);
  const groups = groupsOf(pairs);
  const evidences = [...new Set(groups.map((g) => g.evidence))];
  let budgetOf = groups.find((g) => budgetLines(v.limits, g).length > 0)?.key ?? groups[0]?.key;
  const lines = () => {
    const g = groups.find((x) => x.key === budgetOf);
    return g ? budgetLines(v.limits, g) : [];
  };
  const series = (xy) =>
    groups.map((g) => {
      const c = colour(`series${evidences.indexOf(g.evidence) + 1}`);
      const held = g.sample === "held_out";
      return {
        name: nameOf(g.evidence, g.sample),
        type: "scatter",
        z: 3,
        symbol: "circle",
        symbolSize: (value) => (value[2] ? 6 : 8),
        itemStyle: {
          color: held ? c : "transparent",
          borderColor: c,
          borderWidth: 1.5,
          opacity: 0.85,
        },
        data: g.pairs.map((p) => ({ value: [...xy(p), p.noisy || p.loopback], pair: p })),
      };
    });
  const all = pairs.flatMap((p) => [p.measured_ps, p.predicted_ps]);
  const low = Math.min(...all) * 0.8;
  const high = Math.max(...all) * 1.25;
  const tooltip = { trigger: "item", formatter: (p) => (p.data?.pair ? pairTip(p.data.pair) : "") };
  const common = () => ({
    tooltip,
    legend: legend({
      bottom: 0,
      left: 0,
      itemGap: 14,
      data: groups.map((g) => nameOf(g.evidence, g.sample)),
    }),
  });
  const both = [];
  const diagonal = (factor, text, name) => ({
    name: text,
    type: "line",
    symbol: "none",
    silent: true,
    data: [
      [low, low * factor],
      [high, high * factor],
    ],
    z: 1,
    lineStyle: { color: colour(name), width: 1, type: factor === 1 ? "solid" : "dashed" },
    legendHoverLink: false,
    tooltip: { show: false },
  });
  both.push(
    chart("scatter", {
      label: `Predicted against measured step of ${pairs.length} runs; the runs are in the table below`,
      height: 590,
      build: () => ({
        ...common(),
        grid: { left: 76, right: 18, top: 30, bottom: 160 },
        xAxis: axis({
          type: "log",
          min: low,
          max: high,
          name: "measured step",
          nameLocation: "middle",
          nameGap: 28,
          axisLabel: { formatter: (x) => time(x), showMinLabel: false, showMaxLabel: false },
        }),
        yAxis: axis({
          type: "log",
          min: low,
          max: high,
          name: "predicted step",
          nameLocation: "end",
          axisLabel: { formatter: (x) => time(x), showMinLabel: false, showMaxLabel: false },
        }),
        series: [
          ...series((p) => [p.measured_ps, p.predicted_ps]),
          diagonal(1, "equal", "muted"),
          ...lines().flatMap((l) => [
            diagonal(1 + l.max, `+${l.name}`, "bad"),
            diagonal(1 - l.max, `-${l.name}`, "bad"),
          ]),
        ],
      }),
    }),
  );
  const most =
    Math.max(
      0.02,
      ...pairs.map((p) => Math.abs(p.error)),
      ...v.limits.filter((l) => /\.step\./.test(l.what)).map((l) => l.max ?? 0),
    ) * 1.1;
  both.push(
    chart("errors", {
      label:
        "Relative error of the predicted step against the measured step, with the budget's lines",
      height: 590,
      build: () => ({
        ...common(),
        grid: { left: 66, right: 18, top: 30, bottom: 160 },
        xAxis: axis({
          type: "log",
          min: low,
          max: high,
          name: "measured step",
          nameLocation: "middle",
          nameGap: 28,
          axisLabel: { formatter: (x) => time(x), showMinLabel: false, showMaxLabel: false },
        }),
        yAxis: axis({
          type: "value",
          min: -most,
          max: most,
          name: "error of the step",
          nameLocation: "end",
          axisLabel: {
            formatter: (x) => signedPercent(x, 1),
            showMinLabel: false,
            showMaxLabel: false,
          },
        }),
        series: series((p) => [p.measured_ps, p.error]).map((s, i) =>
          i > 0
            ? s
            : {
                ...s,
                markLine: {
                  ...kMarks,
                  data: [
                    mark({ yAxis: 0 }, "", "muted"),
                    ...lines().flatMap((l) => [
                      mark(
                        { yAxis: l.max },
                        `${l.name} at most ${percent(l.max, 2)}`,
                        "bad",
                        "insideStartTop",
                      ),
                      mark({ yAxis: -l.max }, "", "bad"),
                    ]),
                  ],
                },
              },
        ),
      }),
    }),
  );
  const withBudget = groups.filter((g) => budgetLines(v.limits, g).length > 0);
  const control =
    withBudget.length > 0
      ? h(
          "div",
          { class: "controls" },
          choice(
            "Budget lines of",
            withBudget.map((g) => [g.key, nameOf(g.evidence, g.sample)]),
            budgetOf,
            (key) => {
              budgetOf = key;
              for (const c of both) c.refresh();
            },
          ),
        )
      : null;
  return section(
    "Predicted beside measured",
    "A point is a run; hollow ones are of scenarios that the profile was fitted from. Smaller points are set aside (noisy, or on loopback) and in no aggregate. The legend hides classes.",
    control,
    h(
      "div",
      { class: "two" },
      both.map((c) => c.node),
    ),
  );
}

const kAggregate = [
  ["n", "n", (x) => String(x)],
  ["median", "median_abs_error", three],
  ["p95", "p95_abs_error", three],
  ["max", "max_abs_error", three],
  ["bucket", "bucket_error_median", three],
  ["bucket p95", "bucket_error_p95", three],
  ["in interval", "coverage", (x) => (100 * x).toFixed(1)],
  ["naive", "naive_median_abs_error", two],
  ["naive p95", "naive_p95_abs_error", two],
  ["queue", "queue_median_abs_error", two],
  ["queue p95", "queue_p95_abs_error", two],
];

function aggregates(v) {
  const rows = [];
  const add = (path, all, suffix) => {
    for (const [evidence, samples] of Object.entries(all))
      for (const [sample, a] of Object.entries(samples))
        rows.push({
          name: nameOf(evidence, sample) + suffix,
          path: `${path}.${evidence}.${sample}`,
          a,
        });
  };
  add("aggregates", v.aggregates, "");
  for (const [why, all] of Object.entries(v.set_aside)) add(`set_aside.${why}`, all, ` (${why})`);
  return section(
    "Errors by kind of evidence",
    "|error| in per cent of the measured step; bucket: of when a bucket's all-reduce ends. Naive: bytes over bandwidth. Queue: one collective after another, without latency.",
    table(
      [
        { name: "class and sample", wide: true, of: (r) => r.name },
        ...kAggregate.map(([name, key, text]) => ({
          name,
          right: true,
          of: (r) =>
            r.a[key] === undefined ? "-" : figure(`${r.path}.${key}`, r.a[key], text(r.a[key])),
        })),
      ],
      rows,
      { label: "Errors by class" },
    ),
  );
}

function budget(v) {
  if (v.limits.length === 0) return null;
  const broken = v.limits.filter((l) => l.broken).length;
  const range = (l) =>
    l.min !== undefined && l.max !== undefined
      ? `${significant(l.min)} to ${significant(l.max)}`
      : l.min !== undefined
        ? `at least ${l.min}`
        : `at most ${l.max}`;
  return section(
    "Budget",
    broken === 0
      ? `All ${v.limits.length} limits are kept.`
      : `${broken} of ${v.limits.length} limits are broken.`,
    table(
      [
        {
          name: "",
          tight: true,
          of: (l) => h("span", { class: l.broken ? "broken" : "ok" }, l.broken ? "broken" : "ok"),
        },
        { name: "limit", of: (l) => h("code", {}, l.what) },
        {
          name: "value",
          right: true,
          of: (l) =>
            l.value === null ? "-" : figure(`limits.${l.i}.value`, l.value, significant(l.value)),
        },
        { name: "allowed", right: true, of: range },
      ],
      v.limits.map((l, i) => ({ ...l, i })),
      { label: "Budget", marked: (l) => l.broken },
    ),
  );
}

const cap = (x) => (x === null ? "default" : String(x));
const sweeps = (v) =>
  v.sweeps.length === 0
    ? null
    : section(
        "Sweeps of bucket_cap_mb",
        "Runs that differ in bucket_cap_mb only: what was fastest, what ddpsim would have picked, and what that costs.",
        table(
          [
            { name: "sweep", wide: true, of: (s) => s.key },
            { name: "class", of: (s) => `${s.evidence}, ${s.sample}` },
            { name: "caps", right: true, of: (s) => String(s.points.length) },
            { name: "best measured", right: true, of: (s) => cap(s.best) },
            { name: "picked", right: true, of: (s) => cap(s.picked) },
            { name: "regret", right: true, of: (s) => percent(s.regret, 3) },
          ],
          v.sweeps,
          { label: "Sweeps" },
        ),
      );

function runs(v) {
  return section(
    "Runs",
    `${v.pairs.length} pairs, worst first within a class.`,
    groupsOf(v.pairs).map((g) =>
      h(
        "details",
        {},
        h("summary", {}, `${nameOf(g.evidence, g.sample)} (${g.pairs.length})`),
        table(
          [
            { name: "run", wide: true, of: (p) => p.key },
            { name: "measured", right: true, of: (p) => time(p.measured_ps) },
            { name: "predicted", right: true, of: (p) => time(p.predicted_ps) },
            {
              name: "error",
              right: true,
              of: (p) => (p.error === null ? "-" : signedPercent(p.error, 3)),
            },
            { name: "in interval", of: (p) => (p.in_interval ? "yes" : "no") },
            { name: "naive", right: true, of: (p) => signedPercent(p.naive_error) },
            { name: "queue", right: true, of: (p) => signedPercent(p.queue_error) },
            {
              name: "verdict",
              of: (p) => p.verdict + (p.noisy ? ", noisy" : "") + (p.loopback ? ", loopback" : ""),
            },
          ],
          g.pairs,
          { label: nameOf(g.evidence, g.sample), most: 400 },
        ),
      ),
    ),
  );
}

export function validatePage(data) {
  const v = data.validation;
  const errors = v.errors.map((e) =>
    h("p", { class: "broken" }, `${e.what}: ${e.file}: ${e.sentence}`),
  );
  return [
    h(
      "p",
      { class: "lead" },
      h("span", { class: v.passed ? "ok" : "broken" }, v.passed ? "Passed." : "Failed."),
      ` ${v.pairs.length} executed runs beside their predictions${data.without ? `, the model without ${data.without}` : ""}.`,
    ),
    v.floor.scenarios > 0
      ? h(
          "p",
          { class: "note" },
          `${v.floor.scenarios} scenarios were run more than once; their runs differ by ${percent(v.floor.median, 3)} (median), ${percent(v.floor.max, 3)} (largest). No model can be nearer than that.`,
        )
      : null,
    errors,
    v.pairs.length > 0 ? scatters(v) : null,
    aggregates(v),
    budget(v),
    sweeps(v),
    runs(v),
  ];
}
