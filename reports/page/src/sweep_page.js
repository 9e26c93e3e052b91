// ddpsim sweep --html: one result over one or two axes, the others held.
import { axis, chart, drawCharts, legend } from "./charts.js";
import { documents } from "./documents.js";
import { choice, figure, h, section, table, tip, toggle } from "./dom.js";
import {
  best,
  doesNotFit,
  isValid,
  moreIsBetter,
  readSweep,
  reasonOf,
  select,
} from "./sweep_data.js";
import { along, colour, textOn } from "./theme.js";
import { quantity, time } from "./units.js";

const kBest = 20;
const kMostLines = 8;
const kNone = "(none)";

const rowTip = (sweep, row) =>
  tip(sweep.axes.map((a) => `${a.name} ${quantity(a.values[row], a.unit)}`).join(", "), [
    ...sweep.results.map((r) => [r.name, quantity(r.values[row], r.unit)]),
    !isValid(sweep.results[0], row) && ["reason", reasonOf(sweep, row)],
  ]);
const tick = (column) => (v) =>
  typeof v !== "number"
    ? String(v)
    : column.unit === "ps" || column.name.endsWith("_ps")
      ? time(v)
      : quantity(v, column.unit);

// The values at which the axes that are not drawn are held: their first, and those of the best row.
function heldAt(sweep, result) {
  const [row] = best(sweep, result, 1);
  return Object.fromEntries(
    sweep.axes.map((a) => [a.name, row === undefined ? a.distinct[0] : a.values[row]]),
  );
}

function holders(sweep, state, free, redraw) {
  return sweep.axes
    .filter((a) => !free.includes(a.name) && a.distinct.length > 1)
    .map((a) =>
      choice(
        a.name,
        a.distinct.map((v, i) => [i, quantity(v, a.unit)]),
        a.place.get(state.fixed[a.name]),
        (i) => {
          state.fixed[a.name] = a.distinct[i];
          redraw();
        },
      ),
    );
}

// As many values as lines can be told apart, the first and the last among them.
const spread = (values) =>
  values.length <= kMostLines
    ? values
    : Array.from(
        { length: kMostLines },
        (_, i) => values[Math.round((i * (values.length - 1)) / (kMostLines - 1))],
      );

function lines(sweep, state) {
  const x = sweep.axes.find((a) => a.name === state.x);
  const by = sweep.axes.find((a) => a.name === state.by);
  const result = sweep.results[state.result];
  const rows = select(sweep, [x.name, by?.name].filter(Boolean), state.fixed);
  const shown = by ? spread(by.distinct) : [null];
  const valid = rows.filter((r) => isValid(result, r));
  const invalid = rows.filter((r) => !isValid(result, r) && (!by || shown.includes(by.values[r])));
  const logX = state.logX && x.numeric && x.distinct[0] > 0;
  const at = (row) => (x.numeric ? x.values[row] : x.place.get(x.values[row]));
  const values = valid.map((r) => result.values[r]);
  const logY = state.logY && values.length > 0 && Math.min(...values) > 0;
  return chart("lines", {
    label: `${result.name} over ${x.name}; the best rows are in the table below`,
    height: 460,
    build: () => {
      const low = values.length > 0 ? Math.min(...values) : 1;
      const high = values.length > 0 ? Math.max(...values) : 2;
      const floor = logY ? low / 1.08 : Math.max(0, low - (high - low || high) * 0.08);
      const series = shown.map((v, k) => ({
        name: by ? `${by.name} ${quantity(v, by.unit)}` : result.name,
        type: "line",
        symbolSize: 7,
        symbol: "circle",
        connectNulls: false,
        lineStyle: { color: colour(`series${k + 1}`), width: 1.6 },
        itemStyle: { color: colour(`series${k + 1}`) },
        data: valid
          .filter((r) => !by || by.values[r] === v)
          .sort((a, b) => at(a) - at(b))
          .map((r) => ({ value: [at(r), result.values[r]], row: r })),
      }));
      if (invalid.length > 0)
        series.push({
          name: "no result",
          type: "scatter",
          symbol: "path://M1 0 L5 4 L9 0 L10 1 L6 5 L10 9 L9 10 L5 6 L1 10 L0 9 L4 5 L0 1 Z",
          symbolSize: 9,
          itemStyle: { color: colour("bad") },
          data: invalid.map((r) => ({ value: [at(r), floor], row: r })),
        });
      return {
        grid: { left: 92, right: 24, top: 26, bottom: 84 },
        legend: legend({ bottom: 0, left: 0, itemGap: 16 }),
        xAxis: x.numeric
          ? axis({
              type: logX ? "log" : "value",
              min: logX ? x.distinct[0] : "dataMin",
              max: "dataMax",
              name: x.name,
              nameLocation: "middle",
              nameGap: 28,
              axisLabel: { formatter: tick(x) },
            })
          : axis({
              type: "category",
              data: x.distinct.map((v) => quantity(v, x.unit)),
              name: x.name,
              nameLocation: "middle",
              nameGap: 28,
            }),
        yAxis: axis({
          type: logY ? "log" : "value",
          name: result.name,
          nameTextStyle: { align: "left", color: colour("muted"), fontSize: 12 },
          min: floor,
          scale: true,
          axisLabel: { formatter: tick(result), showMinLabel: false },
        }),
        tooltip: {
          trigger: "item",
          formatter: (p) => (p.data?.row === undefined ? "" : rowTip(sweep, p.data.row)),
        },
        series,
      };
    },
  });
}

function heat(sweep, state) {
  const x = sweep.axes.find((a) => a.name === state.hx);
  const y = sweep.axes.find((a) => a.name === state.hy);
  const result = sweep.results[state.result];
  const rows = select(sweep, [x.name, y.name], state.fixed);
  const value = (r) => (state.logY ? Math.log10(result.values[r]) : result.values[r]);
  const valid = rows.filter((r) => isValid(result, r) && (!state.logY || result.values[r] > 0));
  const invalid = rows.filter((r) => !isValid(result, r));
  const values = valid.map(value);
  const roomy = x.distinct.length <= 14 && y.distinct.length <= 24;
  return chart("heat", {
    label: `${result.name} over ${x.name} and ${y.name}; the best rows are in the table below`,
    height: Math.max(320, Math.min(680, y.distinct.length * 30 + 120)),
    build: () => {
      const low = values.length > 0 ? Math.min(...values) : 0;
      const high = values.length > 0 ? Math.max(...values) : 1;
      const back = (v) => tick(result)(state.logY ? 10 ** v : v);
      const dark = document.documentElement.dataset.theme === "dark";
      const ramp = dark
        ? ["#163a5a", "#1f6a8f", "#3f9a9a", "#9cc27a", "#f0d97a"]
        : ["#24588f", "#3f8fb5", "#7cc0b0", "#cfe3a8", "#fbf3c8"];
      const shown = moreIsBetter(result) ? [...ramp].reverse() : ramp;
      const labels = {
        show: roomy && valid.length <= 200,
        fontSize: 11,
        lineHeight: 13,
        formatter: (p) => tick(result)(result.values[p.data.row]).replace(" ", "\n"),
      };
      // A label's colour is that of the two which its cell's colour is further from.
      const share = (r) => (isValid(result, r) && high > low ? (value(r) - low) / (high - low) : 0);
      const cell = (r) => ({
        value: [
          x.place.get(x.values[r]),
          y.place.get(y.values[r]),
          isValid(result, r) ? value(r) : low,
        ],
        row: r,
        label: { color: textOn(along(shown, share(r))) },
      });
      return {
        grid: {
          left: Math.min(
            200,
            40 + 7 * Math.max(...y.distinct.map((v) => quantity(v, y.unit).length), 4),
          ),
          right: 120,
          top: 30,
          bottom: 60,
        },
        xAxis: axis({
          type: "category",
          data: x.distinct.map((v) => quantity(v, x.unit)),
          name: x.name,
          nameLocation: "middle",
          nameGap: 30,
          splitArea: { show: false },
          splitLine: { show: false },
        }),
        yAxis: axis({
          type: "category",
          data: y.distinct.map((v) => quantity(v, y.unit)),
          name: y.name,
          nameTextStyle: { align: "left", color: colour("muted"), fontSize: 12 },
          splitLine: { show: false },
        }),
        visualMap: {
          type: "continuous",
          seriesIndex: 0,
          min: low,
          max: high > low ? high : low + 1,
          dimension: 2,
          right: 4,
          top: "middle",
          calculable: false,
          itemHeight: 180,
          itemWidth: 12,
          text: [back(high), back(low)],
          textStyle: { color: colour("muted"), fontSize: 11 },
          inRange: { color: shown },
          formatter: back,
        },
        tooltip: {
          trigger: "item",
          formatter: (p) => (p.data?.row === undefined ? "" : rowTip(sweep, p.data.row)),
        },
        series: [
          {
            type: "heatmap",
            data: valid.map(cell),
            label: labels,
            emphasis: { itemStyle: { borderColor: colour("text"), borderWidth: 1 } },
          },
          {
            type: "scatter",
            data: invalid.map(cell),
            symbol: "path://M1 0 L5 4 L9 0 L10 1 L6 5 L10 9 L9 10 L5 6 L1 10 L0 9 L4 5 L0 1 Z",
            symbolSize: 9,
            itemStyle: { color: colour("bad") },
          },
        ],
      };
    },
  });
}

// A chart with its controls; both are made anew when a choice changes what there is to choose.
function panel(sweep, state, make) {
  const place = h("div");
  const draw = () => {
    const { controls, node } = make(draw);
    const focus = document.activeElement?.closest(".control")
      ? [...place.querySelectorAll(".control")].indexOf(document.activeElement.closest(".control"))
      : -1;
    place.replaceChildren(h("div", { class: "controls" }, controls), node);
    if (focus >= 0)
      place.querySelectorAll(".control")[focus]?.querySelector("select, input")?.focus();
    drawCharts();
  };
  state.redraws.push(draw);
  const { controls, node } = make(draw);
  place.append(h("div", { class: "controls" }, controls), node);
  return place;
}

export function sweepPage(data) {
  const sweep = readSweep(data);
  const { axes, results } = sweep;
  if (axes.length === 0 || results.length === 0 || sweep.rows === 0)
    return [h("p", {}, "This sweep holds no axis, no result or no row.")];
  const varied = axes.filter((a) => a.distinct.length > 1);
  const first = varied[0] ?? axes[0];
  const second = varied[1];
  // With other ranks a shorter step is no better by itself.
  const ranks = results.find((r) => r.name === "world_size");
  const rate = results.findIndex((r) => r.name === "samples_per_s");
  const shown =
    rate >= 0 && ranks && new Set(ranks.values.filter((v) => v !== null)).size > 1 ? rate : 0;
  const state = {
    result: shown,
    x: first.name,
    by: second?.name ?? kNone,
    hx: first.name,
    hy: second?.name,
    logX:
      first.numeric &&
      first.distinct[0] > 0 &&
      first.distinct[first.distinct.length - 1] > 20 * first.distinct[0],
    logY: false,
    fixed: heldAt(sweep, results[shown]),
    redraws: [],
  };
  const all = () => {
    for (const draw of state.redraws) draw();
  };
  const names = varied.map((a) => [a.name, a.name]);
  const everyRow = Array.from({ length: sweep.rows }, (_, r) => r);
  const invalid = everyRow.filter((r) => !isValid(results[0], r));
  const unfit = everyRow.filter((r) => doesNotFit(sweep, r)).length;

  const linePanel = () =>
    panel(sweep, state, (redraw) => {
      const by = sweep.axes.find((a) => a.name === state.by);
      return {
        controls: [
          choice("Along", names.length > 0 ? names : [[first.name, first.name]], state.x, (v) => {
            if (state.by === v) state.by = state.x;
            state.x = v;
            redraw();
          }),
          choice(
            "Lines",
            [[kNone, "one line"], ...names.filter(([n]) => n !== state.x)],
            state.by,
            (v) => {
              state.by = v;
              redraw();
            },
          ),
          ...holders(sweep, state, [state.x, state.by], all),
          toggle("log x", state.logX, (v) => {
            state.logX = v;
            redraw();
          }),
          toggle("log result", state.logY, (v) => {
            state.logY = v;
            all();
          }),
          by && by.distinct.length > kMostLines
            ? h(
                "span",
                { class: "control" },
                `${kMostLines} of ${by.distinct.length}, spread evenly`,
              )
            : null,
        ].filter(Boolean),
        node: lines(sweep, state).node,
      };
    });
  const heatPanel = () =>
    panel(sweep, state, (redraw) => ({
      controls: [
        choice("Across", names, state.hx, (v) => {
          if (state.hy === v) state.hy = state.hx;
          state.hx = v;
          redraw();
        }),
        choice("Up", names, state.hy, (v) => {
          if (state.hx === v) state.hx = state.hy;
          state.hy = v;
          redraw();
        }),
        ...holders(sweep, state, [state.hx, state.hy], all),
      ],
      node: heat(sweep, state).node,
    }));
  const bestPlace = h("div");
  const drawBest = () => {
    const result = results[state.result];
    bestPlace.replaceChildren(
      table(
        [
          ...axes.map((a) => ({
            name: a.name,
            right: a.numeric,
            of: (r) => quantity(a.values[r], a.unit),
          })),
          ...results.map((c) => ({
            name: c.name,
            right: true,
            of: (r) =>
              figure(
                `data.${c.index}.${r}`,
                c.values[r],
                c.unit === "ps" || c.name.endsWith("_ps")
                  ? time(c.values[r])
                  : quantity(c.values[r], c.unit),
              ),
          })),
        ],
        best(sweep, result, kBest),
        { label: "The best rows" },
      ),
    );
  };
  drawBest();
  state.redraws.push(drawBest);

  return [
    h(
      "p",
      { class: "lead" },
      `${sweep.rows} points over ${axes.map((a) => `${a.name} (${a.distinct.length})`).join(", ")}.`,
      invalid.length > 0 ? ` ${invalid.length} have no result.` : "",
      unfit > 0 ? ` ${unfit} do not fit on their device, and come after those that do.` : "",
    ),
    ...[
      ...(data.provenance ?? []),
      ...(data.nccl ? [`with ${data.nccl}`] : []),
      ...(data.notes ?? []),
    ].map((line) => h("p", { class: "note" }, `${line[0].toUpperCase()}${line.slice(1)}.`)),
    h(
      "div",
      { class: "controls" },
      choice(
        "Result",
        results
          .map((r, i) => [i, r.name])
          .filter(([i]) => i === state.result || results[i].values.some((v) => typeof v === "number")),
        state.result,
        (v) => {
          state.result = Number(v);
          state.fixed = heldAt(sweep, results[state.result]);
          all();
        },
      ),
    ),
    section(
      "Along one axis",
      "Axes that are not drawn are held where the best row has them; crosses are points without a result.",
      linePanel(),
    ),
    varied.length > 1 ? section("Over two axes", null, heatPanel()) : null,
    section("The best rows", `Up to ${kBest}, by the result that is chosen above.`, bestPlace),
    invalid.length > 0
      ? section(
          "Points without a result",
          null,
          table(
            [
              ...axes.map((a) => ({
                name: a.name,
                right: a.numeric,
                of: (r) => quantity(a.values[r], a.unit),
              })),
              { name: "reason", wide: true, of: (r) => reasonOf(sweep, r) },
            ],
            invalid,
            { most: 12, label: "Points without a result" },
          ),
        )
      : null,
    data.scenario && Object.keys(data.scenario).length > 0
      ? documents({ scenario: data.scenario })
      : null,
  ];
}
