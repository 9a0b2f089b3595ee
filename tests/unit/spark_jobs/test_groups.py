"""Reading a group's positions while its coordinator moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spark_jobs.kafka.groups import read_committed

if TYPE_CHECKING:
    from confluent_kafka import Consumer

WHERE = [TopicPartition("t", 0), TopicPartition("t", 1)]
AT = [TopicPartition("t", 0, 7), TopicPartition("t", 1, 9)]


class Answers:
    """Gives the answers in order, the last one forever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0

    def committed(self, partitions: list[Any], timeout: float) -> Any:
        assert [partition.partition for partition in partitions] == [0, 1]
        assert timeout > 0
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return answer


def refused(code: int) -> list[Any]:
    class Refused:
        error, offset = KafkaError(code), -1001

    return [AT[0], Refused()]


@pytest.mark.parametrize(
    "answer",
    [
        KafkaError(KafkaError.NOT_COORDINATOR),
        KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE),
        KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
        refused(KafkaError.UNSTABLE_OFFSET_COMMIT),
    ],
)
def test_a_coordinator_that_moves_is_asked_again(answer: Any) -> None:
    asked = Answers(answer, answer, AT)
    assert read_committed(cast("Consumer", asked), WHERE, 30.0) == AT
    assert asked.asked == 3


@pytest.mark.parametrize(
    "answer", [KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), refused(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
)
def test_a_refusal_is_raised_at_once(answer: Any) -> None:
    asked = Answers(answer)
    with pytest.raises(KafkaException, match="authorization"):
        read_committed(cast("Consumer", asked), WHERE, 30.0)
    assert asked.asked == 1


def test_the_time_is_bounded_and_the_error_has_the_reason() -> None:
    asked = Answers(KafkaError(KafkaError.NOT_COORDINATOR))
    with pytest.raises(KafkaException, match="Not coordinator"):
        read_committed(cast("Consumer", asked), WHERE, 0.35)
    assert asked.asked > 1
