// Light or dark: the reader's system decides, until they choose. Charts read their colours from the style sheet.

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
    for (const d of document.querySelectorAll("details:not([open])")) { d.open = true; d.dataset.closed = "yes"; }
    document.documentElement.classList.add("printing");
    apply();
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    for (const d of document.querySelectorAll("details[data-closed]")) { d.open = false; delete d.dataset.closed; }
    document.documentElement.classList.remove("printing");
    apply();
  });
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
