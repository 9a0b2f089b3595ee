/** Lines of a connector that no rule accepts: by pattern, a rule made of one, and the replay. */
import { may } from "./actions.js";
import { call, connectorPath, curl } from "./api.js";
import { placeHref, useGo } from "./place.js";
import { carry } from "./rule-editor.js";
import { shownLine } from "./rule-form.js";
import { Button, Calls, counted, Dialog, Empty, html, Notice, useEffect, useLoaded, useState } from "./ui.js";

const POLL_MS = 1000;

function ReplayDialog({ name, onClose, onAsked }) {
  const [since, setSince] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const body = since ? { since: new Date(since).toISOString() } : {};
  const path = connectorPath(name, "/replay");
  const send = async () => {
    setBusy(true);
    try {
      await call("POST", path, body);
      onAsked();
    } catch (failure) {
      setError(failure.message);
      setBusy(false);
    }
  };
  return html`<${Dialog} title="Replay unknown lines?" onClose=${onClose}>
    <p>They are given to the present rules again. Lines that are accepted become rows once; the others stay as they are.</p>
    <label class="field">Only since (your time)<input type="datetime-local" value=${since} onInput=${(event) => setSince(event.target.value)} /></label>
    <${Calls} calls=${[curl("POST", path, body)]} />
    ${error && html`<${Notice} title="It was refused">${error}</${Notice}>`}
    <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel</${Button}><${Button} kind="primary" busy=${busy} onClick=${send}>Replay</${Button}></div>
  </${Dialog}>`;
}

function Replays({ name, mayAsk, onDone }) {
  const [replays, error, reload] = useLoaded(() => call("GET", connectorPath(name, "/replay")), [name]);
  const [asked, setAsked] = useState(false);
  const open = (replays ?? []).some((each) => each.state === "waiting" || each.state === "running");
  useEffect(() => {
    if (!open) return undefined;
    const timer = setInterval(reload, POLL_MS);
    return () => {
      clearInterval(timer);
      onDone();
    };
  }, [open]);
  return html`<div class="split"><h2>Replays</h2>${mayAsk && html`<${Button} onClick=${() => setAsked(true)}>Replay …</${Button}>`}</div>
    ${error && html`<${Notice} tone="warning">${error.message}</${Notice}>`}
    ${replays?.length === 0 && html`<p class="muted">None yet.</p>`}
    ${replays?.length > 0 &&
    html`<ul class="cards">${[...replays].reverse().map(
      (each) => html`<li class="card split" key=${each.id}><div class="long"><strong>${each.id}</strong> <span class="muted">${each.state}</span></div>
        <span>${each.lines === undefined ? "not begun" : `${each.accepted ?? 0} of ${counted(each.lines, "line")} accepted`}${each.records_left ? `, ${counted(each.records_left, "record")} left` : ""}</span></li>`,
    )}</ul>`}
    ${asked && html`<${ReplayDialog} name=${name} onClose=${() => setAsked(false)} onAsked=${() => {
      setAsked(false);
      reload();
    }} />`}`;
}

/** Where the rules of a connector are: a set of the cluster, its own configuration, or elsewhere. */
async function rulesOf(name) {
  const config = await call("GET", `console/connectors/${encodeURIComponent(name)}/config`);
  if (config["rules.name"]) return { set: config["rules.name"], rules: null };
  if (config.rules) return { set: null, rules: config.rules };
  return { set: null, rules: { tables: [] } };
}

export function UnknownPage({ name }) {
  const [table, setTable] = useState("lines");
  const [kept, setKept] = useState("lines");
  const [reading, setReading] = useState("");
  const path = connectorPath(name, `/unknown?table=${encodeURIComponent(kept)}`);
  const [found, error, reload] = useLoaded(() => call("GET", path), [path]);
  const [row] = useLoaded(async () => (await call("GET", "console/connectors")).find((each) => each.name === name), [name]);
  const goOn = useGo();
  const make = async (pattern) => {
    try {
      const { set, rules } = await rulesOf(name);
      carry({ rules, proposed: pattern.rules });
      const query = { proposed: "1", from: `unknown:${name}`, connector: name };
      goOn(set ? placeHref(["rules", set], query) : placeHref(["new-rules"], query));
    } catch (failure) {
      setReading(failure.message);
    }
  };
  return html`<div class="page">
    <p class="crumbs"><a href="#/rules">Log rules</a> / <a href=${placeHref(["connectors", name])}>${name}</a></p>
    <div class="head"><h1 class="long">Unknown lines of ${name}</h1>
      <div class="tools"><label class="inline">Table of new rules <input value=${table} spellcheck=${false} onInput=${(event) => setTable(event.target.value)} onBlur=${() => setKept(table || "lines")} /></label>
        <${Button} onClick=${reload}>Read again</${Button}></div></div>
    ${error && html`<${Notice} title="The unknown lines can't be read">${error.message}</${Notice}>`}
    ${reading && html`<${Notice} title="The connector's rules can't be read">${reading}</${Notice}>`}
    ${!found && !error && html`<p class="muted">One moment …</p>`}
    ${found &&
    html`<p class="facts"><span>${counted(found.lines, "line")}</span><span>topic ${found.topic}</span>
        ${found.replayed > 0 && html`<span>${found.replayed} became rows by a replay</span>`}${found.unreadable > 0 && html`<span>${counted(found.unreadable, "record")} can't be read</span>`}</p>
      ${found.patterns.length === 0
        ? html`<${Empty} title="No unknown lines">The rules accept all lines that were read, or none has come yet.</${Empty}>`
        : html`<ul class="cards">${found.patterns.map(
            (pattern) => html`<li class="card" key=${pattern.pattern}><div class="split"><code class="long"><strong>${shownLine(pattern.pattern)}</strong></code>
                <span class="tools"><span class="muted">${counted(pattern.count, "line")}</span>
                ${pattern.rules && html`<${Button} onClick=${() => make(pattern)}>Make a rule of this</${Button}>`}</span></div>
              <ul class="examples">${pattern.examples.map((line, number) => html`<li key=${number}><code class="long">${shownLine(line)}</code></li>`)}</ul></li>`,
          )}</ul>`}
      ${found.failures.length > 0 &&
      html`<h2>Where they failed</h2><div class="scroll" tabindex="0" role="region" aria-label="Steps at which lines failed"><table class="grid">
        <thead><tr><th scope="col">Table / group</th><th scope="col">Step</th><th scope="col" class="num">Lines</th><th scope="col">Reason</th></tr></thead>
        <tbody>${found.failures.map(
          (each, number) => html`<tr key=${number}><td class="long">${each.table ?? "–"} / ${each.group ?? "–"}</td><td>${each.step ?? "–"} ${each.operator ?? ""}</td><td class="num">${each.lines}</td><td class="long">${each.reason ?? "–"}</td></tr>`,
        )}</tbody></table></div>`}`}
    <${Replays} name=${name} mayAsk=${may(row?.role, "operate")} onDone=${reload} />
    <${Calls} calls=${[curl("GET", path), curl("GET", connectorPath(name, "/replay"))]} />
  </div>`;
}
