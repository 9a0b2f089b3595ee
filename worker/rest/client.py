"""Calls of a worker's REST API by commands, with the caller's credentials. Blocks."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

USER: Final = "MILLRACE_REST_USER"
PASSWORD: Final = "MILLRACE_REST_PASSWORD"  # noqa: S105 - a variable's name
TOKEN: Final = "MILLRACE_REST_TOKEN"  # noqa: S105 - a variable's name
AUTHORITIES: Final = "MILLRACE_REST_CA_FILE"
CERTIFICATE: Final = "MILLRACE_REST_CERT_FILE"


class _NoRedirect(HTTPRedirectHandler):
    """A worker does not send anybody elsewhere; credentials must not be sent there."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        del args, named


def auth_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """The header that says who calls; empty without credentials. Pure.

    Raises:
        ConfigInvalid: only one of user and password is there.
    """
    if environment.get(TOKEN):
        return {"Authorization": f"Bearer {environment[TOKEN]}"}
    user, password = environment.get(USER), environment.get(PASSWORD)
    if (user is None) != (password is None):
        raise ConfigInvalid(f"{USER} and {PASSWORD} must both be set, or neither")
    if user is None:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def trust_context(environment: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context for https addresses: whom to trust, and an own certificate. Reads files: blocks for a moment.

    Raises:
        ConfigInvalid: a file can't be read.
    """
    from connectors import tls

    try:
        context = tls.client_context(environment.get(AUTHORITIES) or None)
        if environment.get(CERTIFICATE):
            context.load_cert_chain(environment[CERTIFICATE])
    except OSError as error:
        raise ConfigInvalid(f"{AUTHORITIES} or {CERTIFICATE} names a file that can't be used: {error}") from error
    return context


def send_get(
    url: str, timeout_s: float = 30.0, environment: Mapping[str, str] | None = None, *, body: bytes | None = None
) -> bytes:
    """Return the answer to a GET, or to a POST of a JSON ``body``.

    The environment says more: MILLRACE_REST_USER and _PASSWORD, or _TOKEN; _CA_FILE, _CERT_FILE.

    Raises:
        ConfigInvalid: the worker refuses, or the environment can't be right; the message says how to fix it.
        OSError: there is no answer.
    """
    variables = os.environ if environment is None else environment
    if not url.startswith(("http://", "https://")):
        raise ConfigInvalid(f"{url}: an address with http:// or https:// is needed")
    # A worker is inside: what the environment says of proxies is meant for the world outside.
    handlers: list[Any] = [ProxyHandler({}), _NoRedirect()]
    if url.startswith("https://"):
        handlers.append(HTTPSHandler(context=trust_context(variables)))
    kind = {} if body is None else {"Content-Type": "application/json"}
    request = Request(url, data=body, headers={**auth_headers(variables), **kind})  # noqa: S310 - http and https alone, see above
    try:
        with build_opener(*handlers).open(request, timeout=timeout_s) as answer:
            data: bytes = answer.read()
            return data
    except HTTPError as error:
        message = error.read(500).decode("utf-8", "replace")
        hint = f"; set {USER} and {PASSWORD}, or {TOKEN}" if error.code == 401 else ""
        raise ConfigInvalid(f"{url}: {error.code} {message}{hint}") from error
