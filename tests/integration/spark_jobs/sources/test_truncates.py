"""A TRUNCATE has no row, and no key in its record: it says nothing of its table's columns and key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from pyspark.sql import SparkSession


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
    (((_, rows),), bad) = events.reader(spark, monkeypatch, errors_tolerance="all").read(0, records)
    assert [values[:2] for values in rows] == [(1, "a")]
    assert bad >= 1
