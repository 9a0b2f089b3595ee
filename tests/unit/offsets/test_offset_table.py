"""The fold of the offsets topic, and what a write has to change."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from offsets.positions import OffsetIndex
from offsets.store import OffsetTable, plan_write


@dataclass
class Written:
    """A record as the table reads it."""

    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    offset: int = 0


def table(*records: Written) -> OffsetTable:
    result = OffsetTable()
    result.apply(records)
    return result


def key(connector: str, **partition: object) -> bytes:
    return json.dumps([connector, partition], separators=(",", ":")).encode()


def test_the_last_value_of_each_key_is_kept_by_connector() -> None:
    offsets = table(
        Written(key("a", f=1), b"{}", 1), Written(key("b", f=1), b"1", 2), Written(key("a", f=1), b'{"o":2}', 3)
    )
    assert offsets.raw("a") == [(key("a", f=1), b'{"o":2}')]
    assert offsets.raw("b") == [(key("b", f=1), b"1")]
    assert (offsets.raw("c"), offsets.connectors(), len(offsets)) == ([], ["a", "b"], 2)


def test_tombstones_and_null_remove() -> None:
    offsets = table(Written(key("a", f=1), b"{}"), Written(key("a", f=2), b"{}"))
    offsets.apply([Written(key("a", f=1), None), Written(key("a", f=2), b"null"), Written(key("a", f=3), None)])
    assert (offsets.raw("a"), offsets.connectors(), len(offsets)) == ([], [], 0)
    offsets.apply([Written(key("a", f=1), b'{"o":1}')])
    assert offsets.raw("a") == [(key("a", f=1), b'{"o":1}')]


def test_garbage_is_counted_and_does_no_harm() -> None:
    offsets = table(
        Written(None, b"x"),
        Written(b"junk", b"x"),
        Written(b'["a",null]', b"{}"),
        Written(b"[]", None),
        Written(key("a", f=1), b"{}"),
    )
    assert offsets.unreadable.count == 4
    assert len(offsets) == 1


def test_two_spellings_come_oldest_first() -> None:
    old_key, new_key = b'["a",{"x":1,"y":2}]', b'["a",{"y":2,"x":1}]'
    offsets = table(Written(new_key, b'{"o":"new"}', timestamp=9))
    offsets.apply([Written(old_key, b'{"o":"old"}', timestamp=3)])  # of another partition of the topic, read later
    assert [value for _, value in offsets.raw("a")] == [b'{"o":"old"}', b'{"o":"new"}']
    assert OffsetIndex("a", offsets.raw("a")).get({"x": 1, "y": 2}) == {"o": "new"}


def test_a_reset_removes_every_spelling() -> None:
    first, second = b'["a",{"x":1,"y":2}]', b'["a",{"y":2,"x":1}]'
    stored = [(first, b"{}"), (second, b"{}")]
    assert plan_write("a", stored, [({"y": 2, "x": 1}, None)]) == [(first, None), (second, None)]
    assert plan_write("a", stored, [({"x": 1, "y": 2}, {"o": 5})]) == [(first, b'{"o":5}'), (second, b'{"o":5}')]


def test_a_new_partition_gets_a_new_key() -> None:
    assert plan_write("a", [(b'["a",{"x":1}]', b"{}")], [({"x": 2}, {"o": 1})]) == [(b'["a",{"x":2}]', b'{"o":1}')]


RECORDS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 9))), max_size=40
)


@given(RECORDS, st.data())
def test_any_split_into_fetches_gives_the_same_offsets(
    rows: list[tuple[str, int, int | None]], draw: st.DataObject
) -> None:
    expected: dict[tuple[str, int], int] = {}
    records = []
    for when, (connector, partition, offset) in enumerate(rows):
        value = None if offset is None else json.dumps({"o": offset}).encode()
        records.append(Written(key(connector, f=partition), value, when))
        if offset is None:
            expected.pop((connector, partition), None)
        else:
            expected[connector, partition] = offset
    offsets = OffsetTable()
    while records:
        size = draw.draw(st.integers(1, len(records)))
        offsets.apply(records[:size])
        del records[:size]
    got = {
        (connector, json.loads(raw)[1]["f"]): json.loads(value)["o"]
        for connector in ("a", "b")
        for raw, value in offsets.raw(connector)
    }
    assert got == expected
    assert len(offsets) == len(expected)
