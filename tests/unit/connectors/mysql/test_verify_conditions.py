"""The condition for rows that a repair sends again, by their keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from connectors.mysql.model import MySqlColumn
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema.columns import FieldPlan
from connectors.mysql.source.statements import is_condition
from connectors.mysql.verify import TableEntry, key_condition
from connectors.schema import BYTES, INT64, STRING, Schema, Type, timestamp
from connectors.verify.rows import TableReport


def entry(
    *, unsigned: bool = False, binary: bool = False, sends_keys: bool = True, **key: Schema | FieldPlan
) -> TableEntry:
    """A table with these key fields."""
    fields = tuple(plan if isinstance(plan, FieldPlan) else FieldPlan(name, name, plan) for name, plan in key.items())
    columns = [
        MySqlColumn(name=field.column, type=codes.VARCHAR, collation=codes.BINARY if binary else 45)
        if field.schema.type is Type.STRING
        else MySqlColumn(name=field.column, type=codes.LONGLONG, unsigned=unsigned)
        for field in fields
    ]
    layout = SimpleNamespace(key=fields)
    return cast(
        "TableEntry", SimpleNamespace(layout=layout, table=SimpleNamespace(columns=columns), sends_keys=sends_keys)
    )


def test_rows_are_named_by_all_columns_of_their_keys() -> None:
    assert key_condition(entry(id=INT64), ['{"id":7}', '{"id":-8}']) == "(`id` = 7) OR (`id` = -8)"
    two = entry(**{"a`b": STRING}, n=INT64)  # type: ignore[arg-type]  # it is a column
    text = key_condition(two, ['{"a`b":"x\'; --","n":1}'])
    assert text == "(`a``b` = _utf8mb4 X'78273b202d2d' AND `n` = 1)"
    assert is_condition(text)
    # The field has another name than the column.
    assert key_condition(entry(renamed=FieldPlan("column", "renamed", INT64)), ['{"renamed":1}']) == "(`column` = 1)"
    # Of an unsigned column, numbers from 2^63 on are negative in a message.
    assert key_condition(entry(unsigned=True, id=INT64), ['{"id":-1}']) == "(`id` = 18446744073709551615)"


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        (entry(), ['{"id":1}']),
        (entry(sends_keys=False, id=INT64), ['{"id":1}']),
        (entry(at=timestamp()), ['{"at":1}']),
        (entry(raw=BYTES), ['{"raw":"AQ=="}']),
        (entry(binary=True, raw=STRING), ['{"raw":"00ff"}']),
        (entry(id=FieldPlan("id", "id", STRING, lambda value: value)), ['{"id":"masked"}']),
        (entry(id=INT64), ['{"id":1.5}']),
        (entry(id=INT64), ['{"other":1}']),
        (entry(id=STRING), ['{"id":"cut']),
        (entry(id=INT64), []),
    ],
    ids=[
        "no key",
        "changed",
        "time",
        "bytes",
        "bytes as text",
        "masked",
        "decimal",
        "other field",
        "cut",
        "not all known",
    ],
)
def test_without_them_the_table_is_read(table: Any, keys: list[str]) -> None:
    assert key_condition(table, keys) == ""


def test_all_keys_have_to_be_known() -> None:
    report = TableReport(
        "t", missing=1, different=1, extra=5, examples={"missing": ["a"], "different": ["b"], "extra": ["c"]}
    )
    assert report.to_send_again() == ["a", "b"]
    report.missing = 2
    assert report.to_send_again() == []
