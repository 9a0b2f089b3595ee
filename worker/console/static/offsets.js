/** Offsets: look, edit with what would change, undo. */
import { may } from "./actions.js";
import { call, connectorPath, curl, lacks } from "./api.js";
import { exact } from "./exact.js";
import { Button, Calls, Dialog, Empty, html, Notice, useLoaded, useState } from "./ui.js";

function shown(value) {
  return value === null ? "none" : exact.stringify(value, null, 1).replace(/\n\s*/g, " ");
}

function Edit({ name, entry, onClose, onDone }) {
  const [text, setText] = useState(exact.stringify(entry.offset, null, 2));
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  let offset;
  let wrong = "";
  try {
    offset = exact.parse(text);
    if (offset !== null && (typeof offset !== "object" || Array.isArray(offset))) wrong = "An offset is an object, or null to forget it.";
  } catch (problem) {
    wrong = `This is not JSON: ${problem.message}`;
  }
  const body = { offsets: [{ partition: entry.partition, offset }] };
  const same = !wrong && exact.stringify(offset) === exact.stringify(entry.offset);
  const save = async () => {
    setBusy(true);
    try {
      await call("PATCH", connectorPath(name, "/offsets"), body, {}, exact);
      onDone({ partition: entry.partition, before: entry.offset, after: offset });
    } catch (problem) {
      setError(problem.message);
      setBusy(false);
    }
  };
  const keys = wrong ? [] : [...new Set([...Object.keys(entry.offset ?? {}), ...Object.keys(offset ?? {})])];
  const changes = keys.filter((key) => exact.stringify(entry.offset?.[key]) !== exact.stringify(offset?.[key]));
  return html`<${Dialog} title="Edit an offset" onClose=${onClose} wide>
    <p class="muted">Of <code>${shown(entry.partition)}</code></p>
    <label class="field">Offset
      <textarea rows="8" spellcheck=${false} value=${text} aria-invalid=${Boolean(wrong)} onInput=${(event) => setText(event.target.value)}></textarea>
      ${wrong && html`<span class="error-text">${wrong}</span>`}
    </label>
    ${!wrong && offset === null && html`<${Notice} tone="warning">The offset is forgotten: the connector begins anew with this partition.</${Notice}>`}
    ${changes.length > 0 && offset !== null &&
    html`<table class="diff"><caption>What changes</caption><thead><tr><th scope="col">Field</th><th scope="col">Now</th><th scope="col">Then</th></tr></thead>
      <tbody>${changes.map((key) => html`<tr key=${key}><th scope="row">${key}</th>
        <td class="old">${entry.offset?.[key] === undefined ? "–" : exact.stringify(entry.offset[key])}</td>
        <td class="new">${offset?.[key] === undefined ? "–" : exact.stringify(offset[key])}</td></tr>`)}</tbody></table>`}
    ${!wrong && !same && html`<${Calls} calls=${[curl("PATCH", connectorPath(name, "/offsets"), body, exact)]} />`}
    ${error && html`<${Notice} title="It was refused">${error}</${Notice}>`}
    <div class="dialog-actions">
      <${Button} onClick=${onClose}>Cancel</${Button}>
      <${Button} kind="primary" disabled=${Boolean(wrong) || same} busy=${busy} onClick=${save}>Save</${Button}>
    </div>
  </${Dialog}>`;
}

export function OffsetsTab({ name, state, role }) {
  const [found, error, reload] = useLoaded(() => call("GET", connectorPath(name, "/offsets"), undefined, {}, exact), [name], [state]);
  const [editing, setEditing] = useState(null);
  const [changed, setChanged] = useState(null);
  const [failure, setFailure] = useState("");
  if (error) return html`<${Notice} title="Offsets can't be read">${error.message}</${Notice}>`;
  if (!found) return html`<p class="muted">One moment …</p>`;
  const fixed = lacks("edit-offsets");
  const editable = state === "STOPPED" && may(role, "admin") && !fixed;
  const undo = async () => {
    try {
      await call("PATCH", connectorPath(name, "/offsets"), { offsets: [{ partition: changed.partition, offset: changed.before }] }, {}, exact);
      setChanged(null);
      setFailure("");
      reload();
    } catch (problem) {
      setFailure(problem.message);
    }
  };
  return html`${fixed && html`<p class="muted">This version of Kafka Connect shows offsets; they can be changed since Kafka 3.6.</p>`}
    ${state !== "STOPPED" && may(role, "admin") && !fixed &&
    html`<${Notice} tone="info">Offsets can be edited while the connector is stopped: its tasks would overwrite them.</${Notice}>`}
    ${changed &&
    html`<div class="notice info" role="status"><strong>The offset is changed</strong>
      <div class="notice-text"><code>${shown(changed.partition)}</code> stood at <code>${shown(changed.before)}</code>.</div>
      <${Button} onClick=${undo}>Undo</${Button}></div>`}
    ${failure && html`<${Notice} title="It could not be undone">${failure}</${Notice}>`}
    ${found.offsets.length === 0
      ? html`<${Empty} title="No offsets">It has saved none yet: at its next start it begins at the beginning.</${Empty}>`
      : html`<ul class="offsets">
          ${found.offsets.map(
            (entry) => html`<li class="card" key=${exact.stringify(entry.partition)}>
              <dl><dt>Partition</dt><dd><code>${shown(entry.partition)}</code></dd>
                <dt>Offset</dt><dd><code>${shown(entry.offset)}</code></dd></dl>
              ${editable && html`<${Button} onClick=${() => setEditing(entry)}>Edit</${Button}>`}
            </li>`,
          )}
        </ul>`}
    <${Calls} calls=${[curl("GET", connectorPath(name, "/offsets"))]} />
    ${editing &&
    html`<${Edit} name=${name} entry=${editing} onClose=${() => setEditing(null)} onDone=${(change) => {
      setEditing(null);
      setChanged(change);
      reload();
    }} />`}`;
}
