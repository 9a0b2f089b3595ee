"""Files that say who may call: users, tokens, and the JAAS files of Kafka Connect's basic authentication."""

from __future__ import annotations

import hashlib
import re
import secrets
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from worker.properties import load_properties
from worker.rest.routing import RequiredAccess
from worker.rest.security.access import Grant, parse_grants
from worker.rest.security.passwords import check_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

#: In the place of a hash: this user comes with a client certificate only.
CERTIFICATE: Final = "certificate"
_TOKEN: Final = re.compile(r"sha256:([0-9a-f]{64})\Z")
_EXPIRES: Final = re.compile(r",\s*expires=([^,\s]+)\s*\Z")
_HASHED: Final = re.compile(r"\s*(\$scrypt\$[^$]*\$[^$]*\$[^$,]*|[^,]*)\s*(?:,|\Z)(.*)\Z", re.DOTALL)
_SECTION: Final = re.compile(r"KafkaConnect\s*\{(.*?)\}\s*;?", re.DOTALL)
_COMMENT: Final = re.compile(r"/\*.*?\*/|^\s*(?://|#).*?$", re.DOTALL | re.MULTILINE)
_LOGIN_MODULE: Final = re.compile(
    r"org\.apache\.kafka\.connect\.rest\.basic\.auth\.extension\.PropertyFileLoginModule\s+(?i:required|requisite)\s+"
    r"file\s*=\s*\"([^\"]+)\"\s*;"
)


@dataclass(frozen=True, slots=True)
class User:
    """A user: ``hashed`` is None for one that comes with a certificate; ``plain`` only for those of a Java Connect's file."""

    name: str
    hashed: str | None
    grants: tuple[Grant, ...]
    plain: bytes | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A static token; ``expires`` in seconds since the epoch, None for never."""

    name: str
    grants: tuple[Grant, ...]
    expires: float | None = None


def parse_users(lines: Mapping[str, str]) -> dict[str, User]:
    """Users from ``name=hash,role,...`` lines, or ``name=certificate,role,...``.

    Raises:
        ConfigInvalid: a line is wrong; the message names the user, and nothing of the line.
    """
    users: dict[str, User] = {}
    for name, value in lines.items():
        try:
            users[name] = _parse_user(name, value)
        except ConfigInvalid as error:
            raise ConfigInvalid(f"user {name!r}: {error}") from error
    return users


def _parse_user(name: str, value: str) -> User:
    match = _HASHED.match(value)
    hashed, roles = (match[1].strip(), match[2]) if match is not None else (value, "")
    _check_name(name)
    if hashed != CERTIFICATE:
        check_hash(hashed)
    if not roles.strip():
        raise ConfigInvalid("the role is missing: write read, operate or admin behind the hash and a comma")
    return User(name, None if hashed == CERTIFICATE else hashed, parse_grants(roles))


def parse_tokens(lines: Mapping[str, str]) -> dict[bytes, Token]:
    """Digest of a token -> what it is for, from ``name=sha256:HEX,role,...[,expires=TIME]`` lines (ISO 8601).

    Raises:
        ConfigInvalid: a line is wrong; the message names the token's owner, and nothing of the line.
    """
    tokens: dict[bytes, Token] = {}
    for name, value in lines.items():
        try:
            digest, token = _parse_token(name, value)
        except ConfigInvalid as error:
            raise ConfigInvalid(f"token {name!r}: {error}") from error
        tokens[digest] = token
    return tokens


def _parse_token(name: str, value: str) -> tuple[bytes, Token]:
    digest, comma, roles = value.partition(",")
    match = _TOKEN.match(digest.strip())
    _check_name(name)
    if match is None:
        raise ConfigInvalid(
            "the first part must be sha256: and 64 hexadecimal digits: `millrace hash-token NAME --role ROLE` "
            "makes a token and the line"
        )
    until = _EXPIRES.search(comma + roles)
    if until is not None:
        roles = roles[: max(0, until.start() - 1)]
    return bytes.fromhex(match[1]), Token(name, parse_grants(roles), None if until is None else _parse_moment(until[1]))


def _check_name(name: str) -> None:
    if not name or ":" in name or not name.isprintable() or len(name) > 256:
        raise ConfigInvalid("a name has 1 to 256 printable characters and no colon")


def _parse_moment(raw: str) -> float:
    try:
        moment = datetime.fromisoformat(raw)
    except ValueError:
        raise ConfigInvalid(f"expires={raw} is no time: write 2027-01-31 or 2027-01-31T12:00:00+00:00") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def make_token() -> tuple[str, str]:
    """A new token and what the tokens file says of it."""
    token = secrets.token_urlsafe(32)
    return token, f"sha256:{token_digest(token).hex()}"


def token_digest(token: str) -> bytes:
    """Return the digest that is kept of a token; a fast hash suffices, since tokens are random."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def jaas_credentials(jaas_config: str) -> str:
    """The file that the section ``KafkaConnect`` of a JAAS configuration names.

    Raises:
        ConfigInvalid: there is no such section, or another login module in it.
    """
    section = _SECTION.search(_COMMENT.sub("", jaas_config))
    module = None if section is None else _LOGIN_MODULE.search(section[1])
    if module is None:
        raise ConfigInvalid(
            "a section KafkaConnect { org.apache.kafka.connect.rest.basic.auth.extension."
            'PropertyFileLoginModule required file="..."; }; is expected; other login modules can\'t run here'
        )
    return module[1]


def read_users(path: str) -> dict[str, User]:
    """The users of ``rest.auth.users.file``. Blocks while it reads.

    Raises:
        ConfigInvalid: it can't be read or understood.
    """
    try:
        return parse_users(load_properties(path))
    except ConfigInvalid as error:
        raise ConfigInvalid(f"rest.auth.users.file {path}: {error}") from error


def read_tokens(path: str) -> dict[bytes, Token]:
    """The tokens of ``rest.auth.tokens.file``. Blocks while it reads.

    Raises:
        ConfigInvalid: it can't be read or understood.
    """
    try:
        return parse_tokens(load_properties(path))
    except ConfigInvalid as error:
        raise ConfigInvalid(f"rest.auth.tokens.file {path}: {error}") from error


def read_java_users(jaas: str) -> tuple[dict[str, User], str]:
    """Return the users of Kafka Connect's basic authentication, who may do everything, and the file that lists them. Blocks.

    The file holds passwords in plain text. With an empty file, Kafka Connect accepts every caller; Millrace accepts no caller.

    Raises:
        ConfigInvalid: a file can't be read or understood.
    """
    try:
        path = jaas_credentials(Path(jaas).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ConfigInvalid) as error:
        raise ConfigInvalid(f"java.security.auth.login.config {jaas}: {error}") from error
    return {
        name: User(name, None, (Grant(RequiredAccess.ADMIN),), value.encode())
        for name, value in load_properties(path).items()
    }, path


def readable_by_others(path: str) -> bool:
    """Whether users of the machine other than the file's own may read it; False if it isn't there. Blocks for a moment."""
    try:
        return bool(Path(path).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False
