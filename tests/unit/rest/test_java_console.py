"""The console for another cluster, over a REST server in memory that stands for the cluster."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from cryptography.x509.oid import NameOID

from compose.local.ports import free_port
from connectors.errors import ConfigInvalid
from worker.console.java_cluster import JavaCluster, java_row, lacking, open_console

from .conftest import Rest
from .security import Authority, write_users

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from .conftest import Start
    from .memory_herder import MemoryHerder


@asynccontextmanager
async def console_of(url: str, environment: Mapping[str, str] | None = None) -> AsyncIterator[Rest]:
    """A console for the cluster at an address."""
    cluster = JavaCluster(url, environment or {})
    server = await open_console(cluster, 0)
    try:
        async with aiohttp.ClientSession(skip_auto_headers=("Content-Type",)) as session:
            yield Rest(server.urls[0], session)
    finally:
        await server.stop()
        await cluster.close()


@pytest.fixture
async def console(rest: tuple[Rest, MemoryHerder]) -> AsyncIterator[Rest]:
    """A console for the cluster of ``rest``, which has a connector with a secret."""
    call, herder = rest
    herder.configs["sales"] = {"connector.class": "B", "x": "hunter2", "db.password": "hunter3", "topic": "t"}
    herder.states["sales"] = "RUNNING"
    async with console_of(call.url) as opened:
        yield opened


async def events(url: str) -> str:
    """The first event of the console's stream."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/console/events") as response:
        assert response.status == 200
        event = ""
        async for line in response.content:
            event += line.decode()
            if line == b"\n" and "data:" in event:
                break
        return event


# What is shown.


async def test_the_console_says_what_a_java_cluster_lacks(console: Rest, rest: tuple[Rest, MemoryHerder]) -> None:
    session = (await console("GET", "/console/session")).json
    assert (session["features"], session["cluster"], session["method"]) == ([], rest[0].url, "none")
    assert {"flows", "overview", "explain"} <= set((await rest[0]("GET", "/console/session")).json["features"])
    assert (await console("GET", "/console")).headers["Content-Security-Policy"].startswith("default-src 'none'")
    for path in ("/console/pipeline", "/console/audit", "/flows", "/metrics", "/connectors/sales/explain"):
        assert (await console("GET", path)).status == 404, path


@pytest.mark.parametrize(
    ("version", "lacks"),
    [
        ("2.4.1", ["used-topics", "restart-with-tasks", "declarations", "stop", "offsets", "edit-offsets"]),
        ("2.8.2", ["restart-with-tasks", "declarations", "stop", "offsets", "edit-offsets"]),
        ("3.1.0", ["declarations", "stop", "offsets", "edit-offsets"]),
        ("3.5.2", ["edit-offsets"]),
        ("3.10.0", []),
        ("4.1.2", []),
        ("5.5.1-ccs", ["restart-with-tasks", "declarations", "stop", "offsets", "edit-offsets"]),
        ("6.2.0-ce", ["restart-with-tasks", "declarations", "stop", "offsets", "edit-offsets"]),
        ("7.5.0-ccs", ["edit-offsets"]),
        ("7.6.1-ccs", []),
        ("8.1.0-ccs", []),
        ("3.5.0.redhat-00012", ["edit-offsets"]),
        ("0.1.0", []),
        ("unknown", []),
    ],
)
def test_what_a_version_lacks(version: str, lacks: list[str]) -> None:
    assert lacking(version) == lacks


async def test_the_session_says_what_the_version_lacks(console: Rest) -> None:
    assert (await console("GET", "/console/session")).json["lacks"] == []


async def test_rows_have_no_rates(console: Rest) -> None:
    (row,) = (await console("GET", "/console/connectors")).json
    assert (row["name"], row["state"], row["tasks"], row["role"]) == ("sales", "RUNNING", {"RUNNING": 1}, "admin")
    assert (row["rate"], row["lag_s"]) == (None, None)
    assert '"name":"sales"' in await events(console.url)


def test_a_row_shows_the_cause_of_the_first_failure_without_secrets() -> None:
    where = {"state": "RUNNING", "worker_id": "a:1"}
    trace = "Tolerance exceeded\n\tat X\nCaused by: No login at jdbc:x://root:hunter2@db\n\tat Y"
    shown = java_row(
        "n",
        {
            "info": {"config": {"connector.class": "A"}, "type": "sink"},
            "status": {
                "type": "sink",
                "connector": where,
                "tasks": [{"id": 0, **where}, {"id": 1, "state": "FAILED", "worker_id": "b:1", "trace": trace}],
            },
        },
    )
    assert (shown["tasks"], shown["workers"]) == ({"RUNNING": 1, "FAILED": 1}, ["a:1", "b:1"])
    assert shown["error"] == "No login at jdbc:x://root:[hidden]@db"
    assert java_row("n", {})["state"] == "UNASSIGNED"


async def test_secrets_stay_and_can_be_edited_around(console: Rest, rest: tuple[Rest, MemoryHerder]) -> None:
    shown = await console("GET", "/console/connectors/sales/config")
    assert shown.json == {"connector.class": "B", "x": "[hidden]", "db.password": "[hidden]", "topic": "t"}
    changed = await console("PATCH", "/console/connectors/sales/config", {"topic": "u"})
    assert b"hunter" not in changed.raw
    assert rest[1].configs["sales"] == {
        "connector.class": "B",
        "x": "hunter2",
        "db.password": "hunter3",
        "topic": "u",
    }
    checked = await console("PUT", "/console/connectors/sales/check", {"topic": "v"})
    assert checked.json["configs"][0]["value"]["value"] == "v"
    assert b"hunter" not in checked.raw


# Calls of Kafka Connect.


async def test_calls_are_passed_on_as_they_are(console: Rest, rest: tuple[Rest, MemoryHerder]) -> None:
    name = "a%2Fb%20%25"
    created = await console("POST", "/connectors", {"name": "a/b %", "config": {"connector.class": "B"}})
    assert (created.status, "Location" in created.headers) == (201, False)
    assert (await console("PUT", f"/connectors/{name}/stop")).status == 204
    assert rest[1].states["a/b %"] == "STOPPED"
    body = b'{"offsets":[{"partition":{"p":1},"offset":{"o":1180591620717411303424}}]}'
    assert (await console("PATCH", f"/connectors/{name}/offsets", body)).status == 200
    assert (await console("GET", f"/connectors/{name}/offsets")).raw == body
    asked = await console("POST", "/connectors/sales/restart?includeTasks=true&onlyFailed=false")
    assert asked.status == 202
    assert rest[1].calls[-1] == ("restart", "sales", True, False)
    refused = await console("POST", "/connectors", {"name": "sales", "config": {"connector.class": "B"}})
    assert (refused.status, refused.error) == (409, "Connector sales already exists")
    assert "Retry-After" not in refused.headers
    assert (await console("DELETE", f"/connectors/{name}")).status == 204


async def test_a_rebalance_is_worth_another_attempt(console: Rest, rest: tuple[Rest, MemoryHerder]) -> None:
    rest[1].leader_url = None
    refused = await console("DELETE", "/connectors/sales")
    assert (refused.status, refused.headers["Retry-After"]) == (409, "1")
    assert "rebalance" in refused.error


# Who may ask.


async def test_pages_of_other_origins_change_nothing(console: Rest, rest: tuple[Rest, MemoryHerder]) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1:1"},
    ):
        refused = await console("POST", "/connectors/sales/restart", headers=headers)
        assert refused.status == 403, headers
    assert rest[1].calls == []
    accepted = await console("POST", "/connectors/sales/restart", headers={"Origin": console.url})
    assert accepted.status == 204


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "[", "10.1.2.3"])
async def test_a_name_of_somebody_else_for_this_machine_is_refused(console: Rest, host: str) -> None:
    for path in ("/connectors/sales/config", "/console/session"):
        assert (await console("GET", path, headers={"Host": host})).status in {400, 403}


async def test_a_tunnel_may_have_another_port(console: Rest) -> None:
    headers = {"Host": "localhost:9999", "Origin": "http://localhost:9999"}
    assert (await console("POST", "/connectors/sales/restart", headers=headers)).status == 204


# A cluster that refuses, or does not answer.


async def test_credentials_come_from_the_environment(start: Start, tmp_path: Path) -> None:
    call, herder = await start(
        rest_authentication="basic", rest_auth_users_file=write_users(tmp_path / "users", {"chief": "admin"})
    )
    herder.configs["sales"], herder.states["sales"] = {"connector.class": "B"}, "RUNNING"
    async with console_of(call.url, {"MILLRACE_REST_USER": "chief", "MILLRACE_REST_PASSWORD": "feihc"}) as console:
        assert (await console("GET", "/connectors")).json == ["sales"]
    async with console_of(call.url) as console:
        refused = await console("GET", "/connectors")
        # 401 would be a question to the browser.
        assert (refused.status, "MILLRACE_REST_USER" in refused.error) == (502, True)
        assert (await console("GET", "/console/connectors")).status == 502
        assert "WWW-Authenticate" not in refused.headers


async def test_a_cluster_behind_tls_gets_the_own_certificate(start: Start, tmp_path: Path) -> None:
    authority, stranger = Authority(), Authority("stranger")
    call, _ = await start(
        listeners="https://127.0.0.1:0",
        ssl_keystore_location=authority.store(tmp_path / "server", (NameOID.COMMON_NAME, "server")),
        ssl_truststore_location=authority.trust(tmp_path / "trust"),
        ssl_client_auth="required",
    )
    environment = {
        "MILLRACE_REST_CA_FILE": authority.trust(tmp_path / "authorities"),
        "MILLRACE_REST_CERT_FILE": authority.store(tmp_path / "own", (NameOID.COMMON_NAME, "ada")),
    }
    async with console_of(call.url, environment) as console:
        assert (await console("GET", "/connectors")).json == []
    for wrong in (
        {"MILLRACE_REST_CA_FILE": stranger.trust(tmp_path / "strangers")},
        {"MILLRACE_REST_CERT_FILE": ""},
    ):
        async with console_of(call.url, environment | wrong) as console:
            refused = await console("GET", "/connectors")
            assert (refused.status, "does not answer" in refused.error) == (503, True)


async def test_a_cluster_that_does_not_answer_is_waited_for() -> None:
    async with console_of(f"http://127.0.0.1:{free_port(None)}") as console:
        assert (await console("GET", "/console")).status == 200
        assert (await console("GET", "/console/session")).json["trouble"] is None
        missing = await console("GET", "/console/events")
        assert (missing.status, "does not answer" in missing.error) == (503, True)
        assert "does not answer" in (await console("GET", "/console/session")).json["trouble"]
        assert (await console("PUT", "/connectors/a/pause")).status == 503


async def test_a_stream_ends_when_the_cluster_does_not_answer_any_more(start: Start) -> None:
    call, herder = await start()
    async with console_of(call.url) as console, aiohttp.ClientSession() as session:
        async with session.get(f"{console.url}/console/events") as response:
            assert await response.content.readline() == b"retry: 1000\n"
            herder.error = OSError("gone")
            async with asyncio.timeout(30):
                await response.read()
        herder.error = None
        assert "event: rows" in await events(console.url)
        assert (await console("GET", "/console/session")).json["trouble"] is None


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("host:8083", "http://host:8083 is needed"),
        ("http://", "is needed"),
        ("http://host:port", "is needed"),
        ("http://root:hunter2@host:8083", "MILLRACE_REST_USER"),
    ],
)
def test_an_address_that_can_not_be_right_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(ConfigInvalid, match=complaint) as refused:
        JavaCluster(url, {})
    assert "hunter2" not in str(refused.value)


def test_unusable_files_for_tls_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="MILLRACE_REST_CA_FILE"):
        JavaCluster("https://host:8083", {"MILLRACE_REST_CA_FILE": os.fspath(tmp_path / "none.pem")})


async def test_a_taken_port_is_explained() -> None:
    async with console_of("http://127.0.0.1:1") as console:
        port = int(console.url.rpartition(":")[2])
        with pytest.raises(ConfigInvalid, match="--port"):
            await open_console(JavaCluster("http://127.0.0.1:1", {}), port)
