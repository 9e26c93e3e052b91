// ddpsim compare --html: a predicted and a measured step on one axis, and where they differ.
import { axis, chart, drawCharts } from "./charts.js";
import { choice, figure, h, section, table, tip } from "./dom.js";
import { colour } from "./theme.js";
import { help, keys, timeline } from "./timeline.js";
import { actorsOf, rowsOfRun } from "./tracks.js";
import { bytes, percent, signedPercent, signedTime, time } from "./units.js";

const kMostRanks = 8;

function headline({ comparison: c, predicted, measured, tolerance }) {
  const item = (name, value, small, first) =>
    h(
      "div",
      { class: first ? "first" : null },
      h("dt", {}, name),
      h("dd", {}, value, small ? h("small", {}, small) : null),
    );
  return h(
    "dl",
    { class: "figures" },
    item(
      "Error of the step",
      figure("error", c.error, signedPercent(c.error, 3)),
      h(
        "span",
        { class: c.verdict === "within" ? "ok" : c.verdict === "outside" ? "broken" : null },
        `${c.verdict}${c.reason ? `: ${c.reason}` : ` ${percent(tolerance)}`}`,
      ),
      true,
    ),
    item(
      "Predicted",
      figure("predicted_ps", c.predicted_ps, time(c.predicted_ps)),
      `profile ${predicted.profile}`,
    ),
    item(
      "Measured",
      figure("measured_ps", c.measured_ps, time(c.measured_ps)),
      `${measured.evidence}, ${measured.quality.verdict}`,
    ),
  );
}

function ends(c) {
  const rows = [
    ...c.phases.map((e) => ({ ...e, kind: "phase" })),
    ...c.buckets.map((e) => ({ ...e, kind: "bucket" })),
  ].sort((a, b) => a.measured_end_ps - b.measured_end_ps);
  if (rows.length === 0) return null;
  const difference = (e) => e.predicted_end_ps - e.measured_end_ps;
  const it = chart("differences", {
    label: "Predicted less measured end of each part; the numbers are in the table below",
    height: Math.min(rows.length, 40) * 22 + 60,
    build: () => ({
      grid: { left: 190, right: 24, top: 10, bottom: 40 },
      xAxis: axis({ type: "value", axisLabel: { formatter: (x) => signedTime(x) } }),
      yAxis: axis({
        type: "category",
        inverse: true,
        data: rows.map((e) => e.name),
        axisTick: { show: false },
        splitLine: { show: false },
        axisLabel: {
          width: 170,
          overflow: "truncate",
          color: colour("text"),
          interval: rows.length > 40 ? "auto" : 0,
        },
      }),
      tooltip: {
        trigger: "item",
        formatter: (p) =>
          tip(rows[p.dataIndex].name, [
            rows[p.dataIndex].bytes > 0 && ["bytes", bytes(rows[p.dataIndex].bytes)],
            ["predicted end", time(rows[p.dataIndex].predicted_end_ps)],
            ["measured end", time(rows[p.dataIndex].measured_end_ps)],
            [
              "difference",
              `${signedTime(difference(rows[p.dataIndex]))}, ${signedPercent(rows[p.dataIndex].error, 3)} of the measured step`,
            ],
          ]),
      },
      series: [
        {
          type: "bar",
          barMaxWidth: 12,
          data: rows.map((e) => ({
            value: difference(e),
            itemStyle: { color: colour(e.kind === "bucket" ? "communication" : "backward") },
          })),
        },
      ],
    }),
  });
  return section(
    "Differences by part",
    "Ends of forward, of each gradient all-reduce and of the optimizer, from the start of the step, in the order of the execution: predicted less measured.",
    it.node,
    h(
      "div",
      { class: "keys" },
      [
        ["communication", "gradient all-reduce"],
        ["backward", "forward, optimizer"],
      ].map(([k, text]) =>
        h("span", {}, h("span", { class: "swatch", style: { background: `var(--${k})` } }), text),
      ),
    ),
    table(
      [
        { name: "part", of: (e) => e.name },
        { name: "bytes", right: true, of: (e) => (e.bytes > 0 ? bytes(e.bytes) : "-") },
        { name: "predicted end", right: true, of: (e) => time(e.predicted_end_ps) },
        { name: "measured end", right: true, of: (e) => time(e.measured_end_ps) },
        { name: "difference", right: true, of: (e) => signedTime(difference(e)) },
        { name: "of the step", right: true, of: (e) => signedPercent(e.error, 3) },
      ],
      rows,
      { most: 60, label: "Differences by part" },
    ),
  );
}

// Predicted above measured, lane by lane.
function rowsFor(data, step, ranks) {
  const predicted = rowsOfRun(data.predicted);
  const measured = rowsOfRun(data.measured, { step });
  // A class is named by its first rank; a rank that names none is in the one that stands for most.
  const classes = [...new Set(predicted.map((r) => r.actor))];
  const largest = predicted.reduce((a, b) => (b.count > a.count ? b : a)).actor;
  const out = [];
  for (const rank of ranks) {
    const own = classes.includes(rank) ? rank : largest;
    const both = [
      ...predicted.filter((r) => r.actor === own).map((r) => ({ ...r, whose: "predicted" })),
      ...measured
        .filter((r) => r.actor === rank)
        .map((r) => ({ ...r, whose: "measured", faint: true })),
    ];
    for (const lane of ["host", "compute", "comm", "worker", "callback"])
      for (const row of both.filter((r) => r.lane === lane))
        out.push({
          ...row,
          title: `${ranks.length > 1 ? `${rank} ` : ""}${lane}, ${row.whose}`,
          name: `rank ${rank}, ${row.whose}, ${lane}`,
        });
  }
  return out;
}

function timelines(data) {
  const { comparison: c, predicted, measured } = data;
  if (predicted.tracks.length === 0 || measured.tracks.length === 0)
    return section("Both timelines", "One of the Runs holds no spans.");
  const steps = [...new Set(measured.tracks.map((t) => t.step))];
  // The recorded step that is nearest to the one it is judged by.
  const distance = (s) => Math.abs((measured.steps[s]?.duration_ps ?? 0) - c.measured_ps);
  let step = [...steps].sort((a, b) => distance(a) - distance(b))[0];
  const all = actorsOf(measured).map(([actor]) => actor);
  let ranks = all.slice(0, 1);
  const place = h("div");
  const draw = () => {
    const rows = rowsFor(data, step, ranks);
    const to = Math.max(c.predicted_ps, measured.steps[step]?.duration_ps ?? c.measured_ps);
    const it = timeline("timeline", {
      rows,
      label: "Predicted and measured operations on one axis",
      from: 0,
      to,
      marks: [
        [0, ""],
        [c.predicted_ps, c.predicted_ps <= c.measured_ps ? "predicted" : ""],
        [
          measured.steps[step]?.duration_ps ?? c.measured_ps,
          c.predicted_ps <= c.measured_ps ? "" : "measured",
        ],
      ],
      explain: false,
    });
    place.replaceChildren(
      ...[it.ahead && h("div", { class: "controls" }, it.ahead), it.node, keys(rows)].filter(
        Boolean,
      ),
    );
  };
  draw();
  const redraw = () => {
    draw();
    drawCharts();
  };
  return section(
    "Both timelines",
    "From the start of the step. Measured rows are fainter. The dashed lines are the ends of the predicted and of the measured step.",
    h(
      "div",
      { class: "controls" },
      choice(
        "Rank",
        [
          ...all.slice(0, 64).map((a) => [a, `rank ${a}`]),
          ...(all.length > 1
            ? [["all", all.length > kMostRanks ? `the first ${kMostRanks}` : "all"]]
            : []),
        ],
        ranks[0],
        (v) => {
          ranks = v === "all" ? all.slice(0, kMostRanks) : [Number(v)];
          redraw();
        },
      ),
      steps.length > 1
        ? choice(
            "Measured step",
            steps.map((s) => [s, `${s}: ${time(measured.steps[s]?.duration_ps ?? 0)}`]),
            step,
            (v) => {
              step = Number(v);
              redraw();
            },
          )
        : null,
    ),
    place,
    help(),
  );
}

function operations(c) {
  if (c.spans.length === 0) return null;
  return section(
    "Operation by operation",
    "Those that both recorded, in the order of the prediction.",
    table(
      [
        { name: "operation", wide: true, of: (s) => s.op },
        { name: "lane", of: (s) => s.lane },
        { name: "begin, predicted", right: true, of: (s) => time(s.predicted_begin_ps) },
        { name: "measured", right: true, of: (s) => time(s.measured_begin_ps) },
        { name: "end, predicted", right: true, of: (s) => time(s.predicted_end_ps) },
        { name: "measured", right: true, of: (s) => time(s.measured_end_ps) },
        { name: "difference", right: true, of: (s) => signedTime(s.difference_ps) },
        {
          name: "of the step",
          right: true,
          of: (s) => signedPercent(s.difference_ps / c.measured_ps, 3),
        },
      ],
      c.spans,
      { most: 80, label: "Operations" },
    ),
  );
}

function origin({ measured }) {
  const rows = [
    ...Object.entries(measured.origin).filter(([, v]) => v !== "" && v !== 0),
    ["spread of the steps", percent(measured.quality.spread, 3)],
    ["retransmits", measured.quality.retransmits],
    ["busy cores before", measured.quality.load],
    ...measured.quality.reasons.map((r) => ["noisy", r]),
  ];
  return section(
    "The measured run",
    null,
    h(
      "dl",
      { class: "document" },
      rows.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, String(v))]),
    ),
  );
}

export function comparePage(data) {
  const c = data.comparison;
  return [
    headline(data),
    data.predicted.key !== data.measured.key
      ? h("p", { class: "note" }, "The keys differ: the two may not be of the same case.")
      : null,
    c.mismatch ? h("p", { class: "broken" }, `The schedules differ: ${c.mismatch}`) : null,
    c.schedule_checked
      ? null
      : h("p", { class: "note" }, "No collective is in both: the schedules were not compared."),
    timelines(data),
    ends(c),
    operations(c),
    origin(data),
  ];
}
