"""Records get to the partitions that Kafka's default partitioner gives them, and into batches that hold their units."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from connectors.errors import Fenced
from tests.support.eventually import pass_turns
from worker.converters.partitioner import choose_partition
from worker.host.delivery.commits import CommitUnit
from worker.host.delivery.producer import Producer
from worker.host.delivery.routes import (
    ProducerSettings,
    RecordTooLarge,
    TopicPartitionWriter,
    TopicRoute,
    topic_complaint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Counted:
    """A producer that counts, and sends nothing."""

    def __init__(self, **arguments: Any) -> None:
        self.settings = ProducerSettings(arguments)
        self.rows = self.bytes = 0
        self.leaders: list[int] = []
        self.closed = False

    def check(self) -> None:
        if self.closed:
            raise Fenced("closed")

    def available(self, topic: str) -> list[int]:
        assert topic == "t"
        return self.leaders

    def account(self, rows: int, size: int) -> None:
        self.rows += rows
        self.bytes += size

    def serve(self, writer: TopicPartitionWriter) -> None:
        assert writer.topic == "t"


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    asyncio._set_running_loop(loop)  # routes only ask it for the time
    yield loop
    asyncio._set_running_loop(None)
    loop.close()


def route(sink: Counted, partitions: int) -> TopicRoute:
    topic_route = TopicRoute(sink, "t", sink.settings.batch_size)
    topic_route.grow(partitions)
    return topic_route


def content(topic_route: TopicRoute) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    contents: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for writer in topic_route.writers.values():
        writer.roll()
        for chunk in writer.full:
            assert chunk.count == chunk.record_count() > 0
            contents.setdefault(writer.partition, []).extend(
                (record.key, record.value) for record in DefaultRecordBatch(bytes(chunk.build()))
            )
    return contents


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize("partitions", [1, 7])
def test_keys_decide(partitions: int) -> None:
    sink = Counted()
    topic_route = route(sink, partitions)
    unit = CommitUnit()
    keys = [b"key-%d" % number for number in range(100)]
    assert topic_route.append(unit, keys, keys) == []
    contents = content(topic_route)
    assert {key: number for number, rows in contents.items() for key, _ in rows} == {
        key: choose_partition(key, partitions) for key in keys
    }
    assert contents[0] == [(key, key) for key in keys if choose_partition(key, partitions) == 0]
    assert unit.holders == 1 + len(contents)
    assert sink.rows == 100


@pytest.mark.usefixtures("loop")
def test_null_keys_stay_together_and_move_on_when_a_batch_is_full() -> None:
    sink = Counted(max_batch_size=1_000)
    topic_route = route(sink, 50)
    unit = CommitUnit()
    assert topic_route.append(unit, [b"x" * 100] * 5) == []
    assert len([writer for writer in topic_route.writers.values() if writer.chunk]) == 1
    topic_route.append(unit, [b"x" * 100] * 200)
    contents = content(topic_route)
    assert len(contents) > 5, "with 20 full batches and 50 partitions"
    assert sum(map(len, contents.values())) == sink.rows == 205
    assert unit.holders == 1 + sum(len(writer.full) for writer in topic_route.writers.values())
    assert all(chunk.size() <= 1_000 for writer in topic_route.writers.values() for chunk in writer.full)
    assert sink.bytes == sum(chunk.accounted for writer in topic_route.writers.values() for chunk in writer.full)


@pytest.mark.usefixtures("loop")
def test_null_keys_move_on_though_no_batch_gets_full() -> None:
    topic_route = route(Counted(max_batch_size=1_000), 50)
    used = set()
    for _ in range(100):
        topic_route.append(CommitUnit(), [b"x" * 100])
        used |= {writer.partition for writer in topic_route.writers.values() if writer.chunk}
        for writer in topic_route.writers.values():
            writer.roll()
    assert len(used) > 3


@pytest.mark.usefixtures("loop")
def test_null_keys_avoid_partitions_without_leader() -> None:
    sink = Counted(max_batch_size=1_000)
    sink.leaders = [2]
    topic_route = route(sink, 4)
    topic_route.append(CommitUnit(), [b"x" * 100] * 50)
    assert set(content(topic_route)) == {2}


@pytest.mark.usefixtures("loop")
def test_given_partitions_go_before_keys_and_must_exist() -> None:
    sink = Counted()
    topic_route = route(sink, 3)
    refused = topic_route.append(
        CommitUnit(), [b"0", b"1", b"2", b"3", b"4"], [b"a", b"a", None, b"a", b"a"], [2, None, 1, 3, -1]
    )
    assert [index for index, _ in refused] == [3, 4]
    assert "has no partition 3, only 3" in str(refused[0][1])
    assert "has no partition -1, only 3" in str(refused[1][1])
    contents = content(topic_route)
    assert contents[2][0] == (b"a", b"0")
    assert (None, b"2") in contents[1]
    assert (b"a", b"1") in contents[choose_partition(b"a", 3)]
    assert sink.rows == 3


@pytest.mark.usefixtures("loop")
def test_places_go_before_keys() -> None:
    topic_route = route(Counted(), 7)
    keys = [b"beat-%d" % number for number in range(30)]
    topic_route.append(
        CommitUnit(), keys, keys, partition_keys=[b"rows" if number % 3 else None for number in range(30)]
    )
    partitions = {value: number for number, rows in content(topic_route).items() for _, value in rows}
    assert partitions == {key: choose_partition(b"rows" if number % 3 else key, 7) for number, key in enumerate(keys)}


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize("keyed", [False, True])
def test_a_record_too_large_is_refused_alone(keyed: bool) -> None:
    sink = Counted(max_request_size=1_000, max_batch_size=400)
    topic_route = route(sink, 2)
    unit = CommitUnit()
    values = [b"a" * 10, b"b" * 2_000, b"c" * 10, b"d" * 500, b"e" * 10]
    refused = topic_route.append(unit, values, [b"k"] * 5 if keyed else None)
    assert [(index, type(error)) for index, error in refused] == [(1, RecordTooLarge)]
    assert "max.request.size (1000)" in str(refused[0][1])
    assert sorted(value or b"" for rows in content(topic_route).values() for _, value in rows) == [
        value for value in values if len(value) < 1_000
    ]
    assert sink.rows == 4


@pytest.mark.usefixtures("loop")
def test_timestamps_and_headers_arrive() -> None:
    topic_route = route(Counted(), 1)
    topic_route.append(CommitUnit(), [b"v", None], [b"k", b"l"], None, [1, 2], [[("h", b"x")], []])
    topic_route.writers[0].roll()
    (chunk,) = topic_route.writers[0].full
    assert [
        (record.timestamp, record.value, list(record.headers)) for record in DefaultRecordBatch(bytes(chunk.build()))
    ] == [(1, b"v", [("h", b"x")]), (2, None, [])]


def test_nothing_is_taken_after_the_end() -> None:
    sink = Counted()
    topic_route = route(sink, 1)
    sink.closed = True
    with pytest.raises(Fenced):
        topic_route.append(CommitUnit(), [b"x"])


async def test_tasks_that_ask_for_a_topic_at_once_share_its_route(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def partitions(_producer: Producer, _topic: str, *, is_known: bool) -> int:
        assert not is_known
        await asked.wait()
        return 2

    monkeypatch.setattr(Producer, "_partitions", partitions)
    monkeypatch.setattr(Producer, "serve", lambda _producer, _writer: None)
    monkeypatch.setattr(Producer, "available", lambda _producer, _topic: [0, 1])
    producer = Producer("test", ProducerSettings({}), lambda _error: None)
    asking = [asyncio.create_task(producer.route("t")) for _ in range(3)]
    await pass_turns()
    asked.set()
    first, *others = await asyncio.gather(*asking)
    assert all(other is first for other in others)
    assert first.partitions == 2


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("a b", "it contains ' '"),
        ("b\u00fccher", "it contains '\u00fc'"),
        ("a/b", "it contains '/'"),
        ("a\n", r"it contains '\n'"),
        (".", "'.' and '..' are not allowed"),
        ("..", "'.' and '..' are not allowed"),
        ("", "it is empty"),
        (None, "it is empty"),
        ("x" * 250, "it is 250 characters long"),
    ],
)
def test_names_that_kafka_does_not_allow_are_refused_with_the_reason(topic: str | None, reason: str) -> None:
    complaint = topic_complaint(topic)
    assert complaint is not None
    assert complaint.startswith(f"invalid topic name {topic!r}: {reason}")


@pytest.mark.parametrize("topic", ["a", "...", "A-b_c.9", "x" * 249, "__consumer_offsets"])
def test_all_others_are_allowed(topic: str) -> None:
    assert topic_complaint(topic) is None
