// ddpsim tune --html of a plan that shards: every plan that was simulated by its memory and its
// step, what is recommended, and each decision by itself.
import { axis, chart, legend, mark } from "./charts.js";
import { documents } from "./documents.js";
import { figure, h, section, table, tip } from "./dom.js";
import { colour } from "./theme.js";
import { lines } from "./tune_page.js";
import { bytes, percent, time } from "./units.js";

const same = (a, b) => a && b && JSON.stringify(a.settings) === JSON.stringify(b.settings);
const fits = (p) => (p.fits === null ? "not known" : p.fits ? "yes" : "does not fit");

// What a plan changes of the one as it is.
function changes(data, p) {
  const said = Object.entries(p.settings)
    .filter(([name, value]) => value !== data.current.settings[name])
    .map(([name, value]) => `${name}=${value}`);
  return said.length > 0 ? said.join(", ") : "as it is";
}

function headline(data) {
  const item = (name, key, p, first) =>
    h(
      "div",
      { class: first ? "big" : null },
      h("dt", {}, name),
      h(
        "dd",
        {},
        figure(`${key}.step_ps`, p.step_ps, time(p.step_ps)),
        h("small", {}, changes(data, p)),
        h(
          "small",
          {},
          figure(`${key}.memory_bytes`, p.memory_bytes, bytes(p.memory_bytes)),
          p.fits === false ? " a device: does not fit" : " a device",
        ),
      ),
    );
  const { current, recommended, leanest, shortest } = data;
  return h(
    "dl",
    { class: "figures" },
    recommended
      ? item("Recommended", "recommended", recommended, true)
      : h("div", { class: "big" }, h("dt", {}, "Recommended"), h("dd", {}, "nothing fits")),
    item("Now", "current", current),
    shortest.fits === false ? item("Shortest of all", "shortest", shortest) : null,
    leanest ? item("Least memory, as short", "leanest", leanest) : null,
  );
}

function cloud(data) {
  const limit = data.memory_limit_bytes;
  const kinds = [
    ["fits", "series1", (p) => p.fits !== false],
    ["does not fit", "bad", (p) => p.fits === false],
  ];
  const named = [
    ["recommended", data.recommended, "top"],
    ["now", same(data.current, data.recommended) ? null : data.current, "bottom"],
  ].filter(([, p]) => p);
  const it = chart("plans", {
    label: "Step over memory of every simulated plan; the numbers are in the table at the end",
    height: 420,
    build: () => ({
      grid: { left: 92, right: 40, top: 34, bottom: 84 },
      legend: legend({ bottom: 0, left: 0 }),
      xAxis: axis({
        type: "value",
        scale: true,
        name: "memory a device",
        nameLocation: "middle",
        nameGap: 30,
        axisLabel: { formatter: (v) => bytes(v) },
      }),
      yAxis: axis({
        type: "value",
        scale: true,
        name: "step",
        nameTextStyle: { align: "left", color: colour("muted"), fontSize: 12 },
        axisLabel: { formatter: (v) => time(v) },
      }),
      tooltip: {
        trigger: "item",
        formatter: (x) => {
          const p = data.tried[x.data?.plan];
          return p
            ? tip(changes(data, p), [
                ["step", time(p.step_ps)],
                ["memory", bytes(p.memory_bytes)],
                ["fits", fits(p)],
              ])
            : "";
        },
      },
      series: kinds.map(([name, of, takes], k) => ({
        name,
        type: "scatter",
        symbolSize: 8,
        itemStyle: { color: colour(of) },
        data: data.tried
          .map((p, plan) => ({ value: [p.memory_bytes, p.step_ps], plan, p }))
          .filter((x) => takes(x.p))
          .map(({ value, plan }) => ({ value, plan })),
        markLine:
          k === 0 && limit
            ? {
                silent: true,
                symbol: "none",
                animation: false,
                data: [mark({ xAxis: limit }, "the device", "muted", "insideEndTop")],
              }
            : undefined,
        markPoint:
          k === 0
            ? {
                animation: false,
                silent: true,
                data: named.map(([text, p, position]) => ({
                  name: text,
                  coord: [p.memory_bytes, p.step_ps],
                  symbol: "circle",
                  symbolSize: 13,
                  itemStyle: {
                    color: colour("surface"),
                    borderColor: colour("text"),
                    borderWidth: 2,
                  },
                  label: {
                    show: true,
                    formatter: text,
                    position,
                    color: colour("text"),
                    fontSize: 12,
                  },
                })),
              }
            : undefined,
      })),
    }),
  });
  return section("Every plan that was simulated", `Step and memory: ${data.interval}.`, it.node);
}

function plans(data, key, title, note, what) {
  const rows = data[key].map((p, i) => ({ ...p, i }));
  if (rows.length === 0) return null;
  return section(
    title,
    note,
    table(
      [
        { name: "setting", wide: true, of: what },
        {
          name: "step",
          right: true,
          of: (p) => figure(`${key}.${p.i}.step_ps`, p.step_ps, time(p.step_ps)),
        },
        {
          name: "of now",
          right: true,
          of: (p) => percent(p.step_ps / data.current.step_ps - 1, 1),
        },
        {
          name: "exposed",
          right: true,
          of: (p) =>
            figure(
              `${key}.${p.i}.exposed_communication_ps`,
              p.exposed_communication_ps,
              time(p.exposed_communication_ps),
            ),
        },
        {
          name: "a device",
          right: true,
          of: (p) => figure(`${key}.${p.i}.memory_bytes`, p.memory_bytes, bytes(p.memory_bytes)),
        },
        { name: "fits", of: fits },
      ],
      rows,
      { most: 40, label: title, marked: (p) => same(p, data.recommended) },
    ),
  );
}

export function shardedPage(data) {
  return [
    data.verdict ? h("p", { class: "lead" }, data.verdict) : null,
    h("p", { class: "note" }, `${data.question}. Profile ${data.profile}: ${data.basis}.`),
    headline(data),
    lines(data),
    cloud(data),
    plans(
      data,
      "around",
      "One decision at a time",
      "The others as recommended.",
      (p) => `${p.knob}=${p.value}`,
    ),
    plans(data, "tried", "All plans", null, (p) => changes(data, p)),
    data.documents ? documents(data.documents) : null,
  ];
}
