"""Any partition update of any table: written, read back, skipped, read by generated code, cut and damaged."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.cql.encoding import encode_partition_key
from connectors.cql.mutations.compiled import CompiledDecoder
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, Kind, make_definition, parse_definition
from connectors.cql.mutations.encode import write_mutation, write_update
from connectors.cql.mutations.head import least_write_time, read_mutation_head, update_head
from connectors.cql.mutations.reference import Damaged, UnknownColumn, read_update, skip_update
from connectors.cql.types import CqlType
from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateRow
from tests.unit.connectors.cql.mutation_world import (
    SOURCE,
    TABLE_ID,
    VERSIONS,
    cells_of,
    tables,
    unpacked,
    updates,
    with_time,
)
from tests.unit.connectors.cql.strategies import values

_LIMITS = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@given(st.data(), VERSIONS)
@_LIMITS
def test_what_is_written_is_read(data: st.DataObject, version: int) -> None:
    table = data.draw(tables())
    update = data.draw(updates(table, version))
    written = write_update(update, table, version)
    before, behind = data.draw(st.binary(max_size=3)), data.draw(st.binary(max_size=3))
    everything = before + written + behind
    start, end = len(before), len(before) + len(written)
    assert read_update(everything, start, table, version, SOURCE) == (update, end)
    assert skip_update(everything, start, table, version) == end
    # The definition that is kept reads it as well.
    assert read_update(written, 0, parse_definition(table.text()), version, SOURCE)[0] == update
    _, key_start, key_end, _ = update_head(everything, start, version)
    times = _times(update)
    if times:
        assert least_write_time(everything, start, version) == min(times)
    kinds = [column.type for column in table.key]
    assert everything[key_start:key_end] == encode_partition_key(kinds, update.key)


def _times(update: PartitionUpdate) -> list[int]:
    times = [deleted_range.deletion.write_time for deleted_range in update.ranges] + (
        [update.deletion.write_time] if update.deletion else []
    )
    for row in (*update.rows, *((update.static,) if update.static else ())):
        times += [stamp.write_time for stamp in (row.liveness, row.deletion) if stamp is not None]
        times += [cell.stamp.write_time for cell in row.cells] + [
            deletion.write_time for _, deletion in row.complex_deletions
        ]
    return times


@given(st.data(), VERSIONS)
@_LIMITS
def test_generated_code_says_what_plain_code_says(data: st.DataObject, version: int) -> None:
    table = data.draw(tables(simple=True))
    decoder = CompiledDecoder(table, version)
    for _ in range(3):
        update = data.draw(updates(table, version) | simple_updates(table))
        written = write_update(update, table, version)
        for _ in range(3):
            plain = decoder.plain(written, 0)
        full, end = decoder.full(written, 0, SOURCE)
        if plain is not None:
            assert unpacked(plain) == full
            assert plain[3] == end
            _, start, stop, _ = update_head(written, 0, version)
            assert plain[1] == written[start:stop]


@given(st.data(), VERSIONS)
@_LIMITS
def test_simple_updates_are_read_by_generated_code(data: st.DataObject, version: int) -> None:
    table = data.draw(tables(simple=True))
    update = data.draw(simple_updates(table))
    decoder = CompiledDecoder(table, version)
    written = b"--" + write_update(update, table, version) + b"\x00\xff"
    for _ in range(3):
        plain = decoder.plain(written, 2)
    assert plain is not None
    assert unpacked(plain) == update
    assert plain[3] == len(written) - 2


@pytest.mark.parametrize("columns", [(), ("a",), ("a", "b")])
@pytest.mark.parametrize("beside", [(), (UpdateRow(cells=(Cell("s", None, 1, CellStamp(5)),)),)])
def test_rows_that_say_nothing_are_not_simple(columns: tuple[str, ...], beside: tuple[UpdateRow, ...]) -> None:
    """Whatever the decoder has seen before: else the same row would be an event or none."""
    number = CqlType("int")
    kinds: dict[str, Kind] = {"k": "partition_key", "c": "clustering", "s": "static", "a": "regular", "b": "regular"}
    table = make_definition("ks", "t", TABLE_ID, [CqlColumn(name, number, kind) for name, kind in kinds.items()])
    decoder = CompiledDecoder(table, 7)
    cells = tuple(Cell(column, None, 1, CellStamp(5)) for column in columns)
    rows = (UpdateRow((1,), None, None, cells), UpdateRow((2,)))
    update = PartitionUpdate(source=SOURCE, key=(1,), write_time=5, static=beside[0] if beside else None, rows=rows)
    written = write_update(update, table, 7)
    assert [decoder.plain(written, 0) for _ in range(4)] == [None] * 4
    assert decoder.full(written, 0, SOURCE)[0].rows == rows


@st.composite
def simple_updates(draw: st.DrawFn, table: CqlTableDefinition) -> PartitionUpdate:
    """An INSERT or UPDATE of some rows, perhaps with TTL, perhaps of a static column too."""
    stamp = draw(
        st.sampled_from((CellStamp(1_790_000_000_000_000), CellStamp(1_790_000_000_000_000, 60, 1_790_000_060)))
    )
    inserted = draw(st.booleans())
    clustering = st.tuples(
        *(values(column.type).filter(lambda value: value not in ("", b"")) for column in table.clustering)
    )
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        chosen = [column for column in table.regular if draw(st.booleans())]
        cells = [
            cell
            for column in chosen
            for cell in draw(cells_of(column, st.just(stamp)))
            if cell.value is not None or inserted or stamp.ttl is None
        ]
        if cells or inserted:
            rows.append(UpdateRow(draw(clustering), stamp if inserted else None, None, tuple(cells)))
    static = None
    with_static = bool(table.static) and draw(st.booleans())
    if with_static:
        cells = [cell for cell in draw(cells_of(table.static[0], st.just(stamp))) if cell.value is not None]
        static = UpdateRow((), None, None, tuple(cells)) if cells else None
    if static is None and not rows:
        rows.append(UpdateRow(draw(clustering), stamp))
    update = PartitionUpdate(
        source=SOURCE,
        key=draw(st.tuples(*(values(column.type) for column in table.key))),
        write_time=0,
        static=static,
        rows=tuple(rows),
    )
    # Tombstones of rows that live on are made before they expire: then not all times of an update are the same.
    if stamp.ttl is not None and static is not None and any(cell.value is None for row in rows for cell in row.cells):
        update = PartitionUpdate(source=SOURCE, key=update.key, write_time=0, rows=update.rows)
    return with_time(update)


@given(st.data(), VERSIONS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_cuts_and_damage_are_noticed_or_give_another_update(data: st.DataObject, version: int) -> None:
    table = data.draw(tables())
    written = write_update(data.draw(updates(table, version)), table, version)
    decoder = CompiledDecoder(table, version)
    for end in range(len(written)):
        assert decoder.plain(written[:end], 0) is None
        with pytest.raises(Damaged, match=r"ks\.t"):
            read_update(written[:end], 0, table, version, SOURCE)
    damaged = bytearray(written)
    damaged[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    for _ in range(3):
        decoder.plain(bytes(damaged), 0)
    with contextlib.suppress(Damaged, UnknownColumn):
        read_update(bytes(damaged), 0, table, version, SOURCE)


@given(st.lists(st.binary(min_size=1, max_size=4), max_size=200), VERSIONS)
@settings(max_examples=20, deadline=None)
def test_the_head_of_a_mutation(updates_: list[bytes], version: int) -> None:
    written = b"?" + write_mutation(updates_, version)
    count, position = read_mutation_head(written, 1, version)
    assert count == len(updates_)
    assert written[position:] == b"".join(updates_)
