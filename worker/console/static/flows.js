/** Flows: a list, and the editor of one with SQL, plan, preview and lineage. */
import { may } from "./actions.js";
import { call, connectorPath, curl } from "./api.js";
import { Away, useRows } from "./connectors.js";
import { exact } from "./exact.js";
import { FIRST_FLOW, flowConfig, freeName, isFlow, newStep, propertiesText, readProperties, readRows, STEP_TYPES, stepsOf, tablesOf } from "./flow-form.js";
import { Lineage, Plan, Preview } from "./flow-result.js";
import { difference, patchOf } from "./options.js";
import { placeHref, useGo } from "./place.js";
import { SqlEditor } from "./sql-editor.js";
import { Badge, Button, Calls, counted, Dialog, Empty, html, Notice, rateText, useLoaded, useRef, useState } from "./ui.js";
import { useUnsaved } from "./unsaved.js";

export function FlowsPage({ session }) {
  const [all, live] = useRows();
  const rows = all && [...all.values()].filter(isFlow).sort((a, b) => (a.name < b.name ? -1 : 1));
  return html`<div class="page">
    <div class="head"><h1>Flows and SQL</h1>${may(session.role, "admin") && html`<a class="button primary" href="#/new-flow">New flow</a>`}</div>
    ${!live && html`<${Away} />`}
    ${!rows && live && html`<p class="muted">One moment …</p>`}
    ${rows?.length === 0 && html`<${Empty} title="No flows yet">A flow reads topics, transforms their rows with SQL and other steps, and writes them to a target.</${Empty}>`}
    ${rows?.length > 0 &&
    html`<ul class="cards">${rows.map(
      (row) => html`<li class="card split" key=${row.name}><div class="long"><a href=${placeHref(["flows", row.name])}><strong>${row.name}</strong></a>${row.error && html`<div class="error-text">${row.error}</div>`}</div>
        <span class="tools"><span class="muted">${rateText(row.rate)}</span><${Badge} state=${row.worst} /><a href=${placeHref(["connectors", row.name])}>Tasks</a></span></li>`,
    )}</ul>`}
    <${Calls} calls=${[curl("GET", "console/connectors")]} />
  </div>`;
}

function optionsText(step, main) {
  return Object.entries(step.options).filter(([key]) => key !== main).map(([key, value]) => `${key}=${value.replaceAll("\\", "\\\\").replaceAll("\n", "\\n")}`).join("\n");
}

function Step({ step, number, steps, tables, readonly, onChange }) {
  const main = STEP_TYPES[step.type] ?? "type";
  const [rest, setRest] = useState(optionsText(step, main));
  const [wrong, setWrong] = useState("");
  const put = (next) => onChange(steps.map((each, at) => (at === number ? { ...step, ...next } : each)));
  const others = (text) => {
    setRest(text);
    try {
      put({ options: { ...readProperties(text), ...(step.options[main] !== undefined && { [main]: step.options[main] }) } });
      setWrong("");
    } catch (problem) {
      setWrong(problem.message);
    }
  };
  const value = step.options[main] ?? "";
  const label = `${main} of step ${number + 1}`;
  return html`<li class="card step">
    <div class="step-head"><span class="step-number">${number + 1}</span>
      <label><span class="hidden">Name of step ${number + 1}</span><input value=${step.name} readonly=${readonly} spellcheck=${false} onInput=${(event) => put({ name: event.target.value.replace(/[^\w-]/g, "_") })} /></label>
      <span class="muted">${step.type}</span>
      ${!readonly && html`<span class="tools"><${Button} kind="small" aria-label=${`Remove step ${number + 1}`} onClick=${() => onChange(steps.filter((_, at) => at !== number))}>×</${Button}></span>`}</div>
    ${main === "sql"
      ? html`<${SqlEditor} value=${value} label=${label} tables=${tables} readonly=${readonly} onInput=${(text) => put({ options: { ...step.options, sql: text } })} />`
      : html`<label class="field">${main}<input value=${value} aria-label=${label} readonly=${readonly} spellcheck=${false} onInput=${(event) => put({ options: { ...step.options, [main]: event.target.value } })} /></label>`}
    <details open=${rest !== ""}><summary>Other options of the step</summary>
      <textarea rows="2" aria-label=${`Other options of step ${number + 1}`} spellcheck=${false} readonly=${readonly} value=${rest} placeholder="tables=orders" onInput=${(event) => others(event.target.value)}></textarea>
      ${wrong && html`<p class="error-text" role="alert">${wrong}</p>`}</details>
  </li>`;
}

function Start({ name, before, after, onClose }) {
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const goOn = useGo();
  const exists = before !== null;
  const [method, path, body] = exists
    ? ["PATCH", `console/${connectorPath(name, "/config")}`, patchOf(before, after)]
    : ["POST", "connectors", { name, config: after }];
  const send = async () => {
    setBusy(true);
    try {
      await call(method, path, body);
      goOn(placeHref(["connectors", name]));
    } catch (failure) {
      setError(failure.message);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${exists ? `Change ${name}?` : `Start ${name}?`} onClose=${onClose} wide>
    <div class="scroll" tabindex="0" role="region" aria-label="Properties"><table class="diff"><thead><tr><th scope="col">Property</th>${exists && html`<th scope="col">Now</th>`}<th scope="col">Then</th></tr></thead>
      <tbody>${difference(before ?? {}, after).map((each) => html`<tr key=${each.name}><th scope="row">${each.name}</th>${exists && html`<td class="old">${each.before ?? "–"}</td>`}<td class="new">${each.after ?? "–"}</td></tr>`)}</tbody></table></div>
    <${Calls} calls=${[curl(method, path, body)]} />
    ${error && html`<${Notice} title="It was refused">${error}</${Notice}>`}
    <div class="dialog-actions"><${Button} onClick=${onClose}>Back</${Button}><${Button} kind="primary" busy=${busy} onClick=${send}>${exists ? "Change" : "Start"}</${Button}></div>
  </${Dialog}>`;
}

const TABS = [["plan", "Plan"], ["preview", "Preview"], ["lineage", "Lineage"]];

function Editor({ existing, start, writes }) {
  const [name, setName] = useState(existing ?? "");
  const [text, setText] = useState(propertiesText(start));
  const [steps, setSteps] = useState(() => stepsOf(start));
  const [shown, setShown] = useState("plan");
  const [plan, setPlan] = useState(null);
  const [preview, setPreview] = useState(null);
  const [failure, setFailure] = useState("");
  const [busy, setBusy] = useState("");
  const [limit, setLimit] = useState("20");
  const [rows, setRows] = useState("");
  const [starting, setStarting] = useState(false);
  const known = useRef({});
  let properties = null;
  let wrong = "";
  try {
    properties = readProperties(text);
  } catch (problem) {
    wrong = problem.message;
  }
  if (properties) known.current = properties;
  const config = flowConfig(start["connector.class"], known.current, steps);
  const first = useRef(config);
  const changed = name !== (existing ?? "") || text !== propertiesText(start) || difference(first.current, config).length > 0;
  const leave = useUnsaved(writes && changed);
  const tables = tablesOf(known.current, steps, plan, preview);
  const sent = existing ? patchOf(start, config) : { ...config, name };
  const path = (what) => (existing ? `console/${connectorPath(existing, `/${what}`)}` : `flows/${what}`);
  const ask = async (tab) => {
    setBusy(tab);
    setFailure("");
    try {
      if (tab === "preview") {
        const more = rows.trim() ? { rows: readRows(rows) } : { limit: Number(limit) || 20 };
        setPreview(await call("POST", path("preview"), { config: sent, ...more }, {}, exact));
      } else setPlan(await call("POST", path("plan"), sent));
      setShown(tab);
    } catch (problem) {
      setFailure(problem.message);
    }
    setBusy("");
  };
  const ready = writes && !wrong && Boolean(name);
  return html`<div class="studio two">
    <section aria-label="Flow">
      ${!existing && html`<label class="field">Name<input value=${name} spellcheck=${false} onInput=${(event) => setName(event.target.value)} /></label>`}
      <label class="field">Source and sink<textarea rows=${Math.min(12, text.split("\n").length + 1)} wrap="off" spellcheck=${false} readonly=${!writes} value=${text} aria-invalid=${Boolean(wrong)} onInput=${(event) => setText(event.target.value)}></textarea></label>
      ${wrong && html`<p class="error-text" role="alert">${wrong}</p>`}
      <p class="help">One property a line. ${existing && html`<a href=${placeHref(["connectors", existing, "edit"])}>All options as a form</a>`}</p>
      <h2>Steps</h2>
      ${steps.length === 0 && html`<p class="muted">None: rows go to the sink as they are.</p>`}
      <ol class="steps">${steps.map((step, number) => html`<${Step} key=${step.id} step=${step} number=${number} steps=${steps} tables=${tables} readonly=${!writes} onChange=${setSteps} />`)}</ol>
      ${writes &&
      html`<label class="field">Add a step<select value="" onChange=${(event) => {
        const type = event.target.value;
        event.target.value = "";
        if (type) setSteps([...steps, newStep(freeName(steps, type), type)]);
      }}><option value="">at the end …</option>${Object.keys(STEP_TYPES).map((type) => html`<option key=${type} value=${type}>${type}</option>`)}</select></label>`}
    </section>
    <section aria-label="What it would do" aria-busy=${busy !== ""}>
      ${writes
        ? html`<div class="tools"><${Button} busy=${busy === "plan"} disabled=${!ready || busy !== ""} onClick=${() => ask("plan")}>Plan</${Button}>
            <${Button} busy=${busy === "preview"} disabled=${!ready || busy !== ""} onClick=${() => ask("preview")}>Preview</${Button}>
            <label class="inline">Newest records <input class="short" inputmode="numeric" value=${limit} onInput=${(event) => setLimit(event.target.value)} /></label>
            <${Button} kind="primary" disabled=${!ready} onClick=${() => setStarting(true)}>${existing ? "Change …" : "Start …"}</${Button}></div>
          <details><summary>Rows of your own</summary><textarea rows="3" aria-label="Rows of your own" wrap="off" spellcheck=${false} value=${rows} placeholder='{"table": "shop.orders", "op": "i", "row": {"id": 1}}' onInput=${(event) => setRows(event.target.value)}></textarea></details>`
        : html`<${Notice} tone="info">You may look at the flow. Planning and changing it needs the role admin.</${Notice}>`}
      ${busy === "preview" && html`<p class="muted" role="status">Rows go through the steps. The first preview starts Spark, which takes half a minute.</p>`}
      ${failure && html`<${Notice} title="It can't be done">${failure}</${Notice}>`}
      <div class="segments" role="group" aria-label="Shown">${TABS.map(([id, label]) => html`<button key=${id} type="button" aria-pressed=${shown === id} onClick=${() => setShown(id)}>${label}</button>`)}</div>
      ${shown === "plan" && html`<${Plan} plan=${plan} />`}
      ${shown === "preview" && html`<${Preview} preview=${preview} />`}
      ${shown === "lineage" && html`<${Lineage} plan=${plan} />`}
      ${writes && html`<${Calls} calls=${[curl("POST", path("plan"), sent), curl("POST", path("preview"), { config: sent, limit: Number(limit) || 20 })]} />`}
    </section>
    ${leave}
    ${starting && html`<${Start} name=${name} before=${existing ? start : null} after=${config} onClose=${() => setStarting(false)} />`}
  </div>`;
}

export function FlowPage({ name, session }) {
  const [found, error] = useLoaded(
    async () => {
      if (name === null) return { config: FIRST_FLOW, role: session.role };
      const config = await call("GET", `console/${connectorPath(name, "/config")}`);
      const { name: own, ...others } = config;
      const row = (await call("GET", "console/connectors")).find((each) => each.name === name);
      return { config: others, role: row?.role };
    },
    [name],
  );
  const gone = error?.status === 404;
  const flow = found && isFlow({ class: found.config["connector.class"] ?? "" });
  return html`<div class="page wide">
    <p class="crumbs"><a href="#/flows">Flows and SQL</a>${name !== null && html` / <a href=${placeHref(["connectors", name])}>${name}</a>`}</p>
    <div class="head"><h1 class="long">${name ?? "New flow"}</h1></div>
    ${gone && html`<${Empty} title="There is no flow of this name"><a href="#/flows">All flows</a></${Empty}>`}
    ${error && !gone && html`<${Notice} title="The flow can't be read">${error.message}</${Notice}>`}
    ${!found && !error && html`<p class="muted">One moment …</p>`}
    ${found && !flow && html`<${Empty} title="This connector is no flow"><a href=${placeHref(["connectors", name])}>Go to the connector</a></${Empty}>`}
    ${flow && html`<${Editor} existing=${name} start=${found.config} writes=${may(found.role, "admin")} />`}
  </div>`;
}
