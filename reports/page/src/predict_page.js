// ddpsim predict --html
import { buckets, mostExposed } from "./buckets.js";
import { documents } from "./documents.js";
import { figure, h, section } from "./dom.js";
import { levers } from "./levers.js";
import { memory } from "./memory.js";
import { parts } from "./parts.js";
import { help, keys, kMostRows, timeline } from "./timeline.js";
import { topology } from "./topology.js";
import { actorsOf, rowsOfRun } from "./tracks.js";
import { bandwidth, bytes, count, percent, time } from "./units.js";

function headline(data) {
  const { summary: s, heading } = data;
  const exposed = mostExposed(data);
  const item = (name, key, text, small, first) =>
    h(
      "div",
      { class: first ? "first" : null },
      h("dt", {}, name),
      h("dd", {}, figure(`summary.${key}`, s[key], text), small ? h("small", {}, small) : null),
    );
  const list = [
    item(
      "Step",
      "step_ps",
      time(s.step_ps),
      [
        figure("summary.step_low_ps", s.step_low_ps, time(s.step_low_ps)),
        " to ",
        figure("summary.step_high_ps", s.step_high_ps, time(s.step_high_ps)),
        `; ${heading.interval}`,
      ],
      true,
    ),
    s.samples_per_s === null
      ? null
      : item("Samples per second", "samples_per_s", count(s.samples_per_s)),
    s.scaling_efficiency === null
      ? h(
          "div",
          {},
          h("dt", {}, "Scaling efficiency"),
          h("dd", {}, "none", h("small", {}, "the workload computes nothing")),
        )
      : item("Scaling efficiency", "scaling_efficiency", percent(s.scaling_efficiency), [
          s.scaling_efficiency_low < s.scaling_efficiency_high
            ? `${percent(s.scaling_efficiency_low)} to ${percent(s.scaling_efficiency_high)}; `
            : "",
          `one rank without ${heading.system}: `,
          figure("summary.single_rank_step_ps", s.single_rank_step_ps, time(s.single_rank_step_ps)),
        ]),
    item("Exposed communication", "exposed_communication_ps", time(s.exposed_communication_ps), [
      `${percent(s.exposed_communication_ps / s.step_ps)} of the step`,
      exposed ? h("br") : "",
      exposed,
    ]),
    item("Overlap", "overlap", percent(s.overlap), "of communication, hidden"),
    s.peak_memory_bytes === null
      ? null
      : item(
          "Memory per rank",
          "peak_memory_bytes",
          bytes(s.peak_memory_bytes),
          s.memory.capacity_bytes === null
            ? s.peak_memory_covers
            : `of ${bytes(s.memory.capacity_bytes)}, in ${s.memory.phase}` +
                (s.memory.fits ? "" : ": does not fit"),
        ),
    s.busiest_link
      ? h(
          "div",
          {},
          h("dt", {}, "Busiest link"),
          h(
            "dd",
            {},
            figure("summary.busiest_link.busy", s.busiest_link.busy, percent(s.busiest_link.busy)),
            h(
              "small",
              {},
              `${s.busiest_link.name}, ${bandwidth(s.busiest_link.bandwidth_bits_per_s)}`,
            ),
          ),
        )
      : null,
  ];
  return h("dl", { class: "figures" }, list);
}

function jitter(steps) {
  if (!steps) return null;
  const sorted = [...steps].sort((a, b) => a - b);
  const at = (q) => time(sorted[Math.floor(q * (sorted.length - 1) + 0.5)]);
  return h(
    "p",
    { class: "note" },
    `With jitter: median ${at(0.5)}, 95th percentile ${at(0.95)}, worst ${at(1)} of ${sorted.length} steps.`,
  );
}

function steps(data) {
  const actors = actorsOf(data.run);
  const rows = rowsOfRun(data.run);
  for (const row of rows)
    row.title =
      actors.length === 1
        ? row.name.replace(/^rank .*? (?=(host|compute|comm|worker|callback))/, "")
        : row.name;
  const who =
    actors.length === 1
      ? `${actors[0][1]}.`
      : `${data.run.actors} ${rows.every((r) => r.count === 1) ? "ranks" : "classes of ranks that behave alike"}${rows.length > kMostRows ? "; the slider on the right moves through them" : ""}.`;
  const left =
    data.run.actors_left_out > 0
      ? ` ${data.run.actors_left_out} classes are left out of this page, evenly.`
      : "";
  const lanes = timeline("timeline", {
    rows,
    label: "The operations of one step, by rank and lane",
    from: 0,
    to: data.summary.step_ps,
    marks: [
      [0, "step begins"],
      [data.summary.step_ps, "ends"],
    ],
  });
  const goTo = lanes.many
    ? h(
        "label",
        { class: "control" },
        "Go to rank ",
        h("input", {
          type: "number",
          min: 0,
          max: data.ranks - 1,
          value: 0,
          onchange: (event) => {
            const wanted = Number(event.target.value);
            lanes.show(
              rows.findIndex(
                (r) => r.actor === (actors.filter(([a]) => a <= wanted).pop() ?? actors[0])[0],
              ),
            );
          },
        }),
      )
    : null;
  const controls = goTo || lanes.ahead ? h("div", { class: "controls" }, goTo, lanes.ahead) : null;
  return section(
    "Timeline of a step",
    `${who}${left} Times from the start of the step; a host that runs ahead launches before it.`,
    controls,
    lanes.node,
    keys(rows),
    help(),
  );
}

// Of a profile's transports, those that the cluster's links are.
const usedBy = (t) => (name) =>
  !/^profile\.transports\./.test(name) ||
  t.groups.some((g) => g.transport === name.split(".")[2] && g.carrying > 0);

export function predictPage(data) {
  const { heading, summary } = data;
  // Where the step is a mean, what is drawn is the last one that it is of.
  const shown = {
    ...data,
    summary: { ...summary, step_ps: data.shown_step_ps },
  };
  return [
    h(
      "p",
      { class: "lead" },
      `${heading.workload}; ${data.ranks} rank${data.ranks === 1 ? "" : "s"}.`,
    ),
    h("p", { class: "note" }, `${heading.plan}. Profile ${summary.profile}: ${heading.basis}.`),
    headline(data),
    heading.beside ? h("p", { class: "note" }, `The step is the ${heading.beside}.`) : null,
    jitter(summary.jitter_steps_ps),
    section(
      "What limits it",
      null,
      h("p", {}, `${heading.limit[0].toUpperCase()}${heading.limit.slice(1)}.`),
      summary.extrapolated.map((note) => h("p", { class: "note" }, `Beyond the model: ${note}.`)),
    ),
    parts(summary),
    steps(shown),
    buckets(shown),
    memory(data.memory, shown.summary),
    levers(data.levers, summary.step_ps),
    topology(data.topology),
    documents(data.documents, { schedule: heading.schedule, used: usedBy(data.topology) }),
  ];
}
