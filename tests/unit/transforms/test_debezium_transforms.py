"""Behaviour of Debezium's transforms that ``tests/conformance/transforms`` does not compare with Debezium itself.

The documented differences, values that a JSON recording can't hold (bytes, -0.0, NaN), and error messages.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.api import Header, SourceRecord
from connectors.errors import ConfigInvalid, Skippable
from connectors.schema import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    array,
    decimal,
    map_of,
    struct,
)
from worker.transforms.debezium.enforce_record_size import _decimal_size
from worker.transforms.debezium.json_expansion import NotExpandable, expand_json
from worker.transforms.java.hashes import hash_murmur3, java_hash
from worker.transforms.java.zones import find_zone, zoned_time, zoned_timestamp
from worker.transforms.pipeline import TransformError, build_pipeline

DEBEZIUM = "io.debezium.transforms."
DAY = 86_400


def pipeline(kind: str, **options: str) -> Any:
    prefixed = {f"transforms.t.{name.replace('_', '.')}": value for name, value in options.items()}
    return build_pipeline({"transforms": "t", "transforms.t.type": DEBEZIUM + kind, **prefixed})


def envelope(row: Schema, name: str = "srv.t.Envelope", **more: Schema) -> Schema:
    return struct(name, {"before": row, "after": row, "op": STRING, **more})


def event(
    row: Schema,
    before: Any,
    after: Any,
    op: str = "u",
    topic: str = "srv.t",
    headers: tuple[Header, ...] = (),
    **more: Any,
) -> SourceRecord:
    return SourceRecord(
        {},
        {},
        topic,
        {"before": before, "after": after, "op": op, **more},
        envelope(row),
        {"id": 1},
        struct("srv.t.Key", {"id": INT32}),
        headers=headers,
    )


ROW = struct(
    "srv.t.Value",
    {
        "id": INT32,
        "d": FLOAT64,
        "raw": BYTES,
        "list": array(FLOAT64),
        "map": map_of(STRING, struct("s", {"x": OPTIONAL_STRING})),
    },
    optional=True,
)


def values(**more: Any) -> dict[str, Any]:
    return {"id": 1, "d": 0.0, "raw": b"\x00", "list": [1.0], "map": {"a": {"x": None}}, **more}


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({}, []),
        ({"d": -0.0}, ["d"]),
        ({"raw": b"\x01"}, ["raw"]),
        ({"list": [1.0, 2.0]}, ["list"]),
        ({"list": [2.0]}, ["list"]),
        ({"map": {"a": {}}}, []),
        ({"map": {"a": {"x": "y"}}}, ["map"]),
        ({"map": {"b": {}}}, ["map"]),
    ],
)
def test_changed_columns_are_listed_as_java_lists_them(change: dict[str, Any], changed: list[str]) -> None:
    result = pipeline("ExtractChangedRecordState", header_changed_name="C").apply(
        event(ROW, values(), values(**change))
    )
    assert result.headers == (Header("C", changed, array(OPTIONAL_STRING, optional=True, name="C")),)


def test_nan_is_not_changed_by_nan() -> None:
    result = pipeline("ExtractChangedRecordState", header_unchanged_name="U").apply(
        event(ROW, values(d=float("nan")), values(d=float("nan")))
    )
    assert result.headers[0].value == ["id", "d", "raw", "list", "map"]


def test_header_to_value_follows_the_headers_of_each_record() -> None:
    apply = pipeline("HeaderToValue", headers="a,b", fields="x,y", operation="move").apply
    schema = struct("s", {"id": INT32})
    seen = []
    for headers in (
        (Header("a", "1", STRING),),
        (Header("b", 2, INT32), Header("k", "stays", STRING)),
        (),
        (Header("a", 3, INT64),),
    ):
        result = apply(SourceRecord({}, {}, "t", {"id": 1}, schema, headers=headers))
        names = [field.name for field in result.value_schema.fields]
        seen.append((names, result.value, [header.key for header in result.headers]))
    assert seen == [
        (["id", "x"], {"id": 1, "x": "1"}, []),
        (["id", "y"], {"id": 1, "y": 2}, ["k"]),
        (["id"], {"id": 1}, []),
        (["id", "x"], {"id": 1, "x": 3}, []),
    ]


def test_header_to_value_names_both_counts() -> None:
    with pytest.raises(ConfigInvalid, match="there are 1 and 2"):
        pipeline("HeaderToValue", headers="a,b", fields="x", operation="copy")


def test_a_routed_schema_follows_the_topic_of_each_record() -> None:
    apply = pipeline("ByLogicalTableRouter", topic_regex=r"(.*)_\d+", topic_replacement="$1").apply
    row = struct("v", {"id": INT32}, optional=True)
    names = []
    for topic in ("a_1", "b_1", "a_2"):
        result = apply(event(row, None, {"id": 1}, "c", topic))
        names.append(
            (
                result.topic,
                result.value_schema.name,
                result.key_schema.name,
                result.key["__dbz__physicalTableIdentifier"],
                result.value_schema.field("after").schema.name,
            )
        )
    assert names == [
        ("a", "a.Envelope", "a.Key", "a_1", "a.Value"),
        ("b", "b.Envelope", "b.Key", "b_1", "b.Value"),
        ("a", "a.Envelope", "a.Key", "a_2", "a.Value"),
    ]


def test_a_router_needs_the_replacement_of_its_key_field() -> None:
    with pytest.raises(ConfigInvalid, match=r"key\.field\.replacement must be non-empty"):
        pipeline("ByLogicalTableRouter", topic_regex="a", topic_replacement="b", key_field_regex="x")


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        # Numbers that Java's own classes give.
        ("hello", STRING, 99162322),
        ("", STRING, 0),
        ("\U0001f600", STRING, 1772899),
        (-1, INT32, 0xFFFFFFFF),
        (1 << 40, INT64, 256),
        (Decimal("-123456789012345678901234567890.5"), decimal(1), 3181689215),
        (-1, INT64, 0),
        (True, BOOLEAN, 1231),
        (0.5, FLOAT64, 1071644672),
        (b"\x01\xff", BYTES, 931),
        ([1, 2], array(INT32), 994),
        ({"a": 1}, map_of(STRING, INT32), 96),
        (Decimal("1.50"), decimal(2), 4652),
        (Decimal("-1.50"), decimal(2), 0xFFFFEDD8),
        (None, STRING, 0),
    ],
)
def test_hashes_are_those_of_java(value: Any, schema: Schema, expected: int) -> None:
    assert java_hash(value, schema) == expected


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_of_thousands_of_digits_has_a_hash_and_a_size(sign: int) -> None:
    words = 600
    number = sign * ((1 << 32 * words) - 1)
    rolled = sum(0xFFFFFFFF * pow(31, exponent, 1 << 32) for exponent in range(words))
    assert java_hash(Decimal(number), decimal(0)) == 31 * sign * rolled & 0xFFFFFFFF
    assert _decimal_size(Decimal(number)) == 4 * words + 1


def test_structs_have_no_hash() -> None:
    row = struct("v", {"id": INT32}, optional=True)
    with pytest.raises(TransformError, match="name the fields inside it"):
        pipeline("partitions.PartitionRouting", partition_payload_fields="after", partition_topic_num="3").apply(
            event(row, None, {"id": 1}, "c")
        )


def test_a_row_that_is_not_there_is_named() -> None:
    row = struct("v", {"id": INT32}, optional=True)
    with pytest.raises(TransformError, match=r"after is null, so there is no after\.id; change stands for before"):
        pipeline("partitions.PartitionRouting", partition_payload_fields="after.id", partition_topic_num="3").apply(
            event(row, {"id": 1}, None, "d")
        )


def test_hash_functions_are_named_in_any_case() -> None:
    row = struct("v", {"id": STRING}, optional=True)

    def partitions(name: str) -> list[int]:
        apply = pipeline(
            "partitions.PartitionRouting",
            partition_payload_fields="after.id",
            partition_topic_num="100",
            partition_hash_function=name,
        ).apply
        return [apply(event(row, None, {"id": f"name {number}"}, "c")).partition for number in range(20)]

    assert partitions("murmur") == partitions("MURMUR") != partitions("java")


@settings(max_examples=100, derandomize=True, database=None)
@given(st.binary(max_size=50))
def test_murmur_is_a_number_of_32_bits_for_any_bytes(data: bytes) -> None:
    assert 0 <= hash_murmur3(data) < 1 << 32


def test_the_row_that_came_in_is_not_converted_in_place() -> None:
    row = struct(
        "v", {"at": Schema(INT64.type, optional=True, default=0, name="io.debezium.time.Timestamp")}, optional=True
    )
    given_record = event(row, {"at": None}, {"at": 7_200_000})
    result = pipeline("TimezoneConverter", converted_timezone="+02:00").apply(given_record)
    # A null stands for its default, which is converted, as in Debezium.
    assert (result.value["before"], result.value["after"]) == ({"at": -7_200_000}, {"at": 0})
    assert given_record.value["after"] == {"at": 7_200_000}


@pytest.mark.parametrize("zone", ["EST", "+18:01", "+08:60", "8", "", "Nowhere/Else", "../UTC"])
def test_zones_that_java_does_not_have_are_refused(zone: str) -> None:
    assert find_zone(zone) is None


@pytest.mark.parametrize(
    ("second", "local", "instant"),
    [
        (1_711_850_400, 3600, 7200),  # 2024-03-31T02:00, which clocks never show: they are put forward at 01:00 UTC
        (1_711_846_800, 3600, 7200),  # 01:00
        (1_711_848_600, 3600, 7200),  # 01:30 UTC; the local time 01:30 is before the change
        (1_729_992_600, 7200, 3600),  # 2024-10-27T01:30: local times from 02:00 to 03:00 come twice
        (1_729_996_200, 7200, 3600),
        (-62_135_596_800 - 400 * 366 * DAY, 561, 561),
        (253_402_300_799 + 366 * DAY, 3600, 3600),
        (32_503_680_000 + 180 * DAY, 7200, 7200),
    ],
)
def test_offsets_of_any_time(second: int, local: int, instant: int) -> None:
    zone = find_zone("Europe/Paris")
    assert zone is not None
    assert (zone.offset_of_local(second), zone.offset_of_instant(second)) == (local, instant)


def test_texts_keep_their_instant() -> None:
    zone = find_zone("+01:30")
    assert zone is not None
    assert zoned_timestamp("9999-12-31T23:00:00.100Z", zone) == "+10000-01-01T00:30:00.1+01:30"
    assert zoned_timestamp("0000-01-01T00:00:00+02:00", zone) == "-0001-12-31T23:30:00+01:30"
    assert zoned_time("23:59+01:00", zone) == "00:29:00+01:30"
    for text in ("24:00:00Z", "10:00:00", "10:00:60Z", "10:00:00+19:00"):
        with pytest.raises(Skippable, match="could not be parsed"):
            zoned_time(text, zone)


def test_a_text_is_not_cut_inside_a_character() -> None:
    row = struct("v", {"t": STRING, "d": decimal(0), "raw": BYTES}, optional=True)
    apply = pipeline("EnforceRecordSize", max_bytes="2500", min_field_size="10").apply
    given_record = event(row, None, {"t": "\U0001f600" * 500, "d": Decimal(10) ** 100, "raw": b"x" * 500}, "c")
    result = apply(given_record)
    after = result.value["after"]
    assert set(after["t"]) == {"\U0001f600"}
    assert 0 < len(after["t"]) < 500
    assert 0 < len(after["raw"]) < 500
    assert after["d"] == Decimal(10) ** 100
    assert given_record.value["after"]["raw"] == b"x" * 500


def test_a_field_of_the_least_size_is_not_cut_and_none_is_cut_below_nothing() -> None:
    row = struct("v", {"t": STRING, "raw": BYTES}, optional=True)
    given_record = event(row, None, {"t": "x" * 30, "raw": b"x" * 31}, "c")
    assert pipeline("EnforceRecordSize", max_bytes="1", min_field_size="30").apply(given_record).value["after"] == {
        "t": "x" * 30,
        "raw": b"",
    }
    assert pipeline("EnforceRecordSize", max_bytes="1", min_field_size="29").apply(given_record).value["after"] == {
        "t": "",
        "raw": b"",
    }
    # The more room there is, the more is left: also where the excess is about as long as the fields.
    left = [
        len(
            pipeline("EnforceRecordSize", max_bytes=str(room), min_field_size="29")
            .apply(given_record)
            .value["after"]["t"]
        )
        for room in range(1, 1500, 10)
    ]
    assert (left[0], left[-1], left) == (0, 30, sorted(left))


@pytest.mark.parametrize(
    ("number", "size"), [(0, 1), (127, 1), (128, 2), (-128, 1), (-129, 2), (-32_768, 2), (32_768, 3)]
)
def test_the_size_of_a_decimal_is_that_of_its_bytes_in_java(number: int, size: int) -> None:
    assert _decimal_size(Decimal(number)) == size


def test_a_text_key_does_not_count() -> None:
    schema = struct("v", {"t": STRING})
    given_record = SourceRecord({}, {}, "t", {"t": "x"}, schema, "k" * 2000, STRING)
    assert pipeline("EnforceRecordSize", max_bytes="500").apply(given_record) is given_record


def test_reads_become_inserts() -> None:
    row = struct("v", {"id": INT32}, optional=True)
    transform = build_pipeline(
        {"transforms": "t", "transforms.t.type": "io.debezium.connector.mysql.transforms.ReadToInsertEvent"}
    )
    read, update = event(row, None, {"id": 1}, "r"), event(row, {"id": 1}, {"id": 2})
    result = transform.apply(read)
    assert result is not None
    assert (result.value["op"], read.value["op"]) == ("c", "r")
    assert transform.apply(update) is update


def test_fields_of_a_payload_keep_their_values_under_new_names() -> None:
    value, schema = expand_json('{"a-b": {"9": 1}}', "p", keep_nulls=False, names="avro")
    assert value == {"a_b": {"_9": 1}}
    assert [field.name for field in schema.fields] == ["a_b"]
    with pytest.raises(NotExpandable, match="two fields of an object come out as a_b"):
        expand_json('{"a-b": 1, "a_b": 2}', "p", keep_nulls=False, names="avro")


@pytest.mark.parametrize("text", ['{"a":1}x', '{"a":1} {}', '{"":1}', '{"a":[{"x":1},{"x":"s"}]}', '{"a":[[1],["x"]]}'])
def test_payloads_that_stay_as_they_are(text: str) -> None:
    with pytest.raises(NotExpandable):
        expand_json(text, "p", keep_nulls=False)


@pytest.mark.parametrize("option", ["drop.tombstones", "delete.handling.mode"])
def test_options_of_older_releases_have_their_effect(option: str) -> None:
    row = struct("v", {"id": INT32}, optional=True)
    chain = build_pipeline(
        {
            "transforms": "t",
            "transforms.t.type": DEBEZIUM + "ExtractNewRecordState",
            f"transforms.t.{option}": "false" if option == "drop.tombstones" else "rewrite",
        }
    )
    deleted = chain.apply(event(row, {"id": 1}, None, "d"))
    tombstone = chain.apply(SourceRecord({}, {}, "t", None))
    if option == "drop.tombstones":
        assert deleted is None
        assert tombstone is not None
    else:
        assert deleted is not None
        assert deleted.value == {"id": 1, "__deleted": "true"}
        assert tombstone is None
