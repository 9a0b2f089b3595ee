/** Verify: whether topics say what the tables of a connector hold. */
import { may } from "./actions.js";
import { call, connectorPath, curl } from "./api.js";
import { go, placeHref } from "./place.js";
import { Button, Calls, counted, Dialog, Empty, html, Notice, secondsText, useEffect, useLoaded, useState } from "./ui.js";

const POLL_MS = 1000;
const KINDS = ["missing", "extra", "different", "unsettled"];
/** What is compared: of a source its tables with topics, of a flow topics with its target. */
const SIDES = { source: ["source", "topic"], flow: ["topic", "target"] };
const FLOW = /^(spark|(.*[.:])?SparkJob)$/i;
/** Begins the note that says so of a flow; the page has its own words. */
const FLOW_NOTE = '"source" is the topic here';

function meaning(kind, sides) {
  return {
    missing: `rows that are not ${at(sides[1])}`,
    extra: `rows that are only ${at(sides[1])}`,
    different: "rows with other contents",
    unsettled: "rows that differ and have a later event: compare again when it is quieter",
  }[kind];
}

function at(side) {
  return side === "topic" ? "on the topic" : `in the ${side}`;
}

function titled(word) {
  return word[0].toUpperCase() + word.slice(1);
}

/** Whether a connector's tables can be compared. */
export function canVerify(row) {
  return /(^|[.:])(mysqlconnector|mariadbconnector|mysql|scyllaconnector|scylla|cassandra[45]?connector|cassandra)$/i.test(row.class);
}

/** Whether a place is a flow with a target; one that can't be read back is refused with the reason. */
function isFlowWithTarget(place) {
  return place.kind === "flow" && place.targets.length > 0;
}

/** Connectors whose tables can be compared with their topics, and flows whose topics can be with their target. */
async function comparable() {
  const [rows, pipeline] = await Promise.all([call("GET", "console/connectors"), call("GET", "console/pipeline")]);
  const flows = new Set(pipeline.connectors.filter(isFlowWithTarget).map((place) => place.name));
  return rows.map((row) => ({ ...row, flow: flows.has(row.name) })).filter((row) => row.flow || canVerify(row));
}

export function VerifyListPage() {
  const [rows, error] = useLoaded(comparable, []);
  return html`<div class="page">
    <div class="head"><h1>Verify</h1></div>
    ${error && html`<${Notice} title="The connectors can't be read">${error.message}</${Notice}>`}
    ${!rows && !error && html`<p class="muted">One moment …</p>`}
    ${rows?.length === 0 && html`<${Empty} title="Nothing to verify">Tables of MySQL, MariaDB, Scylla and Cassandra connectors can be compared with their topics, and topics of flows with their target. There is no such connector.</${Empty}>`}
    ${rows?.length > 0 &&
    html`<ul class="cards">${rows.map(
      (row) => html`<li class="card split" key=${row.name}><div class="long"><strong>${row.name}</strong><div class="muted">${row.flow ? "topics with its target" : "tables with its topics"}</div></div>
        ${may(row.role, "admin") ? html`<a class="button" href=${placeHref(["verify", row.name])}>Compare ${row.name}</a>` : html`<span class="muted">needs the role admin</span>`}</li>`,
    )}</ul>`}
    <${Calls} calls=${[curl("GET", "console/connectors"), curl("GET", "console/pipeline")]} />
  </div>`;
}

/** What one side says of a column; `nothing` where it says nothing. */
function Value({ side, name, nothing }) {
  const text = side?.[name];
  return html`<td>${text === undefined ? html`<span class="muted">${nothing}</span>` : html`<code class="long">${text}</code>`}</td>`;
}

/** Rows that differ, column by column, with what both sides say. */
function Differences({ kind, rows, sides }) {
  const columns = (row) => Object.keys({ ...row.source, ...row.topic });
  return html`<div class="table-box short scroll differences" tabindex="0" role="region" aria-label=${`Rows that are ${kind}`}><table class="grid">
    <thead><tr><th scope="col">Row</th><th scope="col">Column</th>${sides.map((side) => html`<th key=${side} scope="col">${titled(side)}</th>`)}</tr></thead>
    ${rows.map((row) => {
      const names = columns(row);
      const lines = names.length + (row.columns_left_out > 0 ? 1 : 0);
      const key = html`<th scope="rowgroup" rowspan=${lines}><code class="long">${row.key}</code></th>`;
      return html`<tbody key=${row.key}>${names.map(
        (name, number) => html`<tr key=${name}>${number === 0 && key}<td class="long">${name}</td>
          <${Value} side=${row.source} name=${name} nothing=${row.source ? "no value" : "no row"} /><${Value} side=${row.topic} name=${name} nothing=${row.topic ? "no value" : "no row"} /></tr>`,
      )}${row.columns_left_out > 0 && html`<tr><td class="muted" colspan="3">and ${counted(row.columns_left_out, "further column")}</td></tr>`}</tbody>`;
    })}</table></div>`;
}

/** The rows of one kind of difference: some with their values, others by their keys. */
function Kind({ table, kind, sides }) {
  const rows = (table.differences ?? []).filter((row) => row.kind === kind && Object.keys({ ...row.source, ...row.topic }).length > 0);
  const shown = new Set(rows.map((row) => row.key));
  const keys = table.examples[kind] ?? [];
  const others = keys.filter((key) => !shown.has(key));
  return html`<details open><summary><strong>${table[kind]} ${kind}</strong>: ${meaning(kind, sides)}</summary>
    ${rows.length > 0 && html`<${Differences} kind=${kind} rows=${rows} sides=${sides} />`}
    ${others.length > 0 && html`${rows.length > 0 && html`<p class="muted">Further rows, by their keys:</p>`}
      <ul class="names" tabindex="0" aria-label=${`Keys of ${kind} rows`}>${others.map((key) => html`<li key=${key}><code>${key}</code></li>`)}</ul>`}
    ${keys.length > 0 && keys.length < table[kind] && html`<p class="muted">${keys.length} of ${table[kind]} rows are shown.</p>`}</details>`;
}

function Table({ table, sides }) {
  const bad = KINDS.filter((kind) => table[kind] > 0);
  return html`<section class="card" aria-label=${table.table}>
    <div class="split"><h2 class="long">${table.table}</h2><span class=${`badge ${table.equal ? "running" : "failed"}`}>${table.equal ? "equal" : "different"}</span></div>
    <p class="facts"><span>${counted(table.rows.source, "row")} ${at(sides[0])}</span><span>${table.rows.topic.toLocaleString("en")} ${sides[1] === "topic" ? "on" : "in"} ${table.topics.join(", ") || `no ${sides[1]}`}</span></p>
    ${table.note && html`<p class="muted">${table.note}</p>`}
    ${bad.map((kind) => html`<${Kind} key=${kind} table=${table} kind=${kind} sides=${sides} />`)}
    ${table.older_structure > 0 && html`<p class="muted">${counted(table.older_structure, "row")} sent before a column came or went: compared on the columns that both have.</p>`}
    ${table.key_ranges.length > 0 && html`<p class="muted">They are in these ranges of the first key column: ${table.key_ranges.map(([from, to]) => `${from} to ${to}`).join(", ")}</p>`}
  </section>`;
}

/** The text of a table's name as an expression that fits it alone. */
function exactly(table) {
  return table.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

function Cards({ tables, sides }) {
  return html`<div class="cards">${[...tables].sort((a, b) => Number(a.equal) - Number(b.equal)).map((table) => html`<${Table} key=${table.table} table=${table} sides=${sides} />`)}</div>`;
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
      ? html`<p role="status">The snapshot ${state.snapshot.id} of ${state.snapshot.connector} sends them. Compare again when it has ended.</p>`
      : html`<p class="long">A snapshot reads from the source and sends again: ${parts.join(", ")}. Every reader of the topics gets these rows once more. Rows that the source does not have stay where they are.</p>`}
    ${state.error && html`<${Notice} title="It was refused">${state.error}</${Notice}>`}
    <${Calls} calls=${[curl("POST", path)]} open />
    <div class="dialog-actions">${state.snapshot
      ? html`<${Button} onClick=${() => go(placeHref(["connectors", state.snapshot.connector, "snapshots"]))}>Watch the snapshot</${Button}><${Button} kind="primary" onClick=${onClose}>Done</${Button}>`
      : html`<${Button} onClick=${onClose}>Cancel</${Button}><${Button} kind="primary" busy=${state.busy} onClick=${send}>Send again</${Button}>`}</div>
  </${Dialog}>`;
}

/** Tables with rows that a snapshot can send again. */
function repairable(tables) {
  return tables.filter((table) => table.condition !== null && table.missing + table.different > 0);
}

function Run({ name, run, sides, onAgain }) {
  const [repairing, setRepairing] = useState(false);
  if (run.state === "running") {
    const done = run.result?.tables ?? [];
    return html`<div class="card" role="status" aria-busy="true"><strong>Comparing …${run.tables_total > 0 ? ` ${done.length} of ${counted(run.tables_total, "table")}` : ""}</strong><p class="muted long">${run.progress || "It begins."}</p></div>
      ${done.length > 0 && html`<${Cards} tables=${done} sides=${sides} />`}`;
  }
  if (run.state === "scheduled") return html`<${Empty} title="Not compared yet">The first comparison is scheduled.</${Empty}>`;
  if (run.state === "cancelled") return html`<${Empty} title="It was cancelled">Nothing was compared to its end.</${Empty}>`;
  if (run.state === "failed") return html`<${Notice} title="It could not be compared">${run.error}</${Notice}>`;
  const { result } = run;
  const notes = result.notes.filter((note) => !note.startsWith(FLOW_NOTE));
  const fixable = repairable(result.tables);
  const different = result.tables.filter((table) => !table.equal);
  return html`<p role="status">${result.equal ? "All tables are equal" : `${different.length} of ${counted(result.tables.length, "table")} ${different.length === 1 ? "differs" : "differ"}`}, compared in ${secondsText((run.ended_ms - run.started_ms) / 1000)} at ${new Date(run.ended_ms).toLocaleTimeString()}.
      ${different.length > 0 && html` <${Button} kind="small" onClick=${() => onAgain(different.map((table) => exactly(table.table)).join("|"))}>Compare these again</${Button}>`}
      ${fixable.length > 0 && html` <${Button} kind="small" onClick=${() => setRepairing(true)}>Send rows again …</${Button}>`}</p>
    ${run.repair && html`<p class="muted">The snapshot <a href=${placeHref(["connectors", run.repair_connector ?? name, "snapshots"])}>${run.repair}</a> was asked to send the rows again.</p>`}
    ${run.error && html`<${Notice}>${run.error}</${Notice}>`}
    ${repairing && html`<${RepairDialog} name=${name} tables=${fixable} onClose=${() => setRepairing(false)} />`}
    ${notes.length > 0 && html`<${Notice} tone="warning">${notes.join("\n")}</${Notice}>`}
    ${result.tables.length === 0 && html`<${Empty} title="No table fits">The connector captures no table of this name.</${Empty}>`}
    <${Cards} tables=${result.tables} sides=${sides} />`;
}

export function VerifyPage({ name }) {
  const path = connectorPath(name, "/verify");
  const [run, error, reload] = useLoaded(() => call("GET", path), [name]);
  const [tables, setTables] = useState("");
  const [failure, setFailure] = useState("");
  const [config] = useLoaded(() => call("GET", `console/${connectorPath(name, "/config")}`), [name]);
  const flow = FLOW.test(config?.["connector.class"] ?? "");
  const sides = flow ? SIDES.flow : SIDES.source;
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
    ${first && html`<${Empty} title="Not compared yet"><p>${flow ? "What the topics say is compared with the tables of the target" : "The tables are compared with what the topics say"}, while both may change. Nothing is written.</p></${Empty}>`}
    ${run && html`<${Run} name=${name} run=${run} sides=${sides} onAgain=${start} />`}
    ${!flow && html`<p class="muted">${run?.next_ms ? `The next one starts at ${new Date(run.next_ms).toLocaleString()}.` : run && !running ? "No further one is scheduled." : ""} <a href=${placeHref(["connectors", name, "edit"])}>Schedule with verify.interval.ms</a></p>`}
    ${!flow && html`<p><${Button} kind="small" onClick=${() => go(placeHref(["connectors", name, "snapshots"]))}>Snapshots of the connector</${Button}></p>`}
    <${Calls} calls=${[curl("POST", path, { tables }), curl("GET", path)]} />
  </div>`;
}
