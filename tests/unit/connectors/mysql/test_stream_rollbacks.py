"""The stream and rows that do not count in the end: rollbacks, savepoints, transactions without an end, snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from connectors.api import SourceRecord
from connectors.errors import Fatal
from connectors.mysql.model import BinlogPosition, TableName
from connectors.mysql.snapshot.model import Early
from tests.unit.connectors.mysql.synthetic import FILE, Log, description, keys, reader, rotate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connectors.api import Position
    from connectors.mysql.schema.tables import MySqlTableState


async def test_what_is_rolled_back_is_not_sent() -> None:
    log = Log()
    log.transaction(5, [1], domain=0)
    log.mariadb(6)
    log.map()
    log.insert((2, 2, b""), (3, 3, b""))
    log.query("ROLLBACK", "")
    log.transaction(7, [4], domain=0)
    stream_reader = reader({"file": FILE, "pos": 1000, "gtids": "0-1-4"}, flavor="mariadb", transactions=True)
    records = await stream_reader.feed(log.since(1000))
    shown = [
        record.key.get("id") if "transaction" not in record.topic else f"{record.value['status']} {record.value['id']}"
        for record in records
    ]
    assert shown == ["BEGIN 0-1-5", 1, "END 0-1-5", "BEGIN 0-1-7", 4, "END 0-1-7"]
    assert (stream_reader.counters.rolled_back, stream_reader.cursor.now()["gtids"]) == (1, "0-1-7")


async def test_a_row_that_is_rolled_back_is_not_refused_for_what_it_holds() -> None:
    log = Log()
    log.mariadb(5)
    log.map()
    log.insert((1, 1, b"\xff"))
    log.xid()
    log.mariadb(6)
    log.map()
    log.insert((2, 2, b"\xff"), (3, 3, b""))
    log.query("ROLLBACK", "")
    stream_reader = reader({"file": FILE, "pos": 1000, "gtids": "0-1-4"}, flavor="mariadb")
    assert not await stream_reader.feed(log.since(1000))
    (bad,) = stream_reader.stream.output.bad
    assert bad.source_offset["pos"] == 1000


class ChangeRecorder:
    """Records the changes that it gets, and wants those of the whole table."""

    def __init__(self) -> None:
        self.watched = {TableName("shop", "t"): None}
        self.withheld: dict[TableName, None] = {}
        self.changes: list[Any] = []
        self.early: list[Early] = []

    def changed(self, name: TableName, op: str, rows: Sequence[Any]) -> list[Early]:
        self.changes.append((str(name), op, len(rows)))
        return self.early

    def altered(self, name: TableName | None) -> None:
        self.changes.append(name)

    def advance(self, reached: object) -> None:
        """Nothing is withheld."""


async def test_rows_that_a_rollback_takes_back_do_not_supersede_those_of_a_snapshot() -> None:
    log = Log()
    log.mariadb(6)
    log.map()
    log.insert((2, 2, b""), (3, 3, b""))
    log.query("ROLLBACK", "")
    stream_reader, recorder = reader(flavor="mariadb"), ChangeRecorder()
    stream_reader.stream.attach(recorder, lambda _: True, lambda *_: None)  # type: ignore[arg-type]
    assert not await stream_reader.feed(log.since(1000))
    assert recorder.changes == [("shop.t", "c", 2), None]


async def test_rows_of_a_snapshot_that_are_about_to_change_come_before_their_change() -> None:
    log = Log()
    log.transaction(5, [1])
    log.map()
    log.insert((2, 2, b""))
    stream_reader, recorder = reader(), ChangeRecorder()
    recorder.early = [Early("initial", "initial", [{"id": 7}], BinlogPosition(file=FILE, pos=4))]

    def send_early(state: MySqlTableState, early: Early, offset: Position, out: list[SourceRecord]) -> None:
        assert str(state.name) == "shop.t"
        out += [SourceRecord({}, offset, "early", row) for row in early.rows]

    stream_reader.stream.attach(recorder, lambda _: True, send_early)  # type: ignore[arg-type]
    records = await stream_reader.feed(log.since(1000))
    assert [record.topic for record in records] == ["early", "p.shop.t", "early", "p.shop.t"]
    assert records[0].value == {"id": 7}
    # A restart after the early row reads its change again.
    restarted = reader(records[0].source_offset)
    assert keys(await restarted.feed(log.since(1000))) == keys([records[1], records[3]])


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_rollback_after_a_part_was_sent_is_refused(restarted: bool) -> None:
    log = Log()
    log.transaction(5, [1], domain=0)
    log.mariadb(6)
    log.map()
    log.insert((2, 2, b""), (3, 3, b""))
    log.query("ROLLBACK", "")
    *before, rollback = log.since(1000)
    stream_reader = reader(flavor="mariadb")
    records = await stream_reader.feed(before)
    if restarted:
        stream_reader = reader(records[1].source_offset, flavor="mariadb")
        await stream_reader.feed([raw for raw in log.since(records[1].source_offset["pos"]) if raw != rollback])
    else:
        stream_reader.stream.output.take(2)
    with pytest.raises(Fatal, match=r"rolled back after a part.*binlog\.buffer\.size"):
        await stream_reader.feed([rollback])


async def test_settled_records_can_be_taken_before_a_rollback() -> None:
    log = Log()
    log.transaction(5, [1], domain=0)
    log.mariadb(6)
    log.map()
    log.insert((2, 2, b""))
    log.query("ROLLBACK", "")
    *before, rollback = log.since(1000)
    stream_reader = reader(flavor="mariadb")
    await stream_reader.feed(before)
    assert stream_reader.stream.output.settled == 1
    assert keys(stream_reader.stream.output.take(1)[0]) == [1]
    assert not await stream_reader.feed([rollback])


@pytest.mark.parametrize("crossing", [True, False], ids=["next-file", "next-transaction"])
async def test_a_transaction_without_an_end_counts_as_rolled_back(crossing: bool) -> None:
    log = Log()
    log.transaction(5, [1], domain=0)
    log.mariadb(6)
    log.map()
    log.insert((2, 2, b""))
    raws = log.since(1000)
    if crossing:
        log = Log(4 + len(description(0)))
        raws += [rotate("b.000008", 4), description(log.pos)]
    begin = log.pos
    log.transaction(6, [3], domain=0)
    raws += [raw for at, raw in log.events if at >= begin]
    stream_reader = reader({"file": FILE, "pos": 1000, "gtids": "0-1-4"}, flavor="mariadb")
    assert keys(await stream_reader.feed(raws)) == [1, 3]
    assert "has no end" in stream_reader.log.text()
    assert (
        stream_reader.cursor.now().items()
        >= {"file": "b.000008" if crossing else FILE, "pos": log.pos, "gtids": "0-1-6"}.items()
    )


async def test_rollback_to_a_savepoint_is_refused_if_rows_may_be_wrong() -> None:
    log = Log(silent=True)
    log.mariadb(5)
    log.query("SAVEPOINT `s`", inside=True)
    log.map("other", 91)
    log.insert((1, 1, b""), number=91)
    log.query("ROLLBACK TO `s`", inside=True)  # of nothing that is captured
    log.map()
    log.insert((2, 2, b""))
    log.query("RELEASE SAVEPOINT `s`", inside=True)
    log.query("ROLLBACK TO `s`", inside=True)
    *before, back = log.since(1000)
    stream_reader = reader(flavor="mariadb", tables="shop[.]t")
    assert keys(await stream_reader.feed(before)) == [2]
    with pytest.raises(Fatal, match=rf"transaction at {FILE}:1000 took back a part.*new snapshot"):
        await stream_reader.feed([back])


def ids(records: Sequence[SourceRecord]) -> list[list[int]]:
    """The keys of the rows of each message."""
    message_ids = []
    for record in records:
        index = [field["name"] for field in record.value["schema"]["fields"]].index("id")
        message_ids.append([int(row["tuple"][index]) for row in record.value["payload"]])
    return message_ids


@pytest.mark.parametrize("apart", [False, True])
async def test_held_rows_of_a_rollback_are_forgotten_and_those_before_are_not(apart: bool) -> None:
    log = Log()
    log.transaction(5, [1], domain=0)
    log.mariadb(6)
    log.map()
    log.insert((2, 2, b""), (3, 3, b""))
    log.query("ROLLBACK", "")
    log.transaction(7, [4, 5], domain=0)
    stream_reader = reader(flavor="mariadb", ums=True, max_rows=100, apart=apart)
    records = await stream_reader.feed(log.since(1000))
    assert [row_id for message in ids(records) for row_id in message] == [1, 4, 5]
    assert stream_reader.holder.rows == 0
    # Messages made in the middle have rows of both transactions: they can't be called back.
    rollback = next(raw for raw in log.since(1000) if b"ROLLBACK" in raw)
    before = log.since(1000)[: log.since(1000).index(rollback)]
    stream_reader = reader(flavor="mariadb", ums=True, max_rows=100, apart=apart)
    await stream_reader.feed(before)  # makes messages
    if apart:
        assert ids(await stream_reader.feed([rollback])) == [[1]]
    else:
        with pytest.raises(Fatal, match="rolled back after a part"):
            await stream_reader.feed([rollback])
