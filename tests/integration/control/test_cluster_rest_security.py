"""Two real workers that ask callers who they are, and talk to each other over TLS with certificates of their own."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from cryptography.x509 import NameOID
from kafka_connect import KafkaConnect
from requests.exceptions import HTTPError

from compose.local.ports import free_port
from compose.local.process.http import send_request
from compose.local.worker import MillraceWorker
from tests.integration.control._cluster import datagen, wait_for
from tests.support.eventually import patience
from tests.unit.rest.security import Authority, basic, write_users

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADA, RITA, OP = basic("ada", "ada"), basic("rita", "atir"), basic("op", "po")


@dataclass(frozen=True)
class Cluster:
    """The two, and where they speak https."""

    workers: list[MillraceWorker]
    secure: list[str]
    folder: Path
    authority: Authority
    group: str

    def ask(
        self, number: int, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        return send_request(method, self.workers[number].url + path, body, headers=headers)

    def states(self, name: str) -> tuple[str, list[str]]:
        status, body = self.ask(0, "GET", f"/connectors/{name}/status", headers=RITA)
        return ("", []) if status != 200 else (body["connector"]["state"], [task["state"] for task in body["tasks"]])


@pytest.fixture(scope="module")
def cluster(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secure")
    group = f"secure-{secrets.token_hex(4)}"
    authority = Authority()
    users = write_users(
        folder / "users", {"ada": "admin", "rita": "read", "op": "operate:sales-.*", "console": "certificate,admin"}
    )
    trust = authority.trust(folder / "trust.pem")
    workers, secure = [], []
    for name in "ab":
        port, https = free_port(None), free_port(None)
        secure.append(f"https://127.0.0.1:{https}")
        workers.append(
            MillraceWorker(
                folder / name,
                bootstrap,
                group=group,
                processes=1,
                port=port,
                properties={
                    "listeners": f"http://127.0.0.1:{port},https://127.0.0.1:{https}",
                    "rest.advertised.listener": "https",
                    "ssl.keystore.location": authority.store(
                        folder / f"{name}.pem", (NameOID.COMMON_NAME, f"worker-{name}")
                    ),
                    "ssl.truststore.location": trust,
                    "ssl.client.auth": "required",
                    "rest.authentication": "basic,certificate",
                    "rest.auth.certificate.rules": "RULE:^CN=(.*)$/$1/",
                    "rest.auth.users.file": users,
                    # Far shorter than anybody would have it: keys change while requests are on their way.
                    "inter.worker.key.ttl.ms": "300",
                },
            )
        )
    try:
        for worker in workers:
            worker.start()
        cluster = Cluster(workers, secure, folder, authority, group)
        wait_for(
            lambda: "millrace_worker_members 2" in cluster.ask(0, "GET", "/metrics", headers=RITA)[1], "two members"
        )
        yield cluster
    finally:
        for worker in workers:
            worker.kill()


def test_connectors_are_made_at_both_and_run(cluster: Cluster) -> None:
    """Their tasks' configurations go to the leader as internal requests, which carry no user's password."""
    for number, name in enumerate(("sales-a", "stock-b", "sales-c", "stock-d")):
        config = datagen(f"{cluster.group}-{name}", 1)
        at = number % 2
        assert cluster.ask(at, "PUT", f"/connectors/{name}/config", config)[0] == 401
        assert cluster.ask(at, "PUT", f"/connectors/{name}/config", config, RITA)[0] == 403
        assert cluster.ask(at, "PUT", f"/connectors/{name}/config", config, ADA)[0] == 201
    for name in ("sales-a", "stock-b", "sales-c", "stock-d"):
        wait_for(lambda name=name: cluster.states(name) == ("RUNNING", ["RUNNING"]), f"{name} runs")  # type: ignore[misc]
    for number in (0, 1):
        assert cluster.ask(number, "PUT", "/connectors/sales-a/stop", headers=OP)[0] == 204
        assert cluster.ask(number, "PUT", "/connectors/sales-a/resume", headers=OP)[0] == 202
        status, body = cluster.ask(number, "PUT", "/connectors/stock-b/stop", headers=OP)
        assert (status, body["message"]) == (403, "op needs the role 'operate' for the connector stock-b")
        status, body = cluster.ask(number, "DELETE", "/connectors/sales-a", headers=OP)
        assert (status, body["message"]) == (403, "op needs the role 'admin' for the connector sales-a")


async def test_forwarded_while_session_keys_change(cluster: Cluster, bootstrap: str) -> None:
    config = datagen(f"{cluster.group}-keys", 1)
    for number in range(30):
        changed = {**config, "rate": str(number + 1)}
        status, body = await asyncio.to_thread(cluster.ask, number % 2, "PUT", "/connectors/keys/config", changed, ADA)
        assert status in {200, 201}, body
    assert (await asyncio.to_thread(cluster.ask, 1, "DELETE", "/connectors/keys", None, ADA))[0] == 204
    consumer = AIOKafkaConsumer(f"{cluster.group}-configs", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        keys: set[bytes] = set()
        async with patience(20):
            while len(keys) < 2:
                message = await consumer.getone()
                if message.key == b"session-key":
                    keys.add(message.value)
    finally:
        await consumer.stop()


def test_a_certificate_is_enough_over_https(cluster: Cluster) -> None:
    context = ssl.create_default_context(cadata=cluster.authority.pem)
    context.load_cert_chain(cluster.authority.store(cluster.folder / "console.pem", (NameOID.COMMON_NAME, "console")))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    for url in cluster.secure:
        request = urllib.request.Request(f"{url}/connectors/stock-d/restart", method="POST")  # noqa: S310
        with opener.open(request, timeout=30) as answer:
            assert answer.status in {202, 204}
    without = ssl.create_default_context(cadata=cluster.authority.pem)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=without))
    with pytest.raises(OSError, match=r"(?i)certificate|reset|alert|closed|pipe"):
        opener.open(f"{cluster.secure[0]}/connectors", timeout=30)


def test_a_public_client_with_a_password(cluster: Cluster) -> None:
    client = KafkaConnect(url=cluster.workers[1].url, auth="ada:ada")
    assert "stock-b" in client.list_connectors()
    assert client.get_connector_config("stock-b")["connector.class"] == "datagen"
    client.pause_connector("stock-b")
    wait_for(lambda: cluster.states("stock-b") == ("PAUSED", ["PAUSED"]), "paused")
    client.delete_connector("stock-b")
    with pytest.raises(HTTPError, match="401"):
        KafkaConnect(url=cluster.workers[1].url, auth="ada:wrong").list_connectors()


def test_the_log_says_who_did_what_and_no_password(cluster: Cluster) -> None:
    logs = [worker.log_path.read_text() for worker in cluster.workers]
    assert any('user="ada" auth=basic' in log and "worker=yes" in log for log in logs)
    assert all('user="rita" auth=basic address=127.0.0.1 worker=no method="PUT"' in log for log in logs)
    assert not any(secret in log for log in logs for secret in (ADA["Authorization"], "atir", "ada:ada"))
