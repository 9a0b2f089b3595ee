from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from connectors.errors import Fatal, Skippable
from connectors.options import Config
from connectors.schema import INT64, OPTIONAL_INT64, OPTIONAL_STRING, decimal, struct, timestamp
from spark_jobs.contract import Column
from spark_jobs.sources import ums
from spark_jobs.sources.avro.expressions import connect_schema, reader_text
from spark_jobs.sources.layout import envelope_layout, flat_layout
from spark_jobs.sources.records import inference
from spark_jobs.sources.records.flat import Flat, flat_of, op_of
from spark_jobs.sources.records.kinds import Rules
from spark_jobs.sources.records.reader import DecodePlan
from spark_jobs.sources.records.rows import TableDecoder
from spark_jobs.sources.records.search import Search
from spark_jobs.sources.tables import from_json, make_nullable, merge_schema, to_json
from spark_jobs.sources.types import find_wider_type, json_schema, spark_type, type_from_json, type_json, wider_inferred
from spark_jobs.sources.ums_layout import layout_of

KEY = Column("id", t.LongType(), nullable=False, key=True)
simple = st.sampled_from(
    [
        t.ByteType(),
        t.ShortType(),
        t.IntegerType(),
        t.LongType(),
        t.FloatType(),
        t.DoubleType(),
        t.StringType(),
        t.BooleanType(),
        t.DateType(),
        t.TimestampType(),
        t.BinaryType(),
        t.DecimalType(38, 2),
        t.DecimalType(38, 9),
    ]
)
kinds = st.recursive(
    simple,
    lambda inner: st.one_of(
        inner.map(t.ArrayType),
        inner.map(lambda kind: t.MapType(t.StringType(), kind)),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(
            lambda fields: t.StructType([t.StructField(name, kind) for name, kind in fields.items()])
        ),
    ),
    max_leaves=4,
)


@given(kinds, kinds)
def test_widening_is_the_same_from_both_sides_and_holds_both(first: t.DataType, second: t.DataType) -> None:
    both = find_wider_type(first, second)
    turned = find_wider_type(second, first)
    assert (both is None) == (turned is None)
    if both is not None:
        assert find_wider_type(both, first) is not None
        assert find_wider_type(both, second) is not None


@given(kinds)
def test_types_survive_the_file_of_schemas(kind: t.DataType) -> None:
    assert type_from_json(json.loads(json.dumps(type_json(kind)))) == kind
    schema = merge_schema(None, "a.b", [KEY, Column("c", kind, length=3)], "")
    assert from_json(to_json({"a.b": schema}, {"samples": {}})) == ({"a.b": schema}, {"samples": {}})


@given(
    st.sampled_from([t.LongType(), t.DoubleType(), t.BooleanType(), t.StringType(), t.DecimalType(38, 0)]),
    st.sampled_from([t.LongType(), t.DoubleType(), t.BooleanType(), t.StringType(), t.DecimalType(38, 0)]),
)
def test_inferred_types_always_have_a_common_one(first: t.DataType, second: t.DataType) -> None:
    both = wider_inferred(first, second)
    assert both == wider_inferred(second, first)
    assert wider_inferred(both, first) == both == wider_inferred(both, second)


def test_a_table_keeps_dropped_columns_and_takes_new_ones() -> None:
    first = merge_schema(None, "d.t", [KEY, Column("old", t.StringType(), nullable=False)], "")
    columns = [KEY, Column("new", t.IntegerType())]
    second = make_nullable(merge_schema(first, "d.t", columns, ""), columns)
    assert [(column.name, column.nullable) for column in second.columns] == [
        ("id", False),
        ("old", True),
        ("new", True),
    ]
    assert merge_schema(second, "d.t", columns, "") is second


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([Column("id", t.StringType(), nullable=False, key=True)], "its type was bigint and is string now"),
        ([KEY, Column("n", t.LongType(), nullable=False, key=True)], r"its key was \(id\) and is \(id, n\)"),
    ],
)
def test_a_change_that_no_schema_covers_says_what_to_do(columns: list[Column], words: str) -> None:
    with pytest.raises(Fatal, match=words):
        merge_schema(merge_schema(None, "d.t", [KEY], ""), "d.t", columns, "(kept in x)")


def test_avro_of_other_producers_keeps_its_times_and_decimals() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "a", "type": {"type": "long", "logicalType": "timestamp-micros"}},
                {
                    "name": "b",
                    "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 3}],
                },
                {"name": "c", "type": {"type": "int", "logicalType": "date"}},
            ],
        }
    )
    schema = connect_schema(text)
    assert schema is not None
    assert [spark_type(field.schema) for field in schema.fields] == [
        t.TimestampType(),
        t.DecimalType(38, 3),
        t.DateType(),
    ]
    bare = json.loads(reader_text(text))["fields"]
    assert bare[0]["type"] == {"type": "long"}
    assert bare[1]["type"][1]["precision"] == 38


def test_a_scale_that_spark_lacks_is_refused() -> None:
    with pytest.raises(Skippable, match=r"decimal\.handling\.mode"):
        spark_type(decimal(40))


def test_layouts_refuse_what_they_can_not_read() -> None:
    with pytest.raises(Skippable, match=r"source\.format=plain"):
        envelope_layout(struct("r", {"id": INT64}), None)
    with pytest.raises(Skippable, match="not a struct"):
        flat_layout(INT64, None, Config({}, {}))
    layout = flat_layout(struct("r", {"id": INT64, "kafka_topic_": OPTIONAL_STRING}), None, Config({}, {}))
    with pytest.raises(Skippable, match="system column"):
        layout.columns(("id",))


def test_how_flat_rows_say_what_happened() -> None:
    rule = flat_of({"id", "__op", "__deleted", "__source_ts_us", "name"}, Config({}, {}))
    assert rule == Flat(
        "__op", "__deleted", "__source_ts_us", "", 1, 1, frozenset({"__op", "__deleted", "__source_ts_us"})
    )
    assert (
        flat_of({"id", "kind", "n"}, Config({"source.op.field": "kind", "source.order.field": "n"}, {})).hidden
        == frozenset()
    )
    with pytest.raises(Skippable, match="no such member"):
        flat_of({"id"}, Config({"source.op.field": "kind"}, {}))
    assert [op_of(*pair) for pair in (("INSERT", None), ("u", "false"), ("u", "true"), (None, True), (None, None))] == [
        "i",
        "u",
        "d",
        "d",
        "i",
    ]
    with pytest.raises(Skippable, match="'merge'"):
        op_of("merge", None)


def test_the_unit_of_a_time_is_that_of_its_logical_type() -> None:
    layout = flat_layout(
        struct("r", {"id": INT64, "at": timestamp()}),
        None,
        Config({"source.time.field": "at", "source.timestamp.unit": "ns"}, {}),
    )
    assert layout.flat is not None
    assert (layout.flat.up, layout.flat.down) == (1000, 1)
    bare = flat_layout(
        struct("r", {"id": INT64, "at": OPTIONAL_INT64}),
        None,
        Config({"source.time.field": "at", "source.timestamp.unit": "ns"}, {}),
    )
    assert bare.flat is not None
    assert (bare.flat.up, bare.flat.down) == (1, 1000)


def _batch(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["t"] * count),
            pa.array([0] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array([0] * count, pa.timestamp("us", tz="UTC")),
            pa.array(keys or [None] * count, pa.binary()),
            pa.array(values, pa.binary()),
        ],
        names=["topic", "partition", "offset", "timestamp", "key", "value"],
    )


def _search(
    values: list[bytes | None],
    known_tables: dict[str, dict[str, t.DataType]] | None = None,
    keys: list[bytes | None] | None = None,
) -> tuple[list[inference.TableSighting], list[int]]:
    bad: list[int] = []
    search = Search(known_tables or {}, Rules(envelope=False), lambda _t, _p, offset, _k, _v, _e: bad.append(offset))
    search.look(_batch(values, keys))
    return [inference.TableSighting.from_row(row) for row in search.result().to_pylist()], bad


def test_types_that_values_show() -> None:
    sightings, bad = _search(
        [
            b'{"id":1,"n":1,"x":null,"s":"a","b":true,"o":{"z":1}}',
            b'{"id":2,"n":1.5,"s":1,"b":false,"big":99999999999999999999}',
            b"nonsense",
            b"[1]",
        ],
        keys=[b'{"id":1}'] * 4,
    )
    assert bad == [2, 3]
    types = sightings[0].types
    assert types == {
        "id": t.LongType(),
        "n": t.DoubleType(),
        "s": t.StringType(),
        "b": t.BooleanType(),
        "o": t.StringType(),
        "big": t.DecimalType(38, 0),
    }
    assert sightings[0].keys == ("id",)


def test_what_is_known_only_widens_and_declared_types_stay() -> None:
    sightings, _ = _search(
        [b'{"n":1,"d":"2024-01-01"}'], {"t": {"n": t.DoubleType(), "d": t.DateType(), "old": t.StringType()}}
    )
    assert sightings[0].types == {"n": t.DoubleType(), "d": t.DateType(), "old": t.StringType()}


def test_columns_of_json_without_a_schema() -> None:
    seen = inference.TableSighting("t", "t", {"b": t.LongType(), "a": t.StringType()}, ("a",))
    assert [(column.name, column.key) for column in seen.columns(("a",), {"c": t.DateType()})] == [
        ("a", True),
        ("c", False),
        ("b", False),
    ]
    with pytest.raises(Skippable, match="no record has its key column z"):
        seen.columns(("z",), {})


def test_declared_types_are_read_from_text_and_numbers() -> None:
    columns = [
        ("d", t.DateType()),
        ("at", t.TimestampType()),
        ("p", t.DecimalType(38, 2)),
        ("x", t.StringType()),
        ("l", t.ArrayType(t.DateType())),
    ]
    schema = merge_schema(None, "t", [Column(name, kind) for name, kind in columns], "")
    from connectors.schema import Field
    from spark_jobs.sources.layout import RecordLayout

    layout = RecordLayout(
        False, tuple(Field(name, json_schema(kind)) for name, kind in columns), (), frozenset(), flat=Flat()
    )
    bad: list[Any] = []
    decoder = TableDecoder(DecodePlan(schema, {b"": layout}), lambda *record: bad.append(record))
    rows = [
        row
        for batch in decoder.decode(
            _batch(
                [
                    b'{"d":1,"at":1,"p":1.25,"x":{"a":[1,2]},"l":["1970-01-02",3]}',
                    b'{"d":"1970-01-02","at":"1970-01-01T00:00:00.001Z","p":"1.25","x":"s"}',
                    b'{"p":"no number"}',
                ]
            )
        )
        for row in batch.to_pylist()
    ]
    assert [(str(row["d"]), row["at"].microsecond, str(row["p"]), row["x"]) for row in rows] == [
        ("1970-01-02", 1000, "1.25", '{"a":[1,2]}'),
        ("1970-01-02", 1000, "1.25", "s"),
    ]
    assert [str(day) for day in rows[0]["l"]] == ["1970-01-02", "1970-01-04"]
    assert [record[2] for record in bad] == [2]


FIELDS = [
    {"name": name, "type": kind, "nullable": True}
    for name, kind in (
        ("ums_id_", "long"),
        ("ums_ts_", "datetime"),
        ("ums_op_", "string"),
        ("ums_uid_", "string"),
        ("id", "long"),
        ("price", "decimal"),
        ("day", "date"),
        ("raw", "binary"),
        ("ok", "boolean"),
    )
]


def _ums(
    rows: list[list[str | None]], version: str = "1", protocol: str = "data_increment_data", fields: Any = None
) -> bytes:
    return json.dumps(
        {
            "protocol": {"type": protocol},
            "schema": {"namespace": f"mysql.a.shop.orders.{version}.0.0", "fields": fields or FIELDS},
            "payload": [{"tuple": row} for row in rows],
        }
    ).encode()


def _row(number: int, op: str = "i", **more: str | None) -> list[str | None]:
    values: dict[str, str | None] = {
        "ums_id_": str(number),
        "ums_ts_": "2024-01-01 00:00:00.000001",
        "ums_op_": op,
        "ums_uid_": f"u{number}",
        "id": str(number),
        "price": "-1.5",
        "day": "1969-12-31",
        "raw": "AP8=",
        "ok": "true",
        **more,
    }
    return list(values.values())


def _decode_ums(
    values: list[bytes | None], *, before: bool = False
) -> tuple[list[dict[str, Any]], list[int], dict[tuple[str, bytes], int]]:
    counts: dict[tuple[str, bytes], int] = {}
    bad: list[int] = []

    def report(_t: str, _p: int, offset: int, _k: bytes | None, _v: bytes | None, _e: Exception) -> None:
        bad.append(offset)

    ums.count_messages(_batch(values), counts, report)
    layouts = {schema: layout_of(schema) for _, schema in counts if schema}
    schema = None
    for layout in layouts.values():
        schema = merge_schema(schema, layout.namespace, layout.columns(["id"]), "")
    assert schema is not None
    decoder = ums.UmsDecoder(schema, layouts, before=before, report=report)
    return [row for batch in decoder.decode(_batch(values)) for row in batch.to_pylist()], bad, counts


def test_ums_of_an_old_dbus_has_no_uid() -> None:
    fields = [field for field in FIELDS if field["name"] != "ums_uid_"]
    old = [_row(number)[:3] + _row(number)[4:] for number in (1, 2)]
    rows, bad, _ = _decode_ums([_ums(old, fields=fields), _ums([_row(3)])])
    assert bad == []
    assert [row["ums_id_"] for row in rows] == [1, 2, 3]
    assert len({row["ums_uid_"] for row in rows}) == 3
    assert rows[1]["ums_uid_"].endswith("-0.1")
    assert rows[2]["ums_uid_"] == "u3"


def test_ums_messages_without_rows_are_counted_and_others_refused() -> None:
    kinds = ["data_increment_termination", "data_batch_termination", "directive_flow_start"]
    beats = [_ums([["2024-01-01 00:00:00.0"]], protocol=kind, fields=[FIELDS[1]]) for kind in kinds]
    _, bad, counts = _decode_ums([*beats, _ums([_row(1)], protocol="data_batch_data")])
    assert bad == [2]
    assert {kind: count for (kind, _), count in counts.items()} == dict.fromkeys([*kinds[:2], "data_batch_data"], 1)


def test_ums_rows_heartbeats_and_bad_messages() -> None:
    beat = _ums([["2024-01-01 00:00:00.0"]], protocol="data_increment_heartbeat", fields=[FIELDS[1]])
    rows, bad, counts = _decode_ums(
        [
            _ums([_row(1), _row(2, "b"), _row(3, "u")]),
            beat,
            b"{}",
            _ums([_row(4, id=None)]),
            _ums([_row(5, price="x")]),
            _ums([_row(6, "z")]),
            _ums([_row(7)[:-1]]),
            _ums([]),
            _ums([_row(8)]),
        ]
    )
    assert [row["ums_id_"] for row in rows] == [1, 3, 8]
    assert bad == [2, 3, 4, 5, 6]
    assert counts["data_increment_heartbeat", b""] == 1
    first = rows[0]
    assert (str(first["price"]), str(first["day"]), first["raw"], first["ok"], first["ums_uid_"]) == (
        "-1.500000000000000000",
        "1969-12-31",
        b"\x00\xff",
        True,
        "u1",
    )
    assert first["ums_ts_"].microsecond == 1


def test_ums_rows_before_an_update_by_option() -> None:
    rows, _, _ = _decode_ums([_ums([_row(1), _row(2, "b"), _row(2, "u")])], before=True)
    assert [row["ums_op_"] for row in rows] == ["i", "b", "u"]


def test_ums_versions_of_a_table_are_one() -> None:
    wide = [*FIELDS, {"name": "note", "type": "string", "nullable": True}]
    rows, bad, _ = _decode_ums([_ums([_row(1)]), _ums([[*_row(2), "new"]], "2", fields=wide), _ums([_row(3)])])
    assert [(row["id"], row["note"]) for row in rows] == [(1, None), (2, "new"), (3, None)]
    assert bad == []


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (b"1", "no UMS schema"),
        (json.dumps({"namespace": "a.b", "fields": []}).encode(), "seven parts"),
        (
            json.dumps({"namespace": "a.b.c.d.1.0.0", "fields": [{"name": "x", "type": "blob"}]}).encode(),
            "'blob' is unknown",
        ),
        (
            json.dumps({"namespace": "a.b.c.d.1.0.0", "fields": [{"name": "x", "type": "int"}]}).encode(),
            "lacks the system fields",
        ),
    ],
)
def test_ums_schemas_that_are_none(schema: bytes, words: str) -> None:
    with pytest.raises(Skippable, match=words):
        layout_of(schema)
