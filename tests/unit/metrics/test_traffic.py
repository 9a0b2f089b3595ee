"""The counters of Kafka clients and of tables, on bytes as clients send them and with a real client."""

from __future__ import annotations

import asyncio
import gc
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

from worker.host.task_metrics import Metrics
from worker.metrics.process import GcWatch
from worker.metrics.traffic import MeteredLoop, MeteredSelectorLoop, TrafficMeter, _MeteredConnection, client_traffic
from worker.protocol import CustomMetric
from worker.rest.own.metrics import accepts_gzip

if TYPE_CHECKING:
    from collections.abc import Callable


def request(key: int, client_id: str = "c-1", size: int = 0) -> bytes:
    name = client_id.encode()
    body = key.to_bytes(2) + b"\0\1" + b"\0\0\0\7" + len(name).to_bytes(2) + name + b"x" * size
    return len(body).to_bytes(4) + body


def test_a_connection_is_counted_by_kafkas_frames() -> None:
    meter = TrafficMeter()
    connection = _MeteredConnection(meter)
    sent = [request(18), request(3), request(0, size=100)]
    for frame in sent:
        connection.wrote(frame)
    answers = (20).to_bytes(4) + b"a" * 20 + (0).to_bytes(4) + (3).to_bytes(4) + b"abc"
    for at in range(0, len(answers), 5):  # parts do not end where answers do
        connection.received(answers[at : at + 5])
    (stats,) = meter.report()
    assert (stats.client_id, stats.kind, stats.connections, stats.requests, stats.responses) == (
        "c-1",
        "producer",
        1,
        3,
        3,
    )
    assert (stats.bytes_out, stats.bytes_in) == (sum(map(len, sent)), len(answers))
    connection.closed()
    connection.closed()
    (stats,) = meter.report()
    assert (stats.connections, stats.connections_made, stats.connections_closed, stats.failed_logins) == (0, 1, 1, 0)


def test_what_comes_before_the_first_request_counts_too() -> None:
    meter = TrafficMeter()
    connection = _MeteredConnection(meter)
    connection.received(b"abc")
    connection.wrote(request(3))
    (stats,) = meter.report()
    assert (stats.bytes_in, stats.responses) == (3, 0)


@pytest.mark.parametrize(("last_request", "logins", "failed"), [(request(1), 1, 0), (request(36), 0, 1)])
def test_logins_end_in_a_request_or_in_a_closed_connection(last_request: bytes, logins: int, failed: int) -> None:
    meter = TrafficMeter()
    connection = _MeteredConnection(meter)
    for frame in (request(18), request(17), request(36), last_request):
        connection.wrote(frame)
    connection.closed()
    (stats,) = meter.report()
    assert (stats.logins, stats.failed_logins) == (logins, failed)


def test_clients_are_bounded_and_totals_never_fall() -> None:
    meter = TrafficMeter(max_clients=3)
    for number in range(10):
        connection = _MeteredConnection(meter)
        connection.wrote(request(0, f"c-{number}", 10))
        connection.closed()
    assert len(meter.report()) <= 4
    assert "c-9" in {stats.client_id for stats in meter.report()}  # the idle ones have made room
    assert sum(stats.requests for stats in meter.report()) == 10


@pytest.mark.parametrize("make", [MeteredLoop, MeteredSelectorLoop])
def test_a_real_client_is_counted(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def talk() -> None:
        seen: list[bytes] = []

        async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(await reader.read(1000))
            writer.write(b"\0\0\0\1x")  # no answer that means anything: the client gives up
            writer.close()

        server = await asyncio.start_server(broker, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{port}", client_id="counted", request_timeout_ms=2000)
        with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
            await client.start()
        await client.stop()
        server.close()
        (stats,) = client_traffic()
        assert (stats.client_id, stats.bytes_out, stats.connections) == ("counted", sum(map(len, seen)), 0)
        assert stats.connections_made == stats.connections_closed == len(seen) >= 1

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(talk())


def test_a_tasks_series_of_tables_are_bounded() -> None:
    metrics = Metrics({"rows": ("counter", ""), "lag": ("gauge", "")}, max_series=2)
    for number in range(5):
        metrics.add("rows", 10, {"table": f"t{number}", "context": "c"})
        metrics.set("lag", number, {"table": f"t{number}"})
    metrics.set("lag", 1, {"table": "t9"})
    values = {(item.name, item.labels.get("table")): item.value for item in metrics.report()}
    assert values == {
        ("rows", "t0"): 10,
        ("rows", "t1"): 10,
        ("rows", "other"): 30,
        ("lag", "t0"): 0,
        ("lag", "t1"): 1,
        ("lag", "other"): 4,
    }
    assert metrics.folded == 7
    metrics.set("lag", 2, {"table": "t3"})
    assert {item.labels["table"]: item.value for item in metrics.report() if item.name == "lag"}["other"] == 2
    metrics.add("rows", 1)  # a series without a table is always there
    assert len(metrics.report()) == 7


@pytest.mark.parametrize(("value", "number"), [(True, 1.0), (Fraction(1, 2), 0.5), (7, 7)])
def test_any_number_of_a_connector_can_be_reported(value: Any, number: float) -> None:
    metrics = Metrics({"up": ("gauge", "")}, max_series=2)
    metrics.set("up", value)
    encoded = msgspec.msgpack.encode(metrics.report())
    assert [item.value for item in msgspec.msgpack.decode(encoded, type=list[CustomMetric])] == [number]


@pytest.mark.parametrize(
    ("text", "label"), [(7, "7"), (True, "True"), (None, "None"), (Fraction(1, 2), "1/2"), ("t", "t")]
)
def test_any_label_of_a_connector_can_be_reported(text: Any, label: str) -> None:
    metrics = Metrics({"up": ("gauge", "")}, max_series=2)
    metrics.set("up", 1, {"partition": text})
    metrics.add("up", 1, {"partition": label})
    encoded = msgspec.msgpack.encode(metrics.report())
    assert [(item.value, item.labels) for item in msgspec.msgpack.decode(encoded, type=list[CustomMetric])] == [
        (2, {"partition": label})
    ]


def test_garbage_collections_are_timed() -> None:
    watch = GcWatch()
    watch.start()
    gc.collect()
    watch.stop()
    gc.collect()
    stats = watch.stats()
    assert (stats.gc_runs[2], stats.threads > 0) == (1, True)
    assert stats.gc_s[2] > 0


@pytest.mark.parametrize(
    ("values", "accepted"),
    [
        (["gzip"], True),
        (["deflate, gzip;q=0.5"], True),
        (["gzip;q=0"], False),
        (["gzip; q=0.0"], False),
        (["*"], True),
        (["br", "gzip"], True),
        (["identity"], False),
        ([], False),
        (["gzip;q=0, *"], False),
    ],
)
def test_which_callers_get_gzip(values: list[str], accepted: bool) -> None:
    assert accepts_gzip(values) is accepted


def test_half_a_character_in_a_label_does_not_end_a_report() -> None:
    metrics = Metrics({"lag": ("gauge", "")}, 10)
    metrics.set("lag", 1, {"host": "a\ud800"})
    encoded = msgspec.msgpack.encode(metrics.report())
    assert [item.labels for item in msgspec.msgpack.decode(encoded, type=list[CustomMetric])] == [{"host": "a?"}]
