"""The stream over events made by an encoder of its own: frames of transactions, positions, resuming, and refusals."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest

from connectors.errors import Fatal
from connectors.mysql.model import TableName
from connectors.mysql.source import event_types as types
from tests.unit.connectors.mysql.synthetic import (
    FILE,
    PARTITION,
    STANDALONE,
    UUID,
    Log,
    artificial,
    description,
    keys,
    payload,
    query,
    reader,
    rotate,
    rows_body,
    table_map,
)


async def every_resume_is_exact(log: Log, flavor: str, **more: Any) -> None:
    """From the offset of any record exactly what comes after it is read."""
    begin = log.events[0][0]
    records = await reader({"file": FILE, "pos": begin}, flavor=flavor, **more).feed(log.since(begin))
    expected = keys(records)
    assert len(expected) > 5
    for number, record in enumerate(records):
        resumed = reader(record.source_offset, flavor=flavor, **more)
        rest = await resumed.feed(log.since(record.source_offset["pos"]))
        assert keys(rest) == expected[number + 1 :], record.source_offset
        assert resumed.cursor.restart_position().pos == log.pos
        assert [record.source_offset for record in rest] == [record.source_offset for record in records[number + 1 :]]


async def test_transactions_of_mysql_can_be_resumed_after_any_row() -> None:
    log = Log()
    log.transaction(5, [1, 2, 3], [4])
    log.transaction(6, [5])
    log.transaction(7, [6, 7], [8, 9])
    begin = {"file": FILE, "pos": 1000, "gtids": f"{UUID}:1-4"}
    records = await reader(begin).feed(log.since(1000))
    assert keys(records) == [*range(1, 10)]
    first, last = records[0], records[-1]
    assert first.value["after"] == {"id": 1, "v": 10, "s": "x"}
    rows = log.events[3][0]
    source = first.value["source"]
    assert (source["gtid"], source["file"], source["pos"], source["row"]) == (f"{UUID}:5", FILE, rows, 0)
    assert (
        first.source_offset.items()
        >= {
            "pos": 1000,
            "event": 3,
            "row": 1,
            "gtids": f"{UUID}:1-4",
            "tx_gtid": f"{UUID}:5",
            "tx_rows": 0,
            "source_server": 1,
        }.items()
    )
    # After an event's last row: nothing of the next one.
    assert records[2].source_offset.items() >= {"event": 4, "row": 0, "tx_rows": 3}.items()
    assert last.source_offset["gtids"] == f"{UUID}:1-6"
    await every_resume_is_exact(log, "mysql")


async def test_anonymous_transactions_have_no_gtid_and_can_be_resumed() -> None:
    log = Log()
    for first in (1, 4):
        log.anonymous()
        log.query("BEGIN", "")
        log.map()
        log.insert((first, 1, b""), (first + 1, None, b"y"), (first + 2, 1, b""))
        log.query("COMMIT", "")
    records = await reader().feed(log.since(1000))
    assert records[1].value["after"] == {"id": 2, "v": None, "s": "y"}
    assert records[0].value["source"].get("gtid") is None
    assert not {"gtids", "tx_gtid"} & records[0].source_offset.keys()
    await every_resume_is_exact(log, "mysql")


async def test_mariadb_tells_no_positions_inside_transactions() -> None:
    log = Log(silent=True)
    log.transaction(5, [1, 2], [3], domain=0)
    log.transaction(6, [4, 5, 6], domain=0)
    stream_reader = reader({"file": FILE, "pos": 1000, "gtids": "0-1-4"}, flavor="mariadb")
    records = await stream_reader.feed(log.since(1000))
    inserts = [at for at, raw in log.events if raw[4] == types.WRITE_ROWS]
    assert [record.value["source"]["pos"] for record in records] == [inserts[0]] * 2 + [inserts[1]] + [inserts[2]] * 3
    assert stream_reader.cursor.now().items() >= {"pos": log.pos, "gtids": "0-1-6"}.items()
    await every_resume_is_exact(log, "mariadb")


async def test_an_offset_of_debezium_counts_from_begin_where_the_server_sends_the_gtid_first() -> None:
    log = Log()
    log.transaction(5, [1, 2, 3], [4, 5])
    begin = log.events[1][0]
    # BEGIN, TABLE_MAP and one row; then also the whole first event, the second map, and one row of that.
    for events_done, row, expected in ((2, 1, [2, 3, 4, 5]), (4, 1, [5]), (3, 0, [4, 5])):
        saved = {
            "transaction_id": None,
            "file": FILE,
            "pos": begin,
            "gtids": f"{UUID}:1-4",
            "event": events_done,
            "row": row,
        }
        assert keys(await reader(saved).feed(log.since(1000))) == expected
        assert keys(await reader(saved).feed(log.since(begin))) == expected


async def test_on_another_server_the_rows_of_the_transaction_count() -> None:
    old, new = Log(silent=True), Log(50_000, server=2, silent=True)
    old.transaction(5, [1, 2, 3], [4, 5], domain=0)
    # The same transaction in other chunks, with others of another domain before it.
    new.transaction(70, [100, 101], domain=3)
    new.transaction(71, [102], domain=3)
    new.server = 1  # an event keeps the number of the server where it was made
    new.transaction(5, [1], [2, 3, 4], [5], domain=0)
    new.server = 2
    new.transaction(6, [6, 7], domain=0)
    everything = [100, 101, 102, 1, 2, 3, 4, 5, 6, 7]
    for number, record in enumerate(
        await reader({"file": FILE, "pos": 1000, "gtids": "0-1-4"}, flavor="mariadb").feed(old.since(1000))
    ):
        moved = reader(record.source_offset, flavor="mariadb", same_server=False, server=2)
        expected = [key for key in everything if key not in range(1, number + 2)]
        records = await moved.feed(new.since(50_000))
        assert keys(records) == expected
        assert moved.cursor.now()["gtids"] == "0-2-6,3-2-71"
        # The task is stopped there after a transaction of the other domain, and begins again on that server.
        between = next(event for event in new.events if event[0] > 50_000 and event[1][4] == types.MARIADB_GTID)[0]
        stopped = reader(record.source_offset, flavor="mariadb", same_server=False, server=2)
        await stopped.feed(
            [raw for raw in new.since(50_000) if raw in {early for at, early in new.events if at < between}]
        )
        saved = stopped.cursor.now()
        assert (
            saved.items()
            >= {"pos": between, "gtids": "0-1-4,3-2-70", "tx_gtid": "0-1-5", "tx_rows": number + 1}.items()
        )
        resumed = reader(saved, flavor="mariadb", server=2)
        assert keys(await resumed.feed(new.since(between))) == [key for key in expected if key not in {100, 101}]


async def test_a_transaction_that_the_new_server_never_had_is_reported() -> None:
    old, new = Log(), Log(server=2)
    old.transaction(5, [1, 2, 3], domain=0)
    new.transaction(5, [7, 8, 9], domain=0)
    record = (await reader({"file": FILE, "pos": 1000, "gtids": "0-1-4"}, flavor="mariadb").feed(old.since(1000)))[1]
    moved = reader(record.source_offset, flavor="mariadb", same_server=False, server=2)
    assert keys(await moved.feed(new.since(1000))) == [7, 8, 9]
    assert re.search("0-1-5, of which 2 rows were sent, is not on this server, where 0-2-5", moved.log.text())
    assert "tx_rows" not in moved.cursor.now()


async def test_xa_transactions_are_sent_when_they_are_prepared() -> None:
    log = Log()
    log.gtid(5)
    log.query("XA START X'61',X'',1", "")
    log.map()
    log.insert((1, 1, b""), (2, 2, b""))
    log.query("XA END X'61',X'',1", "")
    log.event(types.XA_PREPARE, b"\0" + struct.pack("<III", 1, 1, 0) + b"a")
    log.transaction(6, [3, 4])
    log.gtid(7)
    log.query("XA COMMIT X'61',X'',1", "")
    log.transaction(8, [5, 6])
    stream_reader = reader({"file": FILE, "pos": 1000, "gtids": f"{UUID}:1-4"}, transactions=True)
    records = await stream_reader.feed(log.since(1000))
    assert keys([record for record in records if "transaction" not in record.topic]) == [1, 2, 3, 4, 5, 6]
    ends = [
        record.value["id"] for record in records if "transaction" in record.topic and record.value["status"] == "END"
    ]
    assert ends == [f"{UUID}:5", f"{UUID}:6", f"{UUID}:8"]
    assert stream_reader.cursor.now()["gtids"] == f"{UUID}:1-8"
    await every_resume_is_exact(log, "mysql")
    assert "XA ROLLBACK" not in stream_reader.log.text()
    log.gtid(9)
    log.query("XA ROLLBACK X'62',X'',1", "")
    await stream_reader.feed([raw for _, raw in log.events[-2:]])
    assert re.search("XA ROLLBACK X'62'.*takes back a transaction whose rows were sent", stream_reader.log.text())
    assert stream_reader.cursor.now()["gtids"] == f"{UUID}:1-9"


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
async def test_statements_of_structure_are_transactions_of_their_own(flavor: str) -> None:
    log = Log()
    domain = 0 if flavor == "mariadb" else None
    log.transaction(5, [1], domain=domain)
    log.mariadb(6, flags=STANDALONE | 0x20) if domain == 0 else log.gtid(6)
    log.query("ALTER TABLE t ADD COLUMN w INT")
    log.transaction(7, [2], domain=domain)
    gtids = {"mysql": f"{UUID}:1-4", "mariadb": "0-1-4"}[flavor]
    stream_reader = reader({"file": FILE, "pos": 1000, "gtids": gtids}, flavor=flavor)
    raws = log.since(1000)
    ddl = next(number for number, raw in enumerate(raws) if b"ALTER" in raw)
    await stream_reader.feed(raws[: ddl + 1])
    assert [(statement.kind, statement.tables) for statement in stream_reader.statements] == [
        ("alter", (TableName("shop", "t"),))
    ]
    assert (stream_reader.cursor.open, stream_reader.cursor.now().get("event")) == (False, None)
    assert stream_reader.cursor.now()["gtids"] == {"mysql": f"{UUID}:1-6", "mariadb": "0-1-6"}[flavor]
    assert keys(await stream_reader.feed(raws[ddl + 1 :])) == [1, 2]


async def test_an_alter_in_two_phases_counts_once_and_not_where_it_is_taken_back() -> None:
    log = Log()
    start, commit, rollback = b"\x02" + bytes(6), b"\x04" + struct.pack("<Q", 5), b"\x08" + struct.pack("<Q", 8)
    for number, (extra, statement) in enumerate(
        [
            (start, "ALTER TABLE other.u RENAME TO shop.u"),
            (b"", ""),
            (commit, "ALTER TABLE other.u RENAME TO shop.u"),
            (start, "ALTER TABLE shop.t ADD UNIQUE KEY (v)"),
            (rollback, "ALTER TABLE shop.t ADD UNIQUE KEY (v)"),
            (b"", ""),
        ],
        5,
    ):
        if statement:
            log.mariadb(number, flags=0x21, extra=extra)
            log.query(statement)
        else:
            log.transaction(number, [number], domain=0)
    stream_reader = reader({"file": FILE, "pos": 1000, "gtids": "0-1-4"}, flavor="mariadb")
    assert keys(await stream_reader.feed(log.since(1000))) == [6, 10]
    assert [statement.text for statement in stream_reader.statements] == ["ALTER TABLE other.u RENAME TO shop.u"]
    assert stream_reader.cursor.executed_text() == "0-1-10"
    assert not stream_reader.cursor.open


async def test_the_rows_of_a_payload_have_one_count() -> None:
    log = Log()
    log.gtid(5)
    begin = log.event(
        types.TRANSACTION_PAYLOAD,
        payload(
            (types.QUERY, query("BEGIN", "")),
            (types.TABLE_MAP, table_map("t", 90)),
            (types.WRITE_ROWS, rows_body([(1, 1, b""), (2, 2, b"")], 90)),
            (types.TABLE_MAP, table_map("t", 90)),
            (types.WRITE_ROWS, rows_body([(3, 3, b""), (4, 4, b"")], 90)),
            (types.XID, bytes(8)),
        ),
    )
    log.transaction(6, [5], [6, 7])
    records = await reader().feed(log.since(1000))
    assert [(record.value["source"]["pos"], record.value["source"]["row"]) for record in records[:4]] == [
        (begin, row) for row in range(4)
    ]
    assert [(record.source_offset["event"], record.source_offset["row"]) for record in records[:4]] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (1, 4),
    ]
    await every_resume_is_exact(log, "mysql")


async def test_files_follow_one_another() -> None:
    log = Log()
    log.transaction(5, [1])
    log.event(types.ROTATE, struct.pack("<Q", 4) + b"b.000008")
    following = Log(4 + len(description(0)))
    following.transaction(6, [2])
    raws = [*log.since(1000), rotate("b.000008", 4), description(following.pos), *(raw for _, raw in following.events)]
    stream_reader = reader()
    records = await stream_reader.feed(raws)
    assert [(record.value["source"]["file"], record.source_offset["file"]) for record in records] == [
        (FILE, FILE),
        ("b.000008", "b.000008"),
    ]
    assert stream_reader.cursor.now().items() >= {"file": "b.000008", "pos": following.pos}.items()


async def test_heartbeats_move_the_position_only_between_transactions() -> None:
    log = Log()
    log.transaction(5, [1])
    beat = artificial(types.HEARTBEAT, FILE.encode(), log.pos + 500)
    *raws, end = log.since(1000)
    stream_reader = reader()
    await stream_reader.feed([*raws, beat])
    assert stream_reader.cursor.now()["pos"] == 1000
    await stream_reader.feed([end, beat])
    assert stream_reader.cursor.now()["pos"] == log.pos + 500


@pytest.mark.parametrize("silent", [False, True])
async def test_positions_beyond_four_gigabytes(silent: bool) -> None:
    far = (1 << 32) - 1500
    log = Log(far, silent=silent)
    domain = 0 if silent else None
    flavor = "mariadb" if silent else "mysql"
    for number in range(1, 20):
        log.transaction(number, [number], [-number], domain=domain)
    assert log.pos > 1 << 32
    await every_resume_is_exact(log, flavor)
    stream_reader = reader({"file": FILE, "pos": far}, flavor=flavor)
    records = await stream_reader.feed(log.since(far))
    inserts = [at for at, raw in log.events if raw[4] == types.WRITE_ROWS]
    assert [record.value["source"]["pos"] for record in records] == inserts


async def test_an_event_that_ends_where_positions_wrap_is_not_taken_for_an_artificial_one() -> None:
    log = Log((3 << 32) - 38, silent=True)
    log.transaction(5, [1], domain=0)
    assert log.events[1][0] == 3 << 32
    stream_reader = reader({"file": FILE, "pos": log.events[0][0], "gtids": "0-1-4"}, flavor="mariadb")
    assert keys(await stream_reader.feed(log.since(log.events[0][0]))) == [1]
    assert stream_reader.cursor.now().items() >= {"pos": log.pos, "gtids": "0-1-5"}.items()


@pytest.mark.parametrize(("kind", "flags", "refused"), [
    (99, 0x80, ""), (99, 0, r"unknown type \(99\)"), (types.EXECUTE_LOAD_QUERY, 0, r"EXECUTE_LOAD_QUERY \(18\)"),
    (types.PRE_GA_WRITE_ROWS, 0, r"PRE_GA_WRITE_ROWS"), (types.USER_VAR, 0, ""), (types.INTVAR, 0, ""),
    (types.VIEW_CHANGE, 0, ""), (types.INCIDENT, 0, "gap at .*incident 1: lost.*snapshot of all tables"),
])  # fmt: skip
async def test_events_of_other_types(kind: int, flags: int, refused: str) -> None:
    log = Log()
    log.transaction(5, [1])
    log.event(kind, b"\x01\x00\x04lost" if kind == types.INCIDENT else b"body", flags=flags)
    log.transaction(6, [2])
    stream_reader = reader()
    if refused:
        with pytest.raises(Fatal, match=refused) as error:
            await stream_reader.feed(log.since(1000))
        assert FILE in str(error.value)
        assert keys(stream_reader.stream.output.records) == [1]
        return
    assert keys(await stream_reader.feed(log.since(1000))) == [1, 2]


async def test_rows_without_a_table_map_are_refused() -> None:
    log = Log()
    log.gtid(5)
    log.query("BEGIN", "")
    log.insert((1, 1, b""))
    with pytest.raises(
        Fatal, match=r"rows at .* table number 90, which no event before has described.*inside a transaction"
    ):
        await reader().feed(log.since(1000))
    log = Log()
    log.gtid(5)
    log.query("BEGIN", "")
    log.event(types.WRITE_ROWS, rows_body([], 0xFFFFFF))  # only ends a statement
    assert not await reader().feed(log.since(1000))


async def test_a_position_inside_a_transaction_can_be_resumed_from() -> None:
    log = Log()
    log.gtid(5)
    log.query("BEGIN", "")
    inside = log.map()
    log.insert((1, 1, b""), (2, 2, b""), (3, 3, b""))
    log.xid()
    records = await reader({"file": FILE, "pos": inside}).feed(log.since(inside))
    for number, record in enumerate(records):
        assert record.source_offset["pos"] == inside
        assert keys(await reader(record.source_offset).feed(log.since(inside))) == [1, 2, 3][number + 1 :]


@pytest.mark.parametrize(("text", "schema", "refused"), [
    ("INSERT INTO t VALUES (1)", "shop", True), ("insert into shop.t select 1", "other", True),
    ("INSERT INTO rds_heartbeat2 (id) VALUES (1)", "mysql", False), ("INSERT INTO other.x VALUES (1)", "shop", False),
    ("INSERT INTO apart VALUES (1)", "shop", False), ("UPDATE apart JOIN t SET t.v = 1", "shop", True),
    ("DELETE FROM other.x", "other", False), ("DELETE FROM `shop`.`t`", "other", True),
])  # fmt: skip
async def test_rows_changed_by_statements_are_not_passed_over(text: str, schema: str, refused: bool) -> None:
    log = Log(silent=True)
    log.mariadb(5)
    log.query(text, schema, inside=True)
    log.xid()
    log.transaction(6, [1], domain=0)
    stream_reader = reader(flavor="mariadb", tables="shop[.]t", databases="shop")
    if not refused:
        assert keys(await stream_reader.feed(log.since(1000))) == [1]
        return
    with pytest.raises(Fatal, match=rf"statement at {FILE}:\d+ in database {schema}.*binlog_format=ROW.*new snapshot"):
        await stream_reader.feed(log.since(1000))
    going = reader(flavor="mariadb", tables="shop[.]t", databases="shop", keep_going=True)
    assert keys(await going.feed(log.since(1000))) == [1]
    assert "binlog_format=ROW" in going.log.text()


async def test_bad_rows_are_reported_with_their_offset_and_the_others_are_sent() -> None:
    log = Log()
    log.gtid(5)
    log.query("BEGIN", "")
    log.map()
    log.insert((1, 1, b"a"), (2, 2, b"\xff"), (3, 3, b"c"))
    log.xid()
    log.transaction(6, [4])
    stream_reader = reader()
    records = await stream_reader.feed(log.since(1000))
    assert keys(records) == [1, 3, 4]
    taken_records, (bad,) = stream_reader.stream.output.take(99)
    assert taken_records == records
    assert re.match(rf"shop\.t: row 1 of the event at {FILE}:\d+ column s can't be decoded", str(bad.error))
    assert (bad.topic, bad.source_partition, stream_reader.counters.bad) == ("p.shop.t", PARTITION, 1)
    assert bad.source_offset is not None
    # After a start at its offset, or at that of the row after it, it is not reported again; at the one before, it is.
    for offset, rows, bad_count in (
        (records[0].source_offset, [3, 4], 1),
        (bad.source_offset, [3, 4], 0),
        (records[1].source_offset, [4], 0),
    ):
        resumed = reader(offset)
        assert keys(await resumed.feed(log.since(1000))) == rows
        assert len(resumed.stream.output.bad) == bad_count
    going = reader(keep_going=True)
    assert keys(await going.feed(log.since(1000))) == [1, 3, 4]
    assert not going.stream.output.bad
    assert re.search("row is left out: shop.t: row 1", going.log.text())


async def test_transactions_of_unwanted_sources_are_left_out() -> None:
    log = Log()
    log.transaction(5, [1])
    assert not await reader(wants=lambda source: source != UUID).feed(log.since(1000))
    assert keys(await reader(wants=lambda source: source == UUID).feed(log.since(1000))) == [1]
    body = varlen(0) + varlen(1) + varlen(1) + b"".join(map(varlen, bytes.fromhex(UUID.replace("-", ""))))
    body += varlen(2) + varlen(7 << 1) + varlen(3) + varlen(4) + b"blue"
    body += varlen(4) + varlen(10) + varlen(5) + varlen(12) + varlen(6) + varlen(9) + varlen(8) + varlen(77)
    tagged = Log()
    tagged.event(types.GTID_TAGGED, varlen(1) + varlen(len(body) + 3) + varlen(10) + body)
    tagged.query("BEGIN", "")
    tagged.map()
    tagged.insert((2, 2, b""))
    tagged.xid()
    records = await reader(wants=lambda source: source == UUID).feed(tagged.since(1000))
    assert [record.value["source"]["gtid"] for record in records] == [f"{UUID}:blue:7"]


def varlen(value: int) -> bytes:
    return bytes([value << 1]) if value < 128 else (value << 2 | 1).to_bytes(2, "little")


async def test_messages_of_several_rows_say_nothing_of_rows_that_are_in_later_ones() -> None:
    log = Log()
    log.transaction(5, [1, 2], [3])
    records = await reader(ums=True).feed(log.since(1000))
    assert len(records) == 3
    for number, expected in ((0, 3), (1, 3), (2, 0)):
        resumed = reader(records[number].source_offset, ums=True)
        assert len(await resumed.feed(log.since(1000))) == expected


async def test_events_with_other_columns_than_the_one_before_are_decoded_by_their_own() -> None:
    log = Log()
    log.gtid(5)
    log.query("BEGIN", "")
    log.map()
    whole = rows_body([(1, 10, b"x")], 90)
    key_and_text = (90).to_bytes(6, "little") + b"\x01\0\x02\0\x03\x05" + b"\0" + struct.pack("<i", 2) + b"\x01y"
    for body in (whole, key_and_text, whole, key_and_text):
        log.event(types.WRITE_ROWS, body, inside=True)
    log.xid()
    stream_reader = reader({"file": FILE, "pos": 1000, "gtids": f"{UUID}:1-4"})
    records = await stream_reader.feed(log.since(1000))
    assert [sorted(record.key.items()) for record in records] == [[("id", 1)], [("id", 2)]] * 2
    assert [record.value["after"].get("v") for record in records] == [10, None] * 2
    assert [record.value["after"]["s"] for record in records] == ["x", "y"] * 2


async def test_an_event_waits_only_for_the_structure_of_a_new_table() -> None:
    log = Log()
    log.transaction(5, [1])
    log.transaction(6, [2])
    stream_reader = reader({"file": FILE, "pos": 1000, "gtids": f"{UUID}:1-4"})
    waited = []
    for raw in log.since(1000):
        waiting = stream_reader.stream.accept(raw)
        if waiting is not None:
            waited.append(raw[4])
            await waiting
    assert keys(stream_reader.stream.output.records) == [1, 2]
    assert waited == [types.TABLE_MAP]


async def test_a_rows_event_that_is_cut_before_its_table_is_refused() -> None:
    log = Log()
    log.gtid(5)
    log.query("BEGIN", "")
    log.event(types.WRITE_ROWS, b"\0\0", inside=True)
    with pytest.raises(Fatal, match="is cut"):
        await reader({"file": FILE, "pos": 1000, "gtids": f"{UUID}:1-4"}).feed(log.since(1000))
