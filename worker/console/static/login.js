/** The login form: its credentials go with one request, which makes a session of them. */
import { call } from "./api.js";
import { Button, html, Notice, useEffect, useModal, useRef, useState } from "./ui.js";

const WAYS = JSON.parse(document.querySelector('meta[name="millrace-login"]').getAttribute("content") || "[]");

function base64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

/** The form over a page whose session has ended. */
export function LoginDialog({ onKnown }) {
  const ref = useRef(null);
  useModal(ref);
  const stay = () => ref.current?.isConnected && !ref.current.open && ref.current.showModal();
  return html`<dialog ref=${ref} class="login-over" aria-label="Log in" onCancel=${(event) => event.preventDefault()} onClose=${stay}>
    <${LoginForm} expired onKnown=${onKnown} />
  </dialog>`;
}

/** The page of who is not known. */
export function Login({ onKnown }) {
  return html`<main class="alone"><${LoginForm} onKnown=${onKnown} /></main>`;
}

function LoginForm({ expired = false, onKnown }) {
  const [way, setWay] = useState(WAYS[0] ?? "");
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const first = useRef(null);
  useEffect(() => first.current?.focus(), [way]);

  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError("");
    const authorization = way === "basic" ? `Basic ${base64(`${user}:${secret}`)}` : `Bearer ${secret.trim()}`;
    try {
      onKnown(await call("POST", "console/session", undefined, { Authorization: authorization }));
    } catch (failure) {
      setError(
        failure.status === 401
          ? way === "basic"
            ? "User or password is wrong."
            : "The token is not accepted: it is wrong or has expired."
          : failure.message,
      );
      setSecret("");
    } finally {
      setBusy(false);
    }
  };

  return html`<form class="login card" onSubmit=${submit}>
      <div class="brand"><img src="console/icon.svg" alt="" width="34" height="34" />Millrace</div>
      <h1>Log in</h1>
      ${expired && html`<${Notice} tone="info">Your session has ended. Log in to go on where you were.</${Notice}>`}
      ${WAYS.length === 0 &&
      html`<${Notice} title="A certificate is needed">
        This worker knows its callers by their client certificates. Give one to your browser and load the page again.
      </${Notice}>`}
      ${WAYS.length > 1 &&
      html`<div class="segments" role="group" aria-label="With">
        ${WAYS.map(
          (each) =>
            html`<button type="button" key=${each} aria-pressed=${each === way} onClick=${() => setWay(each)}>
              ${each === "basic" ? "Password" : "Token"}
            </button>`,
        )}
      </div>`}
      ${way === "basic" &&
      html`<label class="field">User
        <input ref=${first} value=${user} onInput=${(event) => setUser(event.target.value)} autocomplete="username" required />
      </label>`}
      ${way &&
      html`<label class="field">${way === "basic" ? "Password" : "Token"}
          <input
            ref=${way === "bearer" ? first : undefined}
            type="password"
            value=${secret}
            onInput=${(event) => setSecret(event.target.value)}
            autocomplete=${way === "basic" ? "current-password" : "off"}
            required
          />
        </label>
        ${error && html`<${Notice}>${error}</${Notice}>`}
        <${Button} kind="primary wide" type="submit" busy=${busy}>Log in</${Button}>`}
    </form>`;
}
