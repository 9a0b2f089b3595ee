/** What can be done with connectors, one or many. */
import { call, connectorPath, curl, lacks } from "./api.js";
import { Button, Calls, counted, Dialog, html, Notice, useState } from "./ui.js";

const ROLES = ["read", "operate", "admin"];

/** Whether a role includes another. */
export function may(role, needed) {
  return ROLES.indexOf(role) >= ROLES.indexOf(needed);
}

/** What can be done: the call, the role it needs, the states in which it makes no difference. */
const ACTIONS = [
  { id: "resume", label: "Resume", role: "operate", method: "PUT", rest: "/resume", idle: ["RUNNING", "FAILED"],
    effect: "They run again from where they were." },
  { id: "pause", label: "Pause", role: "operate", method: "PUT", rest: "/pause", idle: ["PAUSED", "STOPPED"],
    effect: "Their tasks stay where they are and read nothing." },
  { id: "restart", label: "Restart", role: "operate", method: "POST",
    rest: "/restart?includeTasks=true&onlyFailed=false", idle: ["STOPPED"],
    effect: "The connector and all of its tasks are restarted, from their saved offsets." },
  { id: "stop", label: "Stop", role: "operate", method: "PUT", rest: "/stop", idle: ["STOPPED"],
    effect: "Their tasks end. Offsets stay, and can be edited." },
  { id: "delete", label: "Delete", role: "admin", method: "DELETE", rest: "", idle: [], danger: true,
    effect: "Configurations are deleted. Offsets stay in Kafka: a new connector of the same name continues from there." },
];

/** Those that the cluster's version has. */
export function knownActions() {
  return ACTIONS.filter((action) => !(action.id === "stop" && lacks("stop")));
}

/** The call of an action: before Kafka 3.0 a connector is restarted without its tasks. */
function restOf(action) {
  return action.id === "restart" && lacks("restart-with-tasks") ? "/restart" : action.rest;
}

async function act(action, name) {
  await call(action.method, connectorPath(name, restOf(action)));
  if (restOf(action) === action.rest) return;
  for (const task of (await call("GET", connectorPath(name, "/status"))).tasks) {
    await call("POST", connectorPath(name, `/tasks/${task.id}/restart`));
  }
}

const AT_ONCE = 6;
/** Times that a cluster may be in the way before it is reported. */
const MOST_CONFLICTS = 120;

/** Do it to all, a few at a time; tells of each that is done. Returns the failures: [name, message]. */
export async function perform(action, names, onDone) {
  const failures = [];
  let conflicts = 0;
  const waiting = [...names];
  const work = async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
      try {
        await act(action, name);
      } catch (error) {
        // Too many at once, or a Java cluster that rebalances: after a while it works.
        if (error.retryAfter && (error.status === 429 || (error.status === 409 && conflicts++ < MOST_CONFLICTS))) {
          await new Promise((resolve) => setTimeout(resolve, error.retryAfter * 1000));
          waiting.unshift(name);
          continue;
        }
        failures.push([name, error.message]);
      }
      onDone(name);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return failures;
}

/** Asks before an action, shows how far it is and what failed. */
export function ActionDialog({ action, names, onClose }) {
  const [done, setDone] = useState(null);
  const [failures, setFailures] = useState(null);
  const what = names.length === 1 ? names[0] : counted(names.length, "connector");
  const run = async () => {
    setDone(0);
    let number = 0;
    const failed = await perform(action, names, () => setDone(++number));
    if (failed.length === 0) onClose(true);
    else setFailures(failed);
  };
  const failed = failures ?? [];
  return html`<${Dialog} title=${`${action.label} ${what}?`} onClose=${() => (done === null || failures) && onClose(false)}>
    ${failures === null &&
    html`<p>${names.length === 1 ? action.effect.replace(/\btheir\b/g, "its").replace(/^Their\b/, "Its").replace(/^They run/, "It runs").replace(/^Configurations are/, "Its configuration is") : action.effect}</p>
      ${names.length > 1 &&
      html`<ul class="names" tabindex="0" aria-label="Connectors">${names.map((name) => html`<li key=${name}>${name}</li>`)}</ul>`}
      <${Calls} calls=${names.slice(0, 100).map((name) => curl(action.method, connectorPath(name, restOf(action))))} />
      ${restOf(action) !== action.rest && html`<p class="muted">Then each task is restarted by a call of its own: this version of Kafka Connect restarts a connector alone.</p>`}`}
    ${done !== null &&
    failures === null &&
    html`<label class="progress">${done} of ${names.length}<progress value=${done} max=${names.length}></progress></label>`}
    ${failures !== null &&
    html`<${Notice} title=${`${failed.length} of ${names.length} could not be done`}>
      <ul class="names">${failed.map(([name, message]) => html`<li key=${name}><strong>${name}</strong>: ${message}</li>`)}</ul>
    </${Notice}>`}
    <div class="dialog-actions">
      ${failures === null
        ? html`<${Button} onClick=${() => onClose(false)} disabled=${done !== null}>Cancel</${Button}>
            <${Button} kind=${action.danger ? "danger" : "primary"} busy=${done !== null} onClick=${run}>${action.label}</${Button}>`
        : html`<${Button} kind="primary" onClick=${() => onClose(true)}>Close</${Button}>`}
    </div>
  </${Dialog}>`;
}
