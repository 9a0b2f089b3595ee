"""From raw records to typed changes per table, on the driver: finds schemas, keeps tables, makes frames. Used by sources.

Decoding itself is lazy: JSON in Python tasks (``rows``), Avro in the JVM (``avro_frame``).
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t

from connectors.errors import ConfigInvalid, Fatal, Skippable
from connectors.options import ConfigKey, ConfigType, Importance
from connectors.schema import Field, Schema
from spark_jobs.contract import TableChanges, TableSchema
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.sources import avro_frame, inference
from spark_jobs.sources.avro import HEAD_SIZE, Registry, connect_schema
from spark_jobs.sources.discovery import TOMBSTONE, Found, Ref, find, reference, samples
from spark_jobs.sources.flat import Flat, flat_of
from spark_jobs.sources.layout import Layout, envelope_layout, flat_layout
from spark_jobs.sources.rows import PAYLOAD, Kind, Plan, TableDecoder, classify, namespace_of
from spark_jobs.sources.tables import SchemaFiles, from_json, lacking, merged, to_json
from spark_jobs.sources.types import json_schema
from worker.converters.json_read import read_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from spark_jobs.contract import Batch, JobContext

_GROUP: Final = "Decoding"
#: Input columns of decoding tasks.
FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
#: Columns after a table's own.
SYSTEM_FIELDS: Final = (
    t.StructField("ums_id_", t.LongType(), False),
    t.StructField("ums_ts_", t.TimestampType(), False),
    t.StructField("ums_op_", t.StringType(), False),
    t.StructField("ums_uid_", t.StringType(), False),
    t.StructField("kafka_topic_", t.StringType(), False),
    t.StructField("kafka_partition_", t.IntegerType(), False),
    t.StructField("kafka_offset_", t.LongType(), False),
)

COMMON_KEYS: Final = (
    ConfigKey(
        name="source.before.rows",
        type=ConfigType.BOOLEAN,
        default=False,
        group=_GROUP,
        doc="Whether an update also gives the row before it, as a row of its own with `ums_op_` b just before the `u` "
        "(where the "
        "source sends it). For full histories.",
    ),
    ConfigKey(
        name="source.key.columns",
        type=ConfigType.LIST,
        default=None,
        group=_GROUP,
        example="customer_id,order_id",
        doc="The columns of the primary key, in order, of every table that the job reads, instead of those in the "
        "records' keys. For "
        "a single table: `source.key.columns.<namespace>`.",
    ),
    ConfigKey(
        name="source.table.columns",
        type=ConfigType.STRING,
        default=None,
        group=_GROUP,
        example="id bigint, name string, price decimal(10,2), changed timestamp",
        doc="Types of columns of JSON without a schema, as in SQL, for every table that the job reads; for a single "
        "table: "
        "`source.table.columns.<namespace>`. Columns that it leaves out get the types that their values show.",
    ),
    ConfigKey(
        name="source.timestamp.unit",
        type=ConfigType.STRING,
        default="ms",
        group=_GROUP,
        importance=Importance.LOW,
        doc="What a number in a column means that `source.table.columns` declares as timestamp: `ms`, `us` or `ns` since 1970.",
    ),
)
PASS_THROUGH: Final = ("source.key.columns.", "source.table.columns.")


@dataclass(frozen=True, slots=True)
class Known:
    """What a kind of records is.

    Attributes:
        namespace: its table's.
        layout: how to read it.
        keys: the table's key columns.
        text: the text that stands for the schema in tasks (JSON).
        error: why its records can't be read; then the rest means nothing.
    """

    namespace: str = ""
    layout: Layout | None = None
    keys: tuple[str, ...] = ()
    text: bytes = b""
    error: str = ""


class Decoding:
    """Makes the changes of batches; one per run of a job."""

    def __init__(self, context: JobContext, *, envelope: bool) -> None:
        self._context = context
        config = context.config
        self._envelope = envelope
        self._values: str = config.get("source.value.encoding") or "json"
        self._keys: str = config.get("source.key.encoding") or "json"
        self._before = bool(config.get("source.before.rows"))
        self._truncates = config.get("source.truncates") == "ignore"
        self._tombstones = not envelope and config.get("source.tombstones", "delete") == "delete"
        self._samples: dict[str, list[str | None]] = {}
        self._key_columns = config.get("source.key.columns")
        self._registry = Registry(config) if "avro" in {self._values, self._keys} else None
        self._texts: dict[int, str] = {}
        self._known: dict[Ref, Known] = {}
        self._files = SchemaFiles(context.spark, config.get("checkpoint.location"))
        self.tables: dict[str, TableSchema] = {}
        self._loaded = False
        if self._values == "avro" and self._keys == "json":
            raise Fatal(
                "source.key.encoding=json can't be combined with source.value.encoding=avro: set avro, or bytes and "
                "source.key.columns."
            )
        if self._values == "json" and self._keys == "avro":
            raise Fatal(
                "source.key.encoding=avro can't be combined with source.value.encoding=json: set json, or bytes and "
                "source.key.columns."
            )

    # The batch.

    def changes(self, batch: Batch) -> list[TableChanges]:
        """See ``Source.changes``; runs one Spark job, and more where a schema is new or there is none."""
        self._load()
        report = DeadLetters.of(self._context)
        found = find(batch.raw, self._values, self._keys, tombstones=self._tombstones)
        buried = {each.ref.topic for each in found if each.ref.value == TOMBSTONE}
        found = [each for each in found if each.ref.value != TOMBSTONE]
        schemaless = [each for each in found if not each.ref.value] if self._values == "json" else []
        self._learn(batch, [each for each in found if each not in schemaless and each.ref not in self._known])
        present = {each.ref: self._known[each.ref] for each in found if each not in schemaless}
        self._report_groups(batch, [each for each in found if each.ref in present and present[each.ref].error], report)
        groups: dict[str, list[tuple[Ref, Known]]] = {}
        for ref, known in present.items():
            if not known.error:
                groups.setdefault(known.namespace, []).append((ref, known))
        loose: dict[str, inference.Seen] = {}
        if schemaless:
            loose = self._infer(batch, {each.ref.topic for each in schemaless}, groups, report)
        for topic in sorted(buried - {ref.topic for ref in present} - {each.topic for each in loose.values()}):
            self._recall(topic, groups, loose)
        before = dict(self.tables)
        samples = dict(self._samples)
        layouts = {
            namespace: self._merge(namespace, groups.get(namespace, []), loose.get(namespace))
            for namespace in [*groups, *loose]
        }
        if self.tables != before or self._samples != samples:
            self._files.save(to_json(self.tables, {"samples": self._samples}))
        return [
            TableChanges(self.tables[namespace], self._frame(batch, namespace, groups, loose, layouts, report))
            for namespace in layouts
        ]

    def _load(self) -> None:
        if self._loaded:
            return
        text = self._files.load()
        if text is not None:
            try:
                self.tables, extra = from_json(text)
                self._samples = extra.get("samples", {})
            except (ValueError, KeyError, TypeError) as error:
                raise Fatal(
                    f"The schemas kept in {self._files.folder} can't be read: {error}. Restore the folder, or delete "
                    f"it to have "
                    "the schemas found again from the records that come."
                ) from error
        self._loaded = True

    # Schemas.

    def _learn(self, batch: Batch, unknown: Sequence[Found]) -> None:
        for ref, (key, value) in samples(batch.raw, unknown).items():
            try:
                self._known[ref] = self._look(ref, key, value)
                if self._tombstones:
                    self._samples[ref.topic] = [
                        base64.b64encode(sample_of(key, self._keys)).decode() if key is not None else None,
                        base64.b64encode(sample_of(value, self._values)).decode(),
                    ]
            except Skippable as error:
                self._known[ref] = Known(error=str(error))
        missing = [each.ref for each in unknown if each.ref not in self._known]
        if missing:
            raise Fatal(
                f"Records of topic {missing[0].topic} were there a moment ago and are not any more: retention is "
                f"deleting what the job "
                "is reading. Let the topic keep its records for longer."
            )

    def _recall(self, topic: str, groups: dict[str, list[tuple[Ref, Known]]], loose: dict[str, inference.Seen]) -> None:
        """A topic that has only tombstones in this batch: its table as it was last seen."""
        if topic in self._samples:
            key, value = (base64.b64decode(each) if each is not None else None for each in self._samples[topic])
            if value is None:
                raise Fatal(
                    f"{self._files.folder} holds no sample of topic {topic}; delete it to have schemas found again."
                )
            ref = Ref(topic, "recalled", "")
            if ref not in self._known:
                kinds = (
                    Ref(topic, value[:5].hex(), key[:5].hex() if key else "") if self._values == "avro" else Ref(topic, "", "")
                )
                self._known[ref] = self._look(kinds, key, value)
            groups.setdefault(self._known[ref].namespace, []).append((ref, self._known[ref]))
        elif topic in self.tables:
            schema = self.tables[topic]
            loose[topic] = inference.Seen(topic, topic, {}, tuple(column.name for column in schema.key))
        else:
            self._context.log.warning(
                "topic %s has only records without a value so far: there is no row that they could delete", topic
            )

    def _look(self, ref: Ref, key: bytes | None, value: bytes) -> Known:
        if self._values == "avro":
            ids = (_schema_id(ref.value, "value"), _schema_id(ref.key, "key") if ref.key and self._keys == "avro" else -1)
            texts = (self._text(ids[0]), self._text(ids[1]) if ids[1] >= 0 else "")
            schema = connect_schema(texts[0])
            key_schema = connect_schema(texts[1]) if texts[1] else None
            layout = replace(self._layout(schema, key_schema), avro=texts, ids=ids)
            namespace = avro_frame.namespace(texts[0], value, ref.topic) if self._envelope else ref.topic
            return Known(namespace, layout, self._key_names(namespace, [each.name for each in layout.key]))
        kind, text = classify(value)
        if kind is not Kind.SCHEMA:
            raise Skippable("The value is no JSON envelope with schema and payload.")
        data = json.loads(value)
        key_data = json.loads(key) if key and self._keys == "json" else None
        key_schema = (
            read_schema(key_data["schema"], replace_null=True)
            if isinstance(key_data, dict) and inference.is_enveloped(key_data)
            else None
        )
        layout = self._layout(read_schema(data["schema"], replace_null=True), key_schema)
        namespace = namespace_of(data["payload"].get("source") or {}, ref.topic) if self._envelope else ref.topic
        names = [each.name for each in layout.key] or inference.key_names(key_data)
        return Known(namespace, layout, self._key_names(namespace, names), text)

    def _layout(self, value: Schema | None, key: Schema | None) -> Layout:
        return envelope_layout(value, key) if self._envelope else flat_layout(value, key, self._context.config)

    def _text(self, schema_id: int) -> str:
        if schema_id not in self._texts:
            if self._registry is None:
                raise Fatal("no registry")
            self._texts[schema_id] = self._registry.text(schema_id)
        return self._texts[schema_id]

    def _key_names(self, namespace: str, found: Sequence[str]) -> tuple[str, ...]:
        own = self._context.config.raw.get(f"source.key.columns.{namespace}")
        if own is not None:
            return tuple(name.strip() for name in own.split(",") if name.strip())
        return tuple(self._key_columns) if self._key_columns else tuple(found)

    def _declared(self, namespace: str) -> dict[str, t.DataType]:
        config = self._context.config
        text = config.raw.get(f"source.table.columns.{namespace}", config.get("source.table.columns"))
        if not text:
            return {}
        try:
            fields = t.StructType(t.StructType.fromDDL(text).fields).fields  # type: ignore[attr-defined]  # text with commas is a struct
        except Exception as error:
            raise ConfigInvalid(
                f"source.table.columns: {text!r} is no list of columns with types as in SQL: {error}"
            ) from error
        return {field.name: inference.declared(field.dataType, field.name) for field in fields}

    def _infer(
        self, batch: Batch, topics: set[str], groups: dict[str, list[tuple[Ref, Known]]], report: DeadLetters
    ) -> dict[str, inference.Seen]:
        """Tables of JSON without a schema; envelopes that only Python recognizes are added to ``groups``."""
        known = {
            namespace: {column.name: column.type for column in schema.columns} for namespace, schema in self.tables.items()
        }
        rows = batch.raw.where(f.col("topic").isin(*topics) & f.col("value").isNotNull() & (reference("value", "json") == ""))
        result: dict[str, inference.Seen] = {}
        for row in rows.select(*FIELDS).mapInArrow(_inferring(known, self._envelope, report), inference.SCHEMA).collect():
            seen = inference.Seen.from_row(row)
            if seen.sample is not None:
                ref = Ref(seen.topic, "", seen.sample.decode("latin-1"))
                if ref not in self._known:
                    try:
                        self._known[ref] = self._look(Ref(seen.topic, "", ""), seen.key, seen.sample)
                    except Skippable as error:
                        raise Fatal(f"A schema in a record of topic {seen.topic} can't be used: {error}") from error
                groups.setdefault(self._known[ref].namespace, []).append((ref, self._known[ref]))
            elif seen.namespace in result:
                result[seen.namespace] = result[seen.namespace].joined(seen)
            else:
                result[seen.namespace] = seen
        return result

    def _merge(self, namespace: str, group: Iterable[tuple[Ref, Known]], loose: inference.Seen | None) -> Layout | None:
        """Bring the table's schema up to what this batch holds; returns the layout of its rows without a schema."""
        schema = self.tables.get(namespace)
        where = f"(Schemas are kept in {self._files.folder}.)" if self._files.folder else ""
        for ref, known in group:
            if known.layout is None:
                continue
            try:
                columns = known.layout.columns(known.keys)
            except Skippable as error:
                raise Fatal(f"Topic {ref.topic}, table {namespace}: {error}") from error
            schema = merged(schema, namespace, columns, where)
            schema = lacking(schema, columns)
        layout = None
        if loose is not None:
            declared = self._declared(namespace)
            flat = flat_of(loose.types.keys(), self._context.config) if not self._envelope and loose.types else None
            if flat is not None:
                loose = replace(loose, types={name: kind for name, kind in loose.types.items() if name not in flat.hidden})
            keys = self._key_names(namespace, loose.keys)
            columns = loose.columns(keys, declared) if loose.types or schema is None else tuple(schema.columns)
            schema = merged(schema, namespace, columns, where, guessed=True)
            unit = str(self._context.config.get("source.timestamp.unit") or "ms")
            fields = tuple(Field(column.name, json_schema(column.type, unit)) for column in schema.columns)
            layout = Layout(self._envelope, fields, (), frozenset(), flat=None if self._envelope else flat or Flat())
        if schema is not None:
            self.tables[namespace] = schema
        return layout

    # Frames.

    def _frame(
        self,
        batch: Batch,
        namespace: str,
        groups: dict[str, list[tuple[Ref, Known]]],
        loose: dict[str, inference.Seen],
        layouts: dict[str, Layout | None],
        report: DeadLetters,
    ) -> DataFrame:
        schema = self.tables[namespace]
        group = groups.get(namespace, [])
        topics = {ref.topic for ref, _ in group} | ({loose[namespace].topic} if namespace in loose else set())
        rows = batch.raw if self._tombstones else batch.raw.where(f.col("value").isNotNull())
        if topics != {topic for topic, _ in batch.ranges}:
            rows = rows.where(f.col("topic").isin(*topics))
        rows = rows.select(*FIELDS)
        if self._values == "avro":
            table = avro_frame.Table(
                schema,
                tuple(known.layout for _, known in group if known.layout is not None),
                self._before,
                self._truncates,
                self._tombstones,
            )
            return avro_frame.frame(rows, table, report)
        texts = {known.text: known.layout for _, known in group if known.layout is not None}
        layout = layouts[namespace]
        if layout is not None:
            texts[b""] = layout
        foreign = frozenset(known.text for name, others in groups.items() if name != namespace for _, known in others)
        plan = Plan(
            schema,
            texts,
            self._before,
            self._truncates,
            namespace if namespace in loose and self._envelope else None,
            foreign - texts.keys(),
            self._tombstones,
        )
        return rows.mapInArrow(_decoding(plan, report), frame_type(schema))

    def _report_groups(self, batch: Batch, bad: Sequence[Found], report: DeadLetters) -> None:
        """Report every record whose schema can't be used."""
        for each in bad:
            rows = batch.raw.where(
                f.col("value").isNotNull()
                & (f.col("topic") == each.ref.topic)
                & (reference("value", self._values) == each.ref.value)
                & (reference("key", self._keys) == each.ref.key)
            ).select(*FIELDS)
            rows.mapInArrow(_reporting(report, self._known[each.ref].error), "n long").collect()


def sample_of(data: bytes, encoding: str) -> bytes:
    """What of a record's key or value tells its schema, without its values: the checkpoint keeps it."""
    if encoding == "avro":
        return data[:HEAD_SIZE]
    kind, text = classify(data)
    if kind is Kind.SCHEMA:
        schema = text[len(b'{"schema":') : -len(PAYLOAD)] if text.endswith(PAYLOAD) else text
        names = inference.key_names(json.loads(data))
        return b'{"schema":' + schema + PAYLOAD + json.dumps(dict.fromkeys(names)).encode() + b"}"
    try:
        found = json.loads(data)
    except ValueError:
        return b"null"
    return json.dumps(dict.fromkeys(found) if isinstance(found, dict) else None).encode()


def frame_type(schema: TableSchema) -> t.StructType:
    """The type of a table's frame: its columns, then the system columns."""
    return t.StructType(
        [t.StructField(column.name, column.type, column.nullable) for column in schema.columns] + list(SYSTEM_FIELDS)
    )


def _schema_id(text: str, what: str) -> int:
    if len(text) != 10 or not text.startswith("00"):
        raise Skippable(
            f"The {what} was not written in the schema registry's wire format (unknown magic byte). Set "
            f"source.{what}.encoding to "
            "what the topic holds."
        )
    return int.from_bytes(bytes.fromhex(text)[1:], "big")


def _decoding(plan: Plan, report: DeadLetters) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        # Decoding makes no cycles, and looking for some costs as much as it does.
        gc.disable()
        decoder = TableDecoder(plan, report.report)
        try:
            with report:
                for batch in batches:
                    yield from decoder.decode(batch)
        finally:
            gc.enable()

    return run


def _inferring(
    known: dict[str, dict[str, t.DataType]],
    envelope: bool,  # noqa: FBT001
    report: DeadLetters,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        gc.disable()
        search = inference.Search(known, envelope=envelope, report=report.report)
        try:
            with report:
                for batch in batches:
                    search.look(batch)
            yield search.result()
        finally:
            gc.enable()

    return run


def _reporting(report: DeadLetters, error: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        count = 0
        with report:
            for batch in batches:
                for row in batch.to_pylist():
                    report.report(row["topic"], row["partition"], row["offset"], row["key"], row["value"], Skippable(error))
                    count += 1
        yield pa.RecordBatch.from_pydict({"n": pa.array([count], pa.int64())})

    return run
