"""Signatures on requests between workers, under the cluster's session key. Pure but for ``Nonces``.

Internal requests carry KIP-507's, an HMAC of the body. It says nothing of the path, the receiver or the time, so that all
requests between workers carry a second one, which is for one request to one worker and is taken once; it also says for whom
a worker that is not the leader asks.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import ConfigInvalid
from worker.rest.facade import RestError
from worker.rest.security.access import Principal, checked_grants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SIGNATURE_HEADER: Final = "X-Connect-Authorization"
ALGORITHM_HEADER: Final = "X-Connect-Request-Signature-Algorithm"
#: Millrace's own: for whom which request is made, signed.
WORKER_HEADER: Final = "X-Millrace-Worker-Request"
#: In the answer to a request whose signature's key or time does not fit: it had no effect and may be signed again.
STALE_HEADER: Final = "X-Millrace-Signature"
#: Kafka Connect's words.
UNSIGNED: Final = "Internal request missing required signature"
#: How old a signed request may be, or how far ahead its sender's clock.
MOST_AGE_S: Final = 60.0
#: Requests of other workers that are remembered within that time.
MOST_NONCES: Final = 100_000
_DOMAIN: Final = b"millrace worker request 1\0"
_DIGESTS: Final = {
    "HmacSHA256": hashlib.sha256,
    "HmacSHA384": hashlib.sha384,
    "HmacSHA512": hashlib.sha512,
    "HmacSHA224": hashlib.sha224,
    "HmacSHA1": hashlib.sha1,
    "HmacMD5": hashlib.md5,
}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The key that all workers share, as the config topic holds it."""

    key: bytes
    algorithm: str = "HmacSHA256"


def signature_headers(session: SigningKey, body: bytes) -> dict[str, str]:
    """The headers that sign ``body``."""
    return {
        SIGNATURE_HEADER: base64.b64encode(_sign_body(session.algorithm, session.key, body)).decode(),
        ALGORITHM_HEADER: session.algorithm,
    }


def verify_signature(
    headers: Mapping[str, str], body: bytes, session: SigningKey | None, algorithms: Sequence[str]
) -> None:
    """Check a request's signature.

    Args:
        headers: the request's headers (case-insensitive mapping).
        body: its body as it came.
        session: the current key, or None while it isn't known.
        algorithms: algorithms that are accepted.

    Raises:
        RestError: 400 without a usable signature, 403 with a wrong one, 503 while the key isn't known; with Kafka's messages.
    """
    algorithm, encoded = headers.get(ALGORITHM_HEADER), headers.get(SIGNATURE_HEADER)
    if algorithm is None or encoded is None:
        raise RestError(400, UNSIGNED)
    if algorithm not in _DIGESTS:
        raise RestError(400, f"Algorithm {algorithm} not available")
    try:
        signature = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise RestError(400, f"The header {SIGNATURE_HEADER} is not valid base64") from None
    if algorithm not in algorithms:
        raise RestError(
            400,
            f"This worker does not support the '{algorithm}' key signing algorithm used by other workers. "
            f"This worker is currently configured to use: [{', '.join(algorithms)}]. "
            "Check that all workers' configuration files permit the same set of signature algorithms, "
            "and correct any misconfigured worker and restart it.",
        )
    if session is None:
        raise RestError(
            503,
            "This worker is still starting up and has not been able to read a session key from the config topic yet",
        )
    if not hmac.compare_digest(_sign_body(algorithm, session.key, body), signature):
        raise RestError(403, "Internal request contained invalid signature.")


def _sign_body(algorithm: str, key: bytes, body: bytes) -> bytes:
    return hmac.new(key, body, _DIGESTS[algorithm]).digest()


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request as its signature covers it.

    Attributes:
        method: the HTTP method.
        target: encoded path and query.
        receiver: the address the receiving worker advertises.
    """

    method: str
    target: str
    receiver: str


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """The content of a signed request: the caller, the body's digest, the nonce, and the time of signing (seconds)."""

    principal: Principal
    body: bytes
    nonce: str
    at: float


def sign_request(session: SigningKey, asked: SignedRequest, body: bytes, principal: Principal, now: float) -> str:
    """The value of ``WORKER_HEADER`` for one request.

    Args:
        session: the cluster's key.
        asked: the request.
        body: its body.
        principal: for whom it is made.
        now: seconds since the epoch.
    """
    payload = base64.urlsafe_b64encode(
        orjson.dumps(
            {
                "alg": session.algorithm,
                "method": asked.method,
                "target": asked.target,
                "receiver": asked.receiver,
                "body": hashlib.sha256(body).hexdigest(),
                "at": now,
                "nonce": secrets.token_hex(16),
                "user": principal.name,
                "auth": principal.method,
                "grants": [str(grant) for grant in principal.grants],
            }
        )
    )
    signature = base64.urlsafe_b64encode(_sign_body(session.algorithm, session.key, _DOMAIN + payload))
    return f"{payload.decode()}.{signature.decode()}"


def read_request(
    header: str, asked: SignedRequest, session: SigningKey | None, algorithms: Sequence[str], now: float
) -> WorkerRequest:
    """Return the content of a signed request; the caller compares the body's digest and checks that the nonce is new.

    Args:
        header: the value of ``WORKER_HEADER``.
        asked: the request as it came.
        session: the current key, or None while it isn't known.
        algorithms: algorithms that are accepted.
        now: seconds since the epoch.

    Raises:
        RestError: 403 for what was not signed with this key, for this request, or a moment ago; 503 while the key isn't known.
    """
    if session is None:
        raise RestError(
            503,
            "This worker is still starting up and has not been able to read a session key from the config topic yet",
        )
    payload, _, encoded = header.partition(".")
    try:
        signature = base64.b64decode(encoded, altchars=b"-_", validate=True)
        said: dict[str, Any] = orjson.loads(base64.b64decode(payload, altchars=b"-_", validate=True))
        algorithm = str(said["alg"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise _refuse_signature("it can't be read") from None
    if algorithm not in algorithms or algorithm not in _DIGESTS:
        raise _refuse_signature(
            f"inter.worker.verification.algorithms does not list its algorithm; it lists {', '.join(algorithms)}"
        )
    if not hmac.compare_digest(_sign_body(algorithm, session.key, _DOMAIN + payload.encode()), signature):
        # The sender may have an older or a newer key for a moment: it may retry.
        raise RestError(
            403,
            "The signature of the request between workers is invalid: it can't have been made with the "
            "cluster's current session key",
            {STALE_HEADER: "invalid"},
        )
    if (said["method"], said["target"], said["receiver"]) != (asked.method, asked.target, asked.receiver):
        raise _refuse_signature(f"it is for {said['method']} {said['target']} at {said['receiver']}")
    if not abs(now - said["at"]) <= MOST_AGE_S:
        raise RestError(
            403,
            f"The request between workers was signed {abs(now - said['at']):.0f} s "
            f"{'before' if now > said['at'] else 'after'} the time of the clock of the worker that got it, {MOST_AGE_S:g} s "
            "are allowed: compare the workers' clocks",
            {STALE_HEADER: "clock"},
        )
    try:
        grants = checked_grants(said["grants"]) if said["grants"] else ()
    except ConfigInvalid as error:
        raise _refuse_signature(str(error)) from None
    return WorkerRequest(
        Principal(said["user"], said["auth"], grants), bytes.fromhex(said["body"]), said["nonce"], said["at"]
    )


def _refuse_signature(reason: str) -> RestError:
    return RestError(403, f"The signature of the request between workers is not valid here: {reason}")


class Nonces:
    """The signed requests of the last minutes, each of which is taken once. Its size is bounded.

    Args:
        started: seconds since the epoch; what was signed before may have been taken by an earlier process.
        max_nonces: how many to remember; when that many came in that time, further ones are refused.
    """

    def __init__(self, started: float, max_nonces: int = MOST_NONCES) -> None:
        self._started = started
        self._most = max_nonces
        self._seen: OrderedDict[str, float] = OrderedDict()

    def take(self, nonce: str, at: float, now: float) -> None:
        """Take a request once.

        Raises:
            RestError: 403: it has been here; 503: there are too many.
        """
        # From before the start: an hour's difference of clocks is refused above, what remains is a moment.
        if at < self._started:
            raise RestError(
                403, "The request between workers was signed before this worker started", {STALE_HEADER: "old"}
            )
        while self._seen and next(iter(self._seen.values())) < now:
            self._seen.popitem(last=False)
        if nonce in self._seen:
            raise _refuse_signature("the same request was here before")
        if len(self._seen) >= self._most:
            raise RestError(503, "Too many requests of other workers")
        # Kept as long as its age may pass, however far ahead the sender's clock is.
        self._seen[nonce] = now + 2 * MOST_AGE_S
