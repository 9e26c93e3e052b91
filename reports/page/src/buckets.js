// Bucket after bucket: from ready to begin it waits, from begin to end it is in flight. Of the time
// in which nothing computes each moment is exposed of one of them: the one that is waited for.
import { axis, chart, kMarks, mark, slider } from "./charts.js";
import { figure, h, section, table, tip } from "./dom.js";
import { colour } from "./theme.js";
import { computation, rowsOfRun } from "./tracks.js";
import { bytes, time } from "./units.js";

const kMostRows = 28;
const shortName = (name) => name.replace(/^allreduce\//, "").replace(/^allreduce_grad\//, "");

// The most exposed of them, for the headline; "" = none.
export function mostExposed({ summary, exposed_ps: exposed }) {
  const order = exposed
    .map((e, i) => [e, i])
    .filter(([e]) => e > 0.001 * summary.step_ps)
    .sort((a, b) => b[0] - a[0]);
  const kNamed = 3;
  const named = order
    .slice(0, kNamed)
    .map(([e, i]) => `${shortName(summary.buckets[i].name)} ${time(e)}`)
    .join(", ");
  return (
    named && `${order.length} of ${exposed.length}: ${named}${order.length > kNamed ? ", ..." : ""}`
  );
}

export function buckets(data) {
  const { summary, exposed_ps: exposed, actor } = data;
  const list = summary.buckets;
  if (list.length === 0) return null;
  const rows = rowsOfRun(data.run, { actor });
  const busy = computation(rows, actor);
  const many = list.length > kMostRows;
  // The rows in view at first: those that show the most of what is exposed.
  const inWindow = (from) => exposed.slice(from, from + kMostRows).reduce((sum, e) => sum + e, 0);
  let first = 0;
  for (let from = 1; many && from + kMostRows <= list.length; ++from)
    if (inWindow(from) > inWindow(first)) first = from;
  if (first > 0) ++first; // row 0 is computation
  const names = ["computation", ...list.map((b) => shortName(b.name))];
  // [row, kind, begin, end]
  const bars = busy.map(([b, e]) => [0, "computation", b, e]);
  list.forEach((b, i) => {
    const ready = Math.min(b.ready_ps, b.begin_ps);
    if (ready < b.begin_ps) bars.push([i + 1, "wait", ready, b.begin_ps]);
    bars.push([i + 1, "communication", b.begin_ps, b.end_ps]);
    for (const [from, to] of data.exposed_at_ps[i]) bars.push([i + 1, "exposed", from, to]);
  });
  const fill = {
    computation: "backward",
    wait: "wait",
    communication: "communication",
    exposed: "exposed",
  };
  const least = Math.min(0, ...list.map((b) => b.ready_ps));
  const most = Math.max(summary.step_ps, ...list.map((b) => b.end_ps));
  const of = (row) =>
    row === 0
      ? tip("computation", [["on", `rank ${actor}`]])
      : tip(list[row - 1].name, [
          ["bytes", bytes(list[row - 1].bytes)],
          ["algorithm", list[row - 1].algorithm],
          ["ready", time(list[row - 1].ready_ps)],
          ["begin", time(list[row - 1].begin_ps)],
          ["end", time(list[row - 1].end_ps)],
          ["exposed", time(exposed[row - 1])],
          [
            `${list[row - 1].tensors.length} tensors`,
            list[row - 1].tensors.slice(0, 6).join(", ") +
              (list[row - 1].tensors.length > 6 ? ", ..." : ""),
          ],
        ]);
  const called = list.every((b) => b.name.includes("allreduce/"))
    ? "Gradient all-reduces"
    : "Collectives";
  // Plain averaging has an all-reduce for each parameter.
  const inBuckets = list.every((b) => b.name.includes("allreduce/bucket."));
  const it = chart("buckets", {
    label: `${called} over the step: ${list.length}${inBuckets ? " buckets" : ""}, ready, begin, end and exposed part; the same numbers are in the table below`,
    height: Math.min(names.length, kMostRows + 1) * 24 + 84,
    build: () => ({
      grid: {
        left: Math.min(230, 24 + 6.6 * Math.max(...names.map((n) => n.length))),
        right: many ? 42 : 16,
        top: 22,
        bottom: 62,
      },
      xAxis: axis({
        type: "value",
        min: least,
        max: most,
        axisLabel: { formatter: (v) => time(v) },
        splitNumber: 8,
      }),
      yAxis: axis({
        type: "category",
        inverse: true,
        data: names,
        axisTick: { show: false },
        splitLine: { show: false },
        axisLabel: { interval: 0, color: colour("text"), width: 206, overflow: "truncate" },
      }),
      dataZoom: [
        {
          type: "inside",
          xAxisIndex: 0,
          filterMode: "none",
          zoomOnMouseWheel: "ctrl",
          moveOnMouseMove: true,
          moveOnMouseWheel: false,
        },
        slider({
          xAxisIndex: 0,
          filterMode: "none",
          bottom: 10,
          labelFormatter: (v) => time(Math.round(v)),
        }),
        ...(many
          ? [
              slider({
                id: "rows",
                yAxisIndex: 0,
                filterMode: "empty",
                right: 6,
                width: 16,
                height: null,
                top: 22,
                bottom: 62,
                startValue: first,
                endValue: first + kMostRows,
                maxValueSpan: kMostRows,
                showDetail: false,
              }),
            ]
          : []),
      ],
      tooltip: { trigger: "item", formatter: (p) => of(bars[p.dataIndex][0]) },
      series: [
        {
          type: "custom",
          clip: true,
          data: bars.map((b) => [b[2], b[3], b[0]]),
          encode: { x: [0, 1], y: 2 },
          renderItem: (params, api) => {
            const [row, kind, begin, end] = bars[params.dataIndex];
            const [x0, y] = api.coord([begin, row]);
            const [x1] = api.coord([end, row]);
            const height = kind === "exposed" ? 5 : kind === "wait" ? 4 : 14;
            const top = kind === "exposed" ? y + 7 : y - height / 2;
            return {
              type: "rect",
              shape: { x: x0, y: top, width: Math.max(1, x1 - x0), height },
              style: { fill: colour(fill[kind]) },
            };
          },
          markLine: {
            ...kMarks,
            data: [
              mark({ xAxis: 0 }, "step begins", "muted", "start"),
              mark({ xAxis: summary.step_ps }, "ends", "muted", "start"),
            ],
          },
        },
      ],
    }),
  });
  const rowsTable = list.map((b, i) => ({ ...b, i, exposed: exposed[i] }));
  const kTable = 24;
  if (list.length > kTable) rowsTable.sort((a, b) => b.exposed - a.exposed || a.i - b.i); // not behind a button
  return section(
    called,
    `${list.length} in launch order, on rank ${actor}; times from the start of the step.${list.length > kTable ? " The table begins with those that are exposed the most." : ""}`,
    it.node,
    h(
      "div",
      { class: "keys" },
      [
        ["wait", "ready, waiting"],
        ["communication", "in flight"],
        ["exposed", "of that, nothing computes"],
        ["backward", "computation"],
      ].map(([c, text]) =>
        h("span", {}, h("span", { class: "swatch", style: { background: `var(--${c})` } }), text),
      ),
    ),
    table(
      [
        { name: inBuckets ? "bucket" : "name", of: (b) => shortName(b.name) },
        {
          name: "bytes",
          right: true,
          of: (b) => figure(`summary.buckets.${b.i}.bytes`, b.bytes, bytes(b.bytes)),
        },
        { name: "tensors", right: true, of: (b) => String(b.tensors.length) },
        {
          name: "ready",
          right: true,
          of: (b) => figure(`summary.buckets.${b.i}.ready_ps`, b.ready_ps, time(b.ready_ps)),
        },
        {
          name: "begin",
          right: true,
          of: (b) => figure(`summary.buckets.${b.i}.begin_ps`, b.begin_ps, time(b.begin_ps)),
        },
        {
          name: "end",
          right: true,
          of: (b) => figure(`summary.buckets.${b.i}.end_ps`, b.end_ps, time(b.end_ps)),
        },
        { name: "in flight", right: true, of: (b) => time(b.end_ps - b.begin_ps) },
        { name: "exposed", right: true, of: (b) => time(b.exposed) },
        { name: "algorithm", of: (b) => b.algorithm },
      ],
      rowsTable,
      { most: kTable, label: called },
    ),
  );
}
