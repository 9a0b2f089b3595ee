/** What a flow would do: plan, preview of each step, and where columns come from. */
import { shownExactly } from "./exact.js";
import { named } from "./flow-form.js";
import { counted, Empty, html, Notice } from "./ui.js";

const MOST = 50;

function shown(value) {
  if (value === null || value === undefined) return html`<span class="muted">null</span>`;
  return shownExactly(value);
}

function Lines({ title, lines }) {
  return lines?.length > 0 && html`<h3>${title}</h3><ul class="plan-lines">${lines.map((line, number) => html`<li key=${number} class="long">${line}</li>`)}</ul>`;
}

/** The answer of a plan. */
export function Plan({ plan }) {
  if (!plan) return html`<${Empty} title="Not planned yet">A plan says what the flow would do. It starts no Spark and writes nothing.</${Empty}>`;
  return html`${plan.valid
      ? html`<${Notice} tone="info" title="It can work">${plan.warnings?.length ? `With ${counted(plan.warnings.length, "warning")}.` : "There are no warnings."}</${Notice}>`
      : html`<${Notice} title="It can't work yet"><ul>${plan.errors.map((error, number) => html`<li key=${number}>${error.option && html`<code>${error.option}</code>: `}${error.message}</li>`)}</ul></${Notice}>`}
    ${plan.warnings?.length > 0 && html`<${Notice} tone="warning"><ul>${plan.warnings.map((each) => html`<li key=${each}>${each}</li>`)}</ul></${Notice}>`}
    <${Lines} title="Source" lines=${plan.source} />
    ${(plan.sinks ?? []).map((sink) => html`<${Lines} key=${sink.name} title=${`Sink ${sink.name || sink.type}: ${sink.guarantee}`} lines=${[sink.reason, ...sink.plan]} />`)}
    <${Lines} title="State" lines=${plan.state?.map((each) => `${each.of}: ${each.keeps}`)} />
    <${Lines} title="Effect of the edit" lines=${plan.edit?.effects.map((each) => `${each.part}: ${each.effect}. ${each.reason}`)} />`;
}

function Rows({ table, where }) {
  const columns = table.columns.map((column) => column.name);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Rows of ${table.table} ${where}`}><table class="grid">
    <caption>${named(table.table)}: ${counted(table.count, "row")}</caption>
    <thead><tr><th scope="col">op</th>${table.columns.map((column) => html`<th scope="col" key=${column.name} title=${column.type ?? ""}>${column.name}${table.key.includes(column.name) ? " *" : ""}</th>`)}</tr></thead>
    <tbody>${table.rows.slice(0, MOST).map((row, number) => html`<tr key=${number} title=${row.record}><td>${row.op}</td>${columns.map((name) => html`<td key=${name} class="long">${shown(row.values[name])}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

function Problems({ title, entries, count }) {
  return count > 0 && html`<details><summary>${count} ${title}</summary><ul class="plan-lines">${entries.slice(0, MOST).map(
    (each, number) => html`<li key=${number} class="long">${each.record}: ${each.reason}</li>`,
  )}</ul></details>`;
}

/** The answer of a preview. */
export function Preview({ preview }) {
  if (!preview) return html`<${Empty} title="No preview yet">A preview shows the newest rows after each step. Nothing is written.</${Empty}>`;
  return html`<p class="facts" role="status"><span>${counted(preview.records, "record")}</span><span>${(preview.duration_ms / 1000).toFixed(1)} s</span><span>application ${preview.application}</span></p>
    ${preview.error && html`<${Notice} title="There are no further rows">${preview.error}</${Notice}>`}
    ${preview.warnings.length > 0 && html`<${Notice} tone="warning">${preview.warnings.join("\n")}</${Notice}>`}
    <h3>Before the first step</h3>
    <${Problems} title="can't be decoded" entries=${preview.errors} count=${preview.errors.length} />
    ${preview.inputs.map((table) => html`<${Rows} key=${table.table} table=${table} where="before the first step" />`)}
    ${preview.inputs.length === 0 && html`<p class="muted">No rows.</p>`}
    ${preview.steps.map(
      (step) => html`<h3 key=${step.name}>${step.name} <span class="muted">${step.type} · ${step.rows_in} in, ${step.rows_out} out</span></h3>
        ${step.error && html`<${Notice} title="The step can't be computed">${step.error}</${Notice}>`}
        <${Problems} title=${step.error_count === 1 ? "row fails" : "rows fail"} entries=${step.errors} count=${step.error_count} />
        <${Problems} title="left out" entries=${step.dropped} count=${step.dropped_count} />
        <${Problems} title="with another operation" entries=${step.changed} count=${step.changed_count} />
        ${step.tables.map((table) => html`<${Rows} key=${table.table} table=${table} where=${`after ${step.name}`} />`)}`,
    )}`;
}

/** The tables after the last step that says so, and what their columns are made of. */
export function Lineage({ plan }) {
  const stages = plan ? [{ name: "source", tables: plan.tables ?? [] }, ...(plan.steps ?? [])] : [];
  const known = stages.filter((stage) => stage.tables?.length);
  if (known.length === 0) {
    return html`<${Empty} title="Columns are not known yet">They are known once the flow has run, and with SQL that names its columns. Ask for a plan.</${Empty}>`;
  }
  const last = known[known.length - 1];
  return html`<ol class="chain" aria-label="Stages">${stages.map((stage) => html`<li key=${stage.name}><strong>${stage.name}</strong>${(stage.tables ?? []).map((table) => html`<div class="muted long" key=${table.table}>${named(table.table)}</div>`)}</li>`)}
      ${(plan.sinks ?? []).map((sink) => html`<li key=${`sink ${sink.name}`}><strong>${sink.type}</strong><div class="muted">sink</div></li>`)}</ol>
    ${last.tables.map(
      (table) => html`<div key=${table.table} class="scroll" tabindex="0" role="region" aria-label=${`Columns of ${table.table}`}><table class="grid"><caption>${named(table.table)}</caption>
        <thead><tr><th scope="col">Column</th><th scope="col">Type</th><th scope="col">Made of</th><th scope="col">By</th></tr></thead>
        <tbody>${table.columns.map(
          (column) => html`<tr key=${column.name}><td>${column.name}${column.key ? " *" : ""}</td><td class="muted">${column.type ?? "known at the start"}</td>
            <td class="long">${(column.from ?? []).map((from) => `${named(from.table)}.${from.column}`).join(", ") || "–"}</td><td class="long"><code>${column.expression ?? ""}</code></td></tr>`,
        )}</tbody></table>${(table.conditions ?? []).map((each, number) => html`<p class="muted" key=${number}>Rows of ${named(each.table)} pass where <code>${each.condition}</code></p>`)}</div>`,
    )}`;
}
