"""Random tables and partition updates of them, for hypothesis; and updates from bytes that are put together by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, make_definition
from connectors.cql.mutations.head import TIMESTAMP_EPOCH
from connectors.cql.types import CqlType, freeze_type
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    ClusteringBound,
    PartitionUpdate,
    RangeDeletion,
    UpdateDeletion,
    UpdateRow,
    UpdateSource,
)
from tests.unit.connectors.cql.strategies import NATIVE, TYPES, natives, values

if TYPE_CHECKING:
    from connectors.cql.mutations.compiled import PlainUpdate

SOURCE = UpdateSource(connector="cassandra", cluster="c", keyspace="ks", table="t")
TABLE_ID = "6a1f2be0-c6f5-11f0-9d3e-3b7c2f5a9e01"
#: Quoted, a column can have any name; generated code must neither break at one nor run it.
ODD_NAMES = (
    "V ä",
    'a"b',
    "a'b",
    "a\\",
    "a\nb",
    "{x}",
    "{",
    "%s",
    "$0",
    "a`b",
    "values",
    "c0",
    "k1",
    "v0",
    "#",
    "\0",
    "'''",
    '"""',
    "😀",
    "\u2028",
    "'] or exit() #",
    "_x00",
)
COLUMN_NAMES = st.sampled_from(ODD_NAMES) | st.text(min_size=1, max_size=6)
KEYS = natives(tuple(name for name in NATIVE if name != "duration"))
VERSIONS = st.sampled_from((7, 8, 9))
#: µs; the third is of a row that was written long before 2015, the last are the ends.
WRITE_TIMES = st.sampled_from((1_790_000_000_000_000, 1_790_000_000_000_001, 1_000_000, -5, 0)) | st.integers(
    -(1 << 63) + 1, (1 << 63) - 1
)


def local_times(version: int) -> st.SearchStrategy[int]:
    """Seconds that a version can hold."""
    return st.sampled_from((1_790_000_000, 1_442_880_000)) | st.integers(
        0, (1 << 31) - 2 if version == 7 else (1 << 32) - 2
    )


def stamps(version: int) -> st.SearchStrategy[CellStamp]:
    plain = WRITE_TIMES.map(CellStamp)
    return plain | st.builds(CellStamp, WRITE_TIMES, st.integers(1, 630_720_000), local_times(version))


def deletions(version: int) -> st.SearchStrategy[UpdateDeletion]:
    return st.builds(UpdateDeletion, WRITE_TIMES, local_times(version))


@st.composite
def tables(draw: st.DrawFn, *, simple: bool = False) -> CqlTableDefinition:
    """A table with up to two key, two clustering, one static and four other columns; ``simple``: none of them multicell."""
    kinds = TYPES.map(freeze_type) if simple else TYPES
    names = iter(draw(st.lists(COLUMN_NAMES, min_size=9, max_size=9, unique=True)))
    columns = [CqlColumn(next(names), draw(KEYS), "partition_key", index) for index in range(draw(st.integers(1, 2)))]
    columns += [
        CqlColumn(next(names), draw(KEYS), "clustering", index, draw(st.booleans()))
        for index in range(draw(st.integers(0, 2)))
    ]
    columns += [CqlColumn(next(names), draw(kinds), "static") for _ in range(draw(st.integers(0, 1)))]
    columns += [CqlColumn(next(names), draw(kinds), "regular") for _ in range(draw(st.integers(0, 4)))]
    return make_definition("ks", "t", TABLE_ID, columns)


@st.composite
def updates(draw: st.DrawFn, table: CqlTableDefinition, version: int) -> PartitionUpdate:
    """Anything that an update of ``table`` can say, as ``read_update`` gives it."""
    clustering = st.tuples(*(values(column.type) for column in table.clustering))
    rows = tuple(draw(st.lists(rows_of(table.regular, clustering, version), max_size=3)))
    static = draw(st.none() | rows_of(table.static, st.just(()), version, static=True)) if table.static else None
    ranges = tuple(draw(st.lists(ranges_of(table, version), max_size=2))) if table.clustering else ()
    deletion = draw(st.none() | deletions(version))
    update = PartitionUpdate(
        source=SOURCE,
        key=draw(st.tuples(*(values(column.type) for column in table.key))),
        write_time=0,
        deletion=deletion,
        static=static,
        rows=rows,
        ranges=ranges,
    )
    return with_time(update)


def with_time(update: PartitionUpdate) -> PartitionUpdate:
    """With the newest of its times as its own."""
    times = [deleted_range.deletion.write_time for deleted_range in update.ranges]
    times += [update.deletion.write_time] if update.deletion else []
    for row in (*update.rows, *((update.static,) if update.static else ())):
        times += [stamp.write_time for stamp in (row.liveness, row.deletion) if stamp is not None]
        times += [cell.stamp.write_time for cell in row.cells] + [
            deletion.write_time for _, deletion in row.complex_deletions
        ]
    return PartitionUpdate(
        source=update.source,
        key=update.key,
        write_time=max(times, default=TIMESTAMP_EPOCH if update.rows or update.static else 0),
        deletion=update.deletion,
        static=update.static,
        rows=update.rows,
        ranges=update.ranges,
    )


@st.composite
def ranges_of(draw: st.DrawFn, table: CqlTableDefinition, version: int) -> RangeDeletion:
    bounds = []
    for _ in range(2):
        count = draw(st.integers(0, len(table.clustering)))
        prefix = draw(st.tuples(*(values(column.type) for column in table.clustering[:count])))
        bounds.append(ClusteringBound(prefix, draw(st.booleans()) or not prefix))
    return RangeDeletion(bounds[0], bounds[1], draw(deletions(version)))


@st.composite
def rows_of(
    draw: st.DrawFn,
    columns: tuple[CqlColumn, ...],
    clustering: st.SearchStrategy[tuple[Any, ...]],
    version: int,
    *,
    static: bool = False,
) -> UpdateRow:
    cells: list[Cell] = []
    complex_deletions: list[tuple[str, UpdateDeletion]] = []
    liveness = None if static else draw(st.none() | stamps(version))
    stamp = draw(stamps(version)) if liveness is None else liveness
    stamping = st.just(stamp) | stamps(version)
    for column in sorted(columns, key=lambda column: (column.type.is_multicell, column.name)):
        if draw(st.booleans()):
            cells += draw(cells_of(column, stamping))
        if column.type.is_multicell and draw(st.booleans()):
            complex_deletions.append((column.name, draw(deletions(version))))
    return UpdateRow(
        draw(clustering),
        liveness,
        None if static else draw(st.none() | deletions(version)),
        tuple(cells),
        tuple(complex_deletions),
    )


@st.composite
def cells_of(draw: st.DrawFn, column: CqlColumn, stamping: st.SearchStrategy[CellStamp]) -> list[Cell]:
    kind = column.type
    if not kind.is_multicell:
        return [cell(column.name, None, draw(st.none() | values(kind)), draw(stamping))]
    if kind.name == "udt":
        fields = draw(st.lists(st.sampled_from(range(len(kind.field_names))), unique=True, max_size=3))
        return [
            cell(column.name, kind.field_names[index], draw(st.none() | values(kind.arguments[index])), draw(stamping))
            for index in fields
        ]
    path = values(CqlType("timeuuid") if kind.name == "list" else kind.arguments[0])
    value = st.none() | (st.just(True) if kind.name == "set" else values(kind.arguments[-1]))
    return [cell(column.name, draw(path), draw(value), draw(stamping)) for _ in range(draw(st.integers(0, 3)))]


def cell(name: str, path: Any, value: Any, stamp: CellStamp) -> Cell:
    """A cell; a tombstone has a write time only."""
    return Cell(name, path, value, CellStamp(stamp.write_time) if value is None else stamp)


def unpacked(plain: PlainUpdate) -> PartitionUpdate:
    """The partition update that a plain update represents."""
    key, _, rows, _ = plain
    static, regular = None, []
    for is_static, clustering, inserted, written, ttl, expires, names, cell_values in rows:
        stamp = CellStamp(written, ttl, expires)
        row = UpdateRow(
            clustering,
            stamp if inserted else None,
            None,
            tuple(cell(name, None, value, stamp) for name, value in zip(names, cell_values, strict=True)),
        )
        if is_static:
            static = row
        else:
            regular.append(row)
    return with_time(PartitionUpdate(source=SOURCE, key=key, write_time=0, static=static, rows=tuple(regular)))
