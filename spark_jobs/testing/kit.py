"""Drives one sink through a case: makes it as a job does, writes batches, and compares what the target holds."""

from __future__ import annotations

import logging
import secrets
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DoubleType, IntegerType, StringType

from connectors.errors import Fatal, Retriable
from connectors.options import ConfigType
from spark_jobs import registry
from spark_jobs.config import job_files as job_config
from spark_jobs.contract import Column, JobContext, TableSchema
from spark_jobs.spark.causes import cause_of
from spark_jobs.testing.batches import BatchFeed, Change
from spark_jobs.testing.model import RuleBroken, compare_rows, expected_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from connectors.options import Config
    from spark_jobs.contract import Sink
    from spark_jobs.testing.batches import BatchData
    from spark_jobs.testing.target import SinkTarget

#: How often a batch is retried before the kit gives up; a job does it for as long as ``errors.retry.timeout.ms``.
_ATTEMPTS: Final = 20
_PAUSE_S: Final = 0.05


@dataclass(slots=True)
class Kit:
    """One case's job: a sink under test, what was written, and what the target must hold.

    Args:
        target: the target.
        spark: the session.
        bootstrap: Kafka's address; empty without a Kafka.
    """

    target: SinkTarget
    spark: SparkSession
    bootstrap: str = ""
    job: str = field(default_factory=lambda: f"kit-{secrets.token_hex(4)}")
    sink: Sink = field(init=False)
    _feed: BatchFeed = field(init=False)
    _sinks: list[Sink] = field(default_factory=list)
    _changes: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._feed = BatchFeed(self.topic)

    # The sink.

    @property
    def topic(self) -> str:
        """The topic that changes pretend to come from."""
        return self.target.topic or self.job

    def properties(self, **options: str) -> dict[str, str]:
        """The job's properties, with ``options`` over the target's."""
        return {
            "name": self.job,
            "kafka.bootstrap.servers": self.bootstrap or "127.0.0.1:1",
            "source.topics": self.topic,
            "source.format": "plain",
            "sink.type": self.target.sink_type,
            **self.target.options(),
            **options,
        }

    def config(self, **options: str) -> Config:
        """The checked configuration; see ``properties``."""
        return parse_config(self.properties(**options))

    @property
    def kind(self) -> type[Sink]:
        """The sink's class."""
        return registry.sink_class(self.target.sink_type)

    @property
    def guarantee(self) -> str:
        """The guarantee of the sink as it is configured."""
        return str(self.config()["guarantee"])

    def make(self, **options: str) -> Sink:
        """A sink that is not open yet; closed after the case."""
        sink = make_sink(self.config(**options), self.spark)
        self._sinks.append(sink)
        return sink

    def restart(self) -> None:
        """A new sink, as after a crash of the job."""
        self.sink = self.make()
        self.sink.open()

    def close(self) -> None:
        """Close all sinks."""
        for sink in self._sinks:
            sink.close()
        self._sinks.clear()

    def secret_names(self) -> list[str]:
        """The sink's secret options."""
        return [name for name, key in self.kind.config_def.keys.items() if key.type is ConfigType.PASSWORD]

    # Batches.

    def table(self, label: str, *columns: Column, name: str = "") -> TableSchema:
        """A table with a name of its own: a key ``id``, a ``name`` and an ``amount`` where no columns are given."""
        table_columns = columns or (
            key_column("id", IntegerType()),
            Column("name", StringType()),
            Column("amount", DoubleType()),
        )
        return TableSchema(f"conformance.{name or f'kit_{label}'}_{secrets.token_hex(3)}", table_columns)

    def batch(self, *tables: tuple[TableSchema, Sequence[Change]]) -> BatchData:
        """The next batch, which the target is expected to hold from now on."""
        for schema, changes in tables:
            self._changes[schema.namespace] += changes
        return self._feed.next(tables)

    def write(self, *tables: tuple[TableSchema, Sequence[Change]]) -> BatchData:
        """Write the next batch once, with the present sink, or a new one; raises what the frame would see."""
        data = self.batch(*tables)
        self.write_batch(data)
        return data

    def write_batch(self, data: BatchData) -> int:
        """Write a batch, for the first time or again; what the sink says that it wrote."""
        if not self._sinks:
            self.restart()
        try:
            return self.sink.write(data.frames(self.spark))
        except Exception as error:
            raise cause_of(error) from error

    def finish(self, data: BatchData, rule: str) -> int:
        """Write a batch as the frame does: again and again while the sink says that its fault may pass.

        Returns:
            How often it failed.

        Raises:
            RuleBroken: it fails with something that is not ``Retriable``, or does not stop failing.
        """
        failures: list[BaseException] = []
        while len(failures) < _ATTEMPTS:
            try:
                self.write_batch(data)
            except Retriable as error:
                failures.append(error)
                time.sleep(_PAUSE_S)
            except Exception as error:
                raise RuleBroken(
                    f"{rule}\nexpected success or connectors.errors.Retriable, actual {describe_error(error)}"
                ) from error
            else:
                return len(failures)
        raise RuleBroken(
            f"{rule}\nthe batch failed {len(failures)} times in a row, the last time: {describe_error(failures[-1])}"
        )

    # What must hold.

    def expect(self, schema: TableSchema, rule: str = "", *, repeats: bool | None = None) -> None:
        """Whether the target holds what the changes of a table leave behind.

        Args:
            schema: the table.
            rule: said first in the error.
            repeats: whether rows may stand there twice; None: as the guarantee says.

        Raises:
            RuleBroken: it does not.
        """
        problem = self.problem(schema, self._changes[schema.namespace], repeats=repeats)
        if problem:
            raise RuleBroken("\n".join(part for part in (rule, f"table {schema.namespace}:", problem) if part))

    def problem(self, schema: TableSchema, changes: Sequence[Change], *, repeats: bool | None = None) -> str:
        """How the target differs from what ``changes`` leave behind; empty if it does not."""
        supports = self.target.supports
        twice = self.guarantee != "exactly-once" and not supports.upsert if repeats is None else repeats
        expected = expected_rows(changes, schema, supports)
        return compare_rows(schema, supports, expected, self.target.rows(schema), self.target.stored, repeats=twice)

    def changes(self, schema: TableSchema) -> list[Change]:
        """The changes of a table that were written so far."""
        return list(self._changes[schema.namespace])


def key_column(name: str, kind: DataType, length: int | None = None) -> Column:
    """A column of the primary key."""
    return Column(name, kind, nullable=False, key=True, length=length)


def parse_config(properties: Mapping[str, str]) -> Config:
    """The parsed configuration.

    Raises:
        RuleBroken: something is wrong with it.
    """
    config, problems = job_config.check_job(properties)
    if config is None:
        raise RuleBroken("SinkTarget.options are refused: " + "; ".join(problem.message for problem in problems))
    return config


def make_sink(config: Config, spark: SparkSession) -> Sink:
    """A sink as the frame makes it."""
    name = config["name"]
    log = logging.LoggerAdapter(logging.getLogger(f"spark_jobs.{name}"), {})
    return registry.sink_class(config["sink.type"])(JobContext(name, config, spark, log))


def describe_error(error: BaseException) -> str:
    """An error's type and text, shortened."""
    return f"{type(error).__name__}: {str(error)[:600]}"


def expect_failure(rule: str, kind: type[Retriable | Fatal], step: Any) -> Exception:
    """The error that ``step`` ends with.

    Raises:
        RuleBroken: it ends without one, or with one of another kind.
    """
    try:
        step()
    except Exception as error:
        cause = cause_of(error)
        if isinstance(cause, kind):
            return cause
        raise RuleBroken(
            f"{rule}\nexpected connectors.errors.{kind.__name__}, actual {describe_error(cause)}"
        ) from error
    raise RuleBroken(f"{rule}\nexpected connectors.errors.{kind.__name__}, actual: no error")
