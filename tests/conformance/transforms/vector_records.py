"""Records with seeded schemas and values, for the cases of ``generate_vectors``."""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

KAFKA = "org.apache.kafka.connect.transforms."
DATA = "org.apache.kafka.connect.data."
Json = dict[str, Any]


def schema(kind: str, **more: Any) -> Json:
    return {"type": kind, "optional": False, **more}


SCALARS: tuple[tuple[Json, tuple[Any, ...]], ...] = (
    (schema("int8"), (0, 1, -128, 127)),
    (schema("int16"), (0, -32768, 300)),
    (schema("int32"), (7, -2147483648, 2147483647)),
    (schema("int64"), (0, 9007199254740993, -5)),
    (schema("float"), (0.5, -1.25)),
    (schema("double"), (1.0, 3.25, -0.125)),
    (schema("boolean"), (True, False)),
    (schema("string"), ("", "plain", "ümlaut \u2713 \U0001f600", 'with "quotes" and \\')),
    (schema("bytes"), (base64.b64encode(b"raw\x00\xff").decode(),)),
    (
        schema("bytes", name=DATA + "Decimal", version=1, parameters={"scale": "0"}),
        (base64.b64encode(b"\x04\xd2").decode(),),
    ),
    (schema("int32", name=DATA + "Date", version=1), (0, 20000)),
    (schema("int32", name=DATA + "Time", version=1), (0, 86399999)),
    (schema("int64", name=DATA + "Timestamp", version=1), (0, 1700000000123)),
    (schema("int64", name="io.debezium.time.MicroTimestamp", version=1), (1700000000123456,)),
    (schema("array", items=schema("string")), ([], ["a", "b"])),
    (schema("map", keys=schema("string"), values=schema("int32")), ({}, {"a": 1})),
    (schema("struct", name="inner", fields=[{**schema("string"), "field": "x"}]), ({"x": "y"},)),
)
#: The same without dates before 1970-01-02, which are written differently as strings, and with fewer maps.
LATER = (
    *(
        item
        for item in SCALARS
        if item[0].get("name") not in (DATA + "Date", DATA + "Timestamp") and item[0]["type"] != "map"
    ),
    (schema("int32", name=DATA + "Date", version=1), (1, 20000)),
    (schema("int64", name=DATA + "Timestamp", version=1), (86400000, 1700000000123)),
    (schema("string"), ("2023-11-14", "14.11.2023", "12", "true", "300")),
    (
        schema(
            "struct",
            name="inner",
            fields=[
                {**schema("string"), "field": "x"},
                {**schema("int64"), "optional": True, "default": 5, "field": "id"},
            ],
        ),
        ({"x": "y", "id": None}, {"x": "", "id": 3}),
    ),
)
DEFAULTS = {"string": "fallback", "int32": 42, "int64": 43, "boolean": True, "double": 2.5}
NAMES = ("id", "name", "email", "amount", "flag", "note", "a", "b", "c")


class RecordGenerator:
    """One seeded source of schemas, values and records, and of cases that apply a transform to them."""

    def __init__(self, seed: int, scalars: Sequence[tuple[Json, tuple[Any, ...]]] = SCALARS) -> None:
        self.random = random.Random(seed)
        self.scalars = scalars

    def field(self, name: str) -> tuple[Json, Any]:
        """A field's schema and a value for it."""
        kind, values = self.random.choice(self.scalars)
        kind = dict(kind)
        value = self.random.choice(values)
        if self.random.random() < 0.6:
            kind["optional"] = True
            if self.random.random() < 0.3:
                value = None
        if "name" not in kind and kind["type"] in DEFAULTS and self.random.random() < 0.3:
            kind["default"] = DEFAULTS[kind["type"]]
        if self.random.random() < 0.1:
            kind["doc"] = "about it"
        return {**kind, "field": name}, value

    def struct(self, name: str, *, optional: bool = False) -> tuple[Json, Json]:
        """A struct schema and a value of it."""
        names = self.random.sample(NAMES, self.random.randint(1, len(NAMES)))
        fields = [self.field(field_name) for field_name in names]
        described: Json = {"type": "struct", "fields": [kind for kind, _ in fields], "optional": optional, "name": name}
        if self.random.random() < 0.3:
            described["version"] = 3
        return described, {kind["field"]: value for kind, value in fields}

    def schemaless(self) -> Json:
        values: tuple[Any, ...] = (None, True, 5, -1, 2.5, "text", ["a", 1], {"x": 1}, "")
        return {
            name: self.random.choice(values) for name in self.random.sample(NAMES, self.random.randint(0, len(NAMES)))
        }

    def data(self, name: str) -> Json | None:
        """A key or value as JsonConverter writes it."""
        roll = self.random.random()
        if roll < 0.55:
            described, value = self.struct(name, optional=self.random.random() < 0.3)
            return {"schema": described, "payload": value}
        if roll < 0.8:
            return {"schema": None, "payload": self.schemaless()}
        if roll < 0.87:
            kind, values = self.random.choice(self.scalars)
            return {"schema": kind, "payload": self.random.choice(values)}
        if roll < 0.92:
            return {"schema": None, "payload": self.random.choice((5, "text", 2.5, True, ["a"]))}
        if roll < 0.95:
            return {"schema": {"type": "struct", "fields": [], "optional": True, "name": name}, "payload": None}
        return None

    def record(self, key: Json | None, value: Json | None, headers: list[Json] | None = None) -> Json:
        return {
            "topic": self.random.choice(("inventory.users", "inventory.orders", "plain", "a.b.c", "x")),
            "partition": self.random.choice((None, 0, 3)),
            "timestamp": self.random.choice((None, 0, 1700000000000)),
            "key": key,
            "value": value,
            "headers": headers or [],
        }

    def records(self, count: int) -> list[Json]:
        return [
            self.record(
                self.data("k"),
                self.data("v"),
                self.random.choice(([], [{"key": "trace", "value": {"schema": schema("string"), "payload": "1"}}])),
            )
            for _ in range(count)
        ]

    def some_names(self, low: int = 0) -> list[str]:
        return self.random.sample(NAMES, self.random.randint(low, 3))

    def case(self, kind: str, options: Json, records: list[Json]) -> Json:
        own_options = {f"transforms.t.{name}": value for name, value in options.items()}
        config = {"transforms": "t", "transforms.t.type": kind, **own_options}
        if self.random.random() < 0.3:
            predicate, more = self.random.choice(
                (
                    ("TopicNameMatches", {"pattern": r"inventory\..*"}),
                    ("RecordIsTombstone", {}),
                    ("HasHeaderKey", {"name": "trace"}),
                )
            )
            config |= {
                "transforms.t.predicate": "p",
                "predicates": "p",
                "predicates.p.type": f"{KAFKA}predicates.{predicate}",
                **{f"predicates.p.{name}": value for name, value in more.items()},
            }
            if self.random.random() < 0.5:
                config["transforms.t.negate"] = self.random.choice(("true", "false"))
        return {"config": config, "records": records}
