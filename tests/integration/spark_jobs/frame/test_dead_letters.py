"""Dead letters of large bad records, in real Kafka."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.errors import Fatal, Retriable
from spark_jobs import dead_letters
from spark_jobs.config.keys import FRAME
from spark_jobs.dead_letters import DeadLetters
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable

#: Kafka's default for the largest record batch of a topic; librdkafka's own limit is below it.
BROKER_LIMIT = 1_048_588


@pytest.fixture
def letters(bootstrap: str, unique: Callable[[str], str]) -> DeadLetters:
    config = FRAME.parse(
        {
            "name": "j",
            "kafka.bootstrap.servers": bootstrap,
            "source.topics": "t",
            "source.format": "debezium",
            "sink.type": "console",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": unique("dead"),
        }
    )
    letters: DeadLetters = pickle.loads(pickle.dumps(DeadLetters.from_config("j", config)))  # noqa: S301 - as Spark does
    return letters


def test_what_its_own_topic_took_the_dead_letter_topic_takes_too(letters: DeadLetters, bootstrap: str) -> None:
    value = b"x" * (BROKER_LIMIT - 10_000)
    letters.report("t", 0, 17, None, value, "no JSON")
    assert [record.value for record in read_topic(bootstrap, letters.topic)] == [value]


def test_a_record_that_is_too_large_is_named_with_the_way_out(letters: DeadLetters, bootstrap: str) -> None:
    letters.report("t", 0, 16, None, b"small", "no JSON")
    with pytest.raises(
        Fatal, match=r"bad record at t-0 offset 17: .*[Mm]essage size too large.* \(max\.message\.bytes"
    ):
        letters.report("t", 0, 17, None, b"x" * (BROKER_LIMIT + 1), "no JSON")
    assert [record.value for record in read_topic(bootstrap, letters.topic)] == [b"small"]


def test_a_broken_producer_is_replaced_and_the_batch_done_again(
    letters: DeadLetters, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def produce(self, *_: object, **__: object) -> None:
            raise KafkaException(KafkaError(KafkaError._FATAL, "out of order"))

    kept = dead_letters._RESIDENT.producers
    monkeypatch.setitem(kept, repr(sorted(letters._client.items())), Broken())
    with pytest.raises(Retriable, match="out of order"):
        letters.report("t", 0, 17, None, b"bad", "no JSON")
    letters.report("t", 0, 17, None, b"bad", "no JSON")
    assert [record.value for record in read_topic(bootstrap, letters.topic)] == [b"bad"]
