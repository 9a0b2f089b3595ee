"""The forms of input and output: keys in clustering order, every CQL type, the output's forms, Debezium and UMS as input."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.cql.types import CqlType, parse_type
from connectors.errors import Fatal, Skippable
from connectors.formats import timeuuid, ums
from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateDeletion, UpdateRow
from connectors.schema import INT64, OPTIONAL_STRING, STRING, decimal, struct
from spark_jobs.materializer.contract import InputRecord
from spark_jobs.materializer.decoding.versions import AVRO
from spark_jobs.materializer.engine.keys import clustering_encoder, end_of_prefix, order_encoder
from spark_jobs.reports.met_heartbeats import MetHeartbeat
from tests.support.materializer import KEY, PLAIN, Bench, Column, MemoryRegistry, Written, source
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.read import avro_reader
from worker.converters.avro_form.schema import avro_text
from worker.converters.json import JsonConverter

_strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.text("\x00\x01ab", max_size=4)
_decimals = st.decimals(-1000, 1000, allow_nan=False, places=3).map(str)
_varints = st.integers(-(1 << 70), 1 << 70) | st.integers(-300, 300)
ORDERED: dict[str, tuple[Any, Any]] = {
    "text": (_strings, str.encode),
    "blob": (st.binary(max_size=4), None),
    "int": (st.integers(-(1 << 31), (1 << 31) - 1), None),
    "tinyint": (st.integers(-128, 127), None),
    "smallint": (st.integers(-(1 << 15), (1 << 15) - 1), None),
    "bigint": (st.integers(-(1 << 63), (1 << 63) - 1), None),
    "date": (st.integers(-(1 << 31), (1 << 31) - 1), None),
    "timestamp": (st.integers(-(1 << 63), (1 << 63) - 1), None),
    "boolean": (st.booleans(), None),
    "double": (st.floats(allow_nan=False).filter(lambda value: value != 0), None),
    "float": (st.floats(allow_nan=False, width=32).filter(lambda value: value != 0), None),
    "varint": (_varints.map(str), int),
    "decimal": (_decimals, float),
    "timeuuid": (
        st.builds(
            lambda micro, low: timeuuid.format_uuid(timeuuid.make_uuid(micro, low)),
            st.integers(0, 1 << 50),
            st.integers(0, (1 << 64) - 1),
        ),
        timeuuid.order_key,
    ),
    "list<int>": (st.lists(st.integers(-2, 2), max_size=3), None),
    "set<text>": (st.lists(st.text("ab", max_size=2), max_size=3), None),
}


@pytest.mark.parametrize("text", ORDERED)
@given(st.data())
@settings(max_examples=50, deadline=None)
def test_keys_sort_as_values(text: str, data: st.DataObject) -> None:
    strategy, order = ORDERED[text]
    first, second = data.draw(strategy), data.draw(strategy)
    encode = order_encoder(parse_type(f"frozen<{text}>") if "<" in text else parse_type(text))
    left, right = (first, second) if order is None else (order(first), order(second))
    assert (encode(first) < encode(second)) == (left < right)
    assert (encode(first) == encode(second)) == (left == right)
    assert encode(first) == encode(second) or not encode(first).startswith(encode(second))
    down = clustering_encoder([(parse_type(text) if "<" not in text else parse_type(f"frozen<{text}>"), True)])
    assert (down([first]) < down([second])) == (left > right)


@given(st.lists(st.tuples(_strings, st.integers(-2, 2)), min_size=2, max_size=2))
def test_keys_of_several_columns(pair: list[tuple[str, int]]) -> None:
    encode = clustering_encoder([(parse_type("text"), False), (parse_type("int"), True)])
    first, second = ((name.encode(), -number) for name, number in pair)
    assert (encode(pair[0]) < encode(pair[1])) == (first < second)
    behind = end_of_prefix(encode(pair[0][:1]))
    assert behind is not None
    assert encode(pair[0][:1]) <= encode(pair[0]) < behind


def test_special_orders() -> None:
    doubles = [float("-inf"), -1.5, -0.0, 0.0, 1e-300, 2.0, float("inf"), float("nan")]
    encoded = list(map(order_encoder(parse_type("double")), doubles))
    assert encoded == sorted(encoded)
    assert order_encoder(parse_type("decimal"))("1.0") == order_encoder(parse_type("decimal"))("1.00")
    assert order_encoder(parse_type("decimal"))("0") == order_encoder(parse_type("decimal"))("-0.0")
    addresses = ["10.0.0.1", "10.0.0.2", "127.0.0.1"]
    assert sorted(addresses, key=order_encoder(parse_type("inet"))) == addresses
    pair = CqlType("tuple", (parse_type("int"), parse_type("text")), frozen=True)
    values = [{"field_0": None, "field_1": "b"}, {"field_0": 1, "field_1": None}, {"field_0": 1, "field_1": "a"}]
    assert sorted(values, key=order_encoder(pair)) == values
    assert end_of_prefix(b"a\xff") == b"b"
    assert end_of_prefix(b"\xff") is None


def test_a_key_stays_the_same_when_its_type_gets_a_field() -> None:
    text = parse_type("text")
    older = CqlType("udt", (text, text), frozen=True, keyspace="k", udt_name="u", field_names=("a", "b"))
    newer = dataclasses.replace(older, arguments=(text, text, text), field_names=("a", "b", "c"))
    values: list[dict[str, Any]] = [
        {"a": None, "b": None},
        {"a": None, "b": ""},
        {"a": None, "b": "b"},
        {"a": "", "b": None},
        {"a": "a", "b": None},
        {"a": "a", "b": "b"},
    ]
    before, after = ([order_encoder(kind)(value) for value in values] for kind in (older, newer))
    assert before == after == sorted(before)
    with_new = order_encoder(newer)({"a": "a", "b": None, "c": "c"})
    assert before[4] < with_new < before[5]
    assert not with_new.startswith(before[4])


TYPES: dict[str, tuple[Any, Any]] = {
    "ascii": ("a", "a"),
    "bigint": (1 << 62, 1 << 62),
    "blob": (b"\x00\xff", "AP8="),
    "boolean": (False, False),
    "date": (-5, -5),
    "decimal": ("1.50", "1.50"),
    "double": (float("nan"), "NaN"),
    "duration": ("1mo2d", "1mo2d"),
    "float": (0.1, 0.1),
    "inet": ("10.0.0.1", "10.0.0.1"),
    "int": (-1, -1),
    "smallint": (3, 3),
    "text": ("é%d", "é%d"),
    "time": (5, 5),
    "timestamp": (7, 7),
    "timeuuid": ("50554d6e-29bb-11e5-b345-feff819cdc9f",) * 2,
    "tinyint": (1, 1),
    "uuid": ("50554d6e-29bb-41e5-b345-feff819cdc9f",) * 2,
    "varchar": ("", ""),
    "varint": ("1" * 40,) * 2,
    "frozen<list<blob>>": ([b"a", b""], ["YQ==", ""]),
    "frozen<set<int>>": ([], []),
    "frozen<map<text, double>>": ([{"key": "a", "value": 1.5}],) * 2,
    "tuple<int, text>": ({"field_0": 1, "field_1": None},) * 2,
    "vector<float, 2>": ([1.0, 2.5], [1.0, 2.5]),
}


@pytest.mark.parametrize("output", ["json", "json-schemas", "avro"])
@pytest.mark.parametrize("avro", [False, True], ids=["from json", "from avro"])
def test_every_type(avro: bool, output: str) -> None:
    columns = [KEY, *(Column(f"c{index}", parse_type(text), "regular") for index, text in enumerate(TYPES))]
    registry = MemoryRegistry()
    written = Written(columns, registry if avro else None)
    bench = Bench(
        registry=registry,
        input_encoding="avro" if avro else "json",
        input_schemas=(written.text,),
        output_encoding=output,
    )
    stamp = CellStamp(100)
    cells = tuple(Cell(f"c{index}", None, value, stamp) for index, (value, _) in enumerate(TYPES.values()))
    emit: list[Any] = []
    for time in (100, 100, 101):  # the second is a repetition, the third changes nothing that can be seen
        row = UpdateRow((), CellStamp(time), None, tuple(cell._replace(stamp=CellStamp(time)) for cell in cells))
        update = PartitionUpdate(source=source(), key=("a",), write_time=time, rows=(row,))
        bench.engine.apply(written.record(update), bench.store, emit)
    bench.engine.apply(
        written.record(PartitionUpdate(source=source(), key=("a",), write_time=102, deletion=UpdateDeletion(102, 0))),
        bench.store,
        emit,
    )
    assert len(emit) == 3
    expected = {"pk": "a", **{f"c{index}": shown for index, (_, shown) in enumerate(TYPES.values())}}
    for (key, value, *_), image in zip(emit, ("after", "before"), strict=False):
        event = decoded(value, output, registry)
        if output == "avro":
            event[image] = {name: in_json(cell) for name, cell in event[image].items()}
        assert event[image] == expected
        assert decoded(key, output, registry) == {"pk": "a"}


def decoded(data: bytes, encoding: str, registry: MemoryRegistry) -> Any:
    if encoding == "avro":
        return avro_reader(registry.text(int.from_bytes(data[1:5], "big")), AVRO).decode(data[5:])
    value = json.loads(data)
    if encoding == "json-schemas":
        JsonConverter({"schemas.enable": "true"}).to_connect("t", data)  # its schema fits
        return value["payload"]
    return value


def in_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [in_json(item) for item in value]
    if isinstance(value, float):
        return "NaN" if value != value else round(value, 6)  # noqa: PLR0124
    return value


def three(form: str, encoding: str) -> tuple[list[Any], list[Any], MemoryRegistry]:
    """Values and keys of a CREATE, an UPDATE and a DELETE."""
    registry = MemoryRegistry()
    written = Written(PLAIN)
    bench = Bench(
        registry=registry,
        input_schemas=(written.text,),
        output_format=form,
        output_encoding=encoding,
        tombstones_on_delete=False,
    )
    bench.now_s = 2
    emit: list[Any] = []
    for time, value in ((1_000_000, "x"), (1_000_001, "y")):
        row = UpdateRow((), CellStamp(time), None, (Cell("v", None, value, CellStamp(time)),))
        update = PartitionUpdate(source=source(), key=("a",), write_time=time, rows=(row,))
        bench.engine.apply(written.record(update), bench.store, emit)
    bench.engine.apply(
        written.record(
            PartitionUpdate(source=source(), key=("a",), write_time=1_000_002, deletion=UpdateDeletion(1_000_002, 1))
        ),
        bench.store,
        emit,
    )
    return ([decoded(output.value, encoding, registry) for output in emit], [output.key for output in emit], registry)


@pytest.mark.parametrize("encoding", ["json", "json-schemas", "avro"])
def test_debezium(encoding: str) -> None:
    values, keys, registry = three("debezium", encoding)
    x, y = {"pk": "a", "n": None, "v": "x"}, {"pk": "a", "n": None, "v": "y"}
    assert [(value["op"], value["before"], value["after"]) for value in values] == [
        ("c", None, x),
        ("u", x, y),
        ("d", y, None),
    ]
    assert [value["source"]["ums_id"] for value in values] == [2_000_000, 2_000_001, 2_000_002]
    assert len(set(keys)) == 1
    if encoding == "avro":
        assert [subject for subject, _ in registry.subjects] == ["out-value", "out-key"]
        fields = {field["name"]: field for field in json.loads(registry.text(1))["fields"][0]["type"][1]["fields"]}
        assert fields["pk"]["type"] == {"type": "string", "connect.parameters": {"cql.type": "text"}}
        assert fields["v"]["type"][0] == "null"


@pytest.mark.parametrize("encoding", ["json", "json-schemas", "avro"])
def test_yelp(encoding: str) -> None:
    values, _, _ = three("yelp", encoding)
    x, y = {"pk": "a", "n": None, "v": "x"}, {"pk": "a", "n": None, "v": "y"}
    assert [(value["message_type"], value["previous_payload"], value["payload"]) for value in values] == [
        ("create", None, x),
        ("update", x, y),
        ("delete", None, y),
    ]
    assert {(value["topic"], value["keys"]["pk"], value["timestamp"]) for value in values} == {("out", "a", 1)}
    assert len({value["uuid"] for value in values}) == 3


@pytest.mark.parametrize("encoding", ["json", "json-schemas", "avro"])
def test_ums(encoding: str) -> None:
    values, keys, _ = three("ums", encoding)
    assert [[row["tuple"][2:3] + row["tuple"][4:] for row in value["payload"]] for value in values] == [
        [["i", "a", None, "x"]],
        [["b", "a", None, "x"], ["u", "a", None, "y"]],
        [["d", "a", None, "y"]],
    ]
    assert set(keys) == {b'data_increment_data.cassandra.job.ks.t.9.0.0...{"pk":"a"}'}
    assert [field["name"] for field in values[0]["schema"]["fields"]][4:] == ["pk", "n", "v"]
    tuples = [row["tuple"] for value in values for row in value["payload"]]
    assert [row[0] for row in tuples] == sorted(row[0] for row in tuples)
    assert len({row[3] for row in tuples}) == len(tuples)


# Debezium and UMS as input


def change(operation: str, before: Any, after_: Any, **where: Any) -> dict[str, Any]:
    return {
        "op": operation,
        "before": before,
        "after": after_,
        "ts_ms": 5,
        "source": {
            "connector": "mysql",
            "name": "db1",
            "db": "shop",
            "table": "orders",
            "ts_ms": 4,
            "snapshot": "false",
            **where,
        },
    }


ROW = struct("orders.Value", {"id": INT64, "name": OPTIONAL_STRING, "sum": decimal(2, optional=True)}, optional=True)
SOURCE_SCHEMA = struct(
    "orders.Source",
    {
        "connector": STRING,
        "name": STRING,
        "db": STRING,
        "table": STRING,
        "ts_ms": INT64,
        "snapshot": STRING,
        "file": STRING,
        "pos": INT64,
    },
)
ENVELOPE = struct(
    "orders.Envelope", {"before": ROW, "after": ROW, "source": SOURCE_SCHEMA, "op": STRING, "ts_ms": INT64}
)
ORDER_KEY = struct("orders.Key", {"id": INT64})


@pytest.mark.parametrize(
    ("way", "output"), [("json", "json"), *itertools.product(("enveloped", "avro"), ("json", "json-schemas", "avro"))]
)
def test_debezium_in_any_order_of_arrival(way: str, output: str) -> None:
    first, second, third = (
        {"id": 1, "name": name, "sum": Decimal(text)} for name, text in (("a", "1.50"), ("b", "2.00"), ("c", "0.01"))
    )
    events = [
        change("c", None, first, file="bin.000001", pos=10),
        change("u", first, second, file="bin.000001", pos=20),
        change("u", second, third, file="bin.000002", pos=4),
        change("d", third, None, file="bin.000002", pos=9),
    ]
    registry = MemoryRegistry()
    if way == "avro":
        numbers = [
            registry.register("t", avro_text(schema, AVRO)).to_bytes(4, "big") for schema in (ORDER_KEY, ENVELOPE)
        ]
        key, value = (
            compile_avro(schema, AVRO, b"\x00" + number)
            for schema, number in zip((ORDER_KEY, ENVELOPE), numbers, strict=True)
        )
    else:
        converter = JsonConverter(
            {"schemas.enable": "true" if way == "enveloped" else "false", "decimal.format": "NUMERIC"}
        )
        key, value = converter.encoder("t", ORDER_KEY), converter.encoder("t", ENVELOPE)
    records = [InputRecord(key({"id": 1}), value(event), offset, 3) for offset, event in enumerate(events)]
    for order, shown in (([0, 1, 1, 2, 3], "cuud"), ([2, 0, 1], "c"), ([3, 2, 1, 0], ""), ([1, 3, 0, 2], "cd")):
        bench = Bench(
            registry=registry,
            input_format="debezium",
            input_encoding="avro" if way == "avro" else "json",
            output_encoding=output,
            tombstones_on_delete=False,
        )
        emit: list[Any] = []
        for index in order:
            bench.engine.apply(records[index], bench.store, emit)
            bench.restart()
        bench.engine.apply(InputRecord(records[0].key, None, 9, 0), bench.store, emit)
        decoded_events = [decoded(record.value, output, registry) for record in emit]
        assert "".join(event["op"] for event in decoded_events) == shown
        if order == [2, 0, 1]:
            after_ = decoded_events[0]["after"]
            expected_sum = {"avro": Decimal("0.01")}.get(
                output, 0.01 if way == "json" else base64.b64encode(b"\x01").decode()
            )
            assert (after_["id"], after_["name"], after_["sum"]) == (1, "c", expected_sum)
            assert [row.values["name"] for row in bench.engine.rows(bench.store)] == ["c"]
            replayed: list[Any] = []
            assert bench.engine.replay(bench.store, replayed) is None
            assert [decoded(record.value, output, registry)["after"] for record in replayed] == [after_]


@pytest.mark.parametrize("unchanged", [False, True])
def test_of_changes_with_one_position_the_later_stands_and_repetitions_give_no_event(unchanged: bool) -> None:
    rows = [{"id": 1, "name": name, "sum": None} for name in "ab"]
    bench = Bench(input_format="debezium", key_columns=("id",), tombstones_on_delete=False, emit_unchanged=unchanged)
    tied: dict[str, Any] = {"file": "bin.000001", "pos": 10, "row": 9}
    events = [
        change("c", None, rows[0], **tied),
        change("u", *rows, **tied),
        change("u", *rows, **tied),
        change("d", rows[1], None, **tied),
        change("d", rows[1], None, **tied),
        change("u", *rows, **{**tied, "row": 8}),
        change("c", None, rows[1], file="bin.000001", pos=5_000_000_000),
    ]
    for offset, event in enumerate(events):
        bench.apply(InputRecord(b"", json.dumps(event).encode(), offset, 0))
    assert "".join(event["op"] for event in bench.events) == "cudc"
    assert bench.rows == {b'{"id":1}': rows[1]}


@pytest.mark.parametrize("before", [None, {"id": 2}], ids=["no image", "the key alone"])
def test_a_delete_without_a_whole_image_drops_no_column(before: Any) -> None:
    bench = Bench(input_format="debezium")
    changes = [
        (1, change("c", None, {"id": 1, "name": "a"})),
        (2, change("c", None, {"id": 2, "name": "b"})),
        (2, change("d", before, None)),
        (1, change("u", None, {"id": 1, "name": "c"})),
    ]
    for offset, (number, event) in enumerate(changes):
        bench.apply(InputRecord(json.dumps({"id": number}).encode(), json.dumps(event).encode(), offset, 0))
    assert [(event["op"], event["before"], event["after"]) for event in bench.events[2:]] == [
        ("d", {"id": 2, "name": "b"}, None),
        ("u", {"id": 1, "name": "a"}, {"id": 1, "name": "c"}),
    ]


def test_a_column_that_was_dropped_and_added_again_is_shown() -> None:
    bench = Bench(input_format="debezium", tombstones_on_delete=False)
    bench.chained = False  # the columns change
    first = change("c", None, {"id": 1, "name": "a", "note": "x"})
    changes = [
        (1, first),
        (2, change("c", None, {"id": 2, "name": "b"})),
        (1, first),  # a repetition brings nothing back
        (2, change("u", None, {"id": 2, "name": "c"})),
        (2, change("u", None, {"id": 2, "name": "d", "note": "y"})),
        (2, change("u", None, {"id": 2, "name": "e"})),
        (1, change("u", None, {"id": 1, "name": "a", "note": "z"})),
    ]
    positions = [1, 2, 1, 3, 4, 5, 6]
    for offset, ((number, event), position) in enumerate(zip(changes, positions, strict=True)):
        event["source"]["ums_id"] = position
        bench.apply(InputRecord(json.dumps({"id": number}).encode(), json.dumps(event).encode(), offset, 0))
    assert [event["after"] for event in bench.events] == [
        {"id": 1, "name": "a", "note": "x"},
        {"id": 2, "name": "b"},
        {"id": 2, "name": "c"},
        {"id": 2, "name": "d", "note": "y"},
        {"id": 2, "name": "e", "note": None},
        {"id": 1, "name": "a", "note": "z"},
    ]


def test_an_update_that_changes_a_named_key_deletes_the_old_row() -> None:
    bench = Bench(input_format="debezium", key_columns=("name",), tombstones_on_delete=False)
    rows = [{"id": 1, "name": name} for name in "ab"]
    for offset, event in enumerate((change("c", None, rows[0]), change("u", *rows), change("u", None, rows[1]))):
        bench.apply(InputRecord(b'{"id":1}', json.dumps(event).encode(), offset, 0))
    assert [(event["op"], event["before"], event["after"]) for event in bench.events] == [
        ("c", None, rows[0]),
        ("d", rows[0], None),
        ("c", None, rows[1]),
    ]


def message(*tuples: list[str | None], fields: Any = None) -> bytes:
    fields = fields or [
        ums.make_field("id", "long", nullable=False),
        ums.make_field("name", "string"),
        ums.make_field("paid", "boolean"),
    ]
    return json.dumps(
        ums.make_message(ums.INCREMENT, "mysql.db1.shop.orders.3.0.0", [*ums.SYSTEM_FIELDS, *fields], tuples)
    ).encode()


def tuple_(number: int, operation: str, *values: str | None) -> list[str | None]:
    return [str(number), "2026-01-02 03:04:05.000006", operation, f"u{number}", *values]


def test_ums_as_input() -> None:
    bench = Bench(input_format="ums", key_columns=("id",))
    bench.apply(
        InputRecord(
            b"",
            message(
                tuple_(1, "i", "7", "a", "false"), tuple_(2, "b", "7", "a", "false"), tuple_(2, "u", "7", "b", "true")
            ),
            0,
            0,
        )
    )
    assert bench.rows == {b'{"id":7}': {"id": 7, "name": "b", "paid": True}}
    assert [event["op"] for event in bench.events] == ["c", "u"]
    assert bench.events[0]["source"]["ts_us"] == 1_767_323_045_000_006
    bench.apply(InputRecord(b"", message(tuple_(5, "d", "7", "b", "true")), 1, 0))
    bench.apply(InputRecord(b"", message(tuple_(4, "u", "7", "late", "true")), 2, 0))
    assert bench.rows == {}
    for protocol in (ums.INCREMENT_HEARTBEAT, ums.BATCH_TERMINATION):
        signal = ums.make_signal(protocol, "mysql.db1.shop.orders.3.0.0", 0)
        bench.apply(InputRecord(b"", json.dumps(signal).encode(), 3, 0))
    with pytest.raises(Skippable, match="directive_flow_start"):
        bench.apply(InputRecord(b"", json.dumps(ums.make_signal("directive_flow_start", "n", 0)).encode(), 3, 0))
    bench.chained = False
    more = [
        ums.make_field("id", "long", nullable=False),
        ums.make_field("name", "string"),
        ums.make_field("note", "string"),
    ]
    bench.apply(InputRecord(b"", message(tuple_(6, "i", "8", "c", "n"), fields=more), 4, 0))
    assert bench.rows == {b'{"id":8}': {"id": 8, "name": "c", "note": "n"}}


def test_heartbeats_of_ums_are_noted_for_the_delay() -> None:
    bench = Bench(input_format="ums", key_columns=("id",))
    for offset, (part, time_us) in enumerate((("", 1_700_000_000_000_005), ("1/2", 1_600_000_000_000_000))):
        beat = ums.make_signal(ums.INCREMENT_HEARTBEAT, "mysql.db1.shop.orders.3.0.0", time_us, part=part)
        for value in (beat, {**beat, "payload": []}):
            bench.apply(InputRecord(b"", json.dumps(value).encode(), offset, 7, 2))
    assert bench.engine.heartbeats.take() == [
        MetHeartbeat("", 2, "0.0.", 1_700_000_000_000_005, 7000, "mysql.db1.shop.orders"),
        MetHeartbeat("", 2, "0.0.1/2", 1_600_000_000_000_000, 7000, "mysql.db1.shop.orders"),
    ]
    assert bench.engine.heartbeats.take() == []


def test_rows_that_can_not_be_taken() -> None:
    with pytest.raises(Fatal, match=r"key\.columns"):
        Bench(input_format="ums").apply(InputRecord(b"", message(tuple_(1, "i", "7", "a", "false")), 0, 0))
    bench = Bench(input_format="debezium", key_columns=("id",))
    for value in (b"[]", b"x", b'{"op":"t"}', b'{"op":"c"}', json.dumps(change("c", None, {"x": 1})).encode()):
        with pytest.raises(Skippable):
            bench.apply(InputRecord(b"", value, 0, 0))
    bench.apply(InputRecord(b"", json.dumps(change("c", None, {"id": 1})).encode(), 0, 0))
    other = change("c", None, {"id": 1})
    other["source"]["table"] = "customers"
    with pytest.raises(Skippable, match="besides"):
        bench.apply(InputRecord(b"", json.dumps(other).encode(), 1, 0))


@pytest.mark.parametrize(("way", "output"), [("json", "json"), ("enveloped", "json"), ("enveloped", "json-schemas")])
@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a.b", "", "ä😀", "{x}", "'"])
def test_columns_of_debezium_with_odd_names(way: str, output: str, name: str) -> None:
    row = struct("odd.Value", {"id": INT64, name: OPTIONAL_STRING}, optional=True)
    envelope = struct(
        "odd.Envelope", {"before": row, "after": row, "source": SOURCE_SCHEMA, "op": STRING, "ts_ms": INT64}
    )
    converter = JsonConverter({"schemas.enable": "true" if way == "enveloped" else "false"})
    key, value = converter.encoder("t", ORDER_KEY), converter.encoder("t", envelope)
    bench = Bench(input_format="debezium", input_encoding="json", output_encoding=output)
    event = change("c", None, {"id": 1, name: "x"}, file="bin.000001", pos=10)
    emit: list[Any] = []
    bench.engine.apply(InputRecord(key({"id": 1}), value(event), 0, 3), bench.store, emit)
    assert [decoded(record.value, output, MemoryRegistry())["after"] for record in emit] == [{"id": 1, name: "x"}]
