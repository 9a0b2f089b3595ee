"""A sink and a source of the tests' own, found by ``module:Class`` as a user's would be."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.errors import Fatal, Retriable
from connectors.options import ConfigDef, ConfigKey, ConfigType
from spark_jobs.contract import Column, Sink, Source, TableChanges, TableSchema
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.metrics import JobMetric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_jobs.contract import Batch


class RowsSink(Sink):
    """Appends the records of each batch to a file, as JSON lines; does what the file ``<path>.order`` says first."""

    config_def = ConfigDef(
        [
            ConfigKey(name="sink.rows.path", type=ConfigType.STRING, doc="The file."),
            ConfigKey(name="sink.rows.tables", type=ConfigType.BOOLEAN, default=False, doc="Write decoded changes."),
        ]
    )
    guarantees = ("at-least-once", "none")
    metrics = (JobMetric("rows_calls_total", "counter", "", "Calls of write."),)

    def open(self) -> None:
        self._path = Path(self.context.config["sink.rows.path"])
        self._idles = 0

    def write(self, batch: Batch) -> int:
        self.context.metrics["rows_calls_total"] = self.context.metrics.get("rows_calls_total", 0) + 1
        self._obey(batch.id)
        frames = (
            [changes.frame for changes in batch.changes()]
            if self.context.config["sink.rows.tables"]
            else [
                batch.raw.selectExpr(
                    "topic", "partition", "offset", "string(key) as key", "string(value) as value", "headers"
                )
            ]
        )
        rows = [
            dict(zip((*frame.columns, "ran_in"), row, strict=True))
            for frame in frames
            for row in frame.mapInArrow(where_it_runs, f"{_ddl(frame)}, ran_in string").collect()
        ]
        ranges = {f"{topic}-{partition}": bounds for (topic, partition), bounds in batch.ranges.items()}
        with self._path.open("a") as file:
            file.write(
                "".join(json.dumps({"batch": batch.id, "ranges": ranges, **row}, default=_plain) + "\n" for row in rows)
            )
        return len(rows)

    def _obey(self, number: int) -> None:
        order = Path(f"{self._path}.order")
        if not order.exists():
            return
        command, _, value = order.read_text().partition(" ")
        if command == "slow":
            Path(f"{self._path}.busy").touch()
            while order.exists():
                time.sleep(0.02)
        elif command == "away":
            count = int(value) - 1
            if count <= 0:
                order.unlink()
            else:
                order.write_text(f"away {count}")
            raise Retriable("the target is away")
        elif command == "task":
            if value == "Retriable":
                order.unlink()

            def fail(batches: Iterator[Any]) -> Iterator[Any]:
                for arrow_batch in batches:
                    if arrow_batch.num_rows:
                        _end_task(value, number)
                    yield arrow_batch

            self.context.spark.range(1).mapInArrow(fail, "id long").collect()

    def idle(self) -> None:
        self._idles += 1
        Path(f"{self._path}.idle").write_text(str(self._idles))

    def close(self) -> None:
        Path(f"{self._path}.closed").touch()


def _end_task(how: str, number: int) -> None:
    """End a task, or its process."""
    if how == "Crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "Segfault":
        ctypes.string_at(0)
    raise {"Fatal": Fatal, "Retriable": Retriable}[how](f"said by a task of batch {number}")


def _plain(value: Any) -> Any:
    return bytes(value).decode() if isinstance(value, bytes | bytearray) else value.asDict()


def _ddl(frame: Any) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema)


def where_it_runs(batches: Iterator[Any]) -> Iterator[Any]:
    """Each record with the place from which the task got Millrace's code; runs in tasks."""
    import pyarrow as pa

    import spark_jobs

    for batch in batches:
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array([str(spark_jobs.__file__)] * batch.num_rows)],
            names=[*batch.schema.names, "ran_in"],
        )


class NumbersSource(Source):
    """Values are decimal numbers; others are bad."""

    config_def = ConfigDef([])

    def changes(self, batch: Batch) -> list[TableChanges]:
        from pyspark.sql.types import LongType

        letters = DeadLetters.of(self.context)

        def decode(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            with letters:
                for arrow_batch in batches:
                    good = []
                    for row in arrow_batch.to_pylist():
                        try:
                            good.append(int(row["value"]))
                        except ValueError as error:
                            letters.report(
                                row["topic"], row["partition"], row["offset"], row["key"], row["value"], error
                            )
                    yield pa.RecordBatch.from_arrays([pa.array(good, pa.int64())], names=["number"])

        frame = batch.raw.mapInArrow(decode, "number long")
        return [TableChanges(TableSchema("numbers", (Column("number", LongType()),)), frame)]
