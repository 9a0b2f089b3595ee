"""The kinds of records that a run has seen, each found by one of its records."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from connectors.errors import Fatal, Skippable
from spark_jobs.rows import shards
from spark_jobs.sources import tasks
from spark_jobs.sources.avro.expressions import RegistrySchemas, connect_schema, parse_schema_id
from spark_jobs.sources.declared import declared_keys, declared_types
from spark_jobs.sources.layout import VARIABLE_OPTION, RecordLayout, envelope_layout, flat_layout, is_message
from spark_jobs.sources.records.discovery import Ref, build_reference, read_samples
from spark_jobs.sources.records.kinds import KnownKind, Rules, avro_subject, look_json, sample_of
from spark_jobs.sources.records.reader import classify_value
from spark_jobs.sources.tasks import FIELDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from connectors.options import Config
    from connectors.schema import Schema
    from spark_jobs.contract import Batch
    from spark_jobs.sources.decoding_options import DecodingOptions
    from spark_jobs.sources.records.discovery import RecordGroup
    from spark_jobs.sources.records.fast_path import FastPath

_FLAT_OPTIONS: Final = (
    "source.op.field",
    "source.time.field",
    "source.order.field",
    "source.timestamp.unit",
    VARIABLE_OPTION,
)
_SAMPLE: Final = "rank int, key binary, value binary"


class KnownKinds:
    """The kinds of one run.

    Args:
        config: of the job.
        options: the same, read.
        fast: gets each kind.

    Attributes:
        by_ref: the kinds that were read, by reference.
        samples: a key and a value of each topic that may get tombstones, in base64.
    """

    def __init__(self, config: Config, options: DecodingOptions, fast: FastPath) -> None:
        self._config = config
        self._options = options
        self._fast = fast
        self.by_ref: dict[Ref, KnownKind] = {}
        self.samples: dict[str, list[str | None]] = {}
        #: Kinds of which a batch had no good record with a row: the next one may have some.
        self._doubtful: set[Ref] = set()
        self._registry = RegistrySchemas(config) if "avro" in {options.values, options.keys} else None
        self._schema_texts: dict[int, str] = {}
        self._rules: Rules | None = None

    def forget_doubtful(self) -> None:
        """Forget the kinds of which the last batch had no good record with a row."""
        for ref in self._doubtful:
            self.by_ref.pop(ref, None)
        self._doubtful.clear()

    def learn(self, batch: Batch, unknown: Sequence[RecordGroup]) -> None:
        """Look at a record of each unknown kind; runs Spark jobs.

        Raises:
            Fatal: there are none any more.
        """
        records = read_samples(batch.raw, unknown)
        for record_kind in unknown:
            if record_kind.ref not in records:
                continue
            key, value = records[record_kind.ref]
            known_kind = self.by_ref[record_kind.ref] = self._judge_kind(batch, record_kind, key, value)
            self._fast.note_kind(record_kind.ref, known_kind, key)
            if self._options.tombstones and not known_kind.error:
                self.samples[record_kind.ref.topic] = [
                    base64.b64encode(sample_of(key, self._options.keys)).decode() if key is not None else None,
                    base64.b64encode(sample_of(value, self._options.values)).decode(),
                ]
        missing = [kind.ref for kind in unknown if kind.ref not in self.by_ref]
        if missing:
            raise Fatal(
                f"Records of topic {missing[0].topic} were there a moment ago and are not any more: retention is "
                "deleting what the job is reading. Let the topic keep its records for longer."
            )

    def _judge_kind(self, batch: Batch, kind: RecordGroup, key: bytes | None, value: bytes) -> KnownKind:
        """Find the kind of the records of ``kind``: by their first one, or by a better one where that one is bad."""
        ref, known_kind, error = kind.ref, None, ""
        schema_text = classify_value(value)[1] if self._options.values == "json" else b""
        try:
            known_kind = self.look_at_record(ref, key, value)
            complete = known_kind.keys or (known_kind.layout is not None and self._options.keys != "json")
            if complete or (known_kind.layout is not None and kind.number == 1):
                return known_kind
        except Skippable as trouble:
            error = str(trouble)
        avro = ""
        if self._options.values == "avro":
            try:
                avro = self._fetch_schema(parse_schema_id(ref.value, "value"))
                self._find_layout(connect_schema(avro), None)
            except Skippable:
                return KnownKind(error=error, text=schema_text)
        if kind.number > 1:
            rows = (
                self.select_records(batch, ref)
                .mapInArrow(tasks.make_choosing_task(self.rules(), avro), _SAMPLE)
                .collect()
            )
            best = max(rows, key=lambda row: row["rank"], default=None)
            rank = 0 if known_kind is None else 1 if known_kind.layout is None else 2
            if best is not None and best["rank"] > rank:
                known_kind = self.look_at_record(
                    ref, None if best["key"] is None else bytes(best["key"]), bytes(best["value"])
                )
        if known_kind is None or known_kind.layout is None:
            self._doubtful.add(ref)
        return known_kind or KnownKind(error=error, text=schema_text)

    def select_records(self, batch: Batch, ref: Ref) -> DataFrame:
        """The records of one kind."""
        return batch.raw.where(
            f.col("value").isNotNull()
            & (f.col("topic") == ref.topic)
            & (build_reference("value", self._options.values) == ref.value)
            & (build_reference("key", self._options.keys) == ref.key)
        ).select(*FIELDS)

    def look_at_record(self, ref: Ref, key: bytes | None, value: bytes) -> KnownKind:
        """Return the kind that a record shows.

        Raises:
            Skippable: it can't be used.
        """
        if self._options.values == "avro":
            ids = (
                parse_schema_id(ref.value, "value"),
                parse_schema_id(ref.key, "key") if ref.key and self._options.keys == "avro" else -1,
            )
            schema_texts = (self._fetch_schema(ids[0]), self._fetch_schema(ids[1]) if ids[1] >= 0 else "")
            schema = connect_schema(schema_texts[0])
            if self._options.envelope and is_message(schema):
                return KnownKind(ref.topic)
            key_schema = connect_schema(schema_texts[1]) if schema_texts[1] else None
            layout = replace(self._find_layout(schema, key_schema), avro=schema_texts, ids=ids)
            namespace, shard = ref.topic, shards.WHOLE
            if self._options.envelope:
                truncates = self._options.truncates
                namespace, shard, has_row = avro_subject(schema_texts[0], value, ref.topic, truncates=truncates)
                if not has_row:
                    return KnownKind(namespace, shard=shard)
            keys = self.key_names(namespace, layout.key_names)
            layout.columns(keys)
            return KnownKind(namespace, layout, keys, shard=shard)
        return look_json(tasks.make_record_batch(ref.topic, key, value), self.rules())

    def _find_layout(self, value: Schema | None, key: Schema | None) -> RecordLayout:
        return (envelope_layout if self._options.envelope else flat_layout)(value, key, self._config)

    def _fetch_schema(self, schema_id: int) -> str:
        if schema_id not in self._schema_texts:
            if self._registry is None:
                raise Fatal("no registry")
            self._schema_texts[schema_id] = self._registry.text(schema_id)
        return self._schema_texts[schema_id]

    def key_names(self, namespace: str, record_names: Sequence[str]) -> tuple[str, ...]:
        """The key columns of a table: those that the options give, else those of its records."""
        keys = self.rules().keys_of(namespace)
        return tuple(record_names) if keys is None else keys

    def rules(self) -> Rules:
        """Read the rules from the options; parses types on the first call."""
        if self._rules is not None:
            return self._rules
        config = self._config
        self._rules = Rules(
            self._options.envelope,
            self._options.keys == "json",
            self._options.before,
            self._options.truncates,
            self._options.tombstones,
            {name: config.get(name) for name in _FLAT_OPTIONS},
            declared_keys(config),
            declared_types(config),
        )
        return self._rules

    def recall(self, topic: str, folder: str) -> tuple[Ref, KnownKind] | None:
        """Return the kind of a topic's records as it was last seen; None if it was not.

        Args:
            topic: which.
            folder: with the samples, for the message.

        Raises:
            Fatal: its sample has no value.
        """
        if topic not in self.samples:
            return None
        key, value = (
            base64.b64decode(sample_text) if sample_text is not None else None for sample_text in self.samples[topic]
        )
        if value is None:
            raise Fatal(f"{folder} holds no sample of topic {topic}; delete it to have schemas found again.")
        ref = Ref(topic, "recalled", "")
        if ref not in self.by_ref:
            kinds = (
                Ref(topic, value[:5].hex(), key[:5].hex() if key else "")
                if self._options.values == "avro"
                else Ref(topic, "", "")
            )
            self.by_ref[ref] = self.look_at_record(kinds, key, value)
        return ref, self.by_ref[ref]
