"""Decimals as Kafka Connect's bytes: what is taken from their text is what the number says."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.converters.javatext import decimal_bytes, decimal_from_bytes, to_unscaled
from worker.converters.json_form.text import decimal_base64

EDGES = [
    edge + step
    for bits in (7, 8, 15, 16, 23, 24, 31, 32, 63)
    for edge in (1 << bits, -(1 << bits))
    for step in (-1, 0, 1)
]


@given(st.sampled_from(EDGES) | st.integers(-(10**40), 10**40), st.integers(-5, 40), st.integers(0, 40))
def test_bytes_are_those_of_the_number(number: int, digits: int, scale: int) -> None:
    value = Decimal(number).scaleb(-digits)  # rounded to 28 digits
    expected = Fraction(value) * 10**scale
    if expected.denominator != 1:
        with pytest.raises(ValueError, match="digits after the point"):
            to_unscaled(value, scale)
        return
    assert to_unscaled(value, scale) == expected
    data = decimal_bytes(value, scale)
    assert int.from_bytes(data, "big", signed=True) == expected
    assert len(data) == 1 or data[:2] not in {b"\0\0", b"\xff\xff"}
    assert decimal_from_bytes(data, scale) == value
    assert decimal_base64(value, scale) == b64encode(data).decode()


@pytest.mark.parametrize("number", EDGES)
def test_base64_of_every_size(number: int) -> None:
    value = Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -2))
    assert decimal_base64(value, 2) == b64encode(decimal_bytes(value, 2)).decode()


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "sNaN", "1E+999999", "0.001", "1.5E-7"])
@pytest.mark.parametrize("scale", [0, 1, 2])
def test_what_has_no_such_bytes_is_refused(text: str, scale: int) -> None:
    with pytest.raises(ValueError, match=r"digits|finite"):
        to_unscaled(Decimal(text), scale)


@pytest.mark.parametrize("text", ["1.5E+10", "12E+3", "-0.00", "0E+5", "7"])
@pytest.mark.parametrize("scale", [0, 2, 4, 5])
def test_other_forms_of_numbers_mean_the_same(text: str, scale: int) -> None:
    assert to_unscaled(Decimal(text), scale) == Fraction(Decimal(text)) * 10**scale


def test_a_float_is_no_decimal() -> None:
    with pytest.raises(AttributeError):
        to_unscaled(1.25, 2)  # type: ignore[arg-type]
