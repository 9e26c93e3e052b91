// A sweep's columns: axes, results, reasons; and the rows that a choice of axes leaves.

export function readSweep(data) {
  const columns = data.columns.map((c, index) => ({ ...c, index, values: data.data[index] }));
  const axes = columns
    .filter((c) => c.role === "axis")
    .map((c) => {
      const distinct = [...new Set(c.values)];
      const numeric = distinct.every((v) => typeof v === "number");
      if (numeric) distinct.sort((a, b) => a - b);
      return { ...c, distinct, numeric, place: new Map(distinct.map((v, i) => [v, i])) };
    });
  const results = columns.filter((c) => c.role === "result");
  const reason = columns.find((c) => c.role === "reason");
  const fits = columns.find((c) => c.name === "fits");
  const rows = columns[0]?.values.length ?? 0;
  return { columns, axes, results, reason, fits, rows };
}

export const reasonOf = (sweep, row) => sweep.reason?.values[row] || "no result";
export const doesNotFit = (sweep, row) => sweep.fits?.values[row] === "does not fit";
export const isValid = (result, row) => typeof result.values[row] === "number";

// More is better for rates and shares; less for everything else.
export const moreIsBetter = (result) =>
  /samples_per|throughput|efficiency|overlap|bandwidth/.test(result.name);

// Rows in which every axis but the free ones has its fixed value.
export function select(sweep, free, fixed) {
  const held = sweep.axes.filter((a) => !free.includes(a.name));
  const out = [];
  for (let row = 0; row < sweep.rows; ++row)
    if (held.every((a) => a.values[row] === fixed[a.name])) out.push(row);
  return out;
}

// What does not fit comes after all that does.
export function best(sweep, result, most) {
  const rows = [];
  for (let row = 0; row < sweep.rows; ++row) if (isValid(result, row)) rows.push(row);
  const sign = moreIsBetter(result) ? -1 : 1;
  rows.sort(
    (a, b) =>
      doesNotFit(sweep, a) - doesNotFit(sweep, b) ||
      sign * (result.values[a] - result.values[b]) ||
      a - b,
  );
  return rows.slice(0, most);
}
