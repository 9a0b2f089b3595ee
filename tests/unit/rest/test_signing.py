"""Signatures of internal requests."""

from __future__ import annotations

import pytest

from worker.rest.facade import RestError
from worker.rest.security.signing import SigningKey, signature_headers, verify_signature

KEY, BODY = b"k" * 32, b'[{"a":"1"}]'


def test_a_signature_is_that_of_the_standard() -> None:
    import base64
    import hashlib
    import hmac

    headers = signature_headers(SigningKey(KEY), BODY)
    assert headers["X-Connect-Request-Signature-Algorithm"] == "HmacSHA256"
    assert base64.b64decode(headers["X-Connect-Authorization"]) == hmac.digest(KEY, BODY, hashlib.sha256)


@pytest.mark.parametrize("algorithm", ["HmacSHA1", "HmacSHA256", "HmacSHA384", "HmacSHA512"])
def test_what_is_signed_is_accepted(algorithm: str) -> None:
    session = SigningKey(b"secret", algorithm)
    verify_signature(signature_headers(session, b"body"), b"body", session, [algorithm])
    with pytest.raises(RestError) as caught:
        verify_signature(signature_headers(session, b"body"), b"other", session, [algorithm])
    assert (caught.value.status, str(caught.value)) == (403, "Internal request contained invalid signature.")


UNSUPPORTED = (
    "This worker does not support the 'HmacMD5' key signing algorithm used by other workers. This worker is currently "
    "configured to use: [HmacSHA256]. Check that all workers' configuration files permit the same set of signature algorithms, "
    "and correct any misconfigured worker and restart it."
)
GOOD = signature_headers(SigningKey(b"secret"), b"body")


@pytest.mark.parametrize(
    ("headers", "session", "status", "text"),
    [
        ({}, SigningKey(b"secret"), 400, "Internal request missing required signature"),
        (
            {"X-Connect-Authorization": "AA=="},
            SigningKey(b"secret"),
            400,
            "Internal request missing required signature",
        ),
        (
            {**GOOD, "X-Connect-Request-Signature-Algorithm": "nope"},
            SigningKey(b"secret"),
            400,
            "Algorithm nope not available",
        ),
        ({**GOOD, "X-Connect-Request-Signature-Algorithm": "HmacMD5"}, SigningKey(b"secret"), 400, UNSUPPORTED),
        (
            {**GOOD, "X-Connect-Authorization": "???"},
            SigningKey(b"secret"),
            400,
            "The header X-Connect-Authorization is not valid base64",
        ),
        (
            GOOD,
            None,
            503,
            "This worker is still starting up and has not been able to read a session key from the config topic yet",
        ),
        (GOOD, SigningKey(b"old secret"), 403, "Internal request contained invalid signature."),
    ],
)
def test_what_is_refused(headers: dict[str, str], session: SigningKey | None, status: int, text: str) -> None:
    with pytest.raises(RestError) as caught:
        verify_signature(headers, b"body", session, ["HmacSHA256"])
    assert (caught.value.status, str(caught.value)) == (status, text)
