/** The tables that a source captures, with their versions. */
import { call, connectorPath, curl } from "./api.js";
import { Calls, counted, Empty, html, Notice, useEffect, useLoaded, useState } from "./ui.js";

const MOST = 500;
const AGAIN_MS = 10000;

/** Null where the connector has no tables (400), which is no failure. */
async function ifTold(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.status === 400) return null;
    throw error;
  }
}

function shown(value) {
  return value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function TablesTab({ name }) {
  const [tables, error, reload] = useLoaded(() => ifTold(call("GET", connectorPath(name, "/tables"))), [name]);
  const [q, setQ] = useState("");
  useEffect(() => {
    if (!tables) return undefined;
    const timer = setTimeout(reload, AGAIN_MS);
    return () => clearTimeout(timer);
  }, [tables, error, reload]);
  const calls = html`<${Calls} calls=${[curl("GET", connectorPath(name, "/tables"))]} />`;
  if (error && !tables) return html`<${Notice} title="The tables can't be listed now">${error.message}</${Notice}>${calls}`;
  if (tables === undefined) return html`<p class="muted" aria-busy="true">One moment …</p>`;
  if (tables === null) return html`<${Empty} title="No tables">A connector of this kind has none, or does not tell.</${Empty}>${calls}`;
  if (tables.length === 0) return html`<${Empty} title="No tables yet">There is no table that its configuration chooses, or it has not read one of them.</${Empty}>${calls}`;
  const more = [...new Set(tables.flatMap((table) => Object.keys(table)))].filter((key) => key !== "table" && key !== "version").slice(0, 4);
  const found = tables.filter((table) => table.table.toLowerCase().includes(q.toLowerCase()));
  return html`<div class="filters"><label class="search"><span class="hidden">Filter</span>
      <input type="search" placeholder="Filter by table" value=${q} onInput=${(event) => setQ(event.target.value)} /></label></div>
    <div class="table-box short" tabindex="0" role="region" aria-label="List of tables"><table class="grid">
      <thead><tr><th scope="col">Table</th><th scope="col">Version</th>${more.map((key) => html`<th key=${key} scope="col">${key.replaceAll("_", " ")}</th>`)}</tr></thead>
      <tbody>${found.slice(0, MOST).map((table) => html`<tr key=${table.table}><th scope="row" class="long">${table.table}</th><td>${shown(table.version)}</td>
        ${more.map((key) => html`<td key=${key} class="long">${shown(table[key])}</td>`)}</tr>`)}</tbody></table></div>
    <p class="muted" aria-live="polite">${found.length > MOST ? `${MOST} of ` : ""}${counted(found.length, "table")}. The version grows with each change of a table's columns.</p>
    ${calls}`;
}
