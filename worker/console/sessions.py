"""Sessions of the console: a cookie in worker of credentials, which the browser's pages never see again.

A session holds the credentials it was opened with, encrypted under a key that only the cookie has. Each request is admitted by
them again: whoever is removed, gets another role or another password, and a token that expires, are noticed at once.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: The header with which a page shows that a request is its own: pages of other origins can't set it.
PROOF_HEADER: Final = "X-CSRF-Token"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class LoginSession:
    """Somebody who has logged in.

    Attributes:
        id: under which it is kept.
        authorization: the header it was opened with.
        proof: what ``PROOF_HEADER`` must hold in requests that change something.
    """

    id: bytes
    authorization: str
    proof: str


@dataclass(frozen=True, slots=True)
class _Kept:
    sealed: bytes
    expires: float


class Sessions:
    """The sessions of a worker. For one event loop; beyond a thousand the oldest ends.

    Args:
        lifetime_s: how long a session lasts.
        worker: what tells this worker's cookies from those of others on the same host; asked when the first cookie is made.
        clock: seconds of a steady clock.
    """

    def __init__(
        self, lifetime_s: float, worker: Callable[[], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.lifetime_s = lifetime_s
        self._worker = worker
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def cookie(self) -> str:
        """The cookie's name: browsers send cookies to all ports of a host."""
        return f"millrace_{hashlib.sha256(self._worker().encode()).hexdigest()[:8]}"

    def open(self, authorization: str) -> tuple[str, LoginSession]:
        """Begin a session with credentials that were found right: the cookie's value, and the session."""
        key = os.urandom(_KEY_BYTES)
        session = _build_session(key, authorization)
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + AESGCM(key).encrypt(nonce, authorization.encode(), session.id)
        self._kept[session.id] = _Kept(sealed, self._clock() + self.lifetime_s)
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return base64.urlsafe_b64encode(key).decode(), session

    def find(self, cookies: Mapping[str, str]) -> LoginSession | None:
        """The session of a request's cookies, or None."""
        value = cookies.get(self.cookie) if self._kept else None
        if value is None:
            return None
        try:
            key = base64.urlsafe_b64decode(value)
        except ValueError:
            return None
        if len(key) != _KEY_BYTES:
            return None
        ident = _derive_key(key, b"id")
        kept = self._kept.get(ident)
        if kept is None:
            return None
        if kept.expires <= self._clock():
            del self._kept[ident]
            return None
        try:
            opened = AESGCM(key).decrypt(kept.sealed[:_NONCE_BYTES], kept.sealed[_NONCE_BYTES:], ident)
        except InvalidTag:
            return None
        return _build_session(key, opened.decode())

    def end(self, session: LoginSession) -> None:
        """End a session."""
        self._kept.pop(session.id, None)


def _build_session(key: bytes, authorization: str) -> LoginSession:
    return LoginSession(_derive_key(key, b"id"), authorization, _derive_key(key, b"proof").hex())


def _derive_key(key: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(purpose, key=key, digest_size=24).digest()
