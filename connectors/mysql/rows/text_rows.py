"""Rows of the text protocol, as snapshots read them, in the values of the stream. Pure.

``select_list`` asks for each column in a form from which the stream's value can be made without loss: strings as their
stored bytes, FLOAT as DOUBLE, TIMESTAMP as seconds since 1970. Sessions have to get results in utf8mb4 or
unconverted (``SET NAMES utf8mb4``, ``character_set_results = NULL``); their time zone and SQL mode don't matter.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connectors.codegen import CodeBuilder, dict_display
from connectors.errors import Fatal, Skippable
from connectors.mysql.rows.charsets import charset_of
from connectors.mysql.rows.decode_columns import guard_function, read_vector, text_expression
from connectors.mysql.rows.geometry import read_geometry, read_point
from connectors.mysql.rows.json_binary import from_server_text
from connectors.mysql.rows.type_values import EXACT, binary_value, decimal_value, wrap_unsigned
from connectors.mysql.schema import type_codes as codes
from connectors.mysql.schema import types_temporal as temporal
from connectors.mysql.schema.types import ColumnKind, datetime_unit, fraction, kind_of
from connectors.mysql.schema.types_defaults import missing_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.mysql.model import ColumnPlan, MySqlColumn, MySqlTable
    from connectors.mysql.schema.types import ValueOptions

_WORD: Final = re.compile(r"\$(\w)")
_NULL: Final = 251
_PLAIN_CHARSETS: Final = frozenset({"utf8mb4", "utf8mb3", "ascii"})


class BadTextRow(Skippable):
    """One row of a snapshot can't be decoded.

    Attributes:
        column: the column it fails at, "" if unknown.
        reason: why.
        raw: the row as the server sent it.
    """

    def __init__(self, table: str, column: str, reason: str, raw: bytes) -> None:
        self.column = column
        self.reason = reason
        self.raw = raw
        super().__init__(f"a row of {table}: {f'column {column}' if column else 'a column'} can't be decoded: {reason}")


def quote_name(name: str) -> str:
    """A name as SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


def select_list(table: MySqlTable, plans: Sequence[ColumnPlan | None]) -> list[str]:
    """The expressions to select, for the columns with a plan in their order."""
    return [select_expression(column) for column, plan in zip(table.columns, plans, strict=True) if plan is not None]


def select_expression(column: MySqlColumn) -> str:
    """The SQL expression by which one column is to be read."""
    name = quote_name(column.name)
    match kind_of(column):
        case ColumnKind.TEXT | ColumnKind.ENUM | ColumnKind.SET if (
            charset_of(column.collation or 0).name not in _PLAIN_CHARSETS
        ):
            # As stored: the server's conversion to the session's charset and ours could differ.
            return f"CAST({name} AS BINARY)"
        case ColumnKind.FLOAT | ColumnKind.DOUBLE:
            # A float is sent with six digits, a double with declared decimals with those; as plain doubles all digits are sent.
            return f"{name} + 0e0"
        case ColumnKind.TIMESTAMP:
            return f"UNIX_TIMESTAMP({name})"
        case ColumnKind.JSON:
            return f"CAST({name} AS CHAR CHARACTER SET utf8mb4)"
    return name


def compile_text(
    table: MySqlTable, plans: Sequence[ColumnPlan | None], options: ValueOptions
) -> Callable[[bytes], dict[str, Any]]:
    """The decoder of one row packet of ``SELECT select_list(...)``; further values in the packet are left alone.

    Returns:
        The decoder: column name to the value after the plan's transform. It raises BadTextRow.
    """
    code = CodeBuilder(lengths={252: 2, 253: 3, 254: 8}, from_bytes=int.from_bytes)
    code.add(0, "def row(data):")
    code.add(1, "p = 0")
    shown: list[tuple[str, str]] = []
    for index, (column, plan) in enumerate(zip(table.columns, plans, strict=True)):
        if plan is None:
            continue
        _add_column(code, index, plan, _value_code(column, options))
        shown.append((column.name, f"v{index}"))
    code.add(1, f"return {dict_display(shown)}")
    fast: Callable[[bytes], dict[str, Any]] = code.function("row", f"text rows of {table.name}")

    def row(data: bytes) -> dict[str, Any]:
        try:
            return fast(data)
        except Exception as error:
            column = code.find_note(error.__traceback__)
            raise BadTextRow(str(table.name), column, str(error) or type(error).__name__, data) from error

    return row


def _add_column(code: CodeBuilder, index: int, plan: ColumnPlan, value: tuple[str, dict[str, Any]]) -> None:
    """Add the reading of one column."""
    template, names = value
    target = f"v{index}"
    words = {
        **{stem: code.bind(stem, bound_value) for stem, bound_value in names.items()},
        "0": "data[p:(p := p + n)]",
        "t": f"t{index}",
        "y": f"y{index}",
    }
    transform = code.bind("mask", plan.transform) if plan.transform is not None else None

    def add(depth: int, line: str) -> None:
        code.add(depth, line, plan.column.name)

    add(1, "n = data[p]")
    add(1, "p += 1")
    add(1, f"if n == {_NULL}:")
    add(2, f"{target} = {f'{transform}(None)' if transform is not None and plan.nulls else None}")
    add(1, "else:")
    add(2, f"if n > {_NULL}:")
    add(3, "n = from_bytes(data[p:p + (s := lengths[n])], 'little')")
    add(3, "p += s")
    add(2, f"{target} = {_WORD.sub(lambda match: words[match[1]], template)}")
    if transform is not None:
        add(
            2,
            f"{target} = {transform}({target})"
            if plan.nulls
            else f"if {target} is not None: {target} = {transform}({target})",
        )


def _value_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    """The expression of a value from the text ``$0``, and what it refers to."""
    kind = kind_of(column)
    make = _MAKERS.get(kind)
    if make is None:
        raise Fatal(f"column {column.name} ({column.declared}) can't be read; leave it out with column.exclude.list")
    return make(column, options)


def _integer_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    if column.unsigned and column.type == codes.LONGLONG:
        if options.bigint_unsigned_mode == "precise":
            return "$f(int($0))", {"f": Decimal}
        return "$f(int($0))", {"f": wrap_unsigned}
    return "int($0)", {}


def _decimal_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    del column
    # A negative zero, which the binlog doesn't have, becomes zero.
    if options.decimal_mode == "precise":
        return "$p($f($0.decode()))", {"f": Decimal, "p": EXACT.plus}
    return "$g($p($f($0.decode())))", {"f": Decimal, "p": EXACT.plus, "g": decimal_value(options.decimal_mode)}


def _float_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    del column, options
    return "float($0)", {}


def _boolean_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    del column, options
    return "$0 != b'\\0'", {}


def _bits_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    del options
    size = (column.meta + 7) // 8
    return f"$0.rjust({size}, b'\\0')[::-1]", {}


def _text_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    template, names = text_expression(charset_of(column.collation or 0).name, options.charset_errors)
    return template, names


def _bytes_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    if options.binary_mode == "bytes":
        return "$0", {}
    del column
    return "$f($0)", {"f": binary_value(options.binary_mode)}


def _year_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    del column, options
    # The binlog's 0 stands for the year 0000 and is read as 1900, as Debezium does.
    return "int($0) or 1900", {}


def _or_missing(template: str, column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    missing = missing_value(column, options)
    if missing is None:
        return template, {}
    return f"$z if ($t := {template}) is None else $t", {"z": missing}


def _day_settings(options: ValueOptions) -> dict[str, Any]:
    return {"adjust": options.enable_time_adjuster, "lenient": options.invalid_dates == "epoch"}


def _date_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    table = temporal.text_days(**_day_settings(options), text="Z" if options.time_mode == "isostring" else "")
    template, names = _or_missing("$d[$0]", column, options)
    return template, {"d": table, **names}


def _time_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    show = guard_function(temporal.time_value(options.time_mode, fraction(column)), column, options)
    return "$f($g($0))", {"f": show, "g": temporal.text_micros}


def _datetime_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    unit = datetime_unit(fraction(column), options)
    as_text = unit == "text"
    factor = 1 if as_text else temporal.unit_factor(unit)
    digits = fraction(column)
    days = temporal.text_days(
        **_day_settings(options), text="T" if as_text else "", factor=temporal.DAY_SECONDS * factor
    )
    missing, fit = missing_value(column, options), guard_function(temporal.in_int64, column, options)
    if unit in ("ms", "us"):
        names = {"d": days, "c": temporal.text_clocks(factor), "s": temporal.text_seconds(factor), "z": missing}
        fraction_code = f" + int($t[20:]) * {factor} // {10**digits}" if digits else ""
        return (
            "$z if ($y := $d[($t := $0)[:10]]) is None else $y + $c[$t[11:16]] + $s[$t[17:19]]" + fraction_code
        ), names

    def read(shown: bytes) -> Any:
        day: Any = days[shown[:10]]
        if day is None:
            return missing
        hour, minute, second = int(shown[11:13]), int(shown[14:16]), int(shown[17:19])
        micros = int(shown[20:].ljust(6, b"0")) if digits else 0
        if as_text:
            return day + temporal.clock_text(hour << 12 | minute << 6 | second, micros)
        return fit(day + (hour * 3600 + minute * 60 + second) * factor + micros * 1000)

    return "$f($0)", {"f": read}


def _timestamp_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    del options
    digits = fraction(column)
    names: dict[str, Any] = {
        "d": temporal.day_texts(),
        "m": temporal.MINUTE_TEXTS,
        "s": temporal.SECOND_TEXTS["." if digits else "Z"],
    }
    if not digits:
        return "$d[($t := int($0)) // 86400] + $m[$t // 60 % 1440] + $s[$t % 60]", names
    days, minutes, seconds = names["d"], names["m"], names["s"]

    def read(shown: bytes) -> str:
        whole, _, fraction_digits = shown.partition(b".")
        second = int(whole)
        end = fraction_digits.decode("ascii")[:digits].ljust(digits, "0")
        return f"{days[second // 86400]}{minutes[second // 60 % 1440]}{seconds[second % 60]}{end}Z"

    return "$f($0)", {"f": read}


def _json_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    del column, options
    return "$f($0.decode())", {"f": from_server_text}


def _plain_code(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
    del column, options
    return "$0.decode()", {}


def _function_code(
    function: Callable[[bytes], Any],
) -> Callable[[MySqlColumn, ValueOptions], tuple[str, dict[str, Any]]]:
    def make(column: MySqlColumn, options: ValueOptions) -> tuple[str, dict[str, Any]]:
        del column, options
        return "$f($0)", {"f": function}

    return make


_MAKERS: Final[dict[ColumnKind, Callable[[MySqlColumn, ValueOptions], tuple[str, dict[str, Any]]]]] = {
    ColumnKind.INTEGER: _integer_code,
    ColumnKind.DECIMAL: _decimal_code,
    ColumnKind.FLOAT: _float_code,
    ColumnKind.DOUBLE: _float_code,
    ColumnKind.BOOLEAN: _boolean_code,
    ColumnKind.BITS: _bits_code,
    ColumnKind.TEXT: _text_code,
    ColumnKind.BYTES: _bytes_code,
    ColumnKind.ENUM: _text_code,
    ColumnKind.SET: _text_code,
    ColumnKind.YEAR: _year_code,
    ColumnKind.DATE: _date_code,
    ColumnKind.TIME: _time_code,
    ColumnKind.DATETIME: _datetime_code,
    ColumnKind.TIMESTAMP: _timestamp_code,
    ColumnKind.JSON: _json_code,
    ColumnKind.GEOMETRY: _function_code(read_geometry),
    ColumnKind.POINT: _function_code(read_point),
    ColumnKind.VECTOR: _function_code(read_vector),
    ColumnKind.UUID: _plain_code,
    ColumnKind.INET4: _plain_code,
    ColumnKind.INET6: _plain_code,
}
