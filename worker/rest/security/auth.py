"""Authentication of requests: users and passwords, bearer tokens, client certificates."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import os
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from worker.rest.facade import RestError
from worker.rest.security.access import Principal
from worker.rest.security.audit import RefusedCertificates, quote_text
from worker.rest.security.certificates import name_of, subject_of
from worker.rest.security.identities import (
    CERTIFICATE,
    Token,
    User,
    read_java_users,
    read_tokens,
    read_users,
    readable_by_others,
    token_digest,
)
from worker.rest.security.limits import TokenBuckets
from worker.rest.security.passwords import LONGEST_PASSWORD, verify_password
from worker.rest.security.web_tokens import JwtVerifier, NotAccepted

if TYPE_CHECKING:
    from worker.rest.security.auth_settings import AuthSettings

_log = logging.getLogger("worker.rest.auth")
#: Passwords that were found right, so that not every request costs a hash; forgotten when the users' file changes.
_REMEMBERED: Final = 1024
_REMEMBERED_S: Final = 300.0
#: Passwords that wait for their hash at a time; each hash takes 32 MiB and about 0.1 s of a CPU.
_MOST_WAITING: Final = 64
_HASHERS: Final = 2
_REALM: Final = "Millrace"
#: An empty user and password: Redpanda Console's client sends them where none are set, also together with a certificate.
_NOBODY: Final = ("basic", "Og==")


class Authenticator:
    """Knows users and tokens. For one event loop; ``start`` it, ``close`` it at the end.

    Args:
        settings: what is accepted.
    """

    def __init__(self, settings: AuthSettings) -> None:
        self._settings = settings
        self._users: dict[str, User] = {}
        self._tokens: dict[bytes, Token] = {}
        self._jwt = None if settings.jwt is None else JwtVerifier(settings.jwt)
        self._java_file = ""
        self._failures = TokenBuckets(settings.failures_per_minute / 60, settings.failures_per_minute)
        self._refused = RefusedCertificates()
        self._secret = os.urandom(32)
        self._right: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._looking: dict[bytes, asyncio.Task[Principal | None]] = {}
        self._hashers = ThreadPoolExecutor(_HASHERS, thread_name_prefix="passwords") if settings.basic else None

    async def start(self) -> None:
        """Read users, tokens and keys.

        Raises:
            ConfigInvalid: a file can't be used.
        """
        if not self._settings.on:
            return
        await self.reload_identities()
        if self._jwt is not None:
            await self._jwt.start()
        java_file = self._java_file
        if java_file:
            open_to_others = await asyncio.to_thread(readable_by_others, java_file)
            _log.warning(
                "%s holds passwords in plain text%s; rest.auth.users.file holds hashes",
                java_file,
                " and other users of this machine may read it (chmod 600)" if open_to_others else "",
            )

    async def close(self) -> None:
        """Release what it holds."""
        if self._hashers is not None:
            self._hashers.shutdown(wait=False, cancel_futures=True)
        if self._jwt is not None:
            await self._jwt.close()

    @property
    def identity_files(self) -> list[str]:
        """Files to watch for ``reload_identities``."""
        settings = self._settings
        configured = (settings.users_file, settings.tokens_file, settings.java_users, self._java_file)
        return [path for path in configured if path and settings.on]

    @property
    def key_files(self) -> list[str]:
        """Files to watch for ``reload_keys``."""
        return [self._jwt.file] if self._jwt is not None and self._jwt.file and self._settings.bearer else []

    async def reload_identities(self) -> None:
        """Read users and tokens again, and forget which passwords were right.

        Raises:
            ConfigInvalid: a file can't be used; the old users and tokens stay.
        """
        settings = self._settings
        users: dict[str, User] = {}
        tokens: dict[bytes, Token] = {}
        java_file = ""
        if settings.java_users:
            users, java_file = await asyncio.to_thread(read_java_users, settings.java_users)
        if settings.users_file:
            users |= await asyncio.to_thread(read_users, settings.users_file)
        if settings.tokens_file:
            tokens = await asyncio.to_thread(read_tokens, settings.tokens_file)
        if (settings.basic or settings.certificate) and not users:
            raise ConfigInvalid(
                f"{settings.users_file or java_file} names no users: no one could call (Kafka Connect lets "
                "everybody in then)"
            )
        self._users, self._tokens, self._java_file = users, tokens, java_file
        self._right.clear()

    async def reload_keys(self) -> None:
        """Read the keys of JSON web tokens again.

        Raises:
            ConfigInvalid: the file can't be used; the old keys stay.
        """
        if self._jwt is not None:
            await self._jwt.reload()

    async def identify(self, authorization: list[str], certificate: bytes | None, address: str) -> Principal:
        """Return the caller of a request.

        Args:
            authorization: all ``Authorization`` headers of the request.
            certificate: the TLS client's certificate (DER), which was verified in the handshake; None without one.
            address: the client's, for which wrong credentials are counted.

        Raises:
            RestError: 401 without usable credentials, 429 after too many wrong ones, 503 while too many wait to be looked at.
        """
        if len(authorization) > 1:
            raise self._refuse_login("there is more than one Authorization header")
        scheme, _, value = "".join(authorization).strip().partition(" ")
        scheme, value = scheme.lower(), value.strip()
        if not authorization or (scheme, value) == _NOBODY:
            if certificate is None or not self._settings.certificate:
                raise self._refuse_login("credentials are needed")
            return self._by_certificate(certificate, address)
        if scheme == "basic" and self._settings.basic:
            return await self._by_password(value, address)
        if scheme == "bearer" and self._settings.bearer:
            return await self._by_token(value, address)
        raise self._refuse_login("this kind of credentials is not accepted")

    def _by_certificate(self, certificate: bytes, address: str) -> Principal:
        try:
            subject = subject_of(certificate)
        except ValueError as error:
            self._refused.tell(f"unreadable: {error}", address, "give the client a certificate with a readable subject")
            raise self._refuse_login("the certificate can't be read") from None
        name = name_of(subject, self._settings.rules)
        user = None if name is None else self._users.get(name)
        # A user with a password does not come by a certificate that happens to bear the name.
        if user is None or user.hashed is not None or user.plain is not None:
            self._refused.tell(subject, address, _why_refused(name, user))
            raise self._refuse_login("the certificate stands for no user")
        return Principal(user.name, "certificate", user.grants)

    async def _by_password(self, value: str, address: str) -> Principal:
        try:
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            name = colon = password = ""
        if not colon or len(password) > LONGEST_PASSWORD:
            self._count_failure(address)
            raise self._refuse_login("the Authorization header can't be read")
        digest = hmac.digest(self._secret, f"{len(name)}:{name}:{password}".encode("utf-8", "surrogatepass"), "sha256")
        remembered = self._right.get(digest)
        if remembered is not None and remembered[1] > time.monotonic():
            return remembered[0]
        # A client's first requests often come together: they wait for one hash.
        looking = self._looking.get(digest)
        if looking is None:
            if len(self._looking) >= _MOST_WAITING:
                raise RestError(503, "Too many passwords are being looked at; retry in a moment", {"Retry-After": "1"})
            # Counted before the hash: many attempts at once must not get by.
            self._count_failure(address)
            looking = self._looking[digest] = asyncio.create_task(self._check_password(name, password, digest, address))
            looking.add_done_callback(lambda _: self._looking.pop(digest, None))
        principal = await asyncio.shield(looking)
        if principal is None:
            raise self._refuse_login("user or password is wrong")
        return principal

    async def _check_password(self, name: str, password: str, digest: bytes, address: str) -> Principal | None:
        users = self._users
        user = users.get(name)
        if user is not None and user.plain is not None:
            password_digest = hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()
            right = hmac.compare_digest(password_digest, hashlib.sha256(user.plain).digest())
        else:
            # A password is also checked for unknown users and for users with certificates, so that it takes equally long.
            own_hash = user.hashed if user is not None else None
            hashed = own_hash or next((account.hashed for account in users.values() if account.hashed), None)
            right = (
                hashed is not None
                and await asyncio.get_running_loop().run_in_executor(self._hashers, verify_password, password, hashed)
                and hashed is own_hash
            )
        if not right or user is None:
            _log.warning("Wrong password of %s from %s", "an unknown user" if user is None else f"user {name}", address)
            return None
        self._failures.give_back(address)
        principal = Principal(user.name, "basic", user.grants)
        if users is self._users:
            self._right[digest] = principal, time.monotonic() + _REMEMBERED_S
            self._right.move_to_end(digest)
            if len(self._right) > _REMEMBERED:
                self._right.popitem(last=False)
        return principal

    async def _by_token(self, value: str, address: str) -> Principal:
        # Digests are compared: how long that takes says nothing of the token.
        token = self._tokens.get(token_digest(value))
        if token is not None and (token.expires is None or token.expires > time.time()):
            return Principal(token.name, "bearer", token.grants)
        reason = "no one has it" if token is None else f"that of {token.name} has expired"
        if token is None and self._jwt is not None:
            try:
                return await self._jwt.verify(value)
            except NotAccepted as error:
                reason = str(error)
        # A token can't be guessed: the bound here is for the log.
        self._count_failure(address)
        _log.warning("A token from %s is not accepted: %s", address, reason)
        raise self._refuse_login("the token is not accepted", "invalid_token")

    def _count_failure(self, address: str) -> None:
        wait = self._failures.take(address, time.monotonic())
        if wait:
            raise _slow_down(wait)

    def _refuse_login(self, reason: str, error: str = "") -> RestError:
        ways = []
        if self._settings.basic:
            ways.append(f'Basic realm="{_REALM}", charset="UTF-8"')
        if self._settings.bearer:
            ways.append(f'Bearer realm="{_REALM}"' + (f', error="{error}"' if error else ""))
        return RestError(
            401, f"User cannot access the resource: {reason}.", {"WWW-Authenticate": ", ".join(ways)} if ways else None
        )


def _why_refused(name: str | None, user: User | None) -> str:
    """Return why a certificate whose subject gives ``name`` is for no user, and the fix."""
    if name is None:
        return (
            "no rule of rest.auth.certificate.rules is for it; add a rule, or DEFAULT at the end to take the whole subject "
            "as the user's name"
        )
    if user is None:
        return (
            f"it stands for {quote_text(name)}, and there is no such user; if it may call, add {CERTIFICATE} and a role under "
            "this name to rest.auth.users.file, or correct rest.auth.certificate.rules"
        )
    return (
        f"it stands for {quote_text(name)}, who has a password and can't come by certificate; write {CERTIFICATE} in the place "
        "of the password's hash, or let rest.auth.certificate.rules make another name of it"
    )


def _slow_down(wait_s: float) -> RestError:
    return RestError(
        429,
        "Too many wrong passwords or tokens came from this address; retry later",
        {"Retry-After": str(int(wait_s) + 1)},
    )
