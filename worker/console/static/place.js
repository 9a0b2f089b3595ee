/** Where the page is: the part of the address after `#`, such as `/connectors?state=FAILED`. */
import { useEffect, useMemo, useState } from "./ui.js";

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

/** Go to a place; `replace` leaves no step to come back to. */
export function go(href, replace = false) {
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
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    // The address may have changed after the first drawing, before anything listened.
    changed();
    return () => removeEventListener("hashchange", changed);
  }, []);
  return useMemo(() => parsePlace(hash), [hash]);
}
