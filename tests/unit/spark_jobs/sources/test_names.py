"""Names of columns: any text that JSON can hold comes through the decoders as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Skippable
from connectors.schema import Field, Schema, Type
from spark_jobs.contract import SYSTEM_COLUMNS, Column, TableSchema
from spark_jobs.sources.layout import RecordLayout
from spark_jobs.sources.records.inference import TableSighting
from spark_jobs.sources.records.kinds import Rules, look_json
from spark_jobs.sources.records.reader import DecodePlan
from spark_jobs.sources.records.rows import TableDecoder
from spark_jobs.sources.records.search import Search
from spark_jobs.sources.ums import UmsDecoder
from spark_jobs.sources.ums_layout import layout_of
from tests.unit.spark_jobs.sources.support import Table, envelope_schema, member, message, records

UNUSUAL_NAMES = (
    'a"b',
    "a\\b",
    "a\tb",
    "a\nb",
    "a\x00b",
    "a\x1fb",
    "a`b",
    "a.b",
    "",
    "ä😀",
    "a'b",
    "a%sb",
    "A",
    "a",
    "c0",
    "m_op",
    "def",
)
NAMES = st.lists(
    st.one_of(st.sampled_from(UNUSUAL_NAMES), st.text(max_size=6)).filter(
        # Of flat rows, members such as __op say what has happened.
        lambda name: (
            name.lower() not in (*SYSTEM_COLUMNS, "id")
            and not name.startswith("__")
            and name.isascii() | name.isprintable()
        )
    ),
    min_size=1,
    max_size=5,
    unique=True,
)


def envelope(row: dict[str, Any], names: list[str], op: str = "c", before: dict[str, Any] | None = None) -> bytes:
    columns = [{"type": "int64", "optional": False, "field": "id"}, *(member(name, "string") for name in names)]
    source = {"db": "d", "table": "t", "ts_us": 5, "ums_id": 10}
    return message(envelope_schema(columns), {"before": before, "after": row, "op": op, "source": source})


@given(NAMES)
def test_an_envelope_with_a_schema(names: list[str]) -> None:
    row = {"id": 1, **{name: f"value of {number}" for number, name in enumerate(names)}}
    old = {name: value if name == "id" else "old" for name, value in row.items()}
    created, updated = envelope(row, names), envelope(row, names, "u", old)
    table = Table(created, before=True)
    rows = table.rows([created, updated, envelope({"id": 2}, names), b"garbage", updated])
    nulls = {"id": 2, **dict.fromkeys(names)}
    assert [{name: table_row[name] for name in row} for table_row in rows] == [row, old, row, nulls, old, row]
    assert not table.reported


@given(NAMES)
def test_the_key_of_a_row_comes_from_the_record_key(names: list[str]) -> None:
    deleted = envelope({}, names, "d")
    key = json.dumps(dict.fromkeys(names, "k"))
    table = Table(deleted, keys=tuple(names))
    (row,) = table.rows([deleted], [key.encode()])
    assert [row[name] for name in names] == ["k"] * len(names)
    assert not table.reported


@given(NAMES)
def test_members_of_structs(names: list[str]) -> None:
    columns = [
        {"type": "int64", "optional": False, "field": "id"},
        member("inner", "struct", fields=[member(name, "string") for name in names]),
    ]
    inner = {name: f"value of {number}" for number, name in enumerate(names)}
    event = message(envelope_schema(columns), {"after": {"id": 1, "inner": inner}, "op": "c", "source": {"table": "t"}})
    (row,) = Table(event).rows([event])
    assert row["inner"] == inner


@given(st.booleans(), NAMES)
def test_rows_without_a_schema(enveloped: bool, names: list[str]) -> None:
    row = {"id": 1, **{name: f"value of {number}" for number, name in enumerate(names)}}
    value = {"op": "c", "after": row, "source": {"db": "d", "table": "t"}} if enveloped else row
    bad: list[Any] = []
    search = Search({}, Rules(envelope=enveloped), lambda *record: bad.append(record))
    search.look(records([json.dumps(value).encode()], [b'{"id":1}']))
    (sighting,) = search.result().to_pylist()
    assert (bad, sighting["error"], json.loads(sighting["columns"]).keys()) == ([], "", row.keys())


@given(NAMES)
def test_ums(names: list[str]) -> None:
    fields = [("ums_id_", "long"), ("ums_ts_", "datetime"), ("ums_op_", "string"), ("id", "long")]
    schema = {
        "namespace": "mysql.i.d.t.1.0.0",
        "fields": [
            {"name": name, "type": kind, "nullable": True}
            for name, kind in [*fields, *((name, "string") for name in names)]
        ],
    }
    text = json.dumps(
        {
            "protocol": {"type": "data_increment_data"},
            "schema": schema,
            "payload": [
                {
                    "tuple": [
                        "1",
                        "2026-11-21 10:00:00.000",
                        "i",
                        "1",
                        *(f"value of {number}" for number in range(len(names))),
                    ]
                }
            ],
        }
    )
    raw = text[text.index('"schema": ') + 10 : text.index(', "payload"')].encode()
    layout = layout_of(raw)
    bad: list[Any] = []
    table = TableSchema(layout.namespace, layout.columns(["id"]))
    decoder = UmsDecoder(table, {raw: layout}, before=False, report=lambda *record: bad.append(record))
    (batch,) = decoder.decode(records([text.encode()]))
    (row,) = batch.to_pylist()
    assert [row[name] for name in names] == [f"value of {number}" for number in range(len(names))]
    assert not bad


def test_a_name_that_is_no_text_is_a_bad_record() -> None:
    broken = "a\ud800"  # half of a surrogate pair: JSON can write it, UTF-8 can't
    with pytest.raises(Skippable, match=r"a column 'a\\ud800', whose name is no valid text"):
        look_json(records([envelope({"id": 1}, [broken])], [b'{"id":1}']), Rules())
    with pytest.raises(Skippable, match="no valid text"):
        TableSighting("t", "d.t", {broken: Column("", None).type}).columns((), {})  # type: ignore[arg-type]  # the type does not matter


def test_ums_refuses_the_names_of_system_columns() -> None:
    fields = [{"name": name, "type": "string"} for name in ("ums_id_", "ums_ts_", "ums_op_", "Kafka_Offset_")]
    with pytest.raises(Skippable, match=r"mysql\.i\.d\.t\.1\.0\.0 has a column Kafka_Offset_"):
        layout_of(json.dumps({"namespace": "mysql.i.d.t.1.0.0", "fields": fields}).encode())


def test_members_that_say_what_happened_may_have_odd_names_too() -> None:
    from spark_jobs.sources.records.flat import Flat

    names = ('o"p', "t\\s", "n\tm")
    columns = (Field("id", Schema(Type.INT64, optional=True)), Field("n\tm", Schema(Type.STRING, optional=True)))
    layout = RecordLayout(
        False, columns, (), frozenset(names), flat=Flat(op=names[0], time=names[1], hidden=frozenset(names[:2]))
    )
    decoder = TableDecoder(
        DecodePlan(TableSchema("t", layout.columns(["id"])), {b"": layout}), lambda *_: pytest.fail("bad record")
    )
    value = json.dumps({"id": 1, names[0]: "delete", names[1]: 5, names[2]: "x"}).encode()
    ((row,),) = (batch.to_pylist() for batch in decoder.decode(records([value])))
    assert (row["ums_op_"], row["ums_ts_"].microsecond, row["n\tm"]) == ("d", 5000, "x")


def test_a_ums_value_that_does_not_fit_is_named() -> None:
    fields = {"ums_id_": "long", "ums_ts_": "datetime", "ums_op_": "string", "n": "int"}
    schema = {
        "namespace": "mysql.i.d.t.1.0.0",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    rows = [{"tuple": ["1", "2026-11-21 10:00:00.000", "i", value]} for value in ("1", "70000000000")]
    text = json.dumps({"protocol": {"type": "data_increment_data"}, "schema": schema, "payload": rows})
    raw = text[text.index('"schema": ') + 10 : text.index(', "payload"')].encode()
    layout = layout_of(raw)
    reported: list[str] = []
    decoder = UmsDecoder(
        TableSchema(layout.namespace, layout.columns([])),
        {raw: layout},
        before=False,
        report=lambda *record: reported.append(str(record[-1])),
    )
    assert list(decoder.decode(records([text.encode()]))) == []
    assert reported[0].startswith(
        'Table mysql.i.d.t.1.0.0, column n: the value "70000000000" does not fit the type int ('
    )
