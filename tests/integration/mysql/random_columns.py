"""Column types by chance: what is written into them, and which value an event shows for what the server has."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from struct import unpack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

#: Options of values that a workload draws, with their words.
VALUE_OPTIONS: Final = {
    "decimal.handling.mode": ("precise", "string", "double"),
    "time.precision.mode": ("adaptive_time_microseconds", "microseconds", "nanoseconds", "isostring"),
    "bigint.unsigned.handling.mode": ("long", "precise"),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
}
CHARSETS: Final = (
    *("utf8mb4", "utf8mb4", "utf8mb4", "utf8mb3", "latin1", "ucs2", "utf16", "utf32", "cp1251"),
    *("gbk", "sjis", "koi8r", "ascii", "latin2", "greek", "euckr", "ujis", "swe7", "utf16le"),
)
_STRINGS: Final = (
    *("''", "'a'", "'A'", "'a '", "'ab  '", "'ä'", "'Ä€ß'", "'it''s'", "'\\\\'", "'\\n\\0\\t'", "'Привет'", "'日本'"),
    *("'😀'", "'%s'", "'{x}'", "'null'", "'NULL'", "'0'", "REPEAT('xyz', 90)", "REPEAT('é', 130)", "'`\"`'"),
)
_KEY_STRINGS: Final = ("''", "'a'", "'A'", "'b '", "'ä'", "'Z'", "'it''s'", "'\\\\'", "'%s'", "'ß'", "'zz\\n'", "'_'")
_BYTES: Final = ("''", "X'00'", "X'00FF00'", "X'20'", "X'6162202000'", "X'FFFFFFFF'", "REPEAT(X'8000', 140)", "'ab '")
_DATES: Final = (
    *("1000-01-01", "9999-12-31", "1969-12-31", "1970-01-01", "2024-02-29", "0000-00-00", "2024-00-15", "2023-12-00"),
    *("0069-03-01", "0070-03-01", "1677-09-20", "1677-09-22", "2262-04-11", "2262-04-13", "1582-10-10"),
)
_CLOCKS: Final = ("00:00:00", "23:59:59.999999", "12:00:00.5", "07:08:09.120004", "00:00:00.000001")
_TIMES: Final = (
    *("-838:59:59", "838:59:59", "-838:59:58.999999", "838:59:58.999999", "00:00:00", "-00:00:01", "24:00:00"),
    *("-00:00:00.000001", "12:34:56.789012", "-12:34:56.7", "23:59:59.999999", "-01:00:00.5", "100:00:00"),
)
_STAMPS: Final = ("1970-01-01 00:00:01", "2038-01-19 03:14:07", "2024-03-31 02:30:00.123456", "2001-09-09 01:46:40.9")
_ZERO_STAMP: Final = "1970-01-01T00:00:00"
_SHAPES: Final = {
    "POINT": ("POINT(1 2)", "POINT(-0.5 1e10)"),
    "LINESTRING": ("LINESTRING(0 0,1 1)",),
    "POLYGON": ("POLYGON((0 0,4 0,4 4,0 0))",),
    "GEOMETRY": ("POINT(3 4)", "LINESTRING(0 0,1 1)", "MULTIPOINT((0 0),(1 1))"),
}
_LONG: Final = 1 << 63
_DAY: Final = 86_400_000_000

Shown = Callable[[Any, "Column", "Mapping[str, str]"], Any]


class Kind(NamedTuple):
    """A family of types.

    Attributes:
        declared: draws a type; "{charset}" is where a character set may be.
        literals: draws a value in SQL.
        keys: the same for a column of a key; None: it can't be in one.
        query: what a SELECT asks for; "{c}" is the column.
        shown: the event's value for what the SELECT gives.
        prefix: whether a key needs a length.
    """

    declared: Callable[[Random], str]
    literals: Callable[[Random, str], str]
    keys: Callable[[Random, str], str] | None
    query: str
    shown: Shown


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: as the server shows it.
        kind: key of ``KINDS``.
        declared: the type.
        nullable: whether it can be NULL.
        generated: the expression, or "".
        extra: what follows in the declaration.
    """

    name: str
    kind: str
    declared: str
    nullable: bool
    generated: str = ""
    extra: str = ""

    def renamed(self, name: str) -> Column:
        return replace(self, name=name)

    def sql(self) -> str:
        """Its declaration."""
        null = "" if self.generated else "NULL" if self.nullable else "NOT NULL"
        return f"{quoted(self.name)} {self.declared} {self.generated or null} {self.extra}".strip()

    def literal(self, chance: Random, *, key: bool) -> str:
        kind = KINDS[self.kind]
        if key and kind.keys is not None:
            return kind.keys(chance, self.declared)
        if self.nullable and chance.random() < 0.15:
            return "NULL"
        return kind.literals(chance, self.declared)

    def query(self) -> str:
        return KINDS[self.kind].query.replace("{c}", quoted(self.name))

    def shown(self, value: Any, options: Mapping[str, str]) -> Any:
        if value is None:
            return None
        return KINDS[self.kind].shown(value, self, options)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def draw_column(chance: Random, name: str, kinds: list[str]) -> Column:
    """A column that is in no key."""
    kind = chance.choice(kinds)
    declared = KINDS[kind].declared(chance)
    if "{charset}" in declared:
        charset = chance.choice(CHARSETS) if chance.random() < 0.5 else ""
        declared = declared.replace("{charset}", f" CHARACTER SET {charset}" if charset else "")
    # Values of some have no form in some modes: they are null then.
    nullable = kind in {"geometry", "date", "time", "datetime"} or chance.random() < 0.7
    return Column(name, kind, declared, nullable)


def draw_key_column(chance: Random, name: str) -> Column:
    """A column that tells rows apart in every mode of values."""
    kind = chance.choice(("integer", "integer", "integer", "bigint", *KEY_KINDS))
    if kind == "text":
        charset = chance.choice(("utf8mb4 COLLATE utf8mb4_bin", "utf8mb4", "latin1", "ascii", "utf16"))
        declared = f"{chance.choice(('VARCHAR(30)', 'CHAR(20)'))} CHARACTER SET {charset}"
    elif kind == "decimal":
        declared = "DECIMAL(12,3)"
    elif kind == "datetime":
        declared = chance.choice(("DATETIME", "DATETIME(3)"))
    elif kind == "bytes":
        declared = "VARBINARY(30)"
    else:
        declared = KINDS[kind].declared(chance).replace("{charset}", "")
    return Column(name, kind, declared, nullable=False)


# Literals.


def _one_of(*literals: str) -> Callable[[Random, str], str]:
    return lambda chance, _declared: chance.choice(literals)


def _quote(values: tuple[str, ...]) -> Callable[[Random, str], str]:
    return lambda chance, _declared: f"'{chance.choice(values)}'"


def _integer(chance: Random, declared: str) -> str:
    del declared
    bits = chance.choice((0, 7, 8, 15, 16, 23, 24, 31, 32, 63, 64))
    if chance.random() < 0.5:
        return str(chance.choice((-1, 1)) * chance.randrange(0, 200))
    return str(chance.choice(((1 << bits) - 1, 1 << bits, -(1 << bits), -1)))


def _key_integer(chance: Random, declared: str) -> str:
    small = chance.randrange(0, 100) if declared.startswith("TINYINT") else chance.randrange(-100, 400)
    far = 0 if "TINYINT" in declared or "SMALLINT" in declared else chance.choice((0, 0, 5_000, -9_000, 100_000))
    return str(abs(small + far) if "UNSIGNED" in declared else small + far)


def _decimal(chance: Random, declared: str) -> str:
    del declared
    digits = "".join(chance.choice("0123456789") for _ in range(chance.choice((1, 2, 9, 10, 18, 30))))
    return f"{chance.choice(('', '-'))}{digits}.{chance.choice(('0', '1', '5', '99', '123456789'))}"


def _float(chance: Random, declared: str) -> str:
    del declared
    return chance.choice(
        ("0", "1.1", "-3.4e38", "16777217", "0.1", "1e-30", "123456789.123456789", "-1e22", "3.14159", "1e38", "2e-45")
    )


def _bits(chance: Random, declared: str) -> str:
    size = int(declared[4:-1])
    return str(chance.choice((0, 1, (1 << size) - 1, 1 << (size - 1), chance.randrange(1 << size))))


def _moment(dates: tuple[str, ...]) -> Callable[[Random, str], str]:
    return lambda chance, _declared: f"'{chance.choice(dates)} {chance.choice(_CLOCKS)}'"


def _members(chance: Random, declared: str) -> str:
    count = declared.count("'") // 2
    return str(chance.randrange(0, count + 1)) if declared.startswith("ENUM") else str(chance.randrange(1 << count))


def _shape(chance: Random, declared: str) -> str:
    srid = chance.choice(("", "", ", 3857"))
    return f"ST_GeomFromText('{chance.choice(_SHAPES[declared])}'{srid})"


def _document(chance: Random, declared: str) -> str:
    del declared
    return chance.choice(
        (
            "'{\"a\": [1, 2.50, null]}'",
            "'[]'",
            "'{}'",
            "'\"text\"'",
            "'null'",
            '\'{"b":{"ä":"😀\\\\n"},"a":1e3}\'',
            "'[true,false,-0.001,123456789012345678]'",
        )
    )


# Values.


def _plain(value: Any, column: Column, options: Mapping[str, str]) -> Any:
    del column, options
    return value


def _unsigned(value: int, column: Column, options: Mapping[str, str]) -> Any:
    if "UNSIGNED" in column.declared:
        if options["bigint.unsigned.handling.mode"] == "precise":
            return Decimal(value)
        return value - 2 * _LONG if value >= _LONG else value
    return value


def _as_decimal(value: Decimal, column: Column, options: Mapping[str, str]) -> Any:
    del column
    mode = options["decimal.handling.mode"]
    return value if mode == "precise" else format(value, "f") if mode == "string" else float(value)


def _as_bits(value: str, column: Column, options: Mapping[str, str]) -> Any:
    del options
    size, number = int(column.declared[4:-1]), int(value or "0", 16)
    return bool(number) if size == 1 else number.to_bytes((size + 7) // 8, "little")


def _as_text(value: str, column: Column, options: Mapping[str, str]) -> str:
    del column, options
    return bytes.fromhex(value).decode("utf-8")


def _as_document(value: str, column: Column, options: Mapping[str, str]) -> str:
    """MySQL's own type, which events show without blanks."""
    return json.dumps(json.loads(_as_text(value, column, options)), ensure_ascii=False, separators=(",", ":"))


def _as_bytes(value: str, column: Column, options: Mapping[str, str]) -> Any:
    del column
    data = bytes.fromhex(value)
    mode = options["binary.handling.mode"]
    if mode == "bytes":
        return data
    if mode == "hex":
        return data.hex()
    return (base64.b64encode if mode == "base64" else base64.urlsafe_b64encode)(data).decode()


def _as_year(value: int, column: Column, options: Mapping[str, str]) -> int:
    del column, options
    return int(value) or 1900


def _days(text: str) -> int | None:
    year, month, day = map(int, text.split("-"))
    if not (year and month and day):
        return None
    if year < 100:
        year += 2000 if year < 70 else 1900
    return date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()


def _micros(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    return sign * (((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 1_000_000 + int(f"{fraction:0<6}"))


def _iso_clock(micros: int) -> str:
    seconds, rest = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return (f"{text}.{rest:06}".rstrip("0") if rest else text) + "Z"


def _as_date(value: str, column: Column, options: Mapping[str, str]) -> Any:
    days = _days(value)
    if days is None:
        days = None if column.nullable else 0
    if days is None or options["time.precision.mode"] != "isostring":
        return days
    return date.fromordinal(days + date(1970, 1, 1).toordinal()).isoformat() + "Z"


def _as_time(value: str, column: Column, options: Mapping[str, str]) -> Any:
    mode, micros = options["time.precision.mode"], _micros(value)
    if mode == "isostring":
        return _iso_clock(micros % _DAY) if 0 <= micros <= _DAY else None
    if mode == "nanoseconds":
        return micros * 1000
    return micros // 1000 if mode == "adaptive" and _digits(column) <= 3 else micros


def _digits(column: Column) -> int:
    return int(column.declared.partition("(")[2].rstrip(")") or "0")


def _as_datetime(value: str, column: Column, options: Mapping[str, str]) -> Any:
    mode = options["time.precision.mode"]
    day, clock = value.split(" ")
    days, micros = _days(day), _micros(clock)
    if days is None:
        if column.nullable:
            return None
        days = micros = 0
    total = days * 86_400_000_000 + micros
    if mode == "isostring":
        return date.fromordinal(days + date(1970, 1, 1).toordinal()).isoformat() + "T" + _iso_clock(micros)
    if mode == "nanoseconds":
        return total * 1000 if -_LONG <= total * 1000 < _LONG else None
    if mode == "microseconds" or _digits(column) > 3:
        return total
    return total // 1000


def _as_timestamp(value: str, column: Column, options: Mapping[str, str]) -> str:
    del options
    text = value.replace(" ", "T")
    if text.startswith("0000"):
        text = _ZERO_STAMP + ("." + "0" * _digits(column) if _digits(column) else "")
    return text + "Z"


def _as_geometry(value: str, column: Column, options: Mapping[str, str]) -> Any:
    del options
    srid, wkb = value.split(":")
    data = bytes.fromhex(wkb)
    shape: dict[str, Any] = {"wkb": data, "srid": int(srid) or None}
    if column.declared == "POINT":
        x, y = unpack("<dd", data[5:])
        shape = {"x": x, "y": y, **shape}
    return shape


def _digit_types(name: str) -> Callable[[Random], str]:
    return lambda chance: f"{name}({digits})" if (digits := chance.randrange(7)) else name


def _declared(*types: str) -> Callable[[Random], str]:
    return lambda chance: chance.choice(types)


_HEX: Final = "HEX(CONVERT({c} USING utf8mb4))"
_SANE_DATES: Final = ("2024-02-29", "1999-12-31", "1970-01-01", "2001-01-01", "1969-07-20", "2100-06-15")
KINDS: Final[dict[str, Kind]] = {
    "integer": Kind(
        _declared(
            *("TINYINT", "TINYINT(1)", "TINYINT UNSIGNED", "SMALLINT", "SMALLINT UNSIGNED", "MEDIUMINT"),
            *("MEDIUMINT UNSIGNED", "INT", "INT", "INT UNSIGNED", "INT(8) UNSIGNED ZEROFILL"),
        ),
        _integer,
        _key_integer,
        "{c}",
        _plain,
    ),
    "bigint": Kind(_declared("BIGINT", "BIGINT UNSIGNED"), _integer, _key_integer, "{c}", _unsigned),
    "decimal": Kind(
        _declared("DECIMAL(10,2)", "DECIMAL(65,30)", "DECIMAL(5)", "DECIMAL(18,9) UNSIGNED", "DECIMAL(30,0)"),
        _decimal,
        lambda chance, _declared: f"{chance.randrange(-90, 90)}.{chance.choice(('0', '5', '125'))}",
        "{c}",
        _as_decimal,
    ),
    "float": Kind(
        _declared("FLOAT", "DOUBLE", "FLOAT(7,4)", "DOUBLE(20,5)", "FLOAT UNSIGNED"),
        _float,
        None,
        "{c} + 0e0",
        _plain,
    ),
    "bit": Kind(_declared("BIT(1)", "BIT(9)", "BIT(33)", "BIT(64)"), _bits, None, "HEX({c})", _as_bits),
    "text": Kind(
        _declared(
            *("CHAR(5){charset}", "CHAR(60){charset}", "VARCHAR(20){charset}", "VARCHAR(300){charset}"),
            *("TINYTEXT{charset}", "TEXT{charset}", "MEDIUMTEXT{charset}", "LONGTEXT{charset}"),
        ),
        _one_of(*_STRINGS),
        _one_of(*_KEY_STRINGS),
        _HEX,
        _as_text,
    ),
    "bytes": Kind(
        _declared("BINARY(4)", "VARBINARY(20)", "VARBINARY(300)", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
        _one_of(*_BYTES),
        _one_of("''", "X'00'", "X'0000'", "X'FF'", "X'61'", "X'41'", "X'6120'", "'it''s'", "X'5C27'"),
        "HEX({c})",
        _as_bytes,
    ),
    "member": Kind(
        _declared(
            *("ENUM('a','b,c','d''e','ä'){charset}", "SET('r','g','b','ü'){charset}", "ENUM('x','y')", "SET('one')"),
        ),
        _members,
        None,
        _HEX,
        _as_text,
    ),
    "year": Kind(_declared("YEAR"), _one_of("1901", "2155", "0", "'69'", "2024"), None, "{c}", _as_year),
    "date": Kind(_declared("DATE"), _quote(_DATES), _quote(_SANE_DATES), "CAST({c} AS CHAR)", _as_date),
    "time": Kind(_digit_types("TIME"), _quote(_TIMES), None, "CAST({c} AS CHAR)", _as_time),
    "datetime": Kind(
        _digit_types("DATETIME"),
        _moment(_DATES),
        _moment(_SANE_DATES),
        "CAST({c} AS CHAR)",
        _as_datetime,
    ),
    "timestamp": Kind(
        _digit_types("TIMESTAMP"),
        _quote((*_STAMPS, "0000-00-00 00:00:00")),
        _quote(_STAMPS),
        "CAST({c} AS CHAR)",
        _as_timestamp,
    ),
    "geometry": Kind(
        _declared(*_SHAPES),
        _shape,
        None,
        "CONCAT(ST_SRID({c}), ':', HEX(ST_AsWKB({c})))",
        _as_geometry,
    ),
    "json": Kind(_declared("JSON"), _document, None, _HEX, _as_text),
    "document": Kind(_declared("JSON"), _document, None, _HEX, _as_document),
    "uuid": Kind(
        _declared("UUID"),
        _quote(("550e8400-e29b-41d4-a716-446655440000", "00000000-0000-0000-0000-000000000000")),
        lambda chance, _declared: f"'550e8400-e29b-41d4-a716-4466554400{chance.randrange(256):02x}'",
        "CAST({c} AS CHAR)",
        _plain,
    ),
    "inet": Kind(
        _declared("INET6"),
        _quote(("::", "::1", "2001:db8::ff00:42:8329", "::ffff:1.2.3.4", "1:0:0:2::")),
        None,
        "CAST({c} AS CHAR)",
        _plain,
    ),
    "inet4": Kind(_declared("INET4"), _quote(("1.2.3.4", "255.255.255.0")), None, "CAST({c} AS CHAR)", _plain),
    "compressed": Kind(
        _declared("TEXT COMPRESSED", "VARCHAR(200) COMPRESSED"), _one_of(*_STRINGS), None, _HEX, _as_text
    ),
}
#: Kinds that a key may have besides integers.
KEY_KINDS: Final = ("text", "text", "bytes", "decimal", "date", "datetime", "timestamp")
_MARIADB: Final = frozenset({"json", "uuid", "inet", "inet4", "compressed"})
_MYSQL: Final = frozenset({"document"})


def kinds_of(*, mysql: bool) -> list[str]:
    """The kinds that a server has."""
    return [kind for kind in KINDS if kind not in (_MARIADB if mysql else _MYSQL)]
