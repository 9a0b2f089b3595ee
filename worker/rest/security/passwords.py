"""Passwords as the users file keeps them: salted hashes that are slow to try.

Forms: ``$scrypt$ln=15,r=8,p=1$salt$hash`` (what ``hash-password`` makes), ``$pbkdf2-sha256$iterations$salt$hash``,
``$pbkdf2-sha512$...`` (salt and hash in base64 without padding, as passlib writes them) and bcrypt's ``$2b$...`` (what
``htpasswd -B`` makes).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from typing import Final

import bcrypt

from connectors.errors import ConfigInvalid

_SCRYPT: Final = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([^$]+)\$([^$]+)\Z")
_PBKDF2: Final = re.compile(r"\$pbkdf2-(sha256|sha512)\$(?:i=)?(\d{1,8})\$([^$]+)\$([^$]+)\Z")
_BCRYPT: Final = re.compile(r"\$2[aby]\$(0[4-9]|1[0-6])\$[./A-Za-z0-9]{53}\Z")
#: 2**15 rounds with blocks of 1 KiB: 32 MiB and about 0.1 s for each try.
_LOG_ROUNDS, _BLOCK, _LANES = 15, 8, 1
_MOST_BYTES: Final = 256 << 20
_LEAST_ITERATIONS, _MOST_ITERATIONS = 10_000, 10_000_000
#: Longer ones are not looked at: no password needs it, and hashing them costs.
LONGEST_PASSWORD: Final = 1024


def hash_password(password: str) -> str:
    """A new hash with a random salt. Takes about 0.1 s of a CPU.

    Raises:
        ConfigInvalid: it is no password that could be sent.
    """
    data = password.encode("utf-8", "replace")
    if not data or len(data) > LONGEST_PASSWORD or not password.isprintable():
        raise ConfigInvalid(f"a password has 1 to {LONGEST_PASSWORD} bytes, all of printable characters")
    salt = os.urandom(16)
    digest = _hash_scrypt(data, salt, _LOG_ROUNDS, _BLOCK, _LANES, 32)
    return f"$scrypt$ln={_LOG_ROUNDS},r={_BLOCK},p={_LANES}${_encode_base64(salt)}${_encode_base64(digest)}"


def check_hash(stored_hash: str) -> None:
    """Refuse what can't be a hash of a password.

    Raises:
        ConfigInvalid: the text itself is not quoted: it may be a password.
    """
    scrypt, pbkdf2 = _SCRYPT.match(stored_hash), _PBKDF2.match(stored_hash)
    if scrypt is not None:
        rounds, block, lanes = int(scrypt[1]), int(scrypt[2]), int(scrypt[3])
        if not (10 <= rounds <= 20 and 1 <= block <= 32 and 1 <= lanes <= 16) or 128 * block << rounds > _MOST_BYTES:
            raise ConfigInvalid("the parameters of the scrypt hash are out of bounds (ln 10 to 20, at most 256 MiB)")
        _decode_base64(scrypt[4]), _decode_base64(scrypt[5])
    elif pbkdf2 is not None:
        if not _LEAST_ITERATIONS <= int(pbkdf2[2]) <= _MOST_ITERATIONS:
            raise ConfigInvalid(f"the pbkdf2 hash must have {_LEAST_ITERATIONS} to {_MOST_ITERATIONS} iterations")
        _decode_base64(pbkdf2[3]), _decode_base64(pbkdf2[4])
    elif _BCRYPT.match(stored_hash) is None:
        raise ConfigInvalid(
            "the first part must be a hash ($scrypt$..., $pbkdf2-sha256$..., $2b$...), not a password. "
            "`millrace hash-password NAME --role ROLE` makes the line"
        )


def verify_password(password: str, stored_hash: str) -> bool:
    """Whether the password is the one of a hash that ``check_hash`` has seen. Blocks for about 0.1 s: call it in a thread."""
    data = password.encode("utf-8", "surrogatepass")
    # HMAC, and with it both of the first two forms, fills keys up with zeros, so that some passwords would be the same.
    if len(data) > LONGEST_PASSWORD or b"\0" in data:
        return False
    scrypt, pbkdf2 = _SCRYPT.match(stored_hash), _PBKDF2.match(stored_hash)
    if scrypt is not None:
        expected = _decode_base64(scrypt[5])
        digest = _hash_scrypt(
            data, _decode_base64(scrypt[4]), int(scrypt[1]), int(scrypt[2]), int(scrypt[3]), len(expected)
        )
        return hmac.compare_digest(digest, expected)
    if pbkdf2 is not None:
        expected = _decode_base64(pbkdf2[4])
        digest = hashlib.pbkdf2_hmac(pbkdf2[1], data, _decode_base64(pbkdf2[3]), int(pbkdf2[2]), len(expected))
        return hmac.compare_digest(digest, expected)
    try:
        return bcrypt.checkpw(data, stored_hash.encode())
    except ValueError:
        return False  # bcrypt knows no passwords above 72 bytes


def _hash_scrypt(data: bytes, salt: bytes, rounds: int, block: int, lanes: int, size: int) -> bytes:
    return hashlib.scrypt(data, salt=salt, n=1 << rounds, r=block, p=lanes, maxmem=2 * _MOST_BYTES, dklen=size)


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _decode_base64(encoded: str) -> bytes:
    plain = encoded.replace(".", "+")  # passlib's alphabet
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigInvalid("the salt or the hash is not base64") from None
    if len(data) < 8:
        raise ConfigInvalid("the salt or the hash is shorter than 8 bytes")
    return data
