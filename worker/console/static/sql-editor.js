/** An editor for SQL that knows tables and columns. */
import { autocompletion, completionKeymap } from "./cm-autocomplete.js";
import { defaultKeymap, history, historyKeymap } from "./cm-commands.js";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "./cm-language.js";
import { schemaCompletionSource, keywordCompletionSource, sql, StandardSQL } from "./cm-sql.js";
import { Compartment, EditorState } from "./cm-state.js";
import { drawSelection, EditorView, keymap, lineNumbers, placeholder } from "./cm-view.js";
import { tags } from "./lezer-highlight.js";
import { html, useEffect, useRef } from "./ui.js";

const LOOK = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--card)", border: "1px solid var(--strong-line)", borderRadius: "8px", fontSize: "0.9rem" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", minHeight: "6rem", maxHeight: "24rem", overflow: "auto" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--page)", color: "var(--muted)", border: "none" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft)" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--strong-line)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--accent-ink)" },
  ".cm-placeholder": { color: "var(--muted)" },
});
const COLOURS = syntaxHighlighting(
  HighlightStyle.define([
    { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
    { tag: [tags.string, tags.special(tags.string)], color: "var(--running)" },
    { tag: [tags.number, tags.bool, tags.null], color: "var(--unassigned)" },
    { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
  ]),
);

/**
 * What is typed over a selection. Left to the browser, it keeps the look of the selection by an inline style, which the
 * content security policy forbids.
 */
const REPLACE = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { state } = view;
    if (event.inputType !== "insertText" || !event.data || view.composing || state.readOnly || state.selection.main.empty) return false;
    event.preventDefault();
    view.dispatch({ ...state.replaceSelection(event.data), userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

/** Tables, and the columns of all of them wherever a column may stand. */
function languageFor(tables) {
  const columns = [...new Set(Object.values(tables).flat())].map((label) => ({ label, type: "property", boost: 1 }));
  const anyColumn = (context) => {
    const word = context.matchBefore(/\w*/);
    const named = context.matchBefore(/\.\w*/);
    return named || (word.from === word.to && !context.explicit) ? null : { from: word.from, options: columns, validFor: /^\w*$/ };
  };
  return [
    sql({ dialect: StandardSQL, upperCaseKeywords: true }).language,
    autocompletion({ override: [schemaCompletionSource({ dialect: StandardSQL, schema: tables }), anyColumn, keywordCompletionSource(StandardSQL, true)], icons: false }),
  ];
}

/**
 * `tables`: name -> names of columns. Tab leaves the editor, as in every other field. `value` is what it begins with: the
 * text is the editor's own from then on, or letters that are typed while the page is drawn would be lost.
 */
export function SqlEditor({ value, label, tables, readonly, onInput }) {
  const ref = useRef(null);
  const view = useRef(null);
  const input = useRef(onInput);
  const language = useRef(null);
  input.current = onInput;
  const key = JSON.stringify(tables);
  useEffect(() => {
    // In a shadow root its styles are sheets without elements, which a strict content security policy allows.
    const root = ref.current.shadowRoot ?? ref.current.attachShadow({ mode: "open" });
    language.current = new Compartment();
    view.current = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: value,
        extensions: [
          lineNumbers(), history(), drawSelection(), bracketMatching(), COLOURS, LOOK, REPLACE, EditorView.lineWrapping,
          language.current.of(languageFor(tables)),
          keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap]),
          placeholder("SELECT id, amount FROM orders"),
          EditorState.readOnly.of(readonly), EditorView.editable.of(!readonly),
          EditorView.contentAttributes.of({ "aria-label": label }),
          EditorView.updateListener.of((update) => update.docChanged && input.current(update.state.doc.toString())),
        ],
      }),
    });
    return () => view.current.destroy();
  }, []);
  useEffect(() => {
    view.current?.dispatch({ effects: language.current.reconfigure(languageFor(tables)) });
  }, [key]);
  return html`<div class="sql" ref=${ref}></div>`;
}
