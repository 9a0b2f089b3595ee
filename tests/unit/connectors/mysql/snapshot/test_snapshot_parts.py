"""Windows, keys as SQL, the division of numbers, saved states, the throttle: each for itself."""

from __future__ import annotations

import asyncio
import struct

import pytest

from connectors.mysql.model import BLOCK, BinlogPosition, MySqlColumn, MySqlTable, Shard, TableName
from connectors.mysql.position.shards import shard_of_number
from connectors.mysql.snapshot import state
from connectors.mysql.snapshot.model import ReadRows, SnapshotChunk, row_digest
from connectors.mysql.snapshot.reading import keys
from connectors.mysql.snapshot.reading.key_ranges import KeyRange, NumberDivider
from connectors.mysql.snapshot.reading.keys import KeyColumn
from connectors.mysql.snapshot.reading.rows import PacketRows
from connectors.mysql.snapshot.reading.throttle import SnapshotThrottle
from connectors.mysql.snapshot.state import MySqlShareNote, MySqlTableNote
from connectors.mysql.snapshot.windows import ChangeWindow, Images
from connectors.snapshot.requests import SnapshotRequest
from connectors.snapshot.state import pack
from tests.support.clock import ManualClock

HERE = BinlogPosition(file="bin.000001", pos=4)
TABLE = MySqlTable(
    name=TableName("d", "t"), columns=(MySqlColumn(name="id", type=8), MySqlColumn(name="v", type=8)), key=("id",)
)


def test_a_window_lays_parts_over_rows_and_takes_whole_ones_out() -> None:
    window = ChangeWindow(HERE, 3, 100)
    window.touch((1,), {"id": 1, "v": "new"})
    window.touch((1,), {"id": 1, "w": "new"})
    window.touch((2,), {"id": 2, "v": 0, "w": 0})
    window.touch((3,), None)
    window.touch((3,), {"id": 3, "v": "part of what came after"})
    window.touch((9,), {"id": 9, "v": "not in the chunk"})
    rows = {(n,): {"id": n, "v": "old", "w": "old"} for n in (1, 2, 3, 4, 5, 6)}
    assert window.arrived(rows) == 2
    assert rows[1,] == {"id": 1, "v": "new", "w": "new"}
    window.touch((4,), {"id": 4, "w": "later"})
    window.touch((5,), None)
    window.touch((6,), {"id": 6, "v": 1, "w": 1})
    assert rows == {(1,): {"id": 1, "v": "new", "w": "new"}, (4,): {"id": 4, "v": "old", "w": "later"}}


def test_a_window_says_when_it_can_remember_no_more() -> None:
    window = ChangeWindow(HERE, 1, 2)
    for number in range(3):
        assert not window.overflown
        window.touch((number,), None)
    assert window.overflown


def test_a_row_without_a_key_that_is_changed_is_sent_before_its_change_and_not_again() -> None:
    images = Images(1, 10)
    rows = [{"v": 1}, {"v": 2}, {"v": 2}, {"v": 3}]
    assert images.changed("d", [{"v": 2}]) == [{"v": 2}]
    chunk = SnapshotChunk(
        request=SnapshotRequest(id="r", tables=[]),
        table=TABLE,
        result=ReadRows(rows, 0),
        low=HERE,
        high=HERE,
        images=images,
    )
    assert chunk.take(2) == [{"v": 1}, {"v": 2}]
    assert images.changed("u", [{"v": 3}, {"v": 4}]) == [{"v": 3}]
    assert chunk.take(2) == []
    assert chunk.taken_rows == 2
    # Copies that were sent are taken away before those that were not.
    assert images.changed("d", [{"v": 4}, {"v": 1}, {"v": 2}]) == []
    assert images.changed("c", [{"v": 1}]) == images.changed("d", [{"v": 1}]) == []
    assert images.changed("d", [{"v": 1}]) == [{"v": 1}]
    assert row_digest({"v": 1}) != row_digest({"v": "1"})


A, B, C = KeyColumn("a", "int"), KeyColumn("b`", "varchar", "latin1"), KeyColumn("c", "datetime")


def test_places_in_a_key_as_sql() -> None:
    assert keys.condition_after((A,), ("5",)) == "`a` > 5"
    assert keys.condition_until((A,), ("5",)) == "`a` <= 5"
    key = ("5", B.literal(b"\xe9'"), C.literal(b"2020-01-01 00:00:00"))
    assert key[1:] == ("_latin1 X'e927'", "'2020-01-01 00:00:00'")
    assert (
        keys.condition_after((A, B, C), key[:2])
        == "(`a` >= 5 AND ((`a` > 5) OR (`a` = 5 AND `b``` > _latin1 X'e927')))"
    )
    assert keys.condition_until((A, B, C), key) == (
        "(`a` <= 5 AND ((`a` < 5) OR (`a` = 5 AND `b``` < _latin1 X'e927') OR "
        "(`a` = 5 AND `b``` = _latin1 X'e927' AND `c` <= '2020-01-01 00:00:00')))"
    )
    assert keys.order_list((A, B), down=True) == "`a` DESC, `b``` DESC"
    assert KeyColumn("e", "enum", "utf8mb4").literal(b"3") == "3"
    assert KeyColumn("u", "uuid").literal(b"a'\\") == "'a''\\\\'"


@pytest.mark.parametrize("size", [3, 250, 251, 70_000, 1 << 24])
def test_the_key_at_a_packets_end(size: int) -> None:
    if size < 251:
        head = bytes((size,))
    elif size < 1 << 16:
        head = b"\xfc" + struct.pack("<H", size)
    elif size < 1 << 24:
        head = b"\xfd" + struct.pack("<I", size)[:3]
    else:
        head = b"\xfe" + struct.pack("<Q", size)
    packet = b"\xfb" + head + b"x" * size + b"\x02-7" + b"\x01z"
    assert keys.read_trailing(packet, 2, (A, B)) == ("-7", "_latin1 X'7a'")


class Wire:
    """Gives a result's bytes in parts, as a socket would."""

    def __init__(self, data: bytes, part_size: int) -> None:
        self._reader = self
        self._result = None
        self._data = data
        self._part_size = part_size

    async def _execute_command(self, code: int, sql: str) -> None:
        assert (code, sql) == (3, "SELECT 1")

    async def read(self, most: int) -> bytes:
        part, self._data = self._data[: min(most, self._part_size)], self._data[min(most, self._part_size) :]
        return part


def _packets(*bodies: bytes) -> bytes:
    data = bytearray()
    for number, body in enumerate(bodies):
        parts = [body[at : at + 0xFFFFFF] for at in range(0, len(body) + 1, 0xFFFFFF)]
        for part in parts:
            data += struct.pack("<I", len(part))[:3] + bytes((number & 0xFF,)) + part
    return bytes(data)


@pytest.mark.parametrize("part_size", [1, 7, 1000])
def test_rows_come_whole_however_the_network_cuts_them(part_size: int) -> None:
    rows = [b"\x01a", b"\xfb", b"\x00", b"\xfe" + struct.pack("<Q", 20) + b"y" * 20, b"\xfc\x00\x01" + b"z" * 256]
    data = _packets(b"\x01", b"column", b"\xfe\x00\x00\x02\x00", *rows, b"\xfe\x00\x00\x02\x00")
    assert asyncio.run(PacketRows(Wire(data, part_size)).all("SELECT 1")) == rows


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_rows_of_16_mib_are_joined(extra: int) -> None:
    row = b"\xfe" + struct.pack("<Q", 0xFFFFFF - 9 + extra) + b"y" * (0xFFFFFF - 9 + extra)
    data = _packets(b"\x01", b"column", b"\xfe\x00\x00\x02\x00", row, b"\x01b", b"\xfe\x00\x00\x02\x00")
    assert asyncio.run(PacketRows(Wire(data, 1 << 20)).all("SELECT 1")) == [row, b"\x01b"]


@pytest.mark.parametrize(
    "bodies",
    [
        (b"\xff\x48\x04#42S02No table",),
        (b"\x01", b"column", b"\xfe\x00\x00\x02\x00", b"\x01a", b"\xff\x48\x04#70100Killed"),
    ],
)
def test_an_error_of_the_server_in_the_result_is_raised(bodies: tuple[bytes, ...]) -> None:
    with pytest.raises(Exception, match=r"1096, '(No table|Killed)"):
        asyncio.run(PacketRows(Wire(_packets(*bodies), 9)).all("SELECT 1"))


@pytest.mark.parametrize("shard", [Shard(), Shard(0, 3), Shard(2, 3), Shard(6, 7)])
@pytest.mark.parametrize(
    ("low", "high", "rows"), [(1, 100_000, 100_000), (-20_000, 20_000, 30_000), (0, 1 << 63, 1000), (5, 5, 1)]
)
def test_numbers_are_divided_without_gaps(shard: Shard, low: int, high: int, rows: int) -> None:
    numbers = NumberDivider(low, high, rows, 5000, shard)
    rest: KeyRange | None = KeyRange(None, (str(high),))
    edge, count, named = low, 0, 0
    while rest is not None:
        front, rest = numbers.front(rest)
        assert front.until is not None
        end = int(front.until[0])
        assert end >= edge
        for begin, last in front.spans:
            named += last - begin + 1
            for number in (begin, last):
                assert shard_of_number(number, shard.count) == shard.index or begin > last
                assert number // BLOCK == begin // BLOCK or begin > last
        edge = end + 1
        count += 1
        numbers.learned(0 if high > 1 << 60 else 5000, cut=False, slow=False)
        assert count < 200
    assert edge == high + 1
    if numbers.named:
        assert named == sum(shard_of_number(number, shard.count) == shard.index for number in range(low, high + 1))


def test_a_state_survives_as_text_however_long() -> None:
    for count in (1, 5000):
        note = MySqlShareNote(
            state="running",
            resolved=True,
            started_ms=5,
            tables=[
                MySqlTableNote(
                    database="d",
                    table=f"t{number}",
                    rows=number,
                    after=("1", "X'00'"),
                    columns=("a", "b"),
                    total=10,
                    percent=50.0,
                    stage="running",
                )
                for number in range(count)
            ],
        )
        text = pack(note)
        assert len(text) < 90_000
        assert state.unpack_note(text) == note
        shown = state.show_progress("x", note)
        assert (shown["percent"], len(shown["tables"])) == (50.0, count)
    with pytest.raises(ValueError, match="no state"):
        state.unpack_note("z:nothing")


def test_the_throttle_gives_way_and_comes_back() -> None:
    throttle = SnapshotThrottle(4, 0, clock=ManualClock())
    for _ in range(5):
        throttle.probed(0.001)
    assert throttle.allowed == 4
    for _ in range(8):
        throttle.probed(0.5)
    assert throttle.allowed == 1
    assert throttle.pause_s(1.0) >= 1
    for _ in range(40):
        throttle.probed(0.001)
    assert (throttle.allowed, throttle.pause_s(1.0)) == (4, 0.0)


def test_rows_per_second_are_bounded_over_all_readers() -> None:
    clock = ManualClock()
    throttle = SnapshotThrottle(2, 1000, adaptive=False, clock=clock)
    throttle.rows(500)
    throttle.rows(1500)
    assert throttle.pause_s(0.1) == 2.0
    clock.advance(3)
    assert throttle.pause_s(0.1) <= 0
