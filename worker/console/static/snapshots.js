/** How far a source is behind, and its snapshots. */
import { may } from "./actions.js";
import { call, connectorPath, curl } from "./api.js";
import { Button, Calls, Empty, html, Notice, secondsText, useEffect, useLoaded, useState } from "./ui.js";

/** Null where the connector can't tell (400), which is no failure. */
async function ifTold(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.status === 400) return null;
    throw error;
  }
}

const STEERED = { running: ["pause", "cancel"], waiting: ["pause", "cancel"], scheduled: ["cancel"], paused: ["resume", "cancel"] };
const AGAIN_MS = 2000;

function Progress({ table }) {
  if (typeof table === "string") return html`<li>${table}</li>`;
  const done = table.rows_done ?? table.rows_read ?? table.rows;
  const total = table.rows_total ?? table.rows_estimated ?? table.estimated_rows;
  const share = table.share ?? (total ? Math.min(1, done / total) : undefined);
  return html`<li><span class="long">${table.table ?? table.name}</span>
    ${share !== undefined && html`<progress value=${share} max="1" aria-label=${`Progress of ${table.table ?? table.name}`}></progress>`}
    ${done !== undefined && html`<span class="muted">${done.toLocaleString("en")}${total ? ` of ${total.toLocaleString("en")}` : ""} rows</span>`}
  </li>`;
}

function Snapshot({ name, snapshot, role, onChange }) {
  const [error, setError] = useState("");
  const steer = async (action) => {
    try {
      await call("PUT", connectorPath(name, `/snapshots/${encodeURIComponent(snapshot.id)}/${action}`));
      setError("");
      onChange();
    } catch (problem) {
      setError(problem.message);
    }
  };
  return html`<li class="card">
    <div class="task-head"><strong class="long">${snapshot.id}</strong>
      <span class=${`badge ${snapshot.state === "failed" ? "failed" : snapshot.state === "completed" ? "running" : "restarting"}`}>${snapshot.state}</span>
      ${may(role, "operate") &&
      (STEERED[snapshot.state] ?? []).map(
        (action) => html`<${Button} kind="small" key=${action} onClick=${() => steer(action)}>${action[0].toUpperCase() + action.slice(1)}</${Button}>`,
      )}
    </div>
    <ul class="progress-list">${(snapshot.tables ?? []).map((table, index) => html`<${Progress} key=${index} table=${table} />`)}</ul>
    ${error && html`<${Notice}>${error}</${Notice}>`}
  </li>`;
}

function Start({ name, onDone }) {
  const [tables, setTables] = useState("");
  const [error, setError] = useState("");
  const list = tables.split(",").map((each) => each.trim()).filter(Boolean);
  const body = { tables: list.length ? list : [".*"] };
  const [busy, setBusy] = useState(false);
  const start = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await call("POST", connectorPath(name, "/snapshots"), body);
      setTables("");
      setError("");
      onDone();
    } catch (problem) {
      setError(problem.message);
    }
    setBusy(false);
  };
  return html`<form class="card start" onSubmit=${start}>
    <label class="field">Tables to read again
      <input value=${tables} onInput=${(event) => setTables(event.target.value)} placeholder="shop.orders, shop.customers" aria-describedby="tables-help" />
      <span class="help" id="tables-help">Names or patterns, with commas between them. Empty: all that the connector captures.</span>
    </label>
    ${error && html`<${Notice} title="It was refused">${error}</${Notice}>`}
    <${Button} kind="primary" type="submit" busy=${busy}>Start a snapshot</${Button}>
    <${Calls} calls=${[curl("POST", connectorPath(name, "/snapshots"), body)]} />
  </form>`;
}

export function SnapshotsTab({ name, role }) {
  const [found, error, reload] = useLoaded(async () => {
    const [lag, snapshots] = await Promise.all([
      ifTold(call("GET", connectorPath(name, "/lag"))),
      ifTold(call("GET", connectorPath(name, "/snapshots"))),
    ]);
    return { lag, snapshots };
  }, [name]);
  const moves = found?.snapshots?.some((each) => each.state in STEERED);
  useEffect(() => {
    if (!moves) return undefined;
    const timer = setInterval(reload, AGAIN_MS);
    return () => clearInterval(timer);
  }, [moves, reload]);
  if (error && !found) return html`<${Notice} title="The source can't be asked">${error.message}</${Notice}>`;
  if (!found) return html`<p class="muted">Asking the source …</p>`;
  const { lag, snapshots } = found;
  return html`<h2>Lag</h2>
    ${lag === null
      ? html`<${Empty} title="Not known">This kind of connector can't tell how far it is behind.</${Empty}>`
      : html`<p class="figure"><strong>${secondsText(lag.time_behind_s)}</strong> behind
            ${lag.bytes_behind !== null && lag.bytes_behind !== undefined && html`<span class="muted"> · ${lag.bytes_behind.toLocaleString("en")} bytes to read</span>`}
            <${Button} kind="small" onClick=${reload}>Ask again</${Button}></p>
          ${lag.tables?.length > 0 &&
          html`<table class="grid card"><thead><tr><th scope="col">Table</th><th scope="col" class="num">Behind</th><th scope="col" class="num">Changes to read</th></tr></thead>
            <tbody>${lag.tables.map((table) => html`<tr key=${table.table}><th scope="row" class="long">${table.table}</th>
              <td class="num">${secondsText(table.time_behind_s)}</td><td class="num">${table.events_behind?.toLocaleString("en") ?? "–"}</td></tr>`)}</tbody></table>`}`}
    <h2>Snapshots</h2>
    ${snapshots === null
      ? html`<${Empty} title="None on request">This kind of connector takes no snapshots on request.</${Empty}>`
      : html`${snapshots.length === 0 && html`<${Empty} title="No snapshots">Neither asked for nor begun by the connector itself.</${Empty}>`}
          <ul class="tasks">${snapshots.map((snapshot) => html`<${Snapshot} key=${snapshot.id} name=${name} snapshot=${snapshot} role=${role} onChange=${reload} />`)}</ul>
          ${may(role, "operate") && html`<${Start} name=${name} onDone=${reload} />`}`}
    <${Calls} calls=${[curl("GET", connectorPath(name, "/lag")), curl("GET", connectorPath(name, "/snapshots"))]} />`;
}
