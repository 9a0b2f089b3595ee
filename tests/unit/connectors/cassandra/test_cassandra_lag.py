"""Lag, from visible directories and saved positions; the lag of a directory that is not visible is reported as unknown."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from connectors.cassandra.config.settings import CONFIG, LogNode, log_partition
from connectors.cassandra.lag import measure_lag, node_lag
from connectors.cassandra.model import LogPosition
from connectors.cassandra.schema import saved
from connectors.cql.mutations.definition import CqlColumn, make_definition
from connectors.cql.types import CqlType

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_800_000_000_000


def segment(directory: Path, log_id: int, size: int = 1_000, index: str | None = None, age_s: float = 0.0) -> None:
    path = directory / f"CommitLog-7-{log_id}.log"
    path.write_bytes(b"\0" * size)
    if index is not None:
        file = directory / f"CommitLog-7-{log_id}_cdc.idx"
        file.write_text(index)
        at = NOW_MS / 1000 - age_s
        os.utime(file, (at, at))


def seen(directory: Path, position: LogPosition | None) -> dict[str, Any]:
    return node_lag(LogNode("n", str(directory)), position.offset() if position else None, NOW_MS)


def test_bytes_and_seconds_behind_the_index_files(tmp_path: Path) -> None:
    segment(tmp_path, 8, index="700\nCOMPLETED", age_s=60)
    segment(tmp_path, 9)
    segment(tmp_path, 10, index="400", age_s=5)
    segment(tmp_path, 11)
    nothing = seen(tmp_path, None)
    assert (nothing["visible"], nothing["position"]) == (True, None)
    assert (nothing["bytes_behind"], nothing["segments_waiting"], nothing["time_behind_s"]) == (1_100, 2, 60.0)
    half = seen(tmp_path, LogPosition(8, 100))
    assert (half["bytes_behind"], half["time_behind_s"]) == (1_000, 60.0)
    second = seen(tmp_path, LogPosition(8, 700, finished=True))
    assert (second["bytes_behind"], second["segments_waiting"], second["time_behind_s"]) == (400, 1, 5.0)
    end = seen(tmp_path, LogPosition(10, 400))
    assert (end["bytes_behind"], end["time_behind_s"]) == (0, 0.0)
    assert end["position"] == {"segment": 10, "position": 400, "index": 0, "finished": False}
    assert end["source_position"] == {"segment": 10, "position": 400, "finished": False}
    assert end["directory_bytes"] == 4_000 + len("700\nCOMPLETED") + len("400")


def test_a_directory_that_is_elsewhere(tmp_path: Path) -> None:
    lag = seen(tmp_path / "nowhere", LogPosition(3, 4))
    assert (lag["visible"], lag["bytes_behind"], lag["time_behind_s"]) == (False, None, None)
    assert lag["position"]["segment"] == 3
    assert "not on the worker that answered" in lag["note"]
    wrong = node_lag(LogNode("n", str(tmp_path)), {"segment": "x"}, NOW_MS)
    assert "no position in a commit log" in wrong["note"]


@pytest.mark.parametrize("both", [True, False])
async def test_the_whole_is_as_far_behind_as_the_last_node(tmp_path: Path, both: bool) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    segment(first, 5, index="300")
    if both:
        second.mkdir()
        segment(second, 7, index="200")
    config = CONFIG.parse(
        {
            "cassandra.hosts": "h",
            "topic.prefix": "shop",
            "tasks.max": "2",
            "cdc.raw.directories": f"a={first},b={second}",
        }
    )
    tables = [
        make_definition("ks", name, table_id, [CqlColumn("p", CqlType("int"), "partition_key", 0)], cdc=cdc)
        for name, table_id, cdc in (("t", "1", True), ("off", "2", False))
    ]
    offsets = [
        (log_partition("shop", "a"), LogPosition(5, 100).offset()),
        (log_partition("else", "b"), LogPosition(9).offset()),
        *(
            (saved.definition_partition("shop", "a", table.table_id), saved.definition_offset(table, 1))
            for table in tables
        ),
    ]
    body = await measure_lag(config, offsets)
    assert body["bytes_behind"] == (400 if both else None)
    assert (body["time_behind_s"] is None) is not both
    assert [table["table"] for table in body["tables"]] == ["ks.t"]
    assert body["position"] == {"a": LogPosition(5, 100).offset(), "b": None}
    assert [node["visible"] for node in body["nodes"]] == [True, both]
    assert {"time_behind_s", "bytes_behind", "tables", "heartbeat", "position", "source_position"} <= body.keys()
