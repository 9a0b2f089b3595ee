"""The cost of converting one record, in microseconds of CPU: ``python -m tests.bench.converters``.

Each figure is the best of several rounds of process CPU time, so that other programs on the machine disturb it little.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import fastavro
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from google.protobuf import message_factory
from google.protobuf.internal import api_implementation

from connectors.schema import (
    BOOLEAN,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Type,
    struct,
    timestamp,
)
from tests.bench._common import environment
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.read import without_logical_types
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.cloudevents import CloudEventsConverter
from worker.converters.json import JsonConverter
from worker.converters.json_form.compile import compile_encoder
from worker.converters.json_form.schema_read import json_schema_reader
from worker.converters.json_form.schema_text import JsonSchemaSettings, json_schema_text
from worker.converters.json_form.text import JsonSettings
from worker.converters.partitioner import choose_partitions, hash_murmur2
from worker.converters.primitives import LongConverter
from worker.converters.protobuf_form.compile import compile_protobuf
from worker.converters.protobuf_form.files import proto_files
from worker.converters.protobuf_form.read import protobuf_reader
from worker.converters.protobuf_form.schema import ProtobufSettings, proto_file, proto_text
from worker.converters.string import StringConverter

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 9
ROW = struct(
    "shop.Customer",
    {
        "id": INT64,
        "quantity": INT32,
        "name": STRING,
        "mail": STRING,
        "price": FLOAT64,
        "active": BOOLEAN,
        "note": OPTIONAL_STRING,
        "created": timestamp(),
        "city": STRING,
        "level": INT16,
    },
)
VALUE: dict[str, Any] = {
    "id": 123456789012,
    "quantity": 42,
    "name": "customer name here",
    "mail": "first.last@example.com",
    "price": 12.5,
    "active": True,
    "note": None,
    "created": 1732180000000,
    "city": "Zürich",
    "level": 7,
}
_STATE = Schema(Type.STRUCT, optional=True, name="shop.Customer.Value", fields=ROW.fields)
ENVELOPE = struct(
    "shop.Customer.Envelope",
    {
        "before": _STATE,
        "after": _STATE,
        "source": struct(
            "source",
            {
                "version": STRING,
                "connector": STRING,
                "name": STRING,
                "ts_ms": INT64,
                "db": STRING,
                "table": OPTIONAL_STRING,
                "file": STRING,
                "pos": INT64,
                "row": INT32,
            },
        ),
        "op": STRING,
        "ts_ms": OPTIONAL_INT64,
    },
)
CHANGE: dict[str, Any] = {
    "before": {**VALUE, "quantity": 41},
    "after": VALUE,
    "source": {
        "version": "1.0",
        "connector": "mysql",
        "name": "shop",
        "ts_ms": 1732180000123,
        "db": "shop",
        "table": "customer",
        "file": "binlog.000042",
        "pos": 123456,
        "row": 0,
    },
    "op": "u",
    "ts_ms": 1732180000456,
}
LINE = "a line of a log file, as FileStreamSource would send it. " * 4


def cost(action: Callable[[], object], per_call: int = 1) -> float:
    """Microseconds of CPU that one unit of ``action`` takes."""
    count = 1
    while True:
        started = time.process_time()
        for _ in range(count):
            action()
        spent = time.process_time() - started
        if spent > 0.02:
            break
        count *= 4
    best = spent
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(count):
            action()
        best = min(best, time.process_time() - started)
    return best / count / per_call * 1e6


def main(argv: list[str]) -> int:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)

    def show(text: str, figure: float, note: str = "") -> None:
        sys.stdout.write(f"{text:<62}{figure:7.3f} us{'  ' + note if note else ''}\n")

    sys.stdout.write(f"{environment()}\n")
    plain, full = JsonConverter({"schemas.enable": "false"}), JsonConverter({"schemas.enable": "true"})
    text = StringConverter({}).encoder("t", STRING)
    show(f"String: text of {len(LINE)} bytes", cost(lambda: text(LINE)))
    any_plain, string_full = plain.encoder("t", None), full.encoder("t", STRING)
    show("JSON: schemaless text", cost(lambda: any_plain(LINE)))
    show("JSON: text with schema", cost(lambda: string_full(LINE)))
    show("JSON: schemaless dict of 10", cost(lambda: any_plain(VALUE)))
    for name, converter in (("schemas.enable=false", plain), ("schemas.enable=true", full)):
        encode, encode_change = converter.encoder("t", ROW), converter.encoder("t", ENVELOPE)
        show(f"JSON: struct of 10, {name}", cost(lambda encode=encode: encode(VALUE)))  # type: ignore[misc]
        show(f"JSON: change envelope, {name}", cost(lambda encode=encode_change: encode(CHANGE)))  # type: ignore[misc]
    read = full.from_connect("t", ROW, VALUE)
    show("JSON: struct of 10 with schema, read", cost(lambda: full.to_connect("t", read)))
    for label, schema, value in (("struct of 10", ROW, VALUE), ("change envelope", ENVELOPE, CHANGE)):
        _avro(show, label, schema, value)
        _json_schema(show, label, schema, value)
        _protobuf(show, label, schema, value)
    number = LongConverter({}).encoder("t", INT64)
    show("Long: one number", cost(lambda: number(123456789012)))
    for kind, options in (("data with its schema", {}), ("plain data", {"json.schemas.enable": "false"})):
        event = CloudEventsConverter(options, is_key=False).encoder("t", ENVELOPE)
        show(f"CloudEvents: change envelope, {kind}", cost(lambda event=event: event(CHANGE)))  # type: ignore[misc]
    keys = [os.urandom(16) for _ in range(500)]
    show("murmur2: 16-byte keys, batch of 500", cost(lambda: choose_partitions(keys, 12), 500))
    small_batch = keys[:16]
    show("murmur2: 16-byte keys, batch of 16", cost(lambda: choose_partitions(small_batch, 12), 16))
    mixed = [b'{"id":%d}' % (7 ** (number % 17)) for number in range(500)]
    show("murmur2: JSON keys of mixed lengths, batch of 500", cost(lambda: choose_partitions(mixed, 12), 500))
    key = keys[0]
    show("murmur2: one 16-byte key", cost(lambda: hash_murmur2(key)))
    show("murmur2: one 16-byte key, aiokafka", cost(lambda: aiokafka_murmur2(key)))
    return 0


def _avro(show: Callable[..., None], label: str, schema: Schema, value: dict[str, Any]) -> None:
    settings = AvroSettings()
    encode = compile_avro(schema, settings, b"\x00\x00\x00\x00\x01")
    parsed: Any = fastavro.parse_schema(without_logical_types(json.loads(avro_text(schema, settings))))

    def by_fastavro() -> bytes:
        out = io.BytesIO()
        out.write(b"\x00\x00\x00\x00\x01")
        fastavro.schemaless_writer(out, parsed, value)
        return out.getvalue()

    if encode(value) != by_fastavro():
        raise AssertionError("the generated encoder and fastavro do not agree")
    ours, theirs = cost(lambda: encode(value)), cost(by_fastavro)
    show(f"Avro: {label}", ours)
    show(f"Avro: {label}, fastavro", theirs, f"{theirs / ours:.1f} x")


def _json_schema(show: Callable[..., None], label: str, schema: Schema, value: dict[str, Any]) -> None:
    settings = JsonSettings(entries=True)
    encode = compile_encoder(schema, settings, envelope=False, head=b"\x00\x00\x00\x00\x01")
    read = json_schema_reader(json_schema_text(schema, JsonSchemaSettings(settings)), {}, JsonSchemaSettings(settings))
    data = encode(value) or b""
    if read(data[5:])[1] != value:
        raise AssertionError("what is written is not read back")
    show(f"JSON Schema: {label}", cost(lambda: encode(value)), f"{len(data)} bytes")
    show(f"JSON Schema: {label}, read", cost(lambda: read(data[5:])))


def _protobuf(show: Callable[..., None], label: str, schema: Schema, value: dict[str, Any]) -> None:
    settings = ProtobufSettings(optional=True)
    file = proto_file(schema, settings)
    encode = compile_protobuf(file, schema, b"\x00\x00\x00\x00\x01\x00", replace_null=True)
    files = proto_files(proto_text(file), {})
    make: Any = message_factory.GetMessageClass(files.message([0]))

    def content(item: dict[str, Any]) -> Any:
        return {
            name: content(part)
            if isinstance(part, dict)
            else {"seconds": part // 1000, "nanos": part % 1000 * 1_000_000}
            if name == "created"
            else part
            for name, part in item.items()
            if part is not None
        }

    def by_runtime() -> bytes:
        return b"\x00\x00\x00\x00\x01\x00" + bytes(make(**content(value)).SerializeToString())

    if encode(value) != by_runtime():
        raise AssertionError("the generated encoder and the protobuf package do not agree")
    ready = content(value)
    ours, theirs = cost(lambda: encode(value)), cost(by_runtime)
    least = cost(lambda: make(**ready).SerializeToString())
    show(f"Protobuf: {label}", ours, f"{len(encode(value) or b'')} bytes")
    show(f"Protobuf: {label}, protobuf package ({api_implementation.Type()})", theirs, f"{theirs / ours:.1f} x")
    show(f"Protobuf: {label}, the package's message and bytes alone", least, f"{least / ours:.1f} x")
    read, data = protobuf_reader(proto_text(file), {}, settings), (encode(value) or b"")[5:]
    show(f"Protobuf: {label}, read", cost(lambda: read(data)))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
