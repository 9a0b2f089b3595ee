/** What all pages are made of: preact, and small parts. */
import { Component, Fragment, h, render } from "./preact.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./hooks.js";
import { loggedIn } from "./api.js";
import htm from "./htm.js";

export { Component, Fragment, render, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState };
export const html = htm.bind(h);

/** States in the order of their weight: what is worst comes first. */
export const STATES = ["FAILED", "UNASSIGNED", "RESTARTING", "RUNNING", "PAUSED", "STOPPED"];

/** A state as a word with a mark, never by colour alone. */
export function Badge({ state, title }) {
  return html`<span class=${`badge ${state.toLowerCase()}`} title=${title}>${state.toLowerCase()}</span>`;
}

/**
 * A button; `kind` is primary, danger or plain. It takes no click while it is disabled or busy, or while what a click has
 * called is under way; the second click of a double click starts nothing more, however quickly the first one's answer came.
 * The attribute is never `disabled`: a button that gets it loses the focus.
 */
export function Button({ kind = "plain", busy = false, disabled = false, onClick = undefined, children, ...rest }) {
  const [running, setRunning] = useState(false);
  const started = useRef(false);
  const waits = busy || running;
  const click = async (event) => {
    if (waits || disabled || (started.current && event.detail > 1)) {
      // A form is not sent either.
      event.preventDefault();
      return;
    }
    const work = onClick?.(event);
    const calls = work instanceof Promise;
    started.current = calls || rest.type === "submit";
    if (!calls) return;
    setRunning(true);
    await work.finally(() => setRunning(false));
  };
  return html`<button type="button" class=${`button ${kind}`} aria-disabled=${waits || disabled || undefined} aria-busy=${waits} ...${rest} onClick=${click}>
    ${children}
  </button>`;
}

/** A message that can't be overlooked; `tone` is error, warning or info. */
export function Notice({ tone = "error", title, children }) {
  return html`<div class=${`notice ${tone}`} role=${tone === "error" ? "alert" : "status"}>
    ${title && html`<strong>${title}</strong>`}
    <div class="notice-text">${children}</div>
  </div>`;
}

/** What stands where there is nothing to show. */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p><div>${children}</div></div>`;
}

/** Copies a text; says for a moment that it did. */
export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async (event) => {
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      // Next to the button: while a dialog is open, nothing outside of it can be selected.
      button.after(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<${Button} kind="small" onClick=${copy}><span aria-live="polite">${done ? "Copied" : label}</span></${Button}>`;
}

/** The REST calls that a page makes, as `curl`. */
export function Calls({ calls, open = false }) {
  const text = calls.join("\n");
  return html`<details class="calls" open=${open}>
    <summary>${calls.length === 1 ? "The REST call" : "The REST calls"}</summary>
    <div class="code"><pre tabindex="0" aria-label="curl">${text}</pre><${Copy} text=${text} /></div>
  </details>`;
}

/** Opens a dialog over the page; when it is gone, what had the focus before has it. */
export function useModal(ref) {
  // A layout effect ends while the dialog is still in the page: closed there, a dialog gives the focus back.
  useLayoutEffect(() => {
    const dialog = ref.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
}

/** A dialog over the page; Escape and the backdrop close it. */
export function Dialog({ title, onClose, children, wide = false }) {
  const ref = useRef(null);
  const pressed = useRef(null);
  useModal(ref);
  return html`<dialog
    ref=${ref}
    class=${wide ? "dialog wide" : "dialog"}
    aria-label=${title}
    onCancel=${(event) => {
      event.preventDefault();
      onClose();
    }}
    onClose=${() => {
      // A browser closes a dialog at the second Escape, whatever was said to the first.
      if (!ref.current?.isConnected || ref.current.open) return;
      ref.current.showModal();
      onClose();
    }}
    onMouseDown=${(event) => {
      pressed.current = event.target;
    }}
    onClick=${(event) => event.target === ref.current && pressed.current === ref.current && onClose()}
  >
    <div class="dialog-body">
      <h2>${title}</h2>
      ${children}
    </div>
  </dialog>`;
}

/** Keeps the link to what is shown in sight, in a menu that is wider than the window. */
export function useCurrentInSight(shown) {
  const menu = useRef(null);
  useLayoutEffect(() => {
    const link = menu.current.querySelector("[aria-current]");
    // Only sideways: scrollIntoView may move the page as well.
    if (link) menu.current.scrollLeft = link.offsetLeft - menu.current.offsetLeft - (menu.current.clientWidth - link.offsetWidth) / 2;
  }, [shown]);
  return menu;
}

/** Tabs as links, so that each has an address. */
export function Tabs({ tabs, active }) {
  const menu = useCurrentInSight(active);
  return html`<nav class="tabs" aria-label="Parts" ref=${menu}>
    ${tabs.map(
      (tab) => html`<a key=${tab.id} href=${tab.href} aria-current=${tab.id === active ? "page" : undefined}>
        ${tab.label}${tab.count !== undefined && html`<span class="count">${tab.count}</span>`}
      </a>`,
    )}
  </nav>`;
}

/** How long after an error that passes something is loaded again. */
export const RETRY_MS = 3000;

/** Whether an error is of a worker that is gone or busy for now. */
function passes(error) {
  return error.status === 0 || error.status === 409 || error.status === 429 || error.status >= 502;
}

/**
 * Loads something and again when `deps` change: [value, error, reload]. When `news` change, the value is shown until the
 * next one is there.
 */
export function useLoaded(load, deps, news = []) {
  const [state, setState] = useState({ value: undefined, error: null });
  const turn = useRef(0);
  const loaded = useRef(null);
  const reload = useCallback(async () => {
    const mine = ++turn.current;
    await loggedIn();
    if (mine !== turn.current) return;
    try {
      const value = await load();
      if (mine === turn.current) setState({ value, error: null });
    } catch (error) {
      if (mine === turn.current) setState((before) => ({ value: before.value, error }));
    }
  }, deps);
  useEffect(() => {
    if (loaded.current !== reload) setState({ value: undefined, error: null });
    loaded.current = reload;
    reload();
    return () => {
      turn.current++;
    };
  }, [reload, ...news]);
  useEffect(() => {
    if (!state.error || !passes(state.error)) return undefined;
    const timer = setTimeout(reload, RETRY_MS);
    return () => clearTimeout(timer);
  }, [state, reload]);
  return [state.value, state.error, reload];
}

/** Records per second as people say it. */
export function rateText(rate) {
  if (rate === null || rate === undefined) return "–";
  if (rate === 0) return "0/s";
  if (rate < 1) return `${(rate * 60).toFixed(rate * 60 < 10 ? 1 : 0)}/min`;
  if (rate < 1000) return `${rate < 10 ? Number(rate.toFixed(1)) : Math.round(rate)}/s`;
  return rate < 1e6 ? `${(rate / 1e3).toFixed(1)}k/s` : `${(rate / 1e6).toFixed(1)}M/s`;
}

/** Seconds as people say them. */
export function secondsText(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${seconds < 10 ? Number(seconds.toFixed(1)) : Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** A count with its word. */
export function counted(number, word, words = `${word}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? word : words}`;
}
