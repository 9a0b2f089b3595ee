/** One connector: its tasks and why they are where they are, offsets, configuration, topics. */
import { ActionDialog, knownActions, may } from "./actions.js";
import { call, connectorPath, curl, has, lacks, listen } from "./api.js";
import { Chart } from "./chart.js";
import { Away } from "./connectors.js";
import { OffsetsTab } from "./offsets.js";
import { HistoryTab } from "./history.js";
import { LettersTab } from "./letters.js";
import { placeHref, useGo } from "./place.js";
import { prepared } from "./rows.js";
import { SnapshotsTab } from "./snapshots.js";
import { TablesTab } from "./tables.js";
import { Badge, Button, Calls, Copy, counted, Empty, html, Notice, rateText, secondsText, Tabs, useLoaded } from "./ui.js";
import { useEffect, useMemo, useState } from "./ui.js";

/** How many points a chart keeps: ten minutes. */
const POINTS = 600;
/** Tasks, or topics, that are listed: a page with all of thousands would answer nobody. */
const MOST = 500;

function useConnector(name) {
  const [found, setFound] = useState(null);
  const [live, setLive] = useState(true);
  const [points, setPoints] = useState([]);
  useEffect(() => listen(`?connector=${encodeURIComponent(name)}`, { connector: setFound }, setLive), [name]);
  const row = found?.row;
  useEffect(() => {
    const add = () =>
      setPoints((before) => [...before.slice(1 - POINTS), { at: Date.now() / 1000, rate: row?.rate ?? null, lag: row?.lag_s ?? null }]);
    add();
    const timer = setInterval(add, 1000);
    return () => clearInterval(timer);
  }, [row]);
  return { found, live, points };
}

function Trace({ text }) {
  const [first, ...rest] = text.trimEnd().split("\n");
  const causes = rest.filter((line) => line.startsWith("Caused by: "));
  return html`<div class="trace">
    <p class="error-text">${first}</p>
    ${causes.map((line) => html`<p key=${line} class="error-text cause">${line}</p>`)}
    ${rest.length > 0 &&
    html`<details><summary>The whole trace</summary>
      <div class="code"><pre tabindex="0" aria-label="Trace">${text}</pre><${Copy} text=${text} /></div>
    </details>`}
  </div>`;
}

function Task({ task, why, onRestart, allowed }) {
  return html`<li class="task card">
    <div class="task-head">
      <strong>${task.id === null ? "Connector" : `Task ${task.id}`}</strong>
      <${Badge} state=${task.state} />
      <span class="muted">${task.worker_id || "on no worker"}${task.version ? ` · version ${task.version}` : ""}</span>
      ${allowed && task.id !== null && html`<${Button} kind="small" onClick=${() => onRestart(task.id)}>Restart</${Button}>`}
    </div>
    ${task.trace && html`<${Trace} text=${task.trace} />`}
    ${why?.why_not_running && !task.trace && html`<p class="why">${why.why_not_running}</p>`}
    ${why?.placement && html`<p class="why muted">${why.placement[0].toUpperCase() + why.placement.slice(1)}.</p>`}
  </li>`;
}

function TasksTab({ name, status, points, role }) {
  const key = JSON.stringify([status.connector.state, status.tasks.map((task) => [task.state, task.worker_id])]);
  const [why, error] = useLoaded(async () => (has("explain") ? call("GET", connectorPath(name, "/explain")) : null), [name], [key]);
  const [failure, setFailure] = useState("");
  const restart = async (task) => {
    try {
      await call("POST", connectorPath(name, `/tasks/${task}/restart`));
      setFailure("");
    } catch (problem) {
      setFailure(problem.message);
    }
  };
  const shown = useMemo(() => {
    const rank = (task) => (task.state === "FAILED" ? 0 : 1);
    return [{ ...status.connector, id: null }, ...status.tasks].sort((a, b) => rank(a) - rank(b)).slice(0, MOST);
  }, [status]);
  const reasons = useMemo(() => new Map((why?.tasks ?? []).map((each) => [each.id, each])), [why]);
  return html`${failure && html`<${Notice} title="It could not be restarted">${failure}</${Notice}>`}
    ${error && html`<${Notice} tone="warning" title="Why tasks are where they are is not known now">${error.message}</${Notice}>`}
    ${why?.notes?.length > 0 && html`<ul class="why-notes">${why.notes.map((note) => html`<li key=${note}>${note}</li>`)}</ul>`}
    ${has("rates") && html`<${Chart} points=${points} />`}
    <ul class="tasks">
      ${shown.map(
        (task) => html`<${Task}
          key=${task.id ?? "own"}
          task=${task}
          why=${task.id === null ? why?.connector : reasons.get(task.id)}
          onRestart=${restart}
          allowed=${may(role, "operate")}
        />`,
      )}
    </ul>
    ${status.tasks.length >= MOST && html`<p class="muted">${MOST} of ${counted(status.tasks.length + 1, "unit")}, the connector and its tasks: what has failed comes first.</p>`}
    ${status.tasks.length === 0 &&
    html`<${Empty} title="No tasks">${status.connector.state === "STOPPED" ? "A stopped connector has none." : "The connector has not asked for any yet."}</${Empty}>`}
    <${Calls} calls=${["/status", ...(has("explain") ? ["/explain"] : [])].map((rest) => curl("GET", connectorPath(name, rest)))} />`;
}

function ConfigTab({ name, role, digest }) {
  const [config, error] = useLoaded(() => call("GET", `console/connectors/${encodeURIComponent(name)}/config`), [name], [digest]);
  if (error) return html`<${Notice}>${error.message}</${Notice}>`;
  if (!config) return html`<p class="muted">One moment …</p>`;
  const text = JSON.stringify({ name, config }, null, 2);
  const download = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([`${text}\n`], { type: "application/json" }));
    link.download = `${name.replace(/[^\w.-]+/g, "_")}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  return html`<div class="tools">
      ${may(role, "admin") && html`<a class="button primary" href=${placeHref(["connectors", name, "edit"])}>Edit</a>`}
      <${Button} onClick=${download}>Download</${Button}><${Copy} text=${text} label="Copy as JSON" />
    </div>
    <dl class="config card">
      ${Object.entries(config).sort(([a], [b]) => (a < b ? -1 : 1)).map(
        ([key, value]) => html`<div key=${key}><dt>${key}</dt><dd>${value === "" ? html`<span class="muted">empty</span>` : value}</dd></div>`,
      )}
    </dl>
    <p class="muted">Values of secrets are not sent to the browser: [hidden] stands for them, and they stay as they are when the rest is edited.</p>
    <${Calls} calls=${[curl("GET", connectorPath(name, "/config"))]} />`;
}

function TopicsTab({ name }) {
  const [found, error] = useLoaded(() => call("GET", connectorPath(name, "/topics")), [name]);
  if (error) return html`<${Notice}>${error.message}</${Notice}>`;
  if (!found) return html`<p class="muted">One moment …</p>`;
  const topics = found[name].topics;
  return html`${topics.length === 0
      ? html`<${Empty} title="No topics yet">It has not written to any topic since they were last reset.</${Empty}>`
      : html`<p class="muted">${counted(topics.length, "topic")} that it has written to${topics.length > MOST ? `: the first ${MOST} are here` : ""}.</p>
          <ul class="plain-list card">${topics.slice(0, MOST).map((topic) => html`<li key=${topic}>${has("topics") ? html`<a href=${placeHref(["topics", topic])}>${topic}</a>` : topic}</li>`)}</ul>`}
    <${Calls} calls=${[curl("GET", connectorPath(name, "/topics"))]} />`;
}

export function ConnectorPage({ name, tab }) {
  const { found, live, points } = useConnector(name);
  const [asked, setAsked] = useState(null);
  const goOn = useGo();
  const gone = found?.status === null;
  useEffect(() => {
    if (gone) setAsked(null);
  }, [gone]);
  if (found === null) {
    return html`<div class="page"><h1 class="long">${name}</h1>
      ${live ? html`<p class="muted" aria-busy="true">One moment …</p>` : html`<${Away} />`}</div>`;
  }
  if (gone) {
    return html`<div class="page"><h1 class="long">${name}</h1>
      <${Empty} title="There is no connector of this name"><p>It may have been deleted.</p><a href="#/connectors">All connectors</a></${Empty}></div>`;
  }
  const { status, role } = found;
  const row = found.row ? prepared(found.row) : null;
  const tabs = [
    { id: "tasks", label: "Tasks", count: status.tasks.length },
    ...(status.type === "source" && has("snapshots") ? [{ id: "snapshots", label: "Lag and snapshots" }] : []),
    ...(status.type === "source" && has("tables") ? [{ id: "tables", label: "Tables" }] : []),
    ...(lacks("offsets") ? [] : [{ id: "offsets", label: "Offsets" }]),
    ...(lacks("used-topics") ? [] : [{ id: "topics", label: "Topics" }]),
    ...(has("letters") ? [{ id: "letters", label: "Dead letters" }] : []),
    { id: "config", label: "Configuration" },
    ...(has("history") ? [{ id: "history", label: "History" }] : []),
  ].map((each) => ({ ...each, href: placeHref(["connectors", name, ...(each.id === "tasks" ? [] : [each.id])]) }));
  const shown = tabs.some((each) => each.id === tab) ? tab : "tasks";
  const actions = knownActions().filter((action) => may(role, action.role) && !action.idle.includes(row?.worst ?? status.connector.state));
  return html`<div class="page">
    <p class="crumbs"><a href="#/connectors">Connectors</a></p>
    <div class="head">
      <div class="title"><h1 class="long">${name}</h1><${Badge} state=${row?.worst ?? status.connector.state} /></div>
      <div class="tools" role="group" aria-label="Actions">
        ${actions.map(
          (action) =>
            html`<${Button} key=${action.id} kind=${action.danger ? "danger-plain" : "plain"} onClick=${() => setAsked(action)}>${action.label}</${Button}>`,
        )}
      </div>
    </div>
    <p class="facts">
      <span>${status.type}</span><span title=${row?.class}>${row?.short}</span>
      ${row?.rate !== null && row?.rate !== undefined && html`<span>${rateText(row.rate)}</span>`}
      ${row?.lag_s !== null && row?.lag_s !== undefined && html`<span>${secondsText(row.lag_s)} behind</span>`}
    </p>
    ${!live && html`<${Away} />`}
    <${Tabs} tabs=${tabs} active=${shown} />
    <section class="tab" aria-label=${tabs.find((each) => each.id === shown).label}>
      ${shown === "tasks" && html`<${TasksTab} name=${name} status=${status} points=${points} role=${role} />`}
      ${shown === "snapshots" && html`<${SnapshotsTab} name=${name} role=${role} />`}
      ${shown === "offsets" && html`<${OffsetsTab} name=${name} state=${status.connector.state} role=${role} />`}
      ${shown === "tables" && html`<${TablesTab} name=${name} />`}
      ${shown === "letters" && html`<${LettersTab} name=${name} role=${role} digest=${row?.config_digest} />`}
      ${shown === "history" && html`<${HistoryTab} name=${name} role=${role} digest=${row?.config_digest} />`}
      ${shown === "topics" && html`<${TopicsTab} name=${name} />`}
      ${shown === "config" && html`<${ConfigTab} name=${name} role=${role} digest=${row?.config_digest} />`}
    </section>
    ${asked && html`<${ActionDialog} action=${asked} names=${[name]} onClose=${(acted) => {
      setAsked(null);
      if (acted && asked.id === "delete") goOn("#/connectors");
    }} />`}
  </div>`;
}
