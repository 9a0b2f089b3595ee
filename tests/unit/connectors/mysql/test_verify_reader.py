from __future__ import annotations

from typing import Any

import pytest

from connectors.formats import ums
from connectors.mysql.model import BinlogPosition
from connectors.mysql.verify import MessageChange, MessageReader, cut_packets, is_delivered

TABLES = {"shop.t": ("id",), "shop.loose": ()}
POSITION = BinlogPosition(file="bin.000002", pos=500)
ROW = {"id": 1, "name": "x"}
OLD = {"id": 1, "name": "w"}


def read(topic: str, key: Any, value: Any, *, position: BinlogPosition | None = POSITION) -> list[MessageChange]:
    return list(
        MessageReader(TABLES, {"plain": "shop.t", "plain.loose": "shop.loose"}, position).changes(topic, key, value)
    )


def event(
    op: str, before: Any, after: Any, *, table: str = "t", file: str = "bin.000002", pos: int = 400
) -> dict[str, Any]:
    return {
        "op": op,
        "before": before,
        "after": after,
        "source": {"db": "shop", "table": table, "file": file, "pos": pos},
    }


def test_events() -> None:
    key = {"id": 1}
    for op in ("c", "r"):
        assert read("t", key, event(op, None, ROW)) == [MessageChange("set", "shop.t", key, ROW)]
    assert read("t", key, event("u", OLD, ROW)) == [MessageChange("set", "shop.t", key, ROW)]
    assert read("t", key, event("d", OLD, None)) == [MessageChange("gone", "shop.t", key, None)]
    for nothing in (None, event("t", None, None), event("c", None, ROW, table="other"), {"ts_ms": 1}, "text"):
        assert read("t", key, nothing) == []


def test_events_of_a_table_without_key() -> None:
    for key in (None, {"any": 1}):
        assert read("t", key, event("c", None, ROW, table="loose")) == [MessageChange("set", "shop.loose", None, ROW)]
        assert read("t", key, event("u", OLD, ROW, table="loose")) == [
            MessageChange("gone", "shop.loose", None, OLD),
            MessageChange("set", "shop.loose", None, ROW),
        ]
        assert read("t", key, event("d", OLD, None, table="loose")) == [MessageChange("gone", "shop.loose", None, OLD)]


@pytest.mark.parametrize(
    ("file", "pos", "op", "later"),
    [
        ("bin.000002", 499, "c", False),
        ("bin.000002", 500, "c", True),
        ("bin.000002", 500, "r", False),
        ("bin.000002", 501, "r", True),
        ("bin.000001", 9999, "u", False),
        ("bin.000010", 4, "d", True),
    ],
)
def test_changes_after_the_position_of_comparison_are_later(file: str, pos: int, op: str, later: bool) -> None:
    changes = read("t", {"id": 1}, event(op, OLD, ROW, file=file, pos=pos))
    assert [change.kind == "later" for change in changes] == [later]


def test_records_of_the_source_have_no_position() -> None:
    changes = read("t", {"id": 1}, event("r", None, ROW, pos=10**9), position=None)
    assert [change.kind for change in changes] == ["set"]


def test_plain_rows() -> None:
    key = {"id": 1}
    assert read("plain", key, {**ROW, "__op": "c", "__deleted": "false"}) == [MessageChange("set", "shop.t", key, ROW)]
    assert read("plain", key, {**ROW, "__deleted": "true"}) == [MessageChange("gone", "shop.t", key, None)]
    assert read("plain", key, None) == [MessageChange("gone", "shop.t", key, None)]
    assert read("plain.loose", None, ROW) == [MessageChange("set", "shop.loose", None, ROW)]
    assert read("plain.loose", None, None) == []
    assert read("unknown", key, ROW) == []


FIELDS = [*ums.SYSTEM_FIELDS, ums.make_field("id", "int"), ums.make_field("name", "string")]


def message(kind: str, *rows: tuple[int, str, str, str | None], table: str = "t") -> dict[str, Any]:
    return ums.make_message(
        kind,
        f"mysql.s.shop.{table}.3.0.0",
        FIELDS,
        [[str(number), "2026-01-01 00:00:00.000000", op, "u", key, name] for number, op, key, name in rows],
    )


def number(pos: int, n: int) -> int:
    return 2 * 10**12 + pos + n


def test_ums_messages() -> None:
    changes = read(
        "t",
        "k",
        message(
            ums.INCREMENT,
            (number(400, 2), "i", "1", "x"),
            (number(410, 1), "b", "1", "x"),
            (number(410, 2), "u", "1", None),
            (number(420, 2), "d", "1", None),
            (number(499, 0), "i", "2", "y"),
            (number(540, 0), "i", "3", "z"),
        ),
    )
    key = {"id": "1"}
    assert changes == [
        MessageChange("set", "shop.t", key, {"id": "1", "name": "x"}),
        MessageChange("gone", "shop.t", key, None),
        MessageChange("set", "shop.t", key, {"id": "1", "name": None}),
        MessageChange("gone", "shop.t", key, None),
        MessageChange("set", "shop.t", {"id": "2"}, {"id": "2", "name": "y"}),
        MessageChange("later", "shop.t", {"id": "3"}, None),
    ]
    assert [
        change.kind
        for change in read(
            "t", "k", message(ums.INITIAL, (number(500, 0), "i", "1", "x"), (number(501, 0), "i", "2", "x"))
        )
    ] == ["set", "later"]
    assert read("t", "k", ums.make_signal(ums.INCREMENT_HEARTBEAT, "mysql.s.shop.t.3.0.0", 1)) == []
    assert read("t", "k", message(ums.INCREMENT, (1, "i", "1", "x"), table="other")) == []
    assert read("t", "k", message(ums.INCREMENT, (1, "d", "1", "x"), table="loose")) == [
        MessageChange("gone", "shop.loose", None, {"id": "1", "name": "x"})
    ]


@pytest.mark.parametrize(
    ("file", "pos", "expected"),
    [("bin.000002", 500, True), ("bin.000002", 499, False), ("bin.000003", 4, True), ("bin.000001", 10**6, False)],
)
def test_reached(file: str, pos: int, expected: bool) -> None:
    offset = {"file": file, "pos": pos}
    progress = ({"server": "s", "snapshot": "initial"}, {"state": "running"})
    assert is_delivered("s", [({"server": "s"}, offset), progress], POSITION) == (expected, f"{file}:{pos}")
    far = {"file": "bin.000009", "pos": 4}
    two = [({"server": "s", "shard": "0/2"}, far), ({"server": "s", "shard": "1/2"}, offset)]
    assert is_delivered("s", two, POSITION)[0] is expected
    assert is_delivered("s", [progress], POSITION) == (False, "nowhere yet")


def test_packets_are_cut_out_of_what_was_received() -> None:
    def frame(data: bytes) -> bytes:
        return len(data).to_bytes(3, "little") + b"\x01" + data

    full = bytes((1 << 24) - 1)
    stream = (
        frame(b"one")
        + frame(b"")
        + frame(full)
        + frame(full)
        + frame(b"end")
        + frame(full)
        + frame(b"")
        + frame(b"two")
    )
    expected = [b"one", b"", full + full + b"end", full, b"two"]
    for width in (len(stream), 1 << 23, 5_000_003):
        received, first = bytearray(), b""
        cut: list[bytes] = []
        for at in range(0, len(stream), width):
            received += stream[at : at + width]
            packets, first = cut_packets(received, first)
            cut += packets
        assert [len(packet) for packet in cut] == [len(packet) for packet in expected]
        assert cut == expected
        assert (bytes(received), first) == (b"", b"")
    received = bytearray(frame(b"one")[:5])
    assert cut_packets(received) == ([], b"")
    assert len(received) == 5
