/** JSON whose numbers stay as they are written: a browser would round a whole number beyond 2^53. */

const MARK = "\u0000number ";
const TOKEN = /"(?:[^"\\]|\\.)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** A number that a browser would write otherwise as a string, which is to be passed on only; what else there is stays. */
function kept(token) {
  return token[0] === '"' || String(Number(token)) === token ? token : JSON.stringify(MARK + token);
}

/** To be used as `JSON` is. */
export const exact = {
  parse: (text) => JSON.parse(text.replace(TOKEN, kept)),
  stringify: (value, replacer, indent) => JSON.stringify(value, replacer, indent)?.replace(/"\\u0000number ([^"]*)"/g, "$1"),
};

/** A value that `exact` has read, as it is shown: a string as it is, anything else as JSON. */
export function shownExactly(value, indent) {
  if (typeof value !== "string") return exact.stringify(value, null, indent);
  return value.startsWith(MARK) ? value.slice(MARK.length) : value;
}
