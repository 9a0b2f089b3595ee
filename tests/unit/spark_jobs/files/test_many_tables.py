"""A batch of many tables looks at the files of each once, not once for each table that it writes."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from connectors.options import Config
from spark_jobs.contract import JobContext
from spark_jobs.history.writing import Appended
from spark_jobs.sinks.files.config import CONFIG
from spark_jobs.sinks.files.sink import FilesSink

if TYPE_CHECKING:
    import pytest

TABLES = 20


def test_files_are_counted_once_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {"sink.files.path": "/nowhere"}
    log = logging.LoggerAdapter(logging.getLogger("test"), {})
    sink = FilesSink(JobContext("job", Config(dict(CONFIG.parse(raw)), raw), cast("Any", None), log))
    looks: list[str] = []

    def append(name: str, *_: object) -> Appended:
        def state(*, refresh: bool) -> SimpleNamespace:
            del refresh
            looks.append(name)
            return SimpleNamespace(files={"file": SimpleNamespace(small=True)})

        sink._tables[name] = cast("Any", (SimpleNamespace(log=SimpleNamespace(state=state)), None))
        return Appended(rows=2, files=1, bytes=10)

    monkeypatch.setattr(sink, "_append_files", append)
    changes = [
        SimpleNamespace(schema=SimpleNamespace(namespace=f"shop.t{number}", sharded=False)) for number in range(TABLES)
    ]
    assert sink.write(cast("Any", SimpleNamespace(changes=lambda: changes))) == 2 * TABLES
    assert len(looks) == TABLES
    assert sink.context.metrics["files_small"] == sink.context.metrics["files_tables"] == TABLES
