"""The columns that become fields, and how they are converted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid
from connectors.formats.masks.masking import MASKED, masked_by
from connectors.mysql.model import MySqlColumn
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema.columns import key_columns, make_layout
from connectors.schema import Type
from tests.support.settings import mysql_values
from tests.unit.connectors.mysql.events.making import CUSTOMERS, number, settings, table, text

if TYPE_CHECKING:
    from connectors.mysql.schema.columns import ColumnLayout

OPTIONS = mysql_values()


def of(masks: dict[str, str] | None = None, **more: Any) -> ColumnLayout:
    return make_layout(CUSTOMERS, settings(masks, **more), OPTIONS)


def test_by_default_rows_are_values_as_decoded() -> None:
    layout = of()
    assert [field.name for field in layout.values] == ["id", "name", "email", "card", "credit"]
    assert [field.name for field in layout.key] == ["id"]
    assert all(plan is not None and plan.transform is None for plan in layout.plans)
    assert layout.as_decoded


def test_columns_that_no_event_needs_are_not_decoded() -> None:
    layout = of(not_columns=r"world\.customers\.(card|id)")
    assert [plan and plan.column.name for plan in layout.plans] == ["id", "name", "email", None, "credit"]
    assert [field.name for field in layout.values] == ["name", "email", "credit"]
    assert [field.name for field in layout.key] == ["id"]
    assert not layout.as_decoded
    assert of(columns=r".*\.(id|name)").as_decoded


def test_key_columns_come_from_the_option_where_it_names_the_table() -> None:
    def keys(option: str) -> tuple[str, ...]:
        return key_columns(CUSTOMERS, settings(key_columns=option))

    assert keys("world.customers:email,id") == ("email", "id")
    assert keys(r"other.t:x; (.*)\.customers : name , NAME ;world.customers:id") == ("name", "id")
    assert keys("other.customers:name") == ("id",)
    assert keys("world.customers:nothing") == ("id",)
    with pytest.raises(ConfigInvalid, match="nonsense"):
        keys("nonsense")


def test_columns_of_any_key_are_decoded_as_they_are() -> None:
    """Snapshots and shards use the table's key, events the chosen one."""
    masks = {"column.mask.with.3.chars": r".*\.(name|email|card)"}
    keyed = table("t", text("name", 5, nullable=False), text("email", 5), text("card", 5), key=("name",))
    layout = make_layout(keyed, settings(masks, key_columns="world.t:email"), OPTIONS)
    assert [plan is not None and plan.transform is None for plan in layout.plans] == [True, True, False]
    assert [field.transform is None for field in layout.values] == [False, False, True]
    assert [field.schema.parameter("masked") for field in layout.values] == ["true"] * 3
    assert layout.key[0].schema.parameters == ()
    assert [plan.schema.parameters for plan in layout.plans[:2] if plan is not None] == [(), ()]
    transform = layout.values[0].transform
    assert transform is not None
    assert transform("x") == "***"
    assert layout.values[0].nulls


def test_a_mask_that_tells_values_apart_masks_the_key_too() -> None:
    masks = {"mask.rules": "m", "mask.m.columns": ".*id", "mask.m.type": "md5"}
    layout = of(masks)
    assert layout.key[0].schema.type is Type.STRING
    assert layout.key[0].transform is not None
    assert masked_by(layout.values[0].schema) == "m"
    assert layout.values[0].encoded
    assert layout.plans[0] is not None
    assert layout.plans[0].schema.type is Type.INT32
    with pytest.raises(ConfigInvalid, match="id"):
        of({**masks, "mask.m.type": "default"})


def test_masks_of_plain_columns_are_the_decoders() -> None:
    layout = of({"mask.rules": "m", "mask.m.columns": ".*email", "mask.m.type": "md5", "mask.m.nulls": "mask"})
    plan = layout.plans[2]
    assert plan is not None
    assert (plan.transform is not None, plan.nulls, plan.schema.parameter(MASKED)) == (True, True, "m")
    assert layout.values[2].schema is plan.schema
    assert layout.as_decoded
    assert layout.values[2].encoded


def test_what_debezium_takes_as_text() -> None:
    kinds = table(
        "kinds",
        number("i"),
        MySqlColumn(name="b", type=codes.BLOB, meta=2, collation=63),
        MySqlColumn(name="j", type=codes.JSON),
        text("v", 9),
        MySqlColumn(name="e", type=codes.ENUM, meta=1, members=("a",), collation=45, declared="enum('a')"),
    )
    layout = make_layout(kinds, settings({"column.mask.with.3.chars": ".*"}), OPTIONS)
    assert [plan is not None and plan.transform is not None for plan in layout.plans] == [
        False,
        False,
        False,
        True,
        True,
    ]
    layout = make_layout(kinds, settings({"column.truncate.to.9.chars": ".*"}), OPTIONS)
    assert layout.values[3].schema.parameter("truncateLength") is None


def test_source_types_are_chosen_by_column_and_by_type() -> None:
    name = "__debezium.source.column.type"
    layout = of(source_types=".*name", source_data_types=r"world\.customers\.DECIMAL")
    assert [field.schema.parameter(name) for field in layout.values] == [None, "VARCHAR", None, None, "DECIMAL"]
    assert layout.plans[4] is not None
    assert layout.plans[4].schema is layout.values[4].schema
    keyed = of(source_types=".*")
    assert keyed.values[0].schema.parameter(name) == "INT"
    assert keyed.key[0].schema.parameters == ()
    hashed = of({"column.mask.hash.SHA-256.with.salt.s": ".*email"}, source_types=".*")
    assert [field.schema.parameter("masked") for field in hashed.values] == [None, None, "true", None, None]
    assert hashed.plans[2] is not None
    assert hashed.plans[2].transform is not None


def test_two_columns_may_not_become_one_field() -> None:
    clashing = table("odd", number("a-b"), number("a.b"))
    with pytest.raises(ConfigInvalid, match=r"a-b, a\.b"):
        make_layout(clashing, settings(field_names="avro"), OPTIONS)
    assert [
        field.name for field in make_layout(clashing, settings(field_names="avro", not_columns=".*a-b"), OPTIONS).values
    ] == ["a_b"]
    assert not make_layout(clashing, settings(field_names="avro_unicode"), OPTIONS).as_decoded
