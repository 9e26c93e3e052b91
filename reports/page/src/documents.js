// The question and the numbers that it was answered with, and where each is from.
import { h, section, table } from "./dom.js";

const isObject = (v) => v !== null && typeof v === "object" && !Array.isArray(v);

function value(v) {
  if (isObject(v)) return tree(v);
  if (!Array.isArray(v)) return String(v);
  if (v.every((x) => !isObject(x) && !Array.isArray(x))) return v.join(", ") || "none";
  return h(
    "div",
    {},
    v.map((x) => h("div", {}, value(x))),
  );
}

const tree = (document) =>
  h(
    "dl",
    { class: "document" },
    Object.entries(document)
      .filter(([k]) => k !== "schema")
      .flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, value(v))]),
  );

// Everything below a document that states a source.
function sources(name, document, out) {
  if (!isObject(document)) return;
  const { source, basis } = document;
  if (source !== undefined || basis !== undefined)
    out.push({ name, basis: basis ?? "-", source: source ?? "not stated" });
  for (const [k, v] of Object.entries(document))
    if (k !== "source") sources(`${name}.${k}`, v, out);
}

const sourceText = (s) =>
  isObject(s)
    ? Object.entries(s)
        .map(([k, v]) => `${k}: ${isObject(v) || Array.isArray(v) ? JSON.stringify(v) : v}`)
        .join("; ")
    : String(s);

// used(name): whether the answer needed these numbers; the others are in the documents only.
export function documents(docs, { schedule, used = () => true } = {}) {
  const all = [];
  for (const [name, document] of Object.entries(docs)) sources(name, document, all);
  const rows = all.filter((r) => used(r.name));
  if (schedule) rows.unshift({ name: "schedule", basis: "-", source: schedule });
  const title = {
    scenario: "Scenario and plan",
    workload: `Workload ${docs.workload?.name ?? ""}`,
    cluster: `Cluster ${docs.cluster?.name ?? ""}`,
    profile: `Profile ${docs.profile?.name ?? ""}`,
  };
  return section(
    rows.length > 0 ? "The question, and where its numbers are from" : "The question",
    null,
    rows.length === 0
      ? null
      : table(
          [
            { name: "numbers of", tight: true, of: (r) => r.name },
            { name: "basis", tight: true, of: (r) => r.basis },
            { name: "source", wide: true, of: (r) => sourceText(r.source) },
          ],
          rows,
          { label: "Sources" },
        ),
    Object.entries(docs).map(([name, document]) =>
      h("details", {}, h("summary", {}, title[name] ?? name), tree(document)),
    ),
  );
}
