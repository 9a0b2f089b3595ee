/** Versions of a rule set: what differs in the text, and on lines. */
import { call, curl } from "./api.js";
import { exact, shownExactly } from "./exact.js";
import { placeHref } from "./place.js";
import { shownLine, textDifference } from "./rule-form.js";
import { GoldenFailures } from "./rule-result.js";
import { sampleBody, Samples } from "./rule-samples.js";
import { timeText } from "./rules.js";
import { Button, Calls, counted, html, Notice, useEffect, useLoaded, useState } from "./ui.js";

async function read(name, version) {
  const { rules } = await call("GET", `rules/${encodeURIComponent(name)}/versions/${version}`, undefined, {}, exact);
  return { rules, text: typeof rules === "string" ? rules : (await call("POST", "console/rules/read", { rules }, {}, exact)).text };
}

function OnLines({ before, after }) {
  const [samples, setSamples] = useState({ from: "", text: "" });
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const body = { before, after, ...sampleBody(samples) };
  useEffect(() => setFound(null), [before, after]);
  const compare = async () => {
    try {
      setFound(await call("POST", "rules/diff", body, {}, exact));
      setError("");
    } catch (failure) {
      setError(failure.message);
    }
  };
  return html`<div class="studio two"><${Samples} samples=${samples} onChange=${setSamples} shown=${null} />
    <section aria-label="Rows that differ"><h2>Rows that differ</h2>
      <p><${Button} onClick=${compare} disabled=${body.lines?.length === 0}>Compare on these lines</${Button}></p>
      ${error && html`<${Notice} title="They can't be compared">${error}</${Notice}>`}
      ${found &&
      html`<${GoldenFailures} failures=${found.golden} />
        ${found.versions.length > 0 && html`<${Notice} tone="warning" title="The version of a table has to rise">${found.versions.join("\n")}</${Notice}>`}
        ${found.lines.length === 0
          ? html`<p role="status">All lines make the same rows.</p>`
          : html`<p role="status">${counted(found.lines.length, "line")} ${found.lines.length === 1 ? "makes" : "make"} other rows.</p>
            <ul class="cards">${found.lines.slice(0, 100).map(
              (line) => html`<li class="card" key=${line.number}><code class="long">${shownLine(line.line)}</code> <span class="muted">${line.changes.join(", ")}</span>
                <div class="diff"><div class="old">${shownExactly(line.before)}</div><div class="new">${shownExactly(line.after)}</div></div></li>`,
            )}</ul>`}`}
      <${Calls} calls=${[curl("POST", "rules/diff", body, exact)]} />
    </section></div>`;
}

/** The versions, and the difference of two. */
export function RuleVersions({ name, newest, writes }) {
  const path = `rules/${encodeURIComponent(name)}/versions`;
  const [versions, error] = useLoaded(() => call("GET", path), [name, newest]);
  const [pair, setPair] = useState(null);
  const [before, after] = pair ?? [versions?.[1]?.version ?? newest, newest];
  const [texts, failure] = useLoaded(async () => (versions && writes ? Promise.all([read(name, before), read(name, after)]) : null), [name, before, after, Boolean(versions), writes]);
  if (error) return html`<${Notice} title="The versions can't be read">${error.message}</${Notice}>`;
  if (!versions) return html`<p class="muted">One moment …</p>`;
  const pick = (label, value, onPick) => html`<label class="field">${label}<select value=${value} onChange=${(event) => onPick(Number(event.target.value))}>
    ${versions.map((each) => html`<option key=${each.version} value=${each.version}>${each.version}</option>`)}</select></label>`;
  return html`<ul class="cards">${versions.map(
      (each) => html`<li class="card split" key=${each.version}><div class="long"><strong>Version ${each.version}</strong> <span class="muted">${timeText(each.created_ms)}${each.forced ? " · forced" : ""}</span>
        ${each.comment && html`<div>${each.comment}</div>`}</div>
        ${writes && each.version !== newest && html`<a class="button small" href=${placeHref(["rules", name], { version: each.version })}>Open version ${each.version}</a>`}</li>`,
    )}</ul>
    ${writes &&
    html`<h2>What differs</h2>
      <div class="tools">${pick("Before", before, (version) => setPair([version, after]))}${pick("After", after, (version) => setPair([before, version]))}</div>
      ${failure && html`<${Notice} title="They can't be compared">${failure.message}</${Notice}>`}
      ${texts && (texts[0].text === texts[1].text
        ? html`<p class="muted">The texts are the same.</p>`
        : html`<pre class="text-diff card" tabindex="0" aria-label="Text that differs">${textDifference(texts[0].text, texts[1].text).map(
            (line, number) => html`<span key=${number} class=${line.sign === "-" ? "gone" : line.sign === "+" ? "come" : ""}>${line.sign} ${line.text}${"\n"}</span>`,
          )}</pre>`)}
      ${texts && html`<${OnLines} before=${texts[0].rules} after=${texts[1].rules} />`}`}
    <${Calls} calls=${[curl("GET", path)]} />`;
}
