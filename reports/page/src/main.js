// One page, whose data says what it is.
import { charts, drawCharts } from "./charts.js";
import { comparePage } from "./compare_page.js";
import { h } from "./dom.js";
import { predictPage } from "./predict_page.js";
import { shardedPage } from "./sharded_page.js";
import { sweepPage } from "./sweep_page.js";
import { startTheme, toggleTheme } from "./theme.js";
import { tunePage } from "./tune_page.js";
import { validatePage } from "./validate_page.js";

const pages = {
  predict: predictPage,
  validate: validatePage,
  compare: comparePage,
  sweep: sweepPage,
  tune: (data) => (data.tried ? shardedPage(data) : tunePage(data)),
};

const text = document.getElementById("ddpsim-data").textContent;
startTheme();
const root = document.getElementById("page");
if (text.trimStart().startsWith("{")) {
  const data = JSON.parse(text);
  const build = pages[data.kind];
  root.append(
    h(
      "header",
      {},
      h("div", {}, h("h1", {}, data.title ?? data.kind)),
      h(
        "button",
        { type: "button", id: "theme", onclick: toggleTheme, "aria-label": "Light or dark" },
        "Light / dark",
      ),
    ),
  );
  root.append(
    h(
      "main",
      {},
      build ? build(data) : h("p", {}, `This page does not know reports of kind ${data.kind}.`),
    ),
  );
  root.append(h("footer", {}, `ddpsim ${data.version} ${data.kind}. Charts: Apache ECharts.`));
  drawCharts();
} else {
  root.append(
    h("p", {}, "This is the empty page that ddpsim fills: ddpsim predict ... --html FILE"),
  );
}
window.ddpsim = { charts };
