"""Signals of the topic: their place is kept once what they ask for is durable."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from connectors.mysql.run import signalling
from connectors.mysql.run.batching import BatchMaker
from connectors.mysql.run.signalling import RunSignals
from connectors.mysql.schema.versions import VersionBook
from connectors.mysql.stream.counters import StreamCounters
from connectors.mysql.stream.latency import HeartbeatLatency
from connectors.mysql.stream.signals import Signal
from connectors.testing.contexts import LogCapture, make_logger
from tests.support.eventually import pass_turns, patience
from tests.unit.connectors.mysql.snapshot.run_world import run_snapshots, settings
from tests.unit.connectors.mysql.synthetic import FILE, PARTITION, reader

if TYPE_CHECKING:
    from connectors.mysql.run.records import RunRecords
    from connectors.mysql.schema.tables import MySqlTableState


class Topic:
    """Stands for the consumer of the signal topic."""

    def __init__(self, *_args: str) -> None:
        self.unread = [
            [Signal("a", "execute-snapshot", {"data-collections": ["shop.t"]}, "signals-0:0", 1_000)],
            [Signal("b", "log", {"message": "here"}, "signals-0:1", 2_000)],
        ]
        self.reads = self.commits = 0

    async def start(self) -> None:
        pass

    async def read(self) -> list[Signal]:
        await pass_turns()
        self.reads += 1
        return self.unread.pop(0) if self.unread else []

    async def commit(self) -> None:
        self.commits += 1

    async def close(self) -> None:
        pass


class Partition:
    """The signal topic: what is committed is not read again."""

    def __init__(self, *signals: Signal) -> None:
        self.signals = list(signals)
        self.committed = 0

    def reader(self, *_args: str) -> PartitionReader:
        return PartitionReader(self)


class PartitionReader:
    """A consumer of it, which reads one signal at a time, and nothing at first."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._at = -1

    async def start(self) -> None:
        self._at = -1

    async def read(self) -> list[Signal]:
        await pass_turns()
        if self._at < 0:
            self._at = self._partition.committed
            return []
        self._at += 1
        return self._partition.signals[self._at - 1 : self._at]

    async def commit(self) -> None:
        self._partition.committed = min(self._at, len(self._partition.signals))

    async def close(self) -> None:
        pass


def set_position(at: int, pos: int) -> Signal:
    data = {"binlog_filename": FILE, "binlog_position": pos}
    return Signal(f"m{at}", "set-binlog-position", data, f"signals-0:{at}", 1_000)


@pytest.mark.parametrize("crash", [False, True], ids=["runs on", "crashes before the move is durable"])
async def test_a_position_that_a_record_of_the_topic_sets_is_set_once_whatever_is_durable(
    monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    log = Signal("b", "log", {"message": "here"}, "signals-0:0", 1_000)
    partition = Partition(log, set_position(1, 500), set_position(2, 700))
    monkeypatch.setattr(signalling, "KafkaSignals", partition.reader)
    options = settings(
        signal_enabled_channels="kafka", signal_kafka_bootstrap_servers="k:9092", signal_kafka_topic="signals"
    )
    durable: dict[str, Any] = {"file": FILE, "pos": 1_000, "source_server": 1}
    saved = durable
    moves: list[int] = []
    for _ in range(5):
        stream = reader(saved)
        records = cast(
            "RunRecords",
            SimpleNamespace(
                context=SimpleNamespace(partition=PARTITION, held_rows=None), versions=VersionBook("p", "", ())
            ),
        )
        batches = BatchMaker(options, records, run_snapshots(), HeartbeatLatency(60), StreamCounters(), atomic=False)
        signals = RunSignals(
            options, batches, HeartbeatLatency(60), stream.cursor, make_logger("signals", LogCapture())
        )
        signals.start()
        async with patience(10):
            for _ in range(200):
                await pass_turns()
                # What the run saves is durable a little later; not in the run that is about to end.
                signals.committed([(PARTITION, saved)] if not crash or moves[1:] else [])
        await signals.close()
        if signals.moved_to is None:
            break
        moves.append(signals.moved_to.pos)
        moved = batches.move(stream.cursor, signals.moved_to, signals.moved_by, signals.moved_by_record)
        if crash and len(moves) == 1:
            assert partition.committed < 3  # the task starts again from what is durable
            saved = durable
        else:
            saved = moved.offsets[0][1] or {}
    assert moves == ([700, 700] if crash else [700])
    assert partition.committed == 3
    assert "moved_by_record" not in stream.cursor.now()


@pytest.mark.parametrize(
    "rows", [[{"source": "p", "sent_us": 4}, {"source": "p", "sent_us": 5}], [{"source": "p"}, {"sent_us": 5}]]
)
def test_a_heartbeat_is_understood_whatever_row_images_the_server_writes(rows: list[dict[str, Any]]) -> None:
    latency = HeartbeatLatency(60)
    batches = cast("BatchMaker", SimpleNamespace(snapshots=run_snapshots(), saved={}))
    signals = RunSignals(settings(), batches, latency, reader().cursor, make_logger("signals", LogCapture()))
    table = cast("MySqlTableState", SimpleNamespace(kind="heartbeat"))
    signals.take_rows(table, "u", rows, "b.000007:1000", 1_700_000_000)
    assert latency.last_read == 5


async def test_signals_of_the_topic_are_committed_once_what_they_ask_for_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, snapshots = Topic(), run_snapshots()
    monkeypatch.setattr(signalling, "KafkaSignals", lambda *_args: topic)
    log = LogCapture()
    signals = RunSignals(
        settings(
            signal_enabled_channels="kafka", signal_kafka_bootstrap_servers="k:9092", signal_kafka_topic="signals"
        ),
        cast("BatchMaker", SimpleNamespace(snapshots=snapshots, saved={})),
        HeartbeatLatency(60),
        reader().cursor,
        make_logger("signals", log),
    )

    async def turns() -> None:
        async with patience(10):
            last = topic.reads + 3
            while topic.reads < last:
                await pass_turns()

    signals.start()
    try:
        await turns()
        assert "here" in log.text()
        offsets = [pair for pair in snapshots.decided() if pair[1] is not None]
        assert offsets
        # A crash now would lose the snapshot, if the place behind its signal were saved.
        assert topic.commits == 0
        signals.committed([({"server": "p"}, {"file": "b.000007", "pos": 4})])
        await turns()
        assert topic.commits == 0
        signals.committed(cast("Any", offsets))
        await turns()
        assert topic.commits > 0
    finally:
        await signals.close()
