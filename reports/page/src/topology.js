// The cluster: a drawing where there are few hosts, groups of equal links always. Colour and width
// say how busy a link is.
import { h, section, table } from "./dom.js";
import { bandwidth, percent, time } from "./units.js";

const kSvg = "http://www.w3.org/2000/svg";
const kLayer = { nic: 2, cpu: 2.5, gpu: 4, device: 4, nvswitch: 5 };
const kRowGap = 74;

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(kSvg, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const level = (busy) =>
  busy >= 0.5 ? "exposed" : busy >= 0.2 ? "communication" : busy > 0 ? "series1" : "line";
const layerOf = (v, t) => {
  if (v.kind === "switch") return /core|spine/.test(v.role) ? 0 : 1;
  if (v.kind.startsWith("pcie")) return 3;
  return kLayer[v.kind] ?? 3;
};

// Layers from top to bottom, hosts from left to right.
function place(t) {
  const layers = [...new Set(t.vertices.map((v) => layerOf(v, t)))].sort((a, b) => a - b);
  const at = new Map();
  const perHost = new Map();
  t.vertices.forEach((v, i) => {
    if (v.host < 0) return;
    const key = `${v.host}/${layerOf(v, t)}`;
    perHost.set(key, [...(perHost.get(key) ?? []), i]);
  });
  const widest = Math.max(1, ...[...perHost.values()].map((list) => list.length));
  const hostWidth = Math.max(90, Math.min(1080 / t.hosts - 16, widest * 84));
  const total = t.hosts * (hostWidth + 16) - 16;
  const width = Math.max(total, 420);
  const left = (width - total) / 2;
  // From the GPUs up and down: a vertex is near the ones that it is joined to.
  const joined = t.vertices.map(() => []);
  for (const c of t.cables) {
    joined[c.from].push(c.to);
    joined[c.to].push(c.from);
  }
  const order = [...perHost.keys()].sort(
    (x, y) => Math.abs(Number(x.split("/")[1]) - 4) - Math.abs(Number(y.split("/")[1]) - 4),
  );
  for (const key of order) {
    const [host, layer] = key.split("/").map(Number);
    const near = (i) => {
      const known = joined[i].filter((k) => at.has(k) && t.vertices[k].host === host);
      return known.length > 0 ? known.reduce((sum, k) => sum + at.get(k).x, 0) / known.length : 0;
    };
    const list = perHost
      .get(key)
      .map((i) => [near(i), i])
      .sort((x, y) => x[0] - y[0] || x[1] - y[1])
      .map(([, i]) => i);
    list.forEach((i, k) =>
      at.set(i, {
        x: left + host * (hostWidth + 16) + (hostWidth * (k + 0.5)) / list.length,
        y: 34 + layers.indexOf(layer) * kRowGap,
      }),
    );
  }
  for (const layer of [0, 1]) {
    const list = t.vertices
      .map((v, i) => [v, i])
      .filter(([v]) => v.host < 0 && layerOf(v, t) === layer)
      .map(([, i]) => i);
    list.forEach((i, k) =>
      at.set(i, { x: (width * (k + 0.5)) / list.length, y: 34 + layers.indexOf(layer) * kRowGap }),
    );
  }
  return {
    at,
    width,
    height: 34 + (layers.length - 1) * kRowGap + 46,
    hostWidth,
    left,
    firstHost: layers.findIndex((l) => l >= 2),
    layers,
  };
}

function shortLabel(v, width) {
  const name = v.name.replace(/^host\d+\./, "");
  const most = Math.max(2, Math.floor((width - 8) / 6.4));
  return name.length <= most
    ? name
    : /\d+$/.test(name)
      ? name.match(/\d+$/)[0]
      : name.slice(0, most);
}

function drawing(t) {
  const { at, width, height, hostWidth, left, firstHost } = place(t);
  const picture = svg("svg", {
    viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`,
    role: "group",
    "aria-label": `${t.hosts} hosts and their links`,
    style: `max-width:${Math.ceil(width * 1.05)}px`,
  });
  for (let host = 0; host < t.hosts && firstHost >= 0; ++host) {
    const top = 34 + firstHost * kRowGap - 26;
    picture.append(
      svg("rect", {
        class: "box",
        x: left + host * (hostWidth + 16),
        y: top,
        width: hostWidth,
        height: height - top - 2,
        rx: 4,
      }),
      svg(
        "text",
        { class: "small", x: left + host * (hostWidth + 16) + 6, y: height - 8 },
        `host ${host}`,
      ),
    );
  }
  const boxWidth = Math.min(76, ...[hostWidth / Math.max(1, ...countByHostLayer(t)) - 6]);
  for (const c of t.cables) {
    const a = at.get(c.from);
    const b = at.get(c.to);
    const busy = Math.max(...c.busy);
    const text = c.failed
      ? `${c.names[0]}: failed`
      : c.names
          .map(
            (n, i) =>
              `${n}: ${bandwidth(c.bandwidth_bits_per_s[i])}, needed ${percent(c.busy[i])} of the step`,
          )
          .join("\n");
    const flat = Math.abs(a.y - b.y) < 1;
    const path = flat
      ? `M${a.x},${a.y} Q${(a.x + b.x) / 2},${a.y + 14 + Math.abs(a.x - b.x) * 0.16} ${b.x},${b.y}`
      : `M${a.x},${a.y} L${b.x},${b.y}`;
    picture.append(
      svg(
        "path",
        {
          class: "cable",
          tabindex: 0,
          role: "img",
          "aria-label": text,
          d: path,
          fill: "none",
          "stroke-width": c.failed ? 1 : 1.4 + 4 * Math.min(1, busy),
          stroke: `var(--${c.failed ? "bad" : level(busy)})`,
          ...(c.failed ? { "stroke-dasharray": "4 3" } : {}),
        },
        svg("title", {}, text),
      ),
    );
  }
  t.vertices.forEach((v, i) => {
    const { x, y } = at.get(i);
    const w = v.host < 0 ? Math.min(96, Math.max(60, 12 + v.name.length * 6.6)) : boxWidth;
    picture.append(
      svg(
        "g",
        {},
        svg("rect", { class: "vertex", x: x - w / 2, y: y - 12, width: w, height: 24, rx: 3 }),
        svg("text", { x, y: y + 4, "text-anchor": "middle" }, shortLabel(v, w)),
        svg("title", {}, v.name),
      ),
    );
  });
  return picture;
}

const countByHostLayer = (t) => {
  const n = {};
  for (const v of t.vertices)
    if (v.host >= 0) n[`${v.host}/${layerOf(v, t)}`] = (n[`${v.host}/${layerOf(v, t)}`] ?? 0) + 1;
  return Object.values(n);
};

const thousands = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");

export function topology(t) {
  const drawn = t.vertices && t.cables.length > 0 && t.cables.length <= 400;
  return section(
    "The cluster and its links",
    `${t.description || t.name}. A link's share is the part of the step in which it would carry the step's collectives at its full rate.`,
    drawn
      ? [
          drawing(t),
          h(
            "div",
            { class: "keys" },
            [
              ["line", "carries nothing"],
              ["series1", "less than 20 % of the step"],
              ["communication", "20 to 50 %"],
              ["exposed", "50 % or more"],
            ].map(([c, text]) =>
              h(
                "span",
                {},
                h("span", { class: "swatch", style: { background: `var(--${c})` } }),
                text,
              ),
            ),
          ),
        ]
      : null,
    table(
      [
        { name: "links", wide: true, of: (g) => g.what },
        { name: "transport", of: (g) => g.transport },
        { name: "bandwidth", right: true, of: (g) => bandwidth(g.bandwidth_bits_per_s) },
        { name: "latency", right: true, of: (g) => time(g.latency_ps) },
        { name: "how many", right: true, of: (g) => thousands(g.links) },
        { name: "carrying", right: true, of: (g) => thousands(g.carrying) },
        { name: "mean share", right: true, of: (g) => (g.carrying ? percent(g.busy_mean) : "-") },
        { name: "largest", right: true, of: (g) => (g.carrying ? percent(g.busy_max) : "-") },
        { name: "on", of: (g) => g.busiest ?? "-" },
      ],
      t.groups,
      { label: "Groups of equal links; directions count by themselves" },
    ),
  );
}
