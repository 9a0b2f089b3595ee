"""Kafka's and Connect's properties, and the readiness probe's reading of what Kafka answers."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.local.connect import worker_properties
from compose.local.kafka import KafkaCluster, Ports, broker_properties, known_brokers, live_brokers
from compose.local.ports import LOOPBACK, free_port
from worker.fetch.errors import StackError


def _ports(count: int) -> list[Ports]:
    return [Ports(9092 + n, 9192 + n, 9292 + n) for n in range(count)]


def test_a_single_broker_needs_no_replicas() -> None:
    properties = broker_properties(0, _ports(1), Path("/data"), {})
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:9292"
    factors = {value for name, value in properties.items() if name.endswith((".factor", "min.isr", ".replicas"))}
    assert factors == {"1"}
    assert properties["auto.create.topics.enable"] == "true"
    assert properties["group.initial.rebalance.delay.ms"] == "0"


@pytest.mark.parametrize("count", [3, 5])
def test_several_brokers_replicate_three_times_with_two_in_sync(count: int) -> None:
    properties = broker_properties(1, _ports(count), Path("/data"), {})
    assert properties["node.id"] == "2"
    assert len(properties["controller.quorum.voters"].split(",")) == count
    for name in ("default", "offsets.topic", "transaction.state.log"):
        assert properties[f"{name}.replication.factor"] == "3"
    assert properties["min.insync.replicas"] == properties["transaction.state.log.min.isr"] == "2"


def test_two_brokers_stay_writable_when_one_is_lost() -> None:
    properties = broker_properties(0, _ports(2), Path("/data"), {})
    assert (properties["default.replication.factor"], properties["min.insync.replicas"]) == ("2", "1")


def test_everything_listens_on_the_loopback_address_only_and_can_be_overridden() -> None:
    properties = broker_properties(0, _ports(1), Path("/data"), {"num.partitions": "7", "log.dirs": "/other"})
    for name in ("listeners", "advertised.listeners"):
        assert all(listener.split("://")[1].startswith("127.0.0.1:") for listener in properties[name].split(","))
    assert properties["num.partitions"] == "7"
    assert properties["log.dirs"] == "/other"


def test_a_cluster_without_brokers_or_addresses_says_so(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="at least one broker"):
        KafkaCluster(tmp_path, count=0).start()
    with pytest.raises(StackError, match=r"call start\(\) first"):
        _ = KafkaCluster(tmp_path).bootstrap


def test_a_version_that_the_local_stack_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"there is no Kafka 2\.0 in the local stack; there are: 4\.1, 3\.3"):
        KafkaCluster(tmp_path, version="2.0", port=None).prepare()


def test_worker_properties_name_topics_after_the_group() -> None:
    properties = worker_properties("h:1", "blue", 8083, 3, {"status.storage.topic": "mine"})
    assert properties["config.storage.topic"] == "blue-configs"
    assert properties["offset.storage.topic"] == "blue-offsets"
    assert properties["status.storage.topic"] == "mine"
    assert properties["offset.storage.replication.factor"] == "3"
    assert properties["listeners"] == "http://127.0.0.1:8083"


@contextlib.contextmanager
def _answering(answer: bytes) -> Iterator[int]:
    """A server that takes one request and answers with the bytes."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            thread.join()


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_brokers_are_read_with_and_without_racks() -> None:
    brokers = struct.pack(">ih4sih", 1, 4, b"host", 9092, -1) + struct.pack(">ih1sih2s", 3, 1, b"h", 9094, 2, b"r1")
    with _answering(_framed(struct.pack(">ii", 7, 2) + brokers + b"\0" * 8)) as port:
        assert known_brokers(port) == {1, 3}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        _framed(struct.pack(">ii", 8, 0)),
        _framed(struct.pack(">iii", 7, 2, 1)),
        _framed(struct.pack(">ii", 7, 1) + b"\0" * 4)[:-2],
    ],
    ids=["closed", "not Kafka", "another request's answer", "cut list", "cut frame"],
)
def test_whoever_does_not_answer_like_kafka_has_no_brokers(answer: bytes) -> None:
    with _answering(answer) as port:
        assert live_brokers(port) == 0


def test_nobody_listening_has_no_brokers() -> None:
    assert live_brokers(free_port()) == 0
