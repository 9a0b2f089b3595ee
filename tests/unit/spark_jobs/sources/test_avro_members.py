"""Members of an Avro envelope that no row needs are skipped, and the others read as before."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from spark_jobs.sources.avro.expressions import prune_schema
from spark_jobs.sources.avro.frame import ENVELOPE_MEMBERS

ROW = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
BLOCK = {"type": "record", "name": "Block", "fields": [{"name": "id", "type": "string"}]}
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "file", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "pos", "type": "long"},
        {"name": "query", "type": ["null", {"type": "string", "connect.version": 1}]},
        {"name": "ts_us", "type": ["null", "long"]},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop",
    "fields": [
        {"name": "transaction", "type": ["null", BLOCK]},
        {"name": "ts_ms", "type": "long"},
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "kind", "type": ["null", "Kind"]},
    ],
}
EVENT = {
    "transaction": {"id": "t1"},
    "ts_ms": 3,
    "before": None,
    "after": {"id": 7},
    "source": {"version": "1", "file": "b.000003", "kind": "b", "pos": 4, "query": "q", "ts_us": 5},
    "op": "c",
    "kind": "a",
}


def test_what_rows_need_is_read_and_types_that_others_refer_to_stay() -> None:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(ENVELOPE), EVENT)
    data.seek(0)
    reader: Any = fastavro.parse_schema(prune_schema(json.loads(json.dumps(ENVELOPE)), ENVELOPE_MEMBERS))
    assert fastavro.schemaless_reader(data, fastavro.parse_schema(ENVELOPE), reader) == {
        "transaction": {"id": "t1"},
        "before": None,
        "after": {"id": 7},
        "source": {"file": "b.000003", "kind": "b", "pos": 4, "ts_us": 5},
        "op": "c",
        "kind": "a",
    }
