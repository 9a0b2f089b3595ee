"""Places as offsets and numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.mysql.model import MARIADB, MYSQL, BinlogPosition
from connectors.mysql.position import positions

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_the_offset_of_debezium_is_understood_and_written_alike() -> None:
    offset = {
        "transaction_id": None,
        "ts_sec": 1700000000,
        "file": "mysql-bin.000003",
        "pos": 1234,
        "gtids": f"{A}:1-5",
        "row": 1,
        "server_id": 223344,
        "event": 2,
    }
    position = positions.from_offset(offset)
    assert position == BinlogPosition(
        file="mysql-bin.000003", pos=1234, gtids=f"{A}:1-5", event=2, row=1, server_id=223344, ts_sec=1700000000
    )
    assert positions.to_offset(position) == offset


def test_members_of_other_parts_are_ignored_and_numbers_may_be_strings() -> None:
    position = positions.from_offset({
        "file": "b.000001", "pos": "77", "gtids": f"{A}:1-5,\n{A}:7", "incremental_snapshot_primary_key": "aced",
        "snapshot": True,
        "transaction_data_collection_order_a.b": 5, "incremental_snapshot_collections": "[]", "row": None})  # fmt: skip
    assert position == BinlogPosition(file="b.000001", pos=77, gtids=f"{A}:1-5,{A}:7")
    assert positions.to_offset(position) == {
        "transaction_id": None,
        "file": "b.000001",
        "pos": 77,
        "gtids": f"{A}:1-5,{A}:7",
    }
    assert positions.from_offset({"file": "b.000001", "pos": 0}).pos == 4


@pytest.mark.parametrize("offset", [
    {}, {"pos": 4}, {"file": ""}, {"file": 3, "pos": 4}, {"file": "b.1", "pos": "x"}, {"file": "b.1", "pos": -1},
    {"file": "b.1", "pos": True}, {"file": "b.1", "pos": 1.5}, {"file": "b.1", "pos": 4, "gtids": 3},
])  # fmt: skip
def test_an_invalid_position_names_the_member(offset: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"(file|pos|gtids) must"):
        positions.from_offset(offset)


@given(
    st.builds(
        BinlogPosition,
        file=st.integers(1, 10**7).map("bin.{:06d}".format),
        pos=st.integers(4, 1 << 40),
        gtids=st.sampled_from(["", "0-1-5", f"{A}:1-5"]),
        event=st.integers(0, 1 << 40),
        row=st.integers(0, 1 << 30),
        server_id=st.integers(0, (1 << 32) - 1),
        ts_sec=st.integers(0, 1 << 33),
    )
)
def test_every_position_survives_its_offset(position: BinlogPosition) -> None:
    assert positions.from_offset(positions.to_offset(position)) == position


def test_numbers_of_files() -> None:
    names = ("binlog.000123", "a.b.1000000", "binlog", "binlog.x")
    assert [positions.file_number(name) for name in names] == [123, 1000000, 0, 0]
    assert positions.order_key(BinlogPosition(file="b.999999", pos=9)) < positions.order_key(
        BinlogPosition(file="b.1000000", pos=4)
    )
    assert positions.position_number("b.000002", 5) == 2 * 10**12 + 5


def test_reached_by_file_and_by_gtid() -> None:
    now, later = (
        BinlogPosition(file="b.000002", pos=500, gtids="0-1-5"),
        BinlogPosition(file="b.000002", pos=600, gtids="0-1-6"),
    )
    old = BinlogPosition(file="b.000001", pos=900, gtids="0-1-4")
    other_server = BinlogPosition(file="c.000009", pos=4, gtids="0-2-5")
    for by_gtid in (False, True):
        assert positions.is_reached(now, now, MARIADB, by_gtid=by_gtid)
        assert positions.is_reached(now, old, MARIADB, by_gtid=by_gtid)
        assert not positions.is_reached(now, later, MARIADB, by_gtid=by_gtid)
        assert positions.is_reached(now, other_server, MARIADB, by_gtid=by_gtid) is by_gtid
    assert not positions.is_reached(
        BinlogPosition(file="b.1", pos=4), BinlogPosition(file="b.1", pos=5), MYSQL, by_gtid=True
    )


def test_bytes_behind() -> None:
    logs = [("b.000001", 1000), ("b.000002", 2000), ("b.000003", 300)]
    assert positions.bytes_behind(BinlogPosition(file="b.000002", pos=500), logs) == 1800
    assert positions.bytes_behind(BinlogPosition(file="b.000003", pos=300), logs) == 0
    assert (
        positions.bytes_behind(BinlogPosition(file="b.000003", pos=310), logs) == 0
    )  # written since the list was made
    assert positions.bytes_behind(BinlogPosition(file="b.000000", pos=4), logs) is None
