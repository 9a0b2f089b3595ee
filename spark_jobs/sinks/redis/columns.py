"""Rows as the scripts get them: keys, guards and arguments; those of hashes a column at a time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from spark_jobs.sinks.shared.task import list_of, rows_of
from spark_jobs.sinks.shared.templates import Unfilled
from spark_jobs.sinks.shared.values import NoText, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_jobs.sinks.redis.config import RedisSettings
    from spark_jobs.sinks.shared.model import RowTable, SinkRow

#: What is added to a key for its guard (order numbers) and for the positions of a stream.
GUARD: Final = ":ums_id_"
#: Arrow writes decimals with more digits after the point with an exponent, if they are small.
_MOST_DIGITS: Final = 6
_SYSTEM: Final = ("ums_id_", "ums_ts_", "ums_op_")


@dataclass(slots=True)
class Calls:
    """Rows as a script gets them.

    Attributes:
        keys, guards, arguments: of each row.
        row: gives a row by its number.
    """

    keys: Sequence[str]
    guards: Sequence[str]
    arguments: Sequence[Sequence[Any]]
    row: Callable[[int], SinkRow]


def field_names(table: RowTable, *, soft: bool) -> tuple[str, ...]:
    """The fields of a table's hashes, in the order of their values."""
    system_fields = (*_SYSTEM, "ums_active_") if soft else _SYSTEM
    return (*(name for name in table.columns if name not in system_fields), *system_fields)


def hash_calls(settings: RedisSettings, table: RowTable, rows: pa.Table) -> Calls | None:
    """The calls for hashes; None where a row has no key or a value without text, so that they have to be made one by one.

    Args:
        settings: the sink's.
        table: the rows' table.
        rows: one per key, as ``task.rows_of`` takes them.
    """
    strings: dict[str, list[Any]] = {}

    def of_column(name: str) -> list[Any]:
        if name not in strings:
            strings[name] = texts_of(rows.column(name))
        return strings[name]

    deleted = "s" if settings.soft else "d"
    operations = of_column("ums_op_")
    try:
        keys = settings.key.fill(table, rows.num_rows, of_column)
        if settings.soft:
            strings["ums_active_"] = ["0" if operation == "d" else "1" for operation in operations]
        values = [of_column(name) for name in field_names(table, soft=settings.soft)]
    except (Unfilled, NoText):
        return None
    actions = [deleted if operation == "d" else "w" for operation in operations]
    arguments = list(zip(of_column("ums_id_"), actions, *values, strict=True))
    return Calls(
        keys, list(map(guard_of, keys)), arguments, lambda number: rows_of(rows.slice(number, 1), table.columns)[0]
    )


def texts_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, each as ``value_of`` gives it."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return list(column.to_numpy().tolist())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return list(column.cast(pa.string()).to_numpy().tolist())
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= _MOST_DIGITS:
        return list(column.cast(pa.string()).to_numpy().tolist())
    if pa.types.is_timestamp(kind):
        zone = "+00:00" if kind.tz == "UTC" else ""
        times = list_of(column.cast(pa.timestamp(kind.unit)) if zone else column)  # without a zone it is faster
        return [
            None if time is None else (time if isinstance(time, str) else time.isoformat()) + zone for time in times
        ]
    return [value_of(value) for value in list_of(column)]


def value_of(value: Any) -> Any:
    """A value as text, or as bytes; null is None.

    Raises:
        NoText: see ``values.text_of``.
    """
    if value is None:
        return None
    return pack_raw(value) if isinstance(value, bytes) else text_of(value)


def pack_raw(value: bytes) -> msgspec.Raw:
    """Bytes as a string of MessagePack, of 32 bits: the scripts' reader does not know its type for bytes."""
    return msgspec.Raw(b"\xdb" + len(value).to_bytes(4, "big") + value)


def guard_of(key: str) -> str:
    """The name of a key's guard: in a cluster it is in the same slot, unless braces of the key are no hash tag."""
    begin = key.find("{")
    tagged = begin >= 0 and key.find("}", begin) > begin + 1
    return f"{key}{GUARD}" if tagged else f"{{{key}}}{GUARD}"


def is_guard(key: str) -> bool:
    """Whether a key is the name of a guard, and not of a row whose key has the same end."""
    return key.endswith(GUARD) and (key.startswith("{") or guard_of(key.removesuffix(GUARD)) == key)
