/** The tables, groups and steps of a rule set, to be changed one by one. */
import { moved, operatorOf, optionsText, stepOf, withSteps } from "./rule-form.js";
import { Button, html, useEffect, useState } from "./ui.js";

function Step({ step, number, last, operators, id, writes, onChange, onMove, onRemove }) {
  const operator = operatorOf(step);
  const now = optionsText(step);
  const [text, setText] = useState(now);
  const [wrong, setWrong] = useState("");
  useEffect(() => {
    if (!wrong) setText(now);
  }, [now]);
  const declared = operators.find((each) => each.name === operator);
  const input = (value) => {
    setText(value);
    try {
      onChange(stepOf(operator, value));
      setWrong("");
    } catch (problem) {
      setWrong(`This is not JSON: ${problem.message}`);
    }
  };
  return html`<li class="step">
    <div class="step-head"><span class="step-number">${number + 1}</span> <label for=${id}><strong>${operator}</strong></label>
      ${writes &&
      html`<span class="tools"><${Button} kind="small" id=${`${id}-up`} aria-label=${`Move step ${number + 1} up`} disabled=${number === 0} onClick=${() => onMove(-1)}>↑</${Button}>
        <${Button} kind="small" id=${`${id}-down`} aria-label=${`Move step ${number + 1} down`} disabled=${last} onClick=${() => onMove(1)}>↓</${Button}>
        <${Button} kind="small" id=${`${id}-remove`} aria-label=${`Remove step ${number + 1}`} onClick=${onRemove}>×</${Button}></span>`}</div>
    <textarea id=${id} rows=${Math.min(6, Math.ceil(text.length / 44) || 1)} spellcheck=${false} readonly=${!writes} value=${text} aria-invalid=${Boolean(wrong)} onInput=${(event) => input(event.target.value)}></textarea>
    ${wrong && html`<p class="error-text" role="alert">${wrong}</p>`}
    ${declared &&
    html`<details class="help"><summary>${declared.text}</summary>
      <dl>${declared.options.map((option) => html`<div key=${option.name}><dt><code>${option.name}</code> ${option.type}${option.default === "" ? ", needed" : ""}</dt><dd>${option.text}</dd></div>`)}</dl></details>`}
  </li>`;
}

/** What is written for the options of a new step: those that are needed. */
function firstOptions(operator) {
  const empty = { list: [], map: {}, number: 0, "true or false": false };
  return Object.fromEntries(operator.options.filter((option) => option.default === "").map((option) => [option.name, empty[option.type] ?? ""]));
}

/** Focus the button of a step that has moved, or the next one's: the step is drawn at another place. */
function focusButton(id, button) {
  requestAnimationFrame(() => document.getElementById(`${id}-${button}`)?.focus());
}

/** All steps of a rule set. */
export function Steps({ rules, operators, writes, onChange }) {
  const idOf = (table, group, place) => `step-${table}-${group}-${place}`;
  const move = (table, group, place, by) => {
    change(table, group, (steps) => moved(steps, place, place + by));
    focusButton(idOf(table, group, place + by), by < 0 ? "up" : "down");
  };
  const remove = (table, group, place, last) => {
    change(table, group, (steps) => steps.filter((_, index) => index !== place));
    focusButton(idOf(table, group, last ? place - 1 : place), "remove");
  };
  const change = (table, group, to) => onChange(withSteps(rules, table, group, to));
  const rename = (table, name) => onChange({ ...rules, tables: rules.tables.map((each, at) => (at === table ? { ...each, name } : each)) });
  const without = (table) => onChange({ ...rules, tables: rules.tables.filter((_, at) => at !== table) });
  return rules.tables.map(
    (table, at) => html`<div class="table-rules card" key=${at}>
      <div class="split"><label class="field">Table<input value=${table.name} readonly=${!writes} spellcheck=${false} onInput=${(event) => rename(at, event.target.value)} /></label>
        ${writes && rules.tables.length > 1 && html`<${Button} kind="small" onClick=${() => without(at)}>Remove ${table.name}</${Button}>`}</div>
      ${table.groups.map(
        (group, number) => html`<div key=${number}><h3 class="long">Group ${group.name}</h3>
          <ol class="steps">${group.steps.map(
            (step, place) => html`<${Step} key=${`${place} ${operatorOf(step)}`} id=${idOf(at, number, place)} step=${step} number=${place} last=${place === group.steps.length - 1}
              operators=${operators} writes=${writes} onChange=${(next) => change(at, number, (steps) => steps.map((each, index) => (index === place ? next : each)))}
              onMove=${(by) => move(at, number, place, by)} onRemove=${() => remove(at, number, place, place === group.steps.length - 1)} />`,
          )}</ol>
          ${writes &&
          html`<label class="field">Add a step
            <select value="" onChange=${(event) => {
              const operator = operators.find((each) => each.name === event.target.value);
              event.target.value = "";
              if (operator) change(at, number, (steps) => [...steps.slice(0, -1), { [operator.name]: firstOptions(operator) }, ...steps.slice(-1)]);
            }}><option value="">before the last one …</option>
              ${operators.map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}</select></label>`}</div>`,
      )}
    </div>`,
  );
}
