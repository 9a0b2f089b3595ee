"""Signals of the topic: their place is kept once what they ask for is durable."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from connectors.mysql.run import signalling
from connectors.mysql.run.signalling import RunSignals
from connectors.mysql.stream.latency import HeartbeatLatency
from connectors.mysql.stream.signals import Signal
from connectors.testing.contexts import LogCapture, make_logger
from tests.support.eventually import pass_turns, patience
from tests.unit.connectors.mysql.snapshot.run_world import run_snapshots, settings
from tests.unit.connectors.mysql.synthetic import reader

if TYPE_CHECKING:
    from connectors.mysql.run.batching import BatchMaker
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
