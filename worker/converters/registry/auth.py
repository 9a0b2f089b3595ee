"""How a client proves to a schema registry who it is: nothing, a name and password, a fixed token, or OAuth tokens.

OAuth: RFC 6749 section 4.4 (client credentials). A token is fetched when it is first needed and again before it expires.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from connectors.errors import ConfigInvalid, Fatal, Retriable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

#: A token's lifetime where its endpoint does not give one; short, so that a wrong guess has no lasting effect.
_LIFETIME_S: Final = 300.0
_JAAS: Final = re.compile(r"""\b(\w[\w.]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))""")


def basic_header(name: str, password: str) -> str:
    """The Authorization header of basic authentication, in UTF-8 (RFC 7617)."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def renewal_delay(life_s: float, buffer_s: float) -> float:
    """After how many seconds a token is replaced: ``buffer_s`` before its end, but not before half of its life."""
    return life_s - min(buffer_s, life_s / 2)


def jaas_options(jaas_config: str) -> dict[str, str]:
    """The options of a ``sasl.jaas.config`` line: ``Module required name="value" ... ;``."""
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for name, quoted, plain in _JAAS.findall(jaas_config)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """Where tokens come from.

    Attributes:
        url: the token endpoint.
        client_id: the client's name there.
        client_secret: its secret.
        scope: what the token is for; empty for the endpoint's default.
        buffer_s: seconds before the expiry at which a new token is fetched; at most half of its life.
        url_option, client_options: names of the options that gave these values, for messages.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    buffer_s: float = 300.0
    url_option: str = "bearer.auth.issuer.endpoint.url"
    client_options: str = "bearer.auth.client.id, bearer.auth.client.secret and bearer.auth.scope"


@dataclass(slots=True)
class Credentials:
    """Gives the headers of each request. Use it on one event loop only.

    Attributes:
        fixed: headers that never change: a basic or bearer header, and those of ``request.header.*``.
        oauth: where tokens come from, or None.
    """

    fixed: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: OAuthSettings | None = None
    _token: str = field(default="", repr=False)
    _until: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def headers(
        self, session: aiohttp.ClientSession, tls: ssl.SSLContext | None, proxy: str | None
    ) -> dict[str, str]:
        """Return the headers for the next request; fetches a token unless a valid one is known.

        Raises:
            Retriable: the token endpoint does not answer.
            Fatal: it refuses this client.
        """
        if self.oauth is None:
            return dict(self.fixed)
        async with self._lock:
            if time.monotonic() >= self._until:
                self._token, life_s = await _fetch_token(self.oauth, session, tls, proxy)
                self._until = time.monotonic() + renewal_delay(life_s, self.oauth.buffer_s)
        return {**self.fixed, "Authorization": f"Bearer {self._token}"}

    def reject(self) -> bool:
        """The registry did not accept the headers: whether other ones can be had, because a token is fetched again."""
        self._until = 0.0
        return self.oauth is not None


async def _fetch_token(
    settings: OAuthSettings, session: aiohttp.ClientSession, tls: ssl.SSLContext | None, proxy: str | None
) -> tuple[str, float]:
    form = {"grant_type": "client_credentials", **({"scope": settings.scope} if settings.scope else {})}
    headers = {
        "Authorization": basic_header(settings.client_id, settings.client_secret),
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    try:
        async with session.post(settings.url, data=form, headers=headers, ssl=tls or True, proxy=proxy) as response:
            status = response.status
            try:
                answer: Any = await response.json(content_type=None)
            except ValueError:
                answer = None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Retriable(
            f"The token endpoint {settings.url} does not answer: {str(error) or type(error).__name__}. Check "
            f"{settings.url_option} and the endpoint."
        ) from None
    if status >= 500 or status in (408, 429):
        raise Retriable(f"The token endpoint {settings.url} answers HTTP {status}; it is asked again.")
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if status >= 300 or not isinstance(token, str) or not token:
        reason = answer.get("error", "") if isinstance(answer, dict) else ""
        raise Fatal(
            f"The token endpoint {settings.url} gives no token (HTTP {status} {reason}). Check "
            f"{settings.client_options}."
        )
    try:
        return token, max(1.0, float(answer.get("expires_in") or _LIFETIME_S))
    except (TypeError, ValueError):
        return token, _LIFETIME_S


def sasl_user(jaas: str) -> tuple[str, str]:
    """Name and password out of ``sasl.jaas.config``.

    Raises:
        ConfigInvalid: there are none. The message does not repeat the text: it holds a password.
    """
    options = jaas_options(jaas)
    if "username" not in options or "password" not in options:
        raise ConfigInvalid(
            "basic.auth.credentials.source=SASL_INHERIT needs sasl.jaas.config with username and password"
        )
    return options["username"], options["password"]


def sasl_client(jaas: str) -> tuple[str, str, str]:
    """Client id, secret and scope out of ``sasl.jaas.config``; raises ``ConfigInvalid`` as ``sasl_user`` does."""
    options = jaas_options(jaas)
    if "clientId" not in options or "clientSecret" not in options:
        raise ConfigInvalid(
            "bearer.auth.credentials.source=SASL_OAUTHBEARER_INHERIT needs sasl.jaas.config with clientId and "
            "clientSecret"
        )
    return options["clientId"], options["clientSecret"], options.get("scope", "")
