"""Values of targets against those of messages."""

from __future__ import annotations

import base64
import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pytest

from connectors.verify.values import (
    AddressText,
    Milliseconds,
    NullsAsEmpty,
    SparseRow,
    ValueSet,
    differing_values,
    find_key,
    is_same_value,
    key_text,
    same_row,
)

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000)  # noqa: DTZ001 - as databases without time zones give it
MICROS = 1_767_323_045_678_000
#: The number 150 as Connect writes a decimal without its point.
UNSCALED = base64.b64encode((150).to_bytes(2, "big", signed=True)).decode()

#: More digits than decimals have in arithmetic.
LONG_UNSCALED = base64.b64encode((12345678901234567890123456780000000001).to_bytes(16, "big")).decode()


@pytest.mark.parametrize(
    ("message", "target", "equal"),
    [
        (None, None, True),
        (None, 0, False),
        (0, None, False),
        (1, True, True),
        (False, 0, True),
        (2, True, False),
        (7, 7, True),
        ("7", 7, True),
        (7, 8, False),
        ("1.50", Decimal("1.5"), True),
        (UNSCALED, Decimal("1.50"), True),
        (UNSCALED, Decimal("1.51"), False),
        (LONG_UNSCALED, Decimal("1234567890123456789012345678.0000000001"), True),
        (LONG_UNSCALED, Decimal("1234567890123456789012345678.0000000002"), False),
        ("", 0, False),
        ("", "0", False),
        ("", "0.00", False),
        ("", b"", True),
        ("AA==", Decimal(0), True),
        ("AAAA", Decimal(0), False),  # more bytes than the number needs
        ("AAAA", "0", False),
        ("AAAA", "AAAA", True),
        ("/w==", Decimal("-0.01"), True),
        ("AP8=", Decimal("2.55"), True),
        (10**400, 1.0, False),
        (0.1, 0.1, True),
        (0.1, 0.2, False),
        (1234567.25, 1234567.26, False),
        (1234567.25, Decimal("1234567.26"), False),
        (0.1, 0.10000000149011612, True),  # a number of 32 bits
        (3.4028235e38, 3.4028234663852886e38, True),
        (16777217.0, 16777216.0, False),
        (0.10000000149011612, 0.1, True),
        (1e300, 1e300, True),
        (1e300, float("inf"), False),
        (MICROS, MOMENT, True),
        (MICROS // 1000, MOMENT, True),
        (MICROS * 1000, MOMENT, True),
        ("2026-01-02T03:04:05.678Z", MOMENT, True),
        (MICROS + 1, MOMENT, False),
        (MICROS + 999, Milliseconds.of(MOMENT), True),
        (MICROS + 1_000, Milliseconds.of(MOMENT), False),
        ("2026-01-02T03:04:05.678901Z", Milliseconds.of(MOMENT), True),
        (20_455, dt.datetime(2026, 1, 2, tzinfo=dt.UTC), True),
        ("no moment", MOMENT, False),
        ('{"a": true}', '{"a": 1}', False),
        ('{"a": [false]}', {"a": [0]}, False),
        ('{"a": [false]}', {"a": [False]}, True),
        ('{"a": 1, "b": {}}', '{"b": {}, "a": 1}', True),
        ('{"a": 1}', '{"a": 1, "b": 2}', False),
        ("[1, 2]", [1], False),
        ([20_455], [dt.date(2026, 1, 2)], True),
        ([20_456], [dt.date(2026, 1, 2)], False),
        ([20_455], '["2026-01-02"]', True),
        ({"at": MICROS}, {"at": MOMENT}, True),
        ({"at": MICROS + 1}, {"at": MOMENT}, False),
        ({"at": MICROS}, '{"at": "2026-01-02T03:04:05.678Z"}', True),
        (["AQI="], [b"\x01\x02"], True),
        (["AQI="], [b"\x01\x03"], False),
        (["50554D6E-29BB-11E5-B345-FEFF819CDC9F"], [uuid.UUID("50554d6e-29bb-11e5-b345-feff819cdc9f")], True),
        ([UNSCALED, 0.5, None], [Decimal("1.50"), Decimal("0.5"), None], True),
        ([None], [Decimal(0)], False),
        ([0.1], [0.10000000149011612], True),
        ({"1": 2}, {1: 2}, True),
        (["1"], [1], False),
        ([1], ["1"], False),
        (["b", "a", "b"], ValueSet(["a", "b"]), True),
        (["b", "a", "c"], ValueSet(["a", "b"]), False),
        (["b", "a"], ["a", "b"], False),
        (20_455, dt.date(2026, 1, 2), True),
        (20_456, dt.date(2026, 1, 2), False),
        (3_600_000_000, dt.time(1), True),
        (3_600_000, dt.timedelta(hours=1), True),
        ("01:00:00", dt.time(1), True),
        ("x", dt.time(1), False),
        ("AQI=", b"\x01\x02", True),
        ("AQI=", b"\x01\x03", False),
        ("ab", "ab", True),
        ("ab", "ac", False),
        ("1.50", "1.5", False),
        ("007", "7", False),
        (7, "7", True),
        (7, "8", False),
        (0.1, "0.1", True),
        (1e20, "100000000000000000000", True),
        (True, "true", True),
        (True, "false", False),
        (UNSCALED, "1.50", True),
        (UNSCALED, "1.51", False),
        (MICROS, "2026-01-02T03:04:05.678000Z", True),
        (MICROS // 1000, "2026-01-02T03:04:05.678+00:00", True),
        (MICROS + 1, "2026-01-02T03:04:05.678000Z", False),
        ("2026-01-02T03:04:05.678Z", "2026-01-02T04:04:05.678000+01:00", True),
        (20_455, "2026-01-02", True),
        (20_456, "2026-01-02", False),
        (20_455, "20260102", False),
        (3_600_000_000, "01:00:00", True),
        ("01:00", "01:00:00", False),
        ("AQI=", "\x01\x02", True),
        ("AQI=", "AQI=", True),
        ('{"a":1, "b":[2]}', '{"b": [2], "a": 1}', True),
        ('{"a":1}', {"a": 1}, True),
        ({"a": 1}, '{"a": 1}', True),
        ("50554D6E-29BB-11E5-B345-FEFF819CDC9F", uuid.UUID("50554d6e-29bb-11e5-b345-feff819cdc9f"), True),
        (Decimal("1.50"), Decimal("1.5"), True),
        (Decimal("1.50"), "1.50", True),
        (Decimal("1E+2"), "100", True),
        (Decimal("1E999999999"), "1E+999999999", True),
        (Decimal("1E999999999"), Decimal("1E999999999"), True),
        (Decimal("1E-999999999"), Decimal(0), False),
        (Decimal("1.50"), 1.5, True),
        (Decimal("1.51"), Decimal("1.5"), False),
        ("2001:DB8::1", AddressText("2001:db8:0:0:0:0:0:1"), True),
        ("2001:DB8::2", AddressText("2001:db8:0:0:0:0:0:1"), False),
        ("2001:DB8::1", "2001:db8:0:0:0:0:0:1", False),
        ("::ffff:10.0.0.1", AddressText("10.0.0.1"), True),
        ("10.0.0.1", AddressText("10.0.0.1"), True),
        ("10.0.0.2", AddressText("10.0.0.1"), False),
        ("no address", AddressText("10.0.0.1"), False),
        (["::1"], [AddressText("0:0:0:0:0:0:0:1")], True),
        (["::1"], [AddressText("0:0:0:0:0:0:0:2")], False),
    ],
)
def test_the_target_says_what_a_value_means(message: Any, target: Any, *, equal: bool) -> None:
    assert is_same_value(message, target) is equal


def test_columns_that_both_have_are_compared() -> None:
    assert same_row({"Id": 1, "only_here": 5}, {"id": 1, "ums_id_": 9})
    assert not same_row({"id": 1, "v": "a"}, {"ID": 1, "V": "b"})
    assert differing_values({"id": 1, "v": "a", "n": None}, {"ID": 1, "V": "b"}) == ({"v": "a"}, {"v": "b"})


def test_names_may_differ_only_in_case() -> None:
    assert same_row({"v": 1, "V": 2}, {"V": 2, "v": 1})
    assert differing_values({"v": 1, "V": 2}, {"v": 1, "V": 3}) == ({"V": 2}, {"V": 3})


def test_a_column_that_a_sparse_row_does_not_have_is_null() -> None:
    assert same_row({"id": 1, "v": None}, SparseRow({"id": 1}))
    assert not same_row({"id": 1, "v": "a"}, SparseRow({"id": 1}))
    assert differing_values({"id": 1, "v": "a"}, SparseRow({"id": 1})) == ({"v": "a"}, {"v": None})


def test_an_empty_array_may_be_null_in_some_targets() -> None:
    nulls = dict.fromkeys(("items", "sizes", "part"))
    empty = {"items": [], "sizes": {}, "part": {"a": None}}
    assert same_row(nulls, NullsAsEmpty(empty))
    assert not same_row(nulls, empty)
    assert same_row(empty, NullsAsEmpty(empty))
    assert not same_row({"items": None}, NullsAsEmpty({"items": [1]}))
    assert not same_row({"name": None}, NullsAsEmpty({"name": ""}))


def test_keys_of_both_sides_are_one_text() -> None:
    key = {"B": "x", "a": 1}
    assert key_text(key) == key_text(find_key({"A": Decimal("1.0"), "b": "x", "v": 7}, list(key)))
    assert key_text({"k": Decimal("12.50")}) == key_text({"k": Decimal("12.5000")})
    assert key_text({"k": 3_600_000_000_000}) == key_text({"k": dt.time(1)}) == key_text({"k": dt.timedelta(hours=1)})
    assert key_text({"k": Decimal("1E999999999")}) == key_text({"k": "1E+999999999"})
    assert key_text({"a": 1}) != key_text({"a": 2})
    assert key_text({"t": MICROS}) == key_text({"t": MOMENT})
    assert key_text({"d": 20_455}) == key_text({"d": dt.date(2026, 1, 2)})
    long = "1234567890123456789012345678901234567890"
    assert key_text({"k": long}) == key_text({"k": Decimal(long)})
    assert key_text({"k": f"0.{long[1:]}1"}) == key_text({"k": Decimal(f"0.{long[1:]}10")})


def test_columns_of_a_key_may_differ_only_in_case() -> None:
    rows = [{"id": 1, "ID": 7}, {"id": 2, "ID": 7}]
    assert len({key_text(row) for row in rows}) == 2
    assert [find_key({"ID": 7, "id": number, "v": 1}, ["id", "ID"]) for number in (1, 2)] == rows
