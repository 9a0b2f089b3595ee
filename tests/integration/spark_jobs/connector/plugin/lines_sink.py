"""A sink for tests: each batch becomes a file of lines, and a file tells it to fail."""

from __future__ import annotations

from pathlib import Path

from connectors.errors import Fatal, Retriable
from connectors.options import ConfigDef, ConfigKey, ConfigType
from spark_jobs.contract import Batch, Sink


class LinesSink(Sink):
    """Writes values as they are; the same batch again replaces its file."""

    config_def = ConfigDef(
        [
            ConfigKey(name="sink.lines.folder", type=ConfigType.STRING, doc="Where the files go."),
            ConfigKey(
                name="sink.lines.password", type=ConfigType.PASSWORD, default=None, doc="A secret that nobody asks for."
            ),
        ]
    )
    guarantees = ("exactly-once",)

    def write(self, batch: Batch) -> int:
        """One file for the batch."""
        folder = Path(self.context.config["sink.lines.folder"])
        fatal = folder / "fatal"
        if fatal.exists():
            raise Fatal(fatal.read_text())
        if (folder / "away").exists():
            raise Retriable("the folder is away")
        lines = [row.value.decode() for row in batch.raw.select("value").collect()]
        part = folder / f".{batch.id}"
        part.write_text("".join(f"{line}\n" for line in lines))
        part.replace(folder / f"batch-{batch.id}.txt")
        self.context.metrics["lines_files"] = float(len(list(folder.glob("batch-*.txt"))))
        return len(lines)
