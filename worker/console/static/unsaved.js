/** Asks before a page with changes is left: by a link, by Back and Forward, by closing it. */
import { go, whenLeft } from "./place.js";
import { Button, Dialog, html, useLayoutEffect, useState } from "./ui.js";

/** Asks while there are changes; returns the dialog, to be shown on the page. */
export function useUnsaved(dirty) {
  const [leaving, setLeaving] = useState(null);
  // Not when the page has been painted: somebody may go back before that.
  useLayoutEffect(() => {
    if (!dirty) return undefined;
    const unload = (event) => event.preventDefault();
    const follow = (event) => {
      const link = event.target.closest?.('a[href^="#/"]');
      // With a key the link opens elsewhere, and the page stays.
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      setLeaving(link.getAttribute("href"));
    };
    addEventListener("beforeunload", unload);
    document.addEventListener("click", follow, true);
    whenLeft(setLeaving);
    return () => {
      removeEventListener("beforeunload", unload);
      document.removeEventListener("click", follow, true);
      whenLeft(null);
    };
  }, [dirty]);
  return leaving !== null && html`<${Dialog} title="Leave without saving?" onClose=${() => setLeaving(null)}>
    <p>What you have entered is lost.</p>
    <div class="dialog-actions"><${Button} onClick=${() => setLeaving(null)}>Stay</${Button}>
      <${Button} kind="danger" onClick=${() => go(leaving)}>Leave</${Button}></div>
  </${Dialog}>`;
}
