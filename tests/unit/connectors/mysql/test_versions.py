"""Versions of tables: numbers, what changed, restarts, several tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec
import pytest

from connectors.mysql import task
from connectors.mysql.model import MySqlColumn, MySqlTable
from connectors.mysql.run.batching import BatchMaker
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema import versions
from connectors.mysql.schema.versions import VersionBook, fingerprint_table
from connectors.mysql.stream.counters import StreamCounters
from connectors.mysql.stream.latency import HeartbeatLatency
from tests.unit.connectors.mysql.events.making import number, table, text, written
from tests.unit.connectors.mysql.snapshot.run_world import settings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from connectors.api import Batch, Position, TaskContext
    from connectors.mysql.run.records import RunRecords
    from connectors.mysql.snapshots import RunSnapshots


class Met(NamedTuple):
    ts_ms: int
    file: str
    pos: int
    gtid: str = "0-1-7"
    statement: str = ""
    server: int = 0


def at(pos: int, statement: str = "", file: str = "b.000001") -> Met:
    return Met(1_700_000_000_000 + pos, file, pos, statement=statement)


FIRST = table("t", number("id", nullable=False), text("a", 10), text("b", 5), key=("id",))
SECOND = msgspec.structs.replace(FIRST, columns=(*FIRST.columns[:2], number("n"), text("b", 20)))
THIRD = msgspec.structs.replace(SECOND, columns=(SECOND.columns[0], SECOND.columns[3], SECOND.columns[2]), key=())


def test_each_structure_gets_the_next_number_and_a_record() -> None:
    book = VersionBook("p", "p.table-versions", [])
    met = enumerate((FIRST, FIRST, SECOND, SECOND, THIRD), 1)
    assert [book.version(structure, at(pos)) for pos, structure in met] == [1, 1, 2, 2, 3]
    records, offsets = book.take()
    assert offsets == ()
    assert book.take() == ([], ())
    assert [written(record.value_schema, record.value)["payload"]["version"] for record in records] == [1, 2, 3]
    assert all(
        record.topic == "p.table-versions"
        and record.source_partition == {"server": "p", "table": "world.t"}
        and written(record.key_schema, record.key)["payload"] == {"table": "world.t"}
        for record in records
    )
    assert records[0].value["changes"] == []
    assert records[0].value["columns"] == [
        {"name": "id", "type": "INT", "nullable": False, "key": True},
        {"name": "a", "type": "VARCHAR(10)", "nullable": True, "key": False},
        {"name": "b", "type": "VARCHAR(5)", "nullable": True, "key": False},
    ]
    assert records[1].value["changes"] == [
        {"column": "n", "change": "added", "before": None, "after": "INT"},
        {"column": "b", "change": "changed", "before": "VARCHAR(5)", "after": "VARCHAR(20)"},
    ]
    assert [(change["column"], change["change"]) for change in records[2].value["changes"]] == [
        ("a", "dropped"),
        ("id", "changed"),
        ("n", "moved"),
    ]


def test_a_record_says_when_and_why() -> None:
    book = VersionBook("p", "topic", [])
    book.version(FIRST, at(4, "ALTER TABLE t ..."))
    record = book.take()[0][0]
    assert {name: record.value[name] for name in ("table", "ts_ms", "file", "pos", "gtid", "statement")} == {
        "table": "world.t",
        "ts_ms": 1_700_000_000_004,
        "file": "b.000001",
        "pos": 4,
        "gtid": "0-1-7",
        "statement": "ALTER TABLE t ...",
    }


def test_numbers_last_over_restarts_and_old_structures_keep_theirs() -> None:
    book = VersionBook("p", "topic", [])
    for pos, structure in ((1, FIRST), (30, SECOND)):
        book.version(structure, at(pos))
    saved = [(record.source_partition, record.source_offset) for record in book.take()[0]][-1:]
    others = [({"server": "p"}, {"file": "b.000001"}), ({"server": "q", "table": "world.t"}, {})]
    restarted = VersionBook("p", "topic", [*saved, *others])
    assert restarted.version(FIRST, at(20)) == 1
    assert restarted.version(SECOND, at(30)) == 2
    assert restarted.take() == ([], ())
    assert restarted.version(FIRST, at(40)) == 3, "the old structure came back later: that is a change"
    assert restarted.version(SECOND, at(35, file="b.000002")) == 4
    assert VersionBook("other", "topic", saved).version(SECOND, at(1)) == 1


def test_what_the_catalog_says_is_not_noted() -> None:
    book = VersionBook("p", "topic", [])
    assert book.version(FIRST) == 1
    book.version(FIRST, at(5))
    assert book.version(SECOND) == 2
    assert [record.value["version"] for record in book.take()[0]] == [1]
    assert book.version(SECOND, at(6)) == 2
    assert book.version(FIRST) == 1


def test_the_catalogs_additions_are_no_change() -> None:
    declared = msgspec.structs.replace(
        FIRST,
        completed=True,
        columns=tuple(
            msgspec.structs.replace(column, declared="", default="5", comment="c", extra="x")
            for column in FIRST.columns
        ),
    )
    assert fingerprint_table(declared) == fingerprint_table(FIRST)
    other = MySqlColumn(name="b", type=codes.VARCHAR, meta=20, collation=8)
    assert fingerprint_table(msgspec.structs.replace(FIRST, columns=(*FIRST.columns[:2], other))) != fingerprint_table(
        FIRST
    )
    first, second = (
        table("e", MySqlColumn(name="e", type=codes.ENUM, meta=1, members=members)) for members in (("a",), ("a", "b"))
    )
    assert fingerprint_table(first) != fingerprint_table(second)


def test_only_the_owner_writes_about_a_table() -> None:
    book = VersionBook("p", "topic", [], owner=lambda name: name.table == "other")
    assert book.version(FIRST, at(1)) == 1
    assert book.version(SECOND, at(2)) == 2
    assert book.take() == ([], ())


def test_without_a_topic_the_book_is_kept_in_offsets() -> None:
    book = VersionBook("p", "", [])
    book.version(FIRST, at(1))
    records, offsets = book.take()
    assert (records, [partition for partition, _ in offsets]) == ([], [{"server": "p", "table": "world.t"}])
    assert VersionBook("p", "", offsets).version(SECOND, at(2)) == 2


def test_the_book_is_bounded() -> None:
    book = VersionBook("p", "", [])
    last: MySqlTable = FIRST
    for size in range(1, 41):
        last = msgspec.structs.replace(FIRST, columns=(FIRST.columns[0], text("a", size)))
        assert book.version(last, at(size)) == size
    saved = book.take()[1][-1:]
    (shown,) = versions.list_tables("p", saved)
    assert (shown["table"], shown["version"], len(shown["versions"])) == ("world.t", 40, 20)
    assert shown["versions"][0]["changes"] == [
        {"column": "a", "change": "changed", "before": "VARCHAR(39)", "after": "VARCHAR(40)"}
    ]
    assert VersionBook("p", "", saved).version(last, at(99)) == 40


def test_offsets_that_are_not_ours_are_passed_over() -> None:
    partition = {"server": "p", "table": "world.t"}
    for offset in ({}, {"versions": "nonsense"}, {"versions": "[]"}, {"versions": 3}, {"versions": "[[1]]"}):
        assert versions.list_tables("p", [(partition, offset)]) == []
        assert VersionBook("p", "", [(partition, offset)]).version(FIRST, at(1)) == 1


def test_moves_are_reported_for_as_few_columns_as_possible() -> None:
    wide = table("t", *(number(name) for name in "abcdef"))
    turned = msgspec.structs.replace(wide, columns=tuple(number(name) for name in "fabcde"))
    book = VersionBook("p", "topic", [])
    book.version(wide, at(1))
    book.version(turned, at(2))
    assert book.take()[0][1].value["changes"] == [
        {"column": "f", "change": "moved", "before": "place 6", "after": "place 1"}
    ]


@pytest.mark.parametrize("topic", ["p.table-versions", ""])
async def test_a_run_after_a_signal_has_set_the_position_keeps_the_numbers(
    monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    books: list[VersionBook] = []

    class Run:
        """Meets two structures, and is moved behind them."""

        def __init__(self, _context: object, newer: Sequence[tuple[Position, Position | None]]) -> None:
            self.moved_to = None if books else "b.000001:100"
            books.append(
                VersionBook("p", topic, [(partition, offset) for partition, offset in newer if offset is not None])
            )

        def instruct(self, _instructions: object) -> None:
            pass

        async def batches(self) -> AsyncGenerator[Batch, None]:
            if len(books) == 1:
                assert [books[0].version(structure, at(pos)) for pos, structure in ((1, FIRST), (30, SECOND))] == [1, 2]
                records = SimpleNamespace(
                    context=SimpleNamespace(partition={"server": "p"}, held_rows=None), versions=books[0]
                )
                maker = BatchMaker(
                    settings(),
                    cast("RunRecords", records),
                    cast("RunSnapshots", SimpleNamespace(decided=tuple)),
                    HeartbeatLatency(60),
                    StreamCounters(),
                    atomic=False,
                )
                yield maker.add_records({"file": "b.000001", "pos": 100})

        async def close(self) -> None:
            pass

    monkeypatch.setattr(task, "MySqlRun", Run)
    async for _ in task.MySqlTask(cast("TaskContext", None)).batches():
        pass
    assert len(books) == 2
    assert books[1].version(THIRD, at(110)) == 3
