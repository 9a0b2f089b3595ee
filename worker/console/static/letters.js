/** Dead letters of a connector: what could not be handled, why, and a look at the record. */
import { may } from "./actions.js";
import { call, curl } from "./api.js";
import { exact } from "./exact.js";
import { placeHref } from "./place.js";
import { timeText, TopicRecord } from "./topics.js";
import { canVerify } from "./verify.js";
import { Button, Calls, counted, Empty, html, Notice, useLoaded, useState } from "./ui.js";

const OPTION = "errors.deadletterqueue.topic.name";
const PREFIX = "__connect.errors.";
const LIMIT = 50;
/** Options of connectors that read topics. */
const READS = ["topics", "topics.regex", "source.topics", "source.topics.pattern"];

/** What the headers of a dead letter say. */
function said(record) {
  return Object.fromEntries(record.headers.filter(([name]) => name.startsWith(PREFIX)).map(([name, value]) => [name.slice(PREFIX.length), value]));
}

function Letter({ record, name, again }) {
  const [state, setState] = useState(null);
  const body = { partition: record.partition, offset: record.offset };
  const path = `console/connectors/${encodeURIComponent(name)}/redrive`;
  const send = async () => {
    setState({ busy: true });
    try {
      const sent = await call("POST", path, body);
      setState({ sent: `Sent to ${sent.topic}, partition ${sent.partition}, offset ${sent.offset}.` });
    } catch (problem) {
      setState({ error: problem.message });
    }
  };
  const why = said(record);
  const reason = why["exception.message"] ?? why["exception.class.name"];
  const facts = [why.stage && `at ${why.stage}`, why.topic && `for topic ${why.topic}`, why.partition && `partition ${why.partition}`, why.offset && `offset ${why.offset}`].filter(Boolean);
  return html`<${TopicRecord} record=${record}>
    <p class="letter"><span class="error-text">${reason ?? "It has no headers that say why."}</span> <span class="muted">${facts.join(", ")}</span>
      ${again && !state?.sent && html` <${Button} kind="small" busy=${state?.busy} title=${curl("POST", path, body)} onClick=${send}>Send again</${Button}>`}
      ${state?.sent && html` <span role="status" class="strong">${state.sent}</span>`}</p>
    ${state?.error && html`<${Notice} title="It was not sent">${state.error}</${Notice}>`}
  </${TopicRecord}>`;
}

function Letters({ topic, name, again }) {
  const [pages, setPages] = useState([]);
  const path = (before) => `console/topics/${encodeURIComponent(topic)}?${new URLSearchParams({ limit: String(LIMIT), connector: name, ...(before ? { before: JSON.stringify(before) } : {}) })}`;
  const [first, error, reload] = useLoaded(() => call("GET", path(null), undefined, {}, exact), [topic]);
  const [failure, setFailure] = useState("");
  const calls = html`<${Calls} calls=${[curl("GET", path(null))]} />`;
  if (error?.status === 404) return html`<${Empty} title="No dead letters">The topic ${topic} is made with the first of them.</${Empty}>${calls}`;
  if (error) return html`<${Notice} title="The dead letters can't be read">${error.message}</${Notice}>${calls}`;
  if (!first) return html`<p class="muted" aria-busy="true">One moment …</p>`;
  const all = [first, ...pages];
  const records = all.flatMap((page) => page.records);
  const before = all.at(-1).before;
  const older = async () => {
    try {
      const page = await call("GET", path(before), undefined, {}, exact);
      setPages([...pages, page]);
      setFailure("");
    } catch (problem) {
      setFailure(problem.message);
    }
  };
  if (records.length === 0) return html`<${Empty} title="No dead letters">Nothing is in the topic ${topic}, or not any more.</${Empty}>${calls}`;
  return html`<div class="tools"><p class="muted">In the topic <a href=${placeHref(["topics", topic])}>${topic}</a>, the last one of ${timeText(records[0].timestamp)} UTC.</p>
      <${Button} kind="small" onClick=${() => {
        setPages([]);
        reload();
      }}>Look again</${Button}></div>
    ${first.masked && html`<${Notice} tone="info" title="Values are hidden">They need the role admin for this connector.</${Notice}>`}
    <ol class="records card" aria-label="Dead letters, the newest first">${records.map((record) => html`<${Letter} key=${`${record.partition}:${record.offset}`} record=${record} name=${name} again=${again} />`)}</ol>
    ${failure && html`<${Notice} title="Older ones can't be read">${failure}</${Notice}>`}
    <div class="foot"><span class="muted">${counted(records.length, "dead letter")}</span>${before && html`<${Button} onClick=${older}>Older dead letters</${Button}>`}</div>
    ${again && html`<p class="muted">"Send again" writes the record to the topic that it was read from: everyone who reads that topic gets it once more. The dead letter stays here.</p>`}
    ${calls}`;
}

export function LettersTab({ name, role, digest }) {
  const [config, error] = useLoaded(() => call("GET", `console/connectors/${encodeURIComponent(name)}/config`), [name], [digest]);
  if (error) return html`<${Notice}>${error.message}</${Notice}>`;
  if (!config) return html`<p class="muted" aria-busy="true">One moment …</p>`;
  const topic = (config[OPTION] ?? "").trim();
  if (topic) {
    return html`<${Letters} topic=${topic} name=${name} again=${may(role, "admin") && READS.some((option) => config[option])} />
      ${may(role, "admin") && canVerify({ class: config["connector.class"] ?? "" }) && html`<p class="muted">A source's dead letter has no schema, so it can't be sent as it is. <a href=${placeHref(["verify", name])}>Compare the tables</a> once the cause is fixed, and send the rows again that are missing.</p>`}`;
  }
  return html`<${Empty} title="No topic for dead letters">
      <p>A record that can't be handled fails its task. With errors.tolerance=all and ${OPTION} it is set aside in a topic instead, and shown here.</p></${Empty}>
    <${Calls} calls=${[curl("GET", `console/connectors/${encodeURIComponent(name)}/config`)]} />`;
}
