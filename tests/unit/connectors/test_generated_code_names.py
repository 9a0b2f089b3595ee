"""Generated code takes any name of a column: it neither breaks at it nor runs it. (CQL: ``mutation_world.tables``, too.)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.mysql.model import ColumnPlan, MySqlTable, TableName
from connectors.mysql.rows.decode import compile_rows
from connectors.mysql.rows.text_rows import compile_text
from connectors.mysql.schema.fields import field_schema
from connectors.schema import INT32, OPTIONAL_STRING, Field, Schema, Type
from connectors.scylla.model import INSERT, ScyllaColumn
from tests.support.settings import mysql_values
from tests.unit.connectors.cql.mutation_world import COLUMN_NAMES
from tests.unit.connectors.mysql.events import making as mysql
from tests.unit.connectors.scylla.events import making as scylla
from worker.converters.json import JsonConverter
from worker.transforms.generated import TakenField, struct_taker

if TYPE_CHECKING:
    from connectors.api import SourceRecord
    from connectors.mysql.model import MySqlColumn

NAMES = st.lists(COLUMN_NAMES, min_size=2, max_size=5, unique=True)
LIMITS = settings(max_examples=60, deadline=None)


def columns(names: list[str]) -> tuple[MySqlColumn, ...]:
    first, *others = names
    return (mysql.number(first, nullable=False), *(mysql.text(name, 20) for name in others))


def values(names: list[str]) -> dict[str, Any]:
    return {name: index if index == 0 else f"value of {index}" for index, name in enumerate(names)}


@given(NAMES)
@LIMITS
def test_rows_of_mysql(names: list[str]) -> None:
    table = MySqlTable(name=TableName("it's", '"t"'), columns=columns(names), key=(names[0],))
    plans: list[ColumnPlan | None] = [
        ColumnPlan(column, field_schema(column, mysql_values())) for column in table.columns
    ]
    encoded_values = [str(value).encode() for value in values(names).values()]
    assert compile_text(table, plans, mysql_values())(
        b"".join(bytes([len(text)]) + text for text in encoded_values)
    ) == values(names)
    data = b"\0" + (0).to_bytes(4, "little") + b"".join(bytes([len(text)]) + text for text in encoded_values[1:])
    rows = compile_rows(table, plans, mysql_values(), kind="write", present=b"\xff")(data, 0, len(data))
    assert rows == [values(names)]


@given(NAMES, st.sampled_from(["debezium", "ums"]), st.booleans())
@LIMITS
def test_events_of_mysql(names: list[str], output: str, masked: bool) -> None:
    table = mysql.table("it's", *columns(names), key=(names[0],))
    masks = {"mask.rules": "m", "mask.m.columns": r"world\..*\..*", "mask.m.type": "md5"} if masked else None
    event_settings = mysql.settings(masks, output_format=output)
    builder = mysql.make_builder(table, event_settings)
    row = mysql.decoded(table, event_settings, values(names))
    out: list[SourceRecord] = []
    builder.changes("c", [row], mysql.SOURCE, 0, mysql.BASE, mysql.AFTER, out)
    builder.changes("u", [row, row], mysql.SOURCE, 0, mysql.BASE, mysql.AFTER, out)
    builder.changes("d", [row], mysql.SOURCE, 0, mysql.BASE, mysql.AFTER, out)
    if output == "debezium":
        assert [record.value and (record.value["before"] or record.value["after"]) for record in out] == [
            row,
            row,
            row,
            None,
        ] or masked
        assert not masked or set(out[0].value["after"]) == set(names)
    else:
        fields = [field["name"] for field in out[0].value["schema"]["fields"]]
        assert fields[4:] == names
    for record in out:
        mysql.written(record.value_schema, record.value)  # with generated code, too


@given(NAMES, st.sampled_from(["legacy", "advanced", "ums"]))
@LIMITS
def test_events_of_scylla(names: list[str], output: str) -> None:
    cells: dict[str, Any] = {name: f"value of {name}" for name in names if name not in scylla_names()}
    table = scylla.table(*(ScyllaColumn(name, scylla.TEXT, "regular") for name in cells))
    row = scylla.row(table, 1, 0, INSERT, end=True, pk=1, c1="c", c2=2, **cells)
    record = scylla.make(table, [row], output_format=output)[-1]
    if output == "legacy":
        assert {name: cell["value"] for name, cell in record.value["after"].items() if name in cells} == cells
    elif output == "ums":
        fields = [field["name"] for field in record.value["schema"]["fields"]]
        assert set(names) <= set(fields)
        assert set(cells.values()) <= set(record.value["payload"][0]["tuple"])


def scylla_names() -> set[str]:
    return {column.name for column in scylla.table().columns}


@given(NAMES)
@LIMITS
def test_worker(names: list[str]) -> None:
    """Transforms and converters."""
    take = struct_taker(
        [TakenField(name, (name,), required=True) for name in names], lambda _: pytest.fail("not generated")
    )
    assert take(values(names)) == values(names)
    fields = tuple(Field(name, OPTIONAL_STRING if index else INT32) for index, name in enumerate(names))
    schema = Schema(Type.STRUCT, name="names", fields=fields)
    converter = JsonConverter({"schemas.enable": "true"})
    data = converter.encoder("t", schema)(values(names))
    assert data is not None
    assert converter.to_connect("t", data) == (schema, values(names))
