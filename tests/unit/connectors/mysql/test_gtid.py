"""GTID sets of both flavors: text, order, inclusion, and MySQL's form on the wire against the library's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysqlreplication.gtid import GtidSet as LibrarySet

from connectors.errors import ConfigInvalid
from connectors.mysql.source import gtid
from connectors.mysql.source.gtid import MariaDbGtids, MySqlGtids

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "aaaaaaaa-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(("text", "canonical"), [
    ("", ""),
    (f"{A}:1-5", f"{A}:1-5"),
    (f"{A.upper()}:7:1-5,\n {B}:3", f"{A}:1-5:7,{B}:3"),
    (f"{A}:1-5:6-8", f"{A}:1-8"),
    (f"{A}:1-5:3-9:20", f"{A}:1-9:20"),
    (f"{B}:1,{A}:1,{A}:2", f"{A}:1-2,{B}:1"),
    (f"{A}:Tag_b:4:1-3,{A}:9,{A}:a_tag:1", f"{A}:9:a_tag:1:tag_b:1-4"),
])  # fmt: skip
def test_text_of_mysql_sets(text: str, canonical: str) -> None:
    gtids = gtid.parse_gtids("mysql", text)
    assert gtids.text() == canonical
    assert gtid.parse_gtids("mysql", canonical) == gtids
    assert bool(gtids) == bool(canonical)


@pytest.mark.parametrize(
    "text", ["x", A, f"{A}:", f"{A}:5-1", f"{A}:0", f"{A}:1-2-3", f"{A}:-1", f"{A}:9tag:1", "0-1-2"]
)
def test_what_is_no_mysql_set_says_so(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="no GTID set of MySQL"):
        gtid.parse_gtids("mysql", text)


def test_mysql_sets_grow_by_transactions_in_any_order() -> None:
    gtids = MySqlGtids.parse(f"{A}:1-5")
    for transaction in (f"{A}:6", f"{A}:9", f"{A}:8", f"{B}:1", f"{A}:7", f"{B}:tag:1", f"{A}:6"):
        gtids.add(transaction)
    assert gtids.text() == f"{A}:1-9,{B}:1:tag:1"
    assert gtids.contains(f"{A}:9")
    assert not gtids.contains(f"{A}:10")
    assert gtids.contains(f"{B}:tag:1")
    assert not gtids.contains(f"{A}:tag:1")


def test_mysql_inclusion_union_and_filter() -> None:
    small, large = MySqlGtids.parse(f"{A}:2-3:5"), MySqlGtids.parse(f"{A}:1-3:5-6,{B}:1")
    assert small.is_subset(large)
    assert not large.is_subset(small)
    assert not MySqlGtids.parse(f"{A}:3-5").is_subset(large)
    assert small.union(large) == large
    assert small.union(MySqlGtids.parse(f"{A}:4,{B}:1")).text() == f"{A}:2-5,{B}:1"
    assert small.text() == f"{A}:2-3:5"
    assert large.retain(lambda source: source == B).text() == f"{B}:1"
    other = large.copy()
    other.add(f"{A}:7")
    assert large.text() == f"{A}:1-3:5-6,{B}:1"


_numbers = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), min_size=1, max_size=12)


@given(_numbers, _numbers)
def test_mysql_sets_are_sets(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    def build(pairs: list[tuple[int, int]]) -> tuple[MySqlGtids, set[int]]:
        text = ",".join(f"{A}:{start}-{start + more}" for start, more in pairs)
        return MySqlGtids.parse(text), {number for start, more in pairs for number in range(start, start + more + 1)}

    (left, left_numbers), (right, right_numbers) = build(first), build(second)
    assert {number for number in range(1, 80) if left.contains(f"{A}:{number}")} == left_numbers
    assert left.is_subset(right) == (left_numbers <= right_numbers)
    rest = left.minus(right)
    assert {number for number in range(1, 80) if rest.contains(f"{A}:{number}")} == left_numbers - right_numbers
    assert MySqlGtids.parse(rest.text()) == rest
    both = left.union(right)
    assert {number for number in range(1, 80) if both.contains(f"{A}:{number}")} == left_numbers | right_numbers
    assert MySqlGtids.parse(both.text()) == both
    one_by_one = MySqlGtids()
    for number in sorted(left_numbers):
        one_by_one.add(f"{A}:{number}")
    assert one_by_one.text() == left.text()
    assert left.encoded() == LibrarySet(left.text()).encoded()
    assert MySqlGtids.decode(left.encoded()) == left


def test_tags_change_the_form_on_the_wire() -> None:
    gtids = MySqlGtids.parse(f"{A}:1-5:x_1:7")
    uuid = bytes.fromhex(A.replace("-", ""))
    number_one = (1).to_bytes(8, "little")
    assert gtids.encoded() == (
        b"\x01\x02\0\0\0\0\0\x01"
        + uuid + b"\0" + number_one + number_one + (6).to_bytes(8, "little")
        + uuid + b"\x06x_1" + number_one + (7).to_bytes(8, "little") + (8).to_bytes(8, "little")
    )  # fmt: skip
    assert MySqlGtids.decode(gtids.encoded()) == gtids
    with pytest.raises(ConfigInvalid, match="cut"):
        MySqlGtids.decode(gtids.encoded()[:-3])


def test_mariadb_sets_are_the_last_of_each_domain() -> None:
    gtids = MariaDbGtids.parse("2-7-5, 0-1-100,0-2-105,\n0-3-99")
    assert gtids.text() == "0-2-105,2-7-5"
    gtids.add("0-1-106")
    gtids.add("1-1-1")
    assert gtids.text() == "0-1-106,1-1-1,2-7-5"
    assert gtids.contains("0-9-106")
    assert not gtids.contains("0-1-107")
    assert not gtids.contains("3-1-1")
    assert MariaDbGtids.parse("0-5-106").is_subset(gtids)
    assert not MariaDbGtids.parse("0-5-106,3-1-1").is_subset(gtids)
    assert gtids.union(MariaDbGtids.parse("0-8-200,3-1-1")).text() == "0-8-200,1-1-1,2-7-5,3-1-1"
    assert gtids.retain(lambda source: source.startswith("0-")).text() == "0-1-106"
    other = gtids.copy()
    other.add("2-7-6")
    assert gtids.text() == "0-1-106,1-1-1,2-7-5"
    assert MariaDbGtids.parse("").text() == ""
    assert not MariaDbGtids.parse("")


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(1, 30), st.booleans()), max_size=20))
def test_a_mariadb_set_is_the_last_transaction_of_domain_id_domain(
    added: list[tuple[int, int, int, bool]],
) -> None:
    gtids, last = MariaDbGtids.parse("0-1-1"), {0: (1, 1)}
    for domain, server, number, looked in added:
        gtids.add(f"{domain}-{server}-{number}")
        last[domain] = (server, number)
        if looked:  # what was asked for in between makes no difference
            assert gtids.contains(f"{domain}-{server}-{number}")
            assert not gtids.contains(f"{domain}-{server}-{number + 1}")
        other = gtids.copy()
        other.add("5-1-1")
        assert gtids.text() == ",".join(f"{domain_id}-{at}-{seen}" for domain_id, (at, seen) in sorted(last.items()))
        assert other.text() == f"{gtids.text()},5-1-1"
        assert gtids.is_subset(other)
        assert gtids == MariaDbGtids.parse(gtids.text())


@pytest.mark.parametrize("text", ["1-2", f"{A}:1-5", "0-1-x", "0-1-2-3"])
def test_what_is_no_mariadb_set_says_so(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="DOMAIN-SERVER-NUMBER"):
        gtid.parse_gtids("mariadb", text)
