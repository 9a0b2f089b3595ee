/** Verify: whether topics say what the tables of a connector hold. */
import { may } from "./actions.js";
import { call, connectorPath, curl } from "./api.js";
import { go, placeHref } from "./place.js";
import { Button, Calls, counted, Dialog, Empty, html, Notice, secondsText, useEffect, useLoaded, useState } from "./ui.js";

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
  return /(^|[.:])(mysqlconnector|mariadbconnector|mysql|scyllaconnector|scylla|cassandra[45]?connector|cassandra)$/i.test(row.class);
}

export function VerifyListPage() {
  const [rows, error] = useLoaded(async () => (await call("GET", "console/connectors")).filter(canVerify), []);
  return html`<div class="page">
    <div class="head"><h1>Verify</h1></div>
    ${error && html`<${Notice} title="The connectors can't be read">${error.message}</${Notice}>`}
    ${!rows && !error && html`<p class="muted">One moment …</p>`}
    ${rows?.length === 0 && html`<${Empty} title="Nothing to verify">Tables of MySQL, MariaDB, Scylla and Cassandra connectors can be compared with their topics. There is no such connector.</${Empty}>`}
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

function Cards({ tables }) {
  return html`<div class="cards">${[...tables].sort((a, b) => Number(a.equal) - Number(b.equal)).map((table) => html`<${Table} key=${table.table} table=${table} />`)}</div>`;
}

/** Asks before rows are sent again, and says what that is. */
function RepairDialog({ name, tables, onClose }) {
  const path = connectorPath(name, "/verify/repair");
  const [state, setState] = useState(/** @type {{ busy?: boolean, error?: string, snapshot?: any }} */ ({}));
  const send = async () => {
    setState({ busy: true });
    try {
      setState({ snapshot: await call("POST", path) });
    } catch (problem) {
      setState({ error: problem.message });
    }
  };
  const parts = tables.map((table) => `${table.table} (${table.condition ? counted(table.missing + table.different, "row") : "the whole table"})`);
  return html`<${Dialog} title="Send rows again" onClose=${onClose}>
    ${state.snapshot
      ? html`<p role="status">The snapshot ${state.snapshot.id} sends them. Compare again when it has ended.</p>`
      : html`<p class="long">A snapshot reads from the source and sends again: ${parts.join(", ")}. Every reader of the topics gets these rows once more. Rows that are only on a topic stay there.</p>`}
    ${state.error && html`<${Notice} title="It was refused">${state.error}</${Notice}>`}
    <${Calls} calls=${[curl("POST", path)]} open />
    <div class="dialog-actions">${state.snapshot
      ? html`<${Button} onClick=${() => go(placeHref(["connectors", name, "snapshots"]))}>Watch the snapshot</${Button}><${Button} kind="primary" onClick=${onClose}>Done</${Button}>`
      : html`<${Button} onClick=${onClose}>Cancel</${Button}><${Button} kind="primary" busy=${state.busy} onClick=${send}>Send again</${Button}>`}</div>
  </${Dialog}>`;
}

/** Tables with rows that a snapshot can send again. */
function repairable(tables) {
  return tables.filter((table) => table.condition !== null && table.missing + table.different > 0);
}

function Run({ name, run, onAgain }) {
  const [repairing, setRepairing] = useState(false);
  if (run.state === "running") {
    const done = run.result?.tables ?? [];
    return html`<div class="card" role="status" aria-busy="true"><strong>Comparing …${run.tables_total > 0 ? ` ${done.length} of ${counted(run.tables_total, "table")}` : ""}</strong><p class="muted long">${run.progress || "It begins."}</p></div>
      ${done.length > 0 && html`<${Cards} tables=${done} />`}`;
  }
  if (run.state === "scheduled") return html`<${Empty} title="Not compared yet">The first comparison is scheduled.</${Empty}>`;
  if (run.state === "cancelled") return html`<${Empty} title="It was cancelled">Nothing was compared to its end.</${Empty}>`;
  if (run.state === "failed") return html`<${Notice} title="It could not be compared">${run.error}</${Notice}>`;
  const { result } = run;
  const fixable = repairable(result.tables);
  const different = result.tables.filter((table) => !table.equal);
  return html`<p role="status">${result.equal ? "All tables are equal" : `${different.length} of ${counted(result.tables.length, "table")} ${different.length === 1 ? "differs" : "differ"}`}, compared in ${secondsText((run.ended_ms - run.started_ms) / 1000)} at ${new Date(run.ended_ms).toLocaleTimeString()}.
      ${different.length > 0 && html` <${Button} kind="small" onClick=${() => onAgain(different.map((table) => exactly(table.table)).join("|"))}>Compare these again</${Button}>`}
      ${fixable.length > 0 && html` <${Button} kind="small" onClick=${() => setRepairing(true)}>Send rows again …</${Button}>`}</p>
    ${run.repair && html`<p class="muted">The snapshot <a href=${placeHref(["connectors", name, "snapshots"])}>${run.repair}</a> was asked to send the rows again.</p>`}
    ${repairing && html`<${RepairDialog} name=${name} tables=${fixable} onClose=${() => setRepairing(false)} />`}
    ${result.notes.length > 0 && html`<${Notice} tone="warning">${result.notes.join("\n")}</${Notice}>`}
    ${result.tables.length === 0 && html`<${Empty} title="No table fits">The connector captures no table of this name.</${Empty}>`}
    <${Cards} tables=${result.tables} />`;
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
    ${first && html`<${Empty} title="Not compared yet"><p>The tables are compared with what the topics say, while both may change. Nothing is written.</p></${Empty}>`}
    ${run && html`<${Run} name=${name} run=${run} onAgain=${start} />`}
    <p class="muted">${run?.next_ms ? `The next one starts at ${new Date(run.next_ms).toLocaleString()}.` : run && !running ? "No further one is scheduled." : ""} <a href=${placeHref(["connectors", name, "edit"])}>Schedule with verify.interval.ms</a></p>
    <p><${Button} kind="small" onClick=${() => go(placeHref(["connectors", name, "snapshots"]))}>Snapshots of the connector</${Button}></p>
    <${Calls} calls=${[curl("POST", path, { tables }), curl("GET", path)]} />
  </div>`;
}
