"""From raw records to typed changes per table, on the driver: finds schemas, keeps tables, makes frames. Used by sources.

Decoding itself is lazy: JSON in Python tasks (``rows``), Avro in the JVM (``avro_frame``).
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t

from connectors.errors import Fatal, Skippable
from connectors.options import ConfigKey, ConfigType, Importance, invalid
from spark_jobs import shards
from spark_jobs.config_keys import REFUSE, SEPARATE, SHARDS, TABLES
from spark_jobs.contract import TableChanges, TableSchema
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.frames import ArrowTask, columns_of
from spark_jobs.schema_options import SchemaPolicies
from spark_jobs.sources import avro_frame, inference, tasks
from spark_jobs.sources.avro import Registry, connect_schema, parse_schema_id
from spark_jobs.sources.declared import COLUMNS, KEYS, declared_keys, declared_types
from spark_jobs.sources.discovery import TOMBSTONE, Found, Ref, find, reference, samples
from spark_jobs.sources.fast_path import FastPath, State
from spark_jobs.sources.kinds import (
    Known,
    Rules,
    avro_subject,
    look_json,
    loose_flat,
    loose_layout,
    sample_of,
)
from spark_jobs.sources.layout import VARIABLE_OPTION, Layout, envelope_layout, flat_layout
from spark_jobs.sources.reader import Plan, classify
from spark_jobs.sources.table_filter import selects
from spark_jobs.sources.tables import SchemaFiles, absent, from_json, lacking, merged, restore, to_json
from spark_jobs.sources.tasks import FIELDS
from spark_jobs.sources.types import MAX_PRECISION, TEXT, VARIABLE_SCALE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from connectors.schema import Schema
    from spark_jobs.contract import Batch, JobContext, Packed
    from spark_jobs.shards import Shard
    from spark_jobs.sources.rows import Report

_GROUP: Final = "Decoding"
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


def _variable_scale(name: str, value: Any) -> str | None:
    fits = value == TEXT or (str(value).isdecimal() and int(value) <= MAX_PRECISION)
    return None if fits else invalid(name, value, f"must be {TEXT}, or a number from 0 to {MAX_PRECISION}")


COMMON_KEYS: Final = (
    ConfigKey(
        name="source.before.rows",
        type=ConfigType.BOOLEAN,
        default=False,
        group=_GROUP,
        doc="Whether an update also gives the row before it, as a row of its own with `ums_op_` b just before the "
        "`u` (where the source sends it). For full histories.",
    ),
    ConfigKey(
        name=KEYS,
        type=ConfigType.LIST,
        default=None,
        group=_GROUP,
        example="customer_id,order_id",
        doc="The columns of the primary key, in order, of every table that the job reads, instead of those in the "
        "records' keys. For a single table: `source.key.columns.<namespace>`.",
    ),
    ConfigKey(
        name=COLUMNS,
        type=ConfigType.STRING,
        default=None,
        group=_GROUP,
        example="id bigint, name string, price decimal(10,2), changed timestamp",
        doc="Types of columns of JSON without a schema, as in SQL, for every table that the job reads; for a single "
        "table: `source.table.columns.<namespace>`. Columns that it leaves out get the types that their values "
        "show.",
    ),
    ConfigKey(
        name="source.timestamp.unit",
        type=ConfigType.STRING,
        default="ms",
        group=_GROUP,
        importance=Importance.LOW,
        doc="What a number in a column means that `source.table.columns` declares as timestamp: `ms`, `us` or `ns` since 1970.",
    ),
    ConfigKey(
        name=VARIABLE_OPTION,
        type=ConfigType.STRING,
        default=str(VARIABLE_SCALE),
        group=_GROUP,
        importance=Importance.LOW,
        validator=_variable_scale,
        doc="What columns of decimals without a fixed scale become (`io.debezium.data.VariableScaleDecimal`: Cassandra, "
        "Scylla, PostgreSQL's numeric): digits after the point, 0 to 38, of a decimal(38, s), where a value that does not fit "
        "is a bad record; or `text`: all digits as text (the JDBC sink: PostgreSQL's numeric without limits). A table that is "
        "there keeps what it has.",
    ),
)
PASS_THROUGH: Final = (f"{KEYS}.", f"{COLUMNS}.")
_FLAT_OPTIONS: Final = (
    "source.op.field",
    "source.time.field",
    "source.order.field",
    "source.timestamp.unit",
    VARIABLE_OPTION,
)
_SAMPLE: Final = "rank int, key binary, value binary"


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
        self._shards = str(config.get(SHARDS) or REFUSE)
        self._chosen: tuple[str, ...] = tuple(config.get(TABLES) or ())
        #: The shard of each table that was seen first; with ``refuse`` the only one.
        self._first: dict[str, Shard] = {}
        self._samples: dict[str, list[str | None]] = {}
        self._given: Rules | None = None
        #: Kinds of which a batch had no good record: the next one may have some.
        self._doubtful: set[Ref] = set()
        self._registry = Registry(config) if "avro" in {self._values, self._keys} else None
        self._texts: dict[int, str] = {}
        self._known: dict[Ref, Known] = {}
        self._files = SchemaFiles(context.spark, config.get("checkpoint.location"))
        #: As records show them: without columns for the shard.
        self.tables: dict[str, TableSchema] = {}
        self._earlier: dict[str, TableSchema] = {}
        #: Columns that some version of a table's rows in this batch does not have.
        self._lacking: dict[str, frozenset[str]] = {}
        self._takes_text = SchemaPolicies.of(config).takes_text
        self._loaded = False
        self._unsaved = False
        self._fast = FastPath(self._values, self._keys)
        #: By table: what makes rows of what the single pass gives.
        self._unpackers: dict[str, tuple[TableSchema, Any, ArrowTask]] = {}
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
        if self._chosen and not self._envelope:  # a topic is a table
            batch = chosen_topics(batch, self._chosen)
        for ref in self._doubtful:
            self._known.pop(ref, None)
        self._doubtful.clear()
        regular = self._in_one_pass(batch)
        if regular is not None:
            return regular
        report = DeadLetters.of(self._context)
        found = find(batch.raw, self._values, self._keys, tombstones=self._tombstones)
        buried = {each.ref.topic for each in found if each.ref.value == TOMBSTONE}
        found = [each for each in found if each.ref.value != TOMBSTONE]
        schemaless = [each for each in found if not each.ref.value] if self._values == "json" else []
        self._learn(batch, [each for each in found if each not in schemaless and each.ref not in self._known])
        present = {each.ref: self._known[each.ref] for each in found if each not in schemaless}
        others = {ref for ref, kind in present.items() if not kind.error and not selects(self._chosen, kind.namespace)}
        # Tasks leave out records of these schemas.
        unusable = frozenset(present.pop(ref).text for ref in others)
        self._report_groups(batch, [each for each in found if each.ref in present and present[each.ref].error], report)
        groups: dict[str, list[tuple[Ref, Known]]] = {}
        for ref, known in present.items():
            if not known.error:
                groups.setdefault(known.namespace, []).append((ref, known))
        loose: dict[str, inference.Seen] = {}
        unusable |= frozenset(known.text for known in present.values() if known.error)
        if schemaless:
            loose, texts = self._infer(batch, {each.ref.topic for each in schemaless}, groups, report)
            unusable |= texts
            for namespace in [name for name in groups if not selects(self._chosen, name)]:
                unusable |= {kind.text for _, kind in groups.pop(namespace)}
        self._fast.note_loose({each.ref.topic for each in schemaless}, loose)
        shown = {ref.topic for ref in present}.union(*(each.topics for each in loose.values()))
        for topic in sorted(buried - shown):
            self._recall(topic, groups, loose)
        layouts = self._bring_up_to_date(groups, loose)
        return [
            TableChanges(
                self._written_as(namespace),
                self._frame(batch, namespace, groups, loose, layouts, unusable, report),
                self._lacking.get(namespace, frozenset()),
            )
            for namespace in layouts
        ]

    def _bring_up_to_date(
        self, groups: Mapping[str, Sequence[tuple[Ref, Known]]], loose: Mapping[str, inference.Seen]
    ) -> dict[str, Layout | None]:
        """Bring tables up to what a batch holds; the layout of rows without a schema, for each table of the batch."""
        before, first = dict(self.tables), dict(self._first)
        self._earlier = before
        if self._envelope:
            self._note_shards(groups, loose)
        self._lacking.clear()
        layouts = {
            namespace: self._merge(namespace, groups.get(namespace, []), loose.get(namespace))
            for namespace in [*groups, *loose]
        }
        self._unsaved |= self.tables != before or self._first != first
        return layouts

    def _in_one_pass(self, batch: Batch) -> list[TableChanges] | None:
        """The changes of a batch that shows nothing new; None where it may."""
        if not self._envelope or self._before or self._chosen:
            return None
        state = State(self.tables, self._known, self._first, self._rules(), self._shards)
        decoded = self._fast.decode(batch, state)
        if decoded is None:
            return None
        layouts = self._bring_up_to_date(decoded.groups, decoded.seen)
        if any(_types(self.tables[name]) != _types(decoded.tables[name]) for name in layouts):
            self._fast.release()
            return None
        return [self._packed_changes(name, decoded.packed[name]) for name in layouts]

    def _packed_changes(self, namespace: str, packed: Packed) -> TableChanges:
        schema = self._written_as(namespace)
        noted = self._unpackers.get(namespace)
        if noted is None or noted[:2] != (schema, packed.unpack):
            task = ArrowTask(packed.unpack, frame_type(schema), columns_of(("data",)))
            noted = self._unpackers[namespace] = schema, packed.unpack, task
        frame = noted[2].over(packed.frame)
        return TableChanges(schema, frame, self._lacking.get(namespace, frozenset()), packed)

    def close(self) -> None:
        """Drop what is kept of the last batch."""
        self._fast.release()

    def schemas(self) -> list[TableSchema]:
        """See ``Source.schemas``."""
        return [self._written_as(namespace) for namespace in self.tables]

    def refused(self, namespace: str) -> None:
        """See ``Source.refused``."""
        restore(self.tables, self._earlier, namespace)

    def written(self) -> None:
        """See ``Source.written``."""
        self._fast.release()
        if self._unsaved:
            kept = {"samples": self._samples, "shards": self._shards, "first_shards": self._first}
            self._files.save(to_json(self.tables, kept))
            self._unsaved = False

    def _load(self) -> None:
        if self._loaded:
            return
        text = self._files.load()
        if text is not None:
            try:
                self.tables, extra = from_json(text)
                self._samples = extra.get("samples", {})
                first = {name: (one, two) for name, (one, two) in extra.get("first_shards", {}).items()}
            except (ValueError, KeyError, TypeError) as error:
                raise Fatal(
                    f"The schemas kept in {self._files.folder} can't be read: {error}. Restore the folder, or delete "
                    "it to have the schemas found again from the records that come."
                ) from error
            shards.check_mode(extra.get("shards"), self._shards, self.tables, self._files.folder)
            # Tables of releases that knew no shards were not sharded.
            self._first = dict.fromkeys(self.tables, shards.WHOLE) | first
        self._loaded = True

    # Shards.

    @property
    def _separate(self) -> bool:
        return self._envelope and self._shards == SEPARATE

    def _note_shards(
        self, groups: Mapping[str, Sequence[tuple[Ref, Known]]], loose: Mapping[str, inference.Seen]
    ) -> None:
        """Note the first shard of each table. With ``refuse`` tasks compare every record with it.

        Raises:
            Fatal: ``refuse``, and samples show a second shard.
        """
        for namespace in [*groups, *loose]:
            seen = {known.shard for _, known in groups.get(namespace, ())}
            seen |= loose[namespace].shards if namespace in loose else frozenset()
            if seen and self._shards == REFUSE:
                self._first[namespace] = shards.check_one(namespace, self._first.get(namespace), seen)
            elif seen:
                self._first.setdefault(namespace, min(seen))

    def _written_as(self, namespace: str) -> TableSchema:
        """The table as sinks get it."""
        return shards.with_numbers(self.tables[namespace]) if self._separate else self.tables[namespace]

    # Schemas.

    def _learn(self, batch: Batch, unknown: Sequence[Found]) -> None:
        found = samples(batch.raw, unknown)
        for each in unknown:
            if each.ref not in found:
                continue
            key, value = found[each.ref]
            known = self._known[each.ref] = self._judge(batch, each, key, value)
            self._fast.note_kind(each.ref, known, key)
            if self._tombstones and not known.error:
                self._samples[each.ref.topic] = [
                    base64.b64encode(sample_of(key, self._keys)).decode() if key is not None else None,
                    base64.b64encode(sample_of(value, self._values)).decode(),
                ]
        missing = [kind.ref for kind in unknown if kind.ref not in self._known]
        if missing:
            raise Fatal(
                f"Records of topic {missing[0].topic} were there a moment ago and are not any more: retention is "
                "deleting what the job is reading. Let the topic keep its records for longer."
            )

    def _judge(self, batch: Batch, kind: Found, key: bytes | None, value: bytes) -> Known:
        """What kind the records of ``kind`` are: by their first one, or by a better one where that one is bad."""
        ref, known, error = kind.ref, None, ""
        text = classify(value)[1] if self._values == "json" else b""
        try:
            known = self._look(ref, key, value)
            if known.keys or kind.number == 1 or self._keys != "json":
                return known
        except Skippable as trouble:
            error = str(trouble)
        avro = ""
        if self._values == "avro":
            try:
                avro = self._text(parse_schema_id(ref.value, "value"))
                self._layout(connect_schema(avro), None)
            except Skippable:
                return Known(error=error, text=text)
        if kind.number > 1:
            rows = self._of_kind(batch, ref).mapInArrow(tasks.choosing(self._rules(), avro), _SAMPLE).collect()
            best = max(rows, key=lambda row: row["rank"], default=None)
            if best is not None and best["rank"] > (0 if known is None else 1):
                return self._look(ref, None if best["key"] is None else bytes(best["key"]), bytes(best["value"]))
        if known is not None:
            return known
        self._doubtful.add(ref)
        return Known(error=error, text=text)

    def _of_kind(self, batch: Batch, ref: Ref) -> DataFrame:
        """The records of one kind."""
        return batch.raw.where(
            f.col("value").isNotNull()
            & (f.col("topic") == ref.topic)
            & (reference("value", self._values) == ref.value)
            & (reference("key", self._keys) == ref.key)
        ).select(*FIELDS)

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
                    Ref(topic, value[:5].hex(), key[:5].hex() if key else "")
                    if self._values == "avro"
                    else Ref(topic, "", "")
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
            ids = (
                parse_schema_id(ref.value, "value"),
                parse_schema_id(ref.key, "key") if ref.key and self._keys == "avro" else -1,
            )
            texts = (self._text(ids[0]), self._text(ids[1]) if ids[1] >= 0 else "")
            schema = connect_schema(texts[0])
            key_schema = connect_schema(texts[1]) if texts[1] else None
            layout = replace(self._layout(schema, key_schema), avro=texts, ids=ids)
            namespace, shard = avro_subject(texts[0], value, ref.topic) if self._envelope else (ref.topic, shards.WHOLE)
            keys = self._key_names(namespace, layout.key_names)
            layout.columns(keys)
            return Known(namespace, layout, keys, shard=shard)
        return look_json(tasks.record(ref.topic, key, value), self._rules())

    def _layout(self, value: Schema | None, key: Schema | None) -> Layout:
        return (envelope_layout if self._envelope else flat_layout)(value, key, self._context.config)

    def _text(self, schema_id: int) -> str:
        if schema_id not in self._texts:
            if self._registry is None:
                raise Fatal("no registry")
            self._texts[schema_id] = self._registry.text(schema_id)
        return self._texts[schema_id]

    def _key_names(self, namespace: str, found: Sequence[str]) -> tuple[str, ...]:
        keys = self._rules().keys_of(namespace)
        return tuple(found) if keys is None else keys

    def _rules(self) -> Rules:
        """What the options say; parses types on the first call."""
        if self._given is not None:
            return self._given
        config = self._context.config
        self._given = Rules(
            self._envelope,
            self._keys == "json",
            self._before,
            self._truncates,
            self._tombstones,
            {name: config.get(name) for name in _FLAT_OPTIONS},
            declared_keys(config),
            declared_types(config),
        )
        return self._given

    def _infer(
        self, batch: Batch, topics: set[str], groups: dict[str, list[tuple[Ref, Known]]], report: DeadLetters
    ) -> tuple[dict[str, inference.Seen], frozenset[bytes]]:
        """Tables of JSON without a schema; envelopes that only Python recognizes are added to ``groups``.

        The second: texts of such envelopes' schemas that can't be used; their records are reported.
        """
        rows = batch.raw.where(
            f.col("topic").isin(*topics) & f.col("value").isNotNull() & (reference("value", "json") == "")
        ).select(*FIELDS)
        kept = {
            namespace: tuple(column.name for column in schema.key)
            for namespace, schema in self.tables.items()
            if schema.key
        }
        kept |= {namespace: known.keys for namespace, kinds in groups.items() for _, known in kinds if known.keys}
        rules = replace(self._rules(), keys={**kept, **self._rules().keys})
        tables, envelopes = self._search(rows, rules, report.report)
        tables = {name: table for name, table in tables.items() if selects(self._chosen, name)}
        mixed = {name: each.keys for name, each in tables.items() if each.mixed and each.keys}
        if mixed:
            # Some records came before the first one that shows the key: now it is known which of them have it.
            tables, _ = self._search(rows, replace(rules, keys={**rules.keys, **mixed}), tasks.no_report)
            tables |= {name: replace(tables[name], keys=keys) for name, keys in mixed.items() if name in tables}
        bad: dict[tuple[str, str | bytes], str] = {}
        for (topic, text), seen in envelopes.items():
            ref = Ref(topic, "", text.decode("latin-1"))
            if ref not in self._known and not seen.error and seen.sample is not None:
                self._known[ref] = self._look(Ref(topic, "", ""), seen.key, seen.sample)  # a task has looked at it
            if ref in self._known:
                groups.setdefault(self._known[ref].namespace, []).append((ref, self._known[ref]))
            else:
                bad[topic, text] = seen.error
        for namespace, seen in list(tables.items()):
            if seen.error and namespace not in self.tables and namespace not in groups:
                del tables[namespace]
                bad |= {(topic, namespace): seen.error for topic in seen.topics}
        if bad:
            rows.mapInArrow(tasks.reporting_about(report, bad, envelope=self._envelope), "n long").collect()
        return tables, frozenset(about for _, about in bad if isinstance(about, bytes))

    def _search(
        self, rows: DataFrame, rules: Rules, report: Report
    ) -> tuple[dict[str, inference.Seen], dict[tuple[str, bytes], inference.Seen]]:
        """Tables by namespace, and unusual envelopes by topic and the text of their schema; runs a job."""
        known = {
            namespace: {column.name: column.type for column in schema.columns}
            for namespace, schema in self.tables.items()
        }
        tables: dict[str, inference.Seen] = {}
        envelopes: dict[tuple[str, bytes], inference.Seen] = {}
        letters = DeadLetters.of(self._context)
        for row in rows.mapInArrow(tasks.searching(known, rules, report, letters), inference.SCHEMA).collect():
            seen = inference.Seen.from_row(row)
            if seen.sample is not None:
                at = (seen.topic, seen.text)
                old = envelopes.get(at)
                if old is None or (not seen.error and (old.error or (old.mixed and not seen.mixed))):
                    envelopes[at] = seen
            elif seen.namespace in tables:
                tables[seen.namespace] = tables[seen.namespace].joined(seen)
            else:
                tables[seen.namespace] = seen
        return tables, envelopes

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
            schema = merged(schema, namespace, columns, where, to_string=self._takes_text)
            schema = lacking(schema, columns)
            self._lacking[namespace] = self._lacking.get(namespace, frozenset()) | absent(schema, columns)
        layout = None
        if loose is not None:
            declared = self._rules().declared_of(namespace)
            flat = loose_flat(loose.types.keys(), self._rules())
            if flat is not None:
                loose = replace(
                    loose, types={name: kind for name, kind in loose.types.items() if name not in flat.hidden}
                )
            # Records whose keys show no columns say nothing of the table's key.
            shown = loose.keys or (tuple(column.name for column in schema.key) if schema is not None else ())
            keys = self._key_names(namespace, shown)
            columns = loose.columns(keys, declared) if loose.types or schema is None else tuple(schema.columns)
            schema = merged(schema, namespace, columns, where, guessed=True)
            layout = loose_layout(schema.columns, flat, self._rules())
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
        unusable: frozenset[bytes],
        report: DeadLetters,
    ) -> DataFrame:
        schema = self.tables[namespace]
        group = groups.get(namespace, [])
        topics = {ref.topic for ref, _ in group} | (loose[namespace].topics if namespace in loose else set())
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
                self._separate,
                self._first.get(namespace) if self._shards == REFUSE else None,
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
            (foreign | unusable) - texts.keys(),
            self._tombstones,
            self._separate,
            self._first.get(namespace) if self._shards == REFUSE else None,
        )
        return rows.mapInArrow(tasks.decoding(plan, report), frame_type(self._written_as(namespace)))

    def _report_groups(self, batch: Batch, bad: Sequence[Found], report: DeadLetters) -> None:
        """Report every record whose schema can't be used."""
        for each in bad:
            rows = self._of_kind(batch, each.ref)
            rows.mapInArrow(tasks.reporting(report, self._known[each.ref].error), "n long").collect()


def chosen_topics(batch: Batch, patterns: Sequence[str]) -> Batch:
    """The part of a batch that is in topics that ``patterns`` name."""
    ranges = {where: offsets for where, offsets in batch.ranges.items() if selects(patterns, where[0])}
    topics = sorted({topic for topic, _ in ranges})
    return replace(batch, raw=batch.raw.where(f.col("topic").isin(*topics)), ranges=ranges)


def frame_type(schema: TableSchema) -> t.StructType:
    """The type of a table's frame: its columns, then the system columns.

    Only key columns can't be null: of a delete without an image the others are, whatever the schema says.
    """
    return t.StructType(
        [t.StructField(column.name, column.type, not column.key) for column in schema.columns] + list(SYSTEM_FIELDS)
    )


def _types(schema: TableSchema) -> list[tuple[str, t.DataType]]:
    return [(column.name, column.type) for column in schema.columns]
