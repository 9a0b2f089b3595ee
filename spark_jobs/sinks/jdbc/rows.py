"""Rows in Arrow: the newest of each key, and whole columns turned into the text that databases load.

Nothing here loops over rows in Python: a chunk of rows becomes one buffer by a handful of calls per column.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.formats.ums import date_text, datetime_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Columns with a row's position in Kafka, in addition to those that are written.
TOPIC, PARTITION, OFFSET = "kafka_topic_", "kafka_partition_", "kafka_offset_"
POSITION: Final = (TOPIC, PARTITION, OFFSET)
_NUMBER: Final = "row_number_"
#: Days from 1970 within which Arrow writes dates right: the years of its text have 16 bits.
_DAYS: Final = 30_000 * 365
#: Nanoseconds of a day.
DAY_NS: Final = 86_400 * 10**9
_HOUR_US: Final = 3_600 * 10**6
_COPY_ESCAPES: Final = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_LITERAL_ESCAPES: Final = (("\\", "\\\\"), ("'", "\\'"), ("\0", "\\0"))


def select_newest(rows: pa.Table, keys: Sequence[str], version: str = "ums_id_") -> pa.Table:
    """One row per key, the one with the largest version, sorted by key (so that all writers lock in one order). Pure.

    Of rows with the same key and version the one that stood last in Kafka is kept, and of those of one message the last; the
    database, too, lets the one that is written later win, so that it does not matter how rows are cut into batches.
    """
    if rows.num_rows < 2:
        return rows
    rows = rows.combine_chunks()
    plain = spell_nested(rows, keys)
    if plain is not rows:
        numbered = plain.append_column(_NUMBER, pa.array(np.arange(rows.num_rows)))
        return rows.take(select_newest(numbered, keys, version).column(_NUMBER))
    order = [*((key, "ascending") for key in keys), (version, "ascending")]
    ordered = rows.take(pc.sort_indices(rows, sort_keys=order))
    differs = _find_changes(ordered, keys)
    ties = ~(differs | _find_changes(ordered, [version]))
    if ties.any():
        order += [(name, "ascending") for name in POSITION]
        ordered = rows.take(pc.sort_indices(rows, sort_keys=order))  # a stable sort: rows of one message stay in order
    if differs.all():
        return ordered
    return ordered.filter(pa.array(np.concatenate((differs, [True]))))


def spell_nested(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows, with text instead of structs, arrays and maps in some columns: Arrow neither compares nor sorts these. Pure."""
    for name in names:
        if pa.types.is_nested(rows.column(name).type):
            spelled = [None if value is None else repr(value) for value in python_values(rows.column(name))]
            rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(spelled, pa.large_string()))
    return rows


def _find_changes(rows: pa.Table, columns: Sequence[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each row but the first, whether it differs from the one before it in any of the columns."""
    result = np.zeros(rows.num_rows - 1, dtype=np.bool_)
    for name in columns:
        column = rows.column(name).combine_chunks()
        unequal = pc.not_equal(column[1:], column[:-1])
        if pa.types.is_floating(column.type):
            nan = pc.is_nan(column)  # as databases have it, NaN equals NaN
            unequal = pc.and_kleene(unequal, pc.invert(pc.and_(nan[1:], nan[:-1])))
        if unequal.null_count:
            # Null equals null, and nothing else.
            unequal = pc.if_else(pc.is_null(unequal), pc.xor(pc.is_null(column[1:]), pc.is_null(column[:-1])), unequal)
        result |= unequal.to_numpy(zero_copy_only=False)
    return result


def at_offset_boundary(rows: pa.Table) -> int:
    """How many leading rows can be committed: all but the last record's, of which more rows may follow. Pure.

    Args:
        rows: sorted by ``POSITION``.
    """
    if rows.num_rows < 2:
        return 0
    changes = np.flatnonzero(_find_changes(rows, POSITION))
    return int(changes[-1]) + 1 if len(changes) else 0


def with_clocks(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows, with nanoseconds since midnight in ``columns`` as text. Pure."""
    for name in columns:
        rows = rows.set_column(rows.schema.get_field_index(name), name, clock_text(rows.column(name).combine_chunks()))
    return rows


def has_more_digits(times: pa.Array | pa.ChunkedArray, digits: int) -> Any:
    """A mask of the times that have more digits after the second than those; microseconds have six. Pure."""
    micros = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    unit = 10 ** max(0, 6 - digits)
    return pc.not_equal(pc.multiply(pc.divide(micros, unit), unit), micros).fill_null(False)


def has_nanoseconds(clocks: pa.Array | pa.ChunkedArray) -> Any:
    """A mask of the times of the day, in nanoseconds, that have more digits than microseconds. Pure."""
    return pc.not_equal(pc.multiply(pc.divide(clocks, 1000), 1000), clocks).fill_null(False)


def with_uuids(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows, with one spelling for each UUID in ``columns``. Pure."""
    for name in columns:
        rows = rows.set_column(rows.schema.get_field_index(name), name, uuid_text(rows.column(name).combine_chunks()))
    return rows


def uuid_text(column: pa.Array) -> pa.Array:
    """UUIDs in lower case with hyphens (8-4-4-4-12), also from digits alone or in braces; other text is kept. Pure."""
    string_type = pa.string()
    digits = pc.replace_substring_regex(pc.utf8_lower(column.cast(string_type)), "[-{}]", "")
    parts = [
        pc.utf8_slice_codeunits(digits, start, stop) for start, stop in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    ]
    spelled = pc.binary_join_element_wise(*parts, pa.scalar("-", string_type))
    return pc.if_else(pc.match_substring_regex(digits, "^[0-9a-f]{32}$"), spelled, column.cast(string_type))


def clock_text(nanoseconds: pa.Array) -> pa.Array:
    """``[-]HH:MM:SS.ffffff``; digits beyond microseconds are cut, hours may be more than a day's, nulls are kept. Pure."""
    negative = pc.less(nanoseconds, 0)
    # Both divisions are of whole numbers and round to zero; the smallest number of 64 bits has no absolute value before one.
    micros = pc.abs(pc.divide(nanoseconds, 1000))
    hours = pc.divide(micros, _HOUR_US)
    time_of_hour = pc.subtract(micros, pc.multiply(hours, _HOUR_US)).cast(pa.time64("us")).cast(pa.large_string())
    string_type = pa.large_string()
    parts = (
        pc.if_else(negative, pa.scalar("-", string_type), pa.scalar("", string_type)),
        pc.utf8_lpad(hours.cast(string_type), 2, "0"),
        pc.utf8_slice_codeunits(time_of_hour, 2),
    )
    return pc.binary_join_element_wise(*parts, pa.scalar("", string_type))


def to_hexadecimal(column: pa.Array) -> pa.Array:
    """Bytes as hexadecimal digits, nulls kept. Pure."""
    column = column.cast(pa.large_binary())
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    digits = b"" if data is None else binascii.hexlify(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
    mask = None if not column.null_count else pc.is_null(column)
    moved = pa.py_buffer(((offsets - offsets[0]) * 2).astype(np.int64).tobytes())
    result = pa.Array.from_buffers(pa.large_string(), len(column), [None, moved, pa.py_buffer(digits)])
    if mask is not None:
        result = pc.if_else(mask, pa.scalar(None, pa.large_string()), result)
    return result


def _escape_column(column: pa.Array, escapes: Sequence[tuple[str, str]]) -> pa.Array:
    data = column.buffers()[2]
    if data is None:
        return column
    column_bytes = data.to_pybytes()
    for character, replacement in escapes:
        if (
            character.encode() in column_bytes
        ):  # one pass of memchr instead of a new column, where there is nothing to escape
            column = pc.replace_substring(column, pattern=character, replacement=replacement)
    return column


def plain_text(column: pa.Array, *, zone: bool) -> pa.Array:
    """Values that need no escaping as text: numbers, booleans, dates and times; ``zone``: times say that they are UTC."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None and not zone:
        column = column.cast(pa.timestamp(kind.unit))  # the same instant, written in UTC
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return time_text(column)
    return column.cast(pa.large_string())


def time_text(column: pa.Array) -> pa.Array:
    """Dates and times as text, of any year, with a Z where they are instants. Pure."""
    kind = column.type
    days = pa.types.is_date32(kind)
    numbers = column.cast(pa.int32()) if days else column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    limit = _DAYS if days else _DAYS * DAY_NS // 1000
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None or (-limit < ends["min"] and ends["max"] < limit):
        return column.cast(pa.large_string())
    end = "" if days or kind.tz is None else "Z"
    write = date_text if days else datetime_text
    return pa.array(
        [None if number is None else f"{write(number)}{end}" for number in numbers.to_pylist()], pa.large_string()
    )


def python_values(column: pa.Array | pa.ChunkedArray, maps: Literal["lossy"] | None = None) -> list[Any]:
    """``to_pylist``, with text in place of dates and times beyond Python's years: a value with parts has text for all. Pure.

    Args:
        column: the values.
        maps: ``maps_as_pydicts`` of Arrow's.
    """
    try:
        return list(column.to_pylist(maps_as_pydicts=maps))
    except OverflowError:
        return [_python_value(column.slice(number, 1), maps) for number in range(len(column))]


def _python_value(value: pa.Array | pa.ChunkedArray, maps: Literal["lossy"] | None) -> Any:
    try:
        return value.to_pylist(maps_as_pydicts=maps)[0]
    except OverflowError:
        if pa.types.is_nested(value.type):
            return value.cast(_with_text(value.type)).to_pylist(maps_as_pydicts=maps)[0]
        whole = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
        text: str = time_text(whole)[0].as_py()
        return text.replace(" ", "T").replace("Z", "+00:00")


def _with_text(kind: pa.DataType) -> pa.DataType:
    """The type with text in place of dates and times. Pure."""
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_map(kind):
        return pa.map_(_with_text(kind.key_type), _with_text(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(member.name, _with_text(member.type)) for member in kind])
    return pa.list_(_with_text(kind.value_type)) if pa.types.is_nested(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def copy_buffer(rows: pa.Table, columns: Sequence[str]) -> pa.Buffer:
    """The rows as PostgreSQL's COPY text format, one buffer. Pure.

    Source: PostgreSQL's manual, COPY, "Text Format". Bytes are written as ``bytea``'s hex form.
    """
    text_columns: list[pa.Array] = []
    for name in columns:
        column = rows.column(name).combine_chunks()
        if _is_text(column.type):
            text_columns.append(_escape_column(column.cast(pa.large_string()), _COPY_ESCAPES))
        elif _is_bytes(column.type):
            text_columns.append(
                pc.binary_join_element_wise(
                    pa.scalar("\\\\x", pa.large_string()), to_hexadecimal(column), pa.scalar("", pa.large_string())
                )
            )
        else:
            text_columns.append(plain_text(column, zone=True))
    lines = _join_columns(text_columns, "\t", "\\N", "", "\n")
    return _read_column_bytes(lines)


def literal_rows(rows: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Each row as ``(value,value,...),`` with literals for MySQL's parser (backslash escapes on). Pure.

    Numbers with fractions are quoted, because an unquoted one with an exponent would become a double on its way to a decimal.
    """
    text_columns: list[pa.Array] = []
    for name in columns:
        column = rows.column(name).combine_chunks()
        kind = column.type
        if pa.types.is_boolean(kind):
            text_columns.append(column.cast(pa.int8()).cast(pa.large_string()))
        elif pa.types.is_integer(kind):
            text_columns.append(column.cast(pa.large_string()))
        elif _is_bytes(kind):
            text_columns.append(_quote_column(to_hexadecimal(column), "x'"))
        elif _is_text(kind):
            text_columns.append(_quote_column(_escape_column(column.cast(pa.large_string()), _LITERAL_ESCAPES), "'"))
        else:
            text_columns.append(_quote_column(plain_text(column, zone=False), "'"))
    return _join_columns(text_columns, ",", "NULL", "(", "),")


def split_statements(rows: pa.Array, limit: int) -> Iterator[bytes]:
    """The rows of ``literal_rows`` as lists of at most about ``limit`` bytes (a row may be longer), without the last comma."""
    if not len(rows):
        return
    offsets = np.frombuffer(rows.buffers()[1], dtype=np.int64)[rows.offset : rows.offset + len(rows) + 1]
    data = memoryview(rows.buffers()[2])
    first = 0
    while first < len(rows):
        last = int(np.searchsorted(offsets, offsets[first] + limit, side="right")) - 1
        last = max(last, first + 1)
        yield bytes(data[int(offsets[first]) : int(offsets[last]) - 1])
        first = last


def _quote_column(column: pa.Array, opening: str) -> pa.Array:
    string_type = pa.large_string()
    return pc.binary_join_element_wise(
        pa.scalar(opening, string_type), column, pa.scalar("'", string_type), pa.scalar("", string_type)
    )


def _join_columns(text_columns: Sequence[pa.Array], separator: str, null: str, opening: str, closing: str) -> pa.Array:
    string_type = pa.large_string()
    line = pc.binary_join_element_wise(
        *text_columns, pa.scalar(separator, string_type), null_handling="replace", null_replacement=null
    )
    return pc.binary_join_element_wise(
        pa.scalar(opening, string_type), line, pa.scalar(closing, string_type), pa.scalar("", string_type)
    )


def _read_column_bytes(column: pa.Array) -> pa.Buffer:
    """All values of a column without nulls, one after the other."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64)
    begin, end = int(offsets[column.offset]), int(offsets[column.offset + len(column)])
    data = column.buffers()[2]
    return pa.py_buffer(b"") if data is None else data.slice(begin, end - begin)
