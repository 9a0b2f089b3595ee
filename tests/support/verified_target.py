"""A flow whose sink has written rows of many types into a real target, and ``millrace verify`` of that target."""

from __future__ import annotations

import base64
import datetime as dt
import json
import secrets
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_jobs.contract import Column, TableSchema
from spark_jobs.sinks.shared.read_back import ROWS_AT_ONCE
from spark_jobs.testing.batches import BatchFeed, change
from spark_jobs.testing.kit import key_column, make_sink, parse_config
from tests.support.verified import send
from worker.cli import main

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from spark_jobs.contract import Sink
    from spark_jobs.testing.batches import Change

MOMENT: Final = dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=dt.UTC)
MICROS: Final = 1_767_323_045_678_901
DAY: Final = dt.date(2026, 1, 2)
DAYS: Final = 20_455
#: Not UTF-8, so that sinks have to keep bytes.
DATA: Final = b"\x01\xff"
COLUMNS: Final = (
    key_column("id", LongType()),
    Column("name", StringType()),
    Column("price", DecimalType(12, 2)),
    Column("ratio", DoubleType()),
    Column("at", TimestampType()),
    Column("day", DateType()),
    Column("flag", BooleanType()),
    Column("data", BinaryType()),
    Column("nothing", StringType()),
)


def make_change(op: str, order: int, key: int, name: str = "") -> Change:
    """A change as the sink gets it."""
    values = {
        "name": name,
        "price": Decimal("1234.50"),
        "ratio": 0.1,
        "at": MOMENT,
        "day": DAY,
        "flag": True,
        "data": DATA,
        "nothing": None,
    }
    return change(op, order, id=key, **values)


def make_event(op: str, key: int, name: str = "", *, database: str = "shop", table: str = "orders") -> tuple[Any, Any]:
    """A message that says the same in Debezium's form, without schemas; the decimal as Connect's bytes."""
    row = {
        "id": key,
        "name": name,
        "price": base64.b64encode((123_450).to_bytes(3, "big")).decode(),
        "ratio": 0.1,
        "at": MICROS,
        "day": DAYS,
        "flag": True,
        "data": base64.b64encode(DATA).decode(),
        "nothing": None,
    }
    source = {"db": database, "table": table, "file": "b.1", "pos": key}
    return {"id": key}, {"op": op, "source": source, "before": None, "after": None if op == "d" else row}


@dataclass(slots=True)
class VerifiedFlow:
    """A flow from a topic, which has only messages that a test sends, and its sink, which writes only what a test gives it.

    Args:
        spark: the session.
        bootstrap: Kafka's address.
        folder: for its configuration.
        capsys: of the test.
        options: of the sink, with ``sink.type``.
        settle_s: see ``--settle``.
    """

    spark: SparkSession
    bootstrap: str
    folder: Path
    capsys: pytest.CaptureFixture[str]
    options: dict[str, str]
    settle_s: float = 0.2
    table: TableSchema = field(init=False)
    topic: str = field(init=False)
    _feed: BatchFeed = field(init=False)
    _sink: Sink | None = None

    def __post_init__(self) -> None:
        self.table = TableSchema(f"shop.t{secrets.token_hex(4)}", COLUMNS)
        self.topic = f"orders-{secrets.token_hex(4)}"
        self._feed = BatchFeed(self.topic)

    @property
    def properties(self) -> dict[str, str]:
        """The flow's configuration."""
        return {
            "name": "flow",
            "kafka.bootstrap.servers": self.bootstrap,
            "source.topics": self.topic,
            "source.format": "debezium",
            **self.options,
        }

    def write(self, *changes: Change) -> None:
        """Write changes with the sink, as a job does."""
        if self._sink is None:
            self._sink = make_sink(parse_config(self.properties), self.spark)
            self._sink.open()
        self._sink.write(self._feed.next([(self.table, changes)]).frames(self.spark))

    def send(self, *events: tuple[str, int] | tuple[str, int, str]) -> None:
        """Send messages, each given as for ``make_event``."""
        database, _, table = self.table.namespace.partition(".")
        send(self.bootstrap, self.topic, [make_event(*event, database=database, table=table) for event in events])

    def verify(self) -> tuple[int, dict[str, Any]]:
        """The exit code and the report."""
        code, out, error = self.run()
        assert out, error
        return code, json.loads(out)["tables"][0]

    def run(self, **changes: str) -> tuple[int, str, str]:
        """The exit code, the output and the errors of ``millrace verify`` with changes of the configuration."""
        path = self.folder / "flow.json"
        path.write_text(json.dumps({"connector.class": "spark", **self.properties, **changes}))
        self.capsys.readouterr()
        command = ["verify", "--connector-config", str(path), "--bootstrap-servers", self.bootstrap, "--json"]
        code = main([*command, "--settle", str(self.settle_s)])
        out, error = self.capsys.readouterr()
        return code, out, error

    def refusal(self, **changes: str) -> str:
        """The error of a flow that can't be verified."""
        code, _, error = self.run(**changes)
        assert code == 2, error
        return error


def check_one_row_differs(flow: VerifiedFlow) -> None:
    """Of rows that the sink has written in two batches one differs from the topic, and is equal after a third."""
    flow.write(*(make_change("i", 10 + key, key, "old") for key in (1, 2, 3)))
    flow.write(make_change("u", 21, 1, "one"), make_change("u", 22, 2, "two"), make_change("d", 23, 3))
    flow.send(("c", 1, "one"), ("c", 2, "other"), ("c", 3, "old"), ("d", 3))
    code, report = flow.verify()
    assert code == 1
    assert (report["missing"], report["extra"], report["different"]) == (0, 0, 1)
    (row,) = report["differences"]
    assert (row["key"], row["source"], row["topic"]) == ('{"id":"2"}', {"name": '"other"'}, {"name": '"two"'})
    flow.write(make_change("u", 31, 2, "other"))
    code, report = flow.verify()
    assert (code, report["rows"]) == (0, {"source": 2, "topic": 2})


def check_rows_are_compared(flow: VerifiedFlow, target: str, *, first: Sequence[Change] = ()) -> None:
    """Rows that are equal, missing, extra, different and deleted, written by the sink, are distinguished.

    Args:
        flow: the flow.
        target: the name that the report must have for the target.
        first: changes before those of the case.
    """
    flow.write(
        *first,
        *(make_change("i", 10 + key, key, name) for key, name in ((1, "one"), (2, "two"), (3, "three"), (4, "other"))),
        make_change("i", 16, 6, "six"),
    )
    flow.write(make_change("d", 20, 3))
    flow.send(
        ("c", 1, "old"),
        ("u", 1, "one"),
        ("r", 2, "two"),
        ("c", 3, "three"),
        ("d", 3),
        ("c", 4, "four"),
        ("c", 5, "five"),
    )
    code, report = flow.verify()
    assert code == 1
    assert report["examples"] == {"missing": ['{"id":"5"}'], "extra": ['{"id":"6"}'], "different": ['{"id":"4"}']}
    sides = {row["kind"]: (row["source"], row["topic"]) for row in report["differences"]}
    assert sides["different"] == ({"name": '"four"'}, {"name": '"other"'})
    assert sides["missing"][0]["name"] == '"five"'
    assert sides["extra"][1]["name"] == '"six"'
    assert report["rows"] == {"source": 4, "topic": 4}
    assert report["topics"] == [target]
    flow.write(make_change("d", 30, 6), make_change("u", 31, 4, "four"), make_change("i", 32, 5, "five"))
    code, report = flow.verify()
    assert (code, report["equal"], report["unsettled"], report["rows"]) == (0, True, 0, {"source": 4, "topic": 4})


#: Further types of columns: a row's value in Spark, and the same in a message without schemas.
FURTHER_TYPES: Final[dict[str, tuple[DataType, Any, Any]]] = {
    "tiny": (ByteType(), -7, -7),
    "small": (ShortType(), 300, 300),
    "whole": (IntegerType(), 70_000, 70_000),
    "single": (FloatType(), 0.1, 0.1),
    "local": (TimestampNTZType(), MOMENT.replace(tzinfo=None), MICROS),
    "tags": (ArrayType(StringType()), ["b", "a"], ["b", "a"]),
    "days": (ArrayType(DateType()), [DAY], [DAYS]),
    "moments": (ArrayType(TimestampType()), [MOMENT], [MICROS]),
    "raws": (ArrayType(BinaryType()), [DATA], [base64.b64encode(DATA).decode()]),
    "amounts": (ArrayType(DecimalType(12, 2)), [Decimal("1234.50")], [1234.5]),
    "sizes": (MapType(StringType(), DoubleType()), {"x": 0.5}, {"x": 0.5}),
    "part": (
        StructType([StructField("day", DateType()), StructField("flag", BooleanType())]),
        {"day": DAY, "flag": True},
        {"day": DAYS, "flag": True},
    ),
}


def check_further_types(flow: VerifiedFlow, *, without: Collection[str] = ()) -> None:
    """Values of all types that the sink has written are equal to those of messages, and others are not.

    Args:
        flow: the flow.
        without: types that the target does not take.
    """
    types = {name: parts for name, parts in FURTHER_TYPES.items() if name not in without}
    columns = (key_column("id", LongType()), *(Column(name, kind) for name, (kind, _, _) in types.items()))
    flow.table = TableSchema(flow.table.namespace, columns)
    flow.write(*(change("i", key, id=key, **{name: value for name, (_, value, _) in types.items()}) for key in (1, 2)))
    flow.write(change("i", 3, id=3, **dict.fromkeys(types)))
    database, _, table = flow.table.namespace.partition(".")
    said = {name: value for name, (_, _, value) in types.items()}
    others = {name: _other_value(value) for name, value in said.items()}
    rows = {1: said, 2: others, 3: dict.fromkeys(types)}
    source = {"db": database, "table": table, "file": "b.1", "pos": 1}
    send(
        flow.bootstrap,
        flow.topic,
        [({"id": key}, {"op": "c", "source": source, "after": {"id": key, **row}}) for key, row in rows.items()],
    )
    code, report = flow.verify()
    assert (code, report["examples"]) == (1, {"different": ['{"id":"2"}']}), report["differences"]
    assert set(report["differences"][0]["topic"]) == set(types)


def _other_value(value: Any) -> Any:
    """A value of the same kind that says something else, also to a target that keeps milliseconds."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1_000
        case str():
            return "AQI="
        case list():
            return [_other_value(item) for item in value]
        case _:
            return {name: _other_value(item) for name, item in value.items()}


def check_parts_are_read(flow: VerifiedFlow) -> None:
    """All rows of a table with more of them than are read at once are compared.

    Args:
        flow: the flow.
    """
    count = ROWS_AT_ONCE + ROWS_AT_ONCE // 4
    flow.write(*(make_change("i", key, key, f"n{key}") for key in range(count)))
    flow.send(*(("r", key, f"n{key}") for key in range(count - 1)))
    code, report = flow.verify()
    assert (code, report["rows"]) == (1, {"source": count - 1, "topic": count})
    assert report["examples"] == {"missing": [], "extra": [f'{{"id":"{count - 1}"}}']}
