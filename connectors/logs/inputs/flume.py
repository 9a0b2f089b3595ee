"""Flume's events as its Kafka sink and channel write them: Avro in binary, a map of headers and a body. Pure functions."""

from __future__ import annotations

from typing import Final, NamedTuple

#: From this byte on the value is text: an event begins with the number of its headers, doubled.
_FIRST_OF_TEXT: Final = 0x20
_MORE: Final = 0x80
_LONGEST_NUMBER: Final = 10


class FlumeEvent(NamedTuple):
    """One event.

    Attributes:
        headers: by name.
        body: its content.
    """

    headers: dict[str, str]
    body: bytes


def read_flume(value: bytes) -> FlumeEvent | None:
    """The event, if a record's value is one from its first to its last byte; else None."""
    if not value or value[0] >= _FIRST_OF_TEXT:
        return None
    headers: dict[str, str] = {}
    try:
        count, position = _read_number(value, 0)
        while count:
            if count < 0:  # the size of the block follows
                count = -count
                _, position = _read_number(value, position)
            for _ in range(count):
                name, position = _read_bytes(value, position)
                header_value, position = _read_bytes(value, position)
                headers[name.decode()] = header_value.decode()
            count, position = _read_number(value, position)
        body, position = _read_bytes(value, position)
    except (IndexError, UnicodeDecodeError):
        return None
    return FlumeEvent(headers, body) if position == len(value) else None


def _read_number(value: bytes, position: int) -> tuple[int, int]:
    number = 0
    for index in range(_LONGEST_NUMBER):
        byte = value[position + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < _MORE:
            return (number >> 1) ^ -(number & 1), position + index + 1
    raise IndexError("a number has no end")


def _read_bytes(value: bytes, position: int) -> tuple[bytes, int]:
    size, position = _read_number(value, position)
    if not 0 <= size <= len(value) - position:
        raise IndexError("a string is longer than the value")
    return value[position : position + size], position + size
