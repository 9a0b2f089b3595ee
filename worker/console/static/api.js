/** Calls of the REST API, and the stream of what changes. */

/** The address of the API: the page is at ROOT/console, its files are in ROOT/console/. */
export const ROOT = new URL("..", import.meta.url);

/** An answer that is no success, or none at all (status 0). */
export class ApiError extends Error {
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

let proof = "";
let features = new Set();
let cluster = null;
let lacking = new Set();
let onUnknown = async () => false;
/** Settled unless somebody has to log in. */
let login = Promise.resolve();

/**
 * Remember what `GET /console/session` says: what changes carry, and what there is to show.
 * @param {{proof: string | null, features: string[], cluster: string | null, lacks: string[]}} session
 */
export function setSession(session) {
  proof = session.proof ?? "";
  features = new Set(session.features);
  cluster = session.cluster;
  lacking = new Set(session.lacks);
}

/** Whether this console has something that a Java cluster has not, such as "flows". */
export function has(feature) {
  return features.has(feature);
}

/** Whether the version of a Java cluster lacks something that a page uses, such as "stop". */
export function lacks(feature) {
  return lacking.has(feature);
}

/** What answers the calls of the page, as people call it. */
export function server() {
  return cluster === null ? "worker" : "console";
}

/**
 * Called when a caller is not known any more.
 * @param {() => Promise<boolean>} listener answers when somebody has logged in: whether it is the same caller
 */
export function whenUnknown(listener) {
  onUnknown = listener;
}

/** Waits while somebody has to log in. */
export function loggedIn() {
  return login;
}

/** The path of a connector; names may hold anything. */
export function connectorPath(name, rest = "") {
  return `connectors/${encodeURIComponent(name)}${rest}`;
}

/**
 * Call the API.
 * @param {string} method
 * @param {string} path below the API's root
 * @param {unknown} [body] what to send as JSON
 * @param {Record<string, string>} [headers]
 * @param {{parse: (text: string) => any, stringify: (value: unknown) => string}} [json] what reads and writes bodies
 */
export async function call(method, path, body, headers = {}, json = JSON) {
  const sent = { Accept: "application/json", "X-CSRF-Token": proof, ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(path, ROOT), {
      method,
      headers: sent,
      body: body === undefined ? undefined : json.stringify(body),
      credentials: "same-origin",
    });
  } catch {
    throw new ApiError(0, `The ${server()} does not answer. Is it running, and can this browser reach it?`);
  }
  const text = await response.text();
  let value = null;
  try {
    value = text ? json.parse(text) : null;
  } catch {
    value = text;
  }
  if (response.ok) return value;
  if (response.status === 401 && !headers.Authorization) {
    // Somebody has logged in since it was asked.
    if (sent["X-CSRF-Token"] !== proof) return call(method, path, body, headers, json);
    const known = onUnknown();
    login = known.then(() => {});
    if (await known) return call(method, path, body, headers, json);
  }
  throw new ApiError(
    response.status,
    value?.message ?? `${response.status} ${response.statusText}`,
    Number(response.headers.get("Retry-After") ?? 0),
  );
}

/**
 * The same call as a line for a shell.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {{stringify: (value: unknown, replacer?: null, indent?: number) => string}} [json] what writes the body
 */
export function curl(method, path, body, json = JSON) {
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const parts = ["curl"];
  if (method !== "GET") parts.push("-X", method);
  parts.push(quoted(new URL(path, ROOT).href));
  if (body !== undefined) parts.push("-H", "'Content-Type: application/json'", "-d", quoted(json.stringify(body, null, 2)));
  return parts.join(" ");
}

/**
 * Listen to what changes; returns what ends it.
 * @param {string} query of the stream, such as "?connector=a"
 * @param {Record<string, (data: any) => void>} listeners by event
 * @param {(live: boolean) => void} onLive told whether the stream is there
 */
export function listen(query, listeners, onLive) {
  const source = new EventSource(new URL(`console/events${query}`, ROOT));
  let late;
  const live = () => {
    clearTimeout(late);
    late = undefined;
    onLive(true);
  };
  source.addEventListener("open", live);
  for (const [event, listener] of Object.entries(listeners)) {
    source.addEventListener(event, (message) => listener(JSON.parse(message.data)));
  }
  let again;
  let ended = false;
  let over = false;
  source.addEventListener("error", () => {
    // Streams end every minute and come again at once: only what lasts is told.
    late ??= setTimeout(() => onLive(false), 2500);
    if (source.readyState === EventSource.CLOSED && !ended) {
      // The answer was an error, after which browsers give up. A call says whether somebody has to log in.
      ended = true;
      const retry = () => {
        if (!over) again = setTimeout(() => (stop = listen(query, listeners, onLive)), 3000);
      };
      call("GET", "console/session").then(retry, retry);
    }
  });
  let stop = () => source.close();
  return () => {
    over = true;
    clearTimeout(late);
    clearTimeout(again);
    source.close();
    stop();
  };
}
