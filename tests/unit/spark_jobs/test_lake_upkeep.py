"""Upkeep of lake tables: the files of a table are listed after new ones came, and not at every look."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from spark_jobs.sinks.lake.model import DataFile
from spark_jobs.sinks.lake.task import LakeOutcome
from spark_jobs.sinks.lake.writing import LakeGroup, LakeWriter

if TYPE_CHECKING:
    import pytest

TABLES = 20
SETTINGS = SimpleNamespace(
    upsert=False, commit_retries=0, expire_interval_ms=-1, file_bytes=100, compact_files=2, compression="zstd"
)


class ListedTable:
    """A table that counts how often its files are listed."""

    address = "t"

    def __init__(self) -> None:
        self.lists = 0
        self.small = 1

    def files(self) -> list[DataFile]:
        self.lists += 1
        return [DataFile(f"f{number}", 0, 10) for number in range(self.small)]

    def position(self, *_: object) -> Any:
        return SimpleNamespace(offsets={}, batch=-1)

    def commit(self, _: object) -> None:
        """It counts at once."""


def test_files_are_listed_after_a_commit_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {f"t{number}": ListedTable() for number in range(TABLES)}
    log = logging.LoggerAdapter(logging.getLogger("test"), {})
    context = SimpleNamespace(name="job", metrics={}, log=log)
    writer = LakeWriter(cast("Any", context), cast("Any", SETTINGS), cast("Any", None), "delta", str, str)
    writer._tables.update(cast("Any", tables))
    merged: list[ListedTable] = []

    def compact(_: LakeWriter, table: Any) -> bool:
        if len(table.files()) < SETTINGS.compact_files:
            return False
        merged.append(table)
        table.small = 1
        return True

    monkeypatch.setattr(LakeWriter, "_prepare_table", lambda _, name, *__: tables[name])
    monkeypatch.setattr(LakeWriter, "_group_definition", lambda *_: None)
    monkeypatch.setattr(LakeWriter, "_run_tasks", lambda *_: LakeOutcome(added=[b"{}"], rows=1))
    monkeypatch.setattr(LakeWriter, "_compact_files", compact)
    batch: Any = SimpleNamespace(id=1, ranges={("topic", 0): (0, 1)})
    writer.idle()
    assert sum(table.lists for table in tables.values()) == 0
    for name in ("t3", "t5"):
        assert writer._write_group(LakeGroup(name), batch) == 1
    tables["t3"].small = 2
    for _ in range(TABLES):
        writer.idle()
    # Once more after its files were merged: there may be more of them.
    assert {name: table.lists for name, table in tables.items() if table.lists} == {"t3": 2, "t5": 1}
    assert merged == [tables["t3"]]
