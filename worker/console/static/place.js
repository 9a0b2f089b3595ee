/** Where the page is: the part of the address after `#`, such as `/connectors?state=FAILED`. */
import { useEffect, useMemo, useRef, useState } from "./ui.js";

/** What asks before Back or Forward leave a page with changes. */
let ask = null;

/** The place of an address's fragment: its segments, decoded, and its parameters. */
export function parsePlace(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const segments = path.split("/").filter(Boolean).map(decoded);
  return { segments, query: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A link to a place. */
export function placeHref(segments, query) {
  const kept = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(kept).toString();
  return `#/${segments.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/**
 * Called with the place to which Back or Forward would lead, instead of going there; null: they lead there.
 * @param {((href: string) => void) | null} listener
 */
export function whenLeft(listener) {
  ask = listener;
}

/** A `go` for when an answer comes: it leads nowhere once its component is gone, because somebody has left the page. */
export function useGo() {
  const shown = useRef(true);
  useEffect(() => () => {
    shown.current = false;
  }, []);
  return (href) => shown.current && go(href);
}

/** Go to a place; `replace` leaves no step to come back to. */
export function go(href, replace = false) {
  ask = null;
  if (replace) {
    history.replaceState(null, "", href);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = href;
  }
}

/** The place, kept up to date. */
export function usePlace() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    let shown = location.hash;
    const changed = () => {
      const next = location.hash;
      if (ask && next !== shown) {
        history.pushState(null, "", shown);
        ask(next);
        return;
      }
      shown = next;
      setHash(next);
    };
    addEventListener("hashchange", changed);
    // The address may have changed after the first drawing, before anything listened.
    changed();
    return () => removeEventListener("hashchange", changed);
  }, []);
  return useMemo(() => parsePlace(hash), [hash]);
}
