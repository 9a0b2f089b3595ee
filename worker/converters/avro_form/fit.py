"""For writing with a schema that is not the record's own: finds values that fastavro would bend until they fit.

It writes a number of 64 bits as an ``int``, which no other reader takes, infinity where a ``float`` is too small, the whole
part of a number with a fraction, and false for null. Of unions with several types besides null it takes a type that fits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Raises ``ValueError`` for a value that does not fit.
Check = Callable[[Any], None]

_BITS: Final = {"int": 31, "long": 63}
_SINGLE: Final = struct.Struct("<f").pack


def make_check(schema: Any, named: Mapping[str, Any]) -> Check | None:
    """The check of values, in the form fastavro takes; None where all that fastavro writes fits.

    Args:
        schema: as fastavro has parsed it.
        named: the types that it may refer to, by full name.
    """
    return _Checks(named).of(schema)


class _Checks:
    """Makes the checks of one schema; records may contain themselves."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._records: dict[str, Check] = {}

    def of(self, schema: Any) -> Check | None:
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            check = self.of(branches[0]) if len(branches) == 1 else None
            return None if check is None else _over_null(check)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in _BITS:
            return _integer_check(kind)
        if kind == "boolean":
            return _check_boolean
        if kind == "float":
            return _check_float
        if isinstance(schema, str):
            return self.of(self._named[schema]) if schema in self._named else None
        if kind in ("record", "error"):
            return self._record_check(schema)
        if kind in ("array", "map"):
            return _items_check(self.of(schema["items" if kind == "array" else "values"]))
        return self.of(kind) if isinstance(kind, dict | list) else None

    def _record_check(self, schema: Mapping[str, Any]) -> Check:
        earlier = self._records.get(schema["name"])
        if earlier is not None:
            return earlier
        checks: list[tuple[str, Check]] = []

        def check_record(value: Any) -> None:
            if isinstance(value, dict):
                for name, check in checks:
                    if name in value:
                        try:
                            check(value[name])
                        except ValueError as error:
                            raise ValueError(f"{name}: {error}") from None

        self._records[schema["name"]] = check_record
        for field in schema["fields"]:
            check = self.of(field["type"])
            if check is not None:
                checks.append((field["name"], check))
        return check_record


def _over_null(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _items_check(check: Check | None) -> Check | None:
    if check is None:
        return None

    def check_items(value: Any) -> None:
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            check(item)

    return check_items


def _integer_check(kind: str) -> Check:
    limit = 1 << _BITS[kind]

    def check_integer(value: Any) -> None:
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if not whole or isinstance(value, bool) or not -limit <= value < limit:
            raise ValueError(f"the value does not fit into {kind}")

    return check_integer


def _check_boolean(value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError("the value is no boolean")  # noqa: TRY004 - one error for what does not fit


def _check_float(value: Any) -> None:
    try:
        _SINGLE(value)
    except (struct.error, OverflowError):
        raise ValueError("the value does not fit into float") from None
