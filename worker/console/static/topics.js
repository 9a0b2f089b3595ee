/** Topics: which there are, and their newest records. */
import { call, curl } from "./api.js";
import { exact, shownExactly } from "./exact.js";
import { go, placeHref } from "./place.js";
import { Button, Calls, Copy, counted, Empty, html, Notice, useEffect, useLayoutEffect, useLoaded, useMemo, useRef, useState } from "./ui.js";

const LIMIT = 50;
const FORMS = [["auto", "As written"], ["json", "JSON"], ["text", "Text"], ["bytes", "Bytes"]];
const EXAMPLES = ["value.op == 'd'", "value.after.id == 42", "key.id > 100", "headers.exists(h, h.key == 'tenant')"];
const NUMBER = (value) => value.toLocaleString("en");

/** A time as it is read in a list. */
export function timeText(ms) {
  return ms < 0 ? "no time" : new Date(ms).toISOString().replace("T", " ").replace("Z", "");
}

function short(value) {
  const text = shownExactly(value);
  return text === undefined ? "" : text.length > 300 ? `${text.slice(0, 300)} …` : text;
}

function Value({ label, form, value }) {
  const text = shownExactly(value, 2);
  return html`<h2>${label} <span class="muted">${form}</span></h2>
    <div class="code"><pre tabindex="0" aria-label=${label}>${text}</pre><${Copy} text=${text} /></div>`;
}

function Details({ record }) {
  return html`<div class="record-more">
    ${record.problem && html`<${Notice} tone="warning" title="Shown as it looks">${record.problem}</${Notice}>`}
    <${Value} label="Key" form=${record.key_form} value=${record.key} />
    <${Value} label="Value" form=${record.value_form} value=${record.value} />
    ${record.headers.length > 0 && html`<h2>Headers</h2><dl class="config card">
      ${record.headers.map(([name, value], index) => html`<div key=${index}><dt>${name}</dt><dd>${value ?? html`<span class="muted">null</span>`}</dd></div>`)}</dl>`}
  </div>`;
}

/** A record in a list; opened, it shows everything. */
export function TopicRecord({ record, children }) {
  const [open, setOpen] = useState(false);
  const place = `${record.partition}:${record.offset}`;
  return html`<li class="record">
    <details onToggle=${(event) => setOpen(event.target.open)}>
      <summary>
        <span class="record-place" title="Partition and offset">${place}</span>
        <span class="record-time">${timeText(record.timestamp)}</span>
        ${record.kind && html`<span class="required">${record.kind}</span>`}
        ${record.summary && html`<span class="strong">${record.summary}</span>`}
        <span class="record-key" title="Key">${short(record.key)}</span>
        <span class="record-value">${short(record.value)}</span>
      </summary>
      ${open && html`<${Details} record=${record} />`}
    </details>${children}
  </li>`;
}

/** The path of a topic's records. */
function recordsPath(topic, asked, before) {
  const query = { limit: String(LIMIT), ...asked, ...(before ? { before: JSON.stringify(before) } : {}) };
  const kept = Object.entries(query).filter(([, value]) => value);
  return `console/topics/${encodeURIComponent(topic)}?${new URLSearchParams(kept)}`;
}

function Filters({ query, masked, users, set, busy }) {
  const [key, setKey] = useState(query.get("key") ?? "");
  const [where, setWhere] = useState(query.get("where") ?? "");
  // What is typed goes with what is chosen.
  const ask = (change) => set({ key, where, ...change });
  const asked = [query.get("key") ?? "", query.get("where") ?? ""];
  // At once: later it would replace what has been typed in between.
  useLayoutEffect(() => {
    setKey(asked[0]);
    setWhere(asked[1]);
  }, asked);
  return html`<form class="filters record-filters" onSubmit=${(event) => {
    event.preventDefault();
    ask(Object.fromEntries(new FormData(event.currentTarget)));
  }}>
    ${!masked && html`<label class="field">Key contains <input name="key" value=${key} onInput=${(event) => setKey(event.target.value)} /></label>
      <label class="field grow">Condition in CEL <input name="where" value=${where} list="cel-examples" spellcheck="false" autocomplete="off"
        placeholder=${EXAMPLES[0]} onInput=${(event) => setWhere(event.target.value)} />
        <datalist id="cel-examples">${EXAMPLES.map((each) => html`<option key=${each} value=${each}></option>`)}</datalist></label>
      <label class="field">Shown <select value=${query.get("form") ?? "auto"} onChange=${(event) => ask({ form: event.target.value === "auto" ? "" : event.target.value })}>
        ${FORMS.map(([id, label]) => html`<option key=${id} value=${id}>${label}</option>`)}</select></label>`}
    ${users.length > 1 && html`<label class="field">Decoded by <select value=${query.get("connector") ?? ""} onChange=${(event) => ask({ connector: event.target.value })}>
        <option value="">${users[0]}</option>${users.slice(1).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`}
    <${Button} type="submit" kind="primary">${masked ? "Read again" : "Read"}</${Button}>
  </form>`;
}

const STOPPED = { size: "as much as is looked at for one answer", time: "for as long as an answer may take" };

/** The newest records of a topic, and older ones on demand. */
export function TopicPage({ topic, query }) {
  const [uses] = useLoaded(() => call("GET", "console/topics"), [topic]);
  const [pages, setPages] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const turn = useRef(0);
  const asked = useMemo(() => Object.fromEntries(query), [query]);
  const key = JSON.stringify(asked);
  const read = async (before) => {
    const mine = ++turn.current;
    setBusy(true);
    try {
      const page = await call("GET", recordsPath(topic, asked, before), undefined, {}, exact);
      if (mine !== turn.current) return;
      setPages((old) => (before ? [...old, page] : [page]));
      setError(null);
    } catch (failure) {
      if (mine !== turn.current) return;
      setError(failure);
      // Records of another condition are none of this one.
      if (!before) setPages(null);
    }
    if (mine === turn.current) setBusy(false);
  };
  useEffect(() => {
    read(null);
    return () => {
      turn.current++;
    };
  }, [topic, key]);
  const use = uses?.find((each) => each.topic === topic);
  const users = Object.keys(use?.connectors ?? {});
  const masked = pages?.at(-1)?.masked ?? use?.masked ?? false;
  const set = (change) => {
    const next = placeHref(["topics", topic], { ...asked, ...change });
    if (next === location.hash) read(null);
    else go(next, true);
  };
  const records = pages?.flatMap((page) => page.records) ?? [];
  const last = pages?.at(-1);
  const filtered = Boolean(asked.key || asked.where);
  const scanned = pages?.reduce((sum, page) => sum + page.scanned, 0) ?? 0;
  const errors = pages?.reduce((sum, page) => sum + page.errors, 0) ?? 0;
  const held = last ? Object.values(last.partitions).reduce((sum, each) => sum + each.end - each.first, 0) : 0;
  return html`<div class="page">
    <p class="crumbs"><a href="#/topics">Topics</a></p>
    <div class="head"><h1 class="long">${topic}</h1></div>
    <p class="facts">${last && html`<span>${counted(Object.keys(last.partitions).length, "partition")}</span><span>at most ${counted(held, "record")}</span>`}
      ${users.slice(0, 5).map((name) => html`<span key=${name}><a href=${placeHref(["connectors", name])}>${name}</a></span>`)}
      ${users.length > 5 && html`<span>${users.length - 5} more</span>`}</p>
    ${masked && html`<${Notice} tone="info" title="Values are hidden">You see which records there are, and what they are made of. Their values need the role admin for a connector of this topic.</${Notice}>`}
    <${Filters} query=${query} masked=${masked} users=${users} set=${set} busy=${busy} />
    ${error && html`<${Notice} title="The records can't be read">${error.message}</${Notice}>`}
    ${last?.problems?.map((text) => html`<${Notice} key=${text} tone="warning" title="Shown as it looks">${text}</${Notice}>`)}
    ${errors > 0 && html`<${Notice} tone="warning" title=${`The condition can't be evaluated for ${counted(errors, "record")}`}>${pages.find((page) => page.error)?.error}</${Notice}>`}
    ${pages === null && !error && html`<p class="muted" aria-busy="true">One moment …</p>`}
    ${pages && records.length === 0 && (last.before === null || filtered) && html`<${Empty} title=${filtered && held ? "No record fits yet" : "No records"}>
        ${filtered && held ? `${counted(scanned, "record")} were looked at.` : "Nothing has been written to this topic, or nothing of it is left."}</${Empty}>`}
    ${records.length > 0 && html`<ol class="records card" aria-label="Records, the newest first">
      ${records.map((record) => html`<${TopicRecord} key=${`${record.partition}:${record.offset}`} record=${record} />`)}</ol>`}
    ${pages && html`<div class="foot">
      <span class="muted" aria-live="polite">${counted(records.length, "record")}${filtered ? ` of ${NUMBER(scanned)} that were looked at` : ""}${last.stopped ? `: ${STOPPED[last.stopped]}` : ""}.</span>
      ${last.before && html`<${Button} busy=${busy} onClick=${() => read(last.before)}>${last.stopped ? "Look further back" : "Older records"}</${Button}>`}
    </div>`}
    <${Calls} calls=${[curl("GET", recordsPath(topic, asked))]} />
  </div>`;
}

/** All topics that connectors use. */
export function TopicsPage({ query }) {
  const [topics, error] = useLoaded(() => call("GET", "console/topics"), []);
  const [other, setOther] = useState("");
  const q = query.get("q") ?? "";
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = (topics ?? []).filter((each) => {
    const text = `${each.topic}\n${Object.keys(each.connectors).join("\n")}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const most = 500;
  return html`<div class="page">
    <div class="head"><h1>Topics</h1></div>
    ${error && html`<${Notice} title="The topics can't be listed">${error.message}</${Notice}>`}
    ${!topics && !error && html`<p class="muted" aria-busy="true">One moment …</p>`}
    ${topics?.length === 0 && html`<${Empty} title="No topics yet">Here are the topics that connectors have written to or read.</${Empty}>`}
    ${topics?.length > 0 && html`<div class="filters"><label class="search"><span class="hidden">Filter</span>
        <input type="search" placeholder="Filter by topic or connector" value=${q} onInput=${(event) => go(placeHref(["topics"], { q: event.target.value }), true)} /></label>
      </div>
      ${found.length === 0
        ? html`<${Empty} title="Nothing fits the filter"><${Button} onClick=${() => go("#/topics", true)}>Show all ${topics.length}</${Button}></${Empty}>`
        : html`<div class="table-box short" tabindex="0" role="region" aria-label="Topics"><table class="grid fitting">
          <thead><tr><th scope="col">Topic</th><th scope="col">Connectors</th></tr></thead>
          <tbody>${found.slice(0, most).map((each) => html`<tr key=${each.topic}>
            <th scope="row" class="long"><a href=${placeHref(["topics", each.topic])}>${each.topic}</a>
              ${Object.values(each.connectors).includes("dead letters") && html` <span class="required">dead letters</span>`}</th>
            <td class="long">${Object.keys(each.connectors).slice(0, 3).join(", ")}${Object.keys(each.connectors).length > 3 ? ` and ${Object.keys(each.connectors).length - 3} more` : ""}</td>
          </tr>`)}</tbody></table></div>`}`}
    ${topics && html`<p class="muted" aria-live="polite">${found.length > most ? `${most} of ${counted(found.length, "topic")}` : counted(found.length, "topic")}</p>`}
    <form class="add" onSubmit=${(event) => {
      event.preventDefault();
      if (other.trim()) go(placeHref(["topics", other.trim()]));
    }}><label class="field">Another topic <input value=${other} onInput=${(event) => setOther(event.target.value)} /></label>
      <${Button} type="submit">Open</${Button}></form>
    <${Calls} calls=${[curl("GET", "console/topics")]} />
  </div>`;
}
