"""Replays of files: cut at every record, while the source continues, and through rotation."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid
from connectors.logs.connector import LogsConnector
from connectors.logs.replays.replay import Replays
from connectors.logs.rows import RowMaker
from connectors.logs.rules.built import build_any
from connectors.logs.rules.compiled import compile_rules
from connectors.testing import Run, SavedOffsets
from connectors.testing.contexts import MemoryTaskContext, RecordedMetrics

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from connectors.api import Position, SourceRecord

LINES = ['1000 ["a", "b"]', "beat", "nothing", '1500 ["c"]', "nothing", "3000 []", '2000 ["d", "e", "f"]', '4000 ["g"]']
UNKNOWN = ["nothing", "nothing", "3000 []"]
REPLAY = {"id": "one", "state": "running", "origin": "rest", "created_ms": 0, "replay": {"source": "input"}}


def rules_of(table: str) -> dict[str, Any]:
    """Each word behind the time of a line is a row."""
    steps = [
        {"regexExtract": {"pattern": r"^(?P<time>\d+) (?P<words>\[.*\])$"}},
        {"flattenJsonArray": {"field": "words"}},
        {
            "saveAs": {
                "columns": [
                    {"name": "word", "field": "words"},
                    {"name": "time", "type": "datetime", "formats": ["UNIX_MS"]},
                ]
            }
        },
    ]
    return {"tables": [{"name": table, "groups": [{"name": "g", "steps": steps}]}]}


class World:
    """A file that the source has read to its end, and the saved offsets.

    Attributes:
        before: what the source made of it.
    """

    before: list[SourceRecord]

    def __init__(self, folder: Path, **options: str) -> None:
        self.path = folder / "app.log"
        self.path.write_text("".join(f"{line}\n" for line in LINES))
        self.offsets = SavedOffsets()
        self.raw = {
            "topic.prefix": "logs",
            "file": str(self.path),
            "rotation.tracking": "true",
            "rotation.wait.ms": "50",
            "rules.name": "r",
            "host": "web-1",
            "row.timestamp.column": "time",
            "heartbeat.line": "^beat",
            "batch.size": "3",
            **options,
        }
        self.after = rules_of("words")
        self.config = LogsConnector.config_def.parse(self.raw)
        self.rows: list[SourceRecord] = []
        self.metrics = RecordedMetrics(LogsConnector.metrics)

    @property
    def partition(self) -> Position:
        return {"filename": str(self.path)}

    async def read(self, count: int, rules: Any = None) -> list[SourceRecord]:
        """The records that the source makes of the file by rules of the table "before", or by these; the offset is saved."""
        asked = {"id": "rules:r", "state": "running", "origin": "rules", "created_ms": 0, "name": "r", "version": 1}
        async with Run(LogsConnector, self.raw, offsets=self.offsets) as run:
            for task in run.tasks:
                task.instruct([{**asked, "rules": rules or rules_of("before")}])
            return await run.read(count)

    async def replay(
        self, asked: Sequence[dict[str, Any]], most: int = 1_000_000, older: Sequence[dict[str, Any]] = ()
    ) -> int:
        """Run the replays until ``most`` records are in Kafka, and save what is acknowledged; the number of records."""
        log = logging.LoggerAdapter(logging.getLogger("replays"), {})
        context = MemoryTaskContext("c", 0, self.config, self.offsets, self.metrics, log)
        rows = RowMaker(compile_rules(build_any(self.after)), self.config, self.metrics)
        replays = Replays(context, rows, "web-1", older)
        replays.take(asked)
        delivered = 0
        async with aclosing(replays.run()) as batches:
            async for batch in batches:
                for record in batch.records:
                    self.rows.append(record)
                    self.offsets.put(record.source_partition, record.source_offset)
                    delivered += 1
                    if delivered == most:
                        return delivered
                for partition, offset in batch.offsets:
                    self.offsets.put(partition, offset)
        return delivered

    def words(self) -> str:
        return "".join(record.value["word"] for record in self.rows if record.topic == "logs.words")

    def shown(self, asked: Sequence[dict[str, Any]]) -> list[tuple[str, int, int]]:
        rows = LogsConnector.snapshots(self.config, asked, self.offsets.items())
        return [(row["state"], row["lines"], row["accepted"]) for row in rows]


def changed_rules() -> dict[str, Any]:
    """For LINES: fewer rows in a table, rows in another one, a line that is unknown now, and unknown ones that are not.

    What is in "words" has a lower number in its line than it had in "before".
    """
    steps = rules_of("before")["tables"][0]["groups"][0]["steps"]

    def group(table: str, start: str, *changed: dict[str, Any]) -> dict[str, Any]:
        extract = {"regexExtract": {"pattern": rf"^(?P<time>{start}\d+) (?P<words>\[.*\])$"}}
        return {"name": table, "groups": [{"name": "g", "steps": [extract, *changed]}]}

    nothing = [{"regexExtract": {"pattern": "^(?P<word>nothing)$"}}, {"saveAs": {"columns": [{"name": "word"}]}}]
    return {
        "tables": [
            group("before", "1", *steps[2:]),
            group("words", "2", *steps[1:]),
            {"name": "others", "groups": [{"name": "g", "steps": nothing}]},
        ]
    }


def table_states(records: Sequence[SourceRecord]) -> dict[tuple[str, str], Any]:
    """The rows of a sink that writes by key, after these records: of a row that with the largest number, or the latest one."""
    newest: dict[tuple[str, str], tuple[int, Any]] = {}
    for record in records:
        row, number = record.value, -1
        if row is None:
            newest.pop((record.topic, record.key["log_id"]), None)
            continue
        if "payload" in row:
            names = [field["name"] for field in row["schema"]["fields"]]
            row = dict(zip(names, row["payload"][0]["tuple"], strict=True))
            number = int(row.pop("ums_id_"))
            row.pop("ums_ts_")
        elif "after" in row:
            row, number = row["after"], row["source"]["ums_id"]
        key = record.topic, row["log_id"]
        if key not in newest or number >= newest[key][0]:
            newest[key] = number, row
    return {key: row for key, (_, row) in newest.items() if row.get("ums_op_") != "d"}


@pytest.mark.parametrize("output", ["plain", "debezium", "ums"])
async def test_a_replay_that_replaces_rows_leaves_those_of_the_new_rules(tmp_path: Path, output: str) -> None:
    world = World(tmp_path, output=output)
    before = await world.read(10)
    world.after = changed_rules()
    # As if only the new rules had ever been.
    fresh = World(tmp_path, output=output)
    expected = table_states(await fresh.read(9, changed_rules()))
    created_ms = 1_764_000_000_000
    earlier = [rules_of("earliest"), rules_of("before")]
    asked = {**REPLAY, "created_ms": created_ms, "replay": {"source": "input", "replaces": 1, "earlier": earlier}}
    await world.replay([REPLAY])
    assert table_states([*before, *world.rows]).keys() > expected.keys(), "nothing is deleted where no rules are named"
    for cut in range(1, 40):
        world.offsets = SavedOffsets()
        world.offsets.put(world.partition, before[-1].source_offset)
        world.rows.clear()
        whole = await world.replay([asked], cut) < cut
        await world.replay([asked])
        assert table_states([*before, *world.rows]) == expected, cut
        identified = [(record.topic, repr(record.key), repr(record.value)) for record in world.rows]
        assert len(identified) == len(set(identified)), "nothing comes twice"
        if whole:
            break
    else:
        pytest.fail("the replay has more records than were cut at")
    assert world.shown([asked])[0][0] == "completed"
    assert "earlier" not in LogsConnector.snapshots(world.config, [asked], world.offsets.items())[0]["replay"]
    # The same again changes nothing.
    await world.replay([{**asked, "id": "two", "created_ms": created_ms + 1000}])
    assert table_states([*before, *world.rows]) == expected


def identities(records: Sequence[SourceRecord]) -> list[str]:
    return [record.value["log_id"] for record in records]


@pytest.fixture
async def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.before = await world.read(10)
    return world


@pytest.mark.parametrize("cut", range(1, 11))
async def test_a_replay_that_is_cut_loses_and_repeats_nothing(world: World, cut: int) -> None:
    assert world.shown([REPLAY]) == [("waiting", 0, 0)]
    assert await world.replay([REPLAY], cut) == cut
    await world.replay([REPLAY])
    assert identities(world.rows) == identities(world.before)
    assert world.words() == "abcdefg"
    assert [record.value["line"] for record in world.rows if record.topic == "logs.unknown_table"] == UNKNOWN
    assert world.shown([REPLAY])[0][0] == "completed"
    assert await world.replay([REPLAY]) == 0, "it is done"
    assert world.offsets.get(world.partition) == world.before[-1].source_offset


async def test_all_lines_are_counted_apart_from_those_of_the_source(world: World) -> None:
    await world.replay([REPLAY])
    assert world.shown([REPLAY]) == [("completed", 8, 5)]
    series = {(name, *dict(labels).values()): value for (name, labels), value in world.metrics.series.items() if value}
    assert series["logs_replayed_lines_total", "accepted"] == 5
    assert series["logs_replayed_lines_total", "unknown"] == 3
    assert not any(name.startswith(("logs_lines", "logs_unknown", "logs_host")) for name, *_ in series)
    await world.replay([])
    assert [partition for partition, _ in world.offsets.items()] == [world.partition], "nothing is left of it"


async def test_what_comes_after_its_begin_is_the_sources(world: World) -> None:
    with world.path.open("a") as file:
        file.write('5000 ["h"]\n')
    await world.replay([REPLAY])
    assert world.words() == "abcdefg"


async def test_lines_since_a_time(world: World) -> None:
    asked = {**REPLAY, **LogsConnector.check_snapshot(world.config, replay_of(since="1970-01-01T00:00:01.500Z"))}
    for cut in (1, 2, 3, 100):
        await world.replay([asked], cut)
    assert world.words() == "cdefg", "from the first line of that time on"
    assert [record.value["line"] for record in world.rows if record.topic == "logs.unknown_table"] == UNKNOWN[1:]


async def test_lines_since_a_position(world: World) -> None:
    (start,) = {record.source_offset["position"] for record in world.before if record.value.get("word") == "c"}
    position = {"partition": world.partition, "offset": {"position": start}}
    asked = {**REPLAY, **LogsConnector.check_snapshot(world.config, replay_of(positions=[position]))}
    await world.replay([asked])
    assert world.words() == "defg"


async def test_a_file_that_is_rotated_meanwhile(world: World) -> None:
    assert await world.replay([REPLAY], 3) == 3
    world.path.rename(world.path.with_name("app.log.1"))
    world.path.write_text('6000 ["i"]\n')
    await world.replay([REPLAY])
    assert world.words() == "abcdefg"
    assert identities(world.rows) == identities(world.before)


async def test_a_file_that_is_gone_ends_its_replay(world: World) -> None:
    world.path.unlink()
    assert await world.replay([REPLAY]) == 0
    assert world.shown([REPLAY])[0][0] == "completed"


async def test_events_of_several_lines(tmp_path: Path) -> None:
    world = World(tmp_path, **{"multiline.start": r"^\d", "multiline.wait.ms": "100", "heartbeat.line": ""})
    before = await world.read(6)
    await world.replay([REPLAY])
    assert identities(world.rows) == identities(before)


@pytest.mark.parametrize("state", ["paused", "cancelled"])
async def test_a_replay_that_shall_not_run(world: World, state: str) -> None:
    await world.replay([REPLAY], 3)
    assert await world.replay([{**REPLAY, "state": state}]) == 0
    assert world.shown([{**REPLAY, "state": state}])[0][0] == state


async def test_a_file_that_came_later_has_no_part_in_it(world: World) -> None:
    world.offsets.put(world.partition, None)
    assert await world.replay([REPLAY], older=[REPLAY]) == 0


def replay_of(**request: Any) -> dict[str, Any]:
    return {"replay": {"source": "INPUT", **request}}


@pytest.mark.parametrize(
    ("options", "request_", "message"),
    [
        ({}, {"since": "noon"}, "no time"),
        ({}, {"positions": [{"partition": {"filename": "/other"}, "offset": {"position": 1}}]}, "no source partition"),
        ({}, {"positions": [{"partition": {"topic": "t"}, "offset": {"offset": 1}}]}, "no source partition"),
        ({}, {"positions": [{"partition": {"filename": "FILE"}, "offset": {"position": -1}}]}, "a number 'position'"),
        ({"row.timestamp.column": ""}, {"since": "2026-11-26T17:00:00Z"}, "set row.timestamp.column"),
        ({"input": "syslog", "listen": "udp://127.0.0.1:0", "file": ""}, {}, "takes lines from the network"),
        (
            {
                "input": "kafka",
                "file": "",
                "kafka.topics": "t",
                "kafka.bootstrap.servers": "x:1",
                "multiline.start": "^a",
            },
            {},
            "multiline.start joins can't be replayed",
        ),
        ({}, {"source": "UNKNOWN", "positions": [{"partition": {}, "offset": {}}]}, "positions are of the input"),
        ({}, {"source": "UNKNOWN", "replaces": 1}, "replaces is of the input"),
        ({}, {"replaces": 1, "earlier": [{"tables": [{"name": "t"}]}]}, "whose rows version 1 and later ones made"),
    ],
)
def test_requests_that_can_not_be_done(
    tmp_path: Path, options: dict[str, str], request_: dict[str, Any], message: str
) -> None:
    world = World(tmp_path, **options)
    for asked in request_.get("positions", ()):
        if asked["partition"].get("filename") == "FILE":
            asked["partition"] = world.partition
    with pytest.raises(ConfigInvalid, match=message):
        LogsConnector.check_snapshot(world.config, replay_of(**request_))
