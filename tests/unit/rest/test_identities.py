"""Files of users and tokens, their hashes, the commands that make their lines, and the options that name them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import time
from typing import TYPE_CHECKING

import bcrypt
import pytest

from connectors.errors import ConfigInvalid
from worker import cli
from worker.properties import parse_properties
from worker.rest.client import auth_headers, send_get
from worker.rest.security.auth_settings import AuthSettings
from worker.rest.security.identities import (
    jaas_credentials,
    parse_tokens,
    parse_users,
    readable_by_others,
    token_digest,
)
from worker.rest.security.passwords import check_hash, hash_password, verify_password
from worker.secrets.masking import mask_patterns

from .security import cheap_hash, write_users

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Start

#: Made by others: a vector of RFC 7914, an example of passlib's documentation, and what htpasswd -B makes.
SCRYPT = (
    "$scrypt$ln=14,r=8,p=1$U29kaXVtQ2hsb3JpZGU$"
    + base64.b64encode(
        bytes.fromhex(
            "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
            "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
        )
    ).decode()
)
PBKDF2 = "$pbkdf2-sha256$6400$0ZrzXitFSGltTQnBWOsdAw$Y11AchqV4b0sUisdZd0Xr97KWoymNE0LNNrnEgY4H9M"


def test_hashes_of_others() -> None:
    check_hash(SCRYPT)
    assert verify_password("pleaseletmein", SCRYPT)
    assert not verify_password("pleaseletmeim", SCRYPT)
    assert verify_password("password", PBKDF2)
    hashed = bcrypt.hashpw(b"geheim", bcrypt.gensalt(4)).decode()
    check_hash(hashed)
    assert verify_password("geheim", hashed)
    assert not verify_password("Geheim", hashed)
    assert not verify_password("x" * 100, hashed)


def test_passlib_writes_a_dot_where_others_write_a_plus() -> None:
    salt = b"\xfb\xef\xbe" * 4
    digest = hashlib.pbkdf2_hmac("sha256", b"geheim", salt, 10_000)
    text = f"$pbkdf2-sha256$10000${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode().rstrip('=')}"
    assert "$++++++++++++++++$" in text
    check_hash(text.replace("+", "."))
    assert verify_password("geheim", text.replace("+", "."))


def test_own_hashes() -> None:
    first, second = hash_password("pässword"), hash_password("pässword")
    check_hash(first)
    assert first != second
    assert verify_password("pässword", first)
    assert not verify_password("password", first)
    for wrong in ("", "a\0b", "a\nb", "x" * 2000):
        with pytest.raises(ConfigInvalid):
            hash_password(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "geheim",
        "geheim,admin",
        "$scrypt$ln=30,r=8,p=1$c2FsdHNhbHQ$aGFzaGhhc2g,admin",
        "$scrypt$ln=14,r=8,p=1$?$?,admin",
        "$scrypt$ln=20,r=8,p=1$c2FsdHNhbHQ$aGFzaGhhc2g,admin",
        "$scrypt$ln=14,r=8,p=1$c2FsdHNhbHQ$YQ,admin",
        "$pbkdf2-sha256$1$c2FsdHNhbHQ$aGFzaGhhc2g,admin",
        "$2b$10$x,admin",
        "$5$rounds=5000$geheim$x,admin",
        cheap_hash("geheim"),
        f"{cheap_hash('geheim')},",
        f"{cheap_hash('geheim')},chief",
        f"{cheap_hash('geheim')} admin",
        "certificate",
    ],
)
def test_lines_that_make_no_user(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="user 'ada': ") as caught:
        parse_users({"ada": text})
    assert "geheim" not in str(caught.value)
    # What looks like a secret is masked in logs: the help must not.
    assert mask_patterns(str(caught.value)) == str(caught.value)


def test_names_that_are_none() -> None:
    for name in ("", "a:b", "a\nb", "x" * 300):
        with pytest.raises(ConfigInvalid):
            parse_users({name: "certificate,read"})


@pytest.mark.parametrize(
    "text",
    [
        "geheim,admin",
        "sha256:12,admin",
        f"sha256:{'a' * 64}",
        f"sha256:{'a' * 64},chief",
        f"sha256:{'a' * 64},expires=2027-01-01",
        f"sha256:{'a' * 64},read,expires=soon",
    ],
)
def test_lines_that_make_no_token(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="token 'ci': ") as caught:
        parse_tokens({"ci": text})
    assert "geheim" not in str(caught.value)


def test_a_day_without_a_zone_ends_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        (token,) = parse_tokens({"ci": f"sha256:{'a' * 64},read,expires=2027-01-31"}).values()
        (moment,) = parse_tokens({"ci": f"sha256:{'a' * 64},read,expires=2027-01-31T09:00:00+09:00"}).values()
    finally:
        monkeypatch.undo()
        time.tzset()
    assert token.expires == moment.expires == 1_801_353_600


def test_the_commands_make_lines_that_work(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    assert cli.main(["hash-password", "CN=ada l,O=x", "--role", "read", "--role", r"operate:sales-\d{1,2}"]) == 0
    output = capsys.readouterr()
    assert "geheim" not in output.out + output.err
    users = parse_users(parse_properties(output.out))
    user = users["CN=ada l,O=x"]
    assert verify_password("geheim", user.hashed or "")
    assert [str(grant) for grant in user.grants] == ["read", r"operate:sales-\d{1,2}"]
    assert cli.main(["hash-token", "ci", "--role", "admin", "--expires", "2100-01-01"]) == 0
    output = capsys.readouterr()
    token = output.err.removeprefix("token: ").strip()
    entry = parse_tokens(parse_properties(output.out))[token_digest(token)]
    assert (entry.name, [str(grant) for grant in entry.grants]) == ("ci", ["admin"])
    assert entry.expires is not None
    assert entry.expires > time.time()
    assert cli.main(["hash-token", "ci", "--role", "chief"]) == 2
    assert cli.main(["hash-token", "ci", "--expires", "2020-01-31"]) == 2
    assert "is no role" in capsys.readouterr().err


MODULE = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"


@pytest.mark.parametrize(("mode", "open_to_others"), [(0o600, False), (0o700, False), (0o640, True), (0o604, True)])
def test_files_that_others_may_read(tmp_path: Path, mode: int, open_to_others: bool) -> None:
    path = tmp_path / "credentials"
    assert not readable_by_others(str(path))
    path.touch()
    path.chmod(mode)
    assert readable_by_others(str(path)) is open_to_others


def test_jaas_files() -> None:
    assert jaas_credentials(f'// file="/no";\nKafkaConnect {{ {MODULE} required file="/etc/c"; }};') == "/etc/c"
    for wrong in (
        "",
        "KafkaConnect { };",
        f'Other {{ {MODULE} required file="/etc/c"; }};',
        'KafkaConnect { com.sun.security.auth.module.LdapLoginModule required file="/etc/c"; };',
        f'/* KafkaConnect {{ {MODULE} required file="/etc/c"; }}; */',
    ):
        with pytest.raises(ConfigInvalid, match="KafkaConnect"):
            jaas_credentials(wrong)


JWT = {"rest.authentication": "bearer", "rest.auth.jwt.issuer": "i", "rest.auth.jwt.audience": "a"}


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"rest.authentication": "ldap"}, "must be of none, basic"),
        ({"rest.authentication": "none,basic"}, "none can't be together"),
        ({"rest.authentication": "basic"}, "need rest.auth.users.file"),
        ({"rest.authentication": "bearer"}, "needs rest.auth.tokens.file"),
        ({"rest.auth.users.file": "x"}, "everybody could do everything"),
        ({"rest.auth.user.file": "x"}, "is no option"),
        ({"rest.authenticaton": "basic"}, "is no option"),
        ({**JWT, "rest.auth.jwt.secret": "short"}, "shorter than 32"),
        ({**JWT, "rest.auth.jwt.keys": "http://login.example.com/certs"}, "https"),
        ({"rest.authentication": "bearer", "rest.auth.jwt.keys": "/k"}, "rest.auth.jwt.audience are needed"),
        ({**JWT, "rest.auth.jwt.keys": "/k", "rest.auth.jwt.algorithms": "HS256"}, "HS256 needs rest.auth.jwt.secret"),
        ({**JWT, "rest.auth.jwt.keys": "/k", "rest.auth.jwt.algorithms": "none"}, "must be of"),
        ({**JWT, "rest.auth.jwt.keys": "/k", "rest.auth.jwt.roles": "chief=boss"}, "is no role"),
        ({"rest.extension.classes": "com.example.Extension"}, "what it protects would be open"),
        (
            {
                "rest.extension.classes": "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
            },
            "JAAS file is missing",
        ),
    ],
)
def test_options_that_can_not_be_meant(properties: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        AuthSettings.from_properties(properties, {})
    assert text in str(caught.value)


def test_the_jaas_file_of_kafka_opts() -> None:
    java = {
        "rest.extension.classes": "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
    }
    auth_settings = AuthSettings.from_properties(
        java, {"KAFKA_OPTS": '-Xmx1g -Djava.security.auth.login.config="/etc/j.conf" -Dx=y'}
    )
    assert (auth_settings.basic, auth_settings.on, auth_settings.java_users) == (True, True, "/etc/j.conf")


async def test_an_empty_users_file_lets_nobody_in(start: Start, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("# nobody yet\n")
    with pytest.raises(ConfigInvalid, match="names no users"):
        await start(rest_authentication="basic", rest_auth_users_file=str(tmp_path / "users"))


async def test_commands_send_credentials(start: Start, tmp_path: Path) -> None:
    call, _ = await start(
        rest_authentication="basic", rest_auth_users_file=write_users(tmp_path / "users", {"rita": "read"})
    )
    url = f"{call.url}/connectors"
    environment = {"MILLRACE_REST_USER": "rita", "MILLRACE_REST_PASSWORD": "atir"}
    assert await asyncio.to_thread(send_get, url, 10, environment) == b"[]"
    with pytest.raises(ConfigInvalid, match=r"401 .*set MILLRACE_REST_USER"):
        await asyncio.to_thread(send_get, url, 10, {})
    assert auth_headers({"MILLRACE_REST_TOKEN": "t", **environment}) == {"Authorization": "Bearer t"}
    with pytest.raises(ConfigInvalid, match="must both be set"):
        auth_headers({"MILLRACE_REST_USER": "rita"})
    with pytest.raises(ConfigInvalid, match="http:// or https://"):
        send_get("file:///etc/passwd")
