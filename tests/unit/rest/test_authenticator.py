"""The authenticator alone: what it remembers of passwords, and which callers it keeps apart."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import NameOID, load_pem_x509_certificates

from tests.support.eventually import pass_turns
from tests.support.settings import auth_settings
from worker.rest.facade import RestError
from worker.rest.security.auth import Authenticator
from worker.rest.security.identities import make_token
from worker.rest.security.passwords import verify_password

from .security import Authority, basic, cheap_hash, write_users

if TYPE_CHECKING:
    from pathlib import Path

    from worker.rest.security.access import Principal

JAAS = (
    'KafkaConnect {{ org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule required file="{}"; }};'
)


async def start_authenticator(**settings: str | bool | int) -> Authenticator:
    authenticator = Authenticator(auth_settings(**settings))
    await authenticator.start()
    return authenticator


async def by_password(authenticator: Authenticator, name: str, password: str) -> Principal:
    return await authenticator.identify([basic(name, password)["Authorization"]], None, "10.0.0.1")


def java_users(folder: Path, lines: str) -> str:
    (folder / "credentials").write_text(lines)
    (folder / "jaas.conf").write_text(JAAS.format(folder / "credentials"))
    return str(folder / "jaas.conf")


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords that cost a hash."""
    passwords: list[str] = []

    def verify(password: str, text: str) -> bool:
        passwords.append(password)
        return verify_password(password, text)

    monkeypatch.setattr("worker.rest.security.auth.verify_password", verify)
    return passwords


async def test_two_headers_are_not_one(tmp_path: Path) -> None:
    authenticator = await start_authenticator(basic=True, users_file=write_users(tmp_path / "users", {"ada": "admin"}))
    good = basic("ada", "ada")["Authorization"]
    for headers in ([good, good], [good[:9], good[9:]], ["", good], [good, ""]):
        with pytest.raises(RestError, match="more than one Authorization header"):
            await authenticator.identify(headers, None, "10.0.0.1")
    await authenticator.close()


async def test_a_right_password_costs_a_hash_once_in_a_while(
    tmp_path: Path, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = await start_authenticator(basic=True, users_file=write_users(tmp_path / "users", {"ada": "admin"}))
    for _ in range(3):
        await by_password(authenticator, "ada", "ada")
    assert looked_at == ["ada"]
    monkeypatch.setattr("worker.rest.security.auth._REMEMBERED_S", -1.0)
    await authenticator.reload_identities()
    for _ in range(3):
        await by_password(authenticator, "ada", "ada")
    assert looked_at == ["ada"] * 4
    await authenticator.close()


async def test_few_right_passwords_are_remembered(
    tmp_path: Path, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.rest.security.auth._REMEMBERED", 2)
    names = ("ab", "cd", "ef")
    authenticator = await start_authenticator(
        basic=True, users_file=write_users(tmp_path / "users", dict.fromkeys(names, "read"))
    )
    for name in (*names, "ef", "cd", "ab"):
        await by_password(authenticator, name, name[::-1])
    assert looked_at == ["ba", "dc", "fe", "ba"]
    await authenticator.close()


async def test_what_is_remembered_is_of_one_user(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"ada={cheap_hash('lovelace')},admin\nadal={cheap_hash('other')},read\n")
    authenticator = await start_authenticator(basic=True, users_file=str(tmp_path / "users"))
    assert (await by_password(authenticator, "ada", "lovelace")).name == "ada"
    with pytest.raises(RestError, match="user or password is wrong"):
        await by_password(authenticator, "adal", "ovelace")
    await authenticator.close()


async def test_users_that_go_while_their_password_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on = threading.Event(), threading.Event()

    def verify(password: str, text: str) -> bool:
        started.set()
        assert go_on.wait(10)
        return verify_password(password, text)

    monkeypatch.setattr("worker.rest.security.auth.verify_password", verify)
    path = write_users(tmp_path / "users", {"ada": "admin"})
    authenticator = await start_authenticator(basic=True, users_file=path)
    first = asyncio.create_task(by_password(authenticator, "ada", "ada"))
    assert await asyncio.to_thread(started.wait, 10)
    write_users(tmp_path / "users", {"rita": "read"})
    await authenticator.reload_identities()
    go_on.set()
    assert (await first).name == "ada"  # it asked before
    with pytest.raises(RestError, match="user or password is wrong"):
        await by_password(authenticator, "ada", "ada")
    await authenticator.close()


async def test_few_passwords_are_looked_at_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def verify(password: str, text: str) -> bool:
        assert go_on.wait(10)
        return verify_password(password, text)

    monkeypatch.setattr("worker.rest.security.auth.verify_password", verify)
    monkeypatch.setattr("worker.rest.security.auth._MOST_WAITING", 2)
    authenticator = await start_authenticator(basic=True, users_file=write_users(tmp_path / "users", {"ada": "admin"}))
    waiting = [asyncio.create_task(by_password(authenticator, "ada", f"wrong-{number}")) for number in range(2)]
    await pass_turns()
    with pytest.raises(RestError, match="Too many passwords are being looked at") as busy:
        await by_password(authenticator, "ada", "ada")
    assert (busy.value.status, busy.value.headers) == (503, {"Retry-After": "1"})
    go_on.set()
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(error, RestError)
        assert error.status == 401
    assert (await by_password(authenticator, "ada", "ada")).name == "ada"
    await authenticator.close()


async def test_users_of_both_files(tmp_path: Path) -> None:
    authenticator = await start_authenticator(
        basic=True,
        java_users=java_users(tmp_path, "connect=geheim\nboth=theirs\n"),
        users_file=write_users(tmp_path / "users", {"rita": "read", "both": "read"}),
    )
    assert [
        (await by_password(authenticator, name, password)).name
        for name, password in (("connect", "geheim"), ("rita", "atir"), ("both", "htob"))
    ] == ["connect", "rita", "both"]
    with pytest.raises(RestError, match="user or password is wrong"):
        await by_password(authenticator, "both", "theirs")
    await authenticator.close()


async def test_users_of_a_java_connect_do_not_come_by_certificate(tmp_path: Path) -> None:
    authenticator = await start_authenticator(
        basic=True,
        certificate=True,
        java_users=java_users(tmp_path, "CN\\=connect=geheim\n"),
        users_file=write_users(tmp_path / "users", {"CN\\=console": "certificate,admin"}),
    )
    authority = Authority()
    shown = {}
    for name in ("connect", "console"):
        authority.store(tmp_path / name, (NameOID.COMMON_NAME, name))
        pem = (tmp_path / name).read_bytes()
        shown[name] = load_pem_x509_certificates(pem)[0].public_bytes(Encoding.DER)
    assert (await authenticator.identify([], shown["console"], "10.0.0.1")).name == "CN=console"
    assert (await by_password(authenticator, "CN=connect", "geheim")).name == "CN=connect"
    with pytest.raises(RestError, match="the certificate stands for no user"):
        await authenticator.identify([], shown["connect"], "10.0.0.1")
    await authenticator.close()


async def test_a_caller_that_is_slowed_down_learns_how_long(tmp_path: Path) -> None:
    _, line = make_token()
    (tmp_path / "tokens").write_text(f"ci={line},read\n")
    authenticator = await start_authenticator(
        bearer=True, tokens_file=str(tmp_path / "tokens"), failures_per_minute=600
    )
    waits = []
    for _ in range(700):
        with pytest.raises(RestError) as refused:
            await authenticator.identify(["Bearer x"], None, "10.0.0.1")
        if refused.value.status == 429:
            waits.append((refused.value.headers or {})["Retry-After"])
    # A tenth of a second is not "at once".
    assert set(waits) == {"1"}
    await authenticator.close()
