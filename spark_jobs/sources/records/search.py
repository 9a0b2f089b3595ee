"""Looks through JSON for tables, columns and types that are not known yet. Runs in Python tasks; results go to the driver."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import types as t

from connectors.errors import Skippable
from spark_jobs.contract import TableSchema
from spark_jobs.rows.shards import WHOLE, row_keys, shard_of
from spark_jobs.sources.records.events import list_images, read_event
from spark_jobs.sources.records.inference import TableSighting, accepted_types, is_enveloped, key_names
from spark_jobs.sources.records.kinds import (
    RecordSample,
    Rules,
    choose_sample,
    decode_problem,
    loose_flat,
    loose_layout,
)
from spark_jobs.sources.records.reader import ValueKind, classify_value, namespace_of
from spark_jobs.sources.types import infer_type, type_json, wider_inferred

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_jobs.rows.shards import Shard
    from spark_jobs.sources.records.rows import Report

_RESULT: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("namespace", pa.string()),
        ("columns", pa.string()),
        ("keys", pa.string()),
        ("sample", pa.binary()),
        ("key", pa.binary()),
        ("error", pa.string()),
        ("mixed", pa.bool_()),
        ("text", pa.binary()),
        ("shards", pa.string()),
    ]
)


@dataclass(slots=True)
class _SearchedTable:
    """The data found of one table; see ``TableSighting``."""

    types: dict[str, t.DataType]
    accepted: dict[str, tuple[type, ...]] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    defined: bool = False
    error: str = ""
    mixed: bool = False
    shards: set[Shard] = field(default_factory=set)


class Search:
    """Looks at records one by one and notes what is new; one per task.

    A record that would change what is known of its table is decoded first, as a task would do it: one that can't be decoded
    changes nothing.

    Args:
        known_types: the types of columns per table that need no note.
        rules: what the options say.
        report: takes records that can't be of any table.
    """

    def __init__(self, known_types: Mapping[str, Mapping[str, t.DataType]], rules: Rules, report: Report) -> None:
        self._known_types = known_types
        self._rules = rules
        self._report = report
        self._tables: dict[tuple[str, str], _SearchedTable] = {}
        self._samples: dict[tuple[str, bytes], RecordSample] = {}

    def look(self, batch: pa.RecordBatch) -> None:
        """Note the tables and types of a batch's records; reports those that are of none."""
        topics, keys, values = (batch.column(name).to_pylist() for name in ("topic", "key", "value"))
        for index, (topic, key, value) in enumerate(zip(topics, keys, values, strict=True)):
            try:
                self._search_record(topic, key, value, batch, index)
            except (Skippable, msgspec.DecodeError, ValueError, RecursionError) as error:
                self._report(
                    topic,
                    batch.column("partition")[index].as_py(),
                    batch.column("offset")[index].as_py(),
                    key,
                    value,
                    error,
                )

    def _search_record(self, topic: str, key: bytes | None, value: bytes, batch: pa.RecordBatch, index: int) -> None:
        kind, schema_text = classify_value(value)
        if kind is ValueKind.SCHEMA:
            sample = self._samples.get((topic, schema_text), RecordSample())
            self._samples[topic, schema_text] = choose_sample(sample, batch.slice(index, 1), self._rules, "")
            return
        if kind is ValueKind.BAD:
            raise Skippable("The value is no JSON object.")
        if not self._rules.envelope:
            self._note_rows((topic, topic), key, [msgspec.json.decode(value)], batch, index)
            return
        event = read_event(value)
        if event.op == "m" or (event.op == "t" and self._rules.truncates):
            return
        at, shard = (topic, namespace_of(event.source, topic)), shard_of(event.source)
        sharded = shard != WHOLE or bool(event.source.logical_table)
        self._note_rows(at, key, list_images(event), batch, index, sharded=sharded)
        if len(self._tables[at].shards) < 2:  # enough to know that there are several
            self._tables[at].shards.add(shard)

    def _note_rows(
        self,
        at: tuple[str, str],
        key: bytes | None,
        rows: Sequence[Mapping[str, Any]],
        batch: pa.RecordBatch,
        index: int,
        *,
        sharded: bool = False,
    ) -> None:
        table = self._tables.get(at)
        if table is None:
            types = dict(self._known_types.get(at[1], {}))
            table = self._tables[at] = _SearchedTable(
                types, {name: accepted_types(kind) for name, kind in types.items()}
            )
            table.defined = at[1] in self._known_types
        names: tuple[str, ...] = ()
        if not table.keys and key:
            names, values = _read_key(key)
            if sharded:
                names = row_keys(names, {name for row in rows for name in row})
                values = {name: values[name] for name in names}
            rows = [values, *rows]
        fresh: dict[str, t.DataType] = {}
        accepted = table.accepted
        for row in rows:
            for name, value in row.items():
                if value is not None and type(value) not in accepted.get(name, ()):
                    _widen_type(table, fresh, name, value)
        if table.defined and not fresh and not names:
            return
        error = self._find_row_problem(at[1], {**table.types, **fresh}, names or table.keys, batch.slice(index, 1))
        if error:
            table.error = table.error or error
            return
        table.types |= fresh
        accepted |= {name: accepted_types(kind) for name, kind in fresh.items()}
        table.keys = table.keys or names
        table.defined = True
        table.mixed |= not names and not table.keys and self._rules.keys_of(at[1]) is None

    def _find_row_problem(
        self, namespace: str, types: Mapping[str, t.DataType], record_names: tuple[str, ...], record: pa.RecordBatch
    ) -> str:
        """Why a record is no row of a table with these columns; empty where it is one."""
        rules = self._rules
        try:
            flat = loose_flat(types.keys(), rules)
            hidden = flat.hidden if flat is not None else ()
            keys = rules.keys_of(namespace)
            sighting = TableSighting("", namespace, {name: kind for name, kind in types.items() if name not in hidden})
            columns = sighting.columns(record_names if keys is None else keys, rules.declared_of(namespace))
            return decode_problem(
                TableSchema(namespace, columns), b"", loose_layout(columns, flat, rules), rules, record
            )
        except Skippable as error:
            return str(error)

    def result(self) -> pa.RecordBatch:
        """One row per table and per unusual envelope, as ``inference.SCHEMA``."""
        nothing = {
            "columns": "{}",
            "keys": "[]",
            "sample": None,
            "key": None,
            "error": "",
            "mixed": False,
            "text": b"",
            "shards": "[]",
        }
        rows: list[dict[str, Any]] = [
            nothing
            | {
                "topic": topic,
                "namespace": namespace,
                "columns": json.dumps({name: type_json(kind) for name, kind in table.types.items()}),
                "keys": json.dumps(table.keys),
                "error": "" if table.defined else table.error,
                "mixed": table.mixed,
                "shards": json.dumps(sorted(table.shards)),
            }
            for (topic, namespace), table in self._tables.items()
        ]
        rows += [
            nothing
            | {
                "topic": topic,
                "namespace": "",
                "sample": sample.value,
                "key": sample.key,
                "error": sample.error,
                "mixed": 0 < sample.rank < 3,
                "text": schema_text,
            }
            for (topic, schema_text), sample in self._samples.items()
        ]
        return pa.RecordBatch.from_pylist(rows, schema=_RESULT)


def _read_key(key: bytes) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """The key columns in a record's key, and their values; none where it is no struct."""
    try:
        data = msgspec.json.decode(key)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return (), {}
    names = key_names(data)
    return names, (data["payload"] if is_enveloped(data) else data) if names else {}


def _widen_type(table: _SearchedTable, fresh: dict[str, t.DataType], name: str, value: Any) -> None:
    """Note in ``fresh`` the type that a column needs for a value, where it is another than is known."""
    kind = infer_type(value)
    if kind is None:
        return
    known_type = fresh.get(name, table.types.get(name))
    if known_type is not None and not isinstance(
        known_type, t.LongType | t.DoubleType | t.BooleanType | t.StringType | t.DecimalType
    ):
        return  # declared: decoding says what does not fit
    wide = kind if known_type is None else wider_inferred(known_type, kind)
    if wide != known_type:
        fresh[name] = wide
