/** A connector's earlier configurations, what each changed, and the way back. */
import { may } from "./actions.js";
import { call, curl } from "./api.js";
import { placeHref } from "./place.js";
import { timeText } from "./topics.js";
import { Button, Calls, counted, Dialog, Empty, html, Notice, useLoaded, useState } from "./ui.js";

const HIDDEN = "[hidden]";

/** The change that makes `target` of `now`; secrets stay as they are. */
export function wayBack(now, target) {
  const names = [...new Set([...Object.keys(now), ...Object.keys(target)])].sort();
  return Object.fromEntries(names
    .filter((name) => name !== "name" && now[name] !== target[name] && target[name] !== HIDDEN && now[name] !== HIDDEN)
    .map((name) => [name, target[name] ?? null]));
}

function Diff({ changes, label, labels = ["Before", "After"] }) {
  const cell = (value) => (value === null || value === undefined ? "–" : value === "" ? "empty" : value);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class="diff">
    <thead><tr><th scope="col">Property</th><th scope="col">${labels[0]}</th><th scope="col">${labels[1]}</th></tr></thead>
    <tbody>${changes.map((each) => html`<tr key=${each.name}><th scope="row">${each.name}</th>
      <td class="old">${cell(each.before)}</td><td class="new">${cell(each.after)}${each.after === HIDDEN && each.before === HIDDEN ? " (another value)" : ""}</td></tr>`)}</tbody></table></div>`;
}

function Back({ name, now, version, onClose }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const patch = wayBack(now, version.config);
  const changes = Object.entries(patch).map(([key, value]) => ({ name: key, before: now[key] ?? null, after: value }));
  const path = `console/connectors/${encodeURIComponent(name)}/config`;
  const save = async () => {
    setBusy(true);
    try {
      await call("PATCH", path, patch);
      onClose(true);
    } catch (problem) {
      setError(problem.message);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${`Go back to ${timeText(version.at_ms)}?`} onClose=${() => onClose(false)} wide>
    ${changes.length === 0
      ? html`<p>Nothing that is shown is different. Secrets stay as they are.</p>`
      : html`<p>Secrets stay as they are. Its tasks start again with the configuration of then.</p><${Diff} changes=${changes} label="Changes" labels=${["Now", "Then"]} />
          <${Calls} calls=${[curl("PATCH", path, patch)]} />`}
    ${error && html`<${Notice} title="It was refused">${error}</${Notice}>`}
    <div class="dialog-actions"><${Button} onClick=${() => onClose(false)}>Cancel</${Button}>
      <${Button} kind="primary" busy=${busy} disabled=${changes.length === 0} onClick=${save}>Go back</${Button}></div>
  </${Dialog}>`;
}

export function HistoryTab({ name, role, digest }) {
  const path = `console/connectors/${encodeURIComponent(name)}/history`;
  const [versions, error, reload] = useLoaded(() => call("GET", path), [name], [digest]);
  const [asked, setAsked] = useState(null);
  const calls = html`<${Calls} calls=${[curl("GET", path)]} />`;
  if (error) return html`<${Notice} title="The history can't be read">${error.message}</${Notice}>${calls}`;
  if (!versions) return html`<p class="muted" aria-busy="true">One moment …</p>`;
  const now = versions[0]?.config ?? {};
  return html`${versions.length === 0 && html`<${Empty} title="No history">Kafka has no configuration of it any more.</${Empty}>`}
    <ol class="tasks history">${versions.map((version, index) => html`<li class="card" key=${`${version.at_ms} ${index}`}>
      <div class="task-head"><strong>${timeText(version.at_ms)}</strong><span class="muted">UTC</span>
        ${index === 0 && html`<span class="required">now</span>`}
        ${index > 0 && !version.deleted && may(role, "admin") && html`<${Button} kind="small" onClick=${() => setAsked(version)}>Go back to this</${Button}>`}</div>
      ${version.deleted
        ? html`<p>Deleted.</p>`
        : version.changes.length > 0
          ? html`<${Diff} changes=${version.changes} label=${`Changes of ${timeText(version.at_ms)}`} />`
          : html`<p class="muted">${index === versions.length - 1 || versions[index + 1].deleted ? `${counted(Object.keys(version.config).length, "property", "properties")}. What was before is not known.` : "Nothing that is shown has changed."}</p>`}
    </li>`)}</ol>
    <p class="muted">As far as Kafka's config topic still has them, which it compacts. <a href=${placeHref(["audit"], { q: name })}>Who changed it</a></p>
    ${calls}
    ${asked && html`<${Back} name=${name} now=${now} version=${asked} onClose=${(done) => {
      setAsked(null);
      if (done) reload();
    }} />`}`;
}
