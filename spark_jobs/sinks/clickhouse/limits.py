"""Values that ClickHouse would change on their way into a column, without an error. Pure."""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sinks.clickhouse.columns import name_parts, split_parts, strip_type
from spark_jobs.sinks.jdbc.rows import has_more_digits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LONG: Final = (1 << 63) - 1
#: Type -> the smallest and the largest whole number that stays what it is. An insert makes another one of those beyond.
_WHOLE_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    **{f"UInt{bits}": (0, min((1 << bits) - 1, _LONG)) for bits in (8, 16, 32, 64, 128, 256)},
    "Bool": (0, 1),
    "Date": (0, (1 << 16) - 1),
    "DateTime": (0, (1 << 32) - 1),
    "Float32": (-(1 << 24), 1 << 24),
    "Float64": (-(1 << 53), 1 << 53),
}
_SECOND_US: Final = 1_000_000
_FRACTION: Final = re.compile(r"DateTime64\((\d)")


def find_changed(column: pa.Array, kind: str) -> pa.Array | None:
    """A mask of the values that a column of that type would change; None where it changes none.

    Args:
        column: the values.
        kind: ClickHouse's type, one that ``columns.can_hold`` accepts.
    """
    kind = strip_type(kind)
    outer, _, rest = kind.partition("(")
    of = column.type
    if pa.types.is_integer(of) and outer in _WHOLE_NUMBERS:
        return _beyond(column.cast(pa.int64()), *_WHOLE_NUMBERS[outer])
    if pa.types.is_timestamp(of) and outer.startswith("DateTime"):
        return _find_changed_times(column, kind)
    if outer not in ("Array", "Map", "Tuple"):
        return None
    parts = split_parts(rest[:-1])
    if pa.types.is_map(of):
        column = column.cast(pa.list_(pa.struct([("key", of.key_type), ("value", of.item_type)])))
        return _find_changed_elements(column, f"Tuple({', '.join(parts)})")
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return _find_changed_elements(column, parts[0])
    if pa.types.is_struct(of):
        names = name_parts(parts)
        kinds = [names.get(field.name, "") for field in of] if names else parts
        return _any_of(find_changed(*pair) for pair in zip(column.flatten(), kinds, strict=True))
    return None


def _find_changed_times(times: pa.Array, kind: str) -> pa.Array | None:
    """Times with more digits than the type has; DateTime has no years but those of its 32 bits, too."""
    match = _FRACTION.match(kind)
    cut = _none_if_false(has_more_digits(times, int(match[1]) if match else 0))
    if match is not None:
        return cut
    low, high = _WHOLE_NUMBERS["DateTime"]
    micros = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    return _any_of((cut, _beyond(micros, low, high * _SECOND_US)))


def _find_changed_elements(lists: pa.Array, kind: str) -> pa.Array | None:
    """Lists with an element that would change."""
    changed = find_changed(lists.flatten(), kind)
    if changed is None:
        return None
    positions = pc.list_parent_indices(lists).filter(changed)
    return pc.is_in(pa.array(range(len(lists)), positions.type), positions)


def _beyond(numbers: pa.Array, low: int, high: int) -> pa.Array | None:
    return _none_if_false(pc.or_(pc.less(numbers, low), pc.greater(numbers, high)))


def _any_of(masks: Iterable[pa.Array | None]) -> pa.Array | None:
    there = [mask for mask in masks if mask is not None]
    return reduce(pc.or_, there) if there else None


def _none_if_false(mask: pa.Array) -> pa.Array | None:
    mask = mask.fill_null(False)
    return mask if pc.any(mask).as_py() else None
