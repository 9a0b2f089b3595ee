"""JSON without a schema: which tables, columns and types its values show. Runs in Python tasks; results go to the driver.

Rules (docs/jobs/formats.md): whole numbers are long, others double, arrays and objects JSON text; a column that shows several
becomes
the wider one, at last string. What was found is kept beside the checkpoint and only widens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import types as t

from connectors.errors import ConfigInvalid, Skippable
from spark_jobs.contract import SYSTEM_COLUMNS, Column
from spark_jobs.sources.rows import Kind, Report, classify, namespace_of
from spark_jobs.sources.types import inferred, type_from_json, type_json, wider_inferred

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Of the frame that a search gives.
SCHEMA: Final = "topic string, namespace string, columns string, keys string, sample binary, key binary"


@dataclass(frozen=True, slots=True)
class Seen:
    """One table (or one unusual envelope) in a topic.

    Attributes:
        topic: where it is.
        namespace: the table's; empty for an envelope.
        types: columns and the types that their values show.
        keys: the columns in the records' keys, in order.
        sample: the first record's value, of an envelope with a schema that does not begin as converters write it.
        key: the first record's key.
    """

    topic: str
    namespace: str = ""
    types: dict[str, t.DataType] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    sample: bytes | None = None
    key: bytes | None = None

    @classmethod
    def from_row(cls, row: Any) -> Seen:
        """What a task wrote."""
        types = {name: type_from_json(kind) for name, kind in json.loads(row["columns"]).items()}
        sample = bytes(row["sample"]) if row["sample"] is not None else None
        return cls(
            row["topic"],
            row["namespace"],
            types,
            tuple(json.loads(row["keys"])),
            sample,
            bytes(row["key"]) if row["key"] is not None else None,
        )

    def joined(self, other: Seen) -> Seen:
        """Both tasks' view of one table."""
        types = dict(self.types)
        for name, kind in other.types.items():
            types[name] = wider_inferred(types[name], kind) if name in types else kind
        return replace(self, types=types, keys=self.keys or other.keys)

    def columns(self, keys: Sequence[str], declared: Mapping[str, t.DataType]) -> tuple[Column, ...]:
        """The table's columns: the key first; declared types count, also of columns that no record has shown yet.

        Raises:
            Skippable: a key column has no type: no record has a value for it and it is not declared.
        """
        types = {**self.types, **declared}
        for name in types:
            if name.lower() in SYSTEM_COLUMNS:
                raise Skippable(f"Table {self.namespace} has a column {name}, which is the name of a system column of jobs.")
        missing = [name for name in keys if name not in types]
        if missing:
            raise Skippable(f"Table {self.namespace}: no record has its key column {', '.join(missing)}.")
        names = [*keys, *sorted(declared, key=list(declared).index), *types]
        return tuple(Column(name, types[name], nullable=name not in keys, key=name in keys) for name in dict.fromkeys(names))


def is_enveloped(data: Any) -> bool:
    """Whether parsed JSON is an envelope with schema and payload."""
    return isinstance(data, dict) and data.keys() == {"schema", "payload"}


def key_names(data: Any) -> tuple[str, ...]:
    """The columns in a parsed key."""
    if is_enveloped(data):
        data = data["payload"]
    return tuple(data) if isinstance(data, dict) else ()


def declared(kind: t.DataType, name: str) -> t.DataType:
    """A declared type as the job uses it.

    Raises:
        ConfigInvalid: JSON has no values of this type.
    """
    if isinstance(kind, t.DecimalType):
        return t.DecimalType(38, kind.scale)
    if isinstance(kind, t.VarcharType | t.CharType):
        return t.StringType()
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(declared(kind.elementType, name), True)
    if isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType):
        return t.MapType(kind.keyType, declared(kind.valueType, name), True)
    if isinstance(kind, t.StructType):
        return t.StructType([t.StructField(each.name, declared(each.dataType, name), True) for each in kind.fields])
    if isinstance(
        kind,
        t.ByteType
        | t.ShortType
        | t.IntegerType
        | t.LongType
        | t.FloatType
        | t.DoubleType
        | t.BooleanType
        | t.StringType
        | t.BinaryType
        | t.DateType
        | t.TimestampType,
    ):
        return kind
    raise ConfigInvalid(
        f"source.table.columns: column {name} can't be {kind.simpleString()}; use tinyint, smallint, int, "
        f"bigint, float, "
        "double, boolean, string, binary, date, timestamp, decimal, or arrays, structs and maps (by string) "
        "of them."
    )


class Search:
    """Looks at records one by one and notes what is new; one per task.

    Args:
        known: the types of columns per table that need no note.
        envelope: whether values are Debezium's envelope; else they are rows and the topic is the table.
        report: takes records that are neither.
    """

    def __init__(self, known: Mapping[str, Mapping[str, t.DataType]], *, envelope: bool, report: Report) -> None:
        self._known = known
        self._envelope = envelope
        self._report = report
        self._tables: dict[tuple[str, str], dict[str, t.DataType]] = {}
        self._accepted: dict[tuple[str, str], dict[str, tuple[type, ...]]] = {}
        self._keys: dict[tuple[str, str], tuple[str, ...]] = {}
        self._samples: dict[tuple[str, bytes], tuple[bytes, bytes | None]] = {}

    def look(self, batch: pa.RecordBatch) -> None:
        """Note the tables and types of a batch's records; reports those that are no JSON objects."""
        topics, keys, values = (batch.column(name).to_pylist() for name in ("topic", "key", "value"))
        for index, (topic, key, value) in enumerate(zip(topics, keys, values, strict=True)):
            try:
                self._one(topic, key, value)
            except (Skippable, msgspec.DecodeError, ValueError, AttributeError, TypeError) as error:
                self._report(
                    topic, batch.column("partition")[index].as_py(), batch.column("offset")[index].as_py(), key, value, error
                )

    def _one(self, topic: str, key: bytes | None, value: bytes) -> None:
        kind, text = classify(value)
        if kind is Kind.SCHEMA:
            self._samples.setdefault((topic, text), (value, key))
            return
        if kind is Kind.BAD:
            raise Skippable("The value is no JSON object.")
        data = msgspec.json.decode(value)
        if not self._envelope:
            self._note(topic, topic, key, data)
            return
        after, before = data.get("after"), data.get("before")
        if "op" not in data or not (after or before or data["op"] in {"d", "t", "m"}):
            raise Skippable(
                "The value is no Debezium envelope (no op, or neither before nor after). Set source.format=plain for flat rows."
            )
        if data["op"] in {"t", "m"}:
            return
        namespace = namespace_of(data.get("source") or {}, topic)
        for image in (after, before):
            self._note(topic, namespace, key, image or {})

    def _note(self, topic: str, namespace: str, key: bytes | None, row: Mapping[str, Any]) -> None:
        at = (topic, namespace)
        accepted = self._accepted.get(at)
        if accepted is None:
            types = dict(self._known.get(namespace, {}))
            self._tables[at] = types
            accepted = self._accepted[at] = {name: _python(kind) for name, kind in types.items()}
        if not self._keys.get(at) and key:
            self._keys[at] = self._key(at, key)
        for name, value in row.items():
            if value is not None and type(value) not in accepted.get(name, ()):
                self._widen(at, name, value)

    def _key(self, at: tuple[str, str], key: bytes) -> tuple[str, ...]:
        try:
            data = msgspec.json.decode(key)
        except (msgspec.DecodeError, ValueError):
            return ()
        names = key_names(data)
        values = data["payload"] if is_enveloped(data) else data
        for name in names:
            if values[name] is not None and type(values[name]) not in self._accepted[at].get(name, ()):
                self._widen(at, name, values[name])
        return names

    def _widen(self, at: tuple[str, str], name: str, value: Any) -> None:
        kind = inferred(value)
        if kind is None:
            return
        known = self._tables[at].get(name)
        if known is not None and not isinstance(
            known, t.LongType | t.DoubleType | t.BooleanType | t.StringType | t.DecimalType
        ):
            return  # declared: decoding says what does not fit
        wide = kind if known is None else wider_inferred(known, kind)
        self._tables[at][name] = wide
        if wide == kind or wide != known:
            self._accepted[at][name] = _python(wide) if not isinstance(wide, t.LongType) else ()
        if isinstance(wide, t.LongType):
            self._accepted[at][name] = ()  # whole numbers are looked at one by one: they may be beyond 64 bits

    def result(self) -> pa.RecordBatch:
        """One row per table and per unusual envelope, as ``SCHEMA``."""
        rows: list[dict[str, Any]] = [
            {
                "topic": topic,
                "namespace": namespace,
                "columns": json.dumps({name: type_json(kind) for name, kind in types.items()}),
                "keys": json.dumps(self._keys.get((topic, namespace), ())),
                "sample": None,
                "key": None,
            }
            for (topic, namespace), types in self._tables.items()
        ]
        rows += [
            {"topic": topic, "namespace": "", "columns": "{}", "keys": "[]", "sample": value, "key": key}
            for (topic, _), (value, key) in self._samples.items()
        ]
        return pa.RecordBatch.from_pylist(
            rows,
            schema=pa.schema(
                [
                    ("topic", pa.string()),
                    ("namespace", pa.string()),
                    ("columns", pa.string()),
                    ("keys", pa.string()),
                    ("sample", pa.binary()),
                    ("key", pa.binary()),
                ]
            ),
        )


def _python(kind: t.DataType) -> tuple[type, ...]:
    """Python types whose values a column of this type takes without a further look."""
    if isinstance(kind, t.StringType):
        return (str, int, float, bool, list, dict)
    if isinstance(kind, t.DoubleType):
        return (float, int)
    if isinstance(kind, t.BooleanType):
        return (bool,)
    if isinstance(kind, t.LongType):
        return ()
    return (str, int, float, bool, list, dict) if not isinstance(kind, t.DecimalType) else ()
