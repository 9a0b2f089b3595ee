"""Positions of another server, and positions set by a signal: a restart neither loses nor repeats a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from connectors.mysql.config.settings import CONFIG, stream_settings
from connectors.mysql.model import MYSQL, BinlogPosition
from connectors.mysql.position.begin import RunStart, find_start
from connectors.mysql.source import event_types as types
from connectors.mysql.source import gtid
from connectors.mysql.source.connection import ServerInfo
from tests.unit.connectors.mysql.synthetic import FILE, PARTITION, UUID, Log, Reader, description, keys, reader, rotate

if TYPE_CHECKING:
    from connectors.api import Position
    from connectors.mysql.source.server import SourceServer

SETTINGS = stream_settings(
    CONFIG.parse(
        {
            "topic.prefix": "p",
            "snapshot.mode": "no_data",
            "database.hostname": "new.example.com",
            "database.user": "millrace",
        }
    )
)


class Replica:
    """A server that has the transactions of another one, in an order of its own."""

    def __init__(self, *order: int) -> None:
        self.log = Log(4, server=2)
        self.info = ServerInfo(flavor=MYSQL, version=(8, 4, 0), version_text="8.4.0", server_id=2)
        self._spans: list[tuple[int, int, int]] = []
        for number in order:
            begin = self.log.pos
            self.log.transaction(number, [number * 10, number * 10 + 1])
            self._spans.append((number, begin, self.log.pos))

    async def logs(self) -> list[tuple[str, int]]:
        return [(FILE, self.log.pos)]

    async def current_position(self, info: ServerInfo) -> BinlogPosition:
        return BinlogPosition(file=FILE, pos=self.log.pos, gtids=f"{UUID}:1-8", server_id=info.server_id)

    def events(self, begin: RunStart) -> list[bytes]:
        """The events that it sends from a start on: without the transactions that are done, or from a position."""
        if not begin.by_gtid:
            return self.log.since(begin.position.pos)
        done = gtid.parse_gtids(MYSQL, begin.position.gtids)
        left_out = [span for span in self._spans if done.contains(f"{UUID}:{span[0]}")]
        return [rotate(FILE, 4), description(0)] + [
            raw for at, raw in self.log.events if not any(first <= at < end for _, first, end in left_out)
        ]

    async def start(self, offset: Position) -> tuple[Reader, list[bytes]]:
        begin = await find_start(SETTINGS, [(PARTITION, offset)], cast("SourceServer", self), self.info)
        stream = reader(
            offset,
            server=2,
            same_server=not begin.by_gtid or begin.same_server,
            asked_until=BinlogPosition(file=FILE, pos=self.log.pos) if begin.by_gtid else None,
        )
        return stream, self.events(begin)


async def every_restart_is_exact(replica: Replica, saved: Position, expected: list[int]) -> None:
    """Whichever event the task comes to before it is restarted on the same server."""
    stream, raws = await replica.start(saved)
    offset, records = stream.cursor.now(), stream.stream.output.records
    for number in range(len(raws) + 1):
        resumed, remainder = await replica.start(offset)
        assert keys(records) + keys(await resumed.feed(remainder)) == expected, (number, offset)
        before = len(records)
        await stream.feed(raws[number : number + 1])
        if not stream.cursor.open:
            offset = stream.cursor.now()
        elif len(records) > before:
            offset = records[-1].source_offset


#: The old server's file has the same name, and the position in it is behind all that the new one has.
SAVED: dict[str, Any] = {"file": FILE, "pos": 9_000, "gtids": f"{UUID}:1-4", "source_server": 1}
SENT_IN_PART = SAVED | {"event": 3, "row": 1, "tx_rows": 0, "tx_gtid": f"{UUID}:5"}


async def test_a_restart_at_the_start_of_a_failover_asks_by_gtids_again() -> None:
    replica = Replica(1, 2, 3, 4, 5, 6)
    await every_restart_is_exact(replica, SAVED, [50, 51, 60, 61])


async def test_a_server_with_another_order_of_commits_repeats_nothing_after_a_restart() -> None:
    replica = Replica(1, 2, 5, 3, 6, 4, 7)
    await every_restart_is_exact(replica, SAVED, [50, 51, 60, 61, 70, 71])


async def test_a_transaction_that_was_sent_in_part_is_kept_while_others_that_come_first_are_open() -> None:
    replica = Replica(1, 2, 6, 7, 5, 8)
    await every_restart_is_exact(replica, SENT_IN_PART, [60, 61, 70, 71, 51, 80, 81])


async def test_two_transactions_that_were_sent_in_part_are_kept_over_two_failovers() -> None:
    saved = SENT_IN_PART | {"tx_others": f"{UUID}:6:1"}
    for order in ((5, 6, 7), (6, 5, 7), (7, 6, 5)):
        rest = {5: [51], 6: [61], 7: [70, 71]}
        await every_restart_is_exact(Replica(1, 2, *order), saved, [key for number in order for key in rest[number]])


async def test_positions_count_again_where_the_binlog_ended_when_it_was_asked_for() -> None:
    replica = Replica(1, 2, 5, 3, 6, 4, 7)
    stream, raws = await replica.start({"file": FILE, "pos": 9_000, "gtids": f"{UUID}:1-4", "source_server": 1})
    await stream.feed(raws[:-1])
    assert stream.cursor.now()["by_gtid"] is True
    await stream.feed(raws[-1:])
    offset = stream.cursor.now()
    assert "by_gtid" not in offset
    begin = await find_start(SETTINGS, [(PARTITION, offset)], cast("SourceServer", replica), replica.info)
    assert (begin.by_gtid, begin.same_server) == (False, True)


@pytest.mark.parametrize("before", ["", f"{UUID}:1-4"])
async def test_a_stream_that_began_without_gtids_continues_on_another_server(before: str) -> None:
    # snapshot.mode=never begins with the oldest file, and a signal may name a file: both know no transactions.
    log = Log(4)
    log.event(types.PREVIOUS_GTIDS, gtid.MySqlGtids.parse(before).encoded())
    first = 5 if before else 1
    log.transaction(first, [first])
    stream = reader({"file": FILE, "pos": 4, "source_server": 1})
    assert keys(await stream.feed(log.since(4))) == [first]
    replica = Replica(*range(1, first + 3))
    resumed, raws = await replica.start(stream.cursor.now())
    numbers = [first + 1, first + 2]
    assert keys(await resumed.feed(raws)) == [key for number in numbers for key in (number * 10, number * 10 + 1)]


async def test_a_server_without_gtids_has_none_in_offsets() -> None:
    log = Log(4)
    log.event(types.PREVIOUS_GTIDS, gtid.MySqlGtids().encoded())
    log.anonymous()
    log.query("BEGIN", "")
    log.map()
    log.insert((1, 10, b"x"))
    log.xid()
    stream = reader({"file": FILE, "pos": 4})
    (record,) = await stream.feed(log.since(4))
    assert "gtids" not in record.source_offset
    assert "gtids" not in stream.cursor.now()


async def test_an_offset_of_debezium_inside_a_transaction_is_kept_until_the_transaction_comes() -> None:
    replica = Replica(1, 2, 3, 4, 5, 6)
    begin = next(at for at, raw in replica.log.events if raw.endswith(b"BEGIN") and at > replica.log.pos * 4 // 6)
    # BEGIN, TABLE_MAP and one row of transaction 5, counted from BEGIN.
    saved = {"file": FILE, "pos": begin, "gtids": f"{UUID}:1-4", "event": 2, "row": 1, "server_id": 2}
    await every_restart_is_exact(replica, saved, [51, 60, 61])


async def test_what_former_tasks_have_delivered_on_one_server_does_not_count_on_another() -> None:
    replica = Replica(1, 2, 3, 4, 5, 6)
    saved: dict[str, Any] = {
        "file": FILE,
        "pos": 9_000,
        "gtids": f"{UUID}:1-4",
        "source_server": 1,
        "shard_layout": 2,
        "shard_origin": "new:b.000001:4:0:0",
        "shard_done": "0/2@7:99000:0:0,1/2@7:99000:0:0",
    }
    await every_restart_is_exact(replica, saved, [50, 51, 60, 61])


async def test_a_signal_that_has_set_the_position_is_remembered_until_the_stream_has_come_by_it() -> None:
    log = Log()
    for number in (5, 6, 7):
        log.transaction(number, [number])
    ends = [at for at, raw in log.events if raw[4] == types.GTID]
    signal = next(at for at, raw in log.events if raw[4] == types.WRITE_ROWS and at > ends[1])
    saved = {"file": FILE, "pos": 1000, "gtids": f"{UUID}:1-4", "source_server": 1, "moved_by": f"1:{FILE}:{signal}"}
    stream = reader(saved)
    passed = []
    for raw in log.since(1000):
        await stream.feed([raw])
        assert ("moved_by" in stream.cursor.now()) is stream.cursor.moved_back
        passed.append((stream.cursor.pos, stream.cursor.moved_back))
    assert passed == [(pos, pos < ends[2]) for pos, _ in passed]
    assert not reader(saved, server=2, same_server=False).cursor.moved_back
