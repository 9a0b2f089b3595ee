"""Listeners, TLS, separate admin listeners, browsers' pages of other origins, configured headers."""

from __future__ import annotations

import ssl
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from connectors.errors import ConfigInvalid
from worker.kafka.tls import client_context, server_context
from worker.rest.server import RestServer
from worker.rest.settings import RestSettings

from .conftest import Rest
from .memory_herder import MemoryHerder

if TYPE_CHECKING:
    from .conftest import Start

TLS = Path(__file__).parent / "tls"
CERTIFICATE, KEY, ENCRYPTED = ((TLS / name).read_text() for name in ("cert.pem", "key.pem", "encrypted.pem"))


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A PEM file with key and certificate."""
    path = tmp_path / "store.pem"
    path.write_text(KEY + CERTIFICATE)
    return str(path)


async def test_several_listeners(store: str) -> None:
    herder = MemoryHerder()
    server = RestServer(
        herder,
        RestSettings.from_properties(
            {
                "listeners": "http://127.0.0.1:0,https://127.0.0.1:0,http://localhost:0",
                "ssl.keystore.location": store,
                "ssl.keystore.type": "PEM",
            }
        ),
    )
    await server.start()
    try:
        trust = ssl.create_default_context(cadata=CERTIFICATE)
        async with aiohttp.ClientSession() as session:
            assert len(server.urls) == 3
            for url in server.urls:
                async with session.get(f"{url}/connectors", ssl=trust) as response:
                    assert response.status == 200
        assert server.advertised_url == server.urls[0]
        assert server.worker_id == server.urls[0].removeprefix("http://")
        assert server.admin_urls == server.urls
    finally:
        await server.stop()


async def test_forwarding_over_tls(store: str) -> None:
    properties = {"listeners": "https://127.0.0.1:0", "ssl.keystore.location": store, "ssl.truststore.location": store}
    leader, follower = MemoryHerder(), MemoryHerder()
    servers = [RestServer(herder, RestSettings.from_properties(properties)) for herder in (leader, follower)]
    for server in servers:
        await server.start()
    try:
        follower.leader_url = servers[0].advertised_url
        async with (
            aiohttp.ClientSession() as session,
            session.put(
                f"{servers[1].urls[0]}/connectors/a/config",
                json={"connector.class": "x"},
                ssl=ssl.create_default_context(cadata=CERTIFICATE),
            ) as response,
        ):
            assert response.status == 201
            assert response.headers["Location"] == f"{servers[1].urls[0]}/connectors/a"
        assert set(leader.configs) == {"a"}
    finally:
        for server in servers:
            await server.stop()


def test_keys_and_certificates_may_stand_in_the_property_file() -> None:
    certificate = CERTIFICATE.replace("\n", " ")
    one_line = {
        "ssl.keystore.key": ENCRYPTED.replace("\n", " "),
        "ssl.keystore.certificate.chain": certificate,
        "ssl.key.password": "changeit",
        "ssl.client.auth": "required",
        "ssl.truststore.certificates": certificate,
    }
    context = server_context(one_line)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1
    assert client_context(one_line).check_hostname


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({}, "needs a certificate"),
        ({"ssl.keystore.location": "/nowhere.pem"}, "ssl.keystore.location: the file /nowhere.pem can't be read"),
        (
            {"ssl.keystore.location": "/x.jks", "ssl.keystore.type": "JKS"},
            "ssl.keystore.location: the file /x.jks can't be read",
        ),
        (
            {"ssl.keystore.key": "x", "ssl.keystore.certificate.chain": "y"},
            "ssl.keystore.key: the private key and its certificates can't be used",
        ),
        (
            {"ssl.keystore.key": ENCRYPTED, "ssl.keystore.certificate.chain": CERTIFICATE},
            "ssl.keystore.key: the private key and its certificates can't be used",
        ),
        (
            {"ssl.keystore.key": KEY, "ssl.keystore.certificate.chain": CERTIFICATE, "ssl.enabled.protocols": "SSLv3"},
            "names SSLv3",
        ),
        (
            {
                "ssl.keystore.key": KEY,
                "ssl.keystore.certificate.chain": CERTIFICATE,
                "ssl.client.auth": "required",
                "ssl.truststore.location": "/nowhere.pem",
            },
            "ssl.truststore.location: the file /nowhere.pem can't be read",
        ),
    ],
)
def test_certificates_that_can_not_be_used(properties: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigInvalid, match=text) as caught:
        server_context(properties)
    assert "PRIVATE" not in str(caught.value)


async def test_admin_on_listeners_of_its_own() -> None:
    server = RestServer(
        MemoryHerder(),
        RestSettings.from_properties({"listeners": "http://127.0.0.1:0", "admin.listeners": "http://127.0.0.1:0"}),
    )
    await server.start()
    try:
        async with aiohttp.ClientSession(skip_auto_headers=("Content-Type",)) as session:
            main, admin = Rest(server.urls[0], session), Rest(server.admin_urls[0], session)
            assert (await main("GET", "/admin/loggers")).status == 404
            assert (await main("GET", "/connectors")).status == 200
            assert (await admin("GET", "/admin/loggers")).status == 200
            assert (await admin("PUT", "/admin/drain")).status == 202
            assert (await admin("GET", "/connectors")).status == 404
    finally:
        await server.stop()


async def test_admin_switched_off(start: Start) -> None:
    call, _ = await start(admin_listeners="")
    assert (await call("GET", "/admin/loggers")).status == 404


async def test_an_address_that_is_taken(start: Start) -> None:
    first, _ = await start()
    second = RestServer(MemoryHerder(), RestSettings.from_properties({"listeners": f"http://127.0.0.1:0,{first.url}"}))
    with pytest.raises(ConfigInvalid, match="can't listen on"):
        await second.start()
    assert (await first("GET", "/")).status == 200


async def test_configured_headers(start: Start) -> None:
    call, _ = await start(
        response_http_headers_config='set X-Frame-Options: DENY, "add Cache-Control: no-cache, no-store", '
        "setDate Expires: 3600000"
    )
    reply = await call("GET", "/nosuch")
    assert (reply.headers["X-Frame-Options"], reply.headers["Cache-Control"]) == ("DENY", "no-cache, no-store")
    ahead = parsedate_to_datetime(reply.headers["Expires"]) - parsedate_to_datetime(reply.headers["Date"])
    assert 3590 < ahead.total_seconds() < 3610


async def test_other_origins(start: Start) -> None:
    call, _ = await start(access_control_allow_origin="https://*.example.com", access_control_allow_methods="GET,PUT")
    reply = await call("GET", "/connectors", headers={"Origin": "https://ui.example.com"})
    assert reply.headers["Access-Control-Allow-Origin"] == "https://ui.example.com"
    assert reply.headers["Vary"] == "Origin"
    other = await call("GET", "/connectors", headers={"Origin": "https://evil.com"})
    assert (other.status, "Access-Control-Allow-Origin" in other.headers) == (200, False)
    preflight = {
        "Origin": "https://ui.example.com",
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "content-type",
    }
    reply = await call("OPTIONS", "/connectors/a/config", headers=preflight)
    assert (reply.status, reply.headers["Access-Control-Allow-Methods"]) == (200, "GET,PUT")
    for change in (
        {"Access-Control-Request-Method": "DELETE"},
        {"Access-Control-Request-Headers": "x-other"},
        {"Origin": "https://evil.com"},
    ):
        reply = await call("OPTIONS", "/connectors/a/config", headers={**preflight, **change})
        assert "Access-Control-Allow-Methods" not in reply.headers
    call, _ = await start()
    reply = await call("GET", "/connectors", headers={"Origin": "https://ui.example.com"})
    assert "Access-Control-Allow-Origin" not in reply.headers
    call, _ = await start(access_control_allow_origin="*")
    reply = await call("GET", "/connectors", headers={"Origin": "https://evil.com"})
    assert reply.headers["Access-Control-Allow-Origin"] == "https://evil.com"
