"""Requests between workers where callers are asked who they are: signed once, for one request to one worker."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tests.support.eventually import eventually_async
from worker.kafka.tls import client_context
from worker.rest.facade import RestError
from worker.rest.forwarding import WorkerClient
from worker.rest.security.access import Principal, parse_grants
from worker.rest.security.signing import (
    Nonces,
    SignedRequest,
    SigningKey,
    read_request,
    sign_request,
    signature_headers,
)

from .security import basic, write_users

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .conftest import Rest, Start
    from .memory_herder import MemoryHerder

KEY = SigningKey(b"k" * 32)
ASKED = SignedRequest("PUT", "/connectors/a/config?forward=true", "http://leader:1")
ADA = Principal("ada", "basic", parse_grants("operate,admin:sales-.*"))
CONFIG = {"connector.class": "x"}
CHIEF = Principal("chief", "basic", parse_grants("admin"))
Pair: TypeAlias = "tuple[Rest, MemoryHerder, Rest, MemoryHerder]"


def test_what_is_signed_is_read() -> None:
    said = read_request(sign_request(KEY, ASKED, b"body", ADA, 1000.0), ASKED, KEY, ["HmacSHA256"], 1030.0)
    assert said.principal == ADA
    assert said.at == 1000.0


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"key": SigningKey(b"other" * 8)}, 403, "can't have been made with the cluster's current session key"),
        ({"key": None}, 503, "has not been able to read a session key"),
        ({"algorithms": ["HmacSHA512"]}, 403, "inter.worker.verification.algorithms does not list"),
        ({"asked": SignedRequest("DELETE", ASKED.target, ASKED.receiver)}, 403, "it is for PUT"),
        ({"asked": SignedRequest("PUT", "/connectors/b/config?forward=true", ASKED.receiver)}, 403, "it is for PUT"),
        ({"asked": SignedRequest("PUT", ASKED.target, "http://other:1")}, 403, "at http://leader:1"),
        ({"now": 1061.0}, 403, "compare the workers' clocks"),
        ({"now": 939.0}, 403, "compare the workers' clocks"),
        ({"header": "x"}, 403, "can't be read"),
        ({"header": "e30=.AAAA"}, 403, "can't be read"),
        ({"header": "W10=.AAAA"}, 403, "can't be read"),
    ],
)
def test_what_is_refused(change: Mapping[str, Any], status: int, text: str) -> None:
    arguments = {
        "header": sign_request(KEY, ASKED, b"body", ADA, 1000.0),
        "asked": ASKED,
        "key": KEY,
        "algorithms": ["HmacSHA256"],
        "now": 1000.0,
        **change,
    }
    with pytest.raises(RestError, match=text) as caught:
        read_request(
            arguments["header"], arguments["asked"], arguments["key"], arguments["algorithms"], arguments["now"]
        )
    assert caught.value.status == status


def test_a_kip_507_signature_signs_nothing_else() -> None:
    """The signature of an internal body must not be accepted as that of a request on behalf of a user."""
    payload, _, _ = sign_request(KEY, ASKED, b"", ADA, 1000.0).partition(".")
    body_signature = (
        signature_headers(KEY, payload.encode())["X-Connect-Authorization"].replace("+", "-").replace("/", "_")
    )
    with pytest.raises(RestError, match="current session key"):
        read_request(f"{payload}.{body_signature}", ASKED, KEY, ["HmacSHA256"], 1000.0)


def test_a_request_is_taken_once_and_the_memory_is_bounded() -> None:
    nonces = Nonces(started=1000.0, max_nonces=3)
    nonces.take("a", 1000.0, 1000.0)
    with pytest.raises(RestError, match="here before"):
        nonces.take("a", 1000.0, 1059.0)
    with pytest.raises(RestError, match="before this worker started"):
        nonces.take("b", 999.0, 1001.0)
    nonces.take("b", 1001.0, 1001.0)
    nonces.take("c", 1001.0, 1001.0)
    with pytest.raises(RestError) as caught:
        nonces.take("d", 1001.0, 1001.0)
    assert caught.value.status == 503
    nonces.take("d", 1200.0, 1200.0)


@pytest.fixture
async def pair(start: Start, tmp_path: Path) -> Pair:
    """A leader that knows users only from other workers' requests, a follower that knows the users, and their herders."""
    leader, herder = await start(
        rest_authentication="basic", rest_auth_users_file=write_users(tmp_path / "leader", {"chief": "admin"})
    )
    follower, other = await start(
        rest_authentication="basic",
        rest_auth_users_file=write_users(tmp_path / "follower", {"ada": "admin:sales-.*", "op": "operate"}),
    )
    other.leader_url = leader.url
    return leader, herder, follower, other


async def test_the_follower_authenticates_and_the_leader_believes_it(pair: Pair) -> None:
    _, herder, follower, other = pair
    created = await follower("POST", "/connectors", {"name": "sales-eu", "config": CONFIG}, basic("ada", "ada"))
    assert (created.status, set(herder.configs), other.configs) == (201, {"sales-eu"}, {})
    assert (
        await follower("POST", "/connectors", {"name": "stock", "config": CONFIG}, basic("ada", "ada"))
    ).status == 403
    refused = await follower("DELETE", "/connectors/sales-eu", headers=basic("op", "po"))
    assert (refused.status, refused.error) == (403, "op needs the role 'admin' for the connector sales-eu")
    assert (await follower("DELETE", "/connectors/sales-eu")).status == 401
    assert set(herder.configs) == {"sales-eu"}
    assert (await follower("DELETE", "/connectors/sales-eu", headers=basic("ada", "ada"))).status == 204


async def test_a_signature_of_the_client_is_no_use(pair: Pair) -> None:
    leader, herder, follower, _ = pair
    asked = SignedRequest("PUT", "/connectors/a/config", leader.url)
    forged = sign_request(SigningKey(b"guessed"), asked, b"{}", CHIEF, time.time())
    for call in (leader, follower):
        for headers in (
            {"X-Millrace-Worker-Request": forged},
            {"X-Millrace-Worker-Request": ""},
            {"X-Millrace-Worker-Request": forged, **basic("chief", "feihc"), **basic("ada", "ada")},
        ):
            reply = await call("PUT", "/connectors/a/config", {}, headers)
            assert reply.status == 403
    assert herder.configs == {}


async def test_a_captured_request_can_not_be_sent_again(pair: Pair) -> None:
    leader, herder, follower, _ = pair
    body = b'{"connector.class":"x"}'
    signed = {
        "X-Millrace-Worker-Request": sign_request(
            KEY, SignedRequest("PUT", "/connectors/a/config", leader.url), body, CHIEF, time.time()
        )
    }
    changed = await leader("PUT", "/connectors/a/config", b'{"connector.class":"evil"}', signed)
    assert (changed.status, changed.error) == (403, "The signature of the request between workers is for another body")
    signed["X-Millrace-Worker-Request"] = sign_request(
        KEY, SignedRequest("PUT", "/connectors/a/config", leader.url), body, CHIEF, time.time()
    )
    assert (await leader("PUT", "/connectors/a/config", body, signed)).status == 201
    del herder.configs["a"]
    for call, path in (
        (leader, "/connectors/a/config"),
        (follower, "/connectors/a/config"),
        (leader, "/connectors/b/config"),
        (leader, "/connectors/a/config?forward=false"),
    ):
        reply = await call("PUT", path, body, signed)
        assert reply.status == 403, reply.raw
    assert herder.configs == {}


async def test_the_receiver_looks_at_the_roles_too(pair: Pair) -> None:
    leader, herder, _, _ = pair
    herder.configs["a"], herder.states["a"] = CONFIG, "RUNNING"
    operator = Principal("op", "basic", parse_grants("operate"))

    def signed(method: str, path: str) -> dict[str, str]:
        return {
            "X-Millrace-Worker-Request": sign_request(
                KEY, SignedRequest(method, path, leader.url), b"", operator, time.time()
            )
        }

    refused = await leader("DELETE", "/connectors/a", headers=signed("DELETE", "/connectors/a"))
    assert (refused.status, refused.error) == (403, "op needs the role 'admin' for the connector a")
    assert (await leader("PUT", "/connectors/a/pause", headers=signed("PUT", "/connectors/a/pause"))).status == 202
    assert set(herder.configs) == {"a"}


async def test_two_signatures_are_none(pair: Pair) -> None:
    leader, herder, _, _ = pair
    body = b'{"connector.class":"x"}'
    first, second = (
        sign_request(KEY, SignedRequest("PUT", "/connectors/a/config", leader.url), body, CHIEF, time.time())
        for _ in range(2)
    )
    host, _, port = leader.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"PUT /connectors/a/config HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"X-Millrace-Worker-Request: {first}\r\nX-Millrace-Worker-Request: {second}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body.decode()}".encode()
    )
    async with asyncio.timeout(10):
        assert b" 403 " in await reader.readline()
    writer.close()
    assert herder.configs == {}


async def test_internal_requests_need_no_credentials_and_can_not_be_replayed(pair: Pair) -> None:
    leader, herder, follower, _ = pair
    client = WorkerClient(5, lambda: client_context({}))
    try:
        await client.send_signed("POST", leader.url, "/connectors/a/tasks", b'[{"x": "1"}]', KEY)
        await client.send_signed("POST", follower.url, "/connectors/b/tasks", b'[{"x": "1"}]', KEY)
        await client.send_signed("PUT", leader.url, "/connectors/a/fence", b"{}", KEY)
        await client.send_signed("PUT", leader.url, "/connectors/c/config", b'{"connector.class":"x"}', KEY)
    finally:
        await client.close()
    assert (set(herder.task_configs), herder.fenced, set(herder.configs)) == ({"a", "b"}, ["a"], {"c"})
    # KIP-507's signature alone, which anybody who saw the body go by may send again.
    replayed = await leader("POST", "/connectors/a/tasks", b'[{"x": "1"}]', signature_headers(KEY, b'[{"x": "1"}]'))
    assert (replayed.status, replayed.error) == (400, "Internal request missing required signature")
    # What a worker signs for a user is not its own request.
    body = b"{}"
    for_user = sign_request(KEY, SignedRequest("PUT", "/connectors/a/fence", leader.url), body, CHIEF, time.time())
    asked = await leader(
        "PUT", "/connectors/a/fence", body, {**signature_headers(KEY, body), "X-Millrace-Worker-Request": for_user}
    )
    assert asked.status == 400
    assert herder.fenced == ["a"]


async def test_a_new_session_key_on_its_way(pair: Pair) -> None:
    _, herder, follower, other = pair
    herder.key = SigningKey(b"new" * 11)
    sent = asyncio.create_task(follower("PUT", "/connectors/sales-eu/config", CONFIG, basic("ada", "ada")))
    herder_looked = herder.keys_asked
    await eventually_async(lambda: sent.done() or herder.keys_asked > herder_looked, "the key is asked for", every=0)
    assert not sent.done()
    other.key = herder.key  # it has arrived
    assert (await sent).status == 201


async def test_a_key_that_never_fits(pair: Pair) -> None:
    _, herder, follower, other = pair
    herder.key = SigningKey(b"new" * 11)
    reply = await follower("PUT", "/connectors/sales-eu/config", CONFIG, basic("ada", "ada"))
    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    other.key = None
    assert (await follower("PUT", "/connectors/sales-eu/config", CONFIG, basic("ada", "ada"))).status == 503
    assert herder.configs == {}


async def test_while_authentication_is_switched_on_worker_by_worker(start: Start, tmp_path: Path) -> None:
    """A follower without authentication yet can't vouch for a client: the leader checks the client's own credentials."""
    leader, herder = await start(
        rest_authentication="basic", rest_auth_users_file=write_users(tmp_path / "leader", {"chief": "admin"})
    )
    follower, other = await start()
    other.leader_url = leader.url
    refused = await follower("PUT", "/connectors/a/config", CONFIG)
    assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, 'Basic realm="Millrace", charset="UTF-8"')
    assert (await follower("PUT", "/connectors/a/config", CONFIG, basic("chief", "feihc"))).status == 201
    assert set(herder.configs) == {"a"}


async def test_only_what_the_leader_needs_is_forwarded(start: Start) -> None:
    leader, herder = await start()
    follower, other = await start()
    other.leader_url = leader.url
    import gzip

    packed = gzip.compress(b'{"connector.class":"x"}')
    reply = await follower(
        "PUT",
        "/connectors/a/config",
        packed,
        {
            "Content-Encoding": "gzip",
            "Connection": "X-Secret",
            "X-Secret": "1",
            "X-Forwarded-For": "1.2.3.4",
            "Cookie": "a=b",
        },
    )
    assert reply.status == 201
    assert herder.configs["a"]["connector.class"] == "x"
