"""Every row of docs/reference/types.md: what a value is in Avro, PostgreSQL, MariaDB and Parquet after a way through Kafka."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import json
import re
import urllib.request
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from connectors.schema import INT32, STRING, Schema, Type, struct
from spark_jobs import contract
from spark_jobs.contract import Batch
from spark_jobs.sources.debezium import DebeziumSource
from spark_jobs.sources.types import meaning_of
from tests.integration.spark_jobs.files.conftest import Sinks
from tests.integration.spark_jobs.sources.test_sources_live import Bench
from worker.development.reference_types import avro_type, type_cells, type_tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.registry import SchemaRegistry
    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

KEY: Final = struct("d.t.Key", {"id": INT32})
SOURCE: Final = struct("Source", {"db": STRING, "table": STRING})
IDENTITY: Final = "50554d6e-29bb-11e5-b345-feff819cdc9f"
LAST: Final = time(23, 59, 59, 999999)
LAST_US: Final = 86_399_999_999
MOMENT: Final = datetime(2026, 3, 29, 2, 30, 0, 123456, UTC)
MOMENT_US: Final = (MOMENT - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
IN_MS: Final = MOMENT.replace(microsecond=123000)
LEAP_DAY: Final = date(2024, 2, 29)
LEAP_DAYS: Final = (LEAP_DAY - date(1970, 1, 1)).days
#: Logical names: the value as the connector has it, and as psycopg reads it from PostgreSQL.
LOGICAL: Final[dict[str, tuple[Any, Any]]] = {
    "io.debezium.data.Bits": (b"\x02\x01", b"\x02\x01"),
    "io.debezium.data.Enum": ("b", "b"),
    "io.debezium.data.EnumSet": ("a,b", "a,b"),
    "io.debezium.data.Json": ('{"a": [1]}', '{"a": [1]}'),
    "io.debezium.data.Uuid": (IDENTITY, UUID(IDENTITY)),
    "io.debezium.data.VariableScaleDecimal": ({"scale": 3, "value": b"\x30\x39"}, Decimal("12.345")),
    "io.debezium.data.geometry.Geometry": (
        {"wkb": b"\x01\x00", "srid": 4326}, {"wkb": "AQA=", "srid": 4326},
    ),
    "io.debezium.time.Year": (2155, 2155),
    "io.debezium.time.Date": (LEAP_DAYS, LEAP_DAY),
    "io.debezium.time.MicroTime": (LAST_US, LAST),
    "io.debezium.time.NanoTime": (LAST_US * 1000, LAST),
    "io.debezium.time.NanoDuration": (-5, -5),
    "io.debezium.time.Timestamp": (MOMENT_US // 1000, IN_MS.replace(tzinfo=None)),
    "io.debezium.time.MicroTimestamp": (MOMENT_US, MOMENT.replace(tzinfo=None)),
    "io.debezium.time.NanoTimestamp": (MOMENT_US * 1000, MOMENT.replace(tzinfo=None)),
    "io.debezium.time.ZonedTimestamp": ("2026-03-29T02:30:00.123456Z", MOMENT),
    "io.debezium.time.IsoTimestamp": ("2026-03-29T02:30:00.123456Z", MOMENT),
    "org.apache.kafka.connect.data.Date": (LEAP_DAYS, LEAP_DAY),
    "org.apache.kafka.connect.data.Time": (LAST_US // 1000, LAST.replace(microsecond=999000)),
    "org.apache.kafka.connect.data.Timestamp": (MOMENT_US // 1000, IN_MS),
}  # fmt: skip
PLAIN: Final[dict[Type, Any]] = {
    Type.BOOLEAN: True,
    Type.INT8: -128,
    Type.INT16: -32768,
    Type.INT32: -(2**31),
    Type.INT64: 2**63 - 1,
    Type.FLOAT32: 1.5,
    Type.FLOAT64: 0.1,
    Type.STRING: "ü 😀",
    Type.BYTES: b"\x00\xff",
}
#: The meanings of plain types.
MEANINGS: Final[dict[str, tuple[Any, Any]]] = {
    contract.UUID: (IDENTITY, UUID(IDENTITY)),
    contract.NUMBER: (
        "-170141183460469231731687303715884105728.25",
        Decimal("-170141183460469231731687303715884105728.25"),
    ),
    contract.TIME: (LAST_US * 1000, LAST),
}


def sample(schema: Schema, *, nested: bool = False) -> tuple[Any, Any]:
    """A value of a schema as the connector has it, and as PostgreSQL gives it back (nested: as it is in JSON)."""
    if schema.name == "org.apache.kafka.connect.data.Decimal":
        value = Decimal(-12345).scaleb(-int(schema.parameter("scale") or 0))
        return value, value
    if schema.name in LOGICAL:
        value, expected = LOGICAL[schema.name]
        return value, str(expected) if nested and isinstance(expected, UUID) else expected
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        value, expected = sample(schema.value_schema, nested=True)
        return [value], [expected]
    if schema.type is Type.MAP:
        assert schema.value_schema is not None
        value, expected = sample(schema.value_schema, nested=True)
        return {"k": value}, {"k": expected}
    if schema.type is Type.STRUCT:
        pairs = {field.name: sample(field.schema, nested=True) for field in schema.fields}
        return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}
    meaning = meaning_of(schema)
    if meaning and not nested:
        return MEANINGS[meaning]
    return PLAIN[schema.type], PLAIN[schema.type]


#: The title of the table with the row, and the schema.
ROWS: Final = [(f"{head[0].strip()} {name}", schema) for head, rows in type_tables() for name, schema in rows]
COLUMNS: Final = {f"c{number}": schema for number, (_, schema) in enumerate(ROWS)}


@pytest.mark.parametrize("encoding", [pytest.param("enveloped", marks=pytest.mark.slow), "avro"])
def test_every_row(
    encoding: str,
    rig: Callable[..., Rig],
    postgresql: Database,
    maria: Database,
    table: str,
    spark: SparkSession,
    bootstrap: str,
    registry: SchemaRegistry,
    tmp_path: Path,
) -> None:
    row = struct("d.t.Value", {"id": INT32, **COLUMNS}, optional=True)
    schema = struct("d.t.Envelope", {"before": row, "after": row, "source": SOURCE, "op": STRING})
    samples = {name: sample(part) for name, part in COLUMNS.items()}
    values = {name: value for name, (value, _) in samples.items()}
    events = [
        {"before": None, "after": {"id": number, **row_values}, "source": {"db": "d", "table": table}, "op": "c"}
        for number, row_values in enumerate((values, dict.fromkeys(COLUMNS)))
    ]
    bench = Bench(spark, bootstrap, f"{table}-{encoding}", registry.url)
    bench.send(bench.encode(encoding, schema, events, KEY))
    source = bench.source(DebeziumSource, encoding)
    first = bench.changes(source)
    # The second batch shows nothing new, so its rows go to the sinks in Arrow.
    second = bench.changes(source)
    expected = {name: type_cells(part) for name, part in COLUMNS.items()}
    wrong: list[tuple[Any, ...]] = []

    def compare(where: str, position: int, kinds: dict[str, str]) -> None:
        wrong.extend(
            (title, where, kinds[name], expected[name][position])
            for (title, _), name in zip(ROWS, COLUMNS, strict=True)
            if kinds[name] != expected[name][position]
        )

    if encoding == "avro":
        url = f"{registry.url}/subjects/{bench.topic}-value/versions/latest"
        with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - our own server
            declared = json.loads(json.load(answer)["schema"])
        (image,) = (field for field in declared["fields"] if field["name"] == "before")
        fields = {field["name"]: field["type"] for field in image["type"][1]["fields"]}
        kinds = {name: avro_type(fields[name]) for name in COLUMNS}
        # A record that comes again is there by its name.
        records = {
            member["connect.name"]: kinds[name] for name in COLUMNS for member in fields[name] if is_record(member)
        }
        compare("Avro", 1, {name: records.get(kind, kind) for name, kind in kinds.items()})
    for batch, changes in enumerate((first, second)):
        (change,) = changes
        compare("Spark", 2, {column.name: column.type.simpleString() for column in change.schema.columns})
        for position, server in ((3, postgresql), (4, maria)):
            target = f"{table}_{encoding}_{batch}"
            into = rig(server, spark, **{"sink.jdbc.table": target, "sink.jdbc.repartition": "never"})
            assert into.sink.write(into.batch(*changes)) == 2
            compare(server.name, position, declared_types(server, target))
            row_of = server.query(f"SELECT {', '.join(COLUMNS)} FROM {target} ORDER BY id")
            assert row_of[1] == (None,) * len(COLUMNS)
            if server is postgresql:
                values_read = dict(zip(COLUMNS, map(plain, row_of[0]), strict=True))
                wrong += [
                    (title, "value", values_read[name], samples[name][1])
                    for (title, _), name in zip(ROWS, COLUMNS, strict=True)
                    if values_read[name] != samples[name][1]
                ]
            else:
                assert None not in row_of[0]
    files = Sinks(spark, tmp_path / encoding)
    assert files.make().write(Batch(0, None, {(bench.topic, 0): (0, 2)}, lambda: first)) == 2  # type: ignore[arg-type]
    (file,) = (tmp_path / encoding).rglob("*.parquet")
    kinds = {field.name: field.dataType.simpleString() for field in spark.read.parquet(str(file)).schema.fields}
    compare("Parquet", 2, kinds)
    assert pq.ParquetFile(file).read().num_rows == 2
    assert wrong == []


def is_record(declared: Any) -> bool:
    """Whether a part of a union declares a record with a name of Connect's."""
    return isinstance(declared, dict) and declared["type"] == "record" and "connect.name" in declared


def plain(value: Any) -> Any:
    """A value of PostgreSQL: bytes as such, moments in UTC."""
    if isinstance(value, memoryview):
        return bytes(value)
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def declared_types(server: Database, table: str) -> dict[str, str]:
    """The types of the columns, as the page writes them."""
    if server.name == "postgresql":
        columns = "column_name, data_type, numeric_precision, numeric_scale"
        rows = server.query(f"SELECT {columns} FROM information_schema.columns WHERE table_name = %s", (table,))
        return {
            name: f"numeric({precision},{scale})" if kind == "numeric" and precision else kind
            for name, kind, precision, scale in rows
        }
    rows = server.query(
        "SELECT column_name, column_type, EXISTS (SELECT 1 FROM information_schema.check_constraints AS c WHERE "
        "c.table_name = columns.table_name AND c.check_clause LIKE concat('json_valid(_', column_name, '_)')) "
        "FROM information_schema.columns WHERE table_name = %s",
        (table,),
    )
    return {
        # JSON is a long text with a check there; widths of integers say nothing, but that of booleans.
        name: "json" if is_json else kind if kind == "tinyint(1)" else re.sub(r"(int)\(\d+\)", r"\1", kind)
        for name, kind, is_json in rows
    }
