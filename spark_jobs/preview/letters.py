"""Bad records of a preview: they are collected for its answer, and go nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.accumulators import AccumulatorParam

from spark_jobs.dead_letters import DeadLetters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark import SparkContext

#: Bad records that are kept, at most.
MOST: Final = 1000
_LONGEST: Final = 2000

#: Topic, partition, offset, reason.
Bad = tuple[str, int, int, str]


class BadRecords(AccumulatorParam[list[Bad]]):
    """How Spark adds lists of bad records of tasks."""

    def zero(self, value: list[Bad]) -> list[Bad]:
        """An empty list."""
        del value
        return []

    def addInPlace(self, value1: list[Bad], value2: list[Bad]) -> list[Bad]:  # noqa: N802 - pyspark's name
        """Both lists, up to ``MOST``."""
        value1 += value2[: max(0, MOST - len(value1))]
        return value1


class CollectedLetters(DeadLetters):
    """Takes bad records in place of a dead letter topic. Picklable, as ``DeadLetters``.

    Args:
        job: the job's name.
        context: Spark's, for the list that tasks add to.
        masked: whether columns are masked: then no reason shows a value.
    """

    def __init__(self, job: str, context: SparkContext, *, masked: bool) -> None:
        super().__init__(job, tolerant=True, counter=context.accumulator([], BadRecords()), masked=masked)

    def report(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        error: BaseException | str,
        *,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        stage: str = "VALUE_CONVERTER",
    ) -> None:
        """Note a bad record; see ``DeadLetters.report``."""
        del key, value, headers
        reason: Any = self.shown(error, stage)
        self.counter.add([(topic, partition, offset, str(reason)[:_LONGEST])])

    def bad(self) -> list[Bad]:
        """All bad records so far, each once, in the order of their positions. On the driver."""
        first: dict[tuple[str, int, int], str] = {}
        for topic, partition, offset, reason in self.counter.value:
            first.setdefault((topic, partition, offset), reason)
        return [(*position, reason) for position, reason in sorted(first.items())]
