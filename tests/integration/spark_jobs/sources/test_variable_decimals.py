"""Decimals whose scale varies (io.debezium.data.VariableScaleDecimal), in JSON and in Avro alike."""

from __future__ import annotations

import secrets
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from connectors.schema import BYTES, INT32, INT64, array, struct
from spark_jobs.sources.debezium import DebeziumSource
from tests.integration.spark_jobs.sources.test_sources_live import Bench, envelope, event, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from compose.local.registry import SchemaRegistry

VARIABLE = struct("io.debezium.data.VariableScaleDecimal", {"scale": INT32, "value": BYTES}, optional=True, version=1)
COLUMNS = {"id": INT64, "price": VARIABLE, "prices": array(VARIABLE, optional=True)}
NUMBERS = [
    "0",
    "0.00",
    "1",
    "-1",
    "1.10",
    "-0.000000000000000001",
    "12345678901234567890.123456789012345678",
    "1E+3",
    "-2.5E-7",
    "99999999999999999999.999999999999999999",
    "-127",
    "128",
    "3.00000000000000000000",
]
#: Too many digits before the point, too many after it, and more than Spark has at all.
UNFIT = ["1E+20", "1E-19", "1234567890123456789012345678901234567890.5"]


def variable(text: str) -> dict[str, Any]:
    """A value as Debezium's connectors write it."""
    sign, digits, exponent = Decimal(text).as_tuple()
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    return {
        "scale": -int(exponent),
        "value": number.to_bytes((~number if number < 0 else number).bit_length() // 8 + 1, "big", signed=True),
    }


def row(text: str) -> dict[str, Any]:
    return {"price": variable(text), "prices": [variable("0.5"), None, variable(text)]}


@pytest.fixture(scope="module")
def bench(spark: SparkSession, bootstrap: str, registry: SchemaRegistry) -> Callable[[str], Bench]:
    run = secrets.token_hex(4)
    return lambda name: Bench(spark, bootstrap, f"variable-{name}-{run}", registry.url)


@pytest.mark.parametrize("encoding", ["enveloped", "avro"])
def test_they_arrive_as_decimals_and_those_that_do_not_fit_are_put_aside(
    bench: Callable[[str], Bench], encoding: str
) -> None:
    of, dead = bench(encoding), bench(f"dead-{encoding}")
    numbers = [*NUMBERS, *UNFIT]
    events = [event("c", number, values=row(text)) for number, text in enumerate(numbers)]
    events += [
        event("c", 90, values={"price": None, "prices": None}),
        event("c", 91, values={"price": variable("1"), "prices": [variable(UNFIT[0])]}),
        event("d", 92, before={"id": 92, **row("7")}),
    ]
    of.send(of.encode(encoding, envelope(COLUMNS), events))
    tolerant = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead.topic,
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    (table,) = of.changes(of.source(DebeziumSource, encoding, **tolerant))
    assert [column.type.simpleString() for column in table.schema.columns] == [
        "bigint",
        "decimal(38,18)",
        "array<decimal(38,18)>",
    ]
    read = {line["id"]: (line["price"], line["prices"]) for line in rows(table)}
    assert read == {
        **{number: (Decimal(text), [Decimal("0.5"), None, Decimal(text)]) for number, text in enumerate(NUMBERS)},
        90: (None, None),
        92: (Decimal(7), [Decimal("0.5"), None, Decimal(7)]),
    }
    consumer = Consumer({"bootstrap.servers": of.bootstrap, "group.id": "x", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(dead.topic, 0, 0)])
    letters = consumer.consume(len(UNFIT) + 1, 20)
    consumer.close()
    said: dict[int, str] = {}
    for letter in letters:
        headers: dict[str, Any] = dict(letter.headers() or [])
        said[int(headers["__connect.errors.offset"])] = headers["__connect.errors.exception.message"].decode()
    assert sorted(said) == [*range(len(NUMBERS), len(numbers)), len(numbers) + 1]
    for offset, text in said.items():
        assert f"Table shop.orders, column price{'s' if offset > len(numbers) else ''}: the value " in text
        assert "does not fit decimal(38,18). Set source.variable.scale" in text
    assert "100000000000000000000" in said[len(numbers) + 1].replace("1E+20", "100000000000000000000")
    # As text every digit is kept (Avro: up to 38 digits), and another scale is another column.
    kept = of.changes(of.source(DebeziumSource, encoding, **{"source.variable.scale": "text"}), 0, len(numbers) - 1)[0]
    assert [(line["price"], line["prices"][2]) for line in rows(kept)] == [
        (format(Decimal(text), "f"),) * 2 for text in numbers[:-1]
    ]
    narrow = of.changes(of.source(DebeziumSource, encoding, **{"source.variable.scale": "2"}), 4, 5)[0]
    assert [(str(line["price"]), line["prices"][2]) for line in rows(narrow)] == [("1.10", Decimal("1.10"))]
