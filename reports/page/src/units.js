// Quantities as ddpsim prints them (sim/units/units.cc): four significant digits, no exponent, ties
// to even.

function digitsTie(text) {
  // text: toExponential(50); true if what follows the fourth digit is exactly one half.
  return /^\d\.\d{3}50*e/.test(text);
}

export function significant(v) {
  if (v === 0) return "0";
  if (Math.abs(v) >= 9999.5) {
    const low = Math.floor(v);
    return String(v - low === 0.5 ? (low % 2 === 0 ? low : low + 1) : Math.round(v));
  }
  let text = v.toPrecision(4);
  if (
    digitsTie(Math.abs(v).toExponential(50)) &&
    Number(text.replace(/\D/g, "").slice(-1)) % 2 === 1
  ) {
    const step = 10 ** (Math.floor(Math.log10(Math.abs(v))) - 3);
    text = (Number(text) - Math.sign(v) * step).toPrecision(4);
  }
  return String(Number(text));
}

const scaled = (v, table) => {
  for (const [from, unit] of table)
    if (Math.abs(v) >= from) return `${significant(v / from)} ${unit}`;
  const [one, unit] = table[table.length - 1];
  return `${significant(v / one)} ${unit}`;
};
const kTimes = [
  [1e12, "s"],
  [1e9, "ms"],
  [1e6, "us"],
  [1e3, "ns"],
  [1, "ps"],
];
const kBytes = [
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
  [1, "B"],
];
const kRates = [
  [1e12, "Tb/s"],
  [1e9, "Gb/s"],
  [1e6, "Mb/s"],
  [1e3, "kb/s"],
  [1, "b/s"],
];

export const time = (ps) => scaled(ps, kTimes);
export const bytes = (count) => scaled(count, kBytes);
export const bandwidth = (bitsPerSecond) => scaled(bitsPerSecond, kRates);
export const count = (v) => (v >= 1000 ? v.toFixed(0) : significant(v));
export const percent = (share, decimals = 1) => `${(100 * share).toFixed(decimals)} %`;
export const signedPercent = (share, decimals = 2) =>
  `${share >= 0 ? "+" : "-"}${Math.abs(100 * share).toFixed(decimals)} %`;
export const signedTime = (ps) => (ps > 0 ? "+" : "") + time(ps);

// By the unit that a column states.
export function quantity(v, unit) {
  if (v === null || v === undefined || v === "") return "-";
  if (typeof v !== "number") return String(v);
  if (unit === "ps") return time(v);
  if (unit === "B" || unit === "bytes") return bytes(v);
  if (unit === "b/s" || unit === "bits_per_s") return bandwidth(v);
  if (unit === "share") return percent(v, 2);
  return Number.isInteger(v) ? String(v) : significant(v) + (unit ? ` ${unit}` : "");
}
