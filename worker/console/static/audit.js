/** Who changed what, and when. */
import { call, curl } from "./api.js";
import { go, placeHref } from "./place.js";
import { timeText } from "./topics.js";
import { Button, Calls, counted, Empty, html, Notice, useLoaded } from "./ui.js";

const MOST = 500;

/** What became of a request. */
function outcome(status) {
  if (status === 403) return ["refused", "failed"];
  if (status === 0) return ["no answer", "paused"];
  return status < 400 ? ["done", "running"] : [`failed (${status})`, "failed"];
}

export function AuditPage({ query }) {
  const [changes, error, reload] = useLoaded(() => call("GET", "console/audit"), []);
  const q = query.get("q") ?? "";
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = (changes ?? []).filter((each) => {
    const text = [each.user, each.connector ?? "", each.action, each.path, each.address, each.worker_id, outcome(each.status)[0]].join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const shown = found.slice(0, MOST);
  return html`<div class="page">
    <div class="head"><h1>Audit</h1><${Button} onClick=${reload}>Look again</${Button}></div>
    ${error?.status === 403
      ? html`<${Empty} title="Not for your role">Who changed what is shown to those with the role admin for the whole cluster. ${error.message}.</${Empty}>`
      : error && html`<${Notice} title="The changes can't be listed">${error.message}</${Notice}>`}
    ${!changes && !error && html`<p class="muted" aria-busy="true">One moment …</p>`}
    ${changes?.length === 0 && html`<${Empty} title="No changes yet">Changes are here from the next one on. Those from before the workers' last start are in their audit logs.</${Empty}>`}
    ${changes?.length > 0 && html`<div class="filters"><label class="search"><span class="hidden">Filter</span>
        <input type="search" placeholder="Filter by user, connector or change" value=${q}
          onInput=${(event) => go(placeHref(["audit"], { q: event.target.value }), true)} /></label></div>
      ${found.length === 0
        ? html`<${Empty} title="Nothing fits the filter"><${Button} onClick=${() => go("#/audit", true)}>Show all ${changes.length}</${Button}></${Empty}>`
        : html`<div class="table-box short" tabindex="0" role="region" aria-label="Changes"><table class="grid spacious">
          <thead><tr><th scope="col">When (UTC)</th><th scope="col">Who</th><th scope="col">What</th><th scope="col">Connector</th><th scope="col">Outcome</th><th scope="col">Asked of</th></tr></thead>
          <tbody>${shown.map((each, index) => {
            const [text, tone] = outcome(each.status);
            return html`<tr key=${index}>
              <td class="nowrap">${timeText(each.at_ms)}</td>
              <td class="long" title=${`${each.auth}, from ${each.address}`}>${each.user}<br /><span class="sub">${each.address}</span></td>
              <td class="long" title=${`${each.method} ${each.path}`}>${each.action}</td>
              <td class="long">${each.connector ? html`<a href=${placeHref(["connectors", each.connector])}>${each.connector}</a>` : "–"}</td>
              <td><span class=${`badge ${tone}`}>${text}</span></td>
              <td class="nowrap muted">${each.worker_id}</td></tr>`;
          })}</tbody></table></div>`}
      <p class="muted" aria-live="polite">${found.length > MOST ? `The newest ${MOST} of ${counted(found.length, "change")}` : counted(found.length, "change")}.
        Each worker remembers its last 1,000 since it was started; the logger worker.rest.audit writes all of them down.</p>`}
    <${Calls} calls=${[curl("GET", "console/audit")]} />
  </div>`;
}
