"""Records as the console shows them: what they look like, what is hidden, in which order, where the next page begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from worker.converters.json import JsonConverter
from worker.host.questions.topic_records import (
    MASK,
    DecodedPart,
    MatchingRecord,
    Reading,
    guess_value,
    kind_of,
    mask_value,
    merge_newest,
    partition_cursor,
    show_record,
)
from worker.transforms.expressions.cel import compile_cel


@dataclass
class Record:
    """The fields of a consumer's record that are read."""

    partition: int
    offset: int
    timestamp: int = 0
    key: bytes | None = b'{"id": 1}'
    value: bytes | None = b'{"op": "u", "source": {"db": "shop", "table": "orders"}, "after": {"name": "Ada"}}'
    headers: tuple[tuple[str, bytes], ...] = ()


def seen(partition: int, offset: int, timestamp: int = 0) -> MatchingRecord:
    return MatchingRecord(Record(partition, offset, timestamp), DecodedPart("json", 1), DecodedPart("json", 2))


@pytest.mark.parametrize(
    ("data", "form", "expected"),
    [
        (None, "auto", ("null", None)),
        (b'{"a": 1}', "auto", ("json", {"a": 1})),
        (b'{"schema": null, "payload": {"a": 1}}', "auto", ("json", {"a": 1})),
        (b"plain", "auto", ("text", "plain")),
        (b"\xff\x00", "auto", ("bytes", "ff 00")),
        (b"\xff\x00", "text", ("text", "\ufffd\x00")),
        (b"plain", "json", ("bytes", "70 6c 61 69 6e")),
        (b"12", "text", ("text", "12")),
        (b"12", "bytes", ("bytes", "31 32")),
        (b"12.345678901234567890", "auto", ("json", "12.345678901234567890")),
        (b"12.5", "auto", ("json", 12.5)),
    ],
)
def test_bytes_are_shown_as_they_look(data: bytes | None, form: str, expected: tuple[str, Any]) -> None:
    part = guess_value(data, form)
    assert (part.form, part.value) == expected


def test_an_id_of_a_registry_is_reported() -> None:
    assert "(id 7)" in guess_value(b"\x00\x00\x00\x00\x07\xff\xfe").problem


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ("tombstone", "")),
        ({"op": "d", "source": {"db": "shop", "table": "orders"}}, ("debezium", "d shop.orders")),
        (
            {"protocol": {"type": "data_increment_data"}, "schema": {"namespace": "mysql.a.b.c.5.0.0"}},
            ("ums", "data_increment_data mysql.a.b.c.5.0.0"),
        ),
        (
            {"source": {"keyspace": "shop", "table": "carts"}, "write_time": 1, "rows": []},
            ("partition update", "shop.carts"),
        ),
        ({"a": 1}, ("", "")),
        ([1], ("", "")),
    ],
)
def test_kinds_are_recognized(value: Any, expected: tuple[str, str]) -> None:
    assert kind_of(value) == expected


def test_masked_keeps_what_a_change_is_and_nothing_of_what_it_says() -> None:
    value = {
        "op": "u",
        "ts_ms": 5,
        "source": {"db": "shop", "table": "orders", "query": "update ... 'Ada'", "snapshot": "false"},
        "before": None,
        "after": {"name": "Ada", "tags": ["a", "b"], "op": {"deep": "Ada"}},
    }
    hidden = mask_value(value)
    assert hidden == {
        "op": "u",
        "ts_ms": 5,
        "source": {"db": "shop", "table": "orders", "query": MASK, "snapshot": "false"},
        "before": None,
        "after": {"name": MASK, "tags": [MASK, "…"], "op": {"deep": MASK}},
    }


async def test_a_masked_record_has_no_value_anywhere() -> None:
    reading = Reading("t", "auto", None, None)
    record = Record(0, 1, value=b'{"op": "u", "source": {"table": "orders"}, "after": {"name": "Ada"}}')
    record.headers = (("who", b"Ada"),)
    match = await reading.read(record)
    assert match is not None
    assert "Ada" in str(show_record(match, masked=False))
    entry = show_record(match, masked=True)
    assert "Ada" not in str(entry)
    assert (entry["summary"], entry["key"], entry["headers"]) == ("u orders", {"id": MASK}, [["who", MASK]])


async def test_numbers_that_a_browser_would_round_are_texts() -> None:
    reading = Reading("t", "auto", None, JsonConverter({"schemas.enable": "false"}))
    match = await reading.read(Record(0, 1, value=b'{"a": 9007199254740993, "b": 5}'))
    assert match is not None
    assert show_record(match, masked=False)["value"] == {"a": "9007199254740993", "b": 5}


async def test_conditions_decide_and_what_can_not_be_said_is_counted() -> None:
    reading = Reading("t", "auto", None, None, where=compile_cel("value.after.name == 'Ada'"))
    assert await reading.read(Record(0, 1)) is not None
    assert await reading.read(Record(0, 2, value=b'{"after": {"name": "Bob"}}')) is None
    assert reading.failures == 0
    assert await reading.read(Record(0, 3, value=b'{"x": 1}')) is None
    assert reading.failures == 1
    assert "after" in reading.failure


async def test_keys_are_found_by_a_part() -> None:
    reading = Reading("t", "auto", None, None, key='"id":1')
    assert await reading.read(Record(0, 1)) is not None
    assert await reading.read(Record(0, 2, key=b'{"id": 2}')) is None


def test_the_newest_come_first_and_the_next_page_leaves_nothing_out() -> None:
    match = {0: [seen(0, 9, 50), seen(0, 8, 90)], 1: [seen(1, 4, 70), seen(1, 3, 60)], 2: []}
    chosen, left = merge_newest(match, 2)
    assert [(entry.record.partition, entry.record.offset) for entry in chosen] == [(1, 4), (1, 3)]
    assert left
    # Nothing of partition 0 is shown: it is read again; what fits in 1 is shown, and nothing fits in 2.
    assert partition_cursor({0: 10, 1: 5, 2: 7}, {0: 0, 1: 1, 2: 2}, match, chosen) == {0: 10, 1: 1, 2: 2}
    rest, left = merge_newest(match, 3)
    assert partition_cursor({0: 10, 1: 5, 2: 7}, {0: 0, 1: 1, 2: 2}, match, rest) == {0: 9, 1: 1, 2: 2}
    assert merge_newest(match, 4)[1] is False
