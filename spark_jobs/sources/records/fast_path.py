"""Decode batches of Debezium's events in one pass (``single_pass``) where earlier ones show what they hold. On the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as t

from spark_jobs.config.keys import REFUSE, SEPARATE
from spark_jobs.rows import shards
from spark_jobs.sources.avro import rows as avro_rows
from spark_jobs.sources.records import inference
from spark_jobs.sources.records.kinds import loose_layout
from spark_jobs.sources.records.reader import PAYLOAD, DecodePlan, classify_value
from spark_jobs.sources.records.single_pass import KnownTable, RecordKind, Regular, SinglePass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from spark_jobs.contract import Batch, Packed, TableSchema
    from spark_jobs.reports.heartbeats import Heartbeats
    from spark_jobs.rows.shards import Shard
    from spark_jobs.sources.layout import RecordLayout
    from spark_jobs.sources.records.discovery import Ref
    from spark_jobs.sources.records.kinds import KnownKind, Rules


@dataclass(frozen=True, slots=True)
class FastPathState:
    """The knowledge of a source before a batch.

    Attributes:
        tables: by namespace.
        known_kinds: kinds of records with a schema.
        first: the shard of each table that was seen first.
        rules: what the options say.
        shards: ``sink.shards``.
    """

    tables: Mapping[str, TableSchema]
    known_kinds: Mapping[Ref, KnownKind]
    first: Mapping[str, Shard]
    rules: Rules
    shards: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch that was decoded in one pass, as the full path would see it.

    Attributes:
        groups: kinds of records with a schema, by namespace.
        seen: tables of records without a schema, by namespace.
        tables: schemas that rows were made with.
        packed: rows by namespace.
    """

    groups: Mapping[str, Sequence[tuple[Ref, KnownKind]]]
    seen: Mapping[str, inference.TableSighting]
    tables: Mapping[str, TableSchema]
    packed: Mapping[str, Packed]


class FastPath:
    """Notes what records look like, and decodes batches of such records in one pass; for one job.

    Args:
        values: ``source.value.encoding``.
        keys: ``source.key.encoding``.
        heartbeats: notes those of batches.
    """

    def __init__(self, values: str, keys: str, heartbeats: Heartbeats) -> None:
        self._heartbeats = heartbeats
        self._avro = values == "avro"
        self._json_keys = keys == "json"
        self._avro_keys = keys == "avro"
        self.single = SinglePass(avro=self._avro)
        #: By kind in Avro, a table, and whether the kind's records can be read in one pass as rows of it.
        self._readable: dict[Ref, tuple[DecodePlan, bool]] = {}
        self._kinds: dict[Ref, RecordKind] = {}
        #: Tables of topics that have records without a schema.
        self._loose: dict[str, frozenset[str]] = {}
        #: By table, names that images without a schema had with null only.
        self._nulls: dict[str, frozenset[str]] = {}

    def note_kind(self, ref: Ref, kind: KnownKind, key: bytes | None) -> None:
        """Note how records of a kind with a schema begin, if that identifies them; ``key`` is one of theirs."""
        if kind.error or kind.layout is None or not kind.text.endswith(PAYLOAD):
            return
        schema_text = b"" if key is None or not self._json_keys else classify_value(key)[1]
        prefix = schema_text if schema_text.endswith(PAYLOAD) else b""
        self._kinds[ref] = RecordKind(ref.topic, kind.namespace, kind.text, prefix if self._json_keys else None)

    def note_loose(self, topics: Collection[str], loose: Mapping[str, inference.TableSighting]) -> None:
        """Note the tables of topics whose records have no schema."""
        for topic in topics:
            self._loose[topic] = self._loose.get(topic, frozenset()) | {
                namespace for namespace, sighting in loose.items() if topic in sighting.topics
            }

    def release(self) -> None:
        """Drop the rows of the last batch."""
        self.single.release()

    def decode(self, batch: Batch, state: FastPathState) -> Decoded | None:
        """The rows of a batch that shows nothing new; None where it may. Blocks: runs a Spark job."""
        if not self.single.due():
            return None
        topics = {topic for (topic, _), (first, after) in batch.ranges.items() if first < after}
        if self._avro:
            return self._decode_avro(batch, topics, state)
        kinds = {ref: kind for ref, kind in self._kinds.items() if ref.topic in topics and ref in state.known_kinds}
        layouts: dict[str, dict[bytes, RecordLayout]] = {kind.namespace: {} for kind in kinds.values()}
        for ref, kind in kinds.items():
            layout = state.known_kinds[ref].layout
            if layout is None or layouts[kind.namespace].setdefault(kind.value, layout) != layout:
                return None
        loose = [self._loose_kind(topic, state) for topic in sorted(topics) if self._loose.get(topic)]
        all_kinds = [*kinds.values(), *(kind for kind in loose if kind is not None)]
        names = {kind.namespace for kind in all_kinds}
        if None in loose or not topics <= {kind.topic for kind in all_kinds} or not names <= state.tables.keys():
            return None
        tables = {name: self._known_table(name, layouts.get(name, {}), all_kinds, state) for name in names}
        regular = self.single.decode(batch, all_kinds, tables, self._heartbeats)
        if regular is None:
            return None
        for name, nulls in regular.nulls.items():
            self._nulls[name] = self._nulls.get(name, frozenset()) | nulls
        sightings = {kind.namespace: _seen_again(kind, state) for kind in regular.kinds if not kind.value}
        return _build_result(regular, kinds, sightings, tables, state)

    def _decode_avro(self, batch: Batch, topics: set[str], state: FastPathState) -> Decoded | None:
        kinds: dict[Ref, RecordKind] = {}
        layouts: dict[str, dict[bytes, RecordLayout]] = {}
        for ref, kind_facts in state.known_kinds.items():
            if (
                ref.topic not in topics
                or kind_facts.error
                or kind_facts.layout is None
                or kind_facts.namespace not in state.tables
            ):
                continue
            value, key = bytes.fromhex(ref.value), bytes.fromhex(ref.key)
            kinds[ref] = RecordKind(ref.topic, kind_facts.namespace, value, key if self._avro_keys else None)
            layouts.setdefault(kind_facts.namespace, {})[value + key] = kind_facts.layout
        tables = {
            name: KnownTable(
                DecodePlan(
                    state.tables[name],
                    of_table,
                    separate=state.shards == SEPARATE,
                    shard=state.first.get(name) if state.shards == REFUSE else None,
                    moves=state.rules.may_move(name, of_table.values()),
                )
            )
            for name, of_table in layouts.items()
        }
        kinds = {ref: kind for ref, kind in kinds.items() if self._is_readable(ref, kind, tables[kind.namespace].plan)}
        if not kinds or not topics <= {kind.topic for kind in kinds.values()}:
            return None
        regular = self.single.decode(batch, list(kinds.values()), tables, self._heartbeats)
        return None if regular is None else _build_result(regular, kinds, {}, tables, state)

    def _is_readable(self, ref: Ref, kind: RecordKind, plan: DecodePlan) -> bool:
        """Whether vectors read records of a kind in Avro."""
        noted = self._readable.get(ref)
        if noted is None or noted[0].schema != plan.schema:
            layout = plan.layouts[kind.value + (kind.key or b"")]
            noted = self._readable[ref] = (plan, avro_rows.is_supported(layout, plan))
        return noted[1]

    def _loose_kind(self, topic: str, state: FastPathState) -> RecordKind | None:
        """Records of a topic without a schema; None where they can't be read in one pass."""
        names = self._loose[topic]
        if len(names) != 1 or state.shards != REFUSE:
            return None
        (name,) = names
        declared = state.rules.declared_of(name)
        if name not in state.tables or any(
            isinstance(column.type, t.DecimalType) and column.name not in declared
            for column in state.tables[name].columns
        ):
            return None  # only the search says what a value makes of such a column
        return RecordKind(topic, name, b"", None)

    def _known_table(
        self, namespace: str, layouts: dict[bytes, RecordLayout], kinds: Sequence[RecordKind], state: FastPathState
    ) -> KnownTable:
        schema = state.tables[namespace]
        loose = any(kind.namespace == namespace and not kind.value for kind in kinds)
        if loose:
            layouts = {**layouts, b"": loose_layout(schema.columns, None, state.rules)}
        plan = DecodePlan(
            schema,
            layouts,
            namespace=namespace if loose else None,
            separate=state.shards == SEPARATE,
            shard=state.first.get(namespace) if state.shards == REFUSE else None,
            moves=state.rules.may_move(namespace, layouts.values()),
        )
        keys = tuple(column.name for column in schema.key)
        shown = self._json_keys and state.rules.keys_of(namespace) is None
        return KnownTable(plan, keys if shown else None, self._nulls.get(namespace, frozenset()))


def _build_result(
    regular: Regular,
    kinds: Mapping[Ref, RecordKind],
    sightings: Mapping[str, inference.TableSighting],
    tables: Mapping[str, KnownTable],
    state: FastPathState,
) -> Decoded:
    """The batch as the full path would see it."""
    groups: dict[str, list[tuple[Ref, KnownKind]]] = {}
    for ref in sorted(ref for ref, kind in kinds.items() if kind in regular.kinds):
        groups.setdefault(state.known_kinds[ref].namespace, []).append((ref, state.known_kinds[ref]))
    return Decoded(groups, sightings, {name: table.plan.schema for name, table in tables.items()}, regular.packed)


def _seen_again(kind: RecordKind, state: FastPathState) -> inference.TableSighting:
    """The result of the search for tables in records that show nothing new."""
    schema = state.tables[kind.namespace]
    return inference.TableSighting(
        kind.topic,
        kind.namespace,
        {column.name: column.type for column in schema.columns},
        tuple(column.name for column in schema.key),
        shards=frozenset({state.first.get(kind.namespace, shards.WHOLE)}),
    )
