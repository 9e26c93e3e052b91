// Light or dark: the reader's system decides, until they choose. Charts read their colours from the
// style sheet.

let chosen = null;
let printing = false;
const listeners = new Set();
const system = window.matchMedia("(prefers-color-scheme: dark)");

const isDark = () => !printing && (chosen ?? (system.matches ? "dark" : "light")) === "dark";

function apply() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  for (const listener of listeners) listener();
}

// Returns what ends it.
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
export function toggleTheme() {
  chosen = isDark() ? "light" : "dark";
  apply();
}
export function startTheme() {
  apply();
  system.addEventListener("change", apply);
  // Paper is light, and its lists are open.
  window.addEventListener("beforeprint", () => {
    printing = true;
    for (const d of document.querySelectorAll("details:not([open])")) {
      d.open = true;
      d.dataset.closed = "yes";
    }
    document.documentElement.classList.add("printing");
    apply();
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    for (const d of document.querySelectorAll("details[data-closed]")) {
      d.open = false;
      delete d.dataset.closed;
    }
    document.documentElement.classList.remove("printing");
    apply();
  });
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

// The colour at a share of the way along some, "#rrggbb", as a continuous visual map draws it.
export function along(list, share) {
  const place = Math.max(0, Math.min(1, share)) * (list.length - 1);
  const k = Math.min(list.length - 2, Math.floor(place));
  const [a, b] = [channels(list[k]), channels(list[k + 1])];
  return `#${a
    .map((v, i) =>
      Math.round(v + (b[i] - v) * (place - k))
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}

const luminance = (hex) =>
  channels(hex)
    .map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
export const contrast = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
};
// Dark or light text, whichever is told from its ground better.
export const textOn = (ground) =>
  contrast("#14181d", ground) >= contrast("#f7f9fb", ground) ? "#14181d" : "#f7f9fb";
