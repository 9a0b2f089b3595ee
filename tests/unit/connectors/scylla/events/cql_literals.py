"""Reads CQL literals into the values that cells of log rows have: a small parser of its own, so that it can disagree."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
import uuid
from decimal import Decimal
from typing import Any

from connectors.cql.types import CqlType

_UNITS = {
    "y": (12, 0, 0),
    "mo": (1, 0, 0),
    "w": (0, 7, 0),
    "d": (0, 1, 0),
    "h": (0, 0, 3_600 * 10**9),
    "m": (0, 0, 60 * 10**9),
    "s": (0, 0, 10**9),
    "ms": (0, 0, 10**6),
    "us": (0, 0, 10**3),
    "µs": (0, 0, 10**3),
    "ns": (0, 0, 1),
}
_EPOCH = dt.date(1970, 1, 1)


class Literals:
    """A cursor over one literal."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.cursor = 0

    def whole(self, kind: CqlType, *, pairs: bool = False) -> Any:
        """The value of the whole text; ``pairs``: a multicell list as its log has it."""
        value = self.value(kind, pairs=pairs)
        self._blank()
        assert self.cursor == len(self.text), f"{self.text!r} goes on at {self.cursor}"
        return value

    def value(self, kind: CqlType, *, pairs: bool = False) -> Any:
        """One value at the cursor."""
        self._blank()
        if self.text[self.cursor : self.cursor + 4].lower() == "null":
            self.cursor += 4
            return None
        if pairs:
            entries = self._entries(CqlType("timeuuid"), kind.arguments[0])
            return sorted(
                ((uuid.UUID(key).bytes, value) for key, value in entries),
                key=lambda pair: (uuid.UUID(bytes=pair[0]).time, pair[0][8:]),
            )
        if kind.name == "map":
            return [{"key": key, "value": value} for key, value in self._entries(*kind.arguments)]
        if kind.name in {"list", "vector"}:
            return self._items("[", "]", kind.arguments[0])
        if kind.name == "set":
            return sorted(self._items("{", "}", kind.arguments[0]), key=repr)
        if kind.name == "tuple":
            return self._tuple(kind)
        if kind.name == "udt":
            return self._udt(kind)
        return _scalar(kind, self._token())

    def _blank(self) -> None:
        while self.cursor < len(self.text) and self.text[self.cursor].isspace():
            self.cursor += 1

    def _take(self, symbol: str) -> bool:
        self._blank()
        if self.text.startswith(symbol, self.cursor):
            self.cursor += len(symbol)
            return True
        return False

    def _token(self) -> str:
        self._blank()
        if self.text[self.cursor] == "'":
            match = re.compile(r"'((?:[^']|'')*)'").match(self.text, self.cursor)
            assert match is not None, self.text
            self.cursor = match.end()
            return match.group(1).replace("''", "'")
        match = re.compile(r"[^\s,:{}\[\]()]+").match(self.text, self.cursor)
        assert match is not None, f"{self.text!r} at {self.cursor}"
        self.cursor = match.end()
        return match.group()

    def _items(self, start: str, end: str, kind: CqlType) -> list[Any]:
        assert self._take(start), self.text
        result: list[Any] = []
        while not self._take(end):
            result.append(self.value(kind))
            self._take(",")
        return result

    def _entries(self, key: CqlType, value: CqlType) -> list[tuple[Any, Any]]:
        assert self._take("{"), self.text
        result: list[tuple[Any, Any]] = []
        while not self._take("}"):
            entry_key = self.value(key)
            assert self._take(":"), self.text
            result.append((entry_key, self.value(value)))
            self._take(",")
        return result

    def _tuple(self, kind: CqlType) -> dict[str, Any]:
        assert self._take("("), self.text
        result: dict[str, Any] = {}
        for index, argument in enumerate(kind.arguments):
            result[f"field_{index}"] = None if self._take(")") else self.value(argument)
            self._take(",")
        self._take(")")
        return result

    def _udt(self, kind: CqlType) -> dict[str, Any]:
        result: dict[str, Any] = dict.fromkeys(kind.field_names)
        assert self._take("{"), self.text
        while not self._take("}"):
            name = self._token().strip('"')
            assert self._take(":"), self.text
            result[name] = self.value(kind.arguments[kind.field_names.index(name)])
            self._take(",")
        return result


def _scalar(kind: CqlType, text: str) -> Any:
    if kind.name in {"int", "bigint", "smallint", "tinyint", "counter"}:
        return int(text)
    if kind.name in {"float", "double"}:
        return float(text)
    if kind.name == "boolean":
        return {"true": True, "false": False}[text.lower()]
    if kind.name in {"blob", "custom"}:
        return bytes.fromhex(text.removeprefix("0x"))
    if kind.name == "date":
        return int(text) - 2**31 if text.isdigit() else (dt.date.fromisoformat(text) - _EPOCH).days
    if kind.name == "time":
        return int(text) if text.isdigit() else _time(text)
    if kind.name == "timestamp":
        return int(text) if re.fullmatch(r"-?\d+", text) else _timestamp(text)
    if kind.name in {"uuid", "timeuuid"}:
        return str(uuid.UUID(text))
    if kind.name == "varint":
        return str(int(text))
    if kind.name == "decimal":
        return str(Decimal(text))
    if kind.name == "inet":
        address = ipaddress.ip_address(text)
        groups = address.exploded.split(":")
        return str(address) if address.version == 4 else ":".join(f"{int(group, 16):x}" for group in groups)
    return _duration(text) if kind.name == "duration" else text


def _time(text: str) -> int:
    hours, minutes, seconds = text.split(":")
    whole, _, fraction = seconds.partition(".")
    return (int(hours) * 3600 + int(minutes) * 60 + int(whole)) * 10**9 + int(fraction.ljust(9, "0") or 0)


def _timestamp(text: str) -> int:
    moment = dt.datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def _duration(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    months = days = nanoseconds = 0
    for number, unit in re.findall(r"(\d+)(mo|ms|us|µs|ns|y|w|d|h|m|s)", text):
        units = _UNITS[unit]
        months, days, nanoseconds = (
            total + int(number) * size for total, size in zip((months, days, nanoseconds), units, strict=True)
        )
    parts = [
        f"{months // 12}y" if months >= 12 else "",
        f"{months % 12}mo" if months % 12 else "",
        f"{days}d" if days else "",
    ]
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        number, nanoseconds = divmod(nanoseconds, _UNITS[unit][2])
        parts.append(f"{number}{unit}" if number else "")
    return sign + "".join(parts)
