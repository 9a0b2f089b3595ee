"""Continuing after a row that was deleted meanwhile: positions of rows, and the part of a page after one."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.cql.token_ranges import TokenRange
from connectors.cql.types import CqlType
from connectors.scylla.model import CdcOptions, Generation, ScyllaColumn, StreamGroup, TableId, TableVersion
from connectors.scylla.snapshot.group import GroupSnapshot
from connectors.scylla.snapshot.merging import SnapshotPosition
from connectors.scylla.snapshot.order import ORDER_SEPARATOR, Seek, place_of
from connectors.scylla.snapshot.rows import RowPlan, SnapshotRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOKEN = 7
INT, TEXT = CqlType("int"), CqlType("text")


def plan_of(*clustering: ScyllaColumn) -> RowPlan:
    return RowPlan(
        TableVersion(
            TableId("k", "t"),
            (
                ScyllaColumn("p", INT, "partition_key", 0),
                *clustering,
                ScyllaColumn("st", INT, "static"),
                ScyllaColumn("v", INT, "regular"),
            ),
            CdcOptions(),
            "1",
        )
    )


PLAN = plan_of(ScyllaColumn("c", INT, "clustering", 0))
UNCERTAIN = plan_of(ScyllaColumn("c", CqlType("uuid"), "clustering", 0))


def page(
    *keys: tuple[int, Any], static: int | None = None, plan: RowPlan = PLAN, token: int = TOKEN
) -> list[SnapshotRow]:
    return plan.items([(token, pk, ck, static, 1, 0, 0) for pk, ck in keys])


def after(row: SnapshotRow, *pages: list[SnapshotRow]) -> list[SnapshotRow] | None:
    seek = Seek(TOKEN, row.digest)
    for number, items in enumerate(pages, 1):
        rest = seek.rest(items, has_more=number < len(pages))
        if seek.lost:
            return None
        if rest is not None:
            return [*rest, *(item for later in pages[number:] for item in later if not item.static)]
    raise AssertionError("a last page always decides")


def sort_key(kind: str) -> Callable[[Any], Any]:
    """How the servers compare values."""
    if kind == "text":
        return lambda value: value.encode()
    if kind == "timeuuid":
        return lambda value: (uuid.UUID(value).time, list(memoryview(uuid.UUID(value).bytes[8:]).cast("b")))
    return lambda value: value


def timeuuid(number: int) -> str:
    return str(uuid.UUID(int=number & ~(0xF << 76) | 1 << 76))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-1 << 31, (1 << 31) - 1),
    "bigint": st.integers(-1 << 63, (1 << 63) - 1),
    "boolean": st.booleans(),
    "text": st.text("\0\x01aé\U0001f600\x7f", max_size=4),
    "blob": st.binary(max_size=3),
    "timeuuid": st.integers(0, (1 << 128) - 1).map(timeuuid),
}


@given(st.data())
def test_places_sort_as_the_server_sorts(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=2))
    backwards = [data.draw(st.booleans()) for _ in kinds]
    row_place = place_of(
        [
            ScyllaColumn(f"c{n}", CqlType(kind), "clustering", n, reversed=back)
            for n, (kind, back) in enumerate(zip(kinds, backwards, strict=True))
        ]
    )
    assert row_place is not None
    first, second = (tuple(data.draw(VALUES[kind]) for kind in kinds) for _ in range(2))

    mine, its = row_place(first), row_place(second)

    assert mine is not None
    assert its is not None
    for kind, back, left, right in zip(kinds, backwards, first, second, strict=True):
        key = sort_key(kind)
        if key(left) != key(right):
            assert (mine < its) is ((key(left) < key(right)) is not back)
            return
    assert mine == its


def test_places_that_are_not_known() -> None:
    row_place = place_of([ScyllaColumn("c", TEXT, "clustering", 0)])

    assert row_place is not None
    assert row_place([None]) is None
    assert row_place(["a" * 1000]) == "61" * 64, "it is saved, so it is bounded"
    for kind in ("uuid", "decimal", "double", "inet"):
        assert place_of([ScyllaColumn("c", CqlType(kind), "clustering", 0)]) is None


SENT = page((1, 0), (1, 3), (1, 5))


@pytest.mark.parametrize(
    ("pages", "left"),
    [
        ([page((1, 0), (1, 3), (1, 5))], [5]),
        ([page((1, 0), (1, 5))], [5]),
        ([page((1, 0), (1, 2), (1, 5), static=4)], [5]),
        ([page((1, 4))], [4]),
        ([page((1, 0), (1, 2))], []),
        ([page((1, 0)), page((1, 2), static=4), page((1, 6), static=4)], [6]),
        ([page((1, 0)), page((2, 1), token=8)], [1]),
        ([page((1, 0)), page((2, 1))], [1]),
        ([page((2, 1), (1, 0), (1, 4))], [4]),
        ([page((2, 1), token=8)], [1]),
        ([[]], []),
        ([page((1, None), static=4), page((2, 1), token=8)], [1]),
    ],
    ids=[
        "it is there",
        "gone",
        "others and static cells came",
        "it was the first",
        "it was the last",
        "on a later page",
        "all before, next partition",
        "all before, next partition with the token",
        "partition with the token before it",
        "its partition is gone",
        "nothing is left",
        "static cells are left",
    ],
)
def test_the_next_row_is_found(pages: list[list[SnapshotRow]], left: list[int]) -> None:
    rest = after(SENT[1], *pages)

    assert rest is not None
    assert [item.raw[2] for item in rest] == left


def test_behind_static_cells_that_were_set_to_null() -> None:
    static = page((1, 0), static=4)[0]

    assert static.static
    assert after(static, page((1, 0), (1, 1))) == page((1, 0), (1, 1))


def legacy(item: SnapshotRow) -> SnapshotRow:
    return item._replace(digest=item.digest.partition(ORDER_SEPARATOR)[0])


@pytest.mark.parametrize(
    ("row", "pages"),
    [
        (legacy(SENT[1]), [page((1, 0), (1, 5))]),
        (legacy(SENT[1]), [page((1, 0)), page((2, 1), token=8)]),
        (SENT[1], [page((2, 1))]),
        (SENT[1], [page((1, 5), (1, 0))]),
        (page((1, "a"), plan=UNCERTAIN)[0], [page((1, "b"), plan=UNCERTAIN)]),
    ],
    ids=[
        "older offsets",
        "older offsets, pages passed",
        "another partition with the token",
        "the server sorts otherwise",
        "a type whose order is not certain",
    ],
)
def test_what_is_not_certain_comes_again(row: SnapshotRow, pages: list[list[SnapshotRow]]) -> None:
    assert after(row, *pages) is None


def test_older_offsets_find_the_row_if_it_is_there() -> None:
    assert after(legacy(SENT[1]), page((1, 0)), page((1, 3), (1, 5))) == SENT[2:]


def snapshot_at(row: SnapshotRow) -> GroupSnapshot:
    group = StreamGroup(TableId("k", "t"), Generation(0), "0", False, (bytes(16),), (0, 100))
    whole = (TokenRange(0, 100),)
    return GroupSnapshot(group, SnapshotPosition(whole, whole, "id").sent(row.token, row.digest))


def rows(*clustering: int) -> Sequence[tuple[Any, ...]]:
    return [(TOKEN, 1, ck, None, 1, 0, 0) for ck in clustering]


def test_a_restart_behind_a_deleted_row_repeats_nothing() -> None:
    snapshot = snapshot_at(SENT[1])

    assert snapshot.loaded(PLAN, rows(0, 5), None)

    assert snapshot.page is not None
    assert [item.raw[2] for item in snapshot.page.items] == [5]


def test_a_restart_that_lost_its_place_reads_the_partition_again() -> None:
    snapshot = snapshot_at(legacy(SENT[1]))

    assert not snapshot.loaded(PLAN, rows(0), b"next")
    assert snapshot.state == b"next"
    assert not snapshot.loaded(PLAN, rows(5), None)
    assert not snapshot.state
    assert snapshot.position.left == (TokenRange(TOKEN - 1, 100),)
    assert snapshot.loaded(PLAN, rows(0, 5), None)
    assert snapshot.page is not None
    assert [item.raw[2] for item in snapshot.page.items] == [0, 5]
