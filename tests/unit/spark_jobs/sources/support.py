"""Decodes JSON records of one table without Spark, as a task does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_jobs.sources.layout import RecordLayout, envelope_layout
from spark_jobs.sources.records.reader import DecodePlan, ValueKind, classify_value
from spark_jobs.sources.records.rows import TableDecoder
from spark_jobs.sources.tables import merge_schema
from worker.converters.json_form.read import read_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import TableSchema


def records(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> pa.RecordBatch:
    """A task's input: one partition, offsets from 0."""
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["t"] * count),
            pa.array([3] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", tz="UTC")),
            pa.array(keys if keys is not None else [None] * count, pa.binary()),
            pa.array(values, pa.binary()),
        ],
        names=["topic", "partition", "offset", "timestamp", "key", "value"],
    )


def member(column: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "field": column, **more}


def envelope_schema(columns: list[dict[str, Any]], source: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    row = {"type": "struct", "fields": columns, "optional": True, "name": "p.d.t.Value"}
    return {
        "type": "struct",
        "name": "p.d.t.Envelope",
        "optional": False,
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {
                "type": "struct",
                "field": "source",
                "optional": False,
                "fields": source
                or [
                    member("db", "string"),
                    member("table", "string"),
                    member("ts_us", "int64"),
                    member("ums_id", "int64"),
                ],
            },
            member("op", "string"),
        ],
    }


def message(schema: dict[str, Any], payload: dict[str, Any]) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


class Table:
    """The plan for a table, made from samples of its records, and what was reported while decoding."""

    def __init__(
        self, *samples: bytes, key_schema: dict[str, Any] | None = None, keys: tuple[str, ...] = ("id",), **options: Any
    ) -> None:
        layouts: dict[bytes, RecordLayout] = {}
        schema: TableSchema | None = None
        for sample in samples:
            kind, text = classify_value(sample)
            assert kind is ValueKind.SCHEMA
            layouts[text] = envelope_layout(
                read_schema(json.loads(sample)["schema"], replace_null=True),
                read_schema(key_schema, replace_null=True) if key_schema else None,
            )
            schema = merge_schema(schema, "d.t", layouts[text].columns(keys), "")
        assert schema is not None
        self.schema = schema
        self.plan = DecodePlan(schema, layouts, **options)
        self.reported: list[tuple[int, str]] = []

    def rows(self, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> list[dict[str, Any]]:
        decoder = TableDecoder(
            self.plan, lambda _t, _p, offset, _k, _v, error: self.reported.append((offset, str(error)))
        )
        return [row for batch in decoder.decode(records(values, keys)) for row in batch.to_pylist()]
