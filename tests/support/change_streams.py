"""Random change streams: tables that change, the events that a connector sends of them, and what they leave behind.

A seed draws tables, rows, and changes of both. ``newest_rows`` says in plain Python what a target has to hold. Neither knows
anything of the code that reads the events; ``change_messages`` writes them as bytes.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
import uuid
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connectors.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type
from connectors.schema import struct as struct_schema

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence


Row = dict[str, Any]
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - times of the model are UTC without a zone
_DAY: Final = dt.date(1970, 1, 1)
_STRINGS: Final = (
    "",
    "a",
    "null",
    "quotes ' \" ` \\ % {}",
    "lines\n\t",
    "\u00e9\u4f60\U0001f600",
    "x" * 3000,
    "0",
    "{}",
)


def _optional(kind: Type, name: str | None = None, **parameters: str) -> Schema:
    return Schema(kind, optional=True, name=name, parameters=tuple(parameters.items()))


def _draw_moment(chance: random.Random) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=chance.randrange(-(10**15), 8 * 10**15) // 1000 * 1000)


def _draw_string(chance: random.Random) -> str:
    return chance.choice(_STRINGS) + str(chance.randrange(3))


def _draw_code(chance: random.Random) -> str:
    return chance.choice(("", "A", "a", "a ", "\u00e9", "it's", "null")) + chance.choice(("", "1"))


def _draw_decimal(chance: random.Random, scale: int = 2) -> Decimal:
    digits = chance.choice((3, 9, 30))
    return Decimal(chance.randrange(-(10**digits), 10**digits)).scaleb(-scale)


def _draw_float(chance: random.Random) -> float:
    return chance.choice((0.0, 0.1, -1.5, 1e300, 1e-300, chance.random()))


def _as_float32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:  # of a column that has become a double
        return value


def _micros(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def _keep(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of columns.

    Attributes:
        name: of it.
        schema: as a connector has it.
        draw: draws a value of the model.
        wire: the value as a connector has it.
        family: how values are read back: see ``read_value``.
        ums: its type in UMS; empty where UMS has none.
        wider: the kind that a change of the table may turn it into.
    """

    name: str
    schema: Schema
    draw: Callable[[random.Random], Any]
    family: str
    wire: Callable[[Any], Any] = _keep
    ums: str = ""
    wider: str = ""


def _whole(kind: Type, bits: int, ums: str = "", wider: str = "") -> Kind:
    bound = 1 << (bits - 1)
    return Kind(
        kind.value,
        _optional(kind),
        lambda chance: chance.choice((0, 1, -bound, bound - 1, chance.randrange(-bound, bound))),
        "whole",
        ums=ums,
        wider=wider,
    )


_TIMES: Final = "io.debezium.time."
KINDS: Final = {
    kind.name: kind
    for kind in (
        _whole(Type.INT8, 8, wider="int16"),
        _whole(Type.INT16, 16, wider="int32"),
        _whole(Type.INT32, 32, "int", "int64"),
        _whole(Type.INT64, 64, "long"),
        Kind(
            "float",
            _optional(Type.FLOAT32),
            lambda chance: _as_float32(chance.choice((0.0, -1.5, 16777216.0, chance.random()))),
            "float32",
            ums="float",
            wider="double",
        ),
        Kind("double", _optional(Type.FLOAT64), _draw_float, "float", ums="double"),
        Kind("boolean", _optional(Type.BOOLEAN), lambda chance: chance.random() < 0.5, "boolean", ums="boolean"),
        Kind("string", _optional(Type.STRING), _draw_string, "string", ums="string"),
        Kind("code", _optional(Type.STRING), _draw_code, "string", ums="string"),
        Kind(
            "bytes",
            _optional(Type.BYTES),
            lambda chance: chance.randbytes(chance.choice((0, 1, 300))),
            "bytes",
            ums="binary",
        ),
        Kind("decimal2", _optional(Type.BYTES, DECIMAL, scale="2"), _draw_decimal, "decimal"),
        Kind("decimal4", _optional(Type.BYTES, DECIMAL, scale="4"), lambda chance: _draw_decimal(chance, 4), "decimal"),
        Kind(
            "varying",
            struct_schema(
                "io.debezium.data.VariableScaleDecimal",
                {"scale": Schema(Type.INT32), "value": Schema(Type.BYTES)},
                optional=True,
            ),
            lambda chance: Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-chance.randrange(-2, 6)),
            "decimal",
            lambda value: {"scale": -value.as_tuple().exponent, "value": _unscaled(value)},
        ),
        Kind(
            "day",
            _optional(Type.INT32, _TIMES + "Date"),
            lambda chance: _DAY + dt.timedelta(days=chance.randrange(-20_000, 100_000)),
            "date",
            lambda value: (value - _DAY).days,
            ums="date",
        ),
        Kind("connect_day", _optional(Type.INT32, DATE), lambda _: _DAY, "date", lambda value: (value - _DAY).days),
        Kind(
            "local_ms",
            _optional(Type.INT64, _TIMES + "Timestamp"),
            _draw_moment,
            "moment",
            lambda value: _micros(value) // 1000,
        ),
        Kind(
            "local_us",
            _optional(Type.INT64, _TIMES + "MicroTimestamp"),
            _draw_moment,
            "moment",
            _micros,
            ums="datetime",
        ),
        Kind(
            "local_ns",
            _optional(Type.INT64, _TIMES + "NanoTimestamp"),
            _draw_moment,
            "moment",
            lambda value: _micros(value) * 1000 + 999,
        ),
        Kind(
            "moment_ms", _optional(Type.INT64, TIMESTAMP), _draw_moment, "moment", lambda value: _micros(value) // 1000
        ),
        Kind(
            "zoned",
            _optional(Type.STRING, _TIMES + "ZonedTimestamp"),
            _draw_moment,
            "moment",
            lambda value: (value + dt.timedelta(hours=2)).isoformat(timespec="microseconds") + "+02:00",
        ),
        Kind(
            "clock_ms",
            _optional(Type.INT32, TIME),
            lambda chance: chance.randrange(86_400_000) * 1000,
            "clock",
            lambda value: value // 1000,
        ),
        Kind(
            "clock_us",
            _optional(Type.INT64, _TIMES + "MicroTime"),
            lambda chance: chance.choice((0, chance.randrange(86_400_000_000))),
            "clock",
        ),
        Kind(
            "uuid",
            _optional(Type.STRING, "io.debezium.data.Uuid"),
            lambda chance: str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            "string",
        ),
        Kind(
            "list",
            Schema(Type.ARRAY, optional=True, value_schema=_optional(Type.INT32)),
            lambda chance: [chance.choice((None, chance.randrange(9))) for _ in range(chance.randrange(3))],
            "nested",
        ),
        Kind(
            "map",
            Schema(Type.MAP, optional=True, key_schema=Schema(Type.STRING), value_schema=_optional(Type.STRING)),
            lambda chance: {name: chance.choice((None, "v", "")) for name in "ab"[: chance.randrange(3)]},
            "nested",
        ),
        Kind(
            "struct",
            struct_schema("Point", {"x": _optional(Type.INT32), "y": _optional(Type.STRING)}, optional=True),
            lambda chance: {"x": chance.choice((None, chance.randrange(9))), "y": chance.choice((None, "q"))},
            "nested",
        ),
    )
}
#: Kinds that JSON without a schema has.
LOOSE: Final = ("int64", "double", "boolean", "string")
#: Kinds of columns of keys.
KEYS: Final = ("int32", "int64", "code", "uuid")


def _unscaled(value: Decimal) -> bytes:
    number = int(value.scaleb(-int(value.as_tuple().exponent)))
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def read_value(family: str, raw: Any) -> Any:
    """A value of a target in the form of the model, whatever its client makes of it."""
    if raw is None:
        return None
    match family:
        case "whole":
            return int(raw)
        case "float":
            return float(raw)
        case "float32":  # as text it has the digits that a float needs, and no double is equal to that
            return _as_float32(float(raw))
        case "boolean":
            return raw if isinstance(raw, bool) else str(raw).lower() in ("1", "true")
        case "bytes":
            return base64.b64decode(raw) if isinstance(raw, str) else bytes(raw)
        case "decimal":
            return Decimal(str(raw)).normalize()
        case "date":
            return dt.date.fromisoformat(str(raw)[:10])
        case "moment":
            return _read_moment(raw)
        case "clock":
            return _read_clock(raw)
        case "nested":
            return json.loads(raw) if isinstance(raw, str | bytes) else json.loads(json.dumps(raw, default=dict))
    return raw.decode() if isinstance(raw, bytes) else str(raw)


def _read_moment(raw: Any) -> dt.datetime:
    moment = (
        dt.datetime.fromisoformat(raw.decode() if isinstance(raw, bytes) else raw)
        if not isinstance(raw, dt.datetime)
        else raw
    )
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)


def _read_clock(raw: Any) -> int:
    """Microseconds since midnight."""
    if isinstance(raw, str):
        raw = dt.time.fromisoformat(raw)
    if isinstance(raw, dt.time):
        raw = dt.timedelta(hours=raw.hour, minutes=raw.minute, seconds=raw.second, microseconds=raw.microsecond)
    return raw // dt.timedelta(microseconds=1) if isinstance(raw, dt.timedelta) else int(raw) // 1000


def model_value(family: str, value: Any) -> Any:
    """A value of the model, so that equal values are equal."""
    if value is None:
        return None
    return value.normalize() if family == "decimal" else _as_float32(value) if family == "float32" else value


@dataclass(frozen=True, slots=True)
class Structure:
    """One version of a table.

    Attributes:
        table: its name.
        number: of the version.
        keys: the kinds of its key columns.
        columns: the kinds of its other columns.
    """

    table: str
    number: int
    keys: dict[str, Kind]
    columns: dict[str, Kind]

    @property
    def all_columns(self) -> dict[str, Kind]:
        """The columns, the key first."""
        return {**self.keys, **self.columns}


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a connector.

    Attributes:
        structure: of the table when it was made.
        op: c, r, u, d or t.
        number: orders the changes of a row.
        key: of the row.
        before: the row before, as far as the event has it.
        after: the row.
    """

    structure: Structure
    op: str
    number: int
    key: Row
    before: Row | None = None
    after: Row | None = None


@dataclass(slots=True)
class Shop:
    """Tables that change at random.

    Args:
        chance: draws everything.
        kinds: names of the kinds of columns.
        key_kinds: names of the kinds of columns of keys.
        moves: whether an update that changes the last column of a key is one event; else it is a delete and an insert.
        widens: whether types of columns become wider.
        kept: columns that are not dropped.
    """

    chance: random.Random
    kinds: Sequence[str]
    key_kinds: Sequence[str] = KEYS
    moves: bool = False
    widens: bool = True
    kept: Sequence[str] = ()
    structures: dict[str, list[Structure]] = field(default_factory=dict)
    rows: dict[str, dict[str, Row]] = field(default_factory=dict)
    number: int = 0

    def add_table(self, name: str) -> None:
        """A table with one or two key columns."""
        count = 2 if self.moves else self.chance.choice((1, 1, 2))
        keys = {f"id{n}": KINDS[self.chance.choice(self.key_kinds)] for n in range(count)}
        chosen = self.chance.sample(list(self.kinds), min(len(self.kinds), self.chance.randrange(2, 9)))
        columns = {f"c{n}_{kind}": KINDS[kind] for n, kind in enumerate(chosen)}
        self.structures[name] = [Structure(name, 1, keys, columns)]
        self.rows[name] = {}

    def draw_events(self, count: int) -> list[Event]:
        """The events of ``count`` steps, each of which changes a row, a table's structure, or sends rows of a snapshot."""
        events: list[Event] = []
        for _ in range(count):
            events += self._draw_step()
        return events

    def _draw_step(self) -> list[Event]:
        table = self.chance.choice(list(self.structures))
        rows, draw = self.rows[table], self.chance.random()
        self.number += self.chance.choice((1, 1, 7))
        if draw < 0.08:
            self._change_structure(table)
            return []
        if draw < 0.14:
            return self._send_snapshot(table)
        if draw < 0.16:
            return [Event(self.structures[table][-1], "t", self.number, {})]
        if not rows or draw < 0.4:
            return self._insert(table)
        name = self.chance.choice(list(rows))
        if draw < 0.55:
            return [self._delete(table, name)]
        if draw < 0.63:
            return self._move(table, name)
        return [self._update(table, name)]

    def _draw_key(self, table: str) -> Row:
        """A key of few, so that deleted ones come again."""
        keys = self.structures[table][-1].keys
        chance = type(self.chance)(f"{table}-{self.chance.randrange(6)}")
        return {name: kind.draw(chance) for name, kind in keys.items()}

    def _draw_columns(self, structure: Structure) -> Row:
        return {
            name: None if self.chance.random() < 0.2 else kind.draw(self.chance)
            for name, kind in structure.columns.items()
        }

    def _insert(self, table: str) -> list[Event]:
        structure, key = self.structures[table][-1], self._draw_key(table)
        name = repr(key)
        if name in self.rows[table]:
            return [self._update(table, name)]
        row = self.rows[table][name] = key | self._draw_columns(structure)
        return [Event(structure, "c", self.number, key, None, dict(row))]

    def _update(self, table: str, name: str) -> Event:
        structure, old = self.structures[table][-1], self.rows[table][name]
        key = {column: old[column] for column in structure.keys}
        changed = {c: v for c, v in self._draw_columns(structure).items() if self.chance.random() < 0.6}
        row = self.rows[table][name] = old | changed
        before = None if self.chance.random() < 0.3 else dict(old)
        return Event(structure, "u", self.number, key, before, dict(row))

    def _delete(self, table: str, name: str) -> Event:
        structure, old = self.structures[table][-1], self.rows[table].pop(name)
        key = {column: old[column] for column in structure.keys}
        nulls: Row = dict.fromkeys(structure.columns)
        # Where records' keys lack a column, the image before is what says it.
        before = self.chance.choice((old, old, key | nulls) if self.moves else (old, old, key | nulls, None))
        return Event(structure, "d", self.number, key, before)

    def _move(self, table: str, name: str) -> list[Event]:
        """An update that changes the key: a delete and an insert, as connectors write it, where the record's key has it all."""
        structure, key = self.structures[table][-1], self._draw_key(table)
        old = self.rows[table][name]
        if self.moves:
            first = next(iter(structure.keys))
            key[first] = old[first]
        if repr(key) in self.rows[table]:
            return [self._delete(table, name)]
        if self.moves:
            row = self.rows[table][repr(key)] = self.rows[table].pop(name) | key
            return [Event(structure, "u", self.number, key, dict(old), dict(row))]
        gone = self._delete(table, name)
        row = self.rows[table][repr(key)] = old | key
        return [gone, Event(structure, "c", self.number, key, None, dict(row))]

    def _send_snapshot(self, table: str) -> list[Event]:
        structure = self.structures[table][-1]
        return [
            Event(structure, "r", self.number, {column: row[column] for column in structure.keys}, None, dict(row))
            for row in self.rows[table].values()
            if self.chance.random() < 0.8
        ]

    def _change_structure(self, table: str) -> None:
        old = self.structures[table][-1]
        columns = dict(old.columns)
        action = self.chance.choice(("add", "add", "drop", "widen"))
        if action == "add":
            kind = KINDS[self.chance.choice(list(self.kinds))]
            name = f"c{len(self.structures[table])}0_ä_{kind.name}"
            columns[name] = kind
            values: Callable[[Row], Row] = lambda row: row | {name: None}  # noqa: E731 - one of three
        elif action == "drop" and len(columns) > len(self.kept) + 1:
            name = self.chance.choice([column for column in columns if column not in self.kept])
            del columns[name]
            values = lambda row: {column: value for column, value in row.items() if column != name}  # noqa: E731
        else:
            candidates = [column for column, kind in columns.items() if kind.wider and kind.wider in self.kinds]
            if not candidates or not self.widens:
                return
            name = self.chance.choice(candidates)
            columns[name] = KINDS[columns[name].wider]
            values = dict
        self.structures[table].append(replace(old, number=old.number + 1, columns=columns))
        self.rows[table] = {key: values(row) for key, row in self.rows[table].items()}

    def families(self, table: str) -> dict[str, str]:
        """How values of all columns that a table ever had are read back: those of a wider column as of the first one."""
        families: dict[str, str] = {}
        for structure in self.structures[table]:
            for name, kind in structure.all_columns.items():
                families.setdefault(name, kind.family)
        return families


def split_moves(events: Sequence[Event]) -> list[Event]:
    """The events, an update that changes the key as a delete of the old row and an insert."""
    result = []
    for event in events:
        old = None if event.op != "u" or event.before is None else {name: event.before[name] for name in event.key}
        if old is None or old == event.key:
            result.append(event)
        else:
            result += [
                Event(event.structure, "d", event.number, old, event.before),
                Event(event.structure, "c", event.number, event.key, None, event.after),
            ]
    return result


def newest_rows(events: Sequence[Event], families: dict[str, str]) -> dict[str, Row]:
    """The rows that the events of one table leave behind.

    Of each key the event with the largest number counts, of equal ones the later; columns that its structure lacks are null.
    """
    newest: dict[str, Event] = {}
    for event in split_moves(events):
        name = repr(list(event.key.values()))
        if event.op != "t" and (name not in newest or newest[name].number <= event.number):
            newest[name] = event
    return {
        name: {column: model_value(family, event.after.get(column)) for column, family in families.items()}
        for name, event in newest.items()
        if event.after is not None
    }


def all_changes(events: Sequence[Event], families: dict[str, str], *, before: bool) -> list[tuple[str, int, Row]]:
    """Each change of one table with its operation and number; of a delete without an image the key alone is known."""
    changes = []
    for event in split_moves(events):
        if event.op == "t":
            continue
        images = [({"c": "i", "r": "i"}.get(event.op, event.op), event.after or event.before or event.key)]
        if before and event.op == "u" and event.before is not None:
            images.insert(0, ("b", event.before))
        for op, row in images:
            whole = {column: model_value(family, row.get(column)) for column, family in families.items()}
            changes.append((op, event.number, whole))
    return changes


def key_schema(structure: Structure, names: Sequence[str]) -> Schema:
    """The schema of keys of records."""
    members = {name: replace(structure.keys[name].schema, optional=False) for name in names}
    return struct_schema(f"s.shop.{structure.table}.Key", members)


def row_schema(structure: Structure) -> Schema:
    """The schema of rows."""
    members = {
        name: replace(kind.schema, optional=name not in structure.keys) for name, kind in structure.all_columns.items()
    }
    return struct_schema(f"s.shop.{structure.table}.Value", members, optional=True)


def wire_row(structure: Structure, row: Row | None) -> Row | None:
    """A row as a connector has it."""
    if row is None:
        return None
    kinds = structure.all_columns
    return {name: None if value is None else kinds[name].wire(value) for name, value in row.items()}
