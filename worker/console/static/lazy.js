/** Pages that are loaded when they are opened first, so that each is below the size that a page may have. */
import { call, server } from "./api.js";
import { html, Notice, RETRY_MS, useEffect, useState } from "./ui.js";

/**
 * A component of a module that is loaded when it is first shown.
 * @param {() => Promise<Record<string, any>>} load such as `() => import("./flows.js")`
 * @param {string} name of the component in the module
 */
export function lazy(load, name) {
  let loaded = null;
  let missed = false;
  return function Lazy(props) {
    const [Part, setPart] = useState(() => loaded);
    const [failed, setFailed] = useState(false);
    useEffect(() => {
      let over = false;
      // A browser does not load a module once more that it could not load: the page starts again when the worker is back.
      const wait = async () => {
        setFailed(true);
        while (!over) {
          const there = await call("GET", "console/session").then(() => true, (error) => error.status !== 0);
          if (there) break;
          missed = true;
          await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        }
        if (missed && !over) location.reload();
      };
      if (!Part) {
        load().then((module) => {
          loaded = module[name];
          setPart(() => loaded);
        }, wait);
      }
      return () => {
        over = true;
      };
    }, [Part]);
    if (failed) return html`<${Notice} title="The page can't be loaded">The ${server()} does not answer. Reload the page when it is back, if it does not do so itself.</${Notice}>`;
    return Part ? html`<${Part} ...${props} />` : html`<p class="muted page" aria-busy="true">One moment …</p>`;
  };
}
