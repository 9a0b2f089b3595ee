"""Listeners over TLS: clients' certificates as users, certificates that change, forwarding between workers."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING

import aiohttp
import pytest
from cryptography import x509
from cryptography.x509 import NameOID

from connectors.errors import ConfigInvalid
from tests.support.eventually import eventually_async
from worker.rest.security.certificates import name_of, parse_rules
from worker.rest.server import RestServer, find_exposed
from worker.rest.settings import RestSettings

from .conftest import Rest
from .memory_herder import MemoryHerder
from .security import Authority, basic, write_users

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path
    from typing import Any

    Serve = Callable[..., Coroutine[Any, Any, tuple[RestServer, MemoryHerder]]]

#: As a certificate holds it; it is written the other way round.
ADA = ((NameOID.ORGANIZATION_NAME, "Example"), (NameOID.ORGANIZATIONAL_UNIT_NAME, "ops"), (NameOID.COMMON_NAME, "ada"))
RULES = "RULE:^CN=([^,]+),OU=ops,.*$/$1/L,RULE:^CN=(worker-[0-9]+)$/workers/"


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts https servers with these properties."""
    servers: list[RestServer] = []

    async def start_server(properties: dict[str, str]) -> tuple[RestServer, MemoryHerder]:
        herder = MemoryHerder()
        server = RestServer(
            herder, RestSettings.from_properties({"listeners": "https://127.0.0.1:0", **properties}), workers=herder
        )
        await server.start()
        servers.append(server)
        return server, herder

    yield start_server
    for server in servers:
        await server.stop()


def client(authority: Authority, store: str | None = None) -> aiohttp.ClientSession:
    context = ssl.create_default_context(cadata=authority.pem)
    if store is not None:
        context.load_cert_chain(store)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context, force_close=True), skip_auto_headers=("Content-Type",)
    )


async def test_certificates_as_users(serve: Serve, tmp_path: Path) -> None:
    authority, stranger = Authority(), Authority("stranger")
    server, _ = await serve(
        {
            "ssl.keystore.location": authority.store(tmp_path / "server", (NameOID.COMMON_NAME, "server")),
            "ssl.truststore.location": authority.trust(tmp_path / "trust"),
            "ssl.client.auth": "requested",
            "rest.authentication": "basic,certificate",
            "rest.auth.certificate.rules": RULES,
            "rest.auth.users.file": write_users(tmp_path / "users", {"ada": "certificate,operate", "rita": "read"}),
        }
    )
    url = server.urls[0]
    async with client(authority, authority.store(tmp_path / "ada", *ADA)) as session:
        call = Rest(url, session)
        assert (await call("GET", "/connectors")).status == 200
        refused = await call("DELETE", "/connectors/a")
        assert (refused.status, refused.error) == (403, "ada needs the role 'admin' for the connector a")
        # Explicit credentials go before the certificate, also wrong ones.
        assert (await call("PUT", "/connectors/a/pause", headers=basic("rita", "atir"))).status == 403
        assert (await call("GET", "/connectors", headers=basic("rita", "x"))).status == 401
        # Redpanda Console's client sends these with every request where no user is set.
        assert (await call("GET", "/connectors", headers=basic("", ""))).status == 200
        assert (await call("GET", "/connectors", headers=basic("", "x"))).status == 401
        evil = await call("POST", "/connectors/a/restart", headers={"Origin": "https://evil"})
        assert (evil.status, "may not change anything" in evil.error) == (403, True)
    async with client(authority) as session:
        assert (await Rest(url, session)("GET", "/connectors")).status == 401
        # A header of a proxy is no certificate, a user of a certificate has no password.
        for headers in (
            {"X-SSL-Client-Cert": "CN=ada,OU=ops"},
            basic("ada", "ada"),
            basic("ada", "certificate"),
            basic("", ""),
        ):
            assert (await Rest(url, session)("GET", "/connectors", headers=headers)).status == 401
    for number, subject in enumerate(
        (
            (*ADA[:2], (NameOID.COMMON_NAME, "rita")),
            ((NameOID.COMMON_NAME, "ada"),),
            ((NameOID.COMMON_NAME, "ada,OU=ops,O=x"),),
        )
    ):
        async with client(authority, authority.store(tmp_path / f"other-{number}", *subject)) as session:
            assert (await Rest(url, session)("GET", "/connectors")).status == 401
    async with client(authority, stranger.store(tmp_path / "stranger", *ADA)) as session:
        with pytest.raises(aiohttp.ClientError):
            await Rest(url, session)("GET", "/connectors")


async def test_refused_certificates_are_written_down(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A trusted certificate without a user: the line has its subject, and what to do; many requests make one line."""
    caplog.set_level(logging.INFO, "worker.rest.audit")
    authority = Authority()
    server, _ = await serve(
        {
            "ssl.keystore.location": authority.store(tmp_path / "server", (NameOID.COMMON_NAME, "server")),
            "ssl.truststore.location": authority.trust(tmp_path / "trust"),
            "ssl.client.auth": "required",
            "rest.authentication": "basic,certificate",
            "rest.auth.certificate.rules": RULES,
            "rest.auth.users.file": write_users(tmp_path / "users", {"ada": "certificate,operate", "rita": "read"}),
        }
    )
    cases = {
        ((NameOID.COMMON_NAME, 'ada\nuser="root"'),): (
            "CN=ada\\nuser=",
            "no rule of rest.auth.certificate.rules is for it",
        ),
        (*ADA[:2], (NameOID.COMMON_NAME, "Bob")): (
            '"CN=Bob,OU=ops,O=Example"',
            "add certificate and a role under this name",
        ),
        (*ADA[:2], (NameOID.COMMON_NAME, "rita")): ('"CN=rita,OU=ops,O=Example"', "who has a password"),
    }
    for number, (subject, (shown, advice)) in enumerate(cases.items()):
        caplog.clear()
        async with client(authority, authority.store(tmp_path / f"client-{number}", *subject)) as session:
            for _ in range(3):
                refused = await Rest(server.urls[0], session)("GET", "/connectors")
                assert (refused.status, "the certificate stands for no user" in refused.error) == (401, True)
        lines = [record.getMessage() for record in caplog.records if record.name == "worker.rest.audit"]
        assert len(lines) == 1
        assert shown in lines[0]
        assert "\n" not in lines[0]
        assert advice in lines[0]
        assert "address=127.0.0.1" in lines[0]
    # Whoever comes with a password need not have a user for the certificate, and no line is written.
    caplog.clear()
    async with client(authority, str(tmp_path / "client-1")) as session:
        assert (await Rest(server.urls[0], session)("GET", "/connectors", headers=basic("rita", "atir"))).status == 200
    assert "refused certificate" not in caplog.text


async def test_admin_listeners_have_their_own(serve: Serve, tmp_path: Path) -> None:
    authority, operators = Authority(), Authority("operators")
    store = authority.store(tmp_path / "server", (NameOID.COMMON_NAME, "server"))
    server, _ = await serve(
        {
            "admin.listeners": "https://127.0.0.1:0",
            "ssl.keystore.location": store,
            "admin.listeners.https.ssl.keystore.location": store,
            "admin.listeners.https.ssl.client.auth": "required",
            "admin.listeners.https.ssl.truststore.location": operators.trust(tmp_path / "trust"),
            "rest.authentication": "basic",
            "rest.auth.users.file": write_users(tmp_path / "users", {"ada": "admin"}),
        }
    )
    async with client(authority, operators.store(tmp_path / "op", *ADA)) as session:
        assert (await Rest(server.admin_urls[0], session)("GET", "/admin/loggers")).status == 401
        assert (
            await Rest(server.admin_urls[0], session)("GET", "/admin/loggers", headers=basic("ada", "ada"))
        ).status == 200
        assert (await Rest(server.urls[0], session)("GET", "/connectors", headers=basic("ada", "ada"))).status == 200
    async with client(authority) as session:
        with pytest.raises(aiohttp.ClientError):
            await Rest(server.admin_urls[0], session)("GET", "/admin/loggers", headers=basic("ada", "ada"))


async def test_certificates_are_read_again(serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "worker.rest")
    first, second = Authority("first"), Authority("second")
    path = tmp_path / "store"
    server, _ = await serve({"ssl.keystore.location": first.store(path, (NameOID.COMMON_NAME, "one"))})

    async def shown() -> str:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(server.urls[0].rpartition(":")[2]), ssl=_blind()
        )
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        del reader
        return x509.load_der_x509_certificate(der).subject.rfc4514_string()

    assert await shown() == "CN=one"
    async with client(first) as session, aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=_blind())) as kept:
        assert (await Rest(server.urls[0], kept)("GET", "/connectors")).status == 200
        path.write_text("rubbish")
        await eventually_async(lambda: "can't be used; the old ones stay" in caplog.text, "the log says so")
        assert (await Rest(server.urls[0], session)("GET", "/connectors")).status == 200
        second.store(tmp_path / "next", (NameOID.COMMON_NAME, "two"))
        (tmp_path / "next").replace(path)
        await eventually_async(
            lambda: "certificates of listeners have changed and were read again" in caplog.text, "the log says so"
        )
        assert await shown() == "CN=two"
        # A connection that was open stays open.
        assert (await Rest(server.urls[0], kept)("GET", "/connectors")).status == 200


def _blind() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize(
    ("properties", "versions", "works"),
    [
        ({}, (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2), True),
        ({}, (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3), True),
        ({"ssl.enabled.protocols": "TLSv1.3"}, (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2), False),
    ],
)
async def test_versions(
    serve: Serve,
    tmp_path: Path,
    properties: dict[str, str],
    versions: tuple[ssl.TLSVersion, ssl.TLSVersion],
    works: bool,
) -> None:
    server, _ = await serve(
        {"ssl.keystore.location": Authority().store(tmp_path / "s", (NameOID.COMMON_NAME, "s")), **properties}
    )
    context = _blind()
    context.minimum_version, context.maximum_version = versions
    opening = asyncio.open_connection("127.0.0.1", int(server.urls[0].rpartition(":")[2]), ssl=context)
    if works:
        _, writer = await opening
        assert writer.get_extra_info("ssl_object").version() == (
            "TLSv1.2" if versions[1].name == "TLSv1_2" else "TLSv1.3"
        )
        writer.close()
    else:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await opening


async def test_forwarding_between_workers_that_ask_for_certificates(serve: Serve, tmp_path: Path) -> None:
    authority = Authority()
    users = write_users(tmp_path / "users", {"ada": "certificate,admin", "workers": "certificate,read"})
    trust = authority.trust(tmp_path / "trust")
    (leader, herder), (follower, other) = [
        await serve(
            {
                "ssl.keystore.location": authority.store(
                    tmp_path / f"worker-{n}", (NameOID.COMMON_NAME, f"worker-{n}")
                ),
                "ssl.truststore.location": trust,
                "ssl.client.auth": "required",
                "rest.authentication": "certificate",
                "rest.auth.certificate.rules": RULES,
                "rest.auth.users.file": users,
            }
        )
        for n in (1, 2)
    ]
    other.leader_url = leader.advertised_url
    async with client(authority, authority.store(tmp_path / "ada", *ADA)) as session:
        reply = await Rest(follower.urls[0], session)("PUT", "/connectors/a/config", {"connector.class": "x"})
        assert reply.status == 201
        assert reply.headers["Location"] == f"{follower.urls[0]}/connectors/a"
    # The follower's own certificate would not do: it is a reader's.
    async with client(authority, str(tmp_path / "worker-2")) as session:
        refused = await Rest(leader.urls[0], session)("PUT", "/connectors/b/config", {"connector.class": "x"})
        assert refused.error == "workers needs the role 'admin' for the connector b"
    assert set(herder.configs) == {"a"}


def test_rules() -> None:
    rules = parse_rules(r"RULE:^CN=(.*?),OU=(.*?)\/x$/$1@$2/U , RULE:^(.*)@ops$/$1/,DEFAULT")
    assert name_of("CN=ada,OU=a/x", rules) == "ADA@A"
    assert name_of("x@ops", rules) == "x"
    assert name_of("CN=z", rules) == "CN=z"
    assert name_of("CN=z", parse_rules("RULE:^O=.*$/a/")) is None
    # As brokers do: a rule is for whole subjects, so that OU=ops is not OU=ops-trainees.
    assert name_of("CN=z,OU=ops-trainees", parse_rules("RULE:^CN=([^,]+),OU=ops/$1/")) is None
    for wrong in ("RULE:a", "default", "RULE:(/a/", "RULE:a/$1/", "RULE:a/b/X"):
        with pytest.raises(ConfigInvalid, match=r"rest\.auth\.certificate\.rules"):
            parse_rules(wrong)


@pytest.mark.parametrize(
    ("properties", "warning"),
    [
        ({"listeners": "http://127.0.0.1:1,http://[::1]:1,http://localhost:1"}, None),
        ({"listeners": "http://:8083"}, "may create connectors"),
        ({"listeners": "http://127.0.0.1:1", "admin.listeners": "http://0.0.0.0:2"}, "may create connectors"),
        ({"listeners": "https://:8083", "ssl.client.auth": "required"}, None),
        ({"listeners": "http://10.0.0.1:1", "rest.authentication": "basic", "rest.auth.users.file": "x"}, "use https"),
        ({"listeners": "https://10.0.0.1:1", "rest.authentication": "basic", "rest.auth.users.file": "x"}, None),
    ],
)
def test_listeners_that_are_open_to_others(properties: dict[str, str], warning: str | None) -> None:
    warnings = find_exposed(RestSettings.from_properties(properties))
    assert warnings == [] if warning is None else warning in warnings[0]
