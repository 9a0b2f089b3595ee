/** Rule sets as values: steps added, moved and taken away, proposals taken over. Pure. Numbers are those that `exact` reads. */
import { exact } from "./exact.js";

/** What a new rule set begins with. */
export const FIRST = {
  tables: [{ name: "lines", groups: [{ name: "all", steps: [{ saveAs: { columns: [{ name: "line" }] } }] }] }],
};

/** The names next to an operator in a step. */
const NEXT_TO = new Set(["when", "ignoreFailure"]);

/** Whether a connector's row is of class logs. */
export function isLogs(row) {
  return /(^|[.:])logs(connector)?$/i.test(row.class);
}

/** The operator of a step; undefined if it has none. */
export function operatorOf(step) {
  return Object.keys(step ?? {}).find((key) => !NEXT_TO.has(key));
}

/** What a step says beside its operator's name: the options, and `when` and `ignoreFailure` if they are there. */
export function optionsText(step) {
  const operator = operatorOf(step);
  const { [operator]: options, ...others } = step;
  return exact.stringify(Object.keys(others).length ? { ...options, ...others } : (options ?? {}), null, 1).replace(/\n\s*/g, " ");
}

/** A step of an operator and the text of its options. Throws when the text is no JSON object. */
export function stepOf(operator, text) {
  const { when, ignoreFailure, ...options } = exact.parse(text || "{}");
  const step = { [operator]: options };
  if (when !== undefined) step.when = when;
  if (ignoreFailure !== undefined) step.ignoreFailure = ignoreFailure;
  return step;
}

/** Whether a document has the form that can be shown as steps. */
export function hasForm(rules) {
  return (
    Array.isArray(rules?.tables) &&
    rules.tables.every(
      (table) =>
        typeof table?.name === "string" &&
        Array.isArray(table.groups) &&
        table.groups.every((group) => Array.isArray(group?.steps) && group.steps.every((step) => operatorOf(step))),
    )
  );
}

/** The rule set with other steps in a group. */
export function withSteps(rules, table, group, change) {
  return {
    ...rules,
    tables: rules.tables.map((each, number) =>
      number !== table
        ? each
        : { ...each, groups: each.groups.map((one, at) => (at !== group ? one : { ...one, steps: change(one.steps) })) },
    ),
  };
}

/** A list with one element at another place. */
export function moved(list, from, to) {
  const next = [...list];
  next.splice(to, 0, ...next.splice(from, 1));
  return next;
}

/** A rule set with the tables of another one; a table whose name is taken gets a number. */
export function joined(rules, proposed) {
  const taken = new Set(rules.tables.map((table) => table.name));
  const added = proposed.tables.map((table) => {
    let name = table.name;
    for (let number = 2; taken.has(name); number++) name = `${table.name}_${number}`;
    taken.add(name);
    return { ...table, name };
  });
  return { ...rules, tables: [...rules.tables, ...added] };
}

/** The rule set with a golden line: the rows that a line makes now must stay. */
export function withGolden(rules, line, rows) {
  const others = (rules.golden ?? []).filter((golden) => golden.line !== line);
  return { ...rules, golden: [...others, { line, rows }] };
}

/** Lines of a text area; a line feed within a line is shown as ␤. */
export function linesOf(text) {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => line.replaceAll("␤", "\n"));
}

/** A line on one line. */
export function shownLine(line) {
  return line.replaceAll("\n", "␤");
}

/** Lines that differ between two texts: [{sign, text}], sign one of " ", "-", "+". */
export function textDifference(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const left = a.slice(head, a.length - tail);
  const right = b.slice(head, b.length - tail);
  const same = (text) => ({ sign: " ", text });
  return [...a.slice(0, head).map(same), ...middle(left, right), ...a.slice(a.length - tail).map(same)];
}

/** The most cells of the table that `middle` makes; larger changes are shown as a whole. */
const MOST_CELLS = 1_000_000;

function middle(left, right) {
  const gone = (text) => ({ sign: "-", text });
  const come = (text) => ({ sign: "+", text });
  if (left.length * right.length > MOST_CELLS) return [...left.map(gone), ...right.map(come)];
  const length = Array.from({ length: left.length + 1 }, () => new Uint32Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      length[i][j] = left[i] === right[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const found = [];
  let i = 0;
  let j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      found.push({ sign: " ", text: left[i++] });
      j++;
    } else if (j >= right.length || (i < left.length && length[i + 1][j] >= length[i][j + 1])) found.push(gone(left[i++]));
    else found.push(come(right[j++]));
  }
  return found;
}
