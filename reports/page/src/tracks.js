// The spans of a Run: rows in which nothing overlaps, what of them is in a window, and why a span
// began when it did.

const kLanes = ["host", "compute", "comm", "worker", "callback"];
const isComputation = (category) =>
  category !== "communication" && category !== "wait" && category !== "host";

const actorName = (actor, count) =>
  count > 1 ? `rank ${actor} (+${count - 1} alike)` : `rank ${actor}`;

// First index at which values[i] > x (`from` on); values ascend.
function after(values, x) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > x) high = middle;
    else low = middle + 1;
  }
  return low;
}

// A track's spans in rows: the first row that is free takes the next one.
function rowsOf(track) {
  const n = track.op.length;
  const order = Array.from({ length: n }, (_, i) => i);
  if (track.begin_ps.some((b, i) => i > 0 && b < track.begin_ps[i - 1]))
    order.sort((a, b) => track.begin_ps[a] - track.begin_ps[b]);
  const rows = [];
  for (const i of order) {
    const begin = track.begin_ps[i];
    const end = begin + track.length_ps[i];
    let row = rows.find((r) => r.end[r.end.length - 1] <= begin);
    if (!row) rows.push((row = { op: [], begin: [], end: [], wait: [] }));
    row.op.push(track.op[i]);
    row.begin.push(begin);
    row.end.push(end);
    row.wait.push(track.wait_ps[i]);
  }
  return rows;
}

// Rows of a step, by actor and lane. Each: {run, actor, count, lane, name, op[], begin[], end[],
// wait[]}.
export function rowsOfRun(run, { step, actor } = {}) {
  const tracks = run.tracks.filter(
    (t) => (step === undefined || t.step === step) && (actor === undefined || t.actor === actor),
  );
  tracks.sort((a, b) => a.actor - b.actor || kLanes.indexOf(a.lane) - kLanes.indexOf(b.lane));
  const out = [];
  for (const t of tracks)
    rowsOf(t).forEach((row, k) =>
      out.push({
        run,
        actor: t.actor,
        count: t.count,
        lane: t.lane,
        name: `${actorName(t.actor, t.count)} ${t.lane}${k > 0 ? ` ${k + 1}` : ""}`,
        ...row,
      }),
    );
  return out;
}

export const actorsOf = (run) => [
  ...new Map(run.tracks.map((t) => [t.actor, actorName(t.actor, t.count)])).entries(),
];

// What to draw of a row between two times: spans, and runs of spans too short to be told apart.
// Each: {row, from, to, begin, end}.
export function visible(row, begin, end, psPerPixel) {
  const out = [];
  const { begin: b, end: e } = row;
  for (let i = after(e, begin); i < b.length && b[i] <= end; ++i) {
    const from = i;
    let to = b[i] + 2 * psPerPixel > e[i] ? e[i] : null;
    while (
      to !== null &&
      i + 1 < b.length &&
      b[i + 1] - to < psPerPixel &&
      e[i + 1] - b[i + 1] < 2 * psPerPixel &&
      b[i + 1] <= end
    )
      to = e[++i];
    out.push({ row, from, to: i, begin: b[from], end: e[i] });
  }
  return out;
}

// The category that has most of the time.
export function categoryOf({ row, from, to }) {
  const ops = row.run.ops;
  if (from === to) return ops[row.op[from]].category;
  const sums = {};
  for (let i = from; i <= to; ++i)
    sums[ops[row.op[i]].category] =
      (sums[ops[row.op[i]].category] ?? 0) + row.end[i] - row.begin[i];
  return Object.entries(sums).sort((x, y) => y[1] - x[1])[0][0];
}

// Operations of the same actor that ended at a moment, except this one.
function endedAt(rows, actor, moment, name) {
  const out = [];
  for (const row of rows) {
    if (row.actor !== actor) continue;
    const i = after(row.end, moment) - 1;
    const op = i >= 0 && row.end[i] === moment ? row.run.ops[row.op[i]].name : null;
    if (op && op !== name) out.push(op);
  }
  return out;
}

// Of a predicted span, from the times of the others: one clause.
export function reason(rows, row, i) {
  const op = row.run.ops[row.op[i]];
  const ready = row.begin[i] - row.wait[i];
  if (row.wait[i] > 0) {
    // A collective on a stream of the device may begin later than the one before it ended: the times
    // do not say which of three things it waited for then.
    const streamed = op.category === "communication" && row.lane !== "worker";
    const before = rows
      .filter((r) => r.actor === row.actor && r.lane === row.lane)
      .flatMap((r) => {
        const k = after(r.end, row.begin[i]) - 1;
        return k >= 0 && (streamed || r.end[k] === row.begin[i]) && r.end[k] > ready
          ? [{ name: r.run.ops[r.op[k]].name, end: r.end[k] }]
          : [];
      });
    if (before.length > 0) {
      const then =
        before[0].end < row.begin[i]
          ? ", then for its launch, the kernel that ran or the last rank"
          : "";
      return `waited for ${before[0].name}, which was on the ${row.lane} lane${then}`;
    }
    return op.category === "communication"
      ? "waited for its launch, the kernel that ran, a free worker or the last rank"
      : "waited for its lane";
  }
  const causes = endedAt(rows, row.actor, ready, op.name);
  if (causes.length === 0) return null;
  const launch = causes.find((name) => name === `launch/${op.name}`);
  const shown = launch ? [launch] : causes.slice(0, 2);
  return `ready when ${shown.join(" and ")} ended`;
}

// What computes on an actor, as one list of intervals without gaps between touching ones.
export function computation(rows, actor) {
  const spans = [];
  for (const row of rows) {
    if (row.actor !== actor) continue;
    row.op.forEach((op, i) => {
      if (isComputation(row.run.ops[op].category)) spans.push([row.begin[i], row.end[i]]);
    });
  }
  spans.sort((a, b) => a[0] - b[0]);
  const out = [];
  for (const [begin, end] of spans) {
    const last = out[out.length - 1];
    if (end <= begin) continue;
    if (last && begin <= last[1]) last[1] = Math.max(last[1], end);
    else out.push([begin, end]);
  }
  return out;
}
