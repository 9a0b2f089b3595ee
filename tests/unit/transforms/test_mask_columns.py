from __future__ import annotations

from hashlib import md5
from typing import Any

import pytest

from connectors import schema as types
from connectors.api import SourceRecord
from connectors.errors import ConfigInvalid, Fatal
from connectors.formats import ums
from connectors.schema import Schema, struct
from worker.transforms.pipeline import build_pipeline

ROW = struct(
    "s.shop.customers.Value",
    {"id": types.INT32, "mail": types.OPTIONAL_STRING, "age": types.OPTIONAL_INT32},
    optional=True,
)
SOURCE = struct("io.debezium.connector.mysql.Source", {"db": types.STRING, "table": types.OPTIONAL_STRING})
ENVELOPE = struct(
    "s.shop.customers.Envelope", {"before": ROW, "after": ROW, "source": SOURCE, "op": types.STRING}, version=2
)
KEY = struct("s.shop.customers.Key", {"id": types.INT32})
MASKED = (("millrace.masked", "md5"),)


def digest(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def row(mail: str | None) -> dict[str, Any]:
    return {"id": 1, "mail": mail, "age": 30}


def event(before: Any, after: Any, *, table: str = "customers", schema: Schema | None = ENVELOPE) -> SourceRecord:
    value = {"before": before, "after": after, "source": {"db": "shop", "table": table}, "op": "u"}
    return SourceRecord({}, {}, "s.shop.customers", value, schema, {"id": 1}, KEY if schema else None)


def config(side: str = "Value", **options: str) -> dict[str, str]:
    return {
        "transforms": "m",
        "transforms.m.type": f"MaskColumns${side}",
        **{f"transforms.m.{name.replace('_', '.')}": value for name, value in options.items()},
    }


def apply(record: SourceRecord, side: str = "Value", **options: str) -> SourceRecord:
    result = build_pipeline(config(side, **options)).apply(record)
    assert result is not None
    return result


MAIL = {"columns": r"shop\.customers\.mail", "mask": "md5"}


def test_both_images_of_an_event_are_masked_and_the_schema_says_so() -> None:
    record = event(row("a"), row("b"))
    result = apply(record, **MAIL)
    assert result.value["before"] == {"id": 1, "mail": digest("a"), "age": 30}
    assert result.value["after"]["mail"] == digest("b")
    assert result.value["source"] == {"db": "shop", "table": "customers"}
    schema = result.value_schema
    assert schema is not None
    for image in ("before", "after"):
        field = schema.field(image)
        assert field is not None
        assert field.schema.optional
        assert field.schema.name == ROW.name
        mail = field.schema.field("mail")
        assert mail is not None
        assert mail.schema.parameters == MASKED
    assert (schema.name, schema.version) == (ENVELOPE.name, 2)
    assert record.value["after"]["mail"] == "b"  # what came in is as it was


def test_the_schema_object_stays_the_same_for_a_table_and_other_tables_pass() -> None:
    pipeline = build_pipeline(config(**MAIL))
    first, second = pipeline.apply(event(None, row("a"))), pipeline.apply(event(None, row("b")))
    assert first is not None
    assert second is not None
    assert first.value_schema is second.value_schema
    other = event(None, row("a"), table="orders")
    assert pipeline.apply(SourceRecord({}, {}, "t", other.value, ENVELOPE)).value is other.value  # type: ignore[union-attr]


def test_nulls_absent_images_and_tombstones_pass() -> None:
    assert apply(event(None, row(None)), **MAIL).value["after"]["mail"] is None
    assert apply(event(None, row(None)), **MAIL, nulls="mask").value["after"]["mail"] == digest("")
    record = SourceRecord({}, {}, "s.shop.customers", None, None, {"id": 1}, KEY)
    assert apply(record, **MAIL) is record


def test_salt_from_another_field_of_the_same_image() -> None:
    result = apply(event({**row("x"), "age": 1}, {**row("x"), "age": 2}), **MAIL, salt_field="age", salt_secret="s")
    assert result.value["before"]["mail"] == digest("s1x")
    assert result.value["after"]["mail"] == digest("s2x")


@pytest.mark.parametrize("columns", [r"shop\.customers\.mail", r"s\.shop\.customers\.mail", r".*\.mail"])
def test_plain_rows_go_by_their_topic(columns: str) -> None:
    record = SourceRecord({}, {}, "s.shop.customers", row("a"), ROW)
    assert apply(record, columns=columns, mask="md5").value == {"id": 1, "mail": digest("a"), "age": 30}


def test_schemaless_events_and_rows() -> None:
    assert apply(event(row("a"), row("b"), schema=None), **MAIL).value["after"]["mail"] == digest("b")
    result = apply(SourceRecord({}, {}, "s.shop.customers", {"mail": "a", "age": 5}), columns=".*", mask="default")
    assert (result.value, result.value_schema) == ({"mail": "", "age": 0}, None)


def test_keys() -> None:
    result = apply(event(None, row("a")), "Key", columns=r"shop\.customers\.id", mask="md5")
    assert result.key == {"id": digest("1")}
    assert result.key_schema is not None
    assert result.key_schema.fields[0].schema == Schema(types.Type.STRING, parameters=MASKED)
    with pytest.raises(Fatal, match="one key"):
        apply(event(None, row("a")), "Key", columns=r".*\.id", mask="default")


def ums_record(fields: list[dict[str, Any]], *rows: list[str | None]) -> SourceRecord:
    value = ums.make_message(ums.INCREMENT, "mysql.db.shop.customers.0.0.0", fields, rows)
    return SourceRecord({}, {}, "t", value, ums.MESSAGE, "k", types.STRING)


def test_ums_messages() -> None:
    fields = [
        ums.make_field("ums_id_", "long", nullable=False),
        ums.make_field("id", "int"),
        ums.make_field("born", "date"),
        ums.make_field("mail", "string"),
    ]
    record = ums_record(fields, ["9", "1", "1999-12-31", "a"], ["10", "2", None, None])
    result = apply(record, columns=r"shop\.customers\.(mail|born|ums_id_)", mask="default")
    assert result.value_schema is ums.MASKED_MESSAGE
    assert [(field["name"], field["type"], field["encoded"]) for field in result.value["schema"]["fields"]] == [
        ("ums_id_", "long", False),
        ("id", "int", False),
        ("born", "date", True),
        ("mail", "string", True),
    ]
    assert [row["tuple"] for row in result.value["payload"]] == [
        ["9", "1", "1970-01-01", ""],
        ["10", "2", None, None],
    ]
    hashed = apply(record, columns=r".*\.id", mask="md5", salt_field="mail")
    assert hashed.value["schema"]["fields"][1] == {"name": "id", "type": "string", "nullable": True, "encoded": True}
    assert [row["tuple"][1] for row in hashed.value["payload"]] == [digest("a1"), digest("2")]
    assert record.value["payload"][0]["tuple"][1] == "1"


def test_a_field_masked_before_stays_encoded() -> None:
    fields = [
        {**ums.make_field("mail", "string"), "encoded": True},
        {**ums.make_field("phone", "string"), "encoded": False},
    ]
    result = apply(ums_record(fields, ["x", "y"]), columns=r".*\.phone", mask="default")
    assert [field["encoded"] for field in result.value["schema"]["fields"]] == [True, True]


def test_wrong_rules_are_found_when_the_pipeline_is_made() -> None:
    with pytest.raises(ConfigInvalid, match="there is no type 'rot13'"):
        build_pipeline(config(columns="a", mask="rot13"))
    with pytest.raises(ConfigInvalid, match=r"Missing required configuration .*columns"):
        build_pipeline(config(mask="md5"))


def test_a_column_that_the_rule_cannot_mask_stops_the_task_and_is_not_let_through() -> None:
    with pytest.raises(Fatal, match=r"the replacement 'none' is no value of type int32"):
        apply(event(None, row("a")), columns=r".*\.age", mask="replace", replacement="none")
    with pytest.raises(Fatal, match=r"no field 'nosuch' for salt\.field"):
        apply(event(None, row("a")), **MAIL, salt_field="nosuch")


def test_values_that_are_no_structs_are_refused_rather_than_passed_on() -> None:
    for value, schema in (
        ("text", types.STRING),
        (b"x", None),
        ([1], types.array(types.INT32)),
        ({"mail": "a"}, types.map_of(types.STRING, types.STRING)),
    ):
        record = SourceRecord({}, {}, "s.shop.customers", value, schema)
        with pytest.raises(Fatal, match="not a struct with columns"):
            apply(record, columns=".*", mask="default")
