"""The newest lines of files, for previews; and lines of ``unknown_table`` in every form of rows."""

from __future__ import annotations

import gzip
import os
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from connectors.errors import ConfigInvalid, Fatal
from connectors.formats import ums
from connectors.logs import recent
from connectors.logs.connector import LogsConnector
from connectors.logs.recent import read_recent
from connectors.logs.replays.unknown_lines import is_signal, read_unknown
from connectors.logs.rows import RowMaker
from connectors.logs.rules.built import build_any
from connectors.logs.rules.compiled import compile_rules
from connectors.logs.rules.records import LineOrigin
from connectors.testing.contexts import RecordedMetrics

if TYPE_CHECKING:
    from pathlib import Path

    from connectors.api import SourceRecord

RULES = {"tables": [{"name": "t", "groups": [{"name": "g", "steps": [{"saveAs": {"columns": [{"name": "line"}]}}]}]}]}


async def read(most: int, **options: str) -> list[tuple[str, str, int]]:
    raw = {name.replace("_", "."): value for name, value in options.items()}
    config = LogsConnector.config_def.parse({"topic.prefix": "logs", "rules.name": "r", **raw})
    return [(line, origin.file, origin.position) for line, origin in await read_recent(config, most, 20)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
@pytest.mark.parametrize("limit", [16, 4096])
async def test_the_end_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, limit: int) -> None:
    monkeypatch.setattr(recent, "_MOST_BYTES", limit)
    path = tmp_path / "app.log"
    written = [f"zeile {number} ä" for number in range(100)]
    path.write_bytes("".join(f"{text}\n" for text in written).encode(encoding))
    recent_lines = await read(5, file=str(path), file_encoding=encoding)
    lines = [line for line, _, _ in recent_lines]
    assert lines == (written[-5:] if limit > 16 else written[100 - len(lines) :])
    assert limit == 16 or len(lines) == 5
    start = 2 if encoding == "utf-16" else 0
    for line, file, position in recent_lines:
        assert file == str(path)
        number = written.index(line)
        wide = "utf-16-le" if encoding == "utf-16" else encoding
        assert position == start + len("".join(f"{text}\n" for text in written[:number]).encode(wide))


async def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """To open one would wait until somebody writes to it."""
    os.mkfifo(tmp_path / "app.log")
    with pytest.raises(Fatal, match="is not a regular file"):
        await read(5, file=str(tmp_path / "app.log"))


@pytest.mark.parametrize("source", ["directory", "compressed"])
async def test_long_lines_are_bounded_in_bytes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(recent, "_MOST_BYTES", 10_000)
    for number in range(8):
        lines = "".join(f"{number}-{line} {'x' * 950}\n" for line in range(10)).encode()
        path = tmp_path / f"{number}.log"
        path.write_bytes(lines if source == "directory" else gzip.compress(lines * 10))
        os.utime(path, (number, number))
    recent_lines = [line for line, _, _ in await read(1000, directory=str(tmp_path), line_max_bytes="1000")]
    assert sum(map(len, recent_lines)) <= 20_000
    assert recent_lines[-1].startswith("7-9 ")


async def test_compressed_files_and_events_of_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "app.log.gz"
    path.write_bytes(gzip.compress(b"a\n  1\n  2\nb\nc\n  3\n"))
    options = {"file": str(path), "multiline_start": r"^\S"}
    assert [line for line, _, _ in await read(10, **options)] == ["a\n  1\n  2", "b", "c\n  3"]
    assert [position for _, _, position in await read(10, **options)] == [0, 10, 12]
    assert await read(10, file=str(tmp_path / "nothing")) == []


async def test_the_files_of_a_directory_that_changed_last(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"{number}.log"
        path.write_text(f"{number} first\n{number} last\n")
        os.utime(path, (1000 - number, 1000 - number))
    recent_lines = await read(3, directory=str(tmp_path))
    assert [line for line, _, _ in recent_lines] == ["1 last", "0 first", "0 last"]


async def test_nothing_can_be_read_back_from_the_network() -> None:
    with pytest.raises(ConfigInvalid, match="nothing can be read back"):
        await read(3, input="syslog", listen="tcp://127.0.0.1:0")


@pytest.mark.parametrize("output", ["plain", "debezium", "ums"])
def test_unknown_lines_in_every_form(output: str) -> None:
    raw = {"topic.prefix": "logs", "file": "/x", "rules.name": "r", "output": output, "row.id.column": "key"}
    config = LogsConnector.config_def.parse(raw)
    steps: list[Any] = [{"filter": {"contains": "never"}}, *RULES["tables"][0]["groups"][0]["steps"]]  # type: ignore[index]
    rules = {"tables": [{"name": "t", "groups": [{"name": "g", "steps": steps}]}]}
    maker = RowMaker(compile_rules(build_any(rules)), config, RecordedMetrics(LogsConnector.metrics))
    records: list[SourceRecord] = []
    maker.add_line(records, {}, {}, {}, "a line", LineOrigin("web-1", "/x", 120, 1000), "/x:f:120", 77)
    value = msgspec.json.decode(msgspec.json.encode(records[0].value))
    line = read_unknown(value, 1000, "key")
    assert line is not None
    assert (line.line, line.origin, line.name) == ("a line", LineOrigin("web-1", "/x", 120, 1000), "/x:f:120")
    assert line.number == (0 if output == "plain" else 77)
    assert [(failure["table"], failure["group"], failure["step"]) for failure in line.failures] == [("t", "g", 1)]


@pytest.mark.parametrize(
    "value", [None, "text", 7, [], {}, {"line": 7}, {"payload": []}, {"payload": [{}], "schema": 1}]
)
def test_values_that_are_no_unknown_lines(value: Any) -> None:
    assert read_unknown(value, 0, "log_id") is None


def test_heartbeats_of_the_table_are_no_lines() -> None:
    namespace = "logs.logs.logs.unknown_table.1.0.0"
    assert is_signal(ums.make_signal(ums.INCREMENT_HEARTBEAT, namespace, 0))
    assert not is_signal(ums.make_message(ums.INCREMENT, namespace, [], []))
    assert not is_signal({"line": "a line", "protocol": "http"})
