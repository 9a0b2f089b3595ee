/** Pages that are loaded when they are opened first, so that each is below the size that a page may have. */
import { server } from "./api.js";
import { html, Notice, useEffect, useState } from "./ui.js";

/**
 * A component of a module that is loaded when it is first shown.
 * @param {() => Promise<Record<string, any>>} load such as `() => import("./flows.js")`
 * @param {string} name of the component in the module
 */
export function lazy(load, name) {
  let loaded = null;
  return function Lazy(props) {
    const [Part, setPart] = useState(() => loaded);
    const [failed, setFailed] = useState(false);
    useEffect(() => {
      if (Part) return;
      load().then(
        (module) => {
          loaded = module[name];
          setPart(() => loaded);
        },
        () => setFailed(true),
      );
    }, [Part]);
    if (failed) return html`<${Notice} title="The page can't be loaded">The ${server()} does not answer. Reload the page when it is back.</${Notice}>`;
    return Part ? html`<${Part} ...${props} />` : html`<p class="muted page" aria-busy="true">One moment …</p>`;
  };
}
