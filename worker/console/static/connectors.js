/** All connectors: filter, order, many at once. The filter is in the address, so that it can be sent to somebody. */
import { ActionDialog, knownActions, may } from "./actions.js";
import { call, curl, listen, server } from "./api.js";
import { go, placeHref } from "./place.js";
import { applied, chosen, COLUMNS, counts } from "./rows.js";
import { Badge, Button, Calls, counted, Empty, html, Notice, rateText, secondsText, STATES } from "./ui.js";
import { useEffect, useLayoutEffect, useLoaded, useMemo, useRef, useState } from "./ui.js";

const ROW = 60; // pixels of a row, as in the style sheet
const SPARE = 8; // rows above and below what is seen

/** The rows of the stream: [rows or null, whether it is live]. */
export function useRows() {
  const [rows, setRows] = useState(null);
  const [live, setLive] = useState(true);
  useEffect(() => listen("", { rows: (event) => setRows((before) => applied(before ?? new Map(), event)) }, setLive), []);
  return [rows, live];
}

function Sortable({ id, label, query, set, number = false }) {
  const sort = query.get("sort") ?? "state";
  const down = query.get("down") === "1";
  const active = sort === id;
  const next = active ? { sort: id, down: down ? "" : "1" } : { sort: id, down: number ? "1" : "" };
  return html`<th scope="col" class=${`c-${id}`} aria-sort=${active ? (down ? "descending" : "ascending") : "none"}>
    <button type="button" onClick=${() => set(next)}>
      ${label}<span class="arrow" aria-hidden="true">${active ? (down ? "↓" : "↑") : ""}</span>
    </button>
  </th>`;
}

function TaskBar({ row }) {
  if (row.total === 0) return html`<span class="muted">none</span>`;
  return html`<span class="tasks-text">${row.running} / ${row.total}</span>
    <span class="bar" aria-hidden="true">
      ${STATES.filter((state) => row.tasks[state]).map(
        (state) => html`<i key=${state} class=${state.toLowerCase()} style=${{ flexGrow: String(row.tasks[state]) }}></i>`,
      )}
    </span>`;
}

function Row({ row, index, picked, onPick }) {
  return html`<tr aria-rowindex=${index + 2} class=${picked ? "picked" : ""}>
    <td class="c-pick"><input type="checkbox" checked=${picked} onChange=${onPick} aria-label=${`Choose ${row.name}`} /></td>
    <td class="c-name">
      <a href=${placeHref(["connectors", row.name])} title=${row.name}>${row.name}</a>
      ${row.error
        ? html`<span class="sub error-text" title=${row.error}>${row.error}</span>`
        : html`<span class="sub" title=${row.class}>${row.short} · ${row.type}</span>`}
    </td>
    <td class="c-state"><${Badge} state=${row.worst} /></td>
    <td class="c-tasks"><${TaskBar} row=${row} /></td>
    <td class="c-rate num">${rateText(row.rate)}</td>
    <td class="c-lag num">${secondsText(row.lag_s)}</td>
    <td class="c-worker" title=${row.workers.join(", ")}>
      ${row.workers.length > 1 ? counted(row.workers.length, "worker") : (row.workers[0] ?? "–")}
    </td>
  </tr>`;
}

function Table({ rows, query, set, picked, setPicked }) {
  const box = useRef(null);
  const [seen, setSeen] = useState({ top: 0, height: 900 });
  const look = () => {
    if (box.current === null) return;
    const { scrollTop, clientHeight } = box.current;
    setSeen((before) =>
      before.top === scrollTop && before.height === clientHeight ? before : { top: scrollTop, height: clientHeight },
    );
  };
  useLayoutEffect(() => {
    look();
    const watch = new ResizeObserver(look);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(look, [rows]);
  const first = Math.max(0, Math.min(Math.floor(seen.top / ROW) - SPARE, rows.length - 1));
  const last = Math.min(rows.length, Math.ceil((seen.top + seen.height) / ROW) + SPARE);
  const all = rows.length > 0 && rows.every((row) => picked.has(row.name));
  const pickAll = () => setPicked(all ? new Set() : new Set(rows.map((row) => row.name)));
  const pick = (name) => {
    const next = new Set(picked);
    if (!next.delete(name)) next.add(name);
    setPicked(next);
  };
  const space = (count) => html`<tr class="space" aria-hidden="true"><td colspan="7" style=${{ height: `${count * ROW}px` }}></td></tr>`;
  return html`<div class="table-box" ref=${box} onScroll=${look} tabindex="0" role="region" aria-label="Connectors">
    <table class="rows" aria-rowcount=${rows.length + 1}>
      <thead>
        <tr aria-rowindex="1">
          <th class="c-pick" scope="col">
            <input type="checkbox" checked=${all} onChange=${pickAll} aria-label=${`Choose all ${rows.length} that are listed`} />
          </th>
          <${Sortable} id="name" label="Name" query=${query} set=${set} />
          <${Sortable} id="state" label="State" query=${query} set=${set} />
          <${Sortable} id="tasks" label="Tasks running" query=${query} set=${set} number />
          <${Sortable} id="rate" label="Records" query=${query} set=${set} number />
          <${Sortable} id="lag" label="Behind" query=${query} set=${set} number />
          <th scope="col" class="c-worker">Worker</th>
        </tr>
      </thead>
      <tbody>
        ${first > 0 && space(first)}
        ${rows.slice(first, last).map(
          (row, offset) =>
            html`<${Row} key=${row.name} row=${row} index=${first + offset} picked=${picked.has(row.name)} onPick=${() => pick(row.name)} />`,
        )}
        ${last < rows.length && space(rows.length - last)}
      </tbody>
    </table>
  </div>`;
}

function States({ rows, query, set }) {
  const found = useMemo(() => counts(rows), [rows]);
  const state = query.get("state") ?? "";
  const chip = (id, label, count) => html`<button
    type="button"
    key=${id}
    class=${`chip ${id.toLowerCase()}`}
    aria-pressed=${state === id}
    onClick=${() => set({ state: state === id ? "" : id })}
  >
    ${label} <span class="count">${count}</span>
  </button>`;
  return html`<div class="chips" role="group" aria-label="State">
    ${chip("", "All", rows.size)}
    ${STATES.filter((each) => found[each] || state === each).map((each) =>
      chip(each, each[0] + each.slice(1).toLowerCase(), found[each]),
    )}
  </div>`;
}

function Bulk({ rows, picked, onAction, onClear }) {
  const names = rows.filter((row) => picked.has(row.name));
  return html`<div class="bulk" role="group" aria-label="With those that are chosen">
    <strong aria-live="polite">${names.length} chosen</strong>
    ${knownActions().map((action) => {
      const allowed = names.filter((row) => may(row.role, action.role));
      const useful = allowed.filter((row) => !action.idle.includes(row.worst));
      if (allowed.length === 0) return null;
      return html`<${Button}
        key=${action.id}
        kind=${action.danger ? "danger-plain" : "plain"}
        disabled=${useful.length === 0}
        onClick=${() => onAction({ action, names: useful.map((row) => row.name) })}
        >${action.label}</${Button}
      >`;
    })}
    <${Button} kind="small" onClick=${onClear}>Choose none</${Button}>
  </div>`;
}

export function ConnectorsPage({ session, query }) {
  const [rows, live] = useRows();
  const [picked, setPicked] = useState(new Set());
  const [asked, setAsked] = useState(null);
  const search = useRef(null);
  const now = Object.fromEntries(query);
  const set = (change) => go(placeHref(["connectors"], { ...now, ...change }), true);
  const listed = useMemo(
    () => (rows ? chosen(rows, { ...now, down: now.down === "1", sort: COLUMNS.includes(now.sort) ? now.sort : "state" }) : []),
    [rows, query],
  );
  const chosenNow = useMemo(() => listed.filter((row) => picked.has(row.name)), [listed, picked]);
  useEffect(() => {
    const slash = (event) => {
      if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && !document.querySelector("dialog[open]")) {
        event.preventDefault();
        search.current?.focus();
      }
    };
    addEventListener("keydown", slash);
    return () => removeEventListener("keydown", slash);
  }, []);

  // Somebody else has deleted what was asked about.
  const moot = asked !== null && rows !== null && !asked.names.some((name) => rows.has(name));
  useEffect(() => {
    if (moot) setAsked(null);
  }, [moot]);

  const creates = session.roles.some((role) => role.startsWith("admin"));
  const add = creates && html`<a class="button primary" href="#/new">New connector</a>`;
  if (rows === null) {
    return html`<div class="page"><h1>Connectors</h1>
      ${live ? html`<p class="muted" aria-busy="true">One moment …</p>` : html`<${Away} />`}</div>`;
  }
  if (rows.size === 0) {
    return html`<div class="page"><div class="head"><h1>Connectors</h1></div>
      <${Empty} title="No connectors yet">
        <p>${creates ? "A connector reads a database or a log into Kafka, or writes topics elsewhere." : "There is none that you may see."}</p>
        ${add}
      </${Empty}></div>`;
  }
  return html`<div class="page fill">
    <div class="head"><h1>Connectors</h1>${add}</div>
    ${!live && html`<${Away} />`}
    <div class="filters">
      <label class="search"><span class="hidden">Filter</span>
        <input ref=${search} type="search" placeholder="Filter by name, class, worker or error" value=${now.q ?? ""}
          onInput=${(event) => set({ q: event.target.value })} />
        <kbd aria-hidden="true">/</kbd>
      </label>
      <${States} rows=${rows} query=${query} set=${set} />
      <label class="pick-type"><span class="hidden">Type</span>
        <select value=${now.type ?? ""} onChange=${(event) => set({ type: event.target.value })}>
          <option value="">Sources and sinks</option><option value="source">Sources</option><option value="sink">Sinks</option>
        </select>
      </label>
    </div>
    ${chosenNow.length > 0 && html`<${Bulk} rows=${listed} picked=${picked} onAction=${setAsked} onClear=${() => setPicked(new Set())} />`}
    ${listed.length === 0
      ? html`<${Empty} title="Nothing fits the filter">
          <${Button} onClick=${() => go("#/connectors", true)}>Show all ${rows.size}</${Button}>
        </${Empty}>`
      : html`<${Table} rows=${listed} query=${query} set=${set} picked=${picked} setPicked=${setPicked} />`}
    <div class="foot">
      <span class="muted" aria-live="polite">${listed.length === rows.size ? counted(rows.size, "connector") : `${listed.length} of ${counted(rows.size, "connector")}`}</span>
      <${Calls} calls=${[curl("GET", "console/connectors"), curl("GET", "connectors?expand=status&expand=info")]} />
    </div>
    ${asked && html`<${ActionDialog} ...${asked} onClose=${(acted) => {
      setAsked(null);
      if (acted) setPicked(new Set());
    }} />`}
  </div>`;
}

/** Says that what is shown may be old, and why. */
export function Away() {
  const [session] = useLoaded(() => call("GET", "console/session"), []);
  const why = session?.trouble ? html`<p>${session.trouble}</p>` : "";
  return html`<${Notice} tone="warning" title=${session?.trouble ? "The connectors can't be read" : `The ${server()} does not answer`}>${why}What is shown may be old. The page tries again by itself.</${Notice}>`;
}
