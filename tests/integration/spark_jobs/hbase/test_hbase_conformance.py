"""The conformance kit on HBase: rows by key as text and as bytes, and a row for each change."""

from __future__ import annotations

import json
import struct
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.sinks.hbase.tables import usable_name
from spark_jobs.testing import Gate, SinkTarget, Supports, cases, check_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from compose.local.targets.hbase import HBase
    from spark_jobs.contract import TableSchema
    from tests.integration.spark_jobs.hbase.conftest import Reader


def _number(form: str) -> Callable[[bytes], Any]:
    return lambda value: struct.unpack(form, value)[0]


def _decimal(value: bytes) -> Decimal:
    (scale,) = struct.unpack(">i", value[:4])
    number = int.from_bytes(value[4:], "big", signed=True)
    # Not by scaleb, which rounds to 28 digits.
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


#: How the bytes of a cell are read, by type.
TEXT: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("array", "map", "struct"), json.loads),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), lambda value: datetime.fromisoformat(value.decode())),
    "decimal": lambda value: Decimal(value.decode()),
    "boolean": lambda value: {"true": True, "false": False}[value.decode()],
    "date": lambda value: date.fromisoformat(value.decode()),
    "string": bytes.decode,
    "binary": bytes,
}
_NUMBERS = {"byte": ">b", "short": ">h", "integer": ">i", "long": ">q", "float": ">f", "double": ">d"}
BINARY: dict[str, Callable[[bytes], Any]] = {
    **TEXT,
    **{kind: _number(form) for kind, form in _NUMBERS.items()},
    "boolean": lambda value: {b"\xff": True, b"\x00": False}[value],
    "decimal": _decimal,
}


class HBaseTarget(SinkTarget):
    """An HBase behind a gate."""

    sink_type = "hbase"

    def __init__(self, reader: Reader, gate: Gate, **options: str) -> None:
        self.reader = reader
        self.gate: Gate = gate
        self.more = options

    def options(self) -> Mapping[str, str]:
        return {
            "sink.hbase.address": f"127.0.0.1:{self.gate.port}",
            "sink.hbase.timeout.ms": "5000",
            "sink.hbase.retries": "1",
            "sink.hbase.retry.backoff.ms": "20",
            **self.more,
        }

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        readers = BINARY if self.more.get("sink.hbase.values") == "binary" else TEXT
        stored = []
        table = self.more.get("sink.hbase.table") or usable_name(schema.namespace)
        for cells in self.reader.cells(table).values():
            row: dict[str, Any] = {
                "ums_id_": readers["long"](cells["cf:ums_id_"][0][1]),
                "ums_op_": cells["cf:ums_op_"][0][1].decode(),
            }
            for column in schema.columns:
                values = cells.get(f"cf:{column.name}")
                row[column.name] = readers[column.type.typeName()](values[0][1]) if values else None
            stored.append(row)
        return stored

    def refused_row(self) -> Mapping[str, Any]:
        """The table is there before the job, and takes values of 100 kB at most."""
        limit = {"hbase.server.keyvalue.maxsize": "100000"}
        self.reader.create(self.more["sink.hbase.table"], "cf", attributes=limit)
        return {"name": "x" * 200_000}


@pytest.fixture
def gate(hbase: HBase) -> Iterator[Gate]:
    with Gate("127.0.0.1", hbase.port or 0) as proxy:
        yield proxy


# A table takes seconds to create: the kit is for slow runs.
@pytest.mark.slow
@pytest.mark.proves("into hbase", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", cases())
def test_conformance_of_rows(case: str, reader: Reader, gate: Gate, spark: SparkSession, bootstrap: str) -> None:
    # The case of the refused row has one table, made by ``refused_row``.
    options = {"sink.hbase.table": "small_values"} if case == "poison_record" else {}
    check_sink(HBaseTarget(reader, gate, **options), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["replay", "every_type", "nulls_and_absent_columns"])
def test_conformance_of_bytes(case: str, reader: Reader, gate: Gate, spark: SparkSession) -> None:
    check_sink(HBaseTarget(reader, gate, **{"sink.hbase.values": "binary"}), spark=spark, only=case)


@pytest.mark.slow
@pytest.mark.proves("into hbase insert", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", ["replay", "delete", "many_rows", "killed_at_every_step"])
def test_conformance_of_changes(case: str, reader: Reader, gate: Gate, spark: SparkSession) -> None:
    target = HBaseTarget(reader, gate, **{"sink.hbase.mode": "insert"})
    target.supports = Supports(upsert=False, ordering=False, remembers_deletes=False)
    check_sink(target, spark=spark, only=case)
