/** A rule set while it is made: samples on the left, steps in the middle, the result on the right. */
import { call, curl } from "./api.js";
import { exact } from "./exact.js";
import { placeHref } from "./place.js";
import { FIRST, hasForm, joined, withGolden } from "./rule-form.js";
import { Result } from "./rule-result.js";
import { sampleBody, Samples } from "./rule-samples.js";
import { Steps } from "./rule-steps.js";
import { Button, Calls, Dialog, html, Notice, useEffect, useLoaded, useRef, useState } from "./ui.js";
import { useUnsaved } from "./unsaved.js";

/** How long nobody types before the rules are tried. */
const QUIET_MS = 400;
/** Where rules that are proposed for unknown lines wait for the editor. */
let carried = null;

/** Take a proposal along to the editor. */
export function carry(proposal) {
  carried = proposal;
}

async function opened(set, query) {
  const version = query.get("version");
  const stored = !set ? FIRST : version ? (await call("GET", `rules/${encodeURIComponent(set.name)}/versions/${encodeURIComponent(version)}`, undefined, {}, exact)).rules : set.rules;
  const taken = query.has("proposed") ? carried : null;
  const base = taken?.rules ?? stored;
  if (!taken) return { rules: base, note: version ? `Version ${version} is open: saving it makes it the newest one.` : "" };
  const { rules } = await call("POST", "console/rules/read", { rules: base }, {}, exact);
  return { rules: joined(rules, taken.proposed), note: "The proposed rule is added. Nothing is saved yet." };
}

function Save({ name, rules, connector, onClose, onSaved }) {
  const [target, setTarget] = useState(name ?? connector ?? "");
  const [comment, setComment] = useState("");
  const [force, setForce] = useState(false);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const [use, setUse] = useState(Boolean(connector));
  const path = `rules/${encodeURIComponent(target)}${force ? "?force=true" : ""}`;
  const patch = { rules: null, "rules.file": null, "rules.name": target };
  const patchPath = `console/connectors/${encodeURIComponent(connector ?? "")}/config`;
  const send = async () => {
    setBusy(true);
    try {
      await call("PUT", path, { rules, comment }, {}, exact);
      if (connector && use) await call("PATCH", patchPath, patch);
      onSaved(target);
    } catch (failure) {
      setError(failure.message);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${name ? `Save a new version of ${name}?` : "Save the rule set"} onClose=${onClose} wide>
    ${!name && html`<label class="field">Name<input value=${target} spellcheck=${false} onInput=${(event) => setTarget(event.target.value)} /></label>`}
    <label class="field">Comment<input value=${comment} placeholder="What changes, and why" onInput=${(event) => setComment(event.target.value)} /></label>
    ${connector && html`<p><label class="check"><input type="checkbox" checked=${use} onChange=${(event) => setUse(event.target.checked)} /> Let ${connector} run it instead of its own rules</label></p>`}
    <p class="muted">Golden lines, versions of tables and the schema registry are checked first. Connectors that name it without a version take it over at once.</p>
    ${error &&
    html`<${Notice} title="It was refused">${error}</${Notice}>
      <label class="check"><input type="checkbox" checked=${force} onChange=${(event) => setForce(event.target.checked)} /> Save it all the same (rules that can't work are refused in any case)</label>`}
    <${Calls} calls=${[curl("PUT", path, { rules, comment }, exact), ...(connector && use ? [curl("PATCH", patchPath, patch)] : [])]} />
    <div class="dialog-actions"><${Button} onClick=${onClose}>Cancel</${Button}>
      <${Button} kind=${force ? "danger" : "primary"} busy=${busy} disabled=${!target} onClick=${send}>Save</${Button}></div>
  </${Dialog}>`;
}

function useTried(rules, samples, writes) {
  const [state, setState] = useState({ shown: null, error: "", busy: false });
  const turn = useRef(0);
  const body = rules === null ? null : { rules, ...sampleBody(samples) };
  const key = JSON.stringify(body);
  useEffect(() => {
    if (!writes || body === null || body.lines?.length === 0) {
      setState({ shown: null, error: "", busy: false });
      return undefined;
    }
    const mine = ++turn.current;
    setState((before) => ({ ...before, busy: true }));
    const timer = setTimeout(async () => {
      try {
        const shown = await call("POST", "rules/preview", body, {}, exact);
        if (mine === turn.current) setState({ shown, error: "", busy: false });
      } catch (failure) {
        if (mine === turn.current) setState({ shown: null, error: failure.message, busy: false });
      }
    }, QUIET_MS);
    return () => {
      clearTimeout(timer);
      turn.current++;
    };
  }, [key, writes]);
  return { ...state, body };
}

/** The editor; `set` is null for a new rule set. */
export function RuleEditor({ name, set, writes, query, onSaved }) {
  const [rules, setRules] = useState(null);
  const [note, setNote] = useState("");
  const [failure, setFailure] = useState("");
  const [text, setText] = useState(null);
  const [saving, setSaving] = useState(false);
  /** The rules as they were opened or saved, as text. */
  const [kept, setKept] = useState(null);
  const from = query.get("from") ?? "";
  const [samples, setSamples] = useState({ from, text: "" });
  const [operators, error] = useLoaded(() => call("GET", "console/rules/operators"), []);
  useEffect(() => {
    opened(set, query)
      .then((found) => {
        setRules(found.rules);
        setNote(found.note);
        const written = typeof found.rules === "string" ? found.rules : hasForm(found.rules) ? null : exact.stringify(found.rules, null, 2);
        setText(written);
        setKept(exact.stringify(written ?? found.rules));
      })
      .catch((problem) => setFailure(problem.message));
  }, []);
  const now = text ?? rules;
  const changed = kept !== null && exact.stringify(now) !== kept;
  const leave = useUnsaved(writes && changed);
  const tried = useTried(now, samples, writes);
  const swap = async (toText) => {
    try {
      const read = await call("POST", "console/rules/read", { rules: now }, {}, exact);
      if (!toText && !hasForm(read.rules)) throw new Error("It has no tables with groups of steps.");
      setRules(read.rules);
      setText(toText ? read.text : null);
      if (!changed) setKept(exact.stringify(toText ? read.text : read.rules));
      setFailure("");
    } catch (problem) {
      setFailure(problem.message);
    }
  };
  const golden = async (line) => {
    try {
      const read = await call("POST", "console/rules/read", { rules: now }, {}, exact);
      const next = withGolden(read.rules, line.line, line.rows);
      setRules(next);
      if (text !== null) setText((await call("POST", "console/rules/read", { rules: next }, {}, exact)).text);
    } catch (problem) {
      setFailure(problem.message);
    }
  };
  if (error) return html`<${Notice} title="The operators can't be read">${error.message}</${Notice}>`;
  if (rules === null || !operators) return failure ? html`<${Notice} title="The rules can't be read">${failure}</${Notice}>` : html`<p class="muted">One moment …</p>`;
  const goldenLines = text === null ? (rules.golden ?? []) : [];
  return html`${note && html`<${Notice} tone="info">${note}</${Notice}>`}
    ${!writes && html`<${Notice} tone="info">You may look at the rules. Trying and saving them needs the role admin.</${Notice}>`}
    ${failure && html`<${Notice} title="The text can't be shown as steps">${failure}</${Notice}>`}
    <div class="studio">
      ${writes && html`<${Samples} samples=${samples} onChange=${setSamples} shown=${tried.shown} />`}
      <section class="rules-steps" aria-label="Steps">
        <div class="split"><h2>Steps</h2>
          ${writes && html`<${Button} kind="small" onClick=${() => swap(text === null)}>${text === null ? "Edit as text" : "Edit as steps"}</${Button}>`}</div>
        ${text === null
          ? html`<${Steps} rules=${rules} operators=${operators} writes=${writes} onChange=${setRules} />`
          : html`<label class="field">Rules in YAML or JSON<textarea rows="22" wrap="off" spellcheck=${false} readonly=${!writes} value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
              <p class="help">Comments are lost when it is edited as steps.</p>`}
        ${goldenLines.length > 0 &&
        html`<h3>Golden lines</h3><ul class="golden">${goldenLines.map(
          (each) => html`<li key=${each.line} class="split"><code class="long">${each.line}</code>
            ${writes && html`<${Button} kind="small" aria-label=${`Remove the golden line ${each.line}`} onClick=${() => setRules({ ...rules, golden: goldenLines.filter((other) => other !== each) })}>×</${Button}>`}</li>`,
        )}</ul>`}
        ${writes && html`<p><${Button} kind="primary" onClick=${() => setSaving(true)}>Save …</${Button}></p>`}
      </section>
      ${writes && html`<${Result} shown=${tried.shown} error=${tried.error} busy=${tried.busy} onGolden=${golden} />`}
    </div>
    <${Calls} calls=${[...(name ? [curl("GET", `rules/${encodeURIComponent(name)}`)] : []), ...(tried.body ? [curl("POST", "rules/preview", tried.body, exact)] : [])]} />
    ${query.get("connector") && html`<p><a href=${placeHref(["unknown", query.get("connector")])}>Unknown lines of ${query.get("connector")}</a></p>`}
    ${leave}
    ${saving &&
    html`<${Save} name=${name} rules=${now} connector=${name ? null : query.get("connector")} onClose=${() => setSaving(false)} onSaved=${(saved) => {
      setSaving(false);
      setNote("It is saved.");
      setKept(exact.stringify(now));
      onSaved(saved);
    }} />`}`;
}
