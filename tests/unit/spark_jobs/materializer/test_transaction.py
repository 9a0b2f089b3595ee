"""How long a bucket's transaction waits for brokers, over a producer in memory."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_jobs.materializer.state import transaction
from spark_jobs.materializer.state.transaction import BucketWriter, Redo

if TYPE_CHECKING:
    from collections.abc import Iterator


class Producer:
    """Delivers as ``waiting`` says: how many records wait after each half second."""

    def __init__(self, waiting: list[int]) -> None:
        self.waiting: Iterator[int] = itertools.chain(waiting, itertools.repeat(waiting[-1]))
        self.asked = 0

    def __len__(self) -> int:
        return 100

    def flush(self, timeout: float) -> int:
        assert timeout == 0.5
        self.asked += 1
        return next(self.waiting)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Half a second passes between two looks."""
    ticks = itertools.count()
    fake_time = SimpleNamespace(monotonic=lambda: next(ticks) / 2)
    monkeypatch.setattr(transaction, "time", fake_time)
    return fake_time


def writer(producer: Any) -> BucketWriter:
    bucket_writer = object.__new__(BucketWriter)
    bucket_writer.identity = "job-0"
    bucket_writer._producer = producer
    bucket_writer._options = SimpleNamespace(
        output_topic="o", changelog_topic="c", group="g", transaction_timeout_ms=60_000
    )  # type: ignore[assignment]
    return bucket_writer


@pytest.mark.usefixtures("clock")
def test_what_is_delivered_bit_by_bit_is_waited_for() -> None:
    waiting = [left for left in range(90, 0, -10) for _ in range(25)]  # each for 12.5 s
    producer = Producer([*waiting, 0])
    writer(producer)._flush()
    assert producer.asked == len(waiting) + 1


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("waiting", [[100], [60, 40, 3]])
def test_where_nothing_is_delivered_a_new_producer_does_it_again(waiting: list[int]) -> None:
    producer = Producer(waiting)
    with pytest.raises(Redo, match=f"15 s, {waiting[-1]} wait") as raised:
        writer(producer)._flush()
    assert raised.value.replace
    assert producer.asked < len(waiting) + 40


@pytest.mark.usefixtures("clock")
def test_calls_that_may_be_repeated_are_for_as_long_as_they_are_given(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def call() -> None:
        calls.append(1)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))

    with pytest.raises(Redo, match="commit_transaction of job-0: ") as raised:
        writer(None)._call("commit_transaction", call, 15)
    assert raised.value.replace
    assert 20 < len(calls) < 40
    assert [record.message for record in caplog.records] == [
        "commit_transaction of job-0: " + str(KafkaError(KafkaError._TIMED_OUT, "no answer")) + "; retrying"
    ]


class Fenced:
    """A producer whose transactional id another one has taken: produce tells less than the other calls do."""

    def __len__(self) -> int:
        return 1

    def produce(self, *_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "Fatal error"))

    def abort_transaction(self, timeout: float) -> None:
        assert timeout > 0
        self.flush(0)

    def flush(self, timeout: float) -> int:
        del timeout
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer instance", fatal=True))

    poll = flush


def test_whoever_hears_of_a_fence_has_its_work_done_again_by_a_new_producer_and_says_why() -> None:
    fenced = writer(Fenced())
    fenced._produce = fenced._producer.produce
    fenced._bucket = 0
    for heard in (
        lambda: fenced._put("o", b"v", b"k", 0),
        lambda: fenced._wait("o", b"v", b"k", 0, {}),
        fenced._flush,
        lambda: fenced.commit(b"m", 1, None, before_commit=lambda: None),
    ):
        with pytest.raises(Redo, match="fenced by a newer instance") as raised:
            heard()
        assert raised.value.replace
