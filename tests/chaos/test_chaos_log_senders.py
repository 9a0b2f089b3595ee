"""Workers and Kafka that fail while rsyslog and an HTTP client send logs: every line comes, and is named alike each time."""

import http.client
import json
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compose.local.jvm import FAST_START
from compose.local.kafka import KafkaCluster
from compose.local.ports import LOOPBACK, free_port
from compose.local.topics import read_topic
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import QUICK
from tests.support.eventually import eventually
from tests.support.log_senders import start_rsyslog

pytestmark = pytest.mark.slow

_LINES = 12_000
#: Lines between two failures.
_STEP = 3_000
_RULES = "tables: [{name: lines, groups: [{name: all, steps: [{saveAs: {columns: [{name: line}]}}]}]}]"


def _line(number: int) -> str:
    return f"line {number} {'é' * (number % 40)}"


def _config(source: str, port: int, prefix: str) -> dict[str, str]:
    return {
        "connector.class": "logs",
        "input": source,
        "listen": f"{'http' if source == 'http' else 'tcp'}://{LOOPBACK}:{port}",
        "topic.prefix": prefix,
        "rules": _RULES,
        "batch.size": "200",
        "errors.retry.delay.max.ms": "500",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }


@pytest.mark.proves("from logs relp", "at-least-once", killed=["worker", "task host"])
def test_rsyslog_loses_nothing(pair: Cluster, unique: Callable[[str], str], tmp_path: Path) -> None:
    name, prefix, path, port = unique("l") + "x", unique("t"), tmp_path / "app.log", free_port()

    def rows() -> list[dict[str, str]]:
        records = read_topic(pair.bootstrap, f"{prefix}.lines", committed=pair.exactly_once)
        return [json.loads(record.value or b"null") for record in records]

    path.touch()
    pair.running[0].create(name, _config("relp", port, prefix))
    action = (
        f'action(type="omrelp" target="{LOOPBACK}" port="{port}" template="named" queue.type="LinkedList" '
        # Larger batches lose messages whenever rsyslog 8.2302 tries an action again.
        'queue.dequeueBatchSize="1" queue.filename="millrace" queue.size="1000" queue.saveOnShutdown="on" '
        'action.resumeRetryCount="-1" action.resumeInterval="1" action.resumeIntervalMax="1")'
    )
    sender = start_rsyslog(tmp_path / "rsyslog", action, path)
    try:
        with closing(path.open("w", encoding="utf-8", buffering=1)) as file:
            for start in range(0, _LINES, _STEP):
                for number in range(start, start + _STEP):
                    file.write(_line(number) + "\n")
                pair.until(lambda: len(rows()) > start, f"lines behind {start} came")  # noqa: B023
                victim = pair.worker(pair.tasks(name)[0].worker)
                if start // _STEP % 2 == 0:
                    victim.kill()
                    pair.repair()
                else:
                    for host in victim.hosts():
                        os.kill(host, signal.SIGKILL)
        pair.until(lambda: len({row["log_id"] for row in rows()}) >= _LINES, "every line came")
    finally:
        sender.stop()
        pair.ask("DELETE", f"/connectors/{name}")
    lines = {row["log_id"]: row["line"] for row in rows()}
    assert sorted(lines.values()) == sorted(map(_line, range(_LINES)))


@pytest.fixture
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker that this test may harm."""
    with KafkaCluster(tmp_path_factory.mktemp("outage"), port=None, properties=QUICK, jvm_options=FAST_START) as kafka:
        yield kafka


class _Sender(threading.Thread):
    """Sends ten lines in each request, some fifty times a second, and the same request until it gets 200.

    Args:
        port: where to.
    """

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        #: Lines in requests that were answered.
        self.answered = 0
        self.failures = 0
        self.leave = threading.Event()

    def run(self) -> None:
        while not self.leave.wait(0.02):
            start = self.answered
            body = "".join(_line(number) + "\n" for number in range(start, start + 10)).encode()
            if self._is_accepted(f"request-{start}", body):
                self.answered = start + 10
            else:
                self.failures += 1

    def _is_accepted(self, name: str, body: bytes) -> bool:
        with closing(http.client.HTTPConnection(LOOPBACK, self.port, timeout=10)) as connection:
            try:
                connection.request("POST", "/lines", body, {"Idempotency-Key": name})
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False


@pytest.mark.proves("from logs http", "at-least-once", killed=["worker", "Kafka"])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_requests_are_answered_only_for_what_is_in_kafka(
    own_kafka: KafkaCluster, unique: Callable[[str], str], tmp_path: Path, exactly_once: bool
) -> None:
    name, prefix, port = unique("l") + "x", unique("t"), free_port()
    cluster = Cluster(tmp_path, own_kafka.bootstrap, f"g-{secrets.token_hex(4)}", exactly_once=exactly_once)

    def rows() -> list[dict[str, str]]:
        records = read_topic(own_kafka.bootstrap, f"{prefix}.lines", committed=exactly_once)
        return [json.loads(record.value or b"null") for record in records]

    sender = _Sender(port)
    try:
        cluster.start(2)
        cluster.running[0].create(name, _config("http", port, prefix))
        sender.start()
        cluster.until(lambda: sender.answered > 500, "some requests were answered")
        cluster.worker(cluster.tasks(name)[0].worker).kill()
        cluster.repair()
        before = sender.answered
        cluster.until(lambda: sender.answered > before + 500, "requests are answered after the worker's death")
        own_kafka.broker(0).kill()
        failures = sender.failures
        eventually(lambda: sender.failures > failures, "a request got no answer without Kafka", 60)
        answered = sender.answered
        own_kafka.broker(0).start()
        assert len({row["log_id"] for row in rows()}) >= answered, "answered lines are in Kafka"
        cluster.until(lambda: sender.answered > answered + 500, "requests are answered after Kafka's return", 180)
        sender.leave.set()
        sender.join(60)
        lines = {row["log_id"]: row["line"] for row in rows()}
    finally:
        sender.leave.set()
        cluster.close()
    # The last request may be in Kafka without an answer.
    assert (
        set(map(_line, range(sender.answered))) <= set(lines.values()) <= set(map(_line, range(sender.answered + 10)))
    )
    assert len(lines) == len(set(lines.values()))
