/** Rows of connectors: what is worst, filter, order. Pure. */
import { STATES } from "./ui.js";

/** The state that stands for a connector and its tasks: the worst of them. */
export function worst(row) {
  const all = [row.state, ...Object.keys(row.tasks)];
  return STATES.find((state) => all.includes(state)) ?? row.state;
}

/** A row with what is derived from it, made once when it comes. */
export function prepared(row) {
  const total = Object.values(row.tasks).reduce((sum, count) => sum + count, 0);
  const short = row.class.split(".").pop();
  return {
    ...row,
    worst: worst(row),
    total,
    running: row.tasks.RUNNING ?? 0,
    short,
    text: [row.name, row.class, row.error ?? "", ...row.workers].join("\n").toLowerCase(),
  };
}

/** The next rows after an event of the stream; `rows` is a Map by name. */
export function applied(rows, event) {
  const next = event.all ? new Map() : new Map(rows);
  for (const row of event.rows) next.set(row.name, prepared(row));
  for (const name of event.gone) next.delete(name);
  return next;
}

const ORDERS = {
  state: (row) => STATES.indexOf(row.worst),
  name: (row) => row.name,
  tasks: (row) => row.total,
  rate: (row) => row.rate ?? -1,
  lag: (row) => row.lag_s ?? -1,
};
export const COLUMNS = Object.keys(ORDERS);

/** Rows of a filter, in order; by default failed ones first. */
export function chosen(rows, { q = "", state = "", type = "", sort = "state", down = false }) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  for (const row of rows.values()) {
    if (state && row.worst !== state) continue;
    if (type && row.type !== type) continue;
    if (words.every((word) => row.text.includes(word))) found.push(row);
  }
  const key = ORDERS[sort] ?? ORDERS.state;
  const sign = down ? -1 : 1;
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return found.sort((a, b) => sign * compare(key(a), key(b)) || compare(a.name, b.name));
}

/** Connectors by their worst state. */
export function counts(rows) {
  const found = Object.fromEntries(STATES.map((state) => [state, 0]));
  for (const row of rows.values()) found[row.worst]++;
  return found;
}
