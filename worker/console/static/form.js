/** Create a connector, or change one: a form made of its declarations. */
import { call, connectorPath, curl, has, lacks } from "./api.js";
import { basic, chosenTables, CLASS, difference, grouped, HIDDEN, javaKinds, kinds, NAME, patchOf, readUpload, referenceTo, TABLE_OPTIONS, tablesValue } from "./options.js";
import { go, placeHref, useGo } from "./place.js";
import { Button, Calls, Dialog, Empty, html, Notice, useEffect, useLoaded, useMemo, useRef, useState } from "./ui.js";
import { useUnsaved } from "./unsaved.js";

/** How many tables are shown at once. */
const MOST_TABLES = 500;

function Choose({ onChoose }) {
  const [plugins, error] = useLoaded(() => call("GET", "connector-plugins"), []);
  const [q, setQ] = useState("");
  const [problem, setProblem] = useState("");
  const upload = async (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (!file) return;
    try {
      const config = readUpload(await file.text());
      if (!config[CLASS]) throw new Error(`The file names no ${CLASS}.`);
      onChoose(config);
    } catch (failure) {
      setProblem(failure.message);
    }
  };
  if (error) return html`<${Notice}>${error.message}</${Notice}>`;
  if (!plugins) return html`<p class="muted">One moment …</p>`;
  const fitting = plugins.filter((each) => each.class.toLowerCase().includes(q.toLowerCase()));
  const { own, java } = has("tables") ? kinds(fitting) : { own: javaKinds(fitting), java: [] };
  const cards = (list) => html`<ul class="plugins">${list.map(
    (each) => html`<li key=${each.class}><button type="button" class="plugin card" title=${each.class} onClick=${() => onChoose({ [CLASS]: each.class })}>
      <strong class="long">${each.label}</strong><span class="muted long">${each.note}</span>
    </button></li>`,
  )}</ul>`;
  return html`<div class="filters">
      <label class="search"><span class="hidden">Filter</span><input type="search" placeholder="Filter the kinds" value=${q} onInput=${(event) => setQ(event.target.value)} /></label>
      <label class="button file">Upload a configuration<input type="file" accept=".json,application/json" onChange=${upload} /></label>
    </div>
    ${problem && html`<${Notice} title="The file can't be used">${problem}</${Notice}>`}
    ${cards(own)}
    ${java.length > 0 && html`<details open=${Boolean(q) || own.length === 0}><summary>By the classes of Java connectors that they stand for (${java.length})</summary>${cards(java)}</details>`}
    ${own.length + java.length === 0 && html`<${Empty} title="Nothing fits the filter">Plugins are found in the folders of plugin.path.</${Empty}>`}
    <${Calls} calls=${[curl("GET", "connector-plugins")]} />`;
}

/** The tables that the source has, to be chosen; `found` is the answer of the worker. */
function ChooseTables({ found, value, onClose, onChosen }) {
  const [chosen, setChosen] = useState(() => chosenTables(found, value));
  const [q, setQ] = useState("");
  const fits = found.tables.filter((name) => name.toLowerCase().includes(q.toLowerCase()));
  const toggle = (name) => setChosen((before) => (before.includes(name) ? before.filter((each) => each !== name) : [...before, name]));
  return html`<${Dialog} title="Tables to capture" onClose=${onClose}>
    ${found.tables.length === 0
      ? html`<${Empty} title="There are no tables">Or the account can't see them.</${Empty}>`
      : html`<label class="search"><span class="hidden">Find a table</span><input type="search" placeholder="Find a table" value=${q} onInput=${(event) => setQ(event.target.value)} /></label>
        <ul class="names tables" tabindex="0" aria-label="Tables">${fits.slice(0, MOST_TABLES).map(
          (name) => html`<li key=${name}><label class="check long"><input type="checkbox" checked=${chosen.includes(name)} onChange=${() => toggle(name)} /> ${name}</label></li>`,
        )}</ul>
        ${fits.length > MOST_TABLES && html`<p class="muted">${MOST_TABLES} of ${fits.length} are shown: find fewer.</p>`}
        <p role="status">${chosen.length} of ${found.tables.length} chosen</p>`}
    <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel</${Button}>
      <${Button} kind="primary" disabled=${chosen.length === 0} onClick=${() => onChosen(found.option, tablesValue(found, chosen))}>Take these</${Button}></div>
  </${Dialog}>`;
}

function Input({ option, value, recommended, providers, id, described, invalid, onInput, onLeave }) {
  const common = { id, "aria-describedby": described, "aria-invalid": invalid, "aria-required": option.required, onBlur: onLeave };
  const change = (event) => onInput(event.target.value);
  if (option.type === "BOOLEAN") {
    const base = option.default_value === null ? "not set" : `${option.default_value}, the default`;
    return html`<select ...${common} value=${value ?? ""} onChange=${change}>
      <option value="">${base}</option><option value="true">true</option><option value="false">false</option>
    </select>`;
  }
  if (option.type === "PASSWORD" || value === HIDDEN) {
    const kept = value === HIDDEN;
    // A reference is no secret: it is shown as it is written.
    const reference = !kept && (value ?? "").startsWith("${");
    return html`<input ...${common} type=${reference ? "text" : "password"} autocomplete="new-password" value=${kept ? "" : (value ?? "")} onInput=${change}
      placeholder=${kept ? "unchanged" : "a secret, or a reference"} />
      ${providers.length > 0 &&
      html`<span class="tools references">${providers.map(
        (name) => html`<${Button} key=${name} kind="small" aria-label=${`${referenceTo(name)} for ${option.name}`} onClick=${() => {
          onInput(referenceTo(name));
          document.getElementById(id).focus();
        }}>${referenceTo(name)}</${Button}>`,
      )}</span>`}`;
  }
  const list = recommended.length > 0 ? `${id}-list` : undefined;
  return html`<input ...${common} list=${list} spellcheck=${false} autocomplete="off" value=${value ?? ""} onInput=${change}
      inputmode=${["INT", "LONG", "SHORT"].includes(option.type) ? "numeric" : undefined}
      placeholder=${option.default_value ?? ""} />
    ${list && html`<datalist id=${list}>${recommended.map((each) => html`<option key=${each} value=${each}></option>`)}</datalist>`}`;
}

function Field({ option, info, value, errors, providers = [], onInput, onLeave, children = null }) {
  const id = `o-${option.name}`;
  const help = `${id}-help`;
  return html`<div class=${`option ${errors.length ? "wrong" : ""}`}>
    <label for=${id}>${option.display_name && option.display_name !== option.name ? html`${option.display_name} <code>${option.name}</code>` : option.name}${option.required && html`${" "}<span class="required">needed</span>`}</label>
    <${Input} option=${option} value=${value} recommended=${(info?.recommended_values ?? []).filter(Boolean)} providers=${providers} id=${id}
      described=${help} invalid=${errors.length > 0} onInput=${onInput} onLeave=${onLeave} />
    <div id=${help}>
      ${errors.map((error) => html`<p class="error-text" role="alert" key=${error}>${error}</p>`)}
      ${children}
      ${option.documentation && html`<p class="help">${option.documentation}</p>`}
    </div>
  </div>`;
}

function Others({ names, values, errors, onInput, onLeave, onAdd }) {
  const [name, setName] = useState("");
  const add = (event) => {
    event.preventDefault();
    if (name.trim()) onAdd(name.trim());
    setName("");
  };
  return html`<fieldset class="group card"><legend>Other properties</legend>
    <p class="help">Transforms, converters, topic creation, clients' properties: whatever the kind itself does not declare.</p>
    ${names.map((each) => html`<${Field} key=${each} option=${{ name: each, type: "STRING", documentation: "", required: false, default_value: null }}
      value=${values[each]} errors=${errors(each)} onInput=${(value) => onInput(each, value)} onLeave=${() => onLeave(each)} />`)}
    <div class="add"><label class="field">Name<input value=${name} spellcheck=${false} onInput=${(event) => setName(event.target.value)}
      onKeyDown=${(event) => event.key === "Enter" && add(event)} placeholder="transforms" /></label>
      <${Button} onClick=${add} disabled=${!name.trim()}>Add</${Button}></div>
  </fieldset>`;
}

function Review({ before, after, method, path, body, onClose, onSend }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const changes = difference(before, after);
  const send = async () => {
    setBusy(true);
    try {
      await call(method, path, body);
      onSend();
    } catch (problem) {
      setError(problem.message);
      setBusy(false);
    }
  };
  const creates = method === "POST";
  const shown = (value) => (value === undefined ? html`<span class="muted">–</span>` : value);
  return html`<${Dialog} title=${creates ? "Create this connector?" : "Change the configuration?"} onClose=${onClose} wide>
    <div class="scroll" tabindex="0" role="region" aria-label="Properties">
      <table class="diff"><thead><tr><th scope="col">Property</th>${!creates && html`<th scope="col">Now</th>`}<th scope="col">${creates ? "Value" : "Then"}</th></tr></thead>
      <tbody>${changes.map((each) => html`<tr key=${each.name}><th scope="row">${each.name}</th>
        ${!creates && html`<td class="old">${shown(each.before)}</td>`}<td class="new">${shown(each.after)}</td></tr>`)}</tbody></table>
    </div>
    ${!creates && html`<p class="muted">The tasks start again with it.</p>`}
    <${Calls} calls=${[curl(method, path, body)]} />
    ${error && html`<${Notice} title="It was refused">${error}</${Notice}>`}
    <div class="dialog-actions"><${Button} onClick=${onClose}>Back</${Button}>
      <${Button} kind="primary" busy=${busy} onClick=${send}>${creates ? "Create" : "Change"}</${Button}></div>
  </${Dialog}>`;
}

/** The options of a kind. Before Kafka 3.2 a validation alone tells them. */
async function declarations(plugin) {
  const path = `connector-plugins/${encodeURIComponent(plugin)}/config`;
  if (!lacks("declarations")) return call("GET", path);
  const answer = await call("PUT", `${path}/validate`, { [CLASS]: plugin, [NAME]: "declarations" });
  return answer.configs.map((each) => each.definition);
}

function Form({ start, existing, onBack }) {
  const [values, setValues] = useState(start);
  const [left, setLeft] = useState(new Set());
  const [infos, setInfos] = useState(null);
  const [failure, setFailure] = useState("");
  const [busy, setBusy] = useState(false);
  const [more, setMore] = useState(false);
  const [q, setQ] = useState("");
  const [review, setReview] = useState(null);
  const turn = useRef(0);
  const goOn = useGo();
  const plugin = start[CLASS];
  const [declared, error] = useLoaded(() => declarations(plugin), [plugin]);
  const groups = useMemo(() => grouped(declared ?? []), [declared]);
  const known = useMemo(() => new Set((declared ?? []).map((each) => each.name)), [declared]);
  const [providers] = useLoaded(async () => (has("providers") ? call("GET", "console/providers") : []), []);
  const [choosing, setChoosing] = useState(null);
  const [asking, setAsking] = useState("");
  const [asked, setAsked] = useState(null);
  const dirty = existing ? difference(start, values).length > 0 : Object.keys(values).some((name) => name !== CLASS);
  const leave = useUnsaved(dirty);

  const check = async () => {
    const mine = ++turn.current;
    try {
      const found = existing
        ? await call("PUT", `console/connectors/${encodeURIComponent(existing)}/check`, patchOf(start, values))
        : await call("PUT", `connector-plugins/${encodeURIComponent(plugin)}/config/validate`, values);
      const byName = Object.fromEntries(found.configs.map((each) => [each.value.name, each.value]));
      if (mine === turn.current) {
        setInfos(byName);
        setFailure("");
      }
      return byName;
    } catch (problem) {
      if (mine === turn.current) setFailure(problem.message);
      return null;
    }
  };
  useEffect(() => {
    if (declared) check();
  }, [declared]);
  const input = (name, value) =>
    setValues((before) => {
      const next = { ...before };
      if (value === "" && start[name] === HIDDEN) next[name] = HIDDEN;
      else if (value === "" && !(existing && name in start)) delete next[name];
      else next[name] = value;
      return next;
    });
  const blur = (name) => {
    setLeft((before) => new Set(before).add(name));
    check();
  };
  /** Ask the source for its tables. */
  const choose = async () => {
    setAsking("tables");
    setAsked(null);
    try {
      const found = existing
        ? await call("PUT", `console/connectors/${encodeURIComponent(existing)}/tables`, patchOf(start, values))
        : await call("PUT", "console/tables", values);
      setChoosing(found);
    } catch (problem) {
      setAsked({ tone: "error", title: "The tables can't be read", text: problem.message });
    }
    setAsking("");
  };
  /** Check everything now, with the systems that it names. */
  const test = async () => {
    setAsking("test");
    setAsked(null);
    const found = await check();
    const bad = Object.values(found ?? {}).filter((each) => each.errors.length > 0);
    setLeft((before) => new Set([...before, ...bad.map((each) => each.name)]));
    if (found && bad.length === 0) setAsked({ tone: "info", title: "It works", text: "The systems that it names answer, and all options are right." });
    else if (found) setAsked({ tone: "error", title: "It does not work yet", text: bad.map((each) => `${each.name}: ${each.errors.join(" ")}`).join("\n") });
    setAsking("");
  };
  const errorsOf = (name) => (left.has(name) ? (infos?.[name]?.errors ?? []) : []);
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    const found = await check();
    setBusy(false);
    if (!found) return;
    const wrong = Object.values(found).filter((each) => each.errors.length > 0);
    if (wrong.length > 0) {
      setMore(true);
      setLeft(new Set([...left, ...wrong.map((each) => each.name)]));
      requestAnimationFrame(() => document.getElementById(`o-${wrong[0].name}`)?.focus());
      return;
    }
    const kept = Object.fromEntries(Object.entries(values).filter(([name, value]) => value !== "" || start[name] === ""));
    setReview(
      existing
        ? { before: start, after: kept, method: "PATCH", path: `console/${connectorPath(existing, "/config")}`, body: patchOf(start, kept) }
        : { before: {}, after: kept, method: "POST", path: "connectors", body: { name: kept[NAME], config: kept } },
    );
  };
  if (error) return html`<${Notice} title="The options can't be read">${error.message}</${Notice}>`;
  if (!declared) return html`<p class="muted">One moment …</p>`;

  const wrong = Object.values(infos ?? {}).filter((each) => each.errors.length > 0 && left.has(each.name));
  const fits = (option) => {
    if (infos?.[option.name]?.visible === false) return false;
    if (q) return `${option.name} ${option.documentation ?? ""}`.toLowerCase().includes(q.toLowerCase());
    return more || basic(option, values) || errorsOf(option.name).length > 0;
  };
  const field = (option) => html`<${Field} key=${option.name} option=${option} info=${infos?.[option.name]} value=${values[option.name]}
    errors=${errorsOf(option.name)} providers=${providers ?? []} onInput=${(value) => input(option.name, value)} onLeave=${() => blur(option.name)}>
    ${has("tables") && TABLE_OPTIONS.includes(option.name) && html`<${Button} kind="small" busy=${asking === "tables"} onClick=${choose}>Choose from the source's tables …</${Button}>`}
  </${Field}>`;
  const changed = difference(start, values).length;
  const others = Object.keys(values).filter((name) => !known.has(name) && name !== NAME && name !== CLASS);
  return html`<form class="form" onSubmit=${send} novalidate>
    <div class="filters">
      <label class="search"><span class="hidden">Find an option</span><input type="search" placeholder="Find an option" value=${q} onInput=${(event) => setQ(event.target.value)}
        onKeyDown=${(event) => event.key === "Enter" && event.preventDefault()} /></label>
      <label class="check"><input type="checkbox" checked=${more} onChange=${(event) => setMore(event.target.checked)} /> All ${known.size} options</label>
    </div>
    ${!existing && html`<div class="group card">${field({ name: NAME, type: "STRING", required: true, default_value: null, documentation: "The connector's name; it stays the same for good." })}</div>`}
    ${groups.map((group) => {
      const options = group.options.filter(fits);
      return options.length > 0 && html`<fieldset class="group card" key=${group.name}><legend>${group.name}</legend>${options.map(field)}</fieldset>`;
    })}
    ${!q && html`<${Others} names=${others} values=${values} errors=${errorsOf} onInput=${input} onLeave=${blur} onAdd=${(name) => setValues((before) => ({ ...before, [name]: before[name] ?? "" }))} />`}
    <div class="form-foot">
      ${failure && html`<${Notice} title="The configuration could not be checked">${failure}</${Notice}>`}
      ${asked && html`<${Notice} tone=${asked.tone} title=${asked.title}>${asked.text}</${Notice}>`}
      ${wrong.length > 0 && html`<p class="error-text" role="status">${wrong.length === 1 ? "1 option is" : `${wrong.length} options are`} not right yet: ${wrong.map((each) => each.name).join(", ")}</p>`}
      <div class="dialog-actions">
        <${Button} onClick=${onBack}>${existing ? "Cancel" : "Another kind"}</${Button}>
        <${Button} busy=${asking === "test"} onClick=${test}>Test connection</${Button}>
        <${Button} kind="primary" type="submit" busy=${busy} disabled=${Boolean(existing) && changed === 0}>Check and ${existing ? "change" : "create"} …</${Button}>
      </div>
    </div>
    ${choosing &&
    html`<${ChooseTables} found=${choosing} value=${values[choosing.option] ?? ""} onClose=${() => setChoosing(null)} onChosen=${(name, value) => {
      input(name, value);
      setChoosing(null);
      requestAnimationFrame(() => document.getElementById(`o-${name}`)?.focus());
    }} />`}
    ${leave}
    ${review && html`<${Review} ...${review} onClose=${() => setReview(null)} onSend=${() => goOn(placeHref(["connectors", existing ?? values[NAME]]))} />`}
  </form>`;
}

function Existing({ name }) {
  const [found, error] = useLoaded(() => call("GET", `console/connectors/${encodeURIComponent(name)}/config`), [name]);
  if (error) return html`<${Notice}>${error.message}</${Notice}>`;
  if (!found) return html`<p class="muted">One moment …</p>`;
  return html`<${Form} start=${found} existing=${name} onBack=${() => go(placeHref(["connectors", name, "config"]))} />`;
}

export function EditPage({ name }) {
  const [start, setStart] = useState(null);
  if (name !== null) {
    return html`<div class="page"><p class="crumbs"><a href="#/connectors">Connectors</a> / <a href=${placeHref(["connectors", name])}>${name}</a></p>
      <div class="head"><h1 class="long">Edit ${name}</h1></div><${Existing} name=${name} /></div>`;
  }
  return html`<div class="page"><p class="crumbs"><a href="#/connectors">Connectors</a></p>
    <div class="head"><h1>${start ? html`New connector: <span class="long">${start[CLASS].split(".").pop()}</span>` : "New connector"}</h1></div>
    ${start ? html`<${Form} start=${start} existing=${null} onBack=${() => setStart(null)} />` : html`<${Choose} onChoose=${setStart} />`}</div>`;
}
