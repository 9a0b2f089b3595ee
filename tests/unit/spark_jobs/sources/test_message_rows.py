"""The rows that messages are about, as ``millrace verify`` reads them from the topics of a flow."""

from __future__ import annotations

import base64
import datetime as dt
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Skippable
from connectors.verify.events import RowChange
from connectors.verify.values import is_same_value, key_text
from spark_jobs.sinks.cassandra.types import cell_of
from spark_jobs.sources.debezium import DebeziumSource
from spark_jobs.sources.plain import PlainSource
from spark_jobs.sources.ums import UmsSource

if TYPE_CHECKING:
    from spark_jobs.sources.messages import MessageRows

KEY = {"id": 1}
#: Microseconds since 1970.
MICROS = 1_767_323_045_678_000
#: Of any message that has no rows.
NOTHING: list[RowChange] = []


@dataclass
class Record:
    """A record of a topic."""

    key: bytes | None
    value: bytes | None
    topic: str = "s.shop.t"


async def read(reader: MessageRows, key: Any, value: Any) -> list[RowChange]:
    """The changes in a record with this key and value in JSON; bytes and None stay as they are."""
    key_data, data = (
        part if part is None or isinstance(part, bytes) else json.dumps(part).encode() for part in (key, value)
    )
    return await reader.read(Record(key_data, data))


def event(op: str, **source: Any) -> dict[str, Any]:
    """An event of Debezium's form."""
    row = {"id": 1, "v": "a"}
    parts = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {"op": op, "source": {"db": "shop", "table": "t", **source}, **parts}


async def test_events_with_and_without_schemas() -> None:
    reader = DebeziumSource.read_messages({})
    assert await read(reader, KEY, event("c")) == [RowChange("shop.t", KEY, {"id": 1, "v": "a"})]
    enveloped = {"schema": {}, "payload": event("d")}
    assert await read(reader, {"schema": {}, "payload": KEY}, enveloped) == [RowChange("shop.t", KEY, None)]
    for value in (None, b"null", {"ts_ms": 1}, event("m")):
        assert await read(reader, KEY, value) == NOTHING
    with pytest.raises(ValueError, match=r"it has no key, and source\.key\.columns is not set"):
        await read(reader, None, event("c"))


@pytest.mark.parametrize(
    ("source", "namespace"),
    [
        ({"db": None, "keyspace_name": "k", "table_name": "t", "table": None}, "k.t"),
        ({"db": "d", "schema": "public"}, "d.public.t"),
        ({"logical_db": "all", "logical_table": "orders", "database_partition": 1, "table_partition": 2}, "all.orders"),
        ({"table": None}, "s.shop.t"),
    ],
)
async def test_tables_have_the_names_that_jobs_give_them(source: dict[str, Any], namespace: str) -> None:
    (change,) = await read(DebeziumSource.read_messages({}), KEY, event("r", **source))
    assert change.namespace == namespace


async def test_declared_columns_are_the_key() -> None:
    reader = DebeziumSource.read_messages({"source.key.columns": "v", "source.key.encoding": "bytes"})
    assert await read(reader, b"\0\1", event("u")) == [RowChange("shop.t", {"v": "a"}, {"id": 1, "v": "a"})]
    assert await read(reader, b"\0\1", event("d")) == [RowChange("shop.t", {"v": "a"}, None)]
    moved = event("u") | {"before": {"id": 1, "v": "b"}}
    assert await read(reader, b"\0\1", moved) == [
        RowChange("shop.t", {"v": "b"}, None),
        RowChange("shop.t", {"v": "a"}, {"id": 1, "v": "a"}),
    ]
    assert len(await read(reader, b"\0\1", event("u") | {"before": {"id": 2, "v": "a"}})) == 1
    reader = DebeziumSource.read_messages({"source.key.columns": "v", "source.key.columns.shop.t": "id,w"})
    with pytest.raises(ValueError, match=r"source\.key\.columns: what it says of the row lacks w"):
        await read(reader, KEY, event("u"))


async def test_records_of_tables_that_the_job_does_not_read_are_left_out() -> None:
    reader = DebeziumSource.read_messages({"source.tables": "shop.t*"})
    assert len(await read(reader, KEY, event("c"))) == 1
    assert await read(reader, KEY, event("c", table="other")) == NOTHING


async def test_values_with_schemas_are_as_jobs_have_them() -> None:
    cell = {"type": "struct", "name": "ks.t.v.Cell", "optional": True}
    columns = [
        {"field": "id", "type": "int64"},
        {"field": "micros", "type": "int64", "name": "io.debezium.time.MicroTime"},
        {"field": "millis", "type": "int32", "name": "org.apache.kafka.connect.data.Time"},
        {"field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        {"field": "ratio", "name": "io.debezium.data.VariableScaleDecimal"},
        {**cell, "field": "at", "fields": [{"field": "value", "name": "io.debezium.time.MicroTime"}]},
        {**cell, "field": "unset", "fields": [{"field": "value", "type": "int32"}]},
        {**cell, "field": "null", "fields": [{"field": "value", "type": "int32"}]},
    ]
    digits = base64.b64encode((-150).to_bytes(2, "big", signed=True)).decode()
    row = {
        "id": 1,
        "micros": 3_600_000_000,
        "millis": None,
        "price": digits,
        "ratio": {"scale": 3, "value": digits},
        "at": {"value": 5},
        "unset": None,
        "null": {"value": None},
    }
    expected = {
        "id": 1,
        "micros": 3_600_000_000_000,
        "millis": None,
        "price": Decimal("-1.50"),
        "ratio": Decimal("-0.150"),
        "at": 5_000,
        "unset": None,
        "null": None,
    }
    schema = {"fields": [{"field": "before", "fields": columns}, {"field": "after", "fields": columns}]}
    reader = DebeziumSource.read_messages({})
    (change,) = await read(reader, KEY, {"schema": schema, "payload": {**event("c"), "after": row}})
    assert change.row == expected
    (change,) = await read(PlainSource.read_messages({}), KEY, {"schema": {"fields": columns}, "payload": row})
    assert change == RowChange("s.shop.t", KEY, expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("io.debezium.time.Timestamp", MICROS // 1_000),
        ("org.apache.kafka.connect.data.Timestamp", MICROS // 1_000),
        ("io.debezium.time.MicroTimestamp", MICROS),
        ("io.debezium.time.NanoTimestamp", MICROS * 1_000),
    ],
)
async def test_moments_with_schemas_are_those_that_sinks_write_as_numbers(name: str, value: int) -> None:
    columns = [{"field": "at", "type": "int64", "name": name}]
    reader = PlainSource.read_messages({})
    (change,) = await read(reader, KEY, {"schema": {"fields": columns}, "payload": {"at": value}})
    moment = dt.datetime.fromtimestamp(MICROS / 1e6, dt.UTC)
    written = int.from_bytes(cell_of("bigint", "timestamp")(moment), "big")
    assert change.row is not None
    assert is_same_value(change.row["at"], written)
    assert is_same_value(change.row["at"], moment)


@pytest.mark.parametrize(
    ("schema", "value", "target"),
    [
        (
            {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
            base64.b64encode((1250).to_bytes(2, "big")).decode(),
            Decimal("12.50"),
        ),
        ({"name": "io.debezium.time.Timestamp"}, MICROS // 1_000, dt.datetime.fromtimestamp(MICROS / 1e6, dt.UTC)),
        ({"name": "io.debezium.time.MicroTime"}, 3_600_000_000, dt.time(1)),
    ],
)
async def test_keys_with_schemas_are_those_of_the_target(schema: dict[str, Any], value: Any, target: Any) -> None:
    reader = DebeziumSource.read_messages({})
    key = {"schema": {"fields": [{"field": "k", **schema}]}, "payload": {"k": value}}
    (change,) = await read(reader, key, event("c"))
    assert key_text(change.key) == key_text({"k": target})


async def test_changes_have_the_order_numbers_that_jobs_give_them() -> None:
    binlog = {"connector": "mysql", "file": "bin.000103", "pos": 5, "row": 2}
    for op in ("u", "d"):
        (change,) = await read(DebeziumSource.read_messages({}), KEY, event(op, **binlog))
        assert change.order == 103_000_000_000_007
    (change,) = await read(DebeziumSource.read_messages({}), KEY, event("u"))
    assert change.order is None
    (change,) = await read(PlainSource.read_messages({}), KEY, {"id": 1, "__source_ums_id": 9})
    assert change.order == 9


async def test_flat_rows_and_their_deletes() -> None:
    reader = PlainSource.read_messages({})
    assert await read(reader, KEY, {"id": 1, "__op": "u", "__x": 2}) == [
        RowChange("s.shop.t", KEY, {"id": 1, "__x": 2})
    ]
    for gone in ({"id": 1, "__op": "d"}, {"id": 1, "__deleted": "true"}, None):
        assert await read(reader, KEY, gone) == [RowChange("s.shop.t", KEY, None)]
    assert await read(reader, None, None) == NOTHING  # a heartbeat
    with pytest.raises(Skippable, match="known are c, r"):
        await read(reader, KEY, {"id": 1, "__op": "x"})
    with pytest.raises(TypeError, match="the value is no row"):
        await read(reader, KEY, [1])
    reader = PlainSource.read_messages({"source.tombstones": "ignore", "source.op.field": "change"})
    assert await read(reader, KEY, None) == NOTHING
    assert await read(reader, KEY, {"id": 1, "change": "delete"}) == [RowChange("s.shop.t", KEY, None)]


async def test_a_tombstone_whose_key_is_not_decoded_is_not_skipped() -> None:
    reader = PlainSource.read_messages({"source.key.columns": "id", "source.key.encoding": "bytes"})
    assert await read(reader, b"k", {"id": 1}) == [RowChange("s.shop.t", KEY, {"id": 1})]
    with pytest.raises(ValueError, match="what it says of the row lacks id"):
        await read(reader, b"k", None)


def ums(protocol: str, *rows: list[str | None]) -> dict[str, Any]:
    """A UMS message."""
    kinds = {"ums_id_": "long", "ums_ts_": "datetime", "ums_op_": "string", "ums_uid_": "string", "id": "long"}
    kinds |= {
        "price": "decimal",
        "day": "date",
        "at": "datetime",
        "flag": "boolean",
        "ratio": "double",
        "raw": "binary",
    }
    fields = [{"name": name, "type": kind, "nullable": True} for name, kind in kinds.items()]
    return {
        "protocol": {"type": protocol, "version": "1.3"},
        "schema": {"namespace": "mysql.crm.shop.t.2.0.0", "fields": fields},
        "payload": [{"tuple": [str(number), "2026-01-02 03:04:05.000", *row]} for number, row in enumerate(rows)],
    }


async def test_rows_of_ums() -> None:
    reader = UmsSource.read_messages({"source.key.columns": "id"})
    row = ["7", "1.50", "2026-01-02", "2026-01-02 03:04:05.678000", "true", "0.5", "AQI="]
    document = ums(
        "data_increment_data", ["i", "u1", *row], ["b", "u2", *row], ["d", "u3", "8", *[None] * (len(row) - 1)]
    )
    image = {
        "id": 7,
        "price": "1.50",
        "day": 20_455,
        "at": 1_767_323_045_678_000,
        "flag": True,
        "ratio": 0.5,
        "raw": "AQI=",
    }
    key = b"data_increment_data.mysql.crm.shop.t.2.0.0"
    assert await read(reader, key, document) == [
        RowChange("mysql.crm.shop.t", {"id": 7}, image, 0),
        RowChange("mysql.crm.shop.t", {"id": 8}, None, 2),
    ]
    assert await read(reader, None, ums("data_increment_heartbeat")) == NOTHING
    assert await read(reader, None, None) == NOTHING
    with pytest.raises(ValueError, match="the protocol 'other' is unknown"):
        await read(reader, None, ums("other"))
