/** What rules make of lines: each step, the rows, golden lines. */
import { shownExactly } from "./exact.js";
import { shownLine } from "./rule-form.js";
import { counted, Empty, html, Notice } from "./ui.js";

/** How many lines of a step, and rows of a table, are shown. */
const MOST = 30;

function shownValue(value) {
  if (value === null || value === undefined) return html`<span class="muted">null</span>`;
  return shownExactly(value);
}

function Step({ step, lines }) {
  const counts = Object.entries(step.counts);
  const bad = step.lines.filter((line) => line.status !== "success");
  const some = [...bad, ...step.lines.filter((line) => line.status === "success")].slice(0, MOST);
  return html`<li><details>
    <summary><span class="step-number">${step.step}</span> <strong>${step.operator}</strong>
      ${counts.map(([status, number]) => html` <span key=${status} class=${`status-${status}`}>${number} ${status}</span>`)}</summary>
    <ul class="step-lines">${some.map(
      (line) => html`<li key=${line.line}><code class="long">${shownLine(lines[line.line].line)}</code>
        ${line.reason && html`<div class=${line.status === "error" ? "error-text" : "muted"}>${line.status}: ${line.reason}</div>`}
        ${line.records_out.map((record, at) => html`<div class="record" key=${at}>${Object.entries(record).map(([name, value]) => html`<span key=${name}><b>${name}</b> ${shownValue(value)}</span>`)}</div>`)}</li>`,
    )}</ul>
    ${step.lines.length > MOST && html`<p class="muted">${MOST} of ${step.lines.length} lines are shown, those that failed first.</p>`}
  </details></li>`;
}

function Rows({ lines, onGolden }) {
  const tables = [...new Set(lines.flatMap((line) => Object.keys(line.rows)))];
  return tables.map((table) => {
    const having = lines.filter((line) => line.rows[table]?.length);
    const columns = [...new Set(having.flatMap((line) => line.rows[table].flatMap(Object.keys)))];
    return html`<div key=${table} class="scroll" tabindex="0" role="region" aria-label=${`Rows of ${table}`}>
      <table class="grid"><caption>${table}: ${counted(having.length, "line")}</caption>
        <thead><tr>${columns.map((name) => html`<th scope="col" key=${name}>${name}</th>`)}${onGolden && html`<th scope="col"><span class="hidden">Golden</span></th>`}</tr></thead>
        <tbody>${having.slice(0, MOST).flatMap((line, number) =>
          line.rows[table].map(
            (row, at) => html`<tr key=${`${number} ${at}`}>${columns.map((name) => html`<td key=${name} class="long">${shownValue(row[name])}</td>`)}
              ${onGolden && html`<td>${at === 0 && html`<button type="button" class="button small" title=${line.line} onClick=${() => onGolden(line)}>Keep as golden</button>`}</td>`}</tr>`,
          ),
        )}</tbody></table></div>`;
  });
}

/** Golden lines that make other rows than they must. */
export function GoldenFailures({ failures }) {
  if (!failures?.length) return null;
  return html`<${Notice} title=${`${counted(failures.length, "golden line")} ${failures.length === 1 ? "makes" : "make"} other rows`}>
    <ul>${failures.map((each) => html`<li key=${each.line}><code>${shownLine(each.line)}</code>
      <div>must make <code>${shownExactly(each.expected)}</code></div><div>makes <code>${shownExactly(each.actual)}</code></div></li>`)}</ul>
  </${Notice}>`;
}

/** The answer of a preview. */
export function Result({ shown, error, busy, onGolden }) {
  const lines = shown?.lines ?? [];
  const known = lines.filter((line) => !line.unknown).length;
  const percent = lines.length ? Math.round((100 * known) / lines.length) : 0;
  return html`<section class="results" aria-label="Result" aria-busy=${busy}>
    <h2>Result</h2>
    ${error && html`<${Notice} title="The rules can't be tried">${error}</${Notice}>`}
    ${!error && lines.length === 0 && html`<${Empty} title="No lines yet">Give some lines on the left: each step shows what it makes of them.</${Empty}>`}
    ${!error &&
    lines.length > 0 &&
    html`<p class="matched" role="status"><strong>${percent} %</strong> matched: ${known} of ${counted(lines.length, "line")}
        <meter min="0" max="100" value=${percent} aria-label="Matched lines">${percent} %</meter></p>
      <${GoldenFailures} failures=${shown.golden} />
      ${shown.conflicts?.length > 0 && html`<${Notice} tone="warning" title="The schema registry would refuse this">${shown.conflicts.join("\n")}</${Notice}>`}
      ${shown.groups.map(
        (group, number) => html`<div class="group-result" key=${number}><h3 class="long">${group.table} / ${group.group} <span class="muted">${group.accepted} of ${group.tried} lines, ${Math.round(Number(shownExactly(group.percent)))} %</span></h3>
          <ol class="step-results">${group.steps.map((step) => html`<${Step} key=${step.step} step=${step} lines=${lines} />`)}</ol></div>`,
      )}
      <h3>Rows</h3>
      ${known === 0 && html`<p class="muted">None: all lines go to unknown_table.</p>`}
      <${Rows} lines=${lines} onGolden=${onGolden} />`}
  </section>`;
}
