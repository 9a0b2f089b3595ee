"""The checks that plugin packages use find what breaks the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from connectors.api import SourceRecord
from connectors.errors import Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType, one_of
from connectors.schema import INT64, STRING, struct
from worker.converters.base import Converter, Encode, EncoderCache
from worker.converters.json import JsonConverter
from worker.testing import check_converter, check_predicate, check_transform
from worker.transforms.base import Predicate, RecordFunction, RecordTest, Side, Transform, copy_record
from worker.transforms.connect.replace_field import ReplaceField
from worker.transforms.predicates import RecordIsTombstone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.schema import Schema

ROW = struct("row", {"a": INT64, "b": STRING})
ALL = ConfigDef()


def record(number: int = 1) -> SourceRecord:
    return SourceRecord({}, {}, "t", {"a": number, "b": "x"}, ROW)


def changed(**values: Any) -> Callable[[SourceRecord], SourceRecord]:
    def apply(record: SourceRecord) -> SourceRecord:
        result = copy_record(record)
        for name, value in values.items():
            setattr(result, name, value(record) if callable(value) else value)
        return result

    return apply


def careless(record: SourceRecord) -> SourceRecord:
    record.value["a"] = 7
    return record


def counting(seen: list[int]) -> RecordFunction:
    def apply(record: SourceRecord) -> SourceRecord:
        seen.append(1)
        return changed(timestamp=len(seen))(record)

    return apply


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (careless, "changed a record that came in"),
        (counting([]), "gives something else the second time"),
        (changed(value=lambda record: {**record.value, "a": "x"}), r"value\.a is a str"),
        (changed(value_schema=lambda _: struct("row", {"a": INT64, "b": STRING})), "makes a new value schema"),
        (changed(value=lambda record: {**record.value}), "fails at a tombstone with TypeError"),
    ],
)
def test_transforms(function: RecordFunction, text: str) -> None:
    class Tried(Transform):
        version = "1"
        config_def = ALL

        def compile(self) -> RecordFunction:
            return function

    with pytest.raises(AssertionError, match=text):
        check_transform(Tried, {}, [record(1), record(2)])


def test_declarations() -> None:
    class WrongDefault(Transform):
        version = "1"
        config_def = ConfigDef(
            [ConfigKey(name="how", type=ConfigType.STRING, default="c", validator=one_of("a", "b"), doc="How.")]
        )

        def compile(self) -> RecordFunction:
            return lambda record: record

    with pytest.raises(AssertionError, match="the default of how is refused"):
        check_transform(WrongDefault, {}, [])


def test_predicates() -> None:
    class Loose(Predicate):
        version = "1"
        config_def = ALL

        def compile(self) -> RecordTest:
            return lambda record: record.value

    with pytest.raises(AssertionError, match="something else than a bool"):
        check_predicate(Loose, {}, [record()])


class ReprConverter(Converter):
    """Writes a value's representation; how badly, its subclasses say."""

    config_def = ALL
    last: Any = None

    def __init__(self, config: Mapping[str, str], *, is_key: bool) -> None:
        del config, is_key
        self._encoders = EncoderCache(5)

    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        return self._encoders.get(topic, schema) or self._encoders.put(topic, schema, self.write)

    def write(self, value: Any) -> bytes | None:
        self.last = value
        if not isinstance(value, str | None):
            raise Skippable("texts only")
        return None if value is None else value.encode()

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        del topic
        return STRING, None if data is None else data.decode()


class Rude(ReprConverter):
    def write(self, value: Any) -> bytes | None:
        return None if value is None else bytes(value.encode())


class Forgetful(ReprConverter):
    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        del topic, schema
        return lambda value: self.write(value)  # noqa: PLW0108 - a new one each time


class Wrong(ReprConverter):
    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        del topic, data
        return STRING, "something"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Rude, "fails at a value of no known type with AttributeError"),
        (Forgetful, "makes a new encoder each time"),
        (Wrong, "reads 'something' back where it has written 'x'"),
    ],
)
def test_converters(kind: type[Converter], text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        check_converter(kind, {}, [(STRING, "x")])
    assert check_converter(ReprConverter, {}, [(STRING, "x")]) == [b"x"]


def test_what_comes_with_millrace_passes() -> None:
    (result,) = check_transform(ReplaceField, {"exclude": "b"}, [record()], Side.VALUE)
    assert result is not None
    assert result.value == {"a": 1}
    assert check_predicate(RecordIsTombstone, {}, [record()]) == [False]
    assert check_converter(JsonConverter, {"schemas.enable": "false"}, [(ROW, {"a": 1, "b": "x"})]) == [
        b'{"a":1,"b":"x"}'
    ]
