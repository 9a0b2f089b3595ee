"""The stream on the fast path: the same records in the same order with the same positions as on the general path."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.api import Batch
from connectors.errors import Fatal
from connectors.mysql.events.debezium import MySqlDebeziumEvents
from connectors.mysql.source import event_types as types
from tests.support.both_paths import Delivered, Paths, by_topic
from tests.support.transform_chains import UNWRAP, chain
from tests.unit.connectors.mysql.synthetic import FILE, UUID, Log, Reader, payload, query, reader, rows_body, table_map
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOCK = (1_700_000_000_000, 1_700_000_000_000_000, 1_700_000_000_000_000_000)


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both paths see the same time of processing."""
    monkeypatch.setattr(MySqlDebeziumEvents, "clock", lambda _self: CLOCK)


def paths(transforms: dict[str, str] | None = None) -> Paths:
    return Paths(JsonConverter({"schemas.enable": "false"}), JsonConverter({"schemas.enable": "false"}), transforms)


def take(subject: Reader) -> Batch:
    records, bad = subject.stream.output.take(len(subject.stream.output.records))
    return Batch(records, bad, encoded=subject.stream.output.encoded.collect())


async def delivered(
    log: Log, cuts: Sequence[int], *, fast: bool, transforms: dict[str, str] | None = None, **more: Any
) -> tuple[list[Delivered], Reader, int]:
    """Feed a log, with a batch after each of the events ``cuts``: the records, and how many were bytes."""
    both = paths(transforms)
    subject = reader({"file": FILE, "pos": 1000}, wire=both.wire if fast else None, **more)
    everything: list[Delivered] = []
    encoded = 0
    for number, raw in enumerate(log.since(1000)):
        await subject.stream.feed(raw)
        if number in cuts:
            batch = take(subject)
            everything += await both.deliver(batch)
            encoded += sum(len(part.values) for part in batch.encoded)
    batch = take(subject)
    everything += await both.deliver(batch)
    encoded += sum(len(part.values) for part in batch.encoded)
    assert not both.refused
    return everything, subject, encoded


def counts(subject: Reader) -> dict[str, Any]:
    return {**vars(subject.counters), "tables": subject.counters.tables.saved()}


async def same(log: Log, cuts: Sequence[int] = (), *, all_bytes: bool = True, **more: Any) -> list[Delivered]:
    general, first, none = await delivered(log, cuts, fast=False, **more)
    fast, second, encoded = await delivered(log, cuts, fast=True, **more)
    assert none == 0
    assert by_topic(fast) == by_topic(general)
    assert counts(second) == counts(first)
    assert second.cursor.now() == first.cursor.now()
    if all_bytes:
        assert encoded == len(fast)
    return fast


def update(log: Log, *pairs: tuple[Any, Any], number: int = 90) -> None:
    body = number.to_bytes(6, "little") + b"\x01\0\x02\0\x03\x07\x07"
    for pair in pairs:
        body += rows_body(list(pair), number)[12:]
    log.event(types.UPDATE_ROWS, body, inside=True)


def delete(log: Log, *rows: Any, number: int = 90) -> None:
    log.event(types.DELETE_ROWS, rows_body(list(rows), number), inside=True)


async def test_transactions_of_mysql_and_mariadb_with_batches_anywhere() -> None:
    for flavor, domain in (("mysql", None), ("mariadb", 0)):
        log = Log(silent=domain is not None)
        log.transaction(5, [1, 2, 3], [4], domain=domain)
        log.transaction(6, [5], domain=domain)
        log.transaction(7, [6, 7], [8, 9], domain=domain)
        events = len(log.since(1000))
        for cut in range(events):
            subject = await same(log, [cut], flavor=flavor)
            assert len(subject) == 9
        await same(log, range(events), flavor=flavor)


async def test_headers_that_differ_from_event_to_event() -> None:
    unwrapped = chain({"type": UNWRAP, "add.headers": "op,source.ts_us,table,gtid,pos", "add.fields": "op"})
    log = Log()
    for number in (5, 6):
        log.gtid(number)
        log.query("BEGIN", "")
        log.map()
        log.insert((number, 10, b"a"), (number + 10, None, b""))
        log.insert((number + 20, 10, b"a"))
        update(log, ((number, 10, b"a"), (number, 11, b"a")))
        log.xid()
    for cut in range(len(log.since(1000))):
        records = await same(log, [cut], transforms=unwrapped)
        assert [dict(record.headers)["__op"] for record in records] == [b"c", b"c", b"c", b"u"] * 2
    assert [name for name, _ in records[0].headers] == ["__op", "__source_ts_us", "__table", "__gtid", "__pos"]


async def test_updates_that_change_nothing_are_left_out() -> None:
    log = Log()
    for number in (5, 6, 7):
        log.gtid(number)
        log.query("BEGIN", "")
        log.map()
        same_row, changed = ((1, 10, b"a"), (1, 10, b"a")), ((1, 10, b"a"), (1, 11, b"a"))
        update(log, same_row, changed, changed, same_row)
        update(log, same_row)
        update(log, changed, same_row)
        log.xid()
    for cut in range(len(log.since(1000))):
        assert len(await same(log, [cut], skip_unchanged=True)) == 9
    assert len(await same(log, skip_unchanged=False)) == 21


async def test_updates_deletes_and_changed_keys_keep_their_order() -> None:
    log = Log()
    log.gtid(5)
    log.query("BEGIN", "")
    log.map()
    log.insert((1, 10, b"a"), (2, None, b""))
    update(log, ((1, 10, b"a"), (1, 11, b"b")))
    update(log, ((2, None, b""), (3, 1, b"")), ((1, 11, b"b"), (1, 12, b"b")))
    update(log, ((1, 12, b"b"), (1, 13, b"b")))
    delete(log, (3, 1, b""), (1, 13, b"b"))
    log.xid()
    subject = await same(log, all_bytes=False)
    assert [record.key for record in subject][:3] == [b'{"id":1}', b'{"id":2}', b'{"id":1}']
    _, _, encoded = await delivered(log, (), fast=True)
    assert encoded == 2 + 1 + 1 + 4
    for cut in range(len(log.since(1000))):
        await same(log, [cut], all_bytes=False)


async def test_two_tables_share_a_transaction() -> None:
    log = Log()
    log.gtid(5)
    log.query("BEGIN", "")
    log.map("t", 90)
    log.map("u", 91)
    for number in range(4):
        log.insert((number, 1, b""), number=90 + number % 2)
    log.xid()
    assert len(await same(log)) == 4


async def test_rows_inside_of_a_payload() -> None:
    log = Log()
    log.gtid(5)
    inner = [
        (types.QUERY, query("BEGIN", "")),
        (types.TABLE_MAP, table_map("t", 90)),
        (types.WRITE_ROWS, rows_body([(1, 1, b""), (2, 2, b"")], 90)),
        (types.WRITE_ROWS, rows_body([(3, 1, b"")], 90)),
        (types.XID, bytes(8)),
    ]
    log.event(types.TRANSACTION_PAYLOAD, payload(*inner))
    log.transaction(6, [4])
    assert len(await same(log)) == 4


async def test_a_rolled_back_transaction_leaves_what_came_before_it() -> None:
    log = Log()
    log.transaction(5, [1, 2])
    log.gtid(6)
    log.query("BEGIN", "")
    log.map()
    log.insert((3, 1, b""))
    log.insert((4, 1, b""))
    log.query("ROLLBACK")
    log.transaction(7, [5])
    assert [record.key for record in await same(log)] == [b'{"id":1}', b'{"id":2}', b'{"id":5}']
    events = len(log.since(1000))
    begin = next(number for number, raw in enumerate(log.since(1000)) if raw[4] == types.GTID and number > 4)
    for cut in range(2, begin + 1):
        await same(log, [cut])
    # As on the general path: what was sent of it can't be called back.
    with pytest.raises(Fatal, match="rolled back after a part of its rows had been sent"):
        await same(log, [events - 7])
    with pytest.raises(Fatal, match="rolled back after a part of its rows had been sent"):
        await delivered(log, [events - 7], fast=True)


async def test_a_transaction_that_was_done_in_part_continues_with_records() -> None:
    log = Log()
    log.transaction(5, [1, 2, 3], [4])
    log.transaction(6, [5])
    both = paths()
    general = await reader({"file": FILE, "pos": 1000, "gtids": f"{UUID}:1-4"}).feed(log.since(1000))
    for record in general:
        subject = reader(record.source_offset, wire=both.wire)
        for raw in log.since(record.source_offset["pos"]):
            await subject.stream.feed(raw)
        rest = await both.deliver(take(subject))
        expected = await both.convert(general[general.index(record) + 1 :])
        assert [item.position for item in rest] == [item.position for item in expected]
        assert [item.key for item in rest] == [item.key for item in expected]


async def test_a_table_of_a_snapshot_goes_the_general_way() -> None:
    class Puller:
        watched = frozenset({("shop", "t")})
        withheld: frozenset[Any] = frozenset()

        def changed(self, name: Any, op: str, rows: Any) -> tuple[()]:
            del name, op, rows
            return ()

        def advance(self, reached: Any) -> None:
            del reached

    log = Log()
    log.transaction(5, [1, 2])
    subject = reader({"file": FILE, "pos": 1000}, wire=paths().wire)
    subject.stream.attach(Puller(), lambda _position: False, lambda *_: None)  # type: ignore[arg-type]
    for raw in log.since(1000):
        await subject.stream.feed(raw)
    batch = take(subject)
    assert not batch.encoded
    assert len(batch.records) == 2


KEYS = st.integers(1, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.lists(KEYS, min_size=1, max_size=3)),
        st.tuples(st.just("update"), st.lists(st.tuples(KEYS, KEYS), min_size=1, max_size=3)),
        st.tuples(st.just("delete"), st.lists(KEYS, min_size=1, max_size=2)),
        st.just(("commit", [])),
        st.just(("rollback", [])),
        st.just(("cut", [])),
    ),
    max_size=15,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.booleans())
async def test_any_sequence_of_events_is_the_same(steps: list[tuple[str, list[Any]]], mariadb: bool) -> None:
    log = Log(silent=mariadb)
    cuts: list[int] = []
    number, opened, cut = 4, False, False
    for step, values in steps:
        if step == "cut":
            cuts.append(len(log.since(1000)) - 1)
            cut = opened
            continue
        if step in ("commit", "rollback"):
            if opened:
                # What was sent can't be rolled back.
                log.query("ROLLBACK") if step == "rollback" and not cut else log.xid()
                opened = cut = False
            continue
        if not opened:
            number += 1
            log.mariadb(number) if mariadb else log.gtid(number)
            log.query("BEGIN", "")
            opened = True
        table = 90 + len(values) % 2
        log.map("tu"[table - 90], table)
        if step == "insert":
            log.insert(*((key, None if key == 3 else key, bytes([96 + key])) for key in values), number=table)
        elif step == "update":
            update(log, *(((old, 1, b"x"), (new, 2, b"")) for old, new in values), number=table)
        else:
            delete(log, *((key, 1, b"d") for key in values), number=table)
    await same(log, cuts, all_bytes=False, flavor="mariadb" if mariadb else "mysql")


def test_the_log_of_these_tests_is_what_a_server_writes() -> None:
    log = Log()
    update(log, ((1, 1, b""), (2, 1, b"")))
    raw = log.events[0][1]
    assert struct.unpack_from("<I", raw, 9)[0] == len(raw)
