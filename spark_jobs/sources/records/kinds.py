"""The table and the layout that a record names, found by decoding it: a record that can't be decoded names none. Pure.

Schemas are found by samples of records. A sample that is garbage would name a table that does not exist, or make columns that
no row has, so each one is decoded as a task would do it before it counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import Skippable
from connectors.schema import Field
from spark_jobs.contract import TableSchema
from spark_jobs.rows.shards import WHOLE, Shard, row_keys, shard_of
from spark_jobs.sources.avro.expressions import HEAD_SIZE
from spark_jobs.sources.layout import RecordLayout, envelope_layout, flat_layout, is_message
from spark_jobs.sources.records.events import NO_AFTER, OPS, TRUNCATE
from spark_jobs.sources.records.flat import Flat, flat_of
from spark_jobs.sources.records.inference import is_enveloped, key_names
from spark_jobs.sources.records.reader import (
    PAYLOAD,
    DecodePlan,
    ValueKind,
    classify_value,
    namespace_of,
)
from spark_jobs.sources.records.rows import TableDecoder
from spark_jobs.sources.types import json_schema
from worker.converters.avro_form.read import avro_reader
from worker.converters.avro_form.schema import AvroSettings
from worker.converters.json_form.read import read_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import DataType

#: Operations of events that have no row; a truncate's record has no key either, whatever the table's key is.
_ROWLESS: Final = frozenset("tm")
_MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class KnownKind:
    """The known properties of records of one kind.

    Attributes:
        namespace: its table's.
        layout: how to read its records; None until a record with a row shows it: the others define nothing and give no rows.
        keys: the table's key columns.
        text: the text that stands for the schema in tasks (JSON).
        error: why its records can't be read; the other attributes are not valid then.
        shard: the sample's.
    """

    namespace: str = ""
    layout: RecordLayout | None = None
    keys: tuple[str, ...] = ()
    text: bytes = b""
    error: str = ""
    shard: Shard = WHOLE


@dataclass(frozen=True, slots=True)
class Rules:
    """The options' rules for records and tables; travels to tasks.

    Attributes:
        envelope: records are Debezium's envelope; else flat rows.
        json_keys: keys are JSON.
        before: the row before an update is wanted.
        truncates: a TRUNCATE is left out.
        tombstones: a record without a value is a delete.
        options: those of flat rows, by name.
        keys: key columns by namespace; under an empty name those of every other table.
        declared: types of columns by namespace; under an empty name those of every other table.
    """

    envelope: bool = True
    json_keys: bool = True
    before: bool = False
    truncates: bool = False
    tombstones: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    declared: Mapping[str, Mapping[str, DataType]] = field(default_factory=dict)

    def keys_of(self, namespace: str) -> tuple[str, ...] | None:
        """The key columns of a table; None where the options don't say them."""
        return self.keys.get(namespace, self.keys.get(""))

    def may_move(self, namespace: str, layouts: Iterable[RecordLayout]) -> bool:
        """Whether an update may change the key of a row of a table: options name columns that its records' keys lack."""
        keys = self.keys_of(namespace)
        if not self.envelope or keys is None:
            return False
        return any(not {member.name for member in layout.key}.issuperset(keys) for layout in layouts)

    def declared_of(self, namespace: str) -> Mapping[str, DataType]:
        """The declared types of a table's columns."""
        return self.declared.get(namespace, self.declared.get("", {}))


def loose_layout(columns: Sequence[Any], flat: Flat | None, rules: Rules) -> RecordLayout:
    """The layout of rows without a schema."""
    unit = str(rules.options.get("source.timestamp.unit") or "ms")
    fields = tuple(Field(column.name, json_schema(column.type, unit)) for column in columns)
    return RecordLayout(rules.envelope, fields, (), frozenset(), flat=None if rules.envelope else flat or Flat())


def loose_flat(names: Collection[str], rules: Rules) -> Flat | None:
    """How flat rows with these members say what happened; None for envelopes. Raises as ``flat_of``."""
    return None if rules.envelope or not names else flat_of(names, rules.options)


def decode_problem(
    schema: TableSchema, schema_text: bytes, layout: RecordLayout, rules: Rules, record: pa.RecordBatch
) -> str:
    """Why a record can't be decoded; empty where it can.

    Args:
        schema: of the table.
        schema_text: that stands for the record's schema; empty where it has none.
        layout: of the record.
        rules: see ``Rules``.
        record: one record, as tasks get them.
    """
    problems: list[str] = []
    namespace = schema.namespace if rules.envelope and not schema_text else None
    plan = DecodePlan(
        schema, {schema_text: layout}, rules.before, rules.truncates, namespace, frozenset(), rules.tombstones
    )
    for _ in TableDecoder(plan, lambda *bad: problems.append(str(bad[-1]))).decode(record):
        pass
    return problems[0] if problems else ""


def look_json(record: pa.RecordBatch, rules: Rules) -> KnownKind:
    """Find the kind of a JSON record with a schema.

    Args:
        record: one record, as tasks get them.
        rules: see ``Rules``.

    Raises:
        Skippable: its schema can't be used, or the record can't be decoded with it.
    """
    topic, key, value = (record.column(name)[0].as_py() for name in ("topic", "key", "value"))
    kind, schema_text = classify_value(value)
    if kind is not ValueKind.SCHEMA:
        raise Skippable("The value is no JSON envelope with schema and payload.")
    try:
        head = (
            schema_text[: -len(PAYLOAD)] + b"}" if schema_text.endswith(PAYLOAD) else b'{"schema":' + schema_text + b"}"
        )
        schema = read_schema(json.loads(head)["schema"], replace_null=True)
        payload = json.loads(value)["payload"]
        if rules.envelope and is_message(schema):
            return KnownKind(topic, text=schema_text)
        key_data = _parse_key(key) if rules.json_keys else None
        key_schema = read_schema(key_data["schema"], replace_null=True) if key_data and is_enveloped(key_data) else None
        if rules.envelope:
            layout = envelope_layout(schema, key_schema, rules.options)
            source = payload.get("source") or {}
            namespace, shard = namespace_of(source, topic), shard_of(source)
        else:
            layout, namespace, shard = flat_layout(schema, key_schema, rules.options), topic, WHOLE
        key_columns = layout.key_names or key_names(key_data)
        if layout.sharded:
            key_columns = row_keys(key_columns, {row_field.name for row_field in layout.row})
        keys = rules.keys_of(namespace)
        keys = tuple(key_columns) if keys is None else keys
        columns = layout.columns(keys)
    except _MALFORMED as error:
        raise Skippable(f"The value's schema and payload can't be used: {error!r}") from None
    complaint = decode_problem(TableSchema(namespace, columns), schema_text, layout, rules, record)
    if complaint:
        raise Skippable(complaint)
    if rules.envelope and payload.get("op") in _ROWLESS:
        return KnownKind(namespace, text=schema_text, shard=shard)
    return KnownKind(namespace, layout, keys, schema_text, shard=shard)


class AvroSubject(NamedTuple):
    """The subject of an envelope in Avro: its table, the shard, and whether it has a row."""

    namespace: str
    shard: Shard
    has_row: bool


def avro_subject(avro_text: str, data: bytes, topic: str, *, truncates: bool) -> AvroSubject:
    """The subject of an envelope in Avro.

    Args:
        avro_text: the schema.
        data: the value.
        topic: the record's.
        truncates: whether a TRUNCATE is left out.

    Raises:
        Skippable: the bytes don't match the schema, or are no event that can be read.
    """
    record = avro_reader(avro_text, AvroSettings(metadata=True, enhanced=False, scrub=False)).decode(data[HEAD_SIZE:])
    if not isinstance(record, dict):
        return AvroSubject(topic, WHOLE, has_row=True)
    op = record.get("op")
    if op not in OPS:
        raise Skippable(f"The event's op is {op!r}; known are c, r, u, d, t, m.")
    if op in {"c", "r", "u"} and record.get("after") is None:
        raise Skippable(NO_AFTER)
    if op == "t" and not truncates:
        raise Skippable(TRUNCATE)
    source = record.get("source") or {}
    return AvroSubject(namespace_of(source, topic), shard_of(source), has_row=op not in _ROWLESS)


@dataclass(frozen=True, slots=True)
class RecordSample:
    """The best record so far by which to know a kind of records.

    Attributes:
        rank: 0: it can't be decoded (``error`` says why); 1: it can; 2: and it has a row; 3: and its key shows key columns,
            or they are known.
        key: the record's.
        value: the record's.
        error: see ``rank``.
    """

    rank: int = -1
    key: bytes | None = None
    value: bytes = b""
    error: str = ""


def choose_sample(sample: RecordSample, record: pa.RecordBatch, rules: Rules, avro: str) -> RecordSample:
    """``sample``, or a record that is better by its rank.

    Args:
        sample: the best one so far.
        record: one record, as tasks get them.
        rules: see ``Rules``.
        avro: the schema of values in Avro; empty for JSON.
    """
    topic, key, value = (record.column(name)[0].as_py() for name in ("topic", "key", "value"))
    if sample.rank == 3 or (sample.rank == 2 and key is None):
        return sample
    try:
        if avro:
            rank = 3 if avro_subject(avro, value, topic, truncates=rules.truncates).has_row else 1
        else:
            kind = look_json(record, rules)
            rank = 1 if kind.layout is None else 3 if kind.keys or not rules.json_keys else 2
    except Skippable as error:
        return RecordSample(0, key, value, str(error)) if sample.rank < 0 else sample
    return RecordSample(rank, key, value) if rank > sample.rank else sample


def _parse_key(key: bytes | None) -> Any:
    """A key's JSON; None if it is not JSON."""
    try:
        return json.loads(key) if key else None
    except ValueError:
        return None


def sample_of(data: bytes, encoding: str) -> bytes:
    """The part of a record's key or value that shows its schema, without its values: the checkpoint keeps it."""
    if encoding == "avro":
        return data[:HEAD_SIZE]
    kind, schema_text = classify_value(data)
    if kind is ValueKind.SCHEMA:
        schema = schema_text[len(b'{"schema":') : -len(PAYLOAD)] if schema_text.endswith(PAYLOAD) else schema_text
        names = key_names(json.loads(data))
        return b'{"schema":' + schema + PAYLOAD + json.dumps(dict.fromkeys(names)).encode() + b"}"
    try:
        members = json.loads(data)
    except ValueError:
        return b"null"
    return json.dumps(dict.fromkeys(members) if isinstance(members, dict) else None).encode()
