// What another setting would buy, each simulated.
import { figure, h, section, table } from "./dom.js";
import { percent, time } from "./units.js";

export function levers(list, step, title = "What to try next") {
  if (list.length === 0) return section(title, "No setting that was tried gains 0.5 % or more.");
  const most = Math.max(...list.map((l) => Math.abs(step - l.step_ps)));
  return section(title, "Each was simulated.",
    table([
      { name: "change", wide: true, of: (l) => l.change },
      { name: "step", right: true, of: (l) => figure(`levers.${l.i}.step_ps`, l.step_ps, time(l.step_ps)) },
      { name: "gain", right: true, of: (l) => (l.step_ps <= step ? time(step - l.step_ps) : `${time(l.step_ps - step)} more`) },
      { name: "of the step", right: true, of: (l) => percent((step - l.step_ps) / step) },
      { name: "", of: (l) => h("div", { style: { width: "180px" } }, h("span", { class: l.step_ps > step ? "gain loss" : "gain", style: { width: `${most > 0 ? 170 * Math.abs(step - l.step_ps) / most : 0}px` } })) },
      { name: "how", tight: true, of: (l) => h("code", {}, l.command) },
    ], list.map((l, i) => ({ ...l, i })), { label: title }));
}
