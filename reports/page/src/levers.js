// What another setting would buy, each simulated.
import { figure, h, section, table } from "./dom.js";
import { percent, time } from "./units.js";

export function levers(list, step, title = "What to try next") {
  if (list.length === 0) return section(title, "No setting that was tried gains 0.5 % or more.");
  // With other ranks a shorter step is no gain by itself: what counts is the time of as many
  // samples.
  const taken = (l) => l.step_ps / (l.samples ?? 1);
  const most = Math.max(...list.map((l) => Math.abs(step - taken(l))));
  const others = list.some((l) => (l.samples ?? 1) !== 1);
  return section(
    title,
    `Each was simulated.${others ? " With another number of ranks the gain is that of as many samples." : ""}`,
    table(
      [
        { name: "change", wide: true, of: (l) => l.change },
        {
          name: "step",
          right: true,
          of: (l) => figure(`levers.${l.i}.step_ps`, l.step_ps, time(l.step_ps)),
        },
        {
          name: "gain",
          right: true,
          of: (l) => (taken(l) <= step ? time(step - taken(l)) : `${time(taken(l) - step)} more`),
        },
        { name: "of the step", right: true, of: (l) => percent((step - taken(l)) / step) },
        {
          name: "",
          of: (l) =>
            h(
              "div",
              { style: { width: "180px" } },
              h("span", {
                class: taken(l) > step ? "gain loss" : "gain",
                style: { width: `${most > 0 ? (170 * Math.abs(step - taken(l))) / most : 0}px` },
              }),
            ),
        },
        { name: "how", tight: true, of: (l) => h("code", {}, l.command) },
      ],
      list.map((l, i) => ({ ...l, i })),
      { label: title },
    ),
  );
}
