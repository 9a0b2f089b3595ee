"""Attempts of one Spark task next to each other, as speculative execution starts them: each record is written once."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from connectors.errors import Retriable
from spark_jobs.sinks.kafka.clients import ResidentClients
from spark_jobs.sinks.kafka.writer import KafkaPartitionWriter
from tests.integration.spark_jobs.kafka_sink.test_kafka_sink import committed, exactly_once, make, records
from tests.selection import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spark_jobs.sinks.kafka.config import KafkaSinkSettings

_BATCHES = 4
_RECORDS = 12


class Attempt:
    """One attempt to write a batch, in steps; it runs in a Python worker of its own."""

    def __init__(
        self, settings: KafkaSinkSettings, topic: str, start: int, worker: ResidentClients, chance: random.Random
    ) -> None:
        self.start = start
        self.worker = worker
        self.ended = False
        self.succeeded = False
        self._steps = self._write(settings, topic, start, chance)

    def _write(self, settings: KafkaSinkSettings, topic: str, start: int, chance: random.Random) -> Iterator[None]:
        end = start + _RECORDS
        writer = KafkaPartitionWriter(settings, topic, 0, start, end, resident=self.worker)
        try:
            yield
            bounds = sorted({start, end, *(chance.randrange(start, end) for _ in range(2))})
            for first, last in pairwise(bounds):
                writer.write(records(topic, first, last))
                if chance.random() < 0.5:  # else its records wait for the commit
                    with suppress(KafkaException):  # a refusal is the writer's next one
                        writer._producer.flush(30)
                yield
            writer.finish()
        except Retriable:
            writer.abandon()
            raise

    def step(self) -> None:
        """Do the next step; an attempt that another one has followed fails."""
        try:
            next(self._steps)
        except StopIteration:
            self.ended = self.succeeded = True
        except Retriable:
            self.ended = True


@pytest.mark.scaled
@pytest.mark.parametrize("seed", range(scaled(2, 20)))
def test_attempts_next_to_each_other_write_each_record_once(
    seed: int, bootstrap: str, unique: Callable[[str], str]
) -> None:
    chance = random.Random(f"attempts-{seed}")
    topic, target, markers = (make(bootstrap, unique(name), 1) for name in ("src", "dst", "marks"))
    settings = exactly_once(bootstrap, unique("job"), unique("group"), (topic, target, markers))
    workers = [ResidentClients() for _ in range(3)]
    running: list[Attempt] = []
    for batch in range(_BATCHES):
        done = False
        while not done:
            idle = [worker for worker in workers if all(attempt.worker is not worker for attempt in running)]
            if idle and (not running or chance.random() < 0.3):
                running.append(Attempt(settings, topic, batch * _RECORDS, chance.choice(idle), chance))
            attempt = chance.choice(running)
            attempt.step()
            done = attempt.succeeded and attempt.start == batch * _RECORDS
            running = [attempt for attempt in running if not attempt.ended]
        # Spark ends the attempts that are left, some of them late: these see the next batch. An end is that of the worker.
        for attempt in [attempt for attempt in running if chance.random() < 0.7]:
            running.remove(attempt)
            workers[workers.index(attempt.worker)] = ResidentClients()
    assert [int(message.value()) for message in committed(bootstrap, target)] == list(range(_BATCHES * _RECORDS))
