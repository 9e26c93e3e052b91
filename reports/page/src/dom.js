// Elements, made of text and never of HTML.

export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

export const section = (title, note, ...children) =>
  h("section", {}, h("h2", {}, title), note ? h("p", { class: "note" }, note) : null, ...children);

// A number as it is printed, with the number itself beside it: data-key names it as `--format json`
// does.
export const figure = (key, value, text) =>
  h("span", { "data-key": key, "data-value": String(value) }, text);

// columns: [{name, of(row) -> text or node, right}]. More than `most` rows: behind a button.
export function table(columns, rows, { most = 200, label, marked } = {}) {
  const body = h("tbody");
  const add = (from, to) => {
    for (const row of rows.slice(from, to))
      body.append(
        h(
          "tr",
          { class: marked && marked(row) ? "marked" : null },
          columns.map((c) =>
            h(
              "td",
              { class: c.right ? "right" : c.wide ? "wide" : c.tight ? "tight" : null },
              c.of(row),
            ),
          ),
        ),
      );
  };
  add(0, most);
  const out = h(
    "div",
    { class: "table", tabindex: 0, role: "region", "aria-label": label ?? "table" },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map((c) => h("th", { class: c.right ? "right" : null, scope: "col" }, c.name)),
        ),
      ),
      body,
    ),
  );
  if (rows.length <= most) return out;
  const more = h(
    "button",
    {
      type: "button",
      onclick: () => {
        add(most, rows.length);
        more.remove();
      },
    },
    `Show all ${rows.length} rows`,
  );
  return h("div", {}, out, more);
}

export function choice(label, options, value, onChange) {
  const select = h(
    "select",
    { onchange: () => onChange(select.value) },
    options.map(([key, text]) =>
      h("option", { value: key, selected: String(key) === String(value) }, text),
    ),
  );
  return h("label", { class: "control" }, `${label} `, select);
}

export function toggle(label, value, onChange) {
  const box = h("input", { type: "checkbox", onchange: () => onChange(box.checked) });
  box.checked = value;
  return h("label", { class: "control" }, box, ` ${label}`);
}

// Rows of "name: value" for a tooltip.
export const tip = (title, rows) =>
  h(
    "div",
    { class: "tip" },
    h("b", {}, title),
    rows
      .filter(Boolean)
      .map(([name, value]) => h("div", {}, h("i", {}, name), " ", h("span", {}, value))),
  );
