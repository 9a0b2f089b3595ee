"""Files that are truncated while their writer, which does not append, continues at its old position: they begin with zeros."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import pytest

from connectors.file.connector import FileStreamSourceConnector
from connectors.testing import Run, SavedOffsets
from connectors.text_files.lines import unit_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LINE = "a line before\n"


class Writer:
    """Writes to a file as a program does whose output is redirected with ``>``."""

    def __init__(self, path: Path, encoding: str) -> None:
        self.path = path
        self.encoding = encoding
        self._file: io.FileIO = io.FileIO(path, "w")

    def write(self, text: str) -> None:
        self._file.write(text.encode(self.encoding))

    def truncate(self) -> None:
        os.truncate(self.path, 0)

    def close(self) -> None:
        self._file.close()


@pytest.fixture(params=["utf-8", "utf-16-be", "utf-32-le"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path / "app.log", request.param)
    yield writer
    writer.close()


@pytest.mark.parametrize("tracking", ["false", "true"])
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("count", [100, 20_000])
async def test_zeros_are_no_line(writer: Writer, tracking: str, restarted: bool, count: int) -> None:
    config = {
        "file": str(writer.path),
        "topic": "lines",
        "file.encoding": writer.encoding,
        "line.max.bytes": "1000",
        "rotation.tracking": tracking,
    }
    offsets = SavedOffsets()
    writer.write(LINE * count)
    run = Run(FileStreamSourceConnector, config, offsets=offsets)
    async with run:
        await run.read(count)
        if not restarted:
            writer.truncate()
            writer.write("after\nlast\n")
            records = await run.read(2)
            assert "begins with zeros" in run.log.text()
    if restarted:
        writer.truncate()
        writer.write("after\nlast\n")
        if tracking == "false":
            offsets = SavedOffsets()  # as in Kafka Connect, the position is taken to be one of the new file
        async with Run(FileStreamSourceConnector, config, offsets=offsets) as retry:
            records = await retry.read(2)
    assert [record.value for record in records] == ["after", "last"]
    end = os.stat(writer.path).st_size  # noqa: PTH116
    assert [record.source_offset["position"] for record in records] == [end - 5 * unit_size(writer.encoding), end]
    writer.write("more\n")
    async with Run(FileStreamSourceConnector, config, offsets=offsets) as run:
        assert [record.value for record in await run.read(1)] == ["more"]
