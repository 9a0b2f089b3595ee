"""Names of schemas and fields, fitted to what Avro takes as Debezium's adjustment modes do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connectors.mysql.events.contract import Adjustment


def schema_name(name: str, mode: Adjustment) -> str:
    """``schema.name.adjustment.mode``: a full name, parts joined by dots."""
    return _adjust_name(name, mode, dots=True)


def field_name(name: str, mode: Adjustment) -> str:
    """``field.name.adjustment.mode``."""
    return _adjust_name(name, mode, dots=False)


def _adjust_name(name: str, mode: Adjustment, *, dots: bool) -> str:
    if mode == "none" or not name:
        return name
    escapes = mode == "avro_unicode"
    units = utf16_units(name)
    adjusted = []
    for index, unit in enumerate(units):
        letter = unit.isascii() and (unit.isalpha() or (unit == "_" and not escapes))
        if letter or (index and ((unit.isascii() and unit.isdigit()) or (dots and unit == "."))):
            adjusted.append(unit)
            continue
        adjusted.append(unicode_escape(unit) if escapes else "_")
        if not index and not escapes and unit.isdecimal():
            adjusted.append(unit)
    return "".join(adjusted)


def utf16_units(string: str) -> list[str]:
    """The UTF-16 units of a string, which are its characters in Java."""
    if string.isascii():
        return list(string)
    data = string.encode("utf-16-be", "surrogatepass")
    return [chr(int.from_bytes(data[index : index + 2])) for index in range(0, len(data), 2)]


def unicode_escape(unit: str) -> str:
    """``_u`` and the unit's number in hex, as Debezium writes it: two zeros come before one or two digits."""
    number = f"{ord(unit):x}"
    return f"_u00{number}" if len(number) <= 2 else f"_u{number}"
