// ddpsim tune --html: a knob's curve with its interval, the values that are as good as the best,
// and the bound that no value beats.
import { axis, chart, mark } from "./charts.js";
import { documents } from "./documents.js";
import { figure, h, section, table, tip } from "./dom.js";
import { levers } from "./levers.js";
import { colour } from "./theme.js";
import { bytes, percent, significant, time } from "./units.js";

const plain = (v) =>
  typeof v === "number" ? (Number.isInteger(v) ? String(v) : significant(v)) : String(v);

// What to set. The shortest step may lie beside a longer one, or gain nothing that could be
// measured.
function recommended(data, item) {
  const { best, chosen, other } = data;
  const of = (key, p) => [
    figure(`${key}.value`, p.value, plain(p.value)),
    ["step ", figure(`${key}.step_ps`, p.step_ps, time(p.step_ps))],
    true,
  ];
  if (other?.better) return item(`Recommended ${other.knob}`, ...of("other", other));
  if (chosen) return item(`Recommended ${data.knob}`, ...of("chosen", chosen));
  if (chosen === null)
    return item(
      "Recommended",
      "as it is",
      "no setting gains what could be measured, and keeps it",
      true,
    );
  return item(`Best ${data.knob}`, ...of("best", best));
}

function headline(data) {
  const { best, current, flat } = data;
  const item = (name, value, small, first) =>
    h(
      "div",
      { class: first ? "big" : null },
      h("dt", {}, name),
      h("dd", {}, value, small ? h("small", {}, small) : null),
    );
  return h(
    "dl",
    { class: "figures" },
    recommended(data, item),
    data.chosen === undefined
      ? null
      : item(`Shortest ${data.knob}`, figure("best.value", best.value, plain(best.value)), [
          "step ",
          figure("best.step_ps", best.step_ps, time(best.step_ps)),
        ]),
    current
      ? item(
          "Now",
          current.value == null
            ? "default"
            : figure("current.value", current.value, plain(current.value)),
          [
            "step ",
            figure("current.step_ps", current.step_ps, time(current.step_ps)),
            `, ${percent(Math.abs(current.step_ps / best.step_ps - 1), 2)} ${current.step_ps < best.step_ps ? "shorter" : "longer"}`,
          ],
        )
      : null,
    flat ? item("Within 1 % of the best", `${plain(flat.from)} to ${plain(flat.to)}`) : null,
    data.lower_bound_ps
      ? item(
          "No value beats",
          figure("lower_bound_ps", data.lower_bound_ps, time(data.lower_bound_ps)),
          `the best is ${percent(best.step_ps / data.lower_bound_ps - 1, 2)} above`,
        )
      : null,
  );
}

function curve(data) {
  const points = [...data.curve]
    .filter((p) => typeof p.value === "number")
    .sort((a, b) => a.value - b.value);
  const { best, current, flat, lower_bound_ps: bound } = data;
  const log =
    points.length > 2 &&
    points[0].value > 0 &&
    points[points.length - 1].value > 20 * points[0].value;
  const banded = points.filter(
    (p) => p.low_ps !== undefined && p.high_ps !== undefined && p.low_ps !== null,
  );
  const it = chart("curve", {
    label: `Step over ${data.knob}; the numbers are in the table at the end`,
    height: 460,
    build: () => {
      const floor = Math.min(...points.map((p) => p.low_ps ?? p.step_ps), bound ?? Infinity);
      const top = Math.max(...points.map((p) => p.high_ps ?? p.step_ps));
      const room = (top - floor) * 0.06 || top * 0.05;
      const pointMark = (p, name, position) => ({
        name,
        coord: [p.value, p.step_ps],
        symbol: "circle",
        symbolSize: 11,
        itemStyle: { color: colour("surface"), borderColor: colour("text"), borderWidth: 2 },
        label: { show: true, formatter: name, position, color: colour("text"), fontSize: 12 },
      });
      const dots = [];
      if (points.some((p) => p.value === best.value))
        dots.push(
          pointMark(
            best,
            current && current.value === best.value ? "best, and now" : "best",
            "bottom",
          ),
        );
      if (current && typeof current.value === "number" && current.value !== best.value)
        dots.push(pointMark(current, "now", "top"));
      return {
        grid: { left: 92, right: 30, top: 34, bottom: 56 },
        xAxis: axis({
          type: log ? "log" : "value",
          min: points[0].value,
          max: points[points.length - 1].value,
          name: data.knob,
          nameLocation: "middle",
          nameGap: 30,
          axisLabel: { formatter: plain },
        }),
        yAxis: axis({
          type: "value",
          min: Math.max(0, floor - room),
          max: top + room,
          name: "step",
          nameTextStyle: { align: "left", color: colour("muted"), fontSize: 12 },
          axisLabel: { formatter: (v) => time(v), showMinLabel: false, showMaxLabel: false },
        }),
        tooltip: {
          trigger: "axis",
          axisPointer: { type: "line", lineStyle: { color: colour("line") } },
          formatter: (list) => {
            const p = points.find((x) => x.value === list[0]?.value[0]);
            return p
              ? tip(`${data.knob} ${plain(p.value)}`, [
                  ["step", time(p.step_ps)],
                  p.low_ps != null && ["interval", `${time(p.low_ps)} to ${time(p.high_ps)}`],
                  ["above the best", percent(p.step_ps / best.step_ps - 1, 2)],
                ])
              : "";
          },
        },
        series: [
          {
            type: "custom",
            silent: true,
            data: banded.length > 1 ? [[banded[0].value, banded[0].step_ps]] : [],
            clip: true,
            tooltip: { show: false },
            z: 1,
            renderItem: (params, api) => ({
              type: "polygon",
              shape: {
                points: [
                  ...banded.map((p) => api.coord([p.value, p.high_ps])),
                  ...[...banded].reverse().map((p) => api.coord([p.value, p.low_ps])),
                ],
              },
              style: { fill: colour("filler") },
            }),
          },
          {
            type: "line",
            symbol: "circle",
            symbolSize: 6,
            z: 3,
            data: points.map((p) => [p.value, p.step_ps]),
            lineStyle: { color: colour("series1"), width: 1.8 },
            itemStyle: { color: colour("series1") },
            markArea:
              flat && typeof flat.from === "number"
                ? {
                    silent: true,
                    itemStyle: { color: colour("good"), opacity: 0.09 },
                    label: {
                      show: true,
                      position: "insideTop",
                      color: colour("good"),
                      fontSize: 11,
                    },
                    data: [[{ name: "within 1 %", xAxis: flat.from }, { xAxis: flat.to }]],
                  }
                : undefined,
            markLine: bound
              ? {
                  silent: true,
                  symbol: "none",
                  animation: false,
                  data: [
                    mark({ yAxis: bound }, "no value beats this", "muted", "insideStartTop"),
                    ...(current && current.value == null
                      ? [mark({ yAxis: current.step_ps }, "now (default)", "text", "insideEndTop")]
                      : []),
                  ],
                }
              : undefined,
            markPoint: { animation: false, silent: true, data: dots },
          },
        ],
      };
    },
  });
  return section(
    `Step over ${data.knob}`,
    `The band is each prediction's interval: ${data.interval}. All points of it move together: what two settings differ by is surer than the band is wide.`,
    it.node,
  );
}

function numbers(data) {
  const { best } = data;
  return section(
    "The curve's numbers",
    null,
    table(
      [
        { name: data.knob, right: true, of: (p) => plain(p.value) },
        {
          name: "step",
          right: true,
          of: (p) => figure(`curve.${p.i}.step_ps`, p.step_ps, time(p.step_ps)),
        },
        {
          name: "interval",
          right: true,
          of: (p) => (p.low_ps == null ? "-" : `${time(p.low_ps)} to ${time(p.high_ps)}`),
        },
        {
          name: "above the best",
          right: true,
          of: (p) => percent(p.step_ps / best.step_ps - 1, 2),
        },
      ],
      data.curve.map((p, i) => ({ ...p, i })),
      { most: 40, label: "The curve", marked: (p) => p.value === best.value },
    ),
  );
}

// Between ticks: a power of two, for four to eight of them.
const niceBytes = (most) => 2 ** Math.max(0, Math.ceil(Math.log2(most / 8)));

function partition(data) {
  const p = data.partition;
  if (!p) return null;
  const tick = niceBytes(Math.max(...p.buckets));
  const it = chart("partition", {
    label: `Bytes of the ${p.buckets.length} buckets of the best partition`,
    height: 240,
    build: () => ({
      grid: { left: 92, right: 24, top: 16, bottom: 44 },
      xAxis: axis({
        type: "category",
        data: p.buckets.map((_, i) => String(i)),
        name: "bucket, in launch order",
        nameLocation: "middle",
        nameGap: 28,
      }),
      yAxis: axis({
        type: "value",
        interval: tick,
        max: Math.ceil(Math.max(...p.buckets) / tick) * tick,
        axisLabel: { formatter: (v) => bytes(v) },
      }),
      tooltip: {
        trigger: "item",
        formatter: (x) => tip(`bucket ${x.dataIndex}`, [["bytes", bytes(p.buckets[x.dataIndex])]]),
      },
      series: [
        {
          type: "bar",
          barMaxWidth: 34,
          data: p.buckets,
          itemStyle: { color: colour("communication") },
        },
      ],
    }),
  });
  return section(
    "The best partition",
    [
      "Buckets of unequal size: step ",
      figure("partition.step_ps", p.step_ps, time(p.step_ps)),
      `, ${time(Math.abs(data.best.step_ps - p.step_ps))} ${p.step_ps <= data.best.step_ps ? "less" : "more"} than with the best ${data.knob}.`,
    ],
    it.node,
    p.bucket_cap_mb_list
      ? h("pre", {}, `bucket_cap_mb_list=[${p.bucket_cap_mb_list.join(", ")}]`)
      : null,
    p.warning ? h("p", { class: "note" }, `bucket_cap_mb_list: ${p.warning}.`) : null,
  );
}

export function lines(data) {
  if (!data.lines || data.lines.length === 0) return null;
  const text = data.lines.join("\n");
  const copy = h(
    "button",
    {
      type: "button",
      onclick: () =>
        navigator.clipboard?.writeText(text).then(() => {
          copy.textContent = "Copied";
        }),
    },
    "Copy",
  );
  return section("For the training script", null, h("pre", {}, text), copy);
}

export function tunePage(data) {
  return [
    data.verdict ? h("p", { class: "lead" }, data.verdict) : null,
    data.question
      ? h("p", { class: "note" }, `${data.question}. Profile ${data.profile}: ${data.basis}.`)
      : null,
    ...(data.notes ?? []).map((note) =>
      h("p", { class: "note" }, `${note[0].toUpperCase()}${note.slice(1)}.`),
    ),
    headline(data),
    lines(data),
    curve(data),
    partition(data),
    data.levers
      ? levers(
          data.levers,
          data.recommended_step_ps ?? (data.current ?? data.best).step_ps,
          "Other levers",
        )
      : null,
    numbers(data),
    data.documents ? documents(data.documents) : null,
  ];
}
