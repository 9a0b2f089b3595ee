"""How the end of a changelog is asked for while its leader moves, over a consumer in memory."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.errors import Retriable
from spark_jobs.materializer.state import changelog
from spark_jobs.materializer.state.changelog import Changelog
from tests.support.clock import ManualClock


class Consumer:
    """Asks the leader that it knows, which is gone until the metadata were read ``stale`` times; a question takes a while."""

    def __init__(self, clock: ManualClock, code: int, stale: int) -> None:
        self.clock, self.code, self.stale = clock, code, stale

    def get_watermark_offsets(self, partition: Any, *, timeout: float) -> tuple[int, int]:
        assert (partition.topic, partition.partition) == ("log", 3)
        if self.stale > 0:
            self.clock.now += timeout
            raise KafkaException(KafkaError(self.code))
        return 5, 9

    def list_topics(self, topic: str, timeout: float) -> None:
        assert topic == "log"
        self.stale -= 1
        if self.stale % 2:
            self.clock.now += timeout
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    manual_clock = ManualClock(0.0)
    monkeypatch.setattr(changelog, "time", manual_clock)
    return manual_clock


def ends(clock: ManualClock, code: int, stale: int) -> tuple[int, int]:
    log = object.__new__(Changelog)
    log.topic = "log"
    log._consumer = Consumer(clock, code, stale)  # type: ignore[assignment]
    return log.ends(3)


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.LEADER_NOT_AVAILABLE])
def test_a_new_leader_is_asked_as_soon_as_it_is_known(clock: ManualClock, code: int) -> None:
    assert ends(clock, code, 2) == (5, 9)
    assert clock.now < 10


@pytest.mark.parametrize(
    ("code", "patience_s"),
    [(KafkaError._TIMED_OUT, 30), (KafkaError.LEADER_NOT_AVAILABLE, 10), (KafkaError.TOPIC_AUTHORIZATION_FAILED, 0)],
)
def test_patience_ends(clock: ManualClock, code: int, patience_s: int) -> None:
    with pytest.raises(Retriable, match="end of the changelog log"):
        ends(clock, code, 1_000)
    assert patience_s <= clock.now < patience_s + 10
