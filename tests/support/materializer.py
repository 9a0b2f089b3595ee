"""For tests of the materializer: tables, partition updates of every kind, and the fold of what the engine writes."""

from __future__ import annotations

import base64
import json
import math
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from connectors.cql.types import CqlType, parse_type
from connectors.formats import timeuuid
from connectors.formats.partition_update import (
    Cell,
    CellStamp,
    ClusteringBound,
    PartitionUpdate,
    RangeDeletion,
    UpdateDeletion,
    UpdateLayout,
    UpdateRow,
    UpdateSource,
)
from connectors.formats.partition_update_codec import make_encoder
from connectors.schema import OPTIONAL_INT64
from spark_jobs.materializer.contract import InputRecord, OutputRecord
from spark_jobs.materializer.engine.engines import make_engine
from spark_jobs.materializer.engine.model import MergeOptions
from spark_jobs.materializer.engine.resources import Resources
from tests.support.dict_store import DictStore
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Column(NamedTuple):
    """A column of a test's table."""

    name: str
    type: CqlType
    kind: Any
    position: int = -1
    reversed: bool = False


UDT = CqlType("udt", (parse_type("text"), parse_type("blob")), keyspace="k", udt_name="odd", field_names=("a", "b c"))
FROZEN = CqlType("udt", UDT.arguments, frozen=True, keyspace="k", udt_name="odd", field_names=UDT.field_names)
KEY = Column("pk", parse_type("text"), "partition_key", 0)
CLUSTERING = [
    Column("x", parse_type("int"), "clustering", 0),
    Column("y", parse_type("int"), "clustering", 1, reversed=True),
]
STATIC = [Column("sl", parse_type("list<text>"), "static"), Column("st", parse_type("bigint"), "static")]
REGULAR = [
    Column("Größe", parse_type("double"), "regular"),
    Column("_x61", parse_type("blob"), "regular"),
    Column("f", FROZEN, "regular"),
    Column("lf", CqlType("list", (FROZEN,)), "regular"),
    Column("m", parse_type("map<text, bigint>"), "regular"),
    Column("s", parse_type("set<int>"), "regular"),
    Column("u", UDT, "regular"),
    Column("v", parse_type("text"), "regular"),
]
#: With everything; without clustering key; with simple columns only (the fast path).
WIDE = [KEY, *CLUSTERING, *STATIC, *REGULAR]
ALONE = [KEY, *REGULAR]
PLAIN = [KEY, Column("n", parse_type("int"), "regular"), Column("v", parse_type("text"), "regular")]


def source(*, table_id: str = "5f1f", version: str = "9", snapshot: bool = False) -> UpdateSource:
    """Where the messages come from."""
    return UpdateSource(
        connector="cassandra",
        cluster="c-1",
        keyspace="ks",
        table="t",
        table_id=table_id,
        schema_version=version,
        position={"offset": 5},
        read_time=7,
        snapshot=snapshot,
    )


class MemoryRegistry:
    """Schemas by id, in memory; ids grow as schemas are registered."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.subjects: list[tuple[str, int]] = []

    def text(self, schema_id: int) -> str:
        """See ``decode.SchemaIds``."""
        return self.schemas[schema_id - 1]

    def register(self, subject: str, text: str) -> int:
        """See ``decode.SchemaIds``."""
        if text not in self.schemas:
            self.schemas.append(text)
        number = self.schemas.index(text) + 1
        self.subjects.append((subject, number))
        return number

    def close(self) -> None:
        """See ``decode.SchemaIds``."""


class Written:
    """Writes the partition updates of one version of a table.

    Args:
        columns: of the table.
        registry: takes the schema; without it messages are JSON.
        where: source of the messages.
    """

    def __init__(
        self, columns: Sequence[Column], registry: MemoryRegistry | None = None, where: UpdateSource | None = None
    ) -> None:
        self.source = where or source()
        self.layout = UpdateLayout(source=self.source, columns=columns, position={"offset": OPTIONAL_INT64})
        self._value = make_encoder(self.layout)
        self.text = avro_text(self.layout.schema, AvroSettings())
        if registry is None:
            self._bytes: Any = JsonConverter({"schemas.enable": "false"}).encoder("t", self.layout.schema)
        else:
            number = registry.register("in-value", self.text)
            self._bytes = compile_avro(self.layout.schema, AvroSettings(), b"\x00" + number.to_bytes(4, "big"))

    def record(self, update: PartitionUpdate, offset: int = 0) -> InputRecord:
        """The message."""
        return InputRecord(b"", self._bytes(self._value(update)), offset, update.write_time // 1000)


class Bench:
    """An engine with a store, a clock and the fold of what it writes.

    Args:
        options: see ``MergeOptions``; topic and name are given.

    Attributes:
        chained: each event must continue from the last one of its row; not so where the columns change.
        folds: whether ``rows`` is kept; not where columns of the key are renamed.
        limit: changes per transaction.
    """

    def __init__(self, *, limit: int = 1 << 60, registry: MemoryRegistry | None = None, **options: Any) -> None:
        self.now_s = 0
        self.registry = registry or MemoryRegistry()
        self.options = MergeOptions(
            **{"topic": "out", "name": "job", "input_encoding": "json", "output_encoding": "json", **options}
        )
        self.resources = Resources(self.options, self.registry)
        self.store = DictStore(limit)
        self.engine: Any = make_engine(self.options, resources=self.resources, clock=lambda: self.now_s * 1_000_000_000)
        self.events: list[dict[str, Any]] = []
        self.output: list[OutputRecord] = []
        self.rows: dict[bytes, dict[str, Any]] = {}
        self.transactions = 0
        self.chained = True
        self.folds = True

    def restart(self) -> None:
        """Continue with another engine, as the next pass does."""
        self.engine = make_engine(
            self.options,
            sequence=self.engine.sequence,
            resources=self.resources,
            clock=lambda: self.now_s * 1_000_000_000,
        )

    def apply(self, record: InputRecord, between: Callable[[], None] = lambda: None) -> None:
        """Give the engine a message until it is done; ``between`` is called after each unfinished transaction."""
        for _ in range(10_000):
            emit: list[OutputRecord] = []
            done = self.engine.apply(record, self.store, emit)
            self._take(emit)
            self.transactions += 1
            self.store.commit()
            if done:
                return
            self.restart()
            between()
        raise AssertionError("the engine makes no progress")

    def expire(self, now_s: int) -> None:
        """Let time pass."""
        self.now_s = max(now_s, self.now_s)
        for _ in range(10_000):
            emit: list[OutputRecord] = []
            done = self.engine.expire(self.store, emit, now_s)
            self._take(emit)
            self.store.commit()
            if done:
                return
        raise AssertionError("the engine makes no progress")

    def _take(self, emit: list[OutputRecord]) -> None:
        """Fold events; each must continue from the row that the last one left."""
        self.output += emit
        for key, value, _, _ in emit if self.folds else ():
            if value is None:
                assert key not in self.rows
                continue
            event = json.loads(value)
            self.events.append(event)
            assert not self.chained or event["before"] == self.rows.get(key), (event, self.rows.get(key))
            assert repr(event["before"]) != repr(event["after"]) or self.options.emit_unchanged
            if event["after"] is None:
                assert event["op"] == "d"
                del self.rows[key]
            else:
                assert event["op"] == ("u" if key in self.rows else "c") or event["op"] == "r"
                self.rows[key] = event["after"]

    def table(self) -> dict[str, list[dict[str, Any]]]:
        """The rows that the events folded to, in the form of ``expected``."""
        partitions: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows.values():
            partitions.setdefault(repr((row["pk"],)), []).append(row)
        return {key: sorted(rows, key=_order) for key, rows in partitions.items()}


def _order(row: dict[str, Any]) -> Any:
    return row.get("x", 0), -row.get("y", 0)


FIELDS = {"Größe": "_x4772c3b6c39f65", "_x61": "_x5f783631", "b c": "_x622063"}


def expected(contents: Any, columns: Sequence[Column]) -> dict[str, list[dict[str, Any]]]:
    """The oracle's contents as the events' JSON has them: each row with its partition's static columns."""
    result = {}
    for key, (static, rows) in contents.items():
        shown = []
        for row in rows:
            values = {
                **row,
                **{column.name: static.get(column.name) for column in columns if column.kind == "static"},
                "pk": key[2:-3],
            }
            shown.append({FIELDS.get(name, name): _shown(name, value) for name, value in values.items()})
        if shown:
            result[key] = sorted(shown, key=_order)
    return result


def _shown(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "Größe":
        return repr(value).replace("inf", "Infinity") if math.isinf(value) else value
    if name == "_x61":
        return base64.b64encode(value).decode()
    if name in {"f", "u"}:
        return _udt(value)
    if name == "lf":
        return [_udt(element) for element in value]
    if name == "m":
        return [{"key": key[1:-1], "value": element} for key, element in sorted(value.items())]
    return value


def _udt(value: dict[str, Any]) -> dict[str, Any]:
    blob = value.get("b c")
    return {"a": value.get("a"), FIELDS["b c"]: None if blob is None else base64.b64encode(blob).decode()}


# Partition updates by chance. Hypothesis draws the seed: strategies for all of this would be many times slower.


class Chance:
    """Makes partition updates of a table with columns of the names above; write times meet often.

    Args:
        seed: what they follow from.
        ttl: whether some cells expire, at 2 to 6 s.
    """

    def __init__(self, seed: int, *, ttl: bool = False) -> None:
        self.random = random.Random(seed)
        self.ttl = ttl

    def several(self, columns: Sequence[Column], most: int = 6) -> list[PartitionUpdate]:
        """Up to ``most`` updates of two partitions."""
        return [self.update(columns) for _ in range(self.random.randint(0, most))]

    def update(self, columns: Sequence[Column]) -> PartitionUpdate:
        """One update."""
        draw = self.random
        kinds: dict[str, list[Column]] = {"static": [], "regular": [], "clustering": [], "partition_key": []}
        for column in columns:
            kinds[column.kind].append(column)
        clustered = bool(kinds["clustering"])

        def choose_clustering() -> tuple[int, ...]:
            return (draw.randint(0, 2), draw.randint(0, 2)) if clustered else ()

        ranges: tuple[RangeDeletion, ...] = ()
        if clustered and draw.random() < 0.25:
            ranges = (RangeDeletion(self.bound(), self.bound(), UpdateDeletion(self.time(), 0)),)
        return PartitionUpdate(
            source=source(),
            key=(draw.choice("ab"),),
            write_time=self.time(),
            deletion=self.deletion(0.1),
            static=self.row(kinds["static"], (), static=True) if kinds["static"] and draw.random() < 0.4 else None,
            rows=tuple(self.row(kinds["regular"], choose_clustering()) for _ in range(draw.choice([0, 1, 1, 1, 2, 3]))),
            ranges=ranges,
        )

    def time(self) -> int:
        return self.random.randint(1_000_000, 1_000_004)

    def bound(self) -> ClusteringBound:
        draw = self.random
        return ClusteringBound(tuple(draw.randint(0, 2) for _ in range(draw.randint(0, 2))), draw.random() < 0.5)

    def stamp(self) -> CellStamp:
        if self.ttl and self.random.random() < 0.4:
            left = self.random.randint(1, 5)
            return CellStamp(self.time(), left, 1 + left)
        return CellStamp(self.time())

    def deletion(self, chance: float) -> UpdateDeletion | None:
        return UpdateDeletion(self.time(), self.random.randint(0, 3)) if self.random.random() < chance else None

    def row(self, columns: Sequence[Column], clustering: tuple[int, ...], *, static: bool = False) -> UpdateRow:
        draw = self.random
        multi = [column.name for column in columns if column.type.is_multicell]
        complex_ = ((draw.choice(multi), UpdateDeletion(self.time(), 0)),) if multi and draw.random() < 0.3 else ()
        return UpdateRow(
            clustering,
            None if static or draw.random() < 0.5 else self.stamp(),
            None if static else self.deletion(0.2),
            self.cells(columns),
            complex_,
        )

    def cells(self, columns: Sequence[Column]) -> tuple[Cell, ...]:
        cells = {}
        for column in columns:
            if self.random.random() < 0.6:
                continue
            for _ in range(self.random.randint(1, 2)):
                path, value = self.content(column.name)
                stamp = self.stamp()
                if self.random.random() < 0.3:
                    value, stamp = None, CellStamp(stamp.write_time)
                cells[column.name, path] = Cell(column.name, path, value, stamp)
        return tuple(cells.values())

    def content(self, name: str) -> tuple[Any, Any]:
        """Path and value of a cell."""
        draw = self.random
        text, blob = draw.choice(["", "a", "é", "aé"]), draw.choice([b"", b"a", b"b\x00"])
        frozen = {"a": draw.choice([None, text]), "b c": draw.choice([None, blob])}
        number = draw.randint(0, 3)
        uuid = timeuuid.format_uuid(timeuuid.make_uuid(1_000_000 + number, number))
        return {
            "Größe": (None, draw.choice([0.0, -0.0, 1.5, math.inf])),
            "_x61": (None, blob),
            "f": (None, frozen),
            "lf": (uuid, frozen),
            "m": (draw.choice("ab"), number),
            "s": (number, True),
            "v": (None, text),
            "n": (None, number),
            "sl": (uuid, text),
            "st": (None, number),
            "u": draw.choice([("a", text), ("b c", blob)]),
        }[name]
