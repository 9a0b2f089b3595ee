"""Workers, senders and Kafka that fail while logs are sent by rsyslog, syslog-ng, and clients of Lumberjack and HTTP.

Where a sender is answered, every line comes, and is named alike each time. Over plain TCP no line comes twice, and what is lost
is what was on its way when the worker was killed.
"""

import http.client
import json
import os
import secrets
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

import pytest

from compose.local.kafka import KafkaCluster
from compose.local.ports import LOOPBACK, free_port
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import QUICK
from tests.support.eventually import eventually
from tests.support.log_senders import import_pylogbeat, start_rsyslog, start_syslog_ng
from worker.fetch.java import FAST_START
from worker.kafka.whole_topics import read_topic

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


@pytest.mark.proves("from logs relp", "at-least-once", killed=["sender", "task host"])
def test_an_rsyslog_that_is_killed_loses_nothing(pair: Cluster, unique: Callable[[str], str], tmp_path: Path) -> None:
    """Its queue is on disk. Killed, it reads its file again, so the name of a message has to be the place of its line."""
    name, prefix, path, port = unique("l") + "x", unique("t"), tmp_path / "app.log", free_port()
    count, step = _LINES // 4, _STEP // 4

    def rows() -> list[dict[str, str]]:
        records = read_topic(pair.bootstrap, f"{prefix}.lines", committed=pair.exactly_once)
        return [json.loads(record.value or b"null") for record in records]

    path.touch()
    pair.running[0].create(name, _config("relp", port, prefix))
    action = (
        'main_queue(queue.type="Direct")\n'
        f'action(type="omrelp" target="{LOOPBACK}" port="{port}" template="placed" queue.type="Disk" '
        'queue.dequeueBatchSize="1" queue.filename="millrace" queue.checkpointInterval="1" '
        'action.resumeRetryCount="-1" action.resumeInterval="1" action.resumeIntervalMax="1")'
    )
    sender = start_rsyslog(tmp_path / "rsyslog", action, path)
    try:
        with closing(path.open("w", encoding="utf-8", buffering=1)) as file:
            for start in range(0, count, step):
                for number in range(start, start + step):
                    file.write(_line(number) + "\n")
                pair.until(lambda: len({row["log_id"] for row in rows()}) > start, f"lines behind {start} came")  # noqa: B023
                sender.kill()
                if start == step:
                    for host in pair.worker(pair.tasks(name)[0].worker).hosts():
                        os.kill(host, signal.SIGKILL)
                sender = start_rsyslog(tmp_path / "rsyslog", action, path)
        pair.until(lambda: len({row["log_id"] for row in rows()}) >= count, "every line came", 120)
    finally:
        sender.stop()
        pair.ask("DELETE", f"/connectors/{name}")
    lines = {row["log_id"]: row["line"] for row in rows()}
    assert sorted(lines.values()) == sorted(map(_line, range(count)))


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
            if self._is_accepted(range(start, start + 10)):
                self.answered = start + 10
            else:
                self.failures += 1

    def _is_accepted(self, numbers: range) -> bool:
        body = "".join(_line(number) + "\n" for number in numbers).encode()
        name = f"request-{numbers.start}"
        with closing(http.client.HTTPConnection(LOOPBACK, self.port, timeout=10)) as connection:
            try:
                connection.request("POST", "/lines", body, {"Idempotency-Key": name})
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False


class _LumberjackSender(_Sender):
    """The same with windows of Lumberjack, whose events say their file and position as Filebeat's do."""

    def _is_accepted(self, numbers: range) -> bool:
        pylogbeat = import_pylogbeat()
        events = [
            {
                "@timestamp": "2026-11-26T11:00:00Z",
                "message": _line(number),
                "agent": {"id": "agent-1"},
                "log": {"file": {"path": "/app.log", "fingerprint": "f"}, "offset": number},
            }
            for number in numbers
        ]
        try:
            with pylogbeat.PyLogBeatClient(LOOPBACK, self.port, timeout=10) as client:
                client.send(events)
        except (OSError, struct.error, pylogbeat.ConnectionException):
            return False
        return True


@pytest.mark.proves("from logs http", "at-least-once", killed=["worker", "Kafka"])
@pytest.mark.proves("from logs lumberjack", "at-least-once", killed=["worker", "Kafka"])
@pytest.mark.parametrize("source", ["http", "lumberjack"])
@pytest.mark.parametrize("exactly_once", [False, True])
def test_requests_are_answered_only_for_what_is_in_kafka(
    own_kafka: KafkaCluster, unique: Callable[[str], str], tmp_path: Path, exactly_once: bool, source: str
) -> None:
    name, prefix, port = unique("l") + "x", unique("t"), free_port()
    cluster = Cluster(tmp_path, own_kafka.bootstrap, f"g-{secrets.token_hex(4)}", exactly_once=exactly_once)

    def rows() -> list[dict[str, str]]:
        records = read_topic(own_kafka.bootstrap, f"{prefix}.lines", committed=exactly_once)
        return [json.loads(record.value or b"null") for record in records]

    sender = (_Sender if source == "http" else _LumberjackSender)(port)
    try:
        cluster.start(2)
        cluster.running[0].create(name, _config(source, port, prefix))
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


class _SyslogNg:
    """A syslog-ng over TCP that follows a log, and the numbers of its lines that are in Kafka.

    Args:
        cluster: runs the connector.
        name: of the connector.
        folder: of its own.
    """

    def __init__(self, cluster: Cluster, name: str, folder: Path) -> None:
        self._cluster, self._topic = cluster, f"{name}.lines"
        path, port = folder / "app.log", free_port()
        self.written = 0
        with ExitStack() as stack:
            self._file = stack.enter_context(path.open("w", encoding="utf-8", buffering=1))
            cluster.running[0].create(name, _config("syslog", port, name))
            stack.callback(cluster.ask, "DELETE", f"/connectors/{name}")
            destination = f'syslog("{LOOPBACK}" port({port}) transport("tcp") time-reopen(1) log-fifo-size({_LINES}));'
            stack.callback(start_syslog_ng(folder / "syslog-ng", destination, path).stop)
            self.close = stack.pop_all().close

    def came(self) -> list[int]:
        records = read_topic(self._cluster.bootstrap, self._topic, committed=self._cluster.exactly_once)
        return [int(json.loads(record.value or b"null")["line"].split()[1]) for record in records]

    def write(self, count: int) -> None:
        for number in range(self.written, self.written + count):
            self._file.write(_line(number) + "\n")
        self.written += count

    def until_behind(self, number: int) -> None:
        """Wait until this line or a later one is in Kafka."""
        self._cluster.until(lambda: max(self.came(), default=-1) >= number, f"line {number} or a later one came", 120)

    def until_again(self) -> None:
        """Write lines until one of them is in Kafka: a sender notices only by writing that its connection is dead."""
        first = self.written

        def comes() -> bool:
            self.write(1)
            return max(self.came(), default=-1) >= first

        self._cluster.until(comes, f"a line behind {first} came", 120)
        self.until_behind(self.written - 1)


@pytest.mark.parametrize("exactly_once", [False, True])
def test_syslog_over_tcp_loses_nothing_while_kafka_is_away(
    own_kafka: KafkaCluster, unique: Callable[[str], str], tmp_path: Path, exactly_once: bool
) -> None:
    """The task lives on: Kafka comes back within the worker's session."""
    properties = {"session.timeout.ms": "120000"}
    group = f"g-{secrets.token_hex(4)}"
    cluster = Cluster(tmp_path, own_kafka.bootstrap, group, exactly_once=exactly_once, properties=properties)
    with ExitStack() as stack:
        stack.callback(cluster.close)
        cluster.start(1)
        sender = _SyslogNg(cluster, unique("l") + "x", tmp_path)
        stack.callback(sender.close)
        sender.write(_STEP)
        sender.until_behind(_STEP // 4)
        own_kafka.broker(0).kill()
        sender.write(_STEP)
        own_kafka.broker(0).start()
        sender.until_behind(sender.written - 1)
        assert sender.came() == list(range(sender.written))


@pytest.mark.proves("from logs syslog", "at-most-once", killed=["worker", "task host"])
def test_syslog_over_tcp_loses_only_what_is_on_its_way(
    pair: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """It has no answers: what a worker had taken and not written when it was killed is lost, and nothing comes twice."""
    name = unique("l") + "x"
    with closing(_SyslogNg(pair, name, tmp_path)) as sender:
        sender.write(_STEP)
        sender.until_behind(_STEP - 1)
        pair.worker(pair.tasks(name)[0].worker).kill()  # nothing is on its way
        pair.repair()
        sender.until_again()

        before = sender.written
        sender.write(_STEP)
        sender.until_behind(before + _STEP // 4)
        for host in pair.worker(pair.tasks(name)[0].worker).hosts():
            os.kill(host, signal.SIGKILL)
        sender.until_again()
        numbers, written = sender.came(), sender.written
    gaps = [(a + 1, b) for a, b in pairwise([*numbers, written]) if b - a > 1]
    print(f"{written} lines, lost: {gaps}")
    assert numbers == sorted(set(numbers)), "in order, and none twice"
    assert numbers[:_STEP] == list(range(_STEP)), "what was in Kafka before stays"
    # Each death costs at most one run of lines: those on their way.
    assert len(gaps) <= 2, gaps
