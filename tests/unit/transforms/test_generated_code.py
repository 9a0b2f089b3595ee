"""Generated, cached and batched code gives the same results as code that works value by value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.api import SourceRecord
from connectors.errors import Skippable
from connectors.schema import INT32, INT64, OPTIONAL_STRING, STRING, Field, Schema, Type, struct
from worker.transforms.expressions.cel import compile_cel
from worker.transforms.expressions.native import with_shortcut
from worker.transforms.expressions.parser import parse_expression
from worker.transforms.generated import MOST_FIELDS, FrequentMaps, TakenField, struct_taker
from worker.transforms.java.date_format import JavaDateFormat
from worker.transforms.java.hashes import hash_murmur3, java_hash
from worker.transforms.java.zones import find_zone
from worker.transforms.pipeline import TransformError, TransformPipeline, TransformStage, build_pipeline

KAFKA = "org.apache.kafka.connect.transforms."
MASK = (1 << 64) - 1


def pipeline(kind: str, **options: str) -> TransformPipeline:
    return build_pipeline(
        {
            "transforms": "t",
            "transforms.t.type": KAFKA + kind,
            **{f"transforms.t.{name.replace('_', '.')}": value for name, value in options.items()},
        }
    )


def applied(chain: TransformPipeline, value: Any, schema: Schema | None = None) -> Any:
    result = chain.apply(SourceRecord({}, {}, "t", value, schema))
    assert result is not None
    return result.value


# --- fields of structs and maps


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, "b": {"c": 2, "d": {"e": 3}}}, [("x", 1), ("y", 2), ("z", 3)]),
        ({"a": 1, "b": None}, [("x", 1), ("y", None), ("z", None)]),
        ({"a": 1, "b": {"c": None, "d": None}}, [("x", 1), ("y", "default"), ("z", None)]),
        ({"a": 1}, "slow"),
        ({"a": 1, "b": {"c": 2}}, "slow"),
        ({"a": None, "b": None}, "slow"),
        (None, "slow"),
        ([1], "slow"),
    ],
)
def test_fields_are_taken_or_left_to_the_slow_function(value: Any, expected: Any) -> None:
    take = struct_taker(
        [
            TakenField("x", ("a",), required=True),
            TakenField("y", ("b", "c"), "default"),
            TakenField("z", ("b", "d", "e")),
        ],
        lambda _: "slow",
    )
    result = take(value)
    assert (list(result.items()) if isinstance(result, dict) else result) == expected


@pytest.mark.parametrize("count", [MOST_FIELDS, MOST_FIELDS + 1])
def test_wide_structs_are_left_to_the_slow_function(count: int) -> None:
    names = [f"{number} '\n{{}}" for number in range(count)]
    take = struct_taker([TakenField(name, (name,)) for name in names], lambda _: "slow")
    value = dict.fromkeys(names, 1)
    assert take(value) == ("slow" if count > MOST_FIELDS else value)


def test_maps_that_come_often_are_changed_as_those_that_come_once() -> None:
    chain = pipeline("ReplaceField$Value", exclude="gone", renames="a:b,c:d")
    for number in range(250):
        assert list(applied(chain, {"a": number, "gone": 2, "b": 3, "c": 4}).items()) == [("b", 3), ("d", 4)]
        assert list(applied(chain, {"b": 3, "a": number}).items()) == [("b", number)]
        assert applied(chain, {}) == {}
        assert [type(key) for key in applied(chain, {(True if number % 2 else 1): 5})] == [bool if number % 2 else int]


def test_a_transform_of_ever_new_maps_keeps_few_of_them() -> None:
    built: list[tuple[str, ...]] = []
    maps = FrequentMaps(lambda names: built.append(names) or dict, dict)  # type: ignore[func-returns-value]
    for number in range(400):
        for _ in range(120):
            maps.seldom((f"n{number}",))
    assert len(maps.generated) == len(set(built)) == 256
    assert maps.seldom(tuple(f"n{number}" for number in range(300))) is dict


def test_records_whose_schemas_take_turns() -> None:
    first_schema, second_schema = struct("one", {"a": INT32, "b": STRING}), struct("other", {"b": STRING, "c": INT32})
    for kind, options in (
        ("ReplaceField$Value", {"exclude": "b"}),
        ("Cast$Value", {"spec": "b:string"}),
        ("ValueToKey", {"fields": "b"}),
        ("Flatten$Value", {}),
    ):
        chain = pipeline(kind, **options)
        for _ in range(2):
            for schema, value in ((first_schema, {"a": 1, "b": "x"}), (second_schema, {"b": "y", "c": 2})):
                result = chain.apply(SourceRecord({}, {}, "t", dict(value), schema))
                assert result is not None
                expected = {name: item for name, item in value.items() if name != "b" or kind != "ReplaceField$Value"}
                assert result.value == expected
                assert [field.name for field in (result.value_schema or first_schema).fields] == list(expected)
                assert result.key == ({"b": value["b"]} if kind == "ValueToKey" else None)


# --- batches


def test_a_batch_keeps_the_order_of_results_and_errors() -> None:
    def first(record: SourceRecord) -> SourceRecord | None:
        if record.value == "first":
            raise ValueError("no")
        if record.value == "stop":
            raise StopIteration
        return None if record.value == "drop" else record

    def second(record: SourceRecord) -> SourceRecord:
        if record.value == "second":
            raise KeyError("x")
        return record

    chain = TransformPipeline([TransformStage(first, "one", "One"), TransformStage(second, "two", "Two")])
    records = [
        SourceRecord({}, {}, "t", value) for value in ("a", "second", "drop", "stop", "b", "first", "second", "c")
    ]
    results, errors = chain.apply_many(records)
    assert [result and result.value for result in results] == ["a", None, None, None, "b", None, None, "c"]
    assert [(index, error.alias) for index, error in errors] == [(1, "two"), (3, "one"), (5, "one"), (6, "two")]
    assert all(isinstance(error, TransformError) and error.__cause__ is not None for _, error in errors)
    assert TransformPipeline().apply_many(records) == (records, [])


# --- dates


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.sampled_from(
        [
            "yyyy-MM-dd HH:mm:ss",
            "yyyyMMddHHmmssSSS",
            "dd.MM.yyyy",
            "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
            "HH:mm yyyy-MM-dd",
            "yyyy'1'MM-dd",
            "yyyy-MM-d",
            "HH yyyy-mm-dd-MM",
        ]
    ),
    st.integers(-62_135_769_600_000, 253_402_300_799_999),
    st.text("0123456789 -:.TZx\u0663", max_size=3),
    st.integers(0, 22),
)
def test_texts_of_the_usual_width_are_read_as_all_others(pattern: str, millis: int, noise: str, position: int) -> None:
    compiled = JavaDateFormat(pattern)
    text = compiled.format(millis)
    for changed in (
        text,
        text[:position] + noise + text[position:],
        text[:position] + noise + text[position + len(noise) :],
    ):
        answers = []
        for read in (compiled.parse, compiled._parse):
            try:
                answers.append(read(changed))
            except Skippable as error:
                answers.append(str(error))  # type: ignore[arg-type]
        assert answers[0] == answers[1]


def test_what_is_remembered_of_days_is_bounded() -> None:
    compiled = JavaDateFormat("yyyy-MM-dd HH")
    for day in range(9000):
        assert compiled.parse(compiled.format(day * 86_400_000)) == day * 86_400_000


# --- time zones


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from(
        ["Europe/Paris", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia", "Asia/Kolkata"]
    ),
    st.lists(st.integers(-3_000_000_000, 5_000_000_000), max_size=20),
)
def test_remembered_offsets_are_the_zone_s(name: str, seconds: list[int]) -> None:
    zone, info = find_zone(name), ZoneInfo(name)
    assert zone is not None
    for start in seconds:
        for second in (start, *(start + hours * 3600 for hours in range(0, 24 * 30, 25))):
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
            assert (
                zone.offset_of_instant(second) == (moment.astimezone(info).utcoffset() or timedelta()).total_seconds()
            )
            local = moment.replace(tzinfo=info).utcoffset() or timedelta()
            assert zone.offset_of_local(second) == local.total_seconds()


def test_offsets_of_more_spans_than_are_remembered() -> None:
    zone, info = find_zone("Europe/Paris"), ZoneInfo("Europe/Paris")
    assert zone is not None
    for day in range(-200_000, 200_000, 60):
        local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).replace(tzinfo=info).utcoffset() or timedelta()
        assert zone.offset_of_local(day * 86_400) == local.total_seconds()


# --- hashes


def _reference(data: bytes) -> int:
    """The hash, step by step."""

    def rotated(number: int, bits: int) -> int:
        return (number << bits | number >> 64 - bits) & MASK

    def final(k: int) -> int:
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            k = (k ^ k >> 33) * factor & MASK
        return k ^ k >> 33

    h1, h2, c1, c2 = 0x9368E53C2F6AF274 ^ 9001, 0x586DCD208F7CD3FD ^ 9001, 0x87C37B91114253D5, 0x4CF5AD432745937F
    for start in range(0, len(data), 16):
        block = data[start : start + 16]
        low, high = 0, 0
        for index, byte in enumerate(block):
            signed = byte - 256 if byte > 127 and len(block) < 16 else byte
            low, high = (low ^ signed << 8 * index, high) if index < 8 else (low, high ^ signed << 8 * (index - 8))
        h1 = (h1 ^ rotated((low & MASK) * c1 & MASK, 23) * c2 & MASK) + h2 & MASK
        h2 = (rotated(h2, 41) ^ rotated((high & MASK) * c2 & MASK, 23) * c1 & MASK) + h1 & MASK
        h1, h2 = h1 * 3 + 0x52DCE729 & MASK, h2 * 3 + 0x38495AB5 & MASK
        c1, c2 = c1 * 5 + 0x7B7D159C & MASK, c2 * 5 + 0x6BCE6396 & MASK
    h2 ^= len(data)
    h1 = h1 + h2 & MASK
    h2 = h2 + h1 & MASK
    return (final(h1) + final(h2) & MASK) >> 32


@pytest.mark.parametrize("length", [*range(34), 100, 1008, 1023, 1024, 1025, 1032, 1040, 2001])
def test_murmur_is_the_one_written_step_by_step(length: int) -> None:
    for first in (0, 97, 200):
        data = bytes((first + index * 7) % 256 for index in range(length))
        assert hash_murmur3(data) == _reference(data)


def test_hashes_of_texts_of_any_length() -> None:
    for length in (0, 1, 2, 63, 64, 65, 1000):
        for text in ("aZ\x7f" * length, "é\U0001f600" * length):
            expected = 0
            units = text.encode("utf-16-le")
            for low, high in zip(units[::2], units[1::2], strict=True):
                expected = expected * 31 + low + 256 * high & 0xFFFFFFFF
            assert java_hash(text, STRING) == expected


@pytest.mark.parametrize("function", ["java", "murmur"])
def test_remembered_hashes_are_those_of_the_values(function: str) -> None:
    row = struct("v", {"id": INT32, "total": INT64, "name": OPTIONAL_STRING}, optional=True)
    envelope = Schema(Type.STRUCT, name="t.Envelope", fields=(Field("after", row), Field("op", STRING)))
    most = 0x7FFFFFFF
    chain = build_pipeline(
        {
            "transforms": "t",
            "transforms.t.type": "io.debezium.transforms.partitions.PartitionRouting",
            "transforms.t.partition.payload.fields": "change.id,change.total,change.name,change.gone",
            "transforms.t.partition.hash.function": function,
            "transforms.t.partition.topic.num": str(most),
        }
    )
    hashes = {"id": INT32, "total": INT64, "name": STRING}

    def expected_hash(after: dict[str, Any]) -> int:
        total = 0
        for name, value in after.items():
            if value is not None:
                number = java_hash(value, hashes[name])
                data = value.encode() if isinstance(value, str) else number.to_bytes(4, "little")
                total += _reference(data) if function == "murmur" else number
        return (total & most) % most

    # More values than are remembered, twice, and a few of them often.
    rows = [
        {
            "id": number - 2500,
            "total": number % 7 << 33,
            "name": None if number % 5 == 0 else f"{number}é" * (number % 90),
        }
        for number in (*range(5000), *range(5000), *[4999, 3, 3] * 3)
    ]
    records = [SourceRecord({}, {}, "t", {"after": after, "op": "c"}, envelope) for after in rows]
    results, errors = chain.apply_many(records)
    assert not errors
    assert [result.partition for result in results if result is not None] == [expected_hash(after) for after in rows]


# --- conditions

ROW = struct(
    "r",
    {
        "id": INT64,
        "name": OPTIONAL_STRING,
        "state": Schema(Type.STRING, optional=True, default="new"),
        "tags": Schema(Type.MAP, optional=True, key_schema=STRING, value_schema=STRING),
    },
    optional=True,
)
EVENT = Schema(Type.STRUCT, name="e", fields=(Field("op", STRING), Field("row", ROW)))
CONDITIONS = (
    "value.op == 'u'",
    "'u' != value.op",
    "value.op == 'u' && value.row.id == 2",
    "value.row.id == 2 && value.op == 'u'",
    "value.row.id >= 2 || value.op == 'u'",
    "!(value.row.id < 2)",
    "value.row.name == null",
    "value.row.name != null",
    "value.row.state == 'new'",
    "value.op in ['u', 'c']",
    "value.row.id in [1, 2]",
    "value.row.name.startsWith('a')",
    "value.row.name.endsWith('b') || value.row.name.contains('é')",
    "value.row.name.matches('^[ab]+$')",
    "topic == 't'",
    "value.row.tags.x == 'y'",
    "value.nowhere == 1",
    "value.row.id == 'a'",
    "value.row.name == 'it\\'s'",
    "value.row.id == 2u",
    "value.row.id == 0x2",
    "value.flag || value.op == 'u'",
    "value.row.id == 2.0",
    "value.op == 'é'",
    "value.row == null",
    "(value.op == 'u' ? 'a' : null) == null",
    "value.op == 'u' && true",
    "value.row.name == r'a'",
)
VALUES = st.one_of(
    st.none(),
    st.sampled_from(
        [
            "u",
            "c",
            "a",
            "b",
            "ab",
            "é",
            "it's",
            "new",
            "\ud800",
            1,
            2,
            -3,
            1 << 70,
            2.0,
            True,
            False,
            {"x": "y"},
            {},
            [1],
        ]
    ),
)


def _outcome(text: str, record: SourceRecord) -> Any:
    try:
        return compile_cel(text)(record)
    except Skippable:
        return "refused"


@pytest.mark.parametrize("condition", CONDITIONS)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.booleans(),
    st.dictionaries(st.sampled_from(["op", "flag"]), VALUES),
    st.one_of(st.none(), st.dictionaries(st.sampled_from(["id", "name", "state", "tags"]), VALUES)),
)
def test_conditions_have_the_library_s_answers(
    condition: str, with_schema: bool, event: dict[str, Any], row: dict[str, Any] | None
) -> None:
    record = SourceRecord({}, {}, "t", {**event, "row": row}, EVENT if with_schema else None)
    # The part after the condition changes no answer, and only the library can evaluate it.
    by_library = f"({condition}) ? topic.size() == 1 : topic.size() == 2"
    shortcut_outcome, library_outcome = _outcome(condition, record), _outcome(by_library, record)
    if "\\ud800" in str([event, row]) and library_outcome == "refused":
        return  # half a character: the library refuses the record even where the condition doesn't come to it
    assert shortcut_outcome is library_outcome or shortcut_outcome == library_outcome == "refused"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("value.op == 'u' && value.row.id == 2", True),
        ("value.op != 'u' && value.row.id == 'x'", False),
        ("!(value.row.id in [1, 3]) || value.row.id > 7", True),
        ("value.row.state == 'new'", True),
        ("value.row.name.startsWith('a') && value.row.name.contains('b')", True),
        ("value.row.name != null", True),
    ],
)
def test_common_conditions_do_without_the_library(condition: str, expected: bool) -> None:
    def library(record: SourceRecord) -> Any:
        raise AssertionError(record)

    decide = with_shortcut(condition, parse_expression(condition), library, {})
    row = {"id": 2, "name": "ab", "state": None}
    answers = [decide(SourceRecord({}, {}, "t", {"op": "u", "row": row}, EVENT)) for _ in range(2)]
    assert answers == [expected, expected]
    with pytest.raises(AssertionError):
        decide(SourceRecord({}, {}, "t", {"op": 1, "row": 5}, EVENT))
