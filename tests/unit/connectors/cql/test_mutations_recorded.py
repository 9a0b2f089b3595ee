"""Mutations that real servers wrote, byte for byte: 5.0.9 in versions 7 and 8 of the log, 6.0-alpha2 in version 9."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.cql.mutations.definition import CqlTableDefinition, parse_definition
from connectors.cql.mutations.encode import write_update
from connectors.cql.mutations.reference import read_update, skip_update
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    ClusteringBound,
    PartitionUpdate,
    RangeDeletion,
    UpdateDeletion,
    UpdateRow,
)
from tests.unit.connectors.cql.mutation_world import SOURCE, unpacked

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_mutations.json").read_text())
US = 1_700_000_000_000_000
AT = CellStamp(US)
#: Stands for the server's clock, and for the time uuid of a list's element.
CLOCK = 0
PATH = "time uuid"
HERE = (2, "x")


def update(*rows: UpdateRow, key: int = 1, write_time: int = US, **parts: Any) -> PartitionUpdate:
    return PartitionUpdate(source=SOURCE, key=(key,), write_time=write_time, rows=rows, **parts)


def expiring(ttl: int) -> CellStamp:
    return CellStamp(US, ttl, CLOCK + ttl)


def overwritten(name: str) -> tuple[str, UpdateDeletion]:
    return name, UpdateDeletion(US - 1, CLOCK)


def ranged(start: ClusteringBound, end: ClusteringBound, write_time: int) -> RangeDeletion:
    return RangeDeletion(start, end, UpdateDeletion(write_time, CLOCK))


#: What each statement is, by its place in the recording.
EXPECTED: list[list[PartitionUpdate]] = [
    [update(UpdateRow(HERE, AT, None, (Cell("n", None, 5, AT), Cell("v", None, "hello", AT))))],
    [update(UpdateRow((2, ""), expiring(600), None, (Cell("n", None, None, AT), Cell("v", None, "", expiring(600)))))],
    [update(UpdateRow(HERE, None, None, (Cell("v", None, "u", expiring(60)),)))],
    [
        update(
            UpdateRow(HERE, None, None, (Cell("v", None, None, CellStamp(-7)),)),
            write_time=-7,
            static=UpdateRow(cells=(Cell("st", None, "s", CellStamp(-7)),)),
        )
    ],
    [
        update(
            UpdateRow(
                HERE,
                AT,
                None,
                (
                    Cell("l", PATH, "a", AT),
                    Cell("m", "k", 3, AT),
                    Cell("s", 1, True, AT),
                    Cell("s", 2, True, AT),
                    Cell("u", "a", 1, AT),
                    Cell("u", "z", "z", AT),
                ),
                tuple(overwritten(name) for name in "lmsu"),
            )
        )
    ],
    [update(UpdateRow(HERE, None, None, (Cell("m", "k", None, AT), Cell("s", 1, None, AT), Cell("u", "z", "q", AT))))],
    [update(UpdateRow(HERE, None, UpdateDeletion(US, CLOCK)))],
    [update(deletion=UpdateDeletion(US, CLOCK))],
    [
        update(
            key=9,
            write_time=140,
            ranges=(
                ranged(ClusteringBound((1,)), ClusteringBound((3,), inclusive=False), 120),
                ranged(ClusteringBound((3,)), ClusteringBound((4,)), 130),
                ranged(ClusteringBound((4,), inclusive=False), ClusteringBound(), 140),
            ),
        )
    ],
    [
        update(
            UpdateRow((1, "b"), None, None, (Cell("n", None, 1, CellStamp(5)),)),
            UpdateRow((1, "a"), None, None, (Cell("v", None, "a", CellStamp(5)),)),
            write_time=5,
        ),
        update(UpdateRow((), CellStamp(5), None, (Cell("v", None, "other", CellStamp(5)),)), write_time=5),
    ],
]
#: Places of those that generated code reads; an empty clustering value is left to the plain one.
PLAIN = {0, 2, 3, 9}
CASES = [(version, index) for version in RECORDED for index in range(len(EXPECTED))]


def definition(version: str, name: str) -> CqlTableDefinition:
    return parse_definition(json.dumps(RECORDED[version][name]))


def recorded(version: str, index: int) -> list[tuple[CqlTableDefinition, bytes]]:
    return [
        (definition(version, name), bytes.fromhex(data))
        for name, _, data in RECORDED[version]["cases"][index]["updates"]
    ]


def clock_of(version: str) -> int:
    """When the recording was made: the deletion of a row has it."""
    ((table, data),) = recorded(version, 6)
    deletion = read_update(data, 0, table, int(version), SOURCE)[0].rows[0].deletion
    assert deletion is not None
    return deletion.local_deletion_time


def settled(update: PartitionUpdate, clock: int) -> PartitionUpdate:
    """With times by the server's clock and time uuids as ``EXPECTED`` has them."""

    def deletion(original: UpdateDeletion) -> UpdateDeletion:
        assert abs(original.local_deletion_time - clock) < 60
        return original._replace(local_deletion_time=CLOCK)

    def stamp(original: CellStamp) -> CellStamp:
        if original.expires is None:
            return original
        assert original.ttl is not None
        assert abs(original.expires - original.ttl - clock) < 60
        return original._replace(expires=CLOCK + original.ttl)

    def row(original: UpdateRow) -> UpdateRow:
        cells = tuple(
            cell._replace(stamp=stamp(cell.stamp), path=PATH if cell.column == "l" else cell.path)
            for cell in original.cells
        )
        return UpdateRow(
            original.clustering,
            original.liveness and stamp(original.liveness),
            original.deletion and deletion(original.deletion),
            cells,
            tuple((name, gone._replace(local_deletion_time=CLOCK)) for name, gone in original.complex_deletions),
        )

    return PartitionUpdate(
        source=update.source,
        key=update.key,
        write_time=update.write_time,
        deletion=update.deletion and deletion(update.deletion),
        static=None if update.static is None else row(update.static),
        rows=tuple(map(row, update.rows)),
        ranges=tuple(
            deleted_range._replace(deletion=deletion(deleted_range.deletion)) for deleted_range in update.ranges
        ),
    )


def test_all_versions_are_recorded() -> None:
    assert set(RECORDED) == {"7", "8", "9"}


@pytest.mark.parametrize(("version", "index"), CASES)
def test_recorded_statements(version: str, index: int) -> None:
    updates = recorded(version, index)
    assert len(updates) == len(EXPECTED[index])
    for (table, data), expected in zip(updates, EXPECTED[index], strict=True):
        read, end = read_update(data, 0, table, int(version), SOURCE)
        assert settled(read, clock_of(version)) == expected
        assert end == len(data) == skip_update(data, 0, table, int(version))
        rewritten = write_update(read, table, int(version))
        assert read_update(rewritten, 0, table, int(version), SOURCE)[0] == read
        decoder = CompiledDecoder(table, int(version))
        for _ in range(3):
            plain = decoder.plain(data, 0)
        assert (plain is not None) == (index in PLAIN)
        if plain is not None:
            assert unpacked(plain) == read


@pytest.mark.parametrize("version", RECORDED)
def test_an_empty_number_is_a_tombstone(version: str) -> None:
    ((table, data),) = recorded(version, len(EXPECTED))
    read, _ = read_update(data, 0, table, int(version), SOURCE)
    ((cell,),) = (row.cells for row in read.rows)
    assert (cell.column, cell.value, cell.stamp) == ("n", None, CellStamp(read.write_time))
    decoder = CompiledDecoder(table, int(version))
    for _ in range(3):
        plain = decoder.plain(data, 0)
    assert plain is not None
    assert unpacked(plain) == read
