// What is on a rank's device over a step, and at its peak.
import { axis, chart, kMarks, mark } from "./charts.js";
import { figure, h, section, table } from "./dom.js";
import { colour } from "./theme.js";
import { bytes, percent, time } from "./units.js";

const kNames = {
  parameters: "parameters",
  master_parameters: "copies of four bytes",
  gradients: "gradients",
  optimizer_state: "optimizer state",
  model_buffers: "the model's buffers",
  activations: "activations",
  buckets: "what is communicated",
  gathered: "gathered weights",
  temporaries: "temporary",
};

function course(data, summary) {
  const { over_time_ps: at, over_time_bytes: held } = data;
  const points = at.map((ps, i) => [ps, held[i]]);
  return chart("memory", {
    label: "Memory that is allocated over one step; the peak is in the table",
    height: 260,
    build: () => ({
      grid: { left: 84, right: 30, top: 26, bottom: 40 },
      xAxis: axis({
        type: "value",
        min: 0,
        max: Math.max(summary.step_ps, at[at.length - 1]),
        axisLabel: { formatter: (v) => time(v) },
      }),
      yAxis: axis({
        type: "value",
        min: 0,
        max: summary.memory.fits === false ? undefined : (summary.memory.capacity_bytes ?? undefined),
        axisLabel: { formatter: (v) => bytes(v), showMaxLabel: false },
      }),
      tooltip: {
        trigger: "axis",
        axisPointer: { type: "line", lineStyle: { color: colour("line") } },
        formatter: (list) => `${time(list[0].value[0])}: ${bytes(list[0].value[1])} allocated`,
      },
      series: [
        {
          type: "line",
          step: "end",
          symbol: "none",
          data: points,
          lineStyle: { color: colour("series1"), width: 1.5 },
          areaStyle: { color: colour("filler") },
          markLine: {
            ...kMarks,
            data: [
              mark({ yAxis: summary.memory.allocated_bytes }, "peak", "text", "insideStartTop"),
              ...(summary.memory.capacity_bytes
                ? [mark({ yAxis: summary.memory.capacity_bytes }, "the device", "muted")]
                : []),
            ],
          },
        },
      ],
    }),
  });
}

export function memory(data, summary) {
  if (!summary.memory) return null;
  const m = summary.memory;
  const rows = [
    ...Object.entries(m.at_peak_bytes).map(([key, held]) => ({
      name: kNames[key],
      key: `summary.memory.at_peak_bytes.${key}`,
      held,
    })),
    {
      name: "NCCL's buffers",
      key: "summary.memory.communicators_bytes",
      held: m.communicators_bytes,
    },
    { name: "CUDA and its libraries", key: "summary.memory.context_bytes", held: m.context_bytes },
  ]
    .filter((r) => r.held > 0)
    .sort((a, b) => b.held - a.held);
  const all = rows.reduce((sum, r) => sum + r.held, 0);
  const of = m.capacity_bytes ? ` of ${bytes(m.capacity_bytes)}` : "";
  return section(
    "Memory",
    `${bytes(m.device_bytes)}${of} on each device at the peak, in ${m.phase} (${bytes(m.device_bytes_low)} to ${bytes(m.device_bytes_high)})${m.fits === false ? ": it does not fit" : ""}.`,
    data && data.over_time_ps.length > 1 ? course(data, summary).node : null,
    table(
      [
        { name: "at the peak", of: (r) => r.name },
        { name: "bytes", right: true, of: (r) => figure(r.key, r.held, bytes(r.held)) },
        { name: "share", right: true, of: (r) => percent(r.held / all) },
      ],
      rows,
      { label: "Memory at the peak" },
    ),
    h(
      "p",
      { class: "note" },
      `It covers ${summary.peak_memory_covers}. Over time: what is allocated where the device gets to each operation; the host, which runs ahead, allocates it earlier.`,
    ),
  );
}
