"""Appends values of records, as they are in Kafka, to one file: what Kafka's FileStreamSink does, but each value once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from connectors.errors import Fatal, Retriable
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from spark_jobs.config.keys import STEPS
from spark_jobs.write_ahead_log import RECORDS, BatchSection, WriteAheadLogSink

if TYPE_CHECKING:
    from typing import IO, Any

    from connectors.options import Config
    from spark_jobs.contract import Batch

PATH: Final = "sink.lines.path"
#: The line of a record without a value, as Java writes it.
_NULL: Final = b"null"
_BUFFER_BYTES: Final = 1 << 20


class LinesSink(WriteAheadLogSink):
    """Writes on the machine of the driver; see docs/jobs/java-sinks.md. Memory: the values of a partition of a batch.

    Exactly once: a section of the log has the size of the file before it. What the file has beyond this size are the first of
    the section's lines, written before a crash; only the rest is appended.
    """

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
                "A record without a value is the line `null`. With `guarantee=exactly-once` no other program may write to the "
                "file; with a lower one a batch that is repeated after a crash is appended again.",
            ),
        )
    )
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    not_read_back: ClassVar[str] = "the file keeps every record as a line: there is no row of a key to compare"
    logged: ClassVar[str] = RECORDS

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

    def prepare(self, batch: Batch) -> dict[str, Any]:
        """The size of the file before the batch."""
        del batch
        path = Path(self.context.config[PATH])
        return {"size": path.stat().st_size if path.exists() else 0}

    def send(self, section: BatchSection) -> int:
        """Append the values of a batch. They are on the disk when it returns.

        Raises:
            Fatal: the file can't be opened, or another program has changed it.
            Retriable: the disk is full or broken.
        """
        path = Path(self.context.config[PATH])
        order = ("topic", "partition", "offset")
        raw = section.batch.raw
        # In a log the order of all lines counts, not only that of each partition: it must be the same after a restart.
        values = (raw.orderBy(*order) if self.uses_log() else raw.sortWithinPartitions(*order)).select("value")
        lines = 0
        try:
            with path.open("a+b", buffering=_BUFFER_BYTES) as file:
                written = self._written_bytes(file, section)
                for row in values.toLocalIterator():
                    line = (_NULL if row.value is None else bytes(row.value)) + b"\n"
                    lines += 1
                    written_part = min(written, len(line))
                    if written_part and file.read(written_part) != line[:written_part]:
                        raise self._make_foreign_error(path)
                    written -= written_part
                    if written_part < len(line):
                        file.write(line[written_part:])
                if written:
                    raise self._make_foreign_error(path)
                file.flush()
                os.fsync(file.fileno())
        except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
            raise Fatal(
                f"{PATH}: {path} can't be opened: {error.strerror}; create its folder, or correct the path"
            ) from error
        except OSError as error:
            raise Retriable(f"{PATH}: {path} can't be written: {error.strerror}") from error
        return lines

    def _written_bytes(self, file: IO[bytes], section: BatchSection) -> int:
        """How many bytes of the section the file has; its position is then at the first of them."""
        size = section.prepared.get("size")
        end = file.seek(0, os.SEEK_END)
        if size is None:
            return 0
        if end < size or (end > size and not section.repeated):
            raise self._make_foreign_error(Path(file.name))
        file.seek(size)
        return end - int(size)

    def _make_foreign_error(self, path: Path) -> Fatal:
        """The error for a file that has other bytes than this job has written."""
        return Fatal(
            f"{PATH}: another program has changed {path} while a batch was written, so this job does not know which lines are "
            "its own. Leave the file to the job; to continue, put back the file, or set guarantee=at-least-once (lines of the "
            "last batch may then be there twice)"
        )
