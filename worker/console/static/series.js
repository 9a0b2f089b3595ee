/** Samples of several workers as series of a chart. Pure. */

const STEP = 5;

/** The times of all samples, without gaps. */
export function times(workers) {
  const all = workers.flatMap((worker) => worker.samples.map((sample) => sample.at));
  if (all.length === 0) return [];
  const [first, last] = [Math.min(...all), Math.max(...all)];
  return Array.from({ length: (last - first) / STEP + 1 }, (_, index) => first + index * STEP);
}

/** A number of one worker at each of the times; null where there is none. */
export function valuesOf(worker, at, name) {
  const known = new Map(worker.samples.map((sample) => [sample.at, sample[name]]));
  return at.map((time) => known.get(time) ?? null);
}

/** Of all workers: their values at each time put together. */
export function together(workers, at, name, how) {
  const each = workers.map((worker) => valuesOf(worker, at, name));
  return at.map((_, index) => {
    const known = each.map((values) => values[index]).filter((value) => value !== null);
    return known.length ? (how === "sum" ? known.reduce((a, b) => a + b) : Math.max(...known)) : null;
  });
}

/** The last number that is known. */
export function lastOf(values) {
  return values.findLast((value) => value !== null) ?? null;
}
