"""CPU microseconds per record of each transform, compared with Kafka Connect's and Debezium's own in a warm JVM.

Each figure is the best of several rounds of CPU time of one thread, over one record again and again; here in batches, as the
worker hands records over (``Pipeline.apply_many``). Where something is remembered of values, a second line is over rows that
are all different; Java remembers nothing there. Java's part is left out with ``--no-java``; names given as arguments choose
lines.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.bench._common import environment
from tests.bench._debezium_transforms import different
from tests.bench._debezium_transforms import lines as debezium_lines
from tests.bench.converters import cost
from tests.conformance.transforms.generate_vectors import run_java
from tests.conformance.transforms.plugin.case_source import record_of
from worker.fetch.errors import StackError
from worker.transforms.pipeline import build_pipeline

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]

#: Records per batch.
BATCH: Final = 500
#: Rows that are all different: more than anything remembers.
_DIFFERENT: Final = 20_000
KAFKA: Final = "org.apache.kafka.connect.transforms."
_DATA: Final = "org.apache.kafka.connect.data."


class Line(NamedTuple):
    """One line of the table.

    Attributes:
        name: what it is called.
        config: a connector's properties, as far as its transforms go; Java class names.
        record: a record as in ``tests/conformance/transforms``.
        java: whether Java has it.
        vary: whether it is also measured over rows that are all different.
    """

    name: str
    config: Json
    record: Json
    java: bool = True
    vary: bool = False


def _field(name: str, kind: str, /, **more: Any) -> Json:
    return {"type": kind, "optional": True, "field": name, **more}


_INNER: Final = {
    "type": "struct",
    "optional": True,
    "name": "Address",
    "fields": [_field("street", "string"), _field("city", "string"), _field("zip", "int32")],
}
_ROW: Final[Json] = {
    "type": "struct",
    "optional": False,
    "name": "shop.Customer",
    "fields": [
        _field("id", "int64"),
        _field("quantity", "int32"),
        _field("name", "string"),
        _field("mail", "string"),
        _field("price", "double"),
        _field("active", "boolean"),
        _field("note", "string", default="none"),
        _field("created", "int64", name=_DATA + "Timestamp", version=1),
        _field("text", "string"),
        {**_INNER, "field": "address"},
    ],
}
_VALUE: Final = {
    "id": 123456789012,
    "quantity": 42,
    "name": "customer name here",
    "mail": "first.last@example.com",
    "price": 12.5,
    "active": True,
    "note": None,
    "created": 1732180000123,
    "text": "2024-11-21 09:06:40",
    "address": {"street": "Long Street 1", "city": "Zürich", "zip": 8001},
}


def record(schema: Json | None = None, payload: Any = None) -> Json:
    """A record with that value (a row of ten fields if none is given), a key and two headers."""
    value = {"schema": schema, "payload": payload} if payload is not None else {"schema": _ROW, "payload": _VALUE}
    text = {"type": "string", "optional": False}
    return {
        "topic": "shop.customers",
        "partition": None,
        "timestamp": 1732180000456,
        "value": value,
        "key": {
            "schema": {"type": "struct", "optional": False, "name": "Key", "fields": [_field("id", "int64")]},
            "payload": {"id": 123456789012},
        },
        "headers": [{"key": name, "value": {"schema": text, "payload": "1"}} for name in ("trace", "tenant")],
    }


def chain(kind: str, options: Json) -> Json:
    """The properties of one transform."""
    return {
        "transforms": "t",
        "transforms.t.type": kind,
        **{f"transforms.t.{name}": value for name, value in options.items()},
    }


def _lines() -> list[Line]:
    plain = record(None, _VALUE)
    kafka: tuple[tuple[str, Json], ...] = (
        ("Cast$Value", {"spec": "id:string,quantity:int64,price:float32,active:string"}),
        ("DropHeaders", {"headers": "trace"}),
        ("ExtractField$Value", {"field": "name"}),
        ("ExtractField$Value", {"field": "address.city", "field.syntax.version": "V2"}),
        ("Filter", {}),
        ("Flatten$Value", {"delimiter": "_"}),
        ("HeaderFrom$Value", {"fields": "id,name", "headers": "a,b", "operation": "move"}),
        ("HoistField$Value", {"field": "row"}),
        (
            "InsertField$Value",
            {"topic.field": "topic", "timestamp.field": "ts", "static.field": "site", "static.value": "eu"},
        ),
        ("InsertHeader", {"header": "site", "value.literal": "eu-1"}),
        ("MaskField$Value", {"fields": "name,mail"}),
        ("RegexRouter", {"regex": r"shop\.(.*)", "replacement": "lake.$1"}),
        ("ReplaceField$Value", {"exclude": "mail", "renames": "id:user_id"}),
        ("SetSchemaMetadata$Value", {"schema.name": "renamed", "schema.version": "2"}),
        (
            "TimestampConverter$Value",
            {"field": "created", "target.type": "string", "format": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"},
        ),
        ("TimestampConverter$Value", {"field": "text", "target.type": "Timestamp", "format": "yyyy-MM-dd HH:mm:ss"}),
        ("TimestampConverter$Value", {"field": "created", "target.type": "unix", "unix.precision": "microseconds"}),
        ("TimestampRouter", {}),
        ("ValueToKey", {"fields": "id,name"}),
    )
    lines = []
    for kind, options in kafka:
        shown = ", ".join(f"{name}={value}" for name, value in options.items())
        lines.append(Line(f"{kind} {shown}".strip(), chain(KAFKA + kind, options), record()))
    for kind, options in kafka:
        if kind in {"Cast$Value", "Flatten$Value", "ReplaceField$Value", "MaskField$Value"}:
            lines.append(Line(f"{kind}, schemaless", chain(KAFKA + kind, options), plain))
    guarded = chain(KAFKA + "InsertHeader", {"header": "site", "value.literal": "eu-1"})
    predicates: tuple[tuple[str, Json], ...] = (
        ("TopicNameMatches", {"pattern": r"shop\..*"}),
        ("HasHeaderKey", {"name": "tenant"}),
        ("RecordIsTombstone", {}),
    )
    for kind, options in predicates:
        predicate_config = {
            "transforms.t.predicate": "p",
            "predicates": "p",
            "predicates.p.type": f"{KAFKA}predicates.{kind}",
            **{f"predicates.p.{name}": value for name, value in options.items()},
        }
        lines.append(Line(f"InsertHeader if {kind}", guarded | predicate_config, record()))
    return lines


#: The table; others add theirs here.
LINES: Final[tuple[Line, ...]] = (*_lines(), *(Line(*arguments) for arguments in debezium_lines()))


def main(argv: Sequence[str] = ()) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all lines if none is given")
    parser.add_argument("--no-java", action="store_true", help="Millrace alone")
    options = parser.parse_args(argv)
    lines = [line for line in LINES if not options.names or any(name in line.name for name in options.names)]
    java: dict[str, float] = {}
    if not options.no_java:
        asked = [line for line in lines if line.java]
        try:
            answer = run_java({"timed": [{"config": line.config, "record": line.record} for line in asked]})
        except StackError as error:
            sys.stderr.write(f"Java is left out: {error}\n")
        else:
            java = {line.name: nanos / 1000 for line, nanos in zip(asked, answer["timed"], strict=True)}
    sys.stdout.write(f"{environment()}\n{'CPU us per record':<88}{'Millrace':>9}{'Java':>8}{'ratio':>8}\n")
    for line in lines:
        batches = {"": [record_of(line.record)] * BATCH}
        if line.vary:
            batches[", rows all different"] = [record_of(variant) for variant in different(line.record, _DIFFERENT)]
        for suffix, batch in batches.items():
            pipeline = build_pipeline(line.config)
            ours = cost(lambda pipeline=pipeline, batch=batch: pipeline.apply_many(batch), len(batch))  # type: ignore[misc]
            theirs = java.get(line.name)
            beside = "" if theirs is None else f"{theirs:8.3f}{ours / theirs:7.1f}x"
            sys.stdout.write(f"{(line.name + suffix)[:86]:<88}{ours:9.3f}{beside}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
