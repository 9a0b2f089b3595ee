/** Verify: whether topics say what the tables of a connector hold. */
import { may } from "./actions.js";
import { call, connectorPath, curl } from "./api.js";
import { go, placeHref } from "./place.js";
import { Button, Calls, counted, Empty, html, Notice, secondsText, useEffect, useLoaded, useState } from "./ui.js";

const POLL_MS = 1000;
const KINDS = ["missing", "extra", "different", "unsettled"];
const MEANING = {
  missing: "rows that are not on the topic",
  extra: "rows that are only on the topic",
  different: "rows with other contents",
  unsettled: "rows that differ and have a later event: compare again when it is quieter",
};

/** Whether a connector's tables can be compared. */
export function canVerify(row) {
  return /(^|[.:])(mysqlconnector|mariadbconnector|mysql)$/i.test(row.class);
}

export function VerifyListPage() {
  const [rows, error] = useLoaded(async () => (await call("GET", "console/connectors")).filter(canVerify), []);
  return html`<div class="page">
    <div class="head"><h1>Verify</h1></div>
    ${error && html`<${Notice} title="The connectors can't be read">${error.message}</${Notice}>`}
    ${!rows && !error && html`<p class="muted">One moment …</p>`}
    ${rows?.length === 0 && html`<${Empty} title="Nothing to verify">Tables of MySQL and MariaDB connectors can be compared with their topics. There is no such connector.</${Empty}>`}
    ${rows?.length > 0 &&
    html`<ul class="cards">${rows.map(
      (row) => html`<li class="card split" key=${row.name}><div class="long"><strong>${row.name}</strong></div>
        ${may(row.role, "admin") ? html`<a class="button" href=${placeHref(["verify", row.name])}>Compare ${row.name}</a>` : html`<span class="muted">needs the role admin</span>`}</li>`,
    )}</ul>`}
    <${Calls} calls=${[curl("GET", "console/connectors")]} />
  </div>`;
}

function Table({ table }) {
  const bad = KINDS.filter((kind) => table[kind] > 0);
  return html`<section class="card" aria-label=${table.table}>
    <div class="split"><h2 class="long">${table.table}</h2><span class=${`badge ${table.equal ? "running" : "failed"}`}>${table.equal ? "equal" : "different"}</span></div>
    <p class="facts"><span>${counted(table.rows.source, "row")} in the source</span><span>${table.rows.topic.toLocaleString("en")} on ${table.topics.join(", ") || "no topic"}</span></p>
    ${table.note && html`<p class="muted">${table.note}</p>`}
    ${bad.map(
      (kind) => html`<details key=${kind} open><summary><strong>${table[kind]} ${kind}</strong>: ${MEANING[kind]}</summary>
        ${table.examples[kind]?.length > 0 &&
        html`<ul class="names" tabindex="0" aria-label=${`Keys of ${kind} rows`}>${table.examples[kind].map((key) => html`<li key=${key}><code>${key}</code></li>`)}</ul>
          ${table.examples[kind].length < table[kind] && html`<p class="muted">${table.examples[kind].length} of ${table[kind]} keys are shown.</p>`}`}</details>`,
    )}
    ${table.older_structure > 0 && html`<p class="muted">${counted(table.older_structure, "row")} sent before a column came or went: compared on the columns that both have.</p>`}
    ${table.key_ranges.length > 0 && html`<p class="muted">They are in these ranges of the first key column: ${table.key_ranges.map(([from, to]) => `${from} to ${to}`).join(", ")}</p>`}
  </section>`;
}

/** The text of a table's name as an expression that fits it alone. */
function exactly(table) {
  return table.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

function Run({ run, onAgain }) {
  if (run.state === "running") {
    return html`<div class="card" role="status" aria-busy="true"><strong>Comparing …</strong><p class="muted long">${run.progress || "It begins."}</p></div>`;
  }
  if (run.state === "cancelled") return html`<${Empty} title="It was cancelled">Nothing was compared to its end.</${Empty}>`;
  if (run.state === "failed") return html`<${Notice} title="It could not be compared">${run.error}</${Notice}>`;
  const { result } = run;
  const different = result.tables.filter((table) => !table.equal);
  return html`<p role="status">${result.equal ? "All tables are equal" : `${different.length} of ${counted(result.tables.length, "table")} ${different.length === 1 ? "differs" : "differ"}`}, compared in ${secondsText((run.ended_ms - run.started_ms) / 1000)} at ${new Date(run.ended_ms).toLocaleTimeString()}.
      ${different.length > 0 && html` <${Button} kind="small" onClick=${() => onAgain(different.map((table) => exactly(table.table)).join("|"))}>Compare these again</${Button}>`}</p>
    ${result.notes.length > 0 && html`<${Notice} tone="warning">${result.notes.join("\n")}</${Notice}>`}
    ${result.tables.length === 0 && html`<${Empty} title="No table fits">The connector captures no table of this name.</${Empty}>`}
    <div class="cards">${[...result.tables].sort((a, b) => Number(a.equal) - Number(b.equal)).map((table) => html`<${Table} key=${table.table} table=${table} />`)}</div>`;
}

export function VerifyPage({ name }) {
  const path = connectorPath(name, "/verify");
  const [run, error, reload] = useLoaded(() => call("GET", path), [name]);
  const [tables, setTables] = useState("");
  const [failure, setFailure] = useState("");
  const running = run?.state === "running";
  useEffect(() => {
    if (!running) return undefined;
    const timer = setInterval(reload, POLL_MS);
    return () => clearInterval(timer);
  }, [running]);
  const act = async (method, body) => {
    try {
      await call(method, path, body);
      setFailure("");
    } catch (problem) {
      setFailure(problem.message);
    }
    await reload();
  };
  const start = (wanted) => {
    setTables(wanted);
    act("POST", { tables: wanted });
  };
  const first = error?.status === 404;
  return html`<div class="page">
    <p class="crumbs"><a href="#/verify">Verify</a> / <a href=${placeHref(["connectors", name])}>${name}</a></p>
    <div class="head"><h1 class="long">Verify ${name}</h1></div>
    <form class="filters" onSubmit=${(event) => {
      event.preventDefault();
      start(tables);
    }}>
      <label class="search"><span class="hidden">Tables</span><input placeholder="All tables, or an expression: shop\\.orders" spellcheck=${false} value=${tables} onInput=${(event) => setTables(event.target.value)} /></label>
      <${Button} kind="primary" type="submit" disabled=${running}>Compare now</${Button}>
      ${running && html`<${Button} onClick=${() => act("DELETE")}>Cancel</${Button}>`}
    </form>
    ${failure && html`<${Notice} title="It was refused">${failure}</${Notice}>`}
    ${error && !first && html`<${Notice} title="The result can't be read">${error.message}</${Notice}>`}
    ${first && html`<${Empty} title="Not compared yet"><p>The tables are read in one view, and the topics up to its place. Nothing is written.</p></${Empty}>`}
    ${run && html`<${Run} run=${run} onAgain=${start} />`}
    <p><${Button} kind="small" onClick=${() => go(placeHref(["connectors", name, "snapshots"]))}>Snapshots of the connector</${Button}></p>
    <${Calls} calls=${[curl("POST", path, { tables }), curl("GET", path)]} />
  </div>`;
}
