"""Debezium events of one table of eight columns, as topics of the row benchmark hold them."""

from __future__ import annotations

import asyncio
import multiprocessing
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors.schema import Schema, Type, decimal, struct
from worker.converters.avro import AvroConverter
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable

#: How topics are encoded: JSON with and without a schema in each message, Avro with a schema registry.
ENCODINGS: Final = ("json", "json-schemas", "avro")
DATABASE: Final = "shop"
TABLE: Final = "orders"
_TEXT: Final = Schema(Type.STRING, optional=True)
_LONG: Final = Schema(Type.INT64, optional=True)
_BEGIN_US: Final = 1_780_000_000_000_000
_SOURCE: Final = struct(
    "io.debezium.connector.mysql.Source",
    {
        "version": Schema(Type.STRING),
        "connector": Schema(Type.STRING),
        "name": Schema(Type.STRING),
        "ts_ms": Schema(Type.INT64),
        "snapshot": _TEXT,
        "db": Schema(Type.STRING),
        "sequence": _TEXT,
        "ts_us": _LONG,
        "ts_ns": _LONG,
        "table": _TEXT,
        "server_id": Schema(Type.INT64),
        "gtid": _TEXT,
        "file": Schema(Type.STRING),
        "pos": Schema(Type.INT64),
        "row": Schema(Type.INT32),
        "thread": _LONG,
        "query": _TEXT,
    },
)


def row_schema() -> Schema:
    """A key, strings, numbers, a time, a flag."""
    return struct(
        "server.shop.orders.Value",
        {
            "id": Schema(Type.INT64),
            "customer": _LONG,
            "item": _TEXT,
            "note": _TEXT,
            "price": decimal(2, optional=True),
            "weight": Schema(Type.FLOAT64, optional=True),
            "placed": Schema(Type.INT64, optional=True, name="io.debezium.time.MicroTimestamp"),
            "paid": Schema(Type.BOOLEAN, optional=True),
        },
        optional=True,
    )


def envelope_schema() -> Schema:
    """Debezium's envelope of such a row."""
    row = row_schema()
    return struct(
        "server.shop.orders.Envelope",
        {
            "before": row,
            "after": row,
            "source": _SOURCE,
            "op": Schema(Type.STRING),
            "ts_ms": _LONG,
            "ts_us": _LONG,
            "ts_ns": _LONG,
        },
    )


def key_schema() -> Schema:
    """The key of the table."""
    return struct("server.shop.orders.Key", {"id": Schema(Type.INT64)})


def row(key: int, number: int) -> dict[str, Any]:
    """The row of a key as the change ``number`` leaves it."""
    from decimal import Decimal

    return {
        "id": key,
        "customer": key % 10_007,
        "item": f"item {key % 500}",
        "note": chr(97 + number % 26) * 40,
        "price": Decimal(number % 100_000).scaleb(-2),
        "weight": number / 7,
        "placed": _BEGIN_US + number * 1000,
        "paid": number % 3 == 0,
    }


def change(number: int, keys: int) -> tuple[int, dict[str, Any]]:
    """The change of that number, and its key: every key is inserted, then updated; each twentieth update is a delete."""
    key = number * 7919 % keys
    first = number < keys
    after = row(key, number)
    deleted = not first and number % 20 == 0
    at = _BEGIN_US + number * 1000
    return key, {
        "before": None if first else row(key, number - keys),
        "after": None if deleted else after,
        "source": {
            "version": "3.5.0.Final",
            "connector": "mysql",
            "name": "server",
            "ts_ms": at // 1000,
            "snapshot": "false",
            "db": DATABASE,
            "sequence": None,
            "ts_us": at,
            "ts_ns": at * 1000,
            "table": TABLE,
            "server_id": 223344,
            "gtid": None,
            "file": "mysql-bin.000003",
            "pos": 154 + number * 300,
            "row": 0,
            "thread": 17,
            "query": None,
        },
        "op": "c" if first else "d" if deleted else "u",
        "ts_ms": at // 1000 + 5,
        "ts_us": at + 5000,
        "ts_ns": (at + 5000) * 1000,
    }


def encoders(
    encoding: str, topic: str, registry: str
) -> tuple[Callable[[Any], bytes | None], Callable[[Any], bytes | None]]:
    """The encoders of keys and values; registers the schemas of Avro. Blocks."""
    schemas = key_schema(), envelope_schema()
    if encoding != "avro":
        settings = {"schemas.enable": str(encoding == "json-schemas").lower()}
        key, value = (
            JsonConverter(settings, is_key=is_key).encoder(topic, schema)
            for is_key, schema in zip((True, False), schemas, strict=True)
        )
        return key, value
    pair = []
    for is_key, schema in zip((True, False), schemas, strict=True):
        converter = AvroConverter({"schema.registry.url": registry}, is_key=is_key)

        async def prepare(converter: AvroConverter = converter, schema: Schema = schema) -> None:
            await converter.prepare(topic, schema)
            await converter.close()

        asyncio.run(prepare())
        pair.append(converter.encoder(topic, schema))
    return pair[0], pair[1]


def records(encoding: str, topic: str, registry: str, numbers: range, keys: int) -> list[tuple[bytes, bytes, int]]:
    """Key, value and key number of the changes of these numbers."""
    encode_key, encode = encoders(encoding, topic, registry)
    encoded = []
    for number in numbers:
        key, event = change(number, keys)
        encoded.append((encode_key({"id": key}) or b"", encode(event) or b"", key))
    return encoded


def _fill(bootstrap: str, encoding: str, topic: str, registry: str, rows: int, partitions: int, partition: int) -> None:
    """Write one partition."""
    encode_key, encode = encoders(encoding, topic, registry)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 200_000,
            "enable.idempotence": True,
        }
    )
    keys = max(rows // 2, 1)
    for number in range(rows):
        if number * 7919 % keys % partitions != partition:
            continue
        key, event = change(number, keys)
        while True:
            try:
                producer.produce(topic, encode(event), encode_key({"id": key}), partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise RuntimeError("Kafka did not take the events")


def fill(bootstrap: str, encoding: str, topic: str, registry: str, rows: int, partitions: int) -> None:
    """Make the topic and write ``rows`` changes into it, a process for each partition. Blocks."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=_fill, args=(bootstrap, encoding, topic, registry, rows, partitions, partition))
        for partition in range(partitions)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        if writer.exitcode:
            raise RuntimeError(f"writing topic {topic} failed with exit code {writer.exitcode}")
