"""Random tables of all CQL types, and random writes to them, as writes of the Scylla emulation and as CQL. From a seed."""

# ruff: noqa: S608 - statements are what this makes

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from compose.local.scylla.writes import Append, Delete, DeleteRange, Insert, Operation, Prepend, Remove, SetAt, Update
from connectors.cql.types import CqlType, freeze_type, quote_name, to_text
from tests.support.cql_values import ODD_NAMES, draw_type, draw_value, literal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from compose.local.scylla.writes import Write

#: Write times that clients give: few, in the past, so that they meet and come out of order; µs.
PAST_US: Final = 1_700_000_000_000_000
PAST_TIMES: Final = 4
#: Seconds; cells with it live on when a test ends.
LONG_TTL: Final = 1000
#: The earliest and the latest write times that servers take, some before 1970 and in the future; µs.
EXTREME_TIMES: Final = (2 - (1 << 63), -1, 0, 4_000_000_000_000_000, 4_000_000_000_000_001, (1 << 63) - 1)


@dataclass(slots=True)
class RandomColumn:
    """A column; ``values`` of a key column are all that its rows have."""

    name: str
    type: CqlType
    kind: str
    descending: bool = False
    values: list[Any] = field(default_factory=list)

    def define(self) -> str:
        """Name and type as a statement has them."""
        return f"{quote_name(self.name)} {to_text(self.type)}{' static' * (self.kind == 'static')}"


@dataclass(slots=True)
class RandomTable:
    """A table and the writes to it.

    Attributes:
        chance: what everything follows from.
        ttls: seconds that some cells live.
        past: share of writes with a write time in the past.
        extreme: share of inserts and updates with one of ``EXTREME_TIMES``.
    """

    chance: random.Random
    keyspace: str
    name: str
    udts: list[CqlType]
    key: list[RandomColumn]
    clustering: list[RandomColumn]
    others: list[RandomColumn]
    ttls: tuple[int, ...] = (3600,)
    past: float = 0.15
    extreme: float = 0.0

    @property
    def full(self) -> str:
        """Its name as CQL has it."""
        return f"{quote_name(self.keyspace)}.{quote_name(self.name)}"

    @property
    def bare(self) -> str:
        """Its name without quotes."""
        return f"{self.keyspace}.{self.name}"

    def create(self, options: str) -> str:
        """The statement that creates it."""
        columns = [column.define() for column in (*self.key, *self.clustering, *self.others)]
        key = ", ".join(quote_name(column.name) for column in self.key)
        clustering = "".join(f", {quote_name(column.name)}" for column in self.clustering)
        order = ", ".join(
            f"{quote_name(column.name)} {'DESC' if column.descending else 'ASC'}" for column in self.clustering
        )
        clause = f"CLUSTERING ORDER BY ({order}) AND " * bool(order)
        return (
            f"CREATE TABLE {self.full} ({', '.join(columns)}, PRIMARY KEY (({key}){clustering})) WITH {clause}{options}"
        )

    # -- writes

    def write(self, *, plain: bool = False) -> Write:
        """Any write; ``plain``: without a time of its own, as in a batch that has one."""
        makers = [self._insert, self._insert, self._update, self._update, self._delete]
        statics = self._of_kind("static")
        if self.clustering:
            makers += [self._delete_range, self._delete_range]
        if statics:
            makers.append(self._static)
        maker = self.chance.choice(makers)
        if not plain and self.extreme and maker in {self._insert, self._update} and self.chance.random() < self.extreme:
            return maker({"timestamp_us": self.chance.choice(EXTREME_TIMES)})
        return maker({} if plain else self._time())

    def _time(self) -> dict[str, Any]:
        if self.chance.random() < self.past:
            return {"timestamp_us": PAST_US + self.chance.randrange(PAST_TIMES)}
        return {}

    def _ttl(self, time: dict[str, Any]) -> dict[str, Any]:
        """A time to live; a long one next to a write time: at equal times an expired cell acts by when it was read."""
        ttls = [ttl for ttl in self.ttls if not time or ttl >= LONG_TTL]
        return {"ttl": self.chance.choice(ttls)} if ttls and self.chance.random() < 0.2 else {}

    def _of_kind(self, kind: str) -> list[RandomColumn]:
        return [column for column in self.others if column.kind == kind]

    def partition(self) -> dict[str, Any]:
        """A partition's key."""
        return {column.name: self.chance.choice(column.values) for column in self.key}

    def row(self) -> dict[str, Any]:
        """A row's key."""
        return self.partition() | {column.name: self.chance.choice(column.values) for column in self.clustering}

    def _choose(self, columns: Sequence[RandomColumn]) -> list[RandomColumn]:
        chosen = [column for column in columns if self.chance.random() < 0.5]
        return chosen or ([self.chance.choice(columns)] if columns else [])

    def value(self, column: RandomColumn) -> Any:
        """A value, or null."""
        return None if self.chance.random() < 0.15 else draw_value(self.chance, column.type)

    def _insert(self, time: dict[str, Any]) -> Insert:
        statics = self._choose(self._of_kind("static")) if self.chance.random() < 0.2 else []
        regular = self._choose(self._of_kind("regular")) if self.chance.random() < 0.9 else []
        key = self.partition() if statics and self.clustering and self.chance.random() < 0.3 else self.row()
        columns = statics if len(key) == len(self.key) and self.clustering else [*statics, *regular]
        return Insert(self.bare, {**key, **{c.name: self.value(c) for c in columns}}, **time, **self._ttl(time))

    def _update(self, time: dict[str, Any]) -> Write:
        columns = self._choose(self._of_kind("regular"))
        if not columns:
            return self._insert(time)
        return Update(self.bare, self.row(), {c.name: self.assignment(c) for c in columns}, **time, **self._ttl(time))

    def _static(self, time: dict[str, Any]) -> Write:
        columns = self._choose(self._of_kind("static"))
        if self.chance.random() < 0.2:
            return Delete(self.bare, self.partition(), [column.name for column in columns], **time)
        return Update(
            self.bare, self.partition(), {c.name: self.assignment(c) for c in columns}, **time, **self._ttl(time)
        )

    def assignment(self, column: RandomColumn) -> Any:
        """A value for a column, or a change of it."""
        kind, chance = column.type, self.chance
        if not kind.is_multicell or chance.random() < 0.3:
            return self.value(column)
        if kind.name == "udt":
            names = chance.sample(kind.field_names, chance.randint(1, len(kind.field_names)))
            return [SetAt(name, self._field(kind, name)) for name in names]
        elements = draw_value(chance, kind)
        if kind.name == "list":
            return chance.choice([Append, Append, Prepend, Remove])(elements)
        if kind.name == "set":
            return chance.choice([Append, Remove])(elements)
        element = {"key": draw_value(chance, kind.arguments[0]), "value": draw_value(chance, kind.arguments[1])}
        return chance.choice(
            [
                Append(elements),
                Remove([entry["key"] for entry in elements]),
                SetAt(element["key"], element["value"]),
                SetAt(element["key"], None),
            ]
        )

    def _field(self, kind: CqlType, name: str) -> Any:
        part = kind.arguments[kind.field_names.index(name)]
        return None if self.chance.random() < 0.2 else draw_value(self.chance, part)

    def _delete(self, time: dict[str, Any]) -> Delete:
        kind, regular = self.chance.random(), self._of_kind("regular")
        if kind < 0.4 and regular:
            return Delete(self.bare, self.row(), [column.name for column in self._choose(regular)], **time)
        return Delete(self.bare, self.row() if kind < 0.9 else self.partition(), **time)

    def _delete_range(self, time: dict[str, Any]) -> Write:
        """Rows that share the first clustering columns, or lie between bounds of the next one."""
        chance = self.chance
        fixed = self.clustering[: chance.randrange(len(self.clustering))]
        key = self.partition() | {column.name: chance.choice(column.values) for column in fixed}
        if fixed and chance.random() < 0.3:
            return Delete(self.bare, key, **time)
        column = self.clustering[len(fixed)]
        bounds = {side: chance.choice(column.values) for side in chance.choice(["l", "u", "lu"])}
        return DeleteRange(
            self.bare,
            key,
            lower=bounds.get("l"),
            upper=bounds.get("u"),
            lower_inclusive=chance.random() < 0.5,
            upper_inclusive=chance.random() < 0.5,
            **time,
        )

    def extend(self, udt: CqlType, name: str, field: CqlType) -> None:
        """A type has got a field."""
        self._change_type(udt, lambda names: (*names, name), field)

    def rename_field(self, udt: CqlType, old: str, name: str) -> None:
        """A field of a type has got another name."""
        self._change_type(udt, lambda names: tuple(name if field == old else field for field in names))
        for column in (*self.key, *self.clustering):
            column.values = [rename_in_value(column.type, udt.udt_name, value, old, name) for value in column.values]

    def _change_type(self, udt: CqlType, change: Callable[[tuple[str, ...]], tuple[str, ...]], *more: CqlType) -> None:
        def changed(kind: CqlType) -> CqlType:
            kind = replace(kind, arguments=tuple(map(changed, kind.arguments)))
            if kind.udt_name != udt.udt_name:
                return kind
            return replace(kind, arguments=(*kind.arguments, *more), field_names=change(kind.field_names))

        for column in (*self.key, *self.clustering, *self.others):
            column.type = changed(column.type)
        self.udts = [changed(kind) for kind in self.udts]

    # -- CQL

    def special(self) -> str:
        """A statement that only Cassandra has, or that only its text can say."""
        regular = self._of_kind("regular")
        lists = [column for column in regular if column.type.is_multicell and column.type.name == "list"]
        makers = [self._conditional] * 3
        if self.clustering:
            makers += [self._delete_slice] * 3 + [self._delete_several]
        if lists:
            makers.append(lambda: self._element(self.chance.choice(lists)))
        return self.chance.choice(makers)()

    def _element(self, column: RandomColumn) -> str:
        """An element of a list by its index, which the server refuses where the list is shorter."""
        element = f"{quote_name(column.name)}[{self.chance.randrange(2)}]"
        where = self._where(self.row())
        if self.chance.random() < 0.3:
            return f"DELETE {element} FROM {self.full} WHERE {where}"
        kind = column.type.arguments[0]
        return f"UPDATE {self.full} SET {element} = {literal(kind, draw_value(self.chance, kind))} WHERE {where}"

    def _past(self) -> str:
        time = self._time()
        return f" USING TIMESTAMP {time['timestamp_us']}" if time else ""

    def _delete_slice(self) -> str:
        """Rows between bounds of several clustering columns, whose orders may differ."""
        chance, bounds = self.chance, []
        for sign in chance.choice([(">",), ("<",), (">=",), ("<=",), (">", "<="), (">=", "<")]):
            columns = self.clustering[: chance.randint(1, len(self.clustering))]
            bounds.append(f"{_names(columns)} {sign} {self._tuple(columns)}")
        where = " AND ".join([self._where(self.partition()), *bounds])
        return f"DELETE FROM {self.full}{self._past()} WHERE {where}"

    def _delete_several(self) -> str:
        rows = f"{self._tuple(self.clustering)}, {self._tuple(self.clustering)}"
        where = f"{self._where(self.partition())} AND {_names(self.clustering)} IN ({rows})"
        return f"DELETE FROM {self.full}{self._past()} WHERE {where}"

    def _tuple(self, columns: Sequence[RandomColumn]) -> str:
        return f"({', '.join(literal(column.type, self.chance.choice(column.values)) for column in columns)})"

    def _conditional(self) -> str:
        """A light-weight transaction."""
        chance = self.chance
        write = self.write(plain=True)
        if isinstance(write, DeleteRange) or (isinstance(write, Delete) and len(write.key) < len(self.row())):
            write = self._insert({})
        if isinstance(write, Insert):
            return self.cql(replace(write, condition="not exists"))
        columns = self._of_kind("static" if len(write.key) < len(self.row()) else "regular")
        conditions = ["EXISTS"]
        simple = [c for c in columns if not c.type.is_multicell and "duration" not in to_text(c.type)]
        if simple:
            column = chance.choice(simple)
            value = literal(column.type, self.value(column))
            conditions.append(f"{quote_name(column.name)} {chance.choice(['=', '!='])} {value}")
        return f"{self.cql(write)} IF {chance.choice(conditions)}"

    def cql(self, write: Write) -> str:
        """A write as a statement."""
        clause = _using(write)
        if isinstance(write, Insert):
            names = ", ".join(map(quote_name, write.values))
            values = ", ".join(literal(self._column(name).type, value) for name, value in write.values.items())
            condition = " IF NOT EXISTS" * bool(write.condition)
            return f"INSERT INTO {self.full} ({names}) VALUES ({values}){condition}{clause}"
        where = self._where(write.key)
        if isinstance(write, DeleteRange):
            return f"DELETE FROM {self.full}{clause} WHERE {where}{self._bounds(write)}"
        condition = " IF EXISTS" * bool(write.condition)
        if isinstance(write, Delete):
            columns = ", ".join(map(quote_name, write.columns))
            return f"DELETE {columns} FROM {self.full}{clause} WHERE {where}{condition}"
        changes = ", ".join(part for name, value in write.set.items() for part in self._assignments(name, value))
        return f"UPDATE {self.full}{clause} SET {changes} WHERE {where}{condition}"

    def _column(self, name: str) -> RandomColumn:
        return next(column for column in (*self.key, *self.clustering, *self.others) if column.name == name)

    def _where(self, key: Any) -> str:
        return " AND ".join(f"{quote_name(name)} = {literal(self._column(name).type, v)}" for name, v in key.items())

    def _bounds(self, write: DeleteRange) -> str:
        column = next(column for column in self.clustering if column.name not in write.key)
        name = quote_name(column.name)
        sides = (
            (write.lower, ">=" if write.lower_inclusive else ">"),
            (write.upper, "<=" if write.upper_inclusive else "<"),
        )
        return "".join(
            f" AND {name} {sign} {literal(column.type, bound)}" for bound, sign in sides if bound is not None
        )

    def _assignments(self, name: str, value: Any) -> Iterator[str]:
        kind, quoted = self._column(name).type, quote_name(name)
        for change in value if isinstance(value, list) and value and isinstance(value[0], Operation) else [value]:
            if isinstance(change, Append):
                yield f"{quoted} = {quoted} + {literal(kind, change.value)}"
            elif isinstance(change, Prepend):
                yield f"{quoted} = {literal(kind, change.value)} + {quoted}"
            elif isinstance(change, Remove):
                elements = CqlType("list" if kind.name == "list" else "set", kind.arguments[:1])
                yield f"{quoted} = {quoted} - {literal(elements, change.value)}"
            elif isinstance(change, SetAt) and kind.name == "udt":
                part = kind.arguments[kind.field_names.index(change.at)]
                yield f"{quoted}.{quote_name(change.at)} = {literal(part, change.value)}"
            elif isinstance(change, SetAt):
                at = CqlType("int") if kind.name == "list" else kind.arguments[0]
                yield f"{quoted}[{literal(at, change.at)}] = {literal(kind.arguments[-1], change.value)}"
            else:
                yield f"{quoted} = {literal(kind, change)}"


def _names(columns: Sequence[RandomColumn]) -> str:
    return f"({', '.join(quote_name(column.name) for column in columns)})"


def _using(write: Write) -> str:
    parts = [] if write.timestamp_us is None else [f"TIMESTAMP {write.timestamp_us}"]
    if isinstance(write, Insert | Update) and write.ttl is not None:
        parts.append(f"TTL {write.ttl}")
    return f" USING {' AND '.join(parts)}" if parts else ""


def rename_in_value(kind: CqlType, udt: str, value: Any, old: str, name: str) -> Any:
    """A value of a type, one of whose fields has got another name."""

    def renamed(member: CqlType, part: Any) -> Any:
        return rename_in_value(member, udt, part, old, name)

    if value is None:
        return None
    match kind.name:
        case "list" | "set" | "vector":
            return [renamed(kind.arguments[0], element) for element in value]
        case "map":
            key, element = kind.arguments
            return [{"key": renamed(key, entry["key"]), "value": renamed(element, entry["value"])} for entry in value]
        case "tuple" | "udt":
            parts = zip(value.items(), kind.arguments, strict=False)
            return {
                (name if kind.udt_name == udt and field == old else field): renamed(member, part)
                for (field, part), member in parts
            }
    return value


def draw_udts(chance: random.Random, keyspace: str, *, prefix: str = "udt", vectors: bool = True) -> list[CqlType]:
    """One to three user-defined types, the later ones with fields of the earlier."""
    udts: list[CqlType] = []
    for index in range(chance.randint(1, 3)):
        names = draw_names(chance, "f", chance.randint(1, 3))
        fields = tuple(freeze_type(draw_type(chance, udts, depth=2, vectors=vectors)) for _ in names)
        name = chance.choice([f"{prefix}{index}", f"{prefix.capitalize()} {index}"])
        udts.append(CqlType("udt", fields, keyspace=keyspace, udt_name=name, field_names=tuple(names)))
    return udts


def create_type(udt: CqlType) -> str:
    """The statement that creates a type."""
    fields = ", ".join(
        f"{quote_name(name)} {to_text(kind)}" for name, kind in zip(udt.field_names, udt.arguments, strict=True)
    )
    return f"CREATE TYPE {quote_name(udt.keyspace)}.{quote_name(udt.udt_name)} ({fields})"


def draw_names(chance: random.Random, letter: str, count: int) -> list[str]:
    """Names, some of them with characters that need quotes."""
    unusual = chance.sample(ODD_NAMES, count)
    return [unusual[index] if chance.random() < 0.3 else f"{letter}{index}" for index in range(count)]


def draw_table(
    chance: random.Random,
    keyspace: str,
    name: str,
    udts: list[CqlType],
    *,
    vectors: bool = True,
    ttls: tuple[int, ...] = (3600,),
) -> RandomTable:
    """A table."""
    clustered = chance.choice([0, 1, 1, 2, 3])
    counts = [chance.choice([1, 1, 2, 3]), clustered, chance.randint(0, 2) if clustered else 0, chance.randint(0, 6)]
    names = iter(draw_names(chance, "c", sum(counts)))
    kinds = ["partition_key", "clustering", "static", "regular"]
    groups: list[list[RandomColumn]] = []
    for kind, count in zip(kinds, counts, strict=True):
        in_key = kind in kinds[:2]
        types = [draw_type(chance, udts, key=in_key, depth=1 if in_key else 3, vectors=vectors) for _ in range(count)]
        groups.append([RandomColumn(next(names), type_, kind, chance.random() < 0.5) for type_ in types])
    for column in (*groups[0], *groups[1]):
        column.values = _key_values(chance, column.type, 2 if column.kind == "partition_key" else 4)
    return RandomTable(chance, keyspace, name, udts, groups[0], groups[1], [*groups[2], *groups[3]], ttls)


def _key_values(chance: random.Random, kind: CqlType, count: int) -> list[Any]:
    """Values for a column of the key; none is empty, which a partition key of one column can't be."""
    values = [value for value in (draw_value(chance, kind) for _ in range(8 * count)) if value not in ("", b"", [])]
    return values[:count]
