"""A TRUNCATE and a message have no row: they say nothing of a table's columns and key."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from tests.integration.spark_jobs.sources.test_single_pass import (
    AVRO,
    AvroTable,
    Reader,
    Record,
    avro_event,
    dumped,
    envelope,
    maybe,
    typed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


def _struct(names: Sequence[str], field: str) -> dict[str, Any]:
    return {"type": "struct", "field": field, "fields": [{"field": name, "type": "string"} for name in names]}


def _record(name: str, **kinds: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in kinds.items()]}


MESSAGE = _record(
    "MessageValue",
    op="string",
    ts_ms="long",
    source=_record("Source", connector="string", db="string", table="string"),
    message=_record("Message", prefix="string", content="bytes"),
)


class Events:
    """Writes events of a table in one form."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.table = AvroTable({"name": maybe("string")})

    def write(self, op: str, row: Any, *, key: bool) -> Record:
        if self.form == "avro":
            return self.table.record(avro_event(op, row), 1 if key else None)
        event = envelope(op, row)
        if self.form == "json":
            return "t", b'{"id":1}' if key else None, dumped(event)
        topic, key_bytes, value = typed(event, ["id", "name"], key=key)
        spaced = self.form == "json with schemas behind a space"
        return topic, key_bytes, b" " + value if spaced and value is not None else value

    def write_message(self) -> Record:
        """The event of `pg_logical_emit_message`, which has another structure."""
        source = {"connector": "postgresql", "db": "shop", "table": ""}
        event = {"op": "m", "ts_ms": 1, "source": source, "message": {"prefix": "p", "content": b"c"}}
        if self.form == "avro":
            self.table.schemas[9] = json.dumps(MESSAGE)
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, fastavro.parse_schema(MESSAGE), event)
            return "t", None, b"\0" + (9).to_bytes(4, "big") + stream.getvalue()
        event["message"] = {"prefix": "p", "content": "Yw=="}
        if self.form == "json":
            return "t", None, dumped(event)
        members = [_struct(list(source), "source"), _struct(["prefix", "content"], "message")]
        fields = [{"field": "op", "type": "string"}, {"field": "ts_ms", "type": "int64"}, *members]
        value = dumped({"schema": {"type": "struct", "fields": fields}, "payload": event})
        return "u", None, b" " + value if self.form == "json with schemas behind a space" else value

    def reader(self, spark: SparkSession, patch: pytest.MonkeyPatch, **options: str) -> Reader:
        chosen = {name.replace("_", "."): value for name, value in options.items()}
        avro = AVRO if self.form == "avro" else {}
        return Reader(spark, patch, options=avro | chosen, schemas=self.table.schemas)


FORMS = ["avro", "json", "json with schemas", "json with schemas behind a space"]


@pytest.mark.parametrize("form", FORMS)
def test_a_truncate_defines_no_key(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    events = Events(form)
    truncate, change = events.write("t", None, key=False), events.write("c", {"id": 1, "name": "a"}, key=True)
    reader = events.reader(spark, monkeypatch, source_truncates="ignore")
    assert reader.read(0, [truncate]) == ([], 0)
    for number, records in enumerate([[truncate, change], [change, truncate], [truncate, truncate], [change]], start=1):
        tables, bad = reader.read(number, records)
        rows = [values for schema, rows in tables for values in rows if [c.name for c in schema.key] == ["id"]]
        assert ([values[:2] for values in rows], bad) == ([(1, "a")] * records.count(change), 0)


@pytest.mark.parametrize("form", FORMS)
def test_a_table_without_a_key_is_known_by_its_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    events = Events(form)
    truncate, change = events.write("t", None, key=False), events.write("c", {"id": 1, "name": "a"}, key=False)
    reader = events.reader(spark, monkeypatch, source_truncates="ignore")
    for number, records in enumerate([[truncate], [truncate, change, truncate], [change], [truncate]]):
        tables, bad = reader.read(number, records)
        rows = [values for schema, rows in tables for values in rows if not schema.key]
        assert ([values[:2] for values in rows], bad) == ([(1, "a")] * records.count(change), 0)


@pytest.mark.parametrize("form", FORMS)
def test_a_truncate_that_is_not_ignored_is_a_bad_record(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    events = Events(form)
    records = [events.write("c", {"id": 1, "name": "a"}, key=True), events.write("t", None, key=False)]
    assert "TRUNCATE" in events.reader(spark, monkeypatch).read(0, records)
    reader = events.reader(spark, monkeypatch, errors_tolerance="all")
    for number, batch in enumerate([records, records[::-1], records[1:], records], start=1):
        tables, bad = reader.read(number, batch)
        rows = [values[:2] for _, rows in tables for values in rows]
        assert (rows, bad) == ([(1, "a")] * (len(batch) - 1), number), batch


@pytest.mark.parametrize("form", FORMS)
def test_a_message_is_no_row(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    events = Events(form)
    message, change = events.write_message(), events.write("c", {"id": 1, "name": "a"}, key=True)
    reader = events.reader(spark, monkeypatch)
    for number, records in enumerate([[message], [change, message]]):
        read = reader.read(number, records)
        assert not isinstance(read, str), read
        assert ([values[:2] for _, rows in read[0] for values in rows], read[1]) == ([(1, "a")] * number, 0)
