/** Rule sets that the cluster keeps, and connectors whose lines they read. */
import { may } from "./actions.js";
import { call, curl } from "./api.js";
import { exact } from "./exact.js";
import { placeHref, useGo } from "./place.js";
import { RuleEditor } from "./rule-editor.js";
import { isLogs } from "./rule-form.js";
import { RuleVersions } from "./rule-versions.js";
import { Button, Calls, counted, Dialog, Empty, html, Notice, Tabs, useLoaded, useState } from "./ui.js";

/** A time of a saved version as people read it. */
export function timeText(milliseconds) {
  return milliseconds ? new Date(milliseconds).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : "–";
}

function Connectors({ rows, sets }) {
  const setOf = new Map(sets.flatMap((set) => Object.keys(set.connectors).map((name) => [name, set.name])));
  if (rows.length === 0) {
    return html`<${Empty} title="No connector reads logs">Create one of class logs: its unknown lines are shown here.</${Empty}>`;
  }
  return html`<ul class="cards">${rows.map(
    (row) => html`<li class="card split" key=${row.name}>
      <div class="long"><a href=${placeHref(["connectors", row.name])}><strong>${row.name}</strong></a>
        <div class="muted">${setOf.has(row.name) ? html`runs <a href=${placeHref(["rules", setOf.get(row.name)])}>${setOf.get(row.name)}</a>` : "has its own rules"}</div></div>
      ${may(row.role, "admin") && html`<a class="button" href=${placeHref(["unknown", row.name])}>Unknown lines</a>`}
    </li>`,
  )}</ul>`;
}

export function RulesPage({ session }) {
  const [found, error] = useLoaded(
    async () => ({
      sets: await call("GET", "rules").catch((failure) => (failure.status === 403 ? [] : Promise.reject(failure))),
      rows: (await call("GET", "console/connectors")).filter(isLogs),
    }),
    [],
  );
  const writes = may(session.role, "admin");
  return html`<div class="page">
    <div class="head"><h1>Log rules</h1>${writes && html`<a class="button primary" href="#/new-rules">New rule set</a>`}</div>
    ${error && html`<${Notice} title="The rule sets can't be read">${error.message}</${Notice}>`}
    ${!found && !error && html`<p class="muted">One moment …</p>`}
    ${found &&
    html`${found.sets.length === 0
        ? html`<${Empty} title="No rule sets yet">A rule set says how lines of a log become rows of tables. Try one on lines before a connector runs it.</${Empty}>`
        : html`<ul class="cards">${found.sets.map(
            (set) => html`<li class="card split" key=${set.name}>
              <div class="long"><a href=${placeHref(["rules", set.name])}><strong>${set.name}</strong></a>
                <div class="muted">version ${set.version} of ${timeText(set.created_ms)}${set.comment && ` · ${set.comment}`}</div></div>
              <span class="muted">${counted(Object.keys(set.connectors).length, "connector")}</span>
            </li>`,
          )}</ul>`}
      <h2>Connectors that read logs</h2>
      <${Connectors} rows=${found.rows} sets=${found.sets} />`}
    <${Calls} calls=${[curl("GET", "rules"), curl("GET", "console/connectors")]} />
  </div>`;
}

function DeleteDialog({ set, onClose }) {
  const [error, setError] = useState("");
  const goOn = useGo();
  const path = `rules/${encodeURIComponent(set.name)}`;
  const send = async () => {
    try {
      await call("DELETE", path);
      goOn("#/rules");
    } catch (failure) {
      setError(failure.message);
    }
  };
  return html`<${Dialog} title=${`Delete ${set.name}?`} onClose=${onClose}>
    <p>All of its versions go.</p>
    <${Calls} calls=${[curl("DELETE", path)]} />
    ${error && html`<${Notice} title="It was refused">${error}</${Notice}>`}
    <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel</${Button}><${Button} kind="danger" onClick=${send}>Delete</${Button}></div>
  </${Dialog}>`;
}

/** One rule set; `tab` is rules or versions. */
export function RuleSetPage({ name, tab, session, query }) {
  const [set, error, reload] = useLoaded(() => call("GET", `rules/${encodeURIComponent(name)}`, undefined, {}, exact), [name]);
  const [asked, setAsked] = useState(false);
  const writes = may(session.role, "admin");
  const tabs = [
    { id: "edit", label: "Rules", href: placeHref(["rules", name]) },
    { id: "versions", label: "Versions", count: set?.versions, href: placeHref(["rules", name, "versions"]) },
  ];
  const gone = error?.status === 404;
  return html`<div class="page wide">
    <p class="crumbs"><a href="#/rules">Log rules</a></p>
    <div class="head"><h1 class="long">${name}</h1>${set && writes && html`<${Button} kind="danger-plain" onClick=${() => setAsked(true)}>Delete</${Button}>`}</div>
    ${gone && html`<${Empty} title="There is no rule set of this name"><a href="#/rules">All rule sets</a></${Empty}>`}
    ${error && !gone && html`<${Notice} title="The rule set can't be read">${error.message}</${Notice}>`}
    ${!set && !error && html`<p class="muted">One moment …</p>`}
    ${set &&
    html`<p class="facts"><span>version ${set.version}</span><span>${timeText(set.created_ms)}</span>
        ${Object.entries(set.connectors).map(([each, version]) => html`<span key=${each}><a class="long" href=${placeHref(["connectors", each])}>${each}</a> runs ${version ?? "none yet"}</span>`)}</p>
      <${Tabs} tabs=${tabs} active=${tab} />
      ${tab === "versions"
        ? html`<${RuleVersions} name=${name} newest=${set.version} writes=${writes} />`
        : html`<${RuleEditor} key=${`${name} ${query.get("version") ?? ""}`} name=${name} set=${set} writes=${writes} query=${query} onSaved=${reload} />`}`}
    ${asked && html`<${DeleteDialog} set=${set} onClose=${() => setAsked(false)} />`}
  </div>`;
}

export function NewRulesPage({ session, query }) {
  const goOn = useGo();
  return html`<div class="page wide">
    <p class="crumbs"><a href="#/rules">Log rules</a></p>
    <div class="head"><h1>New rule set</h1></div>
    ${may(session.role, "admin")
      ? html`<${RuleEditor} name=${null} set=${null} writes=${true} query=${query} onSaved=${(name) => goOn(placeHref(["rules", name]))} />`
      : html`<${Empty} title="You may not save rule sets">That needs the role admin for the whole cluster.</${Empty}>`}
  </div>`;
}
