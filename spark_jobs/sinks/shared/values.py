"""Values of rows as text and as JSON. Pure."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import orjson

from spark_jobs.steps.lookup import values as lookup_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_jobs.sinks.shared.model import SinkRow

_WITHOUT_PARTS: Final = frozenset({str, int, bool, type(None), Decimal, datetime, date, bytes})
_JSON: Final = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS


class NoText(ValueError):
    """A value has no form as text; the message says why."""


def text_of(value: Any) -> str:
    """A value as text, in the form in which a step of type ``lookup`` writes keys; decimals without an exponent.

    Raises:
        NoText: bytes that are not UTF-8.
    """
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is int or kind is float:
        return repr(value)
    if kind is Decimal:
        return format(value, "f")
    if kind is list or kind is dict:
        return json_of(value).decode()
    try:
        return lookup_values.text_of(value)
    except UnicodeDecodeError:
        raise NoText("bytes that are not UTF-8 can't be put into text") from None


def json_of(value: Any) -> bytes:
    """A value as JSON: decimals as numbers with all digits, bytes in base64, instants in UTC, NaN and infinities as text."""
    finite = make_finite(value)
    try:
        return orjson.dumps(finite, default=_json_default, option=_JSON)
    except TypeError:  # a key of a map that is no name as it is
        return orjson.dumps(_with_names(finite), default=_json_default, option=_JSON)


def make_finite(value: Any) -> Any:
    """The value, with text in place of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value).replace("nan", "NaN").replace("inf", "Infinity")
    if isinstance(value, dict):
        return value if _is_plain(value.values()) else {key: make_finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return value if _is_plain(value) else [make_finite(item) for item in value]
    return value


def _with_names(value: Any) -> Any:
    """The value, with text in place of keys of maps that JSON does not take for names: bytes in base64, decimals."""
    if isinstance(value, dict):
        return {_make_name(key): _with_names(item) for key, item in value.items()}
    return [_with_names(item) for item in value] if isinstance(value, list) else value


def _make_name(key: Any) -> Any:
    if isinstance(key, bytes):
        return base64.b64encode(key).decode()
    return text_of(key) if isinstance(key, Decimal) else key


def _is_plain(items: Iterable[Any]) -> bool:
    """Whether JSON has all of the items as they are, without a look into others."""
    for item in items:
        kind = item.__class__
        if kind not in _WITHOUT_PARTS and (kind is not float or not math.isfinite(item)):
            return False
    return True


def build_document(row: SinkRow, *, active: bool = False) -> dict[str, Any]:
    """The row with its system fields ``ums_id_``, ``ums_ts_`` and ``ums_op_``; for ``json_of``.

    Args:
        row: the row.
        active: whether ``ums_active_`` belongs to it (``delete.mode=soft``).
    """
    fields = {**row.values, "ums_id_": row.order, "ums_ts_": row.time, "ums_op_": row.op}
    if active:
        fields["ums_active_"] = 0 if row.deleted else 1
    return fields


def _json_default(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f")) if value.is_finite() else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return lookup_values.text_of(value)
