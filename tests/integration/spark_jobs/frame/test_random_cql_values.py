"""Random values of every CQL type through the materializer's engine, a job and its sink: each target has them all."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import random
import uuid
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec
import pytest

from connectors.cql.types import parse_type
from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateDeletion, UpdateRow
from tests.integration.spark_jobs.cassandra_sink.conftest import client, keyspace  # noqa: F401 - fixtures
from tests.integration.spark_jobs.clickhouse.conftest import clickhouse  # noqa: F401 - a fixture
from tests.integration.spark_jobs.delta.test_delta_conformance import DeltaTarget
from tests.integration.spark_jobs.files.test_files_conformance import FilesTarget
from tests.integration.spark_jobs.frame.test_random_streams import (
    SERVERS,
    StreamJob,
    create_source_topics,
    gate,  # noqa: F401 - a fixture
    make_server_target,
    name_in_target,
    name_seeds,
)
from tests.integration.spark_jobs.hbase.conftest import hbase  # noqa: F401 - a fixture
from tests.integration.spark_jobs.iceberg.test_iceberg_conformance import IcebergTarget
from tests.integration.spark_jobs.jdbc.conftest import database
from tests.integration.spark_jobs.jdbc.test_jdbc_conformance import JdbcTarget
from tests.integration.spark_jobs.mongodb.conftest import mongodb  # noqa: F401 - a fixture
from tests.integration.spark_jobs.opensearch.conftest import door, opensearch  # noqa: F401 - fixtures
from tests.support.change_messages import Message, StreamBatch
from tests.support.change_streams import read_value
from tests.support.materializer import KEY, Bench, Column, MemoryRegistry, Written, source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.testing import SinkTarget

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - times of the model are UTC without a zone
_ENCODINGS: Final = ("avro", "json-schemas")


class CqlValue(NamedTuple):
    """A value as an update has it, and as it is read back."""

    cell: Any
    model: Any


class CqlKind(NamedTuple):
    """A CQL type: how its values are drawn and read back, and what ClickHouse has in place of null."""

    draw: Callable[[random.Random], CqlValue]
    read: Callable[[Any], Any]
    empty: Any = None


def _read(family: str) -> Callable[[Any], Any]:
    return lambda raw: read_value(family, raw)


def _same(draw: Callable[[random.Random], Any], read: Callable[[Any], Any], empty: Any = None) -> CqlKind:
    def draw_value(chance: random.Random) -> CqlValue:
        value = draw(chance)
        return CqlValue(value, read(value))

    return CqlKind(draw_value, read, empty)


def _whole(bits: int) -> CqlKind:
    bound = 1 << (bits - 1)
    return _same(lambda chance: chance.choice((0, -bound, bound - 1, chance.randrange(-bound, bound))), int)


def _draw_date(chance: random.Random) -> CqlValue:
    day = chance.choice((dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), dt.date(1582, 10, 10)))
    day = chance.choice((day, dt.date.fromordinal(chance.randrange(700_000, 760_000))))
    return CqlValue(day.toordinal() - dt.date(1970, 1, 1).toordinal(), day)


def _draw_moment(chance: random.Random) -> CqlValue:
    millis = chance.choice((0, -1, chance.randrange(-(10**12), 10**13)))
    return CqlValue(millis, _EPOCH + dt.timedelta(milliseconds=millis))


def _draw_clock(chance: random.Random) -> CqlValue:
    nanos = chance.choice((0, 86_399_999_999_999, chance.randrange(86_400_000_000_000)))
    return CqlValue(nanos, nanos // 1000)


def _read_float(raw: Any) -> str:
    value = float(raw)
    return "nan" if math.isnan(value) else repr(value)


def _read_nested(raw: Any) -> Any:
    def in_json(value: Any) -> Any:
        return base64.b64encode(value).decode() if isinstance(value, bytes | bytearray) else dict(value)

    return json.loads(raw) if isinstance(raw, str | bytes) else json.loads(json.dumps(raw, default=in_json))


def _draw_string(chance: random.Random) -> str:
    return chance.choice(("", "a", "\u00fc \U0001f600", "it's \" \\ % {}", "null", "0", " a ", "x" * 5000, "a\n\tb"))


def _draw_digits(chance: random.Random) -> int:
    digits = chance.choice((1, 18, 19, 37, 60))
    return chance.randrange(-(10**digits), 10**digits)


def _draw_double(chance: random.Random) -> float:
    return chance.choice((0.0, 0.1, -1.5, 1e300, 5e-324, chance.random()))


_uuid = _same(lambda chance: str(uuid.UUID(int=chance.getrandbits(128), version=4)), str)
KINDS: Final[dict[str, CqlKind]] = {
    "ascii": _same(lambda chance: chance.choice(("", "abc", "it's", "\\x")), _read("string")),
    "text": _same(_draw_string, _read("string")),
    "boolean": _same(lambda chance: chance.random() < 0.5, _read("boolean")),
    "tinyint": _whole(8),
    "smallint": _whole(16),
    "int": _whole(32),
    "bigint": _whole(64),
    "varint": _same(lambda chance: str(_draw_digits(chance)), lambda raw: Decimal(str(raw))),
    "decimal": _same(
        lambda chance: str(Decimal(_draw_digits(chance)).scaleb(-chance.choice((0, 2, 18)))),
        lambda raw: Decimal(str(raw)),
    ),
    "float": _same(lambda chance: chance.choice((0.0, -1.5, 16777216.0, 0.5)), _read_float),
    "double": _same(_draw_double, _read_float),
    "blob": _same(lambda chance: chance.randbytes(chance.choice((0, 1, 300))), _read("bytes")),
    "uuid": _uuid,
    "timeuuid": _same(lambda chance: str(uuid.uuid1(chance.getrandbits(48))), str),
    "inet": _same(lambda chance: chance.choice(("10.0.0.1", "::1", "2001:db8::ff00:42:8329")), _read("string")),
    "date": CqlKind(_draw_date, _read("date")),
    "time": CqlKind(_draw_clock, _read("clock")),
    "timestamp": CqlKind(_draw_moment, _read("moment")),
    "duration": _same(lambda chance: chance.choice(("1mo2d3h", "-5s", "0s")), _read("string")),
    "frozen<list<int>>": _same(
        lambda chance: [chance.randrange(9) for _ in range(chance.randrange(3))], _read_nested, []
    ),
    "frozen<set<uuid>>": _same(
        lambda chance: sorted(_uuid.draw(chance).cell for _ in range(chance.randrange(3))), _read_nested, []
    ),
    "frozen<map<text, decimal>>": _same(
        lambda chance: [{"key": name, "value": "1.50"} for name in "ab"[: chance.randrange(3)]], _read_nested, []
    ),
    "tuple<int, text>": _same(
        lambda chance: {"field_0": chance.choice((None, 1)), "field_1": chance.choice((None, "", "q"))},
        _read_nested,
        {"field_0": None, "field_1": None},
    ),
}


@dataclass
class CqlForm:
    """The materializer's events as the topic that a job reads; see ``MessageForm``."""

    encoding: str
    topic: str
    name: str = "cql"
    schemas: dict[int, str] = field(default_factory=dict)

    def options(self) -> dict[str, str]:
        """The options of a job that reads it."""
        options = {"source.format": "debezium", "source.topics": self.topic}
        if self.encoding != "avro":
            return options
        return options | {
            "source.value.encoding": "avro",
            "source.key.encoding": "avro",
            "source.schema.registry.url": "http://127.0.0.1:1",
        }


class CqlTable:
    """A table with a column of each type: its updates, the events that the materializer makes of them, its rows."""

    def __init__(self, chance: random.Random, kinds: Sequence[str], name: str, form: CqlForm) -> None:
        self.chance = chance
        self.form = form
        self.kinds = {f"c{number}": KINDS[kind] for number, kind in enumerate(kinds)}
        columns = [KEY, *(Column(f"c{number}", parse_type(kind), "regular") for number, kind in enumerate(kinds))]
        self.registry = MemoryRegistry()
        self.source = msgspec.structs.replace(source(), table=name)
        self.written = Written(columns, self.registry, self.source)
        self.bench = Bench(
            registry=self.registry,
            input_encoding="avro",
            output_encoding=form.encoding,
            tombstones_on_delete=False,
        )
        self.bench.folds = False
        self.rows: dict[str, dict[str, Any]] = {}

    def change(self, time: int) -> None:
        """Write some cells of a row, or delete it."""
        key = self.chance.choice("abcd")
        deleted = key in self.rows and self.chance.random() < 0.15
        update = PartitionUpdate(source=self.source, key=(key,), write_time=time)
        if deleted:
            del self.rows[key]
            update = msgspec.structs.replace(update, deletion=UpdateDeletion(time, time // 1_000_000))
        else:
            row = self.rows.setdefault(key, dict.fromkeys(self.kinds))
            cells = []
            for name, kind in self.kinds.items():
                if self.chance.random() < 0.3:
                    continue
                value = CqlValue(None, None) if self.chance.random() < 0.2 else kind.draw(self.chance)
                row[name] = value.model
                cells.append(Cell(name, None, value.cell, CellStamp(time)))
            update = msgspec.structs.replace(update, rows=(UpdateRow((), CellStamp(time), None, tuple(cells)),))
        self.bench.apply(self.written.record(update))

    def batch(self, offset: int) -> StreamBatch:
        """The events since the last batch as records of a topic."""
        output, self.bench.output = self.bench.output, []
        self.form.schemas.update(enumerate(self.registry.schemas, 1))
        messages = [Message(self.form.topic, 0, record.key, cast("bytes", record.value), ()) for record in output]
        records = tuple((self.form.topic, 0, offset + number, message) for number, message in enumerate(messages))
        return StreamBatch(records, {(self.form.topic, 0): (offset, offset + len(records))})

    def read(self, raw: dict[str, Any]) -> dict[str, Any]:
        """A row of the target in the form of the model."""
        return {name: None if raw.get(name) is None else kind.read(raw[name]) for name, kind in self.kinds.items()}

    def fill(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of the model as ClickHouse has it."""
        return {name: kind.empty if row[name] is None else row[name] for name, kind in self.kinds.items()}


def check_target(seed: int, spark: SparkSession, folder: Path, label: str, target: SinkTarget) -> None:
    """Send updates of a table through the materializer and a job into a target, and compare each row."""
    chance = random.Random(f"cql-{seed}-{label}")
    form = CqlForm(chance.choice(_ENCODINGS), f"cql-{seed}-{label}")
    table = CqlTable(chance, list(KINDS), f"cql{seed}", form)
    properties = {
        "name": f"cql-{seed}-{label}",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "checkpoint.location": str(folder / f"checkpoint-{label}"),
        "sink.type": target.sink_type,
        **target.options(),
        **form.options(),
    }
    print(f"seed {seed} into {label}: {form.encoding}")
    if target.sink_type == "kafka":
        create_source_topics(properties)
    job = StreamJob(spark, properties, cast("Any", form))
    offset, time = 0, 1_700_000_000_000_000
    for number in range(3):
        for _ in range(15):
            time += 1_000_000
            table.change(time)
        batch = table.batch(offset)
        offset += len(batch.records)
        cast("Any", job.batches._get_source())._kinds._schema_texts.update(form.schemas)
        job.write(batch, number)
    name = f"ks.{table.source.table}"
    schema = replace(job.schemas[name], namespace=name_in_target(target, name))
    newest: dict[str, dict[str, Any]] = {}
    for raw in sorted(target.rows(schema), key=lambda row: row.get("ums_id_", 0)):
        newest[raw["pk"]] = raw
        if raw.get("ums_op_") == "d":
            del newest[raw["pk"]]
    job.batches.close()
    expected = {key: table.fill(row) if label == "clickhouse" else row for key, row in table.rows.items()}
    actual = {key: table.read(raw) for key, raw in newest.items()}
    differing = [
        (key, kind, actual[key][name], expected[key][name])
        for key in actual.keys() & expected.keys()
        for name, kind in zip(table.kinds, KINDS, strict=True)
        if actual[key][name] != expected[key][name]
    ]
    assert (actual.keys(), differing) == (expected.keys(), [])


@pytest.mark.parametrize("seed", name_seeds([0], range(1, 6)))
def test_values_in_files_equal_the_model(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "iceberg").mkdir()
    targets: dict[str, SinkTarget] = {
        "sqlite": JdbcTarget(database(f"jdbc:sqlite:{tmp_path}/shop.db", "", ""), None),
        "delta": DeltaTarget(tmp_path / "delta"),
        "iceberg": IcebergTarget(tmp_path / "iceberg"),
        "files": FilesTarget(spark, tmp_path / "files"),
    }
    for label, target in targets.items():
        check_target(seed, spark, tmp_path, label, target)


@pytest.mark.slow
@pytest.mark.parametrize("seed", name_seeds(range(3), ()))
@pytest.mark.parametrize("label", ["kafka", *SERVERS])
def test_values_in_servers_equal_the_model(
    label: str, seed: int, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    check_target(seed, spark, tmp_path, label, make_server_target(label, seed, tmp_path, request))
