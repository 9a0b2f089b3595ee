/** Options of a form, from the declarations that a worker gives. Pure. */
import { exact, shownExactly } from "./exact.js";

/** Options of every connector that the worker knows by itself; what else a configuration may hold is free. */
export const NAME = "name";
export const CLASS = "connector.class";
/** What stands for a secret that the worker keeps to itself. */
export const HIDDEN = "[hidden]";

/**
 * Declarations by group, in their order. Aliases come as options of their own: a declaration is taken once.
 * @param {Array<any>} declared `GET /connector-plugins/{plugin}/config`
 */
export function grouped(declared) {
  const groups = new Map();
  for (const option of declared) {
    if (option.name === NAME || option.name === CLASS) continue;
    const group = option.group ?? "Options";
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(option);
  }
  for (const options of groups.values()) options.sort((a, b) => a.order - b.order);
  return [...groups].map(([name, options]) => ({ name, options }));
}

/** Whether an option is shown before somebody asks for more. */
export function basic(option, values) {
  return option.required || option.importance === "HIGH" || values[option.name] !== undefined;
}

/** What differs between two configurations: [{name, before, after}], undefined where a property is not there. */
export function difference(before, after) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  return names
    .filter((name) => before[name] !== after[name])
    .map((name) => ({ name, before: before[name], after: after[name] }));
}

/** The body of a PATCH that makes one of the other; null takes a property away. */
export function patchOf(before, after) {
  return Object.fromEntries(difference(before, after).map((each) => [each.name, each.after ?? null]));
}

/** Configuration of an uploaded file: `{name, config}`, or a configuration alone. Throws with a text for people. */
export function readUpload(text) {
  let value;
  try {
    value = exact.parse(text);
  } catch (error) {
    throw new Error(`The file is not JSON: ${error.message}`);
  }
  const config = value?.config ?? value;
  if (config === null || typeof config !== "object" || Array.isArray(config)) {
    throw new Error("The file holds no configuration: an object of properties is expected.");
  }
  const found = {};
  for (const [name, each] of Object.entries(config)) {
    if (each !== null && typeof each === "object") throw new Error(`${name} has a value that is neither text nor number.`);
    if (each !== null && each !== HIDDEN) found[name] = shownExactly(each);
  }
  if (typeof value.name === "string") found[NAME] = value.name;
  return found;
}

const JAVA = /^(com|io|org|net)\./;

/** Kinds of connectors to choose from: each once, and apart those that are named as in Java. */
export function kinds(plugins) {
  const own = new Map();
  const java = [];
  for (const plugin of plugins) {
    const simple = plugin.class.split(".").pop();
    const version = plugin.version ? ` · ${plugin.version}` : "";
    if (plugin.class.includes(".java_sinks.")) continue;
    if (JAVA.test(plugin.class)) {
      java.push({ ...plugin, label: simple, note: `${plugin.type} · ${plugin.class}` });
      continue;
    }
    const label = simple.replace(/(?<=.)Connector$/, "");
    const before = own.get(label);
    if (!before || plugin.class.length < before.class.length) own.set(label, { ...plugin, label, note: `${plugin.type}${version}` });
  }
  const named = (a, b) => a.type.localeCompare(b.type) * -1 || a.label.localeCompare(b.label);
  return { own: [...own.values()].sort(named), java };
}

/** Kinds of connectors of a Java cluster: names may be alike, so that each is shown with its package. */
export function javaKinds(plugins) {
  return plugins
    .map((plugin) => {
      const simple = plugin.class.split(".").pop();
      const version = plugin.version ? ` ${plugin.version}` : "";
      const folder = plugin.class.slice(0, -simple.length - 1);
      return { ...plugin, label: simple.replace(/(?<=.)Connector$/, ""), note: `${plugin.type}${version}${folder && ` · ${folder}`}` };
    })
    .sort((a, b) => b.type.localeCompare(a.type) || a.label.localeCompare(b.label));
}

/** Options that name the tables to capture. */
export const TABLE_OPTIONS = ["table.include.list", "scylla.table.names"];

function asPattern(name) {
  return name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/** The value of the option for some tables; `found` is what the source says of its tables. */
export function tablesValue(found, names) {
  return [...names].sort().map((name) => (found.patterns ? asPattern(name) : name)).join(",");
}

/** The tables that a value of the option names. */
export function chosenTables(found, value) {
  const parts = new Set(value.split(",").map((part) => part.trim()).filter(Boolean));
  return found.tables.filter((name) => parts.has(name) || (found.patterns && parts.has(asPattern(name))));
}

/** A reference to a config provider, to be completed. */
export function referenceTo(provider) {
  return provider === "env" ? "${env:NAME}" : `\${${provider}:/path:key}`;
}
