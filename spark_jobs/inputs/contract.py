"""The contract of inputs: a stream that starts batches, the records of each batch, and their positions.

Every input gives records the same position that Kafka does: topic, partition, offset. A retry of a batch has the same
records at the same positions, and offsets of a partition only grow; sinks rely on both to recognize what they have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from connectors.options import Config
    from spark_jobs.contract import JobContext
    from spark_jobs.job import Job
    from spark_jobs.kafka.lag_watch import JobStanding
    from spark_jobs.kafka.ranges import Offsets, Ranges
    from spark_jobs.reports.troubles import Troubles
    from spark_jobs.spark.checkpoint import Folder


class Retry(Protocol):
    """Repeats a step while it raises ``Retriable``; see ``Runner``."""

    def __call__(
        self, part: str, step: Callable[[], Any], *, batch: int | None = None, longest_s: float | None = None
    ) -> Any:
        """Return what ``step`` returns. Blocks."""


@dataclass(frozen=True, slots=True)
class InputRun:
    """The run of a job, as inputs see it.

    Attributes:
        job: the job.
        folder: its checkpoint.
        spark: the session.
        retry: repeats what may pass.
    """

    job: Job
    folder: Folder
    spark: SparkSession
    retry: Retry

    @property
    def config(self) -> Config:
        """The job's configuration."""
        return self.job.config


@dataclass(frozen=True, slots=True)
class InputBatch:
    """The records of one batch.

    Attributes:
        raw: the records with ``RAW_COLUMNS``; lazy.
        ranges: (topic, partition) -> (first offset, offset after the last one).
        position: the next offset of every partition after the batch.
        rows: how many records there are, at most.
    """

    raw: DataFrame
    ranges: Ranges
    position: Offsets
    rows: int


class LagView(Protocol):
    """Says how far behind its input a job is; ``LagWatch`` asks Kafka."""

    def begin(self, start: Offsets) -> None:
        """Where the job begins."""

    def refresh(self, position: Offsets, wait_s: float) -> JobStanding | None:
        """The position and the ends; None if they are not known. Blocks for ``wait_s`` seconds at most."""

    def close(self) -> None:
        """End what runs."""


class UnknownLag:
    """Of an input that has no offsets ahead of the job."""

    def begin(self, start: Offsets) -> None:
        """Nothing to do."""

    def refresh(self, position: Offsets, wait_s: float) -> JobStanding | None:
        """Always None."""
        del position, wait_s
        return None

    def close(self) -> None:
        """Nothing to do."""


class Input(ABC):
    """One instance per run of a job, on the driver. ``batch`` is called by Spark's thread, everything else by the caller's."""

    def __init__(self, run: InputRun) -> None:
        self.run = run

    @abstractmethod
    def position(self, batch: int) -> Offsets:
        """The next offset of every partition after ``batch``, which is done. Reads the checkpoint."""

    @classmethod
    @abstractmethod
    def position_files(cls, folder: Folder, batch: int) -> list[str]:
        """Names of the checkpoint's files by which a query continues after ``batch``, which is done; for savepoints.

        Those of Spark that all queries have (``offsets``, ``commits``) are left out. Reads the checkpoint.
        """

    @classmethod
    def moved(cls, files: Mapping[str, str], checkpoint: str) -> dict[str, str]:
        """The checkpoint's files (name -> text) of a savepoint as they have to be in another checkpoint."""
        del checkpoint
        return dict(files)

    def start(self) -> Offsets:
        """Where the first batch began; empty if that is not decided. Reads the checkpoint."""
        return {}

    def check(self, last_batch: int | None) -> None:
        """Before the query: whether the records that the job has to read next exist. Blocks.

        Args:
            last_batch: the last batch that is complete; None before the first one.

        Raises:
            Fatal: some are missing.
        """

    def demand(self) -> None:
        """Whether there is something to read. Blocks.

        Raises:
            Retriable: not yet.
            Fatal: no, and the job does not wait (``trigger.mode=available-now``).
        """

    def prepare(self, context: JobContext) -> None:
        """Called once before the query begins. Blocks."""

    @abstractmethod
    def stream(self, spark: SparkSession) -> DataFrame:
        """The streaming frame whose batches are the job's."""

    @abstractmethod
    def batch(self, frame: DataFrame, number: int) -> InputBatch:
        """The records of batch ``number``; the same for every call with one number. Blocks.

        Args:
            frame: what Spark gives of ``stream`` for this batch.
            number: of the batch.
        """

    def watch(self, troubles: Troubles, last_batch: Callable[[], int | None]) -> LagView:
        """The view of how far behind the job is."""
        del troubles, last_batch
        return UnknownLag()

    def missing(self, last_batch: int | None) -> str:
        """After the query ended by an error: what is missing of its records, and what to do; empty: nothing is. Blocks."""
        del last_batch
        return ""

    def close(self) -> None:
        """Called once at the end, also after a failure."""
