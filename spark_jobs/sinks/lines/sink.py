"""Appends values of records, as they are in Kafka, to one file: what Kafka's FileStreamSink does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from connectors.errors import Fatal, Retriable
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from spark_jobs.config_keys import STEPS
from spark_jobs.contract import Batch, Sink

if TYPE_CHECKING:
    from connectors.options import Config

PATH: Final = "sink.lines.path"
#: The line of a record without a value, as Java writes it.
_NULL: Final = b"null"
_BUFFER_BYTES: Final = 1 << 20


class LinesSink(Sink):
    """Writes on the machine of the driver; see docs/jobs/java-sinks.md. Memory: the values of a partition of a batch."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        (
            ConfigKey(
                name=PATH,
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                validator=non_empty,
                group="Lines",
                example="/var/lib/millrace/orders.txt",
                doc="The file to which the value of each record is appended as a line, in the order of each Kafka partition. "
                "It is on the machine that runs the job. Values are written as they are in Kafka: text, or JSON on one line. "
                "A record without a value is the line `null`. A batch that is repeated after a crash is appended again.",
            ),
        )
    )
    guarantees: ClassVar[tuple[str, ...]] = ("at-least-once", "none")

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Refuse steps, which see rows, not records."""
        if config[STEPS]:
            return [
                f"{STEPS}: can't be used with sink.type=lines, which writes records as they are; use sink.type=files"
            ]
        return []

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Where it writes."""
        return [f"appends a line for each record to {config[PATH]}"]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the file can be written."""
        folder = Path(config[PATH]).absolute().parent
        return [] if os.access(folder, os.W_OK) else [f"{PATH}: {folder} does not exist, or can't be written to"]

    def write(self, batch: Batch) -> int:
        """Append the values of a batch. They are on the disk when it returns.

        Raises:
            Fatal: the file can't be opened.
            Retriable: the disk is full or broken. Lines of the batch that are written already come again.
        """
        path = Path(self.context.config[PATH])
        values = batch.raw.sortWithinPartitions("topic", "partition", "offset").select("value")
        lines = 0
        try:
            with path.open("ab", buffering=_BUFFER_BYTES) as file:
                for row in values.toLocalIterator():
                    file.write((_NULL if row.value is None else bytes(row.value)) + b"\n")
                    lines += 1
                file.flush()
                os.fsync(file.fileno())
        except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
            raise Fatal(
                f"{PATH}: {path} can't be opened: {error.strerror}; create its folder, or correct the path"
            ) from error
        except OSError as error:
            raise Retriable(f"{PATH}: {path} can't be written: {error.strerror}") from error
        return lines
