/** Options of a form, from the declarations that a worker gives. Pure. */

/** Options of every connector that the worker knows by itself; what else a configuration may hold is free. */
export const NAME = "name";
export const CLASS = "connector.class";

/**
 * Declarations by group, in their order. Aliases come as options of their own: a declaration is taken once.
 * @param {Array<object>} declared `GET /connector-plugins/{plugin}/config`
 */
export function grouped(declared) {
  const groups = new Map();
  for (const option of declared) {
    if (option.name === NAME || option.name === CLASS) continue;
    const group = option.group ?? "Other";
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
    value = JSON.parse(text);
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
    if (each !== null) found[name] = String(each);
  }
  if (typeof value.name === "string") found[NAME] = value.name;
  return found;
}
