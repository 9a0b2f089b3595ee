"""Whether a task may hand over bytes, the order of bytes and records in a batch, and how ``fast.path=verify`` compares both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from connectors.api import Batch, Header, SourceRecord
from connectors.errors import Fatal, Skippable
from connectors.schema import BYTES, INT32, STRING, struct
from connectors.wire import EVENT, ROW, EncodedBatch, Encoding, Fixed
from tests.support.both_paths import Paths
from worker.converters.bytearray import ByteArrayConverter
from worker.converters.json import JsonConverter
from worker.converters.simple_header import SimpleHeaderConverter
from worker.converters.string import StringConverter
from worker.host.delivery.convert import Conversion
from worker.host.delivery.convert import split_runs as runs_of
from worker.host.delivery.fast_path import TaskWire, compare_records, count_encoded, last_timestamp, parts_of, wire_of
from worker.transforms.pipeline import build_pipeline

if TYPE_CHECKING:
    from connectors.schema import Schema
    from connectors.wire import RowWriter

KEY = struct("k", {"id": INT32})
VALUE = struct("v", {"a": INT32, "b": STRING, "c": STRING})
POSITION = {"s": "1"}


def json(**options: str) -> JsonConverter:
    return JsonConverter({"schemas.enable": "false", **options})


def wire_with(key: Any, value: Any, header: SimpleHeaderConverter | None = None) -> TaskWire:
    return TaskWire(build_pipeline({}), key, value, header or SimpleHeaderConverter({}), verify=False)


async def writer_of(
    wire: TaskWire, schema: Schema = VALUE, topic: str = "t", headers: tuple[Header, ...] = ()
) -> RowWriter | None:
    shape: Any = {"a": ROW, "b": EVENT, "c": Fixed("%d\n")}
    return await wire.writer(topic, Encoding(KEY, {"id": ROW}), Encoding(schema, shape), headers)


def record(number: int) -> SourceRecord:
    return SourceRecord(POSITION, {"n": number}, "t", {"a": number, "b": "é", "c": "%d\n"}, VALUE, {"id": number}, KEY)


async def encoded(wire: TaskWire, *numbers: int, after: int = 0) -> EncodedBatch:
    """The same records as ``record`` makes, in bytes."""
    writer = await writer_of(wire)
    assert writer is not None
    assert writer.key is not None
    value, key = writer.value, writer.key
    leaf, key_leaf = value.leaf(("a",), "a", nullable=False), key.leaf(("id",), "a", nullable=False)
    names: dict[str, Any] = {**value.names, **key.names}
    assert value.events == (("b",),)
    exec(f"{value.unpack} = shared", names | {"shared": value.constants("é")}, names)  # noqa: S102
    values = [eval(value.build((), {"a": leaf}), names | {"a": number}) for number in numbers]  # noqa: S307
    keys = [eval(key.build((), {"id": key_leaf}), names | {"a": number}) for number in numbers]  # noqa: S307
    return EncodedBatch(
        writer, after, key.encode(keys), [*value.encode(values)], lambda: [record(number) for number in numbers]
    )


async def test_bytes_are_those_of_the_converters() -> None:
    for options in ({}, {"schemas.enable": "true"}):
        paths = Paths(json(**options), json(**options))
        part = await encoded(paths.wire, 1, -2, 3)
        general = await paths.convert([record(1), record(-2), record(3)])
        assert paths.encoded(part) == general
        assert b'"b":"\xc3\xa9","c":"%d\\n"' in (general[0].value or b"")


async def test_a_table_without_a_writer() -> None:
    assert (
        await writer_of(
            TaskWire(
                build_pipeline({}), StringConverter({}, is_key=True), json(), SimpleHeaderConverter({}), verify=False
            )
        )
        is None
    )
    assert (
        await writer_of(
            TaskWire(
                build_pipeline({}), json(), StringConverter({}, is_key=False), SimpleHeaderConverter({}), verify=False
            )
        )
        is None
    )
    wire = Paths(json(), json()).wire
    assert await writer_of(wire, topic="no topic/") is None

    class Refusing(SimpleHeaderConverter):
        def from_connect_header(self, *arguments: Any) -> bytes | None:
            del arguments
            raise Skippable("no header")

    header = (Header("a", 1),)
    assert await writer_of(wire_with(json(), json(), Refusing({})), headers=header) is None
    assert await writer_of(wire_with(json(), json()), headers=header) is not None


def test_transforms_and_the_option_decide_about_the_wire() -> None:
    parts = json(), json(), SimpleHeaderConverter({})
    none = build_pipeline({})
    transforms = build_pipeline(
        {
            "transforms": "x",
            "transforms.x.type": "org.apache.kafka.connect.transforms.Cast$Value",
            "transforms.x.spec": "a:string",
        }
    )
    assert wire_of("off", none, *parts) is None
    assert wire_of("auto", transforms, *parts) is None
    auto, verify = wire_of("auto", none, *parts), wire_of("verify", none, *parts)
    assert auto is not None
    assert verify is not None
    assert (auto.verify, verify.verify) == (False, True)


async def test_records_and_bytes_keep_their_order() -> None:
    wire = Paths(json(), json()).wire
    first, second, third = [await encoded(wire, number, after=after) for number, after in ((1, 0), (2, 2), (3, 2))]
    records = [record(number) for number in range(10, 14)]
    batch = Batch(records, encoded=(first, second, third))
    assert count_encoded(batch) == 3
    assert parts_of(batch) == [first, records[:2], second, third, records[2:]]
    assert parts_of(Batch(records)) == [records]
    assert parts_of(Batch([], encoded=(first,))) == [first]


async def verified(part: EncodedBatch) -> None:
    paths = Paths(json(), json())
    conversion = Conversion(json(), json(), paths.header, paths._once)
    records = part.records()
    converted = [await conversion.convert(run, []) for run in runs_of(records)]
    compare_records(part, records, [run for run in converted if run is not None])


async def test_verify_tells_where_and_what_is_different() -> None:
    wire = Paths(json(), json()).wire
    await verified(await encoded(wire, 1, 2))
    part = await encoded(wire, 1, 2)
    assert part.values[1] is not None
    part.values[1] = part.values[1].replace(b'"a":2', b'"a":7')
    with pytest.raises(Fatal) as caught:
        await verified(part)
    text = str(caught.value)
    assert "record 1 of topic t" in text
    assert "source offset {'n': 2}" in text
    assert "value from byte 5 on" in text
    assert """fast path b'{"a":7""" in text
    part = await encoded(wire, 1, 2)
    assert part.keys is not None
    part.keys[0] = b"{}"
    with pytest.raises(Fatal, match="key from byte 1 on"):
        await verified(part)
    part = await encoded(wire, 1, 2)
    part.records = lambda: [record(1)]
    with pytest.raises(Fatal, match="gives 2 records, of which 1 can be compared"):
        await verified(part)
    part = await encoded(wire, 1)
    part.values[0] = None
    with pytest.raises(Fatal, match="value is not null on the general path only"):
        await verified(part)
    with_header = record(1)
    with_header.headers = (Header("h", "x", STRING),)
    part = await encoded(wire, 1)
    part.records = lambda: [with_header]
    with pytest.raises(Fatal, match="topic, headers or partition"):
        await verified(part)


async def test_records_of_both_paths_have_the_same_timestamps() -> None:
    wire = Paths(json(), json()).wire
    with_time = record(2)
    with_time.timestamp = 77
    part = await encoded(wire, 1, 2)
    part.records = lambda: [record(1), with_time]
    with pytest.raises(Fatal, match="timestamp: general path 77, fast path None"):
        await verified(part)
    part.timestamps = [None, 78]
    with pytest.raises(Fatal, match="timestamp: general path 77, fast path 78"):
        await verified(part)
    part.timestamps = [None, 77]
    await verified(part)
    part.records = lambda: [record(1), record(2)]
    with pytest.raises(Fatal, match="timestamp: general path None, fast path 77"):
        await verified(part)


async def test_the_newest_timestamp_of_a_batch_is_that_of_its_last_record() -> None:
    part = await encoded(Paths(json(), json()).wire, 1, 2)
    with_time = record(3)
    with_time.timestamp = 5
    assert last_timestamp(Batch([])) is None
    assert last_timestamp(Batch([with_time])) == 5
    assert last_timestamp(Batch([], encoded=(part,))) is None
    part.timestamps = [7, 8]
    assert last_timestamp(Batch([], encoded=(part,))) == 8
    assert last_timestamp(Batch([with_time], encoded=(part,))) == 5
    part.after = 1
    assert last_timestamp(Batch([with_time], encoded=(part,))) == 8


async def test_keys_that_are_no_structs_are_written_by_any_converter() -> None:
    shape: Any = {"a": ROW, "b": ROW, "c": ROW}
    for key, expected in ((ByteArrayConverter({}, is_key=True), b"\x00k"), (json(), b'"AGs="')):
        writer = await wire_with(key, json()).writer("t", BYTES, Encoding(VALUE, shape))
        assert writer is not None
        assert writer.key is not None
        assert writer.key.encode([b"\x00k"]) == [expected]
