"""Signatures on requests between workers (KIP-507): an HMAC of the body under the cluster's session key. Pure."""
from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SIGNATURE_HEADER: Final = "X-Connect-Authorization"
ALGORITHM_HEADER: Final = "X-Connect-Request-Signature-Algorithm"
_DIGESTS: Final = {"HmacSHA256": hashlib.sha256, "HmacSHA384": hashlib.sha384, "HmacSHA512": hashlib.sha512,
                   "HmacSHA224": hashlib.sha224, "HmacSHA1": hashlib.sha1, "HmacMD5": hashlib.md5}


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The key that all workers share, as the config topic holds it."""

    key: bytes
    algorithm: str = "HmacSHA256"


def signature_headers(session: SessionKey, body: bytes) -> dict[str, str]:
    """The headers that sign ``body``."""
    return {SIGNATURE_HEADER: base64.b64encode(_sign(session.algorithm, session.key, body)).decode(),
            ALGORITHM_HEADER: session.algorithm}


def verify(headers: Mapping[str, str], body: bytes, session: SessionKey | None, algorithms: Sequence[str]) -> None:
    """Check a request's signature.

    Args:
        headers: the request's headers (case-insensitive mapping).
        body: its body as it came.
        session: the current key, or None while it isn't known.
        algorithms: algorithms that are accepted.

    Raises:
        RestError: 400 without a usable signature, 403 with a wrong one, 503 while the key isn't known; Kafka's texts.
    """
    algorithm, encoded = headers.get(ALGORITHM_HEADER), headers.get(SIGNATURE_HEADER)
    if algorithm is None or encoded is None:
        raise RestError(400, "Internal request missing required signature")
    if algorithm not in _DIGESTS:
        raise RestError(400, f"Algorithm {algorithm} not available")
    try:
        signature = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise RestError(400, f"The header {SIGNATURE_HEADER} is not valid base64") from None
    if algorithm not in algorithms:
        raise RestError(400, f"This worker does not support the '{algorithm}' key signing algorithm used by other workers. "
                             f"This worker is currently configured to use: [{', '.join(algorithms)}]. "
                             "Check that all workers' configuration files permit the same set of signature algorithms, "
                             "and correct any misconfigured worker and restart it.")
    if session is None:
        raise RestError(503, "This worker is still starting up and has not been able to read a session key "
                             "from the config topic yet")
    if not hmac.compare_digest(_sign(algorithm, session.key, body), signature):
        raise RestError(403, "Internal request contained invalid signature.")


def _sign(algorithm: str, key: bytes, body: bytes) -> bytes:
    return hmac.new(key, body, _DIGESTS[algorithm]).digest()
