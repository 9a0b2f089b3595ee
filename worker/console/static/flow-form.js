/** The configuration of a flow as its steps and its other properties. Pure. */
import { exact } from "./exact.js";

const STEPS = "transform.steps";
const PREFIX = "transform.step.";

/** What a new flow begins with. */
export const FIRST_FLOW = {
  "connector.class": "spark_jobs.SparkJob",
  "source.topics": "",
  "source.format": "debezium",
  "sink.type": "console",
};

/** Types of steps and the option of each that is written first. */
export const STEP_TYPES = {
  sql: "sql", filter: "condition", select: "columns", route: "to", deduplicate: "keep", union: "output", view: "sql",
  mask: "rules", lookup: "url", python: "python.file", join: "left", window: "table",
};

/** Whether a connector's row is a flow. */
export function isFlow(row) {
  return /(^|[.:])sparkjob(connector)?$/i.test(row.class);
}

let steps = 0;

/** A step with an id of its own, by which the page knows it again when others are removed. */
export function newStep(name, type, options = {}) {
  return { id: ++steps, name, type, options };
}

/** The steps of a flow: [{id, name, type, options}], options without their prefix. */
export function stepsOf(config) {
  const names = (config[STEPS] ?? "").split(",").map((name) => name.trim()).filter(Boolean);
  return names.map((name) => {
    const prefix = `${PREFIX}${name}.`;
    const own = Object.entries(config).filter(([key]) => key.startsWith(prefix)).map(([key, value]) => [key.slice(prefix.length), value]);
    const { type = "", ...options } = Object.fromEntries(own);
    return newStep(name, type, options);
  });
}

/** What a configuration has beside its steps, its name and class, as lines `name=value`. */
export function propertiesText(config) {
  return Object.entries(config)
    .filter(([key]) => key !== STEPS && !key.startsWith(PREFIX) && key !== "name" && key !== "connector.class")
    .sort(([a], [b]) => order(a) - order(b) || (a < b ? -1 : 1))
    .map(([key, value]) => `${key}=${escaped(value)}`)
    .join("\n");
}

function order(name) {
  return ["source.", "transform.", "sink."].findIndex((prefix) => name.startsWith(prefix)) + 1 || 4;
}

function escaped(text) {
  return text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
}

function plain(text) {
  return text.replace(/\\(n|\\)/g, (_, sign) => (sign === "n" ? "\n" : "\\"));
}

/** Properties of lines `name=value`. Throws with the number of a line that is none. */
export function readProperties(text) {
  const found = {};
  text.split("\n").forEach((line, number) => {
    if (!line.trim() || line.trimStart().startsWith("#")) return;
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`Line ${number + 1} is no property: write name=value.`);
    found[line.slice(0, at).trim()] = plain(line.slice(at + 1).trim());
  });
  return found;
}

/** The configuration of properties and steps. */
export function flowConfig(kind, properties, steps) {
  const config = { "connector.class": kind, ...properties };
  if (steps.length > 0) config[STEPS] = steps.map((step) => step.name).join(",");
  for (const step of steps) {
    config[`${PREFIX}${step.name}.type`] = step.type;
    for (const [key, value] of Object.entries(step.options)) if (value !== "") config[`${PREFIX}${step.name}.${key}`] = value;
  }
  return config;
}

/** A name for a new step that none has. */
export function freeName(steps, type) {
  const taken = new Set(steps.map((step) => step.name));
  let name = type;
  for (let number = 2; taken.has(name); number++) name = `${type}_${number}`;
  return name;
}

/** Tables with their columns that SQL of a step may name: those of a plan and a preview, and topics of the source. */
export function tablesOf(properties, steps, plan, preview) {
  const found = {};
  const add = (table, columns) => {
    const short = table.split(".").pop();
    if (/^\w+$/.test(short)) found[short] = [...new Set([...(found[short] ?? []), ...columns])];
  };
  for (const topic of (properties["source.topics"] ?? "").split(",").map((each) => each.trim()).filter(Boolean)) add(topic, []);
  for (const step of steps) add(step.name, []);
  const shown = [...(plan?.tables ?? []), ...(plan?.steps ?? []).flatMap((step) => step.tables ?? []), ...(preview?.inputs ?? []), ...(preview?.steps ?? []).flatMap((step) => step.tables)];
  for (const table of shown) add(named(table.table), table.columns.map((column) => column.name));
  return found;
}

/** A table by the name that people know: of a namespace with seven parts, database and table. */
export function named(table) {
  const parts = table.split(".");
  return parts.length === 7 ? `${parts[2]}.${parts[3]}` : table;
}

/** Rows of a text, as `exact` reads them: one JSON object a line. Throws with the number of a line that is none. */
export function readRows(text) {
  return text.split("\n").filter((line) => line.trim()).map((line, number) => {
    try {
      return exact.parse(line);
    } catch (error) {
      throw new Error(`Row ${number + 1} is not JSON: ${error.message}`);
    }
  });
}
