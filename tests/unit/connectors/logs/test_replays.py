"""New versions of rules in a running task, and replays: cut at every record, and compared row by row."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from connectors.api import SourceRecord, WrittenRecord
from connectors.errors import ConfigInvalid, Skippable
from connectors.logs.connector import LogsConnector
from connectors.logs.replays.replay import Replays
from connectors.logs.rows import RowMaker
from connectors.logs.rules.built import build_any
from connectors.logs.rules.compiled import compile_rules
from connectors.testing import Run, SavedOffsets
from connectors.testing.contexts import MemoryTaskContext, RecordedMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path


TOPIC = "logs.unknown_table"


def rules_of(table: str, start: str) -> dict[str, Any]:
    """Each word behind the start of a line is a row."""
    steps = [
        {"regexExtract": {"pattern": rf"^{start} (?P<words>\[.*\])$"}},
        {"flattenJsonArray": {"field": "words"}},
        {"saveAs": {"columns": [{"name": "word", "field": "words"}]}},
    ]
    return {"tables": [{"name": table, "groups": [{"name": "g", "steps": steps}]}]}


def instruction_of(version: int, rules: Any) -> dict[str, Any]:
    """The instruction of a rule set."""
    return {
        "id": "rules:r",
        "state": "running",
        "origin": "rules",
        "created_ms": 0,
        "name": "r",
        "version": version,
        "rules": rules,
    }


class Topic:
    """The topic of ``unknown_table``, as it would be read back."""

    def __init__(self) -> None:
        self.records: list[WrittenRecord] = []

    def write(self, records: Sequence[SourceRecord]) -> None:
        for record in records:
            if record.topic == TOPIC:
                key = msgspec.json.encode(record.key)
                value = None if record.value is None else msgspec.json.encode(record.value)
                self.records.append(WrittenRecord(len(self.records), record.timestamp or 0, key, value))

    async def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        assert topic == TOPIC
        return {0: (0, len(self.records))}

    async def read(
        self, topic: str, partition: int, start: int, end: int
    ) -> AsyncGenerator[tuple[list[WrittenRecord], int], None]:
        assert (topic, partition) == (TOPIC, 0)
        while start < end:
            behind = min(start + 4, end)
            yield self.records[start:behind], behind
            start = behind

    async def decode(self, topic: str, value: bytes) -> Any:
        assert topic == TOPIC
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise Skippable(str(error)) from error


class World:
    """A topic with unknown lines, and the saved offsets of a task that replays them."""

    def __init__(self, output: str = "plain") -> None:
        self.topic = Topic()
        self.offsets = SavedOffsets()
        raw = {"topic.prefix": "logs", "file": "/x", "rules.name": "r", "output": output}
        self.config = LogsConnector.config_def.parse(raw)
        self.rows: list[SourceRecord] = []
        self.unknown: list[SourceRecord] = []

    def maker(self, rules: Any) -> RowMaker:
        return RowMaker(compile_rules(build_any(rules)), self.config, RecordedMetrics(LogsConnector.metrics))

    def write_unknown(self, lines: Sequence[str]) -> None:
        maker, records = self.maker(rules_of("none", "none")), list[SourceRecord]()
        from connectors.logs.rules.records import LineOrigin

        for number, line in enumerate(lines):
            origin = LineOrigin("web-1", "/x", number * 100, 1000 + number)
            maker.add_line(records, {}, {}, {}, line, origin, f"/x:f:{number * 100}", number * 100)
        self.topic.write(records)
        self.unknown += records

    def context(self) -> MemoryTaskContext:
        log = logging.LoggerAdapter(logging.getLogger("replays"), {})
        context = MemoryTaskContext("c", 0, self.config, self.offsets, RecordedMetrics(LogsConnector.metrics), log)
        context.written = self.topic
        return context

    async def run(self, rules: Any, asked: Sequence[dict[str, Any]], most: int = 1_000_000) -> int:
        """Run the replays until ``most`` records are in Kafka, and save what is acknowledged; the number of records."""
        replays = Replays(self.context(), self.maker(rules))
        replays.take(asked)
        delivered = 0
        async with aclosing(replays.run()) as batches:
            async for batch in batches:
                for record in batch.records:
                    self.rows.append(record)
                    self.topic.write([record])
                    self.offsets.put(record.source_partition, record.source_offset)
                    delivered += 1
                    if delivered == most:
                        return delivered
                for partition, offset in batch.offsets:
                    self.offsets.put(partition, offset)
        return delivered

    def words(self) -> list[tuple[str, str]]:
        return [(record.value["log_id"], record.value["word"]) for record in self.rows if record.topic == "logs.words"]

    def shown(self, asked: Sequence[dict[str, Any]]) -> list[tuple[str, int, int]]:
        rows = LogsConnector.snapshots(self.config, asked, self.offsets.items())
        return [(row["state"], row["lines"], row["accepted"]) for row in rows]


LINES = ['say ["a", "b"]', "nothing", 'say ["c"]', "say []", 'say ["d", "e", "f"]', 'other ["x"]', 'say ["g"]']
WORDS = [
    ("/x:f:0:0", "a"),
    ("/x:f:0:1", "b"),
    ("/x:f:200:0", "c"),
    ("/x:f:400:0", "d"),
    ("/x:f:400:1", "e"),
    ("/x:f:400:2", "f"),
    ("/x:f:600:0", "g"),
]
FIRST = {"id": "one", "state": "running", "origin": "rest", "replay": {}}


@pytest.mark.parametrize("cut", range(1, 13))
async def test_a_replay_that_is_cut_loses_and_repeats_nothing(cut: int) -> None:
    world = World()
    world.write_unknown(LINES)
    assert world.shown([FIRST]) == [("waiting", 0, 0)]
    await world.run(rules_of("words", "say"), [FIRST], cut)
    await world.run(rules_of("words", "say"), [FIRST])
    assert world.words() == WORDS
    deleted = [record.key["log_id"] for record in world.rows if record.value is None]
    accepted = ["/x:f:0:0", "/x:f:200:0", "/x:f:400:0", "/x:f:600:0"]
    assert deleted in (accepted, [*accepted[:2], "/x:f:300:0", *accepted[2:]])
    assert world.shown([FIRST])[0][:2] == ("completed", 7)


async def test_a_later_replay_leaves_out_what_was_replayed() -> None:
    world = World()
    world.write_unknown(LINES)
    await world.run(rules_of("words", "say"), [FIRST])
    both = {"tables": [*rules_of("words", "say")["tables"], *rules_of("others", "other")["tables"]]}
    second = {**FIRST, "id": "two"}
    assert await world.run(both, [FIRST, second]) == 2, "a row and the tombstone of its line"
    assert world.words() == WORDS
    # A line that is unknown again after it was deleted counts.
    world.write_unknown(['say ["a", "b"]'])
    await world.run(both, [FIRST, second, {**FIRST, "id": "three"}])
    assert world.words() == WORDS + WORDS[:2]
    # What is not asked for any more leaves no offsets.
    await world.run(both, [])
    assert world.offsets.items() == []


@pytest.mark.parametrize("state", ["paused", "cancelled"])
async def test_a_replay_that_shall_not_run(state: str) -> None:
    world = World()
    world.write_unknown(LINES)
    assert await world.run(rules_of("words", "say"), [{**FIRST, "state": state}]) == 0
    assert world.shown([{**FIRST, "state": state}]) == [(state, 0, 0)]
    await world.run(rules_of("words", "say"), [FIRST], 3)
    assert await world.run(rules_of("words", "say"), [{**FIRST, "state": state}]) == 0
    assert world.shown([{**FIRST, "state": state}])[0][0] == state


async def test_lines_since_a_time() -> None:
    world = World()
    world.write_unknown(LINES)
    request = LogsConnector.check_snapshot(world.config, {"replay": {"since": "1970-01-01T00:00:01.004+00:00"}})
    await world.run(rules_of("words", "say"), [{**FIRST, **request}])
    assert world.words() == WORDS[3:]
    for wrong in ({"tables": ["t"]}, {"replay": {"since": "noon"}}, {"replay": {"since": "2026-11-26T17:00:00"}}):
        with pytest.raises(ConfigInvalid):
            LogsConnector.check_snapshot(world.config, wrong)


async def test_records_that_are_no_lines_are_left_out() -> None:
    world = World()
    world.topic.records.append(WrittenRecord(0, 0, None, b"not JSON"))
    world.topic.records.append(WrittenRecord(1, 0, None, b'{"some": "thing"}'))
    world.topic.records.append(WrittenRecord(2, 0, None, b'{"line": "say [\\"a\\"]"}'))
    await world.run(rules_of("words", "say"), [FIRST])
    assert world.words() == [(f"{TOPIC}/0:2:0", "a")]


def ums_row(record: SourceRecord) -> dict[str, str]:
    """The only row of a UMS message."""
    value = record.value
    names = [field["name"] for field in value["schema"]["fields"]]
    return dict(zip(names, value["payload"][0]["tuple"], strict=True))


@pytest.mark.parametrize("cut", range(1, 13))
async def test_ums_deletes_a_line_that_is_accepted(cut: int) -> None:
    world = World("ums")
    world.write_unknown(LINES)
    before = {row["log_id"]: row for row in map(ums_row, world.unknown)}
    await world.run(rules_of("words", "say"), [FIRST], cut)
    await world.run(rules_of("words", "say"), [FIRST])
    words = [ums_row(record) for record in world.rows if record.topic == "logs.words"]
    assert [(row["ums_op_"], row["log_id"], row["word"]) for row in words] == [("i", *word) for word in WORDS]
    deleted = [record for record in world.rows if record.topic == TOPIC]
    rows = list(map(ums_row, deleted))
    accepted = ["/x:f:0:0", "/x:f:200:0", "/x:f:300:0", "/x:f:400:0", "/x:f:600:0"]
    # As with tombstones: "say []" is accepted without a row.
    assert [row["log_id"] for row in rows if row["log_id"] != "/x:f:300:0"] == [*accepted[:2], *accepted[3:]]
    for record, row in zip(deleted, rows, strict=True):
        same = before[row["log_id"]]
        assert int(row["ums_id_"]) >= int(same["ums_id_"])
        assert row == {**same, "ums_op_": "d", "ums_id_": row["ums_id_"], "failures": "[]"}
        assert record.key == world.unknown[0].key, "a message is in the partition of its row"
    # What is deleted is not replayed again; a line that is unknown again is.
    second = {**FIRST, "id": "two"}
    assert await world.run(rules_of("words", "say"), [FIRST, second]) == 0
    world.write_unknown(LINES[:1])
    assert await world.run(rules_of("words", "say"), [FIRST, second, {**FIRST, "id": "three"}]) == 3


async def test_a_running_task_takes_rules_and_replays(tmp_path: Path) -> None:
    source = tmp_path / "app.log"
    source.write_text('say ["a"]\nother ["x", "y"]\n')
    config = {"topic.prefix": "logs", "file": str(source), "rules.name": "r"}
    async with Run(LogsConnector, config) as run:
        (task,) = run.tasks
        topic = Topic()
        task.context.written = topic
        task.instruct([instruction_of(1, rules_of("words", "say"))])
        records = await run.read(2)
        topic.write(records)
        assert [record.topic for record in records] == ["logs.words", TOPIC]
        assert run.metrics.series["logs_rules_version", (("rules", "r"),)] == 1
        task.instruct([instruction_of(2, rules_of("others", "other")), FIRST])
        records = await run.read(3)
        assert [(record.topic, record.value and record.value["word"]) for record in records] == [
            ("logs.others", "x"),
            ("logs.others", "y"),
            (TOPIC, None),
        ]
        with source.open("a") as file:
            file.write('other ["z"]\n')
        (record,) = await run.read(1)
        assert (record.topic, record.value["word"]) == ("logs.others", "z")
        assert run.metrics.series["logs_rules_version", (("rules", "r"),)] == 2
