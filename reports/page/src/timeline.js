// Spans over time, a row per rank and lane. Only what is in view is drawn, so that a thousand ranks
// cost what a screen shows.
import { axis, chart, graphic, kMarks, mark, slider } from "./charts.js";
import { h, tip, toggle } from "./dom.js";
import { colour } from "./theme.js";
import { categoryOf, reason, visible } from "./tracks.js";
import { bytes, time } from "./units.js";

const kRowHeight = 26;
export const kMostRows = 24;
const kMostTensors = 6;

export const categories = [
  ["forward", "forward"],
  ["backward", "backward"],
  ["averaging", "averaging on the device"],
  ["optimizer", "optimizer"],
  ["communication", "communication"],
  ["wait", "waiting for communication"],
  ["host", "host: launches"],
];

export function keys(rows) {
  const seen = new Set(rows.flatMap((r) => [...new Set(r.op)].map((op) => r.run.ops[op].category)));
  return h(
    "div",
    { class: "keys" },
    categories
      .filter(([c]) => seen.has(c))
      .map(([c, text]) =>
        h("span", {}, h("span", { class: "swatch", style: { background: `var(--${c})` } }), text),
      ),
  );
}

function spanTip(rows, { row, from, to, begin, end }, explain) {
  const ops = row.run.ops;
  if (from !== to) {
    let longest = from;
    for (let i = from; i <= to; ++i)
      if (row.end[i] - row.begin[i] > row.end[longest] - row.begin[longest]) longest = i;
    return tip(`${to - from + 1} operations`, [
      ["on", row.name],
      ["begin", time(begin)],
      ["end", time(end)],
      ["longest", `${ops[row.op[longest]].name}, ${time(row.end[longest] - row.begin[longest])}`],
      ["", "zoom in to tell them apart"],
    ]);
  }
  const op = ops[row.op[from]];
  const names = op.tensors.map((t) => row.run.tensors[t] ?? `tensor ${t}`);
  const why = explain ? reason(rows, row, from) : null;
  return tip(op.name, [
    ["on", row.name],
    op.bytes > 0 && ["bytes", bytes(op.bytes)],
    op.algorithm && ["algorithm", op.algorithm],
    ["begin", time(begin)],
    ["end", time(end)],
    ["duration", time(end - begin)],
    [
      "ready",
      time(begin - row.wait[from]) + (row.wait[from] > 0 ? `, waited ${time(row.wait[from])}` : ""),
    ],
    why && ["why", why],
    names.length > 0 && [
      names.length === 1 ? "tensor" : `${names.length} tensors`,
      names.slice(0, kMostTensors).join(", ") +
        (names.length > kMostTensors ? `, and ${names.length - kMostTensors} more` : ""),
    ],
  ]);
}

function drawSpan(items, params, api) {
  const item = items[params.dataIndex];
  const [x0, y] = api.coord([item.begin, item.at]);
  const [x1] = api.coord([item.end, item.at]);
  const height = Math.min(20, api.size([0, 1])[1] * 0.76);
  const whole = {
    x: x0,
    y: y - height / 2,
    width: Math.max(1, x1 - x0 - (x1 - x0 > 6 ? 0.5 : 0)),
    height,
  };
  const { x, y: top, width, height: bottom } = params.coordSys;
  const shape = graphic.clipRectByRect(whole, { x, y: top, width, height: bottom });
  if (!shape) return null;
  const category = categoryOf(item);
  const rect = {
    type: "rect",
    shape,
    style: { fill: colour(category), opacity: item.row.faint ? 0.55 : 1 },
    emphasis: { style: { stroke: colour("text"), lineWidth: 1.5 } },
  };
  if (item.from !== item.to || shape.width < 46) return rect;
  rect.textContent = {
    type: "text",
    style: {
      text: item.row.run.ops[item.row.op[item.from]].name,
      fill: item.row.faint
        ? colour("text")
        : category === "wait" ||
            category === "forward" ||
            category === "averaging" ||
            category === "host"
          ? "#14181d"
          : "#ffffff",
      fontSize: 11,
      width: shape.width - 8,
      overflow: "truncate",
    },
  };
  rect.textConfig = { position: "insideLeft", distance: 4 };
  return rect;
}

// rows: of tracks.js, `title` of each names it on the axis. marks: [[ps, text]]. from, to: in view
// at first. explain: say why a predicted span began when it did.
export function timeline(name, { rows, label, marks, from, to, explain = true }) {
  const many = rows.length > kMostRows;
  const shownRows = Math.min(rows.length, kMostRows);
  let least = from;
  let most = to;
  for (const row of rows) {
    least = Math.min(least, row.begin[0] ?? least);
    most = Math.max(most, row.end[row.end.length - 1] ?? most);
  }
  // What ran ahead of the step would push the step to the side: it is shown when it is asked for.
  const earliest = least;
  const isAhead = from - earliest > 0.02 * (to - from);
  if (isAhead) least = from;
  let range = most - least || 1;
  const longest = Math.max(...rows.map((r) => r.title.length));
  const left = Math.min(230, 24 + longest * 6.6);
  const state = { rows, items: [], window: null };

  const inView = (echart) => {
    const zooms = echart.getOption()?.dataZoom;
    const x = zooms
      ? [least + (range * zooms[0].start) / 100, least + (range * zooms[0].end) / 100]
      : [from, to];
    const first = zooms && many ? Math.floor(zooms[2].startValue) : 0;
    const last = zooms && many ? Math.ceil(zooms[2].endValue) : shownRows - 1;
    const psPerPixel = (x[1] - x[0]) / Math.max(200, echart.getWidth() - left - 40);
    state.window = { begin: x[0], end: x[1], first, last };
    state.items = [];
    for (let at = first; at <= Math.min(last, rows.length - 1); ++at)
      for (const item of visible(rows[at], x[0], x[1], psPerPixel))
        state.items.push({ ...item, at });
    return state.items.map((i) => [i.begin, i.end, i.at]);
  };
  const percentOf = (t) => (100 * (t - least)) / range;

  const it = chart(name, {
    label,
    height: shownRows * kRowHeight + 84,
    build: (echart) => ({
      grid: { left, right: many ? 42 : 16, top: 22, bottom: 62 },
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
        data: rows.map((r) => r.title),
        axisTick: { show: false },
        splitLine: { show: false },
        axisLabel: {
          interval: 0,
          fontSize: 12,
          width: left - 16,
          overflow: "truncate",
          color: colour("text"),
        },
      }),
      dataZoom: [
        {
          type: "inside",
          xAxisIndex: 0,
          filterMode: "none",
          zoomOnMouseWheel: "ctrl",
          moveOnMouseMove: true,
          moveOnMouseWheel: false,
          start: percentOf(from),
          end: percentOf(to),
        },
        slider({
          xAxisIndex: 0,
          filterMode: "none",
          bottom: 10,
          labelFormatter: (v) => time(Math.round(v)),
          start: percentOf(from),
          end: percentOf(to),
        }),
        ...(many
          ? [
              slider({
                id: "rows",
                yAxisIndex: 0,
                filterMode: "none",
                right: 6,
                width: 16,
                height: null,
                top: 22,
                bottom: 62,
                startValue: 0,
                endValue: kMostRows - 1,
                maxValueSpan: kMostRows - 1,
                minValueSpan: Math.min(5, kMostRows - 1),
                showDetail: false,
              }),
            ]
          : []),
      ],
      tooltip: {
        trigger: "item",
        formatter: (p) =>
          p.seriesIndex === 0 && state.items[p.dataIndex]
            ? spanTip(rows, state.items[p.dataIndex], explain)
            : "",
      },
      series: [
        {
          type: "custom",
          data: inView(echart),
          encode: { x: [0, 1], y: 2 },
          clip: true,
          renderItem: (params, api) => drawSpan(state.items, params, api),
          markLine: {
            ...kMarks,
            data: marks.map(([at, text]) => mark({ xAxis: at }, text, "muted", "start")),
          },
        },
      ],
    }),
    ready: (echart) => {
      let asked = false;
      echart.on("datazoom", () => {
        if (asked) return;
        asked = true;
        requestAnimationFrame(() => {
          asked = false;
          echart.setOption({ series: [{ data: inView(echart) }] });
        });
      });
      echart
        .getZr()
        .on("dblclick", () =>
          echart.dispatchAction({
            type: "dataZoom",
            dataZoomIndex: 0,
            start: percentOf(from),
            end: percentOf(to),
          }),
        );
    },
    // n and p: from span to span of the first row that has several, with its tooltip.
    key: (event, echart) => {
      if (event.key !== "n" && event.key !== "p") return false;
      const count = state.items.length;
      if (count === 0) return true;
      state.focus =
        ((state.focus ?? (event.key === "n" ? -1 : count)) + (event.key === "n" ? 1 : -1) + count) %
        count;
      echart.dispatchAction({ type: "showTip", seriesIndex: 0, dataIndex: state.focus });
      return true;
    },
  });
  const ahead = isAhead
    ? toggle("what was launched before the step, too", false, (on) => {
        least = on ? earliest : from;
        range = most - least || 1;
        it.refresh();
        it.echart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start: 0, end: 100 });
      })
    : null;
  // Scrolls to a row; for whoever knows which one they want.
  const show = (at) => {
    const first = Math.max(0, Math.min(rows.length - kMostRows, at));
    if (many)
      it.echart.dispatchAction({
        type: "dataZoom",
        dataZoomIndex: 2,
        startValue: first,
        endValue: first + kMostRows - 1,
      });
  };
  return Object.assign(it, { state, many, show, ahead });
}

export const help = () =>
  h(
    "p",
    { class: "note keyhelp" },
    "Drag to pan, ",
    h("kbd", {}, "Ctrl"),
    " + wheel to zoom, double click for the whole step. With the keyboard: ",
    h("kbd", {}, "+"),
    " ",
    h("kbd", {}, "-"),
    " zoom, arrows pan, ",
    h("kbd", {}, "0"),
    " everything, ",
    h("kbd", {}, "n"),
    " ",
    h("kbd", {}, "p"),
    " from one operation to the next.",
  );
