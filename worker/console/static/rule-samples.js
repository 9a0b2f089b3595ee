/** The lines that rules are tried on: given ones, or those of a connector. */
import { may } from "./actions.js";
import { call } from "./api.js";
import { isLogs, linesOf, shownLine } from "./rule-form.js";
import { html, useLoaded } from "./ui.js";

/** How many lines of a connector are tried. */
const COUNT = 200;

/** What a request says about the lines. */
export function sampleBody({ from, text }) {
  if (from === "") return { lines: linesOf(text) };
  const unknown = from.startsWith("unknown:");
  return { connector: from.slice(from.indexOf(":") + 1), source: unknown ? "unknown" : "input", count: COUNT };
}

/** Where lines come from, and the lines themselves. `shown` is the answer of a preview. */
export function Samples({ samples, onChange, shown }) {
  const [rows] = useLoaded(async () => (await call("GET", "console/connectors")).filter(isLogs), []);
  const names = (rows ?? []).filter((row) => may(row.role, "admin")).map((row) => row.name);
  const lines = shown?.lines ?? [];
  return html`<section class="samples" aria-label="Samples">
    <h2>Samples</h2>
    <label class="field">Lines from
      <select value=${samples.from} onChange=${(event) => onChange({ ...samples, from: event.target.value })}>
        <option value="">this text</option>
        ${names.map((name) => html`<option key=${`i${name}`} value=${`input:${name}`}>the input of ${name}</option>`)}
        ${names.map((name) => html`<option key=${`u${name}`} value=${`unknown:${name}`}>unknown lines of ${name}</option>`)}
      </select></label>
    ${samples.from === "" &&
    html`<label class="field">Lines<textarea rows="10" wrap="off" spellcheck=${false} value=${samples.text} placeholder="10.0.0.1 GET /"
      onInput=${(event) => onChange({ ...samples, text: event.target.value })}></textarea></label>`}
    ${samples.from !== "" && shown && lines.length === 0 && html`<p class="muted">There are no such lines.</p>`}
    ${lines.length > 0 &&
    html`<ol class="sample-lines" tabindex="0" aria-label="Lines">${lines.slice(0, COUNT).map(
      (each, number) => html`<li key=${number} class=${each.unknown ? "unknown" : "known"}>
        <span class="mark">${each.unknown ? "unknown" : "row"}</span> <code>${shownLine(each.line)}</code></li>`,
    )}</ol>`}
  </section>`;
}
