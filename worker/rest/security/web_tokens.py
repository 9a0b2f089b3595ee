"""JSON web tokens (RFC 7519): who a token's signature and claims say the caller is."""

from __future__ import annotations

import asyncio
import logging
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import jwt
import orjson

from connectors.errors import ConfigInvalid
from worker.rest.security.access import Grant, Principal, checked_grants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.rest.security.auth_settings import JwtSettings

_log = logging.getLogger("worker.rest.auth")
#: A key set is a few kilobytes.
_MOST_BYTES: Final = 1 << 20
_MOST_KEYS: Final = 256
_FETCH_S: Final = 10.0
#: A token with an unknown key makes the set be fetched again, but not more often than this.
_AGAIN_S: Final = 30.0
#: ... unless none was fetched yet.
_FIRST_S: Final = 1.0
#: While they can't be fetched, the keys of the last time are used for so long.
_STALE_S: Final = 24 * 3600.0
_LONGEST_NAME: Final = 256
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

#: Keys by their names, None for those without one; each is for one algorithm.
Keys = dict[str | None, list[jwt.PyJWK]]


class NotAccepted(Exception):
    """A token that says nothing; the text is for the log."""


class JwtVerifier:
    """Checks tokens. For one event loop; ``close`` it at the end.

    Args:
        settings: what is accepted.
    """

    def __init__(self, settings: JwtSettings) -> None:
        self._settings = settings
        self._keys: Keys = {}
        self._fetched = -_STALE_S
        self._tried = -_AGAIN_S
        self._lock = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Read the keys of a file; those of an address are fetched in the background when they are needed first.

        Raises:
            ConfigInvalid: the file can't be used.
        """
        if self._settings.keys and not self._is_remote:
            await self.reload()

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()

    @property
    def file(self) -> str:
        """The file with the keys, or ""."""
        return "" if self._is_remote else self._settings.keys

    @property
    def _is_remote(self) -> bool:
        return self._settings.keys.startswith(("http://", "https://"))

    async def reload(self) -> None:
        """Read the file with the keys again.

        Raises:
            ConfigInvalid: it can't be used; the old keys stay.
        """
        try:
            self._take_keys(await asyncio.to_thread(Path(self._settings.keys).read_bytes))
        except OSError as error:
            raise ConfigInvalid(f"rest.auth.jwt.keys {self._settings.keys}: {error}") from error

    async def verify(self, token: str) -> Principal:
        """Return the caller that the token identifies.

        Raises:
            NotAccepted: the token is not valid; with the reason.
        """
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in settings.algorithms:
                raise NotAccepted("its signature's algorithm is not accepted")
            # The kind of key follows from the algorithm, never from the token: a public key must not become a secret.
            for key in (
                [settings.secret]
                if algorithm.startswith("HS")
                else await self._candidate_keys(header.get("kid"), algorithm)
            ):
                try:
                    claims = jwt.decode(
                        token,
                        key,
                        algorithms=[algorithm],
                        audience=list(settings.audience),
                        issuer=settings.issuer,
                        leeway=settings.leeway_s,
                        options={"require": ["exp"]},
                    )
                except jwt.InvalidSignatureError:
                    continue
                return self._read_principal(claims)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise NotAccepted(type(error).__name__) from None
        raise NotAccepted("its signature fits no known key")

    def _read_principal(self, claims: Mapping[str, Any]) -> Principal:
        name = claims.get(self._settings.name_claim)
        if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise NotAccepted(f"its claim {self._settings.name_claim} is no name")
        return Principal(name, "bearer", granted_roles(claims, self._settings.roles_claim, self._settings.roles))

    async def _candidate_keys(self, kid: object, algorithm: str) -> list[jwt.PyJWK]:
        now = time.monotonic()
        if self._is_remote and (
            now - self._fetched > self._settings.keys_ttl_s or (isinstance(kid, str) and kid not in self._keys)
        ):
            await self._refresh_keys()
            if time.monotonic() - self._fetched > self._settings.keys_ttl_s + _STALE_S:
                raise NotAccepted("the keys could not be fetched for a day")
        known_keys = self._keys.get(kid, []) if isinstance(kid, str) else chain.from_iterable(self._keys.values())
        return [key for key in known_keys if key.algorithm_name == algorithm][:8]

    async def _refresh_keys(self) -> None:
        """Fetch the keys unless that was tried a moment ago; what can't be fetched is logged."""
        async with self._lock:
            now = time.monotonic()
            if now - self._tried < (_AGAIN_S if self._keys else _FIRST_S):
                return
            self._tried = now
            try:
                if self._session is None:
                    self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_FETCH_S))
                data = await self._fetch_keys(self._session)
                self._take_keys(data)
                self._fetched = time.monotonic()
            except (TimeoutError, OSError, aiohttp.ClientError, ConfigInvalid) as error:
                _log.warning(
                    "The keys of JSON web tokens could not be fetched from %s (rest.auth.jwt.keys): %s",
                    self._settings.keys,
                    error or type(error).__name__,
                )

    async def _fetch_keys(self, session: aiohttp.ClientSession) -> bytes:
        data = b""
        async with session.get(self._settings.keys, allow_redirects=False) as response:
            async for part in response.content.iter_chunked(1 << 16):
                data += part
                if len(data) > _MOST_BYTES:
                    raise ConfigInvalid(f"the answer is larger than {_MOST_BYTES} bytes")
            if response.status != 200:
                raise ConfigInvalid(f"the answer's status is {response.status}")
        return data

    def _take_keys(self, data: bytes) -> None:
        self._keys = parse_keys(data)


def parse_keys(data: bytes) -> Keys:
    """The public signature keys of a key set (RFC 7517). Others are left out.

    Raises:
        ConfigInvalid: it is no key set, or has no such key.
    """
    try:
        rows = orjson.loads(data)["keys"]
        usable = [row for row in rows if row.get("kty") in {"RSA", "EC", "OKP"} and row.get("use", "sig") == "sig"][
            :_MOST_KEYS
        ]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise ConfigInvalid('rest.auth.jwt.keys: a JSON web key set is expected: {"keys": [...]}') from None
    keys: Keys = {}
    for row in usable:
        # A key of RSA that does not say for which algorithm it is may be for any; curves have one each.
        for algorithm in _RSA if row["kty"] == "RSA" and not row.get("alg") else (None,):
            try:
                key = jwt.PyJWK(row, algorithm)
            except (jwt.PyJWTError, ValueError):
                break  # a kind of key that is not known here: its tokens are refused
            keys.setdefault(key.key_id if isinstance(key.key_id, str) else None, []).append(key)
    if not keys:
        raise ConfigInvalid("rest.auth.jwt.keys: there is no public signature key (RSA, EC or OKP) in the set")
    return keys


def granted_roles(claims: Mapping[str, Any], path: str, roles: Mapping[str, Grant]) -> tuple[Grant, ...]:
    """The grants that a token's claim stands for; values that mean nothing here are passed over. Pure."""
    claim: Any = claims
    for part in [path] if path in claims else path.split("."):
        claim = claim.get(part) if isinstance(claim, dict) else None
    values = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
    grants = [roles[value] for value in values if isinstance(value, str) and value in roles]
    try:
        return checked_grants(dict.fromkeys(str(grant) for grant in grants)) if grants else ()
    except ConfigInvalid as error:
        raise NotAccepted(str(error)) from None
