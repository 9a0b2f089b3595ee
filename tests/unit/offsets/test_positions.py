"""Keys of offsets: one partition, one key; spelled as Java's HashMap would."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal
from offsets.positions import (
    OffsetIndex,
    encode_key,
    encode_offset,
    java_hash,
    java_order,
    position_problem,
    to_canonical,
)

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.floats(allow_nan=False, allow_infinity=False),
)
POSITIONS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), VALUES, max_size=5)


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", 0x80000000), ("é", 233), ("😀", 1772899)],
)
def test_string_hash_is_javas(text: str, code: int) -> None:
    assert java_hash(text) == code


@pytest.mark.parametrize(
    ("names", "order"),
    [
        # "Aa" and "BB" have one hash code: the first put stays first
        (("Aa", "BB"), ("Aa", "BB")),
        (("BB", "Aa"), ("BB", "Aa")),
        (("c", "b", "a"), ("a", "b", "c")),
        # buckets of a table of 16: "p" (112) is in bucket 0, "a" (97) in bucket 1
        (("a", "p"), ("p", "a")),
    ],
)
def test_fields_are_ordered_by_bucket(names: tuple[str, ...], order: tuple[str, ...]) -> None:
    assert java_order(names) == order


def test_a_larger_map_has_a_larger_table() -> None:
    # 13 entries make a table of 32, where "p" is in bucket 16, after "a" in bucket 1
    names = (*"abcdefghijkl", "p")
    assert java_order(names) == names


def test_a_key_in_the_log_is_used_again_whatever_its_spelling() -> None:
    key = b'["c", {"b" : 2,"a":1}]'
    index = OffsetIndex("c", [(key, b'{"o":1}')])
    assert index.key_for({"a": 1, "b": 2}) == key
    assert index.key_for({"b": 2, "a": 1}) == key
    assert index.get({"b": 2, "a": 1}) == {"o": 1}


def test_numbers_of_different_kinds_are_different_partitions() -> None:
    index = OffsetIndex(
        "c", [(b'["c",{"a":1}]', b'{"o":1}'), (b'["c",{"a":1.0}]', b'{"o":2}'), (b'["c",{"a":true}]', b'{"o":3}')]
    )
    assert [index.get({"a": value}) for value in (1, 1.0, True)] == [{"o": 1}, {"o": 2}, {"o": 3}]
    assert len({index.key_for({"a": value}) for value in (1, 1.0, True, "1")}) == 4


def test_a_float_in_javas_spelling_is_the_same_partition() -> None:
    key = b'["c",{"a":1.0E10}]'
    assert OffsetIndex("c", [(key, b"{}")]).key_for({"a": 1e10}) == key


def test_bytes_are_base64_text_as_java_writes_them() -> None:
    assert encode_key("c", {"id": b"\x01\x02"}) == b'["c",{"id":"AQI="}]'
    assert encode_offset({"id": b"\x01\x02", "n": 1}) == b'{"id":"AQI=","n":1}'
    assert OffsetIndex("c", [(b'["c",{"id":"AQI="}]', b'{"o":1}')]).get({"id": b"\x01\x02"}) == {"o": 1}


def test_the_later_of_two_spellings_counts() -> None:
    index = OffsetIndex("c", [(b'["c",{"a":1,"b":2}]', b'{"o":1}'), (b'["c",{"b":2,"a":1}]', b'{"o":2}')])
    assert index.get({"a": 1, "b": 2}) == {"o": 2}
    assert index.key_for({"a": 1, "b": 2}) == b'["c",{"b":2,"a":1}]'
    assert len(index) == 1


def test_put_makes_reads_current() -> None:
    index = OffsetIndex("c", [(b'["c",{"a":1}]', b'{"o":1}')])
    index.put({"a": 1}, {"o": 2})
    index.put({"a": 2}, {"o": 3})
    assert sorted(index.items(), key=str) == [({"a": 1}, {"o": 2}), ({"a": 2}, {"o": 3})]
    index.put({"a": 1}, None)
    assert index.get({"a": 1}) is None
    assert index.items() == [({"a": 2}, {"o": 3})]


@pytest.mark.parametrize("value", [b"x", b"[]", b"7"])
def test_an_unreadable_offset_stops_the_task_instead_of_starting_from_scratch(value: bytes) -> None:
    index = OffsetIndex("c", [(b'["c",{"a":1}]', value)])
    with pytest.raises(Fatal, match=r"partition \{\"a\":1\} of connector 'c'.*PATCH"):
        index.get({"a": 1})
    with pytest.raises(Fatal):
        index.items()


@pytest.mark.parametrize(
    ("position", "complaint"),
    [
        ({"a": [1]}, "field a contains list"),
        ({"a": {}}, "field a contains dict"),
        ({1: "a"}, "only use String keys"),
        ([], "specified as a Map"),
        ({"a": object()}, "field a contains object"),
    ],
)
def test_what_connect_cannot_store_is_named(position: object, complaint: str) -> None:
    problem = position_problem(position)
    assert problem is not None
    assert complaint in problem


def test_a_position_that_cannot_be_stored_is_fatal() -> None:
    with pytest.raises(Fatal, match="field x contains object"):
        encode_key("c", {"x": object()})
    with pytest.raises(Fatal, match="can't be stored"):
        encode_offset({"x": 1 << 70})
    with pytest.raises(Fatal):
        OffsetIndex("c").key_for({"x": object()})


def test_an_identity_is_never_taken_for_another_dict() -> None:
    index = OffsetIndex("c")
    keys = [index.key_for({"n": number}) for number in range(3000)]  # freed dicts' addresses are used again
    assert keys == [encode_key("c", {"n": number}) for number in range(3000)]


def test_the_identity_cache_stays_small_when_every_record_has_a_new_dict() -> None:
    index = OffsetIndex("c")
    for _ in range(5000):
        index.key_for({"file": "/x"})
    assert len(index._by_identity) < 200


@given(POSITIONS)
def test_every_order_of_fields_gives_one_key(position: dict[str, object]) -> None:
    turned = dict(reversed(position.items()))
    assert to_canonical(position) == to_canonical(turned)
    key = encode_key("c", position)
    connector, partition = json.loads(key)
    assert (connector, partition) == ("c", position)
    index = OffsetIndex("c", [(key, b'{"o":1}')])
    assert index.key_for(turned) == key
    assert index.get(turned) == {"o": 1}
    assert OffsetIndex("c").key_for(position) == key
    assert encode_key("c", turned, {to_canonical(position): key}) == key


@given(POSITIONS)
def test_an_offset_reads_back(offset: dict[str, object]) -> None:
    value = encode_offset(offset)
    assert value is not None
    assert OffsetIndex("c", [(b'["c",{}]', value)]).get({}) == offset
    assert encode_offset(None) is None
