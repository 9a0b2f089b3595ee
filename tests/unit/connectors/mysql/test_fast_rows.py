"""Rows events straight to bytes: for tables, values, options and masks of every kind they are those of the general path."""

from __future__ import annotations

import asyncio
import functools
import struct
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.api import Header
from connectors.errors import Skippable
from connectors.mysql import events
from connectors.mysql.model import BLOCK, MySqlColumn, MySqlTable, Shard, TableName
from connectors.mysql.rows.decode import BadRow
from connectors.mysql.schema import columns
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema.tables import MySqlTableState
from connectors.mysql.source.event_types import row_kind
from connectors.schema import STRING
from tests.support.both_paths import Delivered, Paths
from tests.support.local_avro import LocalAvro
from tests.support.settings import mysql_values
from tests.unit.connectors.mysql.events import making
from tests.unit.connectors.mysql.row_strategies import KINDS, image, rows_event
from worker.converters.avro_form.schema import AvroSettings
from worker.converters.json import JsonConverter
from worker.host.delivery.fast_path import wire_of

if TYPE_CHECKING:
    from connectors.mysql.events.contract import MySqlEventSettings
    from connectors.mysql.schema.types import ValueOptions
    from worker.converters.base import Converter
    from worker.host.delivery.fast_path import TaskRowWriter

OPS = {"write": "c", "update": "u", "delete": "d"}
HEADERS = (Header("a", "x", STRING), Header("b", "ä", STRING))


def json(**options: str) -> JsonConverter:
    return JsonConverter(
        {"schemas.enable": "false", **{name.replace("_", "."): value for name, value in options.items()}}
    )


class Both:
    """One table on both paths."""

    def __init__(
        self,
        table: MySqlTable,
        *,
        chosen: MySqlEventSettings | None = None,
        options: ValueOptions | None = None,
        key: Converter | None = None,
        value: Converter | None = None,
        shard: Shard | None = None,
        transforms: dict[str, str] | None = None,
    ) -> None:
        chosen, options = chosen or making.settings(), options or mysql_values()
        self.paths = Paths(key or json(), value or json(), transforms)
        layout = columns.make_layout(table, chosen, options)
        builder = events.make_builder(
            layout, 3, chosen, making.PARTITION, headers=HEADERS, now_ns=lambda: making.NOW_NS
        )
        #: Rows that the last event on the fast path has left out; None before one.
        self.fast_left_out: int | None = None
        self.state = MySqlTableState(
            table,
            captured=True,
            kind="",
            shard=shard or Shard(),
            layout=layout,
            table_events=builder,
            version=3,
            options=options,
        )
        wire = wire_of("auto", self.paths.pipeline, key or json(), value or json(), self.paths.header)
        if wire is not None:
            asyncio.run(self.state.agree(wire))
            asyncio.run(self.state.agree_on_snapshot(wire))

    def general(self, raw: bytes) -> list[Delivered] | None:
        """Deliver an event by the general path; None: a row is refused."""
        self.paths.refused.clear()
        start, decode = self.state.reader(raw, raw[4])
        records: list[Any] = []
        op: Any = OPS[row_kind(raw[4])]
        try:
            rows = decode(raw, start, len(raw))
            self.state.events.changes(op, rows, making.SOURCE, 0, making.BASE, making.AFTER, records)
        except (BadRow, Skippable):
            return None
        return self._converted(records)

    def _converted(self, records: list[Any]) -> list[Delivered] | None:
        delivered = asyncio.run(self.paths.convert(records))
        return None if self.paths.refused or self.paths.problems else delivered

    def check_snapshot(self, raw: bytes) -> None:
        """Both ways for the rows of an event, as if a snapshot had read them."""
        assert self.state.snapshot is not None
        self.paths.refused.clear()
        start, decode = self.state.reader(raw, raw[4])
        general: list[Delivered] | None = None
        rows: list[Any] = []
        try:
            rows = decode(raw, start, len(raw))
            records: list[Any] = []
            self.state.events.snapshot(rows, making.SOURCE, "true", making.BASE, records, first="first", last="last")
            general = self._converted(records)
        except (BadRow, Skippable):
            return
        part = self.state.snapshot.encode(rows, making.SOURCE, "true", making.BASE, "first", "last")
        if general is None:
            assert part is None
            return
        assert part is not None
        assert self.paths.encoded(part) == general

    def fast(self, raw: bytes) -> list[Delivered] | None:
        """Deliver an event by the fast path, without positions; None: it does not take the event."""
        fast = self.state.fast
        assert fast is not None
        clock = making.NOW_NS // 1_000_000, making.NOW_NS // 1000, making.NOW_NS
        try:
            encoded = fast.encode(raw, 0, making.SOURCE, clock)
        except Exception:  # noqa: BLE001 - as the stream does
            return None
        if encoded is None:
            return None
        _, keys, values, self.fast_left_out = encoded
        no_keys: list[bytes | None] = [None] * len(values)
        op = OPS[row_kind(raw[4])]
        shared = () if fast.shared is None else fast.shared(op, making.SOURCE, clock)
        headers = cast("TaskRowWriter", fast.writer).make_headers(shared)
        return [
            Delivered(fast.writer.topic, key, value, headers, None)
            for key, value in zip(keys or no_keys, values, strict=True)
        ]

    def refusal(self, raw: bytes) -> None:
        """Raise why the fast path does not take an event."""
        fast = self.state.fast
        assert fast is not None
        fast.encode(raw, 0, making.SOURCE, (1, 1, 1))

    def check(self, raw: bytes, *, ordinary: bool = True) -> list[Delivered] | None:
        """Both ways; ``ordinary``: the fast path has to take the event if no row is refused."""
        general, fast = self.general(raw), self.fast(raw)
        if general is None:
            assert fast is None
        elif fast is not None:
            assert fast == [record._replace(position=None) for record in general]
        else:
            if ordinary:
                self.refusal(raw)
            assert not ordinary, "the fast path does not take an ordinary event"
        return fast


@st.composite
def tables(draw: st.DrawFn) -> tuple[MySqlTable, list[list[bytes | None]]]:
    """A table with rows."""
    kinds = draw(st.lists(st.sampled_from(range(len(KINDS))), min_size=1, max_size=10))
    members = [KINDS[kind].column(f"c{position}", draw(st.booleans())) for position, kind in enumerate(kinds)]
    required = [member.name for member in members if not member.nullable]
    key = draw(st.lists(st.sampled_from(required), unique=True, max_size=2)) if required else []
    # The row's number is in front, so that no two keys are the same.
    number = MySqlColumn(name="n", type=codes.LONG, nullable=False)
    table = MySqlTable(
        name=TableName("world", "customers"), columns=(number, *members), key=("n", *key), completed=True
    )
    rows: list[list[bytes | None]] = []
    for at in range(draw(st.integers(1, 4))):
        values = [
            None if member.nullable and draw(st.integers(0, 3)) == 0 else draw(KINDS[kind].values)
            for member, kind in zip(members, kinds, strict=True)
        ]
        rows.append([at.to_bytes(4, "little"), *values])
    return table, rows


OPTIONS = st.builds(
    mysql_values,
    decimal_mode=st.sampled_from(["precise", "string", "double"]),
    time_mode=st.sampled_from(["adaptive_time_microseconds", "connect", "isostring", "microseconds"]),
    bigint_unsigned_mode=st.sampled_from(["long", "precise"]),
    binary_mode=st.sampled_from(["bytes", "base64", "hex"]),
    charset_errors=st.sampled_from(["replace", "strict"]),
    failures=st.sampled_from(["warn", "fail"]),
    invalid_dates=st.sampled_from(["fail", "epoch"]),
)
MASKS = st.sampled_from(
    [
        {},
        {"column.mask.with.5.chars": r"world\.customers\.c[0-2]"},
        {"column.mask.hash.SHA-256.with.salt.x": r"world\.customers\.(n|c1|c3)"},
        {"column.truncate.to.2.chars": r"world\.customers\.c.*"},
    ]
)
UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
ROUTE = {
    "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.route.regex": r"server\.(.*)\.(.*)",
    "transforms.route.replacement": "lake.$2",
}
CHAINS = [
    {"transforms": "route", **ROUTE},
    {"transforms": "unwrap", "transforms.unwrap.type": UNWRAP},
    {
        "transforms": "unwrap,route",
        "transforms.unwrap.type": UNWRAP,
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        "transforms.unwrap.replace.null.with.default": "false",
        "transforms.unwrap.add.fields": "op,table,source.ts_ms:changed,row,source.db,ts_ns,transaction.id,gtid,nothing",
        **ROUTE,
    },
]
CONVERTERS = st.fixed_dictionaries(
    {},
    optional={
        "schemas_enable": st.just("true"),
        "decimal_format": st.just("NUMERIC"),
        "replace_null_with_default": st.just("false"),
    },
)


@settings(max_examples=300, deadline=None)
@given(tables(), st.sampled_from(["write", "update", "delete"]), OPTIONS, MASKS, CONVERTERS, CONVERTERS, st.data())
def test_bytes_are_those_of_the_general_path(
    table_and_rows: tuple[MySqlTable, list[list[bytes | None]]],
    kind: str,
    options: ValueOptions,
    masks: dict[str, str],
    key_options: dict[str, str],
    value_options: dict[str, str],
    data: st.DataObject,
) -> None:
    table, rows = table_and_rows
    chosen = making.settings(masks, tombstones=data.draw(st.booleans()))
    both = Both(table, chosen=chosen, options=options, key=json(**key_options), value=json(**value_options))
    images = [image(table, row) for row in rows]
    if kind == "update":
        # The key stays, other columns get the values of another row.
        keys = {position for position, column in enumerate(table.columns) if column.name in table.key}
        pairs = []
        for row, other in zip(rows, reversed(rows), strict=True):
            after = [value if position in keys else other[position] for position, value in enumerate(row)]
            pairs += [image(table, row), image(table, after)]
        images = pairs
    both.check(rows_event(table, kind, images))


@settings(max_examples=200, deadline=None)
@given(tables(), st.sampled_from(["write", "update", "delete"]), OPTIONS, MASKS, st.booleans(), st.booleans())
def test_bytes_in_avro_are_those_of_the_general_path(
    table_and_rows: tuple[MySqlTable, list[list[bytes | None]]],
    kind: str,
    options: ValueOptions,
    masks: dict[str, str],
    enhanced: bool,
    unwrapped: bool,
) -> None:
    table, rows = table_and_rows
    key, value = LocalAvro(AvroSettings()), LocalAvro(AvroSettings(enhanced=enhanced))
    chain = CHAINS[1] if unwrapped and kind != "delete" else None
    both = Both(table, chosen=making.settings(masks), options=options, key=key, value=value, transforms=chain)
    images = [image(table, row) for row in rows]
    if kind == "update":
        images = [same for same in images for _ in (0, 1)]
    if both.state.fast is not None:
        both.check(rows_event(table, kind, images))


@functools.cache
def of_kind(number: int, avro: bool) -> tuple[MySqlTable, Both]:
    """A table with a column of this kind that must have a value, and one that need not."""
    kind = KINDS[number]
    members = (
        MySqlColumn(name="n", type=codes.LONG, nullable=False),
        kind.column("required", False),
        kind.column("optional", True),
    )
    table = MySqlTable(name=TableName("world", "customers"), columns=members, key=("n", "required"), completed=True)
    converters = [LocalAvro(AvroSettings()) if avro else json() for _ in (0, 1)]
    return table, Both(table, key=converters[0], value=converters[1])


@pytest.mark.parametrize("number", range(len(KINDS)))
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_values_of_each_kind(number: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(KINDS[number].values, min_size=1, max_size=12))
    for avro in (False, True):
        table, both = of_kind(number, avro)
        for value in values:
            for optional in (value, None):
                both.check(rows_event(table, "write", [image(table, [bytes(4), value, optional])]))


def test_doubles_that_java_writes_otherwise() -> None:
    members = (MySqlColumn(name="n", type=codes.LONG, nullable=False), MySqlColumn(name="d", type=codes.DOUBLE))
    table = MySqlTable(name=TableName("world", "customers"), columns=members, key=("n",), completed=True)
    both = Both(table)
    numbers = [
        0.0,
        -0.0,
        1e300,
        -1e300,
        5e-324,
        1e7,
        9999999.5,
        1e8,
        123456789.0,
        1e21,
        0.001,
        0.00099,
        -0.001,
        -1e7,
        0.1,
    ]
    rows = [image(table, [at.to_bytes(4, "little"), struct.pack("<d", number)]) for at, number in enumerate(numbers)]
    delivered = both.check(rows_event(table, "write", rows))
    assert delivered is not None
    shown = [(record.value or b"").partition(b'"d":')[2].partition(b"}")[0] for record in delivered]
    assert shown[:6] == [b"0.0", b"-0.0", b"1.0E300", b"-1.0E300", b"4.9E-324", b"1.0E7"]


WIDE = MySqlTable(
    name=TableName("world", "customers"),
    columns=(
        MySqlColumn(name="id", type=codes.LONG, nullable=False),
        MySqlColumn(name="t", type=codes.VARCHAR, meta=100, collation=45),
    ),
    key=("id",),
    completed=True,
)


def row(number: int, text: bytes | None) -> bytes:
    return image(WIDE, [number.to_bytes(4, "little", signed=True), None if text is None else bytes([len(text)]) + text])


def test_an_event_takes_the_fast_path() -> None:
    both = Both(WIDE)
    records = both.check(rows_event(WIDE, "write", [row(1, b"a"), row(2, None), row(3, 'ß😀"\\\x01'.encode())]))
    assert records is not None
    assert len(records) == 3
    assert records[0].key == b'{"id":1}'


def test_an_event_takes_the_fast_path_in_avro() -> None:
    both = Both(WIDE, key=LocalAvro(AvroSettings()), value=LocalAvro(AvroSettings()))
    records = both.check(rows_event(WIDE, "write", [row(1, b"a"), row(-2, None), row(3, b"x" * 90)]))
    assert records is not None
    assert records[1].key == b"head!\x03"


def test_a_changed_key_goes_the_general_way_with_its_whole_event() -> None:
    both = Both(WIDE)
    same = [row(1, b"a"), row(1, b"b")]
    assert both.check(rows_event(WIDE, "update", [*same, row(2, b"a"), row(3, b"a")]), ordinary=False) is None
    assert both.check(rows_event(WIDE, "update", same)) is not None


def test_rows_that_can_not_be_decoded_go_the_general_way() -> None:
    both = Both(WIDE, options=mysql_values(charset_errors="strict"))
    assert both.general(rows_event(WIDE, "write", [row(1, b"\xff")])) is None
    assert both.fast(rows_event(WIDE, "write", [row(1, b"\xff")])) is None
    assert both.check(rows_event(WIDE, "write", [row(1, b"a")])) is not None
    lenient = Both(WIDE)
    assert lenient.check(rows_event(WIDE, "write", [row(1, b"\xff"), row(2, b"a")])) is not None


def test_rows_of_other_shards_are_left_out() -> None:
    for index in (0, 1):
        both = Both(WIDE, shard=Shard(index, 2))
        rows = [row(number, b"x") for number in (0, BLOCK - 1, BLOCK, -1, 3 * BLOCK)]
        records = both.check(rows_event(WIDE, "write", rows))
        assert records is not None
        assert len(records) == (2 if index == 0 else 3)
        assert both.check(rows_event(WIDE, "update", [old for old in rows for _ in (0, 1)])) is not None
        moved = [row(0, b"x"), row(BLOCK, b"x")]
        assert both.check(rows_event(WIDE, "update", moved), ordinary=False) is None


def test_images_without_all_columns_go_the_general_way() -> None:
    both = Both(WIDE)
    raw = rows_event(WIDE, "write", [])
    partial = raw[:-1] + b"\x01" + b"\xfe" + (7).to_bytes(4, "little")
    assert both.check(partial, ordinary=False) is None


@pytest.mark.parametrize("op", ["c", "u", "d"])
def test_skipped_operations_go_the_general_way(op: str) -> None:
    both = Both(WIDE, chosen=making.settings(skipped=frozenset({op})))
    kind = next(name for name, letter in OPS.items() if letter == op)
    assert both.fast(rows_event(WIDE, kind, [row(1, b"a")] * (2 if op == "u" else 1))) is None


def test_updates_that_change_nothing_are_left_out() -> None:
    both = Both(WIDE, chosen=making.settings(skip_unchanged=True))
    rows = [row(1, b"a"), row(1, b"a"), row(2, b"a"), row(2, None), row(3, None), row(3, None)]
    records = both.check(rows_event(WIDE, "update", rows))
    assert records is not None
    assert [record.key for record in records] == [b'{"id":2}']
    assert both.fast_left_out == both.state.events.left_out == 2


def test_tables_whose_rows_need_records_have_only_records() -> None:
    assert Both(WIDE, chosen=making.settings(output_format="ums")).state.fast is None


@settings(max_examples=150, deadline=None)
@given(tables(), st.sampled_from(["write", "update"]), OPTIONS, MASKS, CONVERTERS, st.sampled_from(CHAINS))
def test_transforms_that_tell_what_they_do_give_the_same_bytes(
    table_and_rows: tuple[MySqlTable, list[list[bytes | None]]],
    kind: str,
    options: ValueOptions,
    masks: dict[str, str],
    value_options: dict[str, str],
    transforms: dict[str, str],
) -> None:
    table, rows = table_and_rows
    both = Both(
        table, chosen=making.settings(masks), options=options, value=json(**value_options), transforms=transforms
    )
    images = [image(table, row) for row in rows]
    if kind == "update":
        images = [same for same in images for _ in (0, 1)]
    # A rewritten row gets defaults that bytes can't, so such a table has records.
    if both.state.fast is not None:
        both.check(rows_event(table, kind, images))


def test_an_unwrapped_row_takes_the_fast_path_but_its_deletion_does_not() -> None:
    both = Both(WIDE, transforms=CHAINS[2])
    records = both.check(rows_event(WIDE, "update", [row(1, b"a"), row(1, b"b")]))
    assert records is not None
    assert records[0].topic == "lake.customers"
    assert (records[0].value or b"").startswith(
        b'{"id":1,"t":"b","__deleted":"false","__op":"u","__table":"customers",'
    )
    assert both.check(rows_event(WIDE, "delete", [row(1, b"a")]), ordinary=False) is None


@pytest.mark.parametrize(
    "more",
    [
        {"transforms.unwrap.add.headers": "row"},
        {"transforms.unwrap.route.by.field": "t"},
        {"transforms.unwrap.drop.fields.header.name": "h"},
        {
            "transforms.unwrap.predicate": "p",
            "predicates": "p",
            "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        },
    ],
)
def test_an_unwrapping_that_depends_on_the_record_needs_records(more: dict[str, str]) -> None:
    assert Both(WIDE, transforms=CHAINS[1] | more).state.fast is None
