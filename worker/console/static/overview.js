/** The start page: what fails and why, the whole pipeline, and the workers. */
import { ActionDialog, may } from "./actions.js";
import { call, connectorPath, curl } from "./api.js";
import { Away, useRows } from "./connectors.js";
import { graphOf, laidOut, marks, MOST, NODE, path, selected } from "./graph.js";
import { go, placeHref } from "./place.js";
import { remedy, rootCause } from "./remedies.js";
import { counts } from "./rows.js";
import { Badge, Button, Calls, counted, Empty, html, Notice, rateText, secondsText, STATES } from "./ui.js";
import { useEffect, useLoaded, useMemo, useState } from "./ui.js";

const AGAIN_MS = 5000;
/** What has failed is shown with its cause, so many at most; of the others there is a link. */
const TROUBLES = 5;
const RESTART = { id: "restart", label: "Restart", role: "operate", method: "POST", idle: [],
  rest: "/restart?includeTasks=true&onlyFailed=true", effect: "What has failed of it starts anew, from the saved offsets." };
const KINDS = { source: "Source", topic: "Topic", topics: "Topics", target: "Target", connector: "Connector", flow: "Flow or sink" };

/** Loads again every few seconds while the page is open. */
function useRepeated(load, deps) {
  const [value, error, reload] = useLoaded(load, deps);
  useEffect(() => {
    const timer = setInterval(reload, AGAIN_MS);
    return () => clearInterval(timer);
  }, [reload]);
  return [value, error, reload];
}

function Trouble({ row, onAction }) {
  const [status] = useLoaded(() => (row.worst === "FAILED" ? call("GET", connectorPath(row.name, "/status")) : null), [row.name, row.error]);
  const trace = [status?.connector, ...(status?.tasks ?? [])].find((each) => each?.trace)?.trace ?? "";
  const cause = rootCause(trace);
  const text = `${row.error ?? ""} ${cause}`;
  const failed = row.worst === "FAILED";
  return html`<li class="card trouble">
    <div class="task-head">
      <a class="strong long" href=${placeHref(["connectors", row.name])}>${row.name}</a><${Badge} state=${row.worst} />
      ${failed && may(row.role, "operate") && html`<${Button} kind="small" onClick=${() => onAction(row.name)}>Restart what failed</${Button}>`}
    </div>
    ${failed
      ? html`<p class="error-text">${row.error}${row.error?.length === 300 ? " …" : ""}</p>
          ${cause && !row.error?.includes(cause) && html`<p class="error-text">Caused by: ${cause}</p>`}
          <p><span class="strong">What to do:</span> ${remedy(text)}</p>`
      : html`<p>No worker runs all of it yet. This passes within seconds after a worker has come or gone; if it stays, the connector's page says why.</p>`}
  </li>`;
}

function Troubles({ rows, onAction }) {
  const bad = useMemo(() => [...rows.values()].filter((row) => STATES.indexOf(row.worst) < 2)
    .sort((a, b) => STATES.indexOf(a.worst) - STATES.indexOf(b.worst) || (a.name < b.name ? -1 : 1)), [rows]);
  if (bad.length === 0) return html`<p class="all-well"><${Badge} state="RUNNING" title="" /> Nothing has failed.</p>`;
  return html`<section aria-labelledby="troubles"><h2 id="troubles">Needs attention</h2>
    <ul class="tasks">${bad.slice(0, TROUBLES).map((row) => html`<${Trouble} key=${row.name} row=${row} onAction=${onAction} />`)}</ul>
    ${bad.length > TROUBLES && html`<p><a href="#/connectors">All ${bad.length} that need attention</a></p>`}
  </section>`;
}

/** The text at an edge: what comes in is behind, what goes out has a rate. */
function markText(mark, row, job) {
  const rate = job ? job.rate : row?.rate;
  if (mark.part === "out") return rate === null || rate === undefined ? "" : rateText(rate);
  if (job) return job.lag === null ? "" : `${job.lag.toLocaleString("en")} behind`;
  return row?.lag_s === null || row?.lag_s === undefined ? "" : `${secondsText(row.lag_s)} behind`;
}

function Node({ node, row }) {
  const state = row?.worst ?? "";
  const inner = html`<span class="node-kind">${KINDS[node.kind]}${row && row.worst !== "RUNNING" ? html` · <b>${row.worst.toLowerCase()}</b>` : ""}</span>
    <span class="node-label">${node.label}</span>`;
  const href = node.connector
    ? placeHref(["connectors", node.connector, ...(node.kind === "topics" ? ["topics"] : [])])
    : node.kind === "topic"
      ? placeHref(["topics", node.label])
      : undefined;
  const style = { left: `${node.x}px`, top: `${node.y}px`, width: `${NODE.width}px`, height: `${NODE.height}px` };
  const name = `node ${node.kind} ${state.toLowerCase()}`;
  return html`<li style=${style}>${href
    ? html`<a class=${name} href=${href} title=${node.title || node.label}>${inner}</a>`
    : html`<span class=${name} title=${node.label}>${inner}</span>`}</li>`;
}

function Graph({ places, rows, jobs }) {
  const key = JSON.stringify(places);
  const layout = useMemo(() => laidOut(graphOf(places)), [key]);
  const texts = useMemo(() => marks(layout), [layout]);
  return html`<div class="graph" tabindex="0" role="region" aria-label="Pipeline">
    <div class="graph-canvas" style=${{ width: `${layout.width}px`, height: `${layout.height}px` }}>
      <svg width=${layout.width} height=${layout.height} aria-hidden="true">
        ${layout.edges.map((edge, index) => html`<path key=${index} d=${path(edge)} class=${(rows.get(edge.of)?.worst ?? "").toLowerCase()} />`)}
      </svg>
      <ul>${layout.nodes.map((node) => html`<${Node} key=${node.id} node=${node} row=${node.kind === "topics" ? undefined : rows.get(node.connector)} />`)}</ul>
      ${texts.map((mark) => html`<span key=${mark.key} class=${`mark ${mark.part}`} title=${`${mark.part === "in" ? "How far" : "How fast"}: ${mark.of}`}
          style=${{ left: `${mark.x}px`, top: `${mark.y}px`, width: `${mark.width}px` }}>${markText(mark, rows.get(mark.of), jobs?.get(mark.of))}</span>`)}
    </div>
  </div>`;
}

/** Rate and lag of the flows that are shown: only they know them. */
async function progressOf(names) {
  const found = await Promise.all(names.map((name) => call("GET", connectorPath(name, "/progress")).then((body) => [name, body], () => null)));
  return new Map(found.filter(Boolean).map(([name, body]) => {
    const tasks = body.tasks ?? [];
    const lags = tasks.map((task) => task.lag?.total ?? null);
    const rates = tasks.map((task) => task.batch?.rows_per_second ?? null);
    const sum = (list) => (list.length && list.every((each) => each !== null) ? list.reduce((a, b) => a + b) : null);
    return [name, { lag: sum(lags), rate: sum(rates) }];
  }));
}

function Pipeline({ places, rows, query }) {
  const q = query.get("q") ?? "";
  const found = useMemo(() => selected(places, rows, q), [places, rows, q]);
  const shown = found.slice(0, MOST);
  const flows = shown.filter((place) => place.kind === "flow").slice(0, 10).map((place) => place.name).sort();
  const [jobs] = useRepeated(() => progressOf(flows), [flows.join("\n")]);
  return html`<section>
    <div class="head"><h2 id="pipeline">Pipeline</h2>
      <label class="search"><span class="hidden">Show</span>
        <input type="search" placeholder="Show by connector, topic, source or target" value=${q}
          onInput=${(event) => go(placeHref(["overview"], { q: event.target.value }), true)} /></label>
    </div>
    ${found.length === 0
      ? html`<${Empty} title="Nothing fits"><${Button} onClick=${() => go("#/overview", true)}>Show all</${Button}></${Empty}>`
      : html`<${Graph} places=${shown} rows=${rows} jobs=${jobs} />
          <p class="muted" aria-live="polite">${found.length > MOST
            ? `${MOST} of ${counted(found.length, "connector")}: what is worst, then the fastest. Type what you look for, or see `
            : `${counted(found.length, "connector")}. Before a connector: how far it is behind; behind it: records per second.`}
            ${found.length > MOST && html`<a href="#/connectors">the table</a>`}</p>`}
  </section>`;
}

function since(ms) {
  return ms ? secondsText(Math.max(0, (Date.now() - ms) / 1000)) : "–";
}

function Workers({ workers }) {
  return html`<section><h2 id="workers">Workers</h2>
    <div class="table-box short" tabindex="0" role="region" aria-labelledby="workers"><table class="grid">
      <thead><tr><th scope="col">Worker</th><th scope="col" class="num">Hosts</th><th scope="col" class="num">Connectors</th><th scope="col" class="num">Tasks</th><th scope="col">Up for</th><th scope="col">Labels</th></tr></thead>
      <tbody>${workers.map((worker) => html`<tr key=${worker.worker_id}>
        <th scope="row" class="long">${worker.worker_id} ${worker.leader && html`<span class="required">leader</span>`}${worker.draining && html`<${Badge} state="PAUSED" title="It hands its work over" />`}</th>
        <td class="num">${worker.hosts}</td><td class="num">${worker.connectors}</td><td class="num">${worker.tasks}</td>
        <td>${since(worker.started_ms)}</td><td class="long">${Object.entries(worker.labels).map(([key, value]) => `${key}=${value}`).join(", ") || "–"}</td>
      </tr>`)}</tbody>
    </table></div>
  </section>`;
}

function Summary({ rows }) {
  const found = counts(rows);
  return html`<nav class="chips" aria-label="Connectors by state">
    <a class="chip" href="#/connectors">All <span class="count">${rows.size}</span></a>
    ${STATES.filter((state) => found[state]).map((state) => html`<a key=${state} class=${`chip ${state.toLowerCase()}`}
        href=${placeHref(["connectors"], { state })}>${state[0] + state.slice(1).toLowerCase()} <span class="count">${found[state]}</span></a>`)}
  </nav>`;
}

export function OverviewPage({ session, query }) {
  const [rows, live] = useRows();
  const [asked, setAsked] = useState(null);
  const size = rows?.size;
  const [pipeline, error, reload] = useRepeated(() => call("GET", "console/pipeline"), []);
  // A connector came or went: what is shown stays until the new pipeline is there.
  useEffect(() => {
    if (size !== undefined) reload();
  }, [size]);
  if (rows === null || (pipeline === undefined && !error)) {
    return html`<div class="page"><h1>Overview</h1>${live ? html`<p class="muted" aria-busy="true">One moment …</p>` : html`<${Away} />`}</div>`;
  }
  const creates = session.roles.some((role) => role.startsWith("admin"));
  return html`<div class="page">
    <div class="head"><h1>Overview</h1>${rows.size > 0 && html`<${Summary} rows=${rows} />`}</div>
    ${!live && html`<${Away} />`}
    ${error && live && html`<${Notice} tone="warning" title="The pipeline can't be shown now">${error.message}</${Notice}>`}
    ${rows.size === 0
      ? html`<${Empty} title="No connectors yet">
          <p>${creates ? "Here you will see where data come from, where they go, and what fails." : "There is none that you may see."}</p>
          ${creates && html`<a class="button primary" href="#/new">New connector</a>`}
        </${Empty}>`
      : html`<${Troubles} rows=${rows} onAction=${setAsked} />
          ${pipeline && html`<${Pipeline} places=${pipeline.connectors} rows=${rows} query=${query} />`}`}
    ${pipeline && html`<${Workers} workers=${pipeline.workers} />`}
    <${Calls} calls=${[curl("GET", "console/pipeline"), curl("GET", "console/connectors")]} />
    ${asked && html`<${ActionDialog} action=${RESTART} names=${[asked]} onClose=${() => setAsked(null)} />`}
  </div>`;
}
