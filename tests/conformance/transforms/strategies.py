"""Records and configurations for the comparison with Kafka Connect, as hypothesis strategies.

They keep to what both sides must agree on; what is known to differ has cases of its own next to the test. Floating point
numbers are such that all versions of Java print them alike, and not -0.0, which Java's JSON parser can't read.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import DrawFn, SearchStrategy

Json = dict[str, Any]

_KAFKA: Final = "org.apache.kafka.connect.transforms."
_DATA: Final = "org.apache.kafka.connect.data."
NAMES: Final = ("id", "name", "ts", "price", "flag", "inner", "x", "a.b")
TOPICS: Final = ("inventory.users", "inventory.orders", "plain", "a.b-c")
_DEPTH: Final = 2

_STRINGS: Final = st.one_of(
    st.sampled_from(
        (
            "",
            "plain",
            "ümlaut \u2713 \U0001f600",
            'with "quotes" \\ and \n',
            "123",
            "-7",
            "+5",
            "300",
            "1.5e3",
            "true",
            "TRUE",
            " 12",
            "2024-02-29",
            "2023-11-14T22:13:20.123Z",
            "14/11/2023",
            "99999999999",
            "NaN",
            "0x1p3",
            "1.5f",
            "-Infinity",
            "20231114",
            "Nov 14, 2023 10:13 PM",
        )
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
_FLOATS: Final = st.one_of(
    st.integers(-8_000_000, 8_000_000).map(lambda number: number / 8), st.sampled_from((0.0, 1e10, 1e-5, 123456789.125))
)
_SINGLES: Final = st.integers(-80_000, 80_000).map(lambda number: number / 8)
_MILLIS: Final = st.one_of(
    st.integers(86_400_000, 4_102_444_800_000), st.sampled_from((86_400_000, 1_700_000_000_123, 1_700_006_400_000))
)

#: Brokers refuse records from the future.
_PAST: Final = st.integers(1, 1_750_000_000_000)


def _integers(bits: int) -> SearchStrategy[int]:
    high = (1 << (bits - 1)) - 1
    return st.one_of(st.integers(-high - 1, high), st.integers(-2, 40).filter(lambda number: number <= high))


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unscaled(number: int) -> str:
    return _encoded(number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True))


def _logical(kind: str, name: str, **more: Any) -> Json:
    return {"type": kind, "name": _DATA + name, "version": 1, **more}


#: Schemas without nested ones, and what their values are.
SCALARS: Final[tuple[tuple[Json, SearchStrategy[Any]], ...]] = (
    ({"type": "int8"}, _integers(8)),
    ({"type": "int16"}, _integers(16)),
    ({"type": "int32"}, _integers(32)),
    ({"type": "int64"}, st.one_of(_integers(64), _MILLIS)),
    ({"type": "float"}, _SINGLES),
    ({"type": "double"}, _FLOATS),
    ({"type": "boolean"}, st.booleans()),
    ({"type": "string"}, _STRINGS),
    ({"type": "string"}, _STRINGS),
    ({"type": "bytes"}, st.binary(max_size=5).map(_encoded)),
    (_logical("bytes", "Decimal", parameters={"scale": "2"}), st.integers(-(10**20), 10**20).map(_unscaled)),
    (_logical("int32", "Date"), st.integers(1, 47_000)),
    (_logical("int32", "Time"), st.integers(0, 86_399_999)),
    (_logical("int64", "Timestamp"), _MILLIS),
    (
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1},
        _MILLIS.map(lambda millis: millis * 1000),
    ),
)


@st.composite
def described(draw: DrawFn, depth: int = 0) -> tuple[Json, Any]:
    """A schema that is not optional, and a value of it."""
    roll = draw(st.integers(0, 9))
    if depth < _DEPTH and roll == 0:
        return draw(struct(depth + 1))
    if depth < _DEPTH and roll == 1:
        items, first = draw(described(depth + 1))
        return {"type": "array", "items": {**items, "optional": False}}, [first] * draw(st.integers(0, 2))
    if depth < _DEPTH and roll == 2:
        values, first = draw(described(depth + 1))
        keys, key = draw(st.sampled_from((({"type": "string"}, "k"), ({"type": "int32"}, 7))))
        schema = {"type": "map", "keys": {**keys, "optional": False}, "values": {**values, "optional": False}}
        return schema, {key: first} if key == "k" else [[key, first]]
    schema, values_of = draw(st.sampled_from(SCALARS))
    return dict(schema), draw(values_of)


@st.composite
def member(draw: DrawFn, depth: int) -> tuple[Json, Any]:
    """The schema of a field, and a value: perhaps optional, with a default, null."""
    schema, value = draw(described(depth))
    optional = draw(st.booleans())
    if schema["type"] not in {"struct", "array", "map"} and draw(st.integers(0, 3)) == 0:
        schema["default"] = value
        if optional and draw(st.booleans()):
            value = None
    elif optional and draw(st.integers(0, 3)) == 0:
        value = None
    if draw(st.integers(0, 9)) == 0:
        schema["doc"] = "about it"
    return {**schema, "optional": optional}, value


@st.composite
def struct(draw: DrawFn, depth: int = 0) -> tuple[Json, Json]:
    """A struct's schema and a value."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    members = [(name, *draw(member(depth))) for name in names]
    schema: Json = {
        "type": "struct",
        "optional": False,
        "fields": [{**kind, "field": name} for name, kind, _ in members],
    }
    if draw(st.booleans()):
        schema["name"] = draw(st.sampled_from(("Row", "inventory.User")))
        if draw(st.booleans()):
            schema["version"] = draw(st.integers(1, 4))
    return schema, {name: value for name, _, value in members}


_LEAVES: Final = st.one_of(st.none(), st.booleans(), _integers(64), _FLOATS, _STRINGS, _MILLIS)
_TREES: Final = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=5,
)
_SCHEMALESS: Final = st.dictionaries(st.sampled_from(NAMES), _TREES, max_size=5)


@st.composite
def data(draw: DrawFn) -> Json | None:
    """A key, a value or a header: most are structs and schemaless maps."""
    roll = draw(st.integers(0, 11))
    if roll <= 6:
        schema, value = draw(struct())
        schema["optional"] = draw(st.booleans())
        return {"schema": schema, "payload": None if schema["optional"] and roll == 0 else value}
    if roll <= 8:
        return {"schema": None, "payload": draw(_SCHEMALESS)}
    if roll == 9:
        return {"schema": None, "payload": draw(_LEAVES)}
    if roll == 10:
        schema, value = draw(member(1))
        return {"schema": schema, "payload": value}
    return None


@st.composite
def record(draw: DrawFn) -> Json:
    """One record."""
    names = draw(st.lists(st.sampled_from(("trace", "drop", "h")), max_size=3))
    return {
        "topic": draw(st.sampled_from(TOPICS)),
        "partition": draw(st.sampled_from((None, 0, 3))),
        "timestamp": draw(st.one_of(st.none(), _PAST, st.just(0))),
        "key": draw(data()),
        "value": draw(data()),
        "headers": [{"key": name, "value": draw(data())} for name in names],
    }


_NAME: Final = st.sampled_from(NAMES)
_LIST: Final = st.lists(_NAME, min_size=1, max_size=3, unique=True).map(",".join)
_TYPES: Final = st.sampled_from(("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"))
_PATTERNS: Final = st.sampled_from(
    (
        "yyyy-MM-dd",
        "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
        "yyyyMMdd",
        "dd/MM/yyyy",
        "MMM d, yyyy hh:mm a",
        "EEE, dd MMM yyyy HH:mm:ss Z",
        "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
        "yy-D k K u",
        "'at' HH 'o''clock' G z",
    )
)


@st.composite
def _insert_field(draw: DrawFn) -> Json:
    options = {
        f"{kind}.field": draw(_NAME | st.just(f"_{kind}")) + draw(st.sampled_from(("", "?", "!")))
        for kind in draw(st.sets(st.sampled_from(("topic", "partition", "timestamp", "static")), min_size=1))
    }
    if "static.field" in options:
        options["static.value"] = "fixed"
    return options


@st.composite
def _replace_field(draw: DrawFn) -> Json:
    exclude, include = draw(st.sets(_NAME, max_size=2)), draw(st.sets(_NAME, max_size=4))
    options = {"exclude": ",".join(sorted(exclude)), "include": ",".join(sorted(include))}
    return {name: value for name, value in options.items() if value}


@st.composite
def _header_from(draw: DrawFn) -> Json:
    fields = draw(st.lists(_NAME, min_size=1, max_size=2, unique=True))
    return {
        "fields": ",".join(fields),
        "headers": ",".join(f"h{number}" for number in range(len(fields))),
        "operation": draw(st.sampled_from(("move", "copy"))),
    }


@st.composite
def _cast(draw: DrawFn) -> Json:
    if draw(st.integers(0, 4)) == 0:
        return {"spec": draw(_TYPES)}
    return {
        "spec": ",".join(
            f"{name}:{draw(_TYPES)}" for name in draw(st.lists(_NAME, min_size=1, max_size=5, unique=True))
        )
    }


@st.composite
def _timestamp_converter(draw: DrawFn) -> Json:
    options = {"target.type": draw(st.sampled_from(("string", "unix", "Date", "Time", "Timestamp")))}
    if draw(st.integers(0, 3)):
        options["field"] = draw(st.sampled_from(("ts", "name", "id")))
    if options["target.type"] == "string" or draw(st.booleans()):
        options["format"] = draw(_PATTERNS)
    if draw(st.booleans()):
        options["unix.precision"] = draw(st.sampled_from(("seconds", "milliseconds", "microseconds", "nanoseconds")))
    return options


@st.composite
def _set_schema(draw: DrawFn) -> Json:
    options: Json = {}
    if draw(st.booleans()):
        options["schema.name"] = "Renamed"
    if not options or draw(st.booleans()):
        options["schema.version"] = str(draw(st.integers(1, 9)))
    return options


@st.composite
def _extract(draw: DrawFn) -> Json:
    if draw(st.booleans()):
        return {"field": draw(_NAME)}
    path = draw(
        st.sampled_from(("inner.id", "inner.inner.name", "`a.b`", "`a.b`.id", "id", "inner", "inner.`a.b`", "x."))
    )
    return {"field": path, "field.syntax.version": draw(st.sampled_from(("V2", "v2")))}


#: Kind -> (whether there are $Key and $Value, whether it has replace.null.with.default, its own options).
KINDS: Final[dict[str, tuple[bool, bool, SearchStrategy[Json]]]] = {
    "Cast": (True, True, _cast()),
    "DropHeaders": (False, False, st.fixed_dictionaries({"headers": st.sampled_from(("drop", "trace,h", "none"))})),
    "ExtractField": (True, True, _extract()),
    "Filter": (False, False, st.just({})),
    "Flatten": (True, False, st.fixed_dictionaries({}, optional={"delimiter": st.sampled_from(("_", "", "::"))})),
    "HeaderFrom": (True, True, _header_from()),
    "HoistField": (True, False, st.fixed_dictionaries({"field": _NAME})),
    "InsertField": (True, True, _insert_field()),
    "InsertHeader": (
        False,
        False,
        st.fixed_dictionaries(
            {
                "header": st.sampled_from(("h", "new")),
                "value.literal": st.sampled_from(
                    (
                        "text",
                        "5",
                        "300",
                        "-70000",
                        "2.5",
                        "true",
                        "null",
                        "[1,2]",
                        '{"a":1}',
                        "2024-02-29",
                        "2023-11-14T22:13:20.123Z",
                        '"quoted"',
                    )
                ),
            }
        ),
    ),
    "MaskField": (
        True,
        True,
        st.fixed_dictionaries(
            {"fields": st.sampled_from(("name", "id", "flag", "x"))},
            optional={"replacement": st.sampled_from(("***", "5", "-1.5"))},
        ),
    ),
    "RegexRouter": (
        False,
        False,
        st.sampled_from(
            ({"regex": r"inventory\.(.*)", "replacement": "lake.$1"}, {"regex": ".*", "replacement": "all"})
        ),
    ),
    "ReplaceField": (True, True, _replace_field()),
    "SetSchemaMetadata": (True, True, _set_schema()),
    "TimestampConverter": (True, True, _timestamp_converter()),
    "TimestampRouter": (
        False,
        False,
        st.fixed_dictionaries(
            {},
            optional={
                "topic.format": st.sampled_from(("${timestamp}.${topic}", "x-${timestamp}", "${topic}")),
                "timestamp.format": _PATTERNS.filter(lambda pattern: not set(pattern) & set(" ':,/")),
            },
        ),
    ),
    "ValueToKey": (False, True, st.fixed_dictionaries({"fields": _LIST})),
}
_PREDICATES: Final[tuple[tuple[str, Json], ...]] = (
    ("TopicNameMatches", {"pattern": r"inventory\..*"}),
    ("RecordIsTombstone", {}),
    ("HasHeaderKey", {"name": "trace"}),
)


@st.composite
def _stage(draw: DrawFn, kind: str, alias: str) -> Json:
    """The properties of one transform."""
    sided, replaces, own_options = KINDS[kind]
    options = dict(draw(own_options))
    if replaces and draw(st.integers(0, 2)) == 0:
        options["replace.null.with.default"] = draw(st.sampled_from(("true", "false")))
    options["type"] = _KAFKA + kind + (draw(st.sampled_from(("$Key", "$Value", "$Value"))) if sided else "")
    config = {f"transforms.{alias}.{name}": value for name, value in options.items()}
    if kind == "Filter" or draw(st.integers(0, 4)) == 0:
        predicate, more = draw(st.sampled_from(_PREDICATES))
        config |= {
            f"transforms.{alias}.predicate": alias,
            f"predicates.{alias}.type": f"{_KAFKA}predicates.{predicate}",
            **{f"predicates.{alias}.{name}": value for name, value in more.items()},
        }
        if draw(st.booleans()):
            config[f"transforms.{alias}.negate"] = draw(st.sampled_from(("true", "false")))
    return config


@st.composite
def case(draw: DrawFn, kind: str, records: int) -> Json:
    """A chain that begins with a transform of that kind, and records for it."""
    stages = [kind, *draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=1))]
    config: Json = {}
    for number, stage in enumerate(stages):
        config |= draw(_stage(stage, f"t{number}"))
    config["transforms"] = ",".join(f"t{number}" for number in range(len(stages)))
    predicates = [f"t{number}" for number in range(len(stages)) if f"predicates.t{number}.type" in config]
    if predicates:
        config["predicates"] = ",".join(predicates)
    return {"config": config, "records": draw(st.lists(record(), min_size=records, max_size=records))}


def collect(strategy: SearchStrategy[Json], count: int, number: int) -> list[Json]:
    """``count`` examples of a strategy, the same ones for the same ``number``."""
    examples: list[Json] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def take(example: Json) -> None:
        examples.append(example)

    run: Callable[[], None] = take
    run()
    return examples[:count]
