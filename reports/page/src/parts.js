// Where the step goes: one stacked bar and its table.
import { figure, h, section, table } from "./dom.js";
import { percent, time } from "./units.js";

export function parts(summary) {
  const list = [
    ["forward", "forward_ps", "forward"],
    ["backward", "backward_ps", "backward"],
    ["averaging on the device", "ddp_ps", "averaging"],
    ["exposed communication", "exposed_communication_ps", "exposed"],
    ["optimizer", "optimizer_ps", "optimizer"],
    ["waiting for input", "input_ps", "wait"],
    ["device waits for its host", "idle_ps", "host"],
  ]
    .map(([name, key, colour]) => ({
      name,
      key,
      colour,
      ps: summary[key],
      share: summary[key] / summary.step_ps,
    }))
    .filter((p) => p.ps > 0);
  const swatch = (c) => h("span", { class: "swatch", style: { background: `var(--${c})` } });
  return section(
    "Where the step goes",
    "One steady step, on the rank that ends last.",
    h(
      "div",
      {
        class: "bar",
        role: "img",
        "aria-label": list.map((p) => `${p.name} ${percent(p.share)}`).join(", "),
      },
      list.map((p) =>
        h("div", {
          title: `${p.name}: ${time(p.ps)}, ${percent(p.share)}`,
          style: { flex: `${p.ps} 0 0`, background: `var(--${p.colour})` },
        }),
      ),
    ),
    table(
      [
        { name: "part", of: (p) => h("span", {}, swatch(p.colour), p.name) },
        { name: "time", right: true, of: (p) => figure(`summary.${p.key}`, p.ps, time(p.ps)) },
        { name: "of the step", right: true, of: (p) => percent(p.share) },
      ],
      list,
      { label: "Where the step goes" },
    ),
    h(
      "p",
      { class: "note", style: { marginTop: "8px" } },
      summary.communication_ps > 0
        ? [
            "Communication is in flight for ",
            figure(
              "summary.communication_ps",
              summary.communication_ps,
              time(summary.communication_ps),
            ),
            `, ${percent(summary.overlap, 0)} of it hidden behind computation. `,
          ]
        : null,
      summary.slowed_ps / summary.step_ps > 0.002
        ? `${time(summary.slowed_ps)} is computation made slower by the collectives beside it.`
        : null,
    ),
  );
}
