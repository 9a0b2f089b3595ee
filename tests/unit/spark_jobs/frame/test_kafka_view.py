"""Kafka's answers during a partial outage are not taken as lost records."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.errors import Retriable
from spark_jobs.kafka.lag import KafkaView


class Answers:
    """An admin client whose answers are given."""

    def __init__(self, offsets: dict[tuple[str, int], int]) -> None:
        self.offsets = offsets

    def list_offsets(self, partitions: dict[Any, Any], **_options: Any) -> dict[Any, Future[Any]]:
        futures: dict[Any, Future[Any]] = {}
        for partition in partitions:
            futures[partition] = Future()
            futures[partition].set_result(SimpleNamespace(offset=self.offsets[partition.topic, partition.partition]))
        return futures

    def poll(self, _timeout: float) -> int:
        return 0


def test_an_answer_without_an_offset_is_asked_for_again() -> None:
    view = KafkaView({"source.isolation.level": "read_committed", "kafka.bootstrap.servers": "k:9092"})  # type: ignore[arg-type]
    view._admin = Answers({("t", 0): 981, ("t", 1): 0})
    assert view.ends([("t", 0), ("t", 1)]) == {("t", 0): 981, ("t", 1): 0}
    view._admin = Answers({("t", 0): -1001, ("t", 1): 0})
    with pytest.raises(Retriable, match="k:9092"):
        view.ends([("t", 0), ("t", 1)])
