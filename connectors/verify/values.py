"""Whether a value of a target says the same as a value of a message. Pure.

A message in JSON without schemas says of a time only how many units there are since 1970, and of a decimal perhaps only its
bytes: the target's value, whose type is known, says what to look for.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import uuid
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.formats.single_floats import round_to_single

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICRO: Final = dt.timedelta(microseconds=1)
#: Units of a message's times, as micros: seconds, ms, µs; nanoseconds are divided.
_UNITS: Final = (1_000_000, 1_000, 1)
_DAY: Final = 86_400_000_000
_MOST_ZEROS: Final = 100_000
#: Types of values that JSON does not have.
_NOT_IN_JSON: Final = (Decimal, dt.date, dt.time, dt.timedelta, bytes, bytearray, memoryview, uuid.UUID)
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Milliseconds(dt.datetime):
    """A moment in a target that keeps no digits below a millisecond."""

    @classmethod
    def of(cls, moment: dt.datetime) -> Milliseconds:
        """A moment as one of a target of this kind."""
        return cls.combine(moment.date(), moment.timetz())


class AddressText(str):
    """An internet address of a target, which the message may spell otherwise."""

    __slots__ = ()


class ValueSet(list[Any]):
    """A set of a target, as a list in any order."""


class SparseRow(dict[str, Any]):
    """A row of a target that leaves nulls out: a column that it does not have is null."""


class NullsAsEmpty(dict[str, Any]):
    """A row of a target whose arrays, maps and structs can't be null: an empty one, or a struct of nulls, may be null."""


def same_row(message: dict[str, Any], target: dict[str, Any]) -> bool:
    """Whether all columns that both have say the same."""
    return all(is_same_value(message[name], value) for name, value in _find_columns(message, target))


def differing_values(message: dict[str, Any], target: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns that both have and that don't say the same, under the message's names."""
    differing = {
        name: value for name, value in _find_columns(message, target) if not is_same_value(message[name], value)
    }
    return {name: message[name] for name in differing}, differing


def _find_columns(message: dict[str, Any], target: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The message's columns that both have, with the target's value: of the same name, or else of one in another case."""
    others = {name.lower(): value for name, value in target.items()}
    for name, said in message.items():
        if name in target:
            value = target[name]
        elif name.lower() in others or isinstance(target, SparseRow):
            value = others.get(name.lower())
        else:
            continue
        yield name, None if said is None and isinstance(target, NullsAsEmpty) and _is_empty(value) else value


def _is_empty(value: Any) -> bool:
    return all(part is None for part in value.values()) if isinstance(value, dict) else value == []


def is_same_value(message: Any, target: Any) -> bool:
    """Whether two values say the same."""
    if message is None or target is None:
        return message is target
    if isinstance(message, Decimal):
        return is_same_value(_digits_of(message), target)
    if isinstance(target, bool):
        return bool(message in (target, int(target), str(target).lower()))
    if isinstance(target, int | float | Decimal):
        return _same_number(message, target)
    if isinstance(target, dt.datetime):
        return _same_moment(message, target)
    if isinstance(target, dt.date):
        return bool(message in ((target - _EPOCH.date()).days, target.isoformat()))
    if isinstance(target, dt.time | dt.timedelta):
        return _same_time(message, target)
    if isinstance(target, bytes | bytearray | memoryview):
        return _same_bytes(message, bytes(target))
    if isinstance(target, uuid.UUID):
        return str(message).lower() == str(target)
    if isinstance(target, AddressText):
        return _is_address(message, target)
    if isinstance(target, str):
        return _same_string(message, target)
    return _same_document(_to_plain(message), _to_plain(target))


def _digits_of(number: Decimal) -> str:
    """A decimal without an exponent, unless that would be enormously long."""
    return format(number, "f") if abs(number.adjusted()) <= _MOST_ZEROS else str(number)


def _same_number(message: Any, target: float | Decimal) -> bool:
    if isinstance(message, bool):
        return int(message) == target
    if isinstance(message, float) or isinstance(target, float):
        with suppress(TypeError, ValueError, OverflowError):
            left, right = float(message), float(target)
            return (
                left == right
                or _is_single(left, right)
                or _is_single(right, left)
                or (math.isnan(left) and math.isnan(right))
            )
        return False
    with suppress(InvalidOperation, TypeError, ValueError):
        if Decimal(message) == target:
            return True
    if isinstance(message, str):
        return _is_unscaled(message, target)
    return False


def _is_single(number: float, written: float) -> bool:
    """Whether a number is one of 32 bits, and the other one what such a number is written as: with the fewest digits."""
    if round_to_single(number) != number:
        return False
    shown = (float(f"{number:.{digits}g}") for digits in range(1, 10))
    return written == next((short for short in shown if round_to_single(short) == number), number)


def _is_unscaled(message: str, target: int | Decimal) -> bool:
    """Whether a string is Connect's Decimal: the bytes of the number without its point, in base64; zero has one, too."""
    with suppress(ValueError):
        if not message:
            return False
        data = base64.b64decode(message, validate=True)
        message_digits = int.from_bytes(data, "big", signed=True)
        if len(data) != (message_digits + (message_digits < 0)).bit_length() // 8 + 1:
            return False  # Connect writes no more bytes than the number needs: the string is text
        sign, digits, exponent = Decimal(target).as_tuple()
        # Of any length: Decimal's arithmetic rounds to 28 digits.
        return isinstance(exponent, int) and message_digits == (-1) ** sign * int("".join(map(str, digits)) or "0")
    return False


def _to_micros(moment: dt.datetime) -> int:
    return ((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICRO


def _same_moment(message: Any, target: dt.datetime) -> bool:
    micros = _to_micros(target)
    said: tuple[int, ...] = ()
    if isinstance(message, int):
        said = (message, message * 1_000, message // 1_000, message * 1_000_000, message * _DAY)
    else:
        with suppress(ValueError, TypeError):
            said = (_to_micros(dt.datetime.fromisoformat(message)),)
    if micros in said:
        return True
    return isinstance(target, Milliseconds) and micros // 1_000 in [moment // 1_000 for moment in said]


def _same_time(message: Any, target: dt.time | dt.timedelta) -> bool:
    if isinstance(target, dt.time):
        whole = dt.timedelta(
            hours=target.hour, minutes=target.minute, seconds=target.second, microseconds=target.microsecond
        )
    else:
        whole = target
    micros = whole // _MICRO
    if isinstance(message, int):
        return message // 1000 == micros or any(message * unit == micros for unit in _UNITS)
    return isinstance(target, dt.time) and isinstance(message, str) and _is_time(message, target)


def _is_time(message: str, target: dt.time) -> bool:
    with suppress(ValueError):
        return dt.time.fromisoformat(message).replace(tzinfo=None) == target.replace(tzinfo=None)
    return False


def _same_bytes(message: Any, target: bytes) -> bool:
    if not isinstance(message, str):
        return False
    with suppress(ValueError):
        if base64.b64decode(message, validate=True) == target:
            return True
    return message.encode() == target


def _same_string(message: Any, target: str) -> bool:
    """Whether text of a target, which may be that of any type, says the same as a value."""
    if message == target or str(message) == target:
        return True
    if isinstance(message, bool):
        return target == str(message).lower()
    if isinstance(message, int | float):
        return _same_number_text(message, target) or _same_time_text(message, target)
    if isinstance(message, str):
        with suppress(InvalidOperation):
            if _is_unscaled(message, Decimal(target)):
                return True
        return _same_time_text(message, target) or _same_bytes(message, target.encode()) or _same_json(message, target)
    return _same_json(message, target)


def _is_address(message: Any, target: str) -> bool:
    """Whether both are one internet address; one of four bytes may be written as one of sixteen."""
    with suppress(ValueError):
        address, expected = ip_address(str(message)), ip_address(target)
        return expected in (address, getattr(address, "ipv4_mapped", None))
    return False


def _same_number_text(message: float, target: str) -> bool:
    with suppress(InvalidOperation):
        return _same_number(message, Decimal(target))
    return False


def _same_time_text(message: Any, target: str) -> bool:
    """Whether text in the form of ISO 8601 is the day, the moment or the time of day that a message has as a number.

    Of two strings only moments may have different forms.
    """
    kinds: list[Any] = [dt.date, dt.datetime, dt.time]
    if isinstance(message, str):
        kinds = [dt.datetime] if "T" in message else []
    if "-" not in target and ":" not in target:  # some numbers are forms, too
        return False
    for kind in kinds:
        with suppress(ValueError):
            return is_same_value(message, kind.fromisoformat(target))
    return False


def _same_json(message: Any, target: str) -> bool:
    """Whether both are the same object or array: JSON has many spellings."""
    with suppress(msgspec.DecodeError):
        decoded = msgspec.json.decode(target)
        return isinstance(decoded, dict | list) and _same_document(_to_plain(message), decoded)
    return False


def _same_document(message: Any, target: Any) -> bool:
    """Whether two decoded documents say the same; to Python, true is 1."""
    if isinstance(message, bool) or isinstance(target, bool):
        return message is target
    if isinstance(message, dict) and isinstance(target, dict):
        members = {_key_part(name): value for name, value in target.items()}
        return message.keys() == members.keys() and all(
            _same_document(value, members[name]) for name, value in message.items()
        )
    if isinstance(message, list) and isinstance(target, list):
        if isinstance(target, ValueSet):
            message = list({_encode(value): value for value in message}.values())
            message, target = sorted(message, key=_encode), sorted(target, key=_encode)
        return len(message) == len(target) and all(map(_same_document, message, target))
    if message == target:
        return True
    if isinstance(target, AddressText):
        return _is_address(message, target)
    if isinstance(target, str):
        return isinstance(message, str | int) and _same_time_text(message, target)
    if isinstance(target, int | float):
        return isinstance(message, int | float) and _same_number(message, target)
    return message is not None and isinstance(target, _NOT_IN_JSON) and is_same_value(message, target)


def _to_plain(value: Any) -> Any:
    if isinstance(value, str):
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(value)
    return value


def key_text(values: dict[str, Any]) -> str:
    """A key as text that is equal for a message's key and a target's, under the names of the message's."""
    return _encode({name: _key_part(value) for name, value in values.items()}).decode()


def find_key(row: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The key of a target's row, under the names of a message's key; the target's may be in another case."""
    others = {name.lower(): value for name, value in row.items()}
    return {name: row[name] if name in row else others.get(name.lower()) for name in names}


def _key_part(value: Any) -> str:
    """Part of a key; whole days and moments as most messages have them."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Decimal):
        # With all digits: Decimal's arithmetic rounds to 28.
        text = _digits_of(value)
        return text.rstrip("0").rstrip(".") if "." in text and "E" not in text else text
    if isinstance(value, dt.datetime):
        return str(_to_micros(value))
    if isinstance(value, dt.date):
        return str((value - _EPOCH.date()).days)
    if isinstance(value, dt.time):
        return str(_to_micros(dt.datetime.combine(_EPOCH, value.replace(tzinfo=None))) * 1_000)
    if isinstance(value, dt.timedelta):
        return str(value // _MICRO * 1_000)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    return str(value)
