/** The frame around all pages: who is there, where to go, what is shown. */
import { call, has, setSession as remember, whenUnknown } from "./api.js";
import { ConnectorsPage } from "./connectors.js";
import { EditPage } from "./form.js";
import { lazy } from "./lazy.js";
import { Login, LoginDialog } from "./login.js";
import { OverviewPage } from "./overview.js";
import { placeHref, usePlace } from "./place.js";
import { Button, Fragment, html, Notice, render, useCurrentInSight, useEffect, useRef, useState } from "./ui.js";

const AuditPage = lazy(() => import("./audit.js"), "AuditPage");
const ConnectorPage = lazy(() => import("./connector.js"), "ConnectorPage");
const FlowPage = lazy(() => import("./flows.js"), "FlowPage");
const FlowsPage = lazy(() => import("./flows.js"), "FlowsPage");
const MetricsPage = lazy(() => import("./metrics.js"), "MetricsPage");
const NewRulesPage = lazy(() => import("./rules.js"), "NewRulesPage");
const RuleSetPage = lazy(() => import("./rules.js"), "RuleSetPage");
const RulesPage = lazy(() => import("./rules.js"), "RulesPage");
const TopicPage = lazy(() => import("./topics.js"), "TopicPage");
const TopicsPage = lazy(() => import("./topics.js"), "TopicsPage");
const UnknownPage = lazy(() => import("./unknown.js"), "UnknownPage");
const VerifyListPage = lazy(() => import("./verify.js"), "VerifyListPage");
const VerifyPage = lazy(() => import("./verify.js"), "VerifyPage");

const THEMES = ["system", "light", "dark"];

function storedTheme() {
  try {
    return localStorage.getItem("millrace-theme") ?? "system";
  } catch {
    return "system";
  }
}

function Theme() {
  const [theme, setTheme] = useState(storedTheme);
  useEffect(() => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("millrace-theme", theme);
    } catch {
      // A browser that keeps nothing: the choice holds for this page.
    }
  }, [theme]);
  return html`<label class="theme"
    ><span class="hidden">Colours</span>
    <select value=${theme} onChange=${(event) => setTheme(event.target.value)}>
      ${THEMES.map((each) => html`<option key=${each} value=${each}>${each[0].toUpperCase() + each.slice(1)}</option>`)}
    </select></label
  >`;
}

/** Pages that are part of others. */
const PART_OF = { new: "connectors", "new-flow": "flows", "new-rules": "rules", unknown: "rules" };
const OPTIONAL = ["overview", "flows", "topics", "rules", "verify", "metrics", "audit"];

/** The page of the menu that a place belongs to. */
function sectionOf(place) {
  const [first = start()] = place.segments;
  return PART_OF[first] ?? first;
}

/** Whether this console has a page; what is no page at all is found out elsewhere. */
function isShown(page) {
  const whole = PART_OF[page] ?? page;
  return !OPTIONAL.includes(whole) || has(whole);
}

/** The page to begin with. */
function start() {
  return has("overview") ? "overview" : "connectors";
}

function Header({ session, section, onLogout }) {
  const menu = useCurrentInSight(section);
  const links = [
    ["overview", "Overview"],
    ["connectors", "Connectors"],
    ["flows", "Flows"],
    ["topics", "Topics"],
    ["rules", "Log rules"],
    ["verify", "Verify"],
    ["metrics", "Metrics"],
    ["audit", "Audit"],
  ].filter(([id]) => isShown(id));
  return html`<header class="top">
    <a class="brand" href=${placeHref([start()])}><img src="console/icon.svg" alt="" width="26" height="26" />Millrace</a>
    <nav aria-label="Pages" ref=${menu}>
      ${links.map(
        ([id, label]) =>
          html`<a key=${id} href=${placeHref([id])} aria-current=${section === id ? "page" : undefined}>${label}</a>`,
      )}
    </nav>
    <div class="top-right">
      <${Theme} />
      ${session.cluster && html`<span class="who" title=${`Kafka Connect at ${session.cluster}`}>${session.cluster}</span>`}
      ${session.method !== "none" && html`<span class="who" title=${session.roles.join(", ")}>${session.name}</span>`}
      ${session.proof !== null && html`<${Button} kind="small" onClick=${onLogout}>Log out</${Button}>`}
    </div>
  </header>`;
}

function Page({ session, place }) {
  const [first = start(), second, third] = place.segments;
  if (!isShown(first)) {
    return html`<${NoPage} title="There is no such page for a Java cluster" />`;
  }
  if (first === "overview") return html`<${OverviewPage} session=${session} query=${place.query} />`;
  if (first === "connectors" && second === undefined) {
    return html`<${ConnectorsPage} session=${session} query=${place.query} />`;
  }
  if (first === "connectors") {
    if (third === "edit") return html`<${EditPage} key=${`edit ${second}`} name=${second} />`;
    return html`<${ConnectorPage} key=${second} name=${second} tab=${third ?? "tasks"} />`;
  }
  if (first === "topics") {
    if (second === undefined) return html`<${TopicsPage} query=${place.query} />`;
    return html`<${TopicPage} key=${second} topic=${second} query=${place.query} />`;
  }
  if (first === "metrics") return html`<${MetricsPage} />`;
  if (first === "audit") return html`<${AuditPage} query=${place.query} />`;
  if (first === "new") return html`<${EditPage} key="new" name=${null} />`;
  if (first === "rules") {
    if (second === undefined) return html`<${RulesPage} session=${session} />`;
    return html`<${RuleSetPage} key=${second} name=${second} tab=${third ?? "edit"} session=${session} query=${place.query} />`;
  }
  if (first === "flows") {
    if (second === undefined) return html`<${FlowsPage} session=${session} />`;
    return html`<${FlowPage} key=${second} name=${second} session=${session} />`;
  }
  if (first === "new-flow") return html`<${FlowPage} key="new" name=${null} session=${session} />`;
  if (first === "new-rules") return html`<${NewRulesPage} session=${session} query=${place.query} />`;
  if (first === "unknown" && second !== undefined) return html`<${UnknownPage} key=${second} name=${second} />`;
  if (first === "verify") return second === undefined ? html`<${VerifyListPage} />` : html`<${VerifyPage} key=${second} name=${second} />`;
  return html`<${NoPage} title="There is no such page" />`;
}

function NoPage({ title }) {
  return html`<div class="page"><h1>${title}</h1><a href="#/connectors">Go to the connectors</a></div>`;
}

function App() {
  const place = usePlace();
  const [session, setSession] = useState(undefined);
  const [error, setError] = useState(null);
  const [expired, setExpired] = useState(false);
  const known = useRef(null);
  const waiting = useRef([]);

  const begin = (found) => {
    remember(found);
    const same = known.current === found.name;
    known.current = found.name;
    setExpired(false);
    setError(null);
    setSession(found);
    for (const settle of waiting.current.splice(0)) settle(same);
  };
  const load = async () => {
    try {
      begin(await call("GET", "console/session"));
    } catch (failure) {
      if (failure.status === 401) setSession(null);
      else setError(failure);
    }
  };
  useEffect(() => {
    // The page stays below the form, with what was typed.
    whenUnknown(async () => {
      if (known.current === null) return false;
      setExpired(true);
      return new Promise((settle) => waiting.current.push(settle));
    });
    load();
  }, []);
  useEffect(() => {
    const names = {
      connectors: "Connectors", new: "New connector", flows: "Flows", "new-flow": "New flow", topics: "Topics",
      rules: "Log rules", "new-rules": "New rule set", verify: "Verify", metrics: "Metrics", audit: "Audit",
    };
    const [first, second] = place.segments;
    document.title = `${second ?? names[first ?? start()] ?? "Overview"} · Millrace`;
  }, [place, session]);
  const shown = place.segments.join("/");
  const first = useRef(shown);
  useEffect(() => {
    // The button that led here is gone.
    if (shown !== first.current && document.activeElement === document.body) document.getElementById("main")?.focus({ preventScroll: true });
    first.current = shown;
  }, [shown]);
  const logout = async () => {
    await call("DELETE", "console/session").catch(() => {});
    known.current = null;
    setExpired(false);
    setSession(null);
  };

  if (error) {
    return html`<main class="alone">
      <${Notice} title="The worker can't be asked">${error.message}</${Notice}>
      <${Button} kind="primary" onClick=${load}>Try again</${Button}>
    </main>`;
  }
  if (session === undefined) return html`<main class="alone" aria-busy="true"><p class="muted">One moment …</p></main>`;
  if (session === null) return html`<${Login} onKnown=${begin} />`;
  return html`<${Fragment} key=${session.name}>
    <a class="skip" href="#main" onClick=${(event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  }}>To the content</a>
    <${Header} session=${session} section=${sectionOf(place)} onLogout=${logout} />
    <main id="main" tabindex="-1"><${Page} session=${session} place=${place} /></main>
    ${expired && html`<${LoginDialog} onKnown=${begin} />`}
  </${Fragment}>`;
}

render(html`<${App} />`, document.getElementById("app"));
