"""SASL/OAUTHBEARER: where a Kafka client gets its token from (KIP-255, KIP-768).

With ``sasl.oauthbearer.token.endpoint.url`` a token is fetched by OAuth 2's client credentials grant (RFC 6749, section 4.4),
over HTTP on the event loop. Without it, and with ``unsecuredLoginStringClaim_sub`` in ``sasl.jaas.config``, an unsigned token
is made here, which brokers take only while they are set up for development.
"""

from __future__ import annotations

import base64
import logging
import time
from typing import TYPE_CHECKING, Final

import aiohttp
import orjson
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed

from connectors.errors import ConfigInvalid
from worker.kafka import tls

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

_log = logging.getLogger(__name__)

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - the name of an option
_SCOPE: Final = "sasl.oauthbearer.scope"
#: The properties that this module reads; in ``sasl.jaas.config`` clientId, clientSecret and scope mean the same.
OPTIONS: Final = frozenset({_URL, _ID, _SECRET, _SCOPE})
_UNSECURED: Final = "unsecuredLoginStringClaim_sub"
_UNSECURED_LIFE_S: Final = 3600
_DEADLINE_S: Final = 10.0
#: A token is used for this share of its life; then another one is fetched for the next connection.
_SHARE: Final = 0.8
_ANSWER_LIMIT: Final = 1 << 20


def token_provider(properties: Mapping[str, str], jaas: Mapping[str, str]) -> AbstractTokenProvider:
    """Return the token provider of a client.

    Args:
        properties: the client's, with Java's names. Its ``ssl.*`` hold for the token endpoint too.
        jaas: the options in its ``sasl.jaas.config``.

    Raises:
        ConfigInvalid: a property is missing.
    """
    url = properties.get(_URL, "").strip()
    if not url:
        subject = jaas.get(_UNSECURED)
        if subject is None:
            raise ConfigInvalid(f"sasl.mechanism OAUTHBEARER needs {_URL} with a client's id and secret")
        return UnsecuredTokens(subject)
    if not url.startswith(("http://", "https://")):
        raise ConfigInvalid(
            f"Invalid value {url} for configuration {_URL}: tokens are fetched from http:// and https:// addresses"
        )
    client = properties.get(_ID) or jaas.get("clientId")
    secret = properties.get(_SECRET) or jaas.get("clientSecret")
    if not client or not secret:
        raise ConfigInvalid(
            f"sasl.mechanism OAUTHBEARER with {_URL} needs a client: set {_ID} and {_SECRET}, or clientId and "
            "clientSecret in sasl.jaas.config"
        )
    context = tls.client_context(properties) if url.startswith("https:") else None
    return ClientCredentials(url, client, secret, properties.get(_SCOPE) or jaas.get("scope", ""), context)


class UnsecuredTokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Unsigned tokens (JSON Web Signatures with the algorithm "none"), for brokers in development."""

    def __init__(self, subject: str) -> None:
        self._subject = subject

    async def token(self) -> str:
        """A fresh token."""
        now = int(time.time())
        claims = {"sub": self._subject, "iat": now, "exp": now + _UNSECURED_LIFE_S}
        return f"{_encode_part({'alg': 'none'})}.{_encode_part(claims)}."


def _encode_part(content: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(content)).decode().rstrip("=")


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Tokens by OAuth 2's client credentials grant; one is used until most of its life is over.

    Args:
        url: the token endpoint.
        client: the client's id.
        secret: its secret.
        scope: what to ask for; "" for nothing.
        context: for https.
    """

    def __init__(self, url: str, client: str, secret: str, scope: str, context: ssl.SSLContext | None) -> None:
        self._url = url
        self._headers = {
            "Authorization": f"Basic {base64.b64encode(f'{client}:{secret}'.encode()).decode()}",
            "Accept": "application/json",
        }
        self._form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        self._context = context
        self._token = ""
        self._until = 0.0

    async def token(self) -> str:
        """A token that is valid now. Waits for the endpoint, ten seconds at most.

        Raises:
            SaslAuthenticationFailed: the endpoint refuses the client, or gives no token.
            KafkaConnectionError: it can't be reached.
        """
        # No lock: clients on the event loops of several threads share this, and two tokens do no harm.
        began = time.monotonic()
        if began >= self._until:
            self._token, life_s = await self._fetch_token()
            self._until = began + life_s * _SHARE
        return self._token

    async def _fetch_token(self) -> tuple[str, float]:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_DEADLINE_S)) as session,
                session.post(self._url, data=self._form, headers=self._headers, ssl=self._context or True) as answer,
            ):
                status, body = answer.status, await answer.content.read(_ANSWER_LIMIT)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise KafkaConnectionError(
                f"the token endpoint {self._url} ({_URL}) does not answer: {error!r}; check its address "
                "and that it runs"
            ) from error
        if status >= 500:
            raise KafkaConnectionError(f"the token endpoint {self._url} ({_URL}) answers with status {status}")
        if status != 200:
            raise SaslAuthenticationFailed(f"the token endpoint {self._url} refuses the client with status {status}")
        try:
            answer_body = orjson.loads(body)
            token, life_s = str(answer_body["access_token"]), float(answer_body.get("expires_in", 300))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise SaslAuthenticationFailed(
                f"the token endpoint {self._url} gives no token; is the address ({_URL}) right?"
            ) from error
        _log.debug("A token of %s holds for %g s", self._url, life_s)
        return token, life_s
