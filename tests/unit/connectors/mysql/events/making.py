"""Tables, settings and records for tests of events, and what Debezium has made of the same tables."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from connectors.formats.masks.masking import parse_rules
from connectors.mysql import events
from connectors.mysql.model import MySqlColumn, MySqlTable, RowSource, TableName
from connectors.mysql.schema import columns
from connectors.mysql.schema import type_codes as codes
from tests.integration.mysql.debezium_world import load
from tests.support.settings import mysql_events, mysql_topics, mysql_ums, mysql_values
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from connectors.mysql.events.contract import MySqlEventSettings, MySqlTableEvents
    from connectors.mysql.schema.types import ValueOptions
    from connectors.schema import Schema
    from tests.integration.mysql.debezium_world import Record

PARTITION = {"server": "server"}
BASE: dict[str, Any] = {
    "transaction_id": None,
    "ts_sec": 1_700_000_000,
    "file": "binlog.000007",
    "pos": 900,
    "gtids": "0-1-4",
    "server_id": 1,
    "event": 3,
}
AFTER: dict[str, Any] = {**BASE, "event": 4}
SOURCE = RowSource(
    ts_ms=1_700_000_100_000,
    ts_us=1_700_000_100_000_000,
    server_id=1,
    file="binlog.000007",
    pos=1000,
    gtid="0-1-5",
    size=500,
)
NOW_NS = 1_700_000_200_123_456_789
UTF8MB4 = 45


def text(name: str, length: int, **more: Any) -> MySqlColumn:
    """A VARCHAR column."""
    return MySqlColumn(
        name=name, type=codes.VARCHAR, meta=4 * length, collation=UTF8MB4, declared=f"varchar({length})", **more
    )


def number(name: str, **more: Any) -> MySqlColumn:
    """An INT column."""
    return MySqlColumn(name=name, type=codes.LONG, declared="int(11)", **more)


def table(name: str, *members: MySqlColumn, key: tuple[str, ...] = ()) -> MySqlTable:
    """A table of the database ``world``."""
    return MySqlTable(name=TableName("world", name), columns=members, key=key, completed=True)


CUSTOMERS = table(
    "customers",
    number("id", nullable=False, extra="auto_increment"),
    text("name", 50, nullable=False),
    text("email", 80),
    text("card", 20),
    MySqlColumn(name="credit", type=codes.DECIMAL, meta=8 << 8 | 2, declared="decimal(8,2)"),
    key=("id",),
)
NO_KEY = table("no_key", number("a"), text("b", 10))
EMPTIED = table("emptied", number("id", nullable=False), key=("id",))
SPECIAL_NAMES = table(
    "odd-name$1", number("the id", nullable=False), text("first-name", 10), number("2nd"), key=("the id",)
)


def settings(
    masks: dict[str, str] | None = None,
    *,
    topics: dict[str, Any] | None = None,
    ums: dict[str, Any] | None = None,
    **more: Any,
) -> MySqlEventSettings:
    """Settings with these options and Debezium's defaults for the others."""
    return mysql_events(
        topics=mysql_topics(prefix="server", **(topics or {})),
        connector="mariadb",
        masks=parse_rules(masks or {}),
        ums=mysql_ums(**(ums or {})),
        **more,
    )


def make_builder(
    of: MySqlTable, event_settings: MySqlEventSettings, options: ValueOptions | None = None, **more: Any
) -> MySqlTableEvents:
    """A builder with a clock that never advances."""
    layout = columns.make_layout(of, event_settings, options or mysql_values())
    return events.make_builder(layout, 3, event_settings, PARTITION, now_ns=lambda: NOW_NS, **more)


def decoded(
    of: MySqlTable, event_settings: MySqlEventSettings, row: dict[str, Any], options: ValueOptions | None = None
) -> dict[str, Any]:
    """A row as the decoder gives it: without columns that no event needs, and with the masks that are the decoder's."""
    values = {}
    for plan in columns.make_layout(of, event_settings, options or mysql_values()).plans:
        if plan is not None:
            value = row[plan.column.name]
            transformed = plan.transform is not None and (plan.nulls or value is not None)
            values[plan.column.name] = plan.transform(value) if transformed and plan.transform is not None else value
    return values


def written(schema: Schema | None, value: Any) -> Any:
    """The value as JsonConverter writes it, with its schema; it refuses values that don't fit the schema."""
    data = JsonConverter({"schemas.enable": "true"}).encoder("t", schema)(value)
    return None if data is None else json.loads(data)


@cache
def recorded(variant: str, topic: str, phase: str = "stream") -> tuple[Record, ...]:
    """The records that Debezium has sent to a topic."""
    return tuple(record for record in load(variant).records if record.topic == topic and record.phase == phase)


def source_of(value: dict[str, Any]) -> RowSource:
    """The place and time of a recorded event."""
    block = value["source"]
    names = ("ts_ms", "ts_us", "server_id", "file", "pos", "gtid", "thread", "query")
    return RowSource(**{name: block[name] for name in names}, size=100)


def plain(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """A value without what is another one each time: whose version, and when it was handled."""
    if value is None:
        return None
    return {
        name: {**content, "version": ""} if name == "source" else content
        for name, content in value.items()
        if name not in {"ts_ms", "ts_us", "ts_ns"}
    }


def check(ours: SourceRecord, theirs: Record) -> None:
    """Ours is what Debezium has sent, schemas and headers too."""
    assert ours.topic == theirs.topic
    key, value = written(ours.key_schema, ours.key), written(ours.value_schema, ours.value)
    assert (key or {}).get("schema") == theirs.key_schema
    assert (key or {}).get("payload") == theirs.key
    assert (value or {}).get("schema") == theirs.value_schema
    assert plain((value or {}).get("payload")) == plain(theirs.value)
    expected = [(name, content) for name, content in theirs.headers if "context" not in name]
    assert [
        (header.key, json.dumps(header.value, separators=(",", ":"), ensure_ascii=False)) for header in ours.headers
    ] == expected
