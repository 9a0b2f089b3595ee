"""A seeded load of partition updates with its expected events, for benchmarks and fault tests of the materializer.

One table of six columns and its key; each update is about one row: whole rows, single columns, late ones, repeated ones,
deletes. ``updates`` gives them in order; ``Model`` is an independent, simple merge that says which event each must cause.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.cql.types import parse_type
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    PartitionUpdate,
    UpdateDeletion,
    UpdateLayout,
    UpdateRow,
    UpdateSource,
)
from connectors.schema import OPTIONAL_INT64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connectors.cql.types import CqlType

KEYSPACE: Final = "bench"
TABLE: Final = "events"
_START_US: Final = 1_780_000_000_000_000
_STEP_US: Final = 20_000
VALUES: Final = ("at", "flag", "n", "note", "price", "v")
_TYPES: Final = {"at": "timestamp", "flag": "boolean", "n": "bigint", "note": "text", "price": "double", "v": "text"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column as ``UpdateLayout`` wants it."""

    name: str
    type: CqlType
    kind: Any
    position: int = 0
    reversed: bool = False


def layout(wide: int = 0) -> UpdateLayout:
    """The table's layout; ``wide`` is the number of additional text columns."""
    columns = [
        Column("pk", parse_type("bigint"), "partition_key"),
        Column("ck", parse_type("int"), "clustering"),
        *(Column(name, parse_type(kind), "regular") for name, kind in _TYPES.items()),
        *(Column(f"w{number:04}", parse_type("text"), "regular") for number in range(wide)),
    ]
    source = UpdateSource(
        connector="scylla",
        cluster="bench",
        keyspace=KEYSPACE,
        table=TABLE,
        table_id="11111111-2222-3333-4444-555555555555",
        schema_version="aaaaaaaa",
    )
    return UpdateLayout(source=source, columns=columns, position={"sequence": OPTIONAL_INT64})


class Change(NamedTuple):
    """The content of one update: columns of the row (pk, ck) at ``write_time`` (µs); an inserted row, or its deletion."""

    pk: int
    ck: int
    write_time: int
    values: dict[str, Any]
    insert: bool = False
    delete: bool = False


def changes(count: int, *, partitions: int, seed: int = 1, wide: int = 0) -> Iterator[Change]:
    """``count`` changes of rows in ``partitions`` partitions, always the same for a seed. Rows: about three a partition."""
    chance = random.Random(seed)
    draw, below, columns = chance.random, chance.randrange, [*VALUES, *(f"w{number:04}" for number in range(wide))]
    last = None
    for number in range(count):
        kind, write_time = draw(), _START_US + number * _STEP_US
        if kind < 0.05 and last is not None:
            yield last  # again, as another replica or a retry sends it
            continue
        pk, ck = below(partitions), below(3)
        if kind < 0.10:
            last = Change(pk, ck, write_time, {}, delete=True)
        elif kind < 0.15:  # arrives late, by up to 10,000 writes; the remainder keeps two of them from having one time
            last = Change(
                pk,
                ck,
                write_time - _STEP_US * below(min(10_000, number + 1)) + 1 + number % (_STEP_US - 1),
                {"v": f"late {number}", "n": number},
            )
        elif kind < 0.40:
            last = Change(pk, ck, write_time, _row(number, columns), insert=True)
        else:
            last = Change(pk, ck, write_time, {"n": number, "v": f"value {number}" if number % 7 else None})
        yield last


def _row(number: int, columns: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "at": 1_780_000_000_000 + number,
        "flag": number % 2 == 0,
        "n": number,
        "note": f"a note of row {number}",
        "price": number / 4,
        "v": f"value {number}",
    }
    for name in columns[len(VALUES) :]:
        row[name] = f"{name} {number % 1000}"
    return row


def update(change: Change, form: UpdateLayout, sequence: int) -> PartitionUpdate:
    """The partition update of a change."""
    stamp = CellStamp(change.write_time)
    row = UpdateRow(
        clustering=(change.ck,),
        liveness=stamp if change.insert else None,
        deletion=UpdateDeletion(change.write_time, change.write_time // 1_000_000) if change.delete else None,
        cells=tuple(Cell(name, None, value, stamp) for name, value in sorted(change.values.items())),
    )
    return PartitionUpdate(
        source=UpdateSource(
            connector="scylla",
            cluster="bench",
            keyspace=KEYSPACE,
            table=TABLE,
            table_id=form.source.table_id,
            schema_version=form.source.schema_version,
            position={"sequence": sequence},
            read_time=change.write_time // 1000,
        ),
        key=(change.pk,),
        write_time=change.write_time,
        rows=(row,),
    )


def partition_key(pk: int) -> bytes:
    """The Kafka key: Cassandra's serialized partition key."""
    return struct.pack(">q", pk)


class Event(NamedTuple):
    """An expected event."""

    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Model:
    """The table as merged so far, column by column; knows nothing of the product's merge."""

    def __init__(self, wide: int = 0) -> None:
        self._columns = (*VALUES, *(f"w{number:04}" for number in range(wide)))
        #: (pk, ck) -> (deleted at, inserted at, column -> (write time, value))
        self._rows: dict[tuple[int, int], list[Any]] = {}
        self._shown: dict[tuple[int, int], dict[str, Any]] = {}

    def apply(self, change: Change) -> Event | None:
        """Fold a change in; its event, or None where it changes nothing."""
        key = change.pk, change.ck
        row = self._rows.setdefault(key, [-1, -1, {}])
        if change.delete:
            row[0] = max(row[0], change.write_time)
        if change.insert:
            row[1] = max(row[1], change.write_time)
        cells = row[2]
        for name, value in change.values.items():
            old = cells.get(name)
            if old is None or change.write_time > old[0]:
                cells[name] = change.write_time, value
        live = {name: value for name, (at, value) in cells.items() if at > row[0] and value is not None}
        after = (
            {"pk": key[0], "ck": key[1], **{name: live.get(name) for name in self._columns}}
            if (live or row[1] > row[0])
            else None
        )
        before = self._shown.get(key)
        if after == before:
            return None
        if after is None:
            del self._shown[key]
            return Event("d", before, None)
        self._shown[key] = after
        return Event("c" if before is None else "u", before, after)

    @property
    def rows(self) -> dict[tuple[int, int], dict[str, Any]]:
        """The rows that a query would show now."""
        return self._shown
