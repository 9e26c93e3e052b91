// One place that knows ECharts: what is drawn is an option; here are its life, colours, keys and
// pictures.
import { init, use, graphic } from "echarts/core";
import { BarChart, CustomChart, HeatmapChart, LineChart, ScatterChart } from "echarts/charts";
import {
  DataZoomComponent,
  GridComponent,
  LegendComponent,
  MarkAreaComponent,
  MarkLineComponent,
  MarkPointComponent,
  TooltipComponent,
  VisualMapComponent,
} from "echarts/components";
import { CanvasRenderer, SVGRenderer } from "echarts/renderers";

import { h } from "./dom.js";
import { colour, onTheme } from "./theme.js";

use([
  BarChart,
  CustomChart,
  HeatmapChart,
  LineChart,
  ScatterChart,
  DataZoomComponent,
  GridComponent,
  LegendComponent,
  MarkAreaComponent,
  MarkLineComponent,
  MarkPointComponent,
  TooltipComponent,
  VisualMapComponent,
  CanvasRenderer,
  SVGRenderer,
]);

export { graphic };
export const charts = {}; // by name, for whoever looks from outside

export const axis = (more = {}) => ({
  axisLine: { lineStyle: { color: colour("line") } },
  axisTick: { lineStyle: { color: colour("line") } },
  splitLine: { lineStyle: { color: colour("grid") } },
  axisLabel: { color: colour("muted"), fontSize: 12, hideOverlap: true, ...more.axisLabel },
  nameTextStyle: { color: colour("muted"), fontSize: 12 },
  ...Object.fromEntries(Object.entries(more).filter(([k]) => k !== "axisLabel")),
});
export const legend = (more = {}) => ({
  textStyle: { color: colour("text"), fontSize: 12 },
  inactiveColor: colour("grid"),
  itemHeight: 10,
  ...more,
});
export const slider = (more = {}) => ({
  type: "slider",
  height: 18,
  borderColor: colour("grid"),
  fillerColor: colour("filler"),
  backgroundColor: "transparent",
  showDataShadow: false,
  brushSelect: false,
  handleStyle: { color: colour("surface"), borderColor: colour("muted") },
  moveHandleStyle: { color: colour("line") },
  textStyle: { color: colour("muted"), fontSize: 11 },
  dataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } },
  ...more,
});
// Of lines across a chart: at their value, which ECharts else rounds to hundredths.
export const kMarks = { silent: true, symbol: "none", animation: false, precision: 15 };
// One of them, with its name at its end.
export const mark = (at, text, name = "text", position = "insideEndTop") => ({
  ...at,
  label: { formatter: text, position, color: colour("muted"), fontSize: 11 },
  lineStyle: { color: colour(name), type: "dashed", width: 1 },
});

function base(option) {
  return {
    animation: false,
    backgroundColor: "transparent",
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
    ...option,
    tooltip: {
      confine: true,
      transitionDuration: 0,
      backgroundColor: colour("surface"),
      borderColor: colour("line"),
      padding: [8, 10],
      textStyle: { color: colour("text"), fontSize: 12 },
      extraCssText: "max-width:460px;white-space:normal;box-shadow:none",
      ...option.tooltip,
    },
  };
}

const kZoomStep = 1.6;
const kPanStep = 0.15;

// + - 0 and arrows, on the chart's dataZooms: the first is of x, one named "rows" of y.
function onKey(chart, event) {
  const zooms = chart.getOption().dataZoom ?? [];
  const x = zooms.findIndex((z) => z.xAxisIndex !== undefined);
  const y = zooms.findIndex((z) => z.id === "rows");
  const move = (index, zoom, pan) => {
    const { start, end } = zooms[index];
    const width = Math.min(100, (end - start) * zoom);
    const middle = (start + end) / 2 + pan * (end - start);
    const from = Math.max(0, Math.min(100 - width, middle - width / 2));
    chart.dispatchAction({
      type: "dataZoom",
      dataZoomIndex: index,
      start: from,
      end: from + width,
    });
  };
  const keys = {
    "+": () => move(x, 1 / kZoomStep, 0),
    "=": () => move(x, 1 / kZoomStep, 0),
    "-": () => move(x, kZoomStep, 0),
    0: () => chart.dispatchAction({ type: "dataZoom", dataZoomIndex: x, start: 0, end: 100 }),
    ArrowLeft: () => move(x, 1, -kPanStep),
    ArrowRight: () => move(x, 1, kPanStep),
    ArrowUp: y >= 0 ? () => move(y, 1, -kPanStep) : null,
    ArrowDown: y >= 0 ? () => move(y, 1, kPanStep) : null,
  };
  if (x < 0 || !keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  keys[event.key]();
}

// build(): the option, in the colours of now. Returns {node, echart, refresh}; another chart of the
// same name ends it. `key(event)`: true if it was for it.
export function chart(name, { label, height, build, key, ready, picture = true }) {
  const canvas = h("div", {
    class: "chart",
    "data-chart": name,
    tabindex: 0,
    role: "img",
    "aria-label": label,
    style: { height: `${height}px` },
  });
  const save = h("button", { type: "button", title: "Save this chart as PNG" }, "PNG");
  const saveSvg = h(
    "button",
    { type: "button", title: "Save this chart as SVG, for a paper" },
    "SVG",
  );
  const node = h("figure", {}, canvas, picture ? h("div", { class: "save" }, save, saveSvg) : null);
  const it = { node, echart: null, refresh: null, end() {} };
  charts[name]?.end();
  const start = () => {
    it.echart = init(canvas, null, { renderer: "canvas" });
    let width = 0;
    let shown = false;
    it.refresh = () => {
      const zoom = shown
        ? (it.echart.getOption().dataZoom ?? []).map(({ start: from, end: to }) => ({
            start: from,
            end: to,
          }))
        : [];
      it.echart.setOption(base(build(it.echart)), { notMerge: true });
      shown = true;
      zoom.forEach((z, dataZoomIndex) =>
        it.echart.dispatchAction({ type: "dataZoom", dataZoomIndex, ...z }),
      );
    };
    it.refresh();
    const themed = onTheme(() => {
      it.echart.resize();
      it.refresh();
    });
    const observer = new ResizeObserver(() => {
      if (canvas.clientWidth === width || canvas.clientWidth === 0) return;
      width = canvas.clientWidth;
      it.echart.resize();
    });
    observer.observe(canvas);
    it.end = () => {
      themed();
      observer.disconnect();
      it.echart.dispose();
    };
    canvas.addEventListener("keydown", (event) => {
      if (!key?.(event, it.echart)) onKey(it.echart, event);
    });
    save.addEventListener("click", () => {
      const url = it.echart.getDataURL({
        type: "png",
        pixelRatio: 2,
        backgroundColor: colour("surface"),
      });
      h("a", { href: url, download: `ddpsim-${name}.png` }).click();
    });
    // The same option, drawn once more as it is shown: zoomed where the canvas is.
    saveSvg.addEventListener("click", () => {
      const drawn = init(null, null, {
        renderer: "svg",
        ssr: true,
        width: canvas.clientWidth,
        height,
      });
      drawn.setOption(
        { ...base(build(it.echart)), backgroundColor: colour("surface") },
        { notMerge: true },
      );
      (it.echart.getOption().dataZoom ?? []).forEach(({ start: from, end: to }, dataZoomIndex) =>
        drawn.dispatchAction({ type: "dataZoom", dataZoomIndex, start: from, end: to }),
      );
      const url = URL.createObjectURL(
        new Blob([drawn.renderToSVGString()], { type: "image/svg+xml" }),
      );
      drawn.dispose();
      h("a", { href: url, download: `ddpsim-${name}.svg` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    });
    charts[name] = it;
    ready?.(it.echart);
  };
  pending.push(start);
  return it;
}

// Charts need their place in the page to know their size.
let pending = [];
export function drawCharts() {
  const starts = pending;
  pending = [];
  for (const start of starts) start();
}
