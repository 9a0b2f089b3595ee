"""From raw records to typed changes per table, on the driver: finds schemas, keeps tables, makes frames.

Decoding itself is lazy: JSON in Python tasks (``rows``), Avro in the JVM (``avro.frame``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import functions as f
from pyspark.sql import types as t

from connectors.errors import Fatal, Skippable
from spark_jobs.config.keys import REFUSE
from spark_jobs.contract import Source, TableChanges, TableSchema
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.reports.heartbeats import Heartbeats, is_no_heartbeat
from spark_jobs.rows import shards
from spark_jobs.sources import tasks
from spark_jobs.sources.avro import frame as avro_frame
from spark_jobs.sources.decoding_options import PASS_THROUGH, DecodingOptions
from spark_jobs.sources.records import inference
from spark_jobs.sources.records.discovery import TOMBSTONE, RecordGroup, Ref, build_reference, find_kinds
from spark_jobs.sources.records.fast_path import FastPath, FastPathState
from spark_jobs.sources.records.kinds import KnownKind, Rules, loose_flat, loose_layout
from spark_jobs.sources.records.known_kinds import KnownKinds
from spark_jobs.sources.records.reader import DecodePlan
from spark_jobs.sources.table_filter import is_selected
from spark_jobs.sources.tables import (
    SchemaFiles,
    find_absent_columns,
    from_json,
    make_nullable,
    merge_schema,
    restore_table,
    to_json,
)
from spark_jobs.sources.tasks import FIELDS
from spark_jobs.spark.frames import ArrowTask, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from spark_jobs.contract import Batch, JobContext, Packed
    from spark_jobs.rows.shards import Shard
    from spark_jobs.sources.layout import RecordLayout
    from spark_jobs.sources.records.rows import Report

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


class RecordSource(Source):
    """The base of sources whose records are decoded one by one; a class says which options it has."""

    pass_through: ClassVar[tuple[str, ...]] = PASS_THROUGH
    #: Whether values are Debezium's envelopes; otherwise a topic is a table.
    envelope: ClassVar[bool]

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        config = context.config
        self._options = options = DecodingOptions.of(config, envelope=self.envelope)
        self._fast = FastPath(options.values, options.keys, Heartbeats.of(context))
        self._kinds = KnownKinds(config, options, self._fast)
        #: The shard of each table that was seen first; with ``refuse`` the only one.
        self._first: dict[str, Shard] = {}
        self._files = SchemaFiles(context.spark, config.get("checkpoint.location"))
        #: As records show them: without columns for the shard.
        self.tables: dict[str, TableSchema] = {}
        self._earlier: dict[str, TableSchema] = {}
        #: Columns that some version of a table's rows in this batch does not have.
        self._lacking: dict[str, frozenset[str]] = {}
        self._loaded = False
        self._unsaved = False
        #: By table: what makes rows of what the single pass gives.
        self._unpackers: dict[str, tuple[TableSchema, Any, ArrowTask]] = {}

    # The batch.

    def changes(self, batch: Batch) -> list[TableChanges]:
        """See ``Source.changes``; runs one Spark job, and more where a schema is new or missing."""
        self._load_tables()
        if self._options.tables and not self._options.envelope:  # a topic is a table
            batch = chosen_topics(batch, self._options.tables)
        self._kinds.forget_doubtful()
        regular = self._in_one_pass(batch)
        if regular is not None:
            return regular
        report = DeadLetters.of(self.context)
        kinds = find_kinds(
            batch.raw,
            self._options.values,
            self._options.keys,
            Heartbeats.of(self.context),
            tombstones=self._options.tombstones,
        )
        tombstone_topics = {record_kind.ref.topic for record_kind in kinds if record_kind.ref.value == TOMBSTONE}
        kinds = [record_kind for record_kind in kinds if record_kind.ref.value != TOMBSTONE]
        infers = self._options.values == "json"
        schemaless_topics = {record_kind.ref.topic for record_kind in kinds if infers and not record_kind.ref.value}
        described = [record_kind for record_kind in kinds if not infers or record_kind.ref.value]
        self._kinds.learn(batch, [kind for kind in described if kind.ref not in self._kinds.by_ref])
        present = {record_kind.ref: self._kinds.by_ref[record_kind.ref] for record_kind in described}
        left_out = {
            ref
            for ref, kind in present.items()
            if not kind.error and (kind.layout is None or not is_selected(self._options.tables, kind.namespace))
        }
        # Tasks leave out records of these schemas.
        unusable = frozenset(present.pop(ref).text for ref in left_out)
        groups: dict[str, list[tuple[Ref, KnownKind]]] = {}
        for ref, known_kind in present.items():
            if not known_kind.error:
                groups.setdefault(known_kind.namespace, []).append((ref, known_kind))
        self._report_groups(
            batch,
            [
                kind
                for kind in kinds
                if kind.ref in present and present[kind.ref].error and not self._is_decoded(kind.ref, groups)
            ],
            report,
        )
        loose: dict[str, inference.TableSighting] = {}
        unusable |= frozenset(known_kind.text for known_kind in present.values() if known_kind.error)
        if schemaless_topics:
            loose, loose_refs = self._infer_tables(batch, schemaless_topics, groups, report)
            unusable |= loose_refs
            for namespace in [name for name in groups if not is_selected(self._options.tables, name)]:
                unusable |= {kind.text for _, kind in groups.pop(namespace)}
        self._fast.note_loose(schemaless_topics, loose)
        shown = {ref.topic for ref in present}.union(*(sighting.topics for sighting in loose.values()))
        for topic in sorted(tombstone_topics - shown):
            self._recall_topic(topic, groups, loose)
        layouts = self._bring_up_to_date(groups, loose)
        return [
            TableChanges(
                self._written_as(namespace),
                self._build_frame(batch, namespace, groups, loose, layouts, unusable, report),
                self._lacking.get(namespace, frozenset()),
            )
            for namespace in layouts
        ]

    def _bring_up_to_date(
        self, groups: Mapping[str, Sequence[tuple[Ref, KnownKind]]], loose: Mapping[str, inference.TableSighting]
    ) -> dict[str, RecordLayout | None]:
        """Bring tables up to what a batch holds; the layout of rows without a schema, for each table of the batch."""
        before, first = dict(self.tables), dict(self._first)
        self._earlier = before
        if self._options.envelope:
            self._note_shards(groups, loose)
        self._lacking.clear()
        layouts = {
            namespace: self._merge_table(namespace, groups.get(namespace, []), loose.get(namespace))
            for namespace in [*groups, *loose]
        }
        self._unsaved |= self.tables != before or self._first != first
        return layouts

    def _in_one_pass(self, batch: Batch) -> list[TableChanges] | None:
        """The changes of a batch that shows nothing new; None where it may."""
        if not self._options.envelope or self._options.before or self._options.tables:
            return None
        state = FastPathState(self.tables, self._kinds.by_ref, self._first, self._kinds.rules(), self._options.shards)
        decoded = self._fast.decode(batch, state)
        if decoded is None:
            return None
        layouts = self._bring_up_to_date(decoded.groups, decoded.seen)
        if any(_list_column_types(self.tables[name]) != _list_column_types(decoded.tables[name]) for name in layouts):
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
        restore_table(self.tables, self._earlier, namespace)

    def written(self) -> None:
        """See ``Source.written``."""
        self._fast.release()
        if self._unsaved:
            kept = {"samples": self._kinds.samples, "shards": self._options.shards, "first_shards": self._first}
            self._files.save(to_json(self.tables, kept))
            self._unsaved = False

    def _load_tables(self) -> None:
        if self._loaded:
            return
        tables_json = self._files.load()
        if tables_json is not None:
            try:
                self.tables, extra = from_json(tables_json)
                self._kinds.samples = extra.get("samples", {})
                first = {
                    name: (first_number, two) for name, (first_number, two) in extra.get("first_shards", {}).items()
                }
            except (ValueError, KeyError, TypeError) as error:
                raise Fatal(
                    f"The schemas kept in {self._files.folder} can't be read: {error}. Restore the folder, or delete "
                    "it to have the schemas found again from the records that come."
                ) from error
            shards.check_mode(extra.get("shards"), self._options.shards, self.tables, self._files.folder)
            # Tables of releases that knew no shards were not sharded.
            self._first = dict.fromkeys(self.tables, shards.WHOLE) | first
        self._loaded = True

    # Shards.

    def _note_shards(
        self, groups: Mapping[str, Sequence[tuple[Ref, KnownKind]]], loose: Mapping[str, inference.TableSighting]
    ) -> None:
        """Note the first shard of each table. With ``refuse`` tasks compare every record with it.

        Raises:
            Fatal: ``refuse``, and samples show a second shard.
        """
        for namespace in [*groups, *loose]:
            shards_seen = {known_kind.shard for _, known_kind in groups.get(namespace, ())}
            shards_seen |= loose[namespace].shards if namespace in loose else frozenset()
            if shards_seen and self._options.shards == REFUSE:
                self._first[namespace] = shards.check_one(namespace, self._first.get(namespace), shards_seen)
            elif shards_seen:
                self._first.setdefault(namespace, min(shards_seen))

    def _written_as(self, namespace: str) -> TableSchema:
        """The table as sinks get it."""
        return shards.with_numbers(self.tables[namespace]) if self._options.separates else self.tables[namespace]

    # Schemas.

    def _recall_topic(
        self, topic: str, groups: dict[str, list[tuple[Ref, KnownKind]]], loose: dict[str, inference.TableSighting]
    ) -> None:
        """A topic that has only tombstones in this batch: its table as it was last seen."""
        recalled = self._kinds.recall(topic, self._files.folder)
        if recalled is not None:
            groups.setdefault(recalled[1].namespace, []).append(recalled)
        elif topic in self.tables:
            schema = self.tables[topic]
            loose[topic] = inference.TableSighting(topic, topic, {}, tuple(column.name for column in schema.key))
        else:
            self.context.log.warning(
                "topic %s has only records without a value so far: there is no row that they could delete", topic
            )

    def _infer_tables(
        self, batch: Batch, topics: set[str], groups: dict[str, list[tuple[Ref, KnownKind]]], report: DeadLetters
    ) -> tuple[dict[str, inference.TableSighting], frozenset[bytes]]:
        """Tables of JSON without a schema; envelopes that only Python recognizes are added to ``groups``.

        The second result: the schemas of such envelopes that give no rows; records of those that can't be used are reported.
        """
        rows = batch.raw.where(
            f.col("topic").isin(*topics) & f.col("value").isNotNull() & (build_reference("value", "json") == "")
        ).select(*FIELDS)
        kept = {
            namespace: tuple(column.name for column in schema.key)
            for namespace, schema in self.tables.items()
            if schema.key
        }
        kept |= {
            namespace: known_kind.keys
            for namespace, kinds in groups.items()
            for _, known_kind in kinds
            if known_kind.keys
        }
        rules = replace(self._kinds.rules(), keys={**kept, **self._kinds.rules().keys})
        tables, envelopes = self._search_rows(rows, rules, report.report)
        tables = {name: table for name, table in tables.items() if is_selected(self._options.tables, name)}
        mixed = {
            name: loose_table.keys for name, loose_table in tables.items() if loose_table.mixed and loose_table.keys
        }
        if mixed:
            # Some records came before the first one that shows the key: now it is known which of them have it.
            tables, _ = self._search_rows(rows, replace(rules, keys={**rules.keys, **mixed}), tasks.no_report)
            tables |= {name: replace(tables[name], keys=keys) for name, keys in mixed.items() if name in tables}
        bad: dict[tuple[str, str | bytes], str] = {}
        rowless: set[bytes] = set()
        for (topic, schema_text), envelope in envelopes.items():
            ref = Ref(topic, "", schema_text.decode("latin-1"))
            if ref not in self._kinds.by_ref and not envelope.error and envelope.sample is not None:
                self._kinds.by_ref[ref] = self._kinds.look_at_record(
                    Ref(topic, "", ""), envelope.key, envelope.sample
                )  # a task has looked at it
            known_kind = self._kinds.by_ref.get(ref)
            if known_kind is None:
                bad[topic, schema_text] = envelope.error
            elif known_kind.layout is None:
                rowless.add(self._kinds.by_ref.pop(ref).text)
            else:
                groups.setdefault(known_kind.namespace, []).append((ref, known_kind))
        for namespace, envelope in list(tables.items()):
            if envelope.error and namespace not in self.tables and namespace not in groups:
                del tables[namespace]
                bad |= {(topic, namespace): envelope.error for topic in envelope.topics}
        if bad:
            rows.mapInArrow(tasks.reporting_about(report, bad, envelope=self._options.envelope), "n long").collect()
        return tables, frozenset(about for _, about in bad if isinstance(about, bytes)) | rowless

    def _search_rows(
        self, rows: DataFrame, rules: Rules, report: Report
    ) -> tuple[dict[str, inference.TableSighting], dict[tuple[str, bytes], inference.TableSighting]]:
        """Tables by namespace, and unusual envelopes by topic and the text of their schema; runs a job."""
        known_types = {
            namespace: {column.name: column.type for column in schema.columns}
            for namespace, schema in self.tables.items()
        }
        tables: dict[str, inference.TableSighting] = {}
        envelopes: dict[tuple[str, bytes], inference.TableSighting] = {}
        letters = DeadLetters.of(self.context)
        for row in rows.mapInArrow(
            tasks.make_search_task(known_types, rules, report, letters), inference.SCHEMA
        ).collect():
            sighting = inference.TableSighting.from_row(row)
            if sighting.sample is not None:
                at = (sighting.topic, sighting.text)
                old = envelopes.get(at)
                if old is None or (not sighting.error and (old.error or (old.mixed and not sighting.mixed))):
                    envelopes[at] = sighting
            elif sighting.namespace in tables:
                tables[sighting.namespace] = tables[sighting.namespace].joined(sighting)
            else:
                tables[sighting.namespace] = sighting
        return tables, envelopes

    def _merge_table(
        self, namespace: str, group: Iterable[tuple[Ref, KnownKind]], loose: inference.TableSighting | None
    ) -> RecordLayout | None:
        """Bring the table's schema up to what this batch holds; returns the layout of its rows without a schema."""
        schema = self.tables.get(namespace)
        where = f"(Schemas are kept in {self._files.folder}.)" if self._files.folder else ""
        for ref, known_kind in group:
            if known_kind.layout is None:
                continue
            try:
                columns = known_kind.layout.columns(known_kind.keys)
            except Skippable as error:
                raise Fatal(f"Topic {ref.topic}, table {namespace}: {error}") from error
            schema = merge_schema(schema, namespace, columns, where, to_string=self._options.takes_text)
            schema = make_nullable(schema, columns)
            self._lacking[namespace] = self._lacking.get(namespace, frozenset()) | find_absent_columns(schema, columns)
        layout = None
        if loose is not None:
            declared = self._kinds.rules().declared_of(namespace)
            flat = loose_flat(loose.types.keys(), self._kinds.rules())
            if flat is not None:
                loose = replace(
                    loose, types={name: kind for name, kind in loose.types.items() if name not in flat.hidden}
                )
            # Records whose keys show no columns say nothing of the table's key.
            shown = loose.keys or (tuple(column.name for column in schema.key) if schema is not None else ())
            keys = self._kinds.key_names(namespace, shown)
            columns = loose.columns(keys, declared) if loose.types or schema is None else tuple(schema.columns)
            schema = merge_schema(schema, namespace, columns, where, guessed=True)
            layout = loose_layout(schema.columns, flat, self._kinds.rules())
        if schema is not None:
            self.tables[namespace] = schema
        return layout

    # Frames.

    def _build_frame(
        self,
        batch: Batch,
        namespace: str,
        groups: dict[str, list[tuple[Ref, KnownKind]]],
        loose: dict[str, inference.TableSighting],
        layouts: dict[str, RecordLayout | None],
        unusable: frozenset[bytes],
        report: DeadLetters,
    ) -> DataFrame:
        schema = self.tables[namespace]
        group = groups.get(namespace, [])
        topics = {ref.topic for ref, _ in group} | (loose[namespace].topics if namespace in loose else set())
        rows = batch.raw.where(is_no_heartbeat() if self._options.tombstones else f.col("value").isNotNull())
        if topics != {topic for topic, _ in batch.ranges}:
            rows = rows.where(f.col("topic").isin(*topics))
        rows = rows.select(*FIELDS)
        if self._options.values == "avro":
            table = avro_frame.AvroFrameTable(
                schema,
                tuple(known_kind.layout for _, known_kind in group if known_kind.layout is not None),
                self._options.before,
                self._options.truncates,
                self._options.tombstones,
                self._options.separates,
                self._first.get(namespace) if self._options.shards == REFUSE else None,
                self._kinds.rules().may_move(namespace, [kind.layout for _, kind in group if kind.layout is not None]),
            )
            return avro_frame.build_frame(rows, table, report)
        layouts_by_text = {
            known_kind.text: known_kind.layout for _, known_kind in group if known_kind.layout is not None
        }
        layout = layouts[namespace]
        if layout is not None:
            layouts_by_text[b""] = layout
        foreign = frozenset(
            known_kind.text for name, others in groups.items() if name != namespace for _, known_kind in others
        )
        plan = DecodePlan(
            schema,
            layouts_by_text,
            self._options.before,
            self._options.truncates,
            namespace if namespace in loose and self._options.envelope else None,
            (foreign | unusable) - layouts_by_text.keys(),
            self._options.tombstones,
            self._options.separates,
            self._first.get(namespace) if self._options.shards == REFUSE else None,
            self._kinds.rules().may_move(namespace, layouts_by_text.values()),
        )
        return rows.mapInArrow(tasks.make_decoding_task(plan, report), frame_type(self._written_as(namespace)))

    def _is_decoded(self, ref: Ref, groups: Mapping[str, Sequence[tuple[Ref, KnownKind]]]) -> bool:
        """Whether the tasks that decode a table get the records of a kind that can't be used, and so report them."""
        return any(
            (other.topic, other.value) == (ref.topic, ref.value)
            and not (self._options.values == "avro" and avro_frame.tells_keys_apart([kind.layout for _, kind in group]))
            for group in groups.values()
            for other, _ in group
        )

    def _report_groups(self, batch: Batch, bad: Sequence[RecordGroup], report: DeadLetters) -> None:
        """Report every record whose schema can't be used."""
        for kind in bad:
            rows = self._kinds.select_records(batch, kind.ref)
            rows.mapInArrow(tasks.make_reporting_task(report, self._kinds.by_ref[kind.ref].error), "n long").collect()


def chosen_topics(batch: Batch, patterns: Sequence[str]) -> Batch:
    """The part of a batch that is in topics that ``patterns`` name."""
    ranges = {where: offsets for where, offsets in batch.ranges.items() if is_selected(patterns, where[0])}
    topics = sorted({topic for topic, _ in ranges})
    return replace(batch, raw=batch.raw.where(f.col("topic").isin(*topics)), ranges=ranges)


def frame_type(schema: TableSchema) -> t.StructType:
    """The type of a table's frame: its columns, then the system columns.

    Only key columns can't be null: of a delete without an image the others are, whatever the schema says.
    """
    return t.StructType(
        [t.StructField(column.name, column.type, not column.key) for column in schema.columns] + list(SYSTEM_FIELDS)
    )


def _list_column_types(schema: TableSchema) -> list[tuple[str, t.DataType]]:
    return [(column.name, column.type) for column in schema.columns]
