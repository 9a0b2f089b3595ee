"""Debezium's change events with seeded rows, and the cases that apply a transform to them."""

from __future__ import annotations

import random
from typing import Any

DEBEZIUM = "io.debezium.transforms."
DATA = "org.apache.kafka.connect.data."
TIME = "io.debezium.time."
Json = dict[str, Any]


def schema(kind: str, **more: Any) -> Json:
    return {"type": kind, "optional": False, **more}


STRING, INT32, INT64 = schema("string"), schema("int32"), schema("int64")

#: Column types with values.
COLUMNS: tuple[tuple[Json, tuple[Any, ...]], ...] = (
    (INT32, (1, 2, -2147483648, 2147483647)),
    (INT64, (7, -5, 9007199254740993, -9223372036854775808)),
    (schema("int16"), (3, -32768)),
    (schema("boolean"), (True, False)),
    (schema("double"), (0.5, -2.25, 0.0, 1e300)),
    (schema("float"), (0.25, -1.5)),
    (
        STRING,
        ("", "plain", "ümlaut \u2713", "\U0001f600 wide", "a", "sixteen bytes ab", "a little more than sixteen ünits"),
    ),
    (
        schema("bytes", name=DATA + "Decimal", version=1, parameters={"scale": "2"}),
        ("BNI=", "+y4=", "AA==", "fwAAAAAAAAAA"),
    ),
    (schema("array", items=STRING), ([], ["a", "ü"])),
    (schema("map", keys=STRING, values=INT32), ({}, {"a": 1, "b": 2})),
    (schema("int32", name=TIME + "Date", version=1), (0, 19000)),
    (schema("int64", name=TIME + "MicroTime", version=1), (3_600_000_000,)),
)
SECONDS = (
    0,
    1_700_000_000,
    1_711_846_800,
    1_711_850_399,
    1_698_541_200,
    1_698_544_799,
    -1,
    -5_000_000_000,
    4_102_444_800,
)
TIMES: tuple[tuple[Json, tuple[Any, ...]], ...] = (
    (schema("int64", name=TIME + "Timestamp", version=1), tuple(second * 1000 + 123 for second in SECONDS)),
    (
        schema("int64", name=TIME + "MicroTimestamp", version=1),
        (*(second * 1_000_000 + 123_456 for second in SECONDS), -62_200_000_000_000_000, 253_500_000_000_000_000),
    ),
    (
        schema("int64", name=TIME + "NanoTimestamp", version=1),
        tuple(second * 10**9 + 123_456_789 for second in SECONDS),
    ),
    (schema("int64", name=DATA + "Timestamp", version=1), tuple(second * 1000 + 7 for second in SECONDS)),
    (schema("int32", name=DATA + "Date", version=1), (0, 20000)),
    (schema("int32", name=DATA + "Time", version=1), (86399999,)),
    (schema("int32", name=TIME + "Time", version=1), (5,)),
    (
        schema("string", name=TIME + "ZonedTimestamp", version=1),
        (
            "2024-03-31T02:30:00+01:00",
            "2024-07-01T12:00:00Z",
            "1969-12-31T23:59:59.123456789Z",
            "2024-10-27T00:30:00.5Z",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59-11:00",
            "2024-01-01T00:00Z",
            "+12024-01-01T00:00:00Z",
            "not a time",
            "2023-02-30T00:00:00Z",
        ),
    ),
)
#: Zones without clock changes, so that a ZonedTime, which is converted with the offset of the day of the test, stays the same.
STEADY = ("+08:00", "-03:30", "+00:00", "+05:30:15", "Asia/Tokyo", "America/Phoenix", "Etc/GMT+5", "UTC")
ZONED_TIMES = (
    schema("string", name=TIME + "ZonedTime", version=1),
    ("12:00:00Z", "23:59:59.120+02:00", "00:00Z", "25:00:00Z"),
)
ZONES = (
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "+08:00",
    "-11:30",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Atlantis/Capital",
    "8:00",
    "+19:00",
)
DEFAULTS = {"string": "fallback", "int32": 42, "int64": 43, "boolean": True, "double": 2.5}


class Events:
    """One seeded source of change events."""

    def __init__(self, seed: int | random.Random, columns: tuple[tuple[Json, tuple[Any, ...]], ...] = COLUMNS) -> None:
        self.random = seed if isinstance(seed, random.Random) else random.Random(seed)
        self.columns = columns

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def row(self, name: str, count: int = 6) -> tuple[Json, list[tuple[Json, tuple[Any, ...]]]]:
        """A row's schema, and for each column what its values can be."""
        columns = []
        for number in range(count):
            kind, values = self.random.choice(self.columns)
            kind = dict(kind)
            if self.chance(0.6):
                kind["optional"] = True
                values = (*values, None)
            if "name" not in kind and kind["type"] in DEFAULTS and self.chance(0.3):
                kind["default"] = DEFAULTS[kind["type"]]
            columns.append(({**kind, "field": f"c{number}"}, values))
        id_column: Json = {**INT32, "field": "id"}
        name_column: Json = {**STRING, "optional": True, "field": "name"}
        columns += [(id_column, (1, 2, 3)), (name_column, ("Bob", "Álice", "x", None))]
        described: Json = {"type": "struct", "optional": True, "name": name, "fields": [kind for kind, _ in columns]}
        if self.chance(0.3):
            described |= {"version": 2, "doc": "a row", "parameters": {"p": "q"}}
        return described, columns

    def values(self, columns: list[tuple[Json, tuple[Any, ...]]]) -> Json:
        return {kind["field"]: self.random.choice(values) for kind, values in columns}

    def envelope(self, row: Json, table: str) -> Json:
        source = {
            "type": "struct",
            "optional": False,
            "name": "io.debezium.connector.mysql.Source",
            "field": "source",
            "fields": [
                {**STRING, "field": "connector"},
                {**INT64, "field": "ts_ms"},
                {**INT64, "optional": True, "field": "ts_us"},
                {**INT64, "optional": True, "field": "ts_ns"},
                {**STRING, "optional": True, "default": "false", "field": "snapshot"},
                {**STRING, "field": "table"},
            ],
        }
        transaction = {
            "type": "struct",
            "optional": True,
            "name": "event.block",
            "version": 1,
            "field": "transaction",
            "fields": [{**STRING, "field": "id"}, {**INT64, "field": "total_order"}],
        }
        return {
            "type": "struct",
            "optional": False,
            "name": f"srv.db.{table}.Envelope",
            "version": 2,
            "fields": [
                {**row, "field": "before"},
                {**row, "field": "after"},
                source,
                transaction,
                {**STRING, "field": "op"},
                {**INT64, "optional": True, "field": "ts_ms"},
            ],
        }

    def event(
        self, row: Json, columns: list[tuple[Json, tuple[Any, ...]]], table: str, operations: str = "ccruuddtm"
    ) -> Json:
        op = self.random.choice(operations)
        second = self.random.choice(SECONDS[:6])
        after = self.values(columns)
        # An update that changes some columns only.
        before = {name: value if self.chance(0.5) else self.values(columns)[name] for name, value in after.items()}
        return {
            "schema": self.envelope(row, table),
            "payload": {
                "before": before if op in "ud" else None,
                "after": after if op in "cru" else None,
                "source": {
                    "connector": "mysql",
                    "ts_ms": second * 1000,
                    "ts_us": self.random.choice((None, second * 1_000_000)),
                    "ts_ns": second * 10**9,
                    "snapshot": self.random.choice((None, "true")),
                    "table": table,
                },
                "transaction": self.random.choice((None, {"id": "tx:1", "total_order": 4})),
                "op": op,
                "ts_ms": self.random.choice((None, 77)),
            },
        }

    def schema_change(self) -> Json:
        change = {
            "type": "struct",
            "optional": False,
            "name": "io.debezium.connector.schema.Change",
            "fields": [{**STRING, "field": "type"}, {**STRING, "field": "id"}],
        }
        choices: tuple[list[str] | None, ...] = (
            None,
            [],
            ["CREATE"],
            ["ALTER"],
            ["DROP", "ALTER"],
            ["TRUNCATE"],
            ["RENAME"],
        )
        kinds = self.random.choice(choices)
        changes = None if kinds is None else [{"type": kind, "id": "t"} for kind in kinds]
        return {
            "schema": {
                "type": "struct",
                "optional": False,
                "name": "io.debezium.connector.mysql.SchemaChangeValue",
                "fields": [
                    {**STRING, "optional": True, "field": "ddl"},
                    {"type": "array", "items": change, "optional": True, "field": "tableChanges"},
                ],
            },
            "payload": {"ddl": "...", "tableChanges": changes},
        }

    def heartbeat(self) -> Json:
        return {
            "schema": {
                "type": "struct",
                "optional": False,
                "name": "io.debezium.connector.common.Heartbeat",
                "fields": [{**INT64, "field": "ts_ms"}],
            },
            "payload": {"ts_ms": 5},
        }

    def other(self) -> Json | None:
        """A record that is not a change event."""
        return self.random.choice(
            (
                None,
                None,
                self.heartbeat(),
                self.schema_change(),
                {"schema": None, "payload": {"op": "u", "id": 2, "name": "Bob"}},
                {"schema": STRING, "payload": "text"},
                {"schema": None, "payload": 5},
                {
                    "schema": {
                        "type": "struct",
                        "optional": False,
                        "name": "plain",
                        "fields": [{**INT32, "field": "id"}],
                    },
                    "payload": {"id": 2},
                },
            )
        )

    def key(self) -> Json | None:
        described = {
            "type": "struct",
            "optional": False,
            "name": "srv.db.users.Key",
            "fields": [{**INT32, "field": "id"}, {**STRING, "optional": True, "default": "none", "field": "region"}],
        }
        return self.random.choice(
            (
                {"schema": described, "payload": {"id": 1, "region": None}},
                {"schema": described, "payload": {"id": 2, "region": "eu"}},
                None,
                {"schema": STRING, "payload": "k"},
                {"schema": None, "payload": {"id": 1}},
            )
        )

    def record(
        self, value: Json | None, *, topic: str = "", headers: list[Json] | None = None, key: bool = True
    ) -> Json:
        return {
            "topic": topic or self.random.choice(("srv.db.users", "srv.db.orders", "srv.shard1.users", "plain", "x")),
            "partition": self.random.choice((None, 3)),
            "timestamp": self.random.choice((None, 1700000000000)),
            "key": self.key() if key else None,
            "value": value,
            "headers": headers or [],
        }

    def records(self, count: int = 8, **more: Any) -> list[Json]:
        """Events of one table, and other records."""
        table = self.random.choice(("users", "orders"))
        row, columns = self.row(f"srv.db.{table}.Value")
        return [
            self.record(self.other() if self.chance(0.25) else self.event(row, columns, table), **more)
            for _ in range(count)
        ]


def case(kind: str, options: Json, records: list[Json]) -> Json:
    return {
        "config": {
            "transforms": "t",
            "transforms.t.type": kind,
            **{f"transforms.t.{name}": value for name, value in options.items()},
        },
        "records": records,
    }
