"""Writes from CQL text, in the simple forms that a demonstration shows, and CQL literals as values. Pure.

Understood: INSERT INTO, UPDATE and DELETE of `keyspace.table` with literals, USING TTL and TIMESTAMP, `c = c + ...`,
`c = ... + c`, `c = c - ...`, `c[...] = ...`, `c.field = ...`, WHERE with `=` and one range, IF EXISTS and IF NOT EXISTS.
"""

import re
from typing import Any

from compose.local.scylla.writes import Append, Delete, DeleteRange, Insert, Prepend, Remove, SetAt, Update, Write
from worker.fetch.errors import StackError

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<blob>0[xX][0-9a-fA-F]*)(?!\w)
    | (?P<uuid>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})
    | (?P<duration>-?(?:\d+(?:mo|ms|us|µs|ns|[yYwWdDhHmMsS]))+)(?!\w)
    | (?P<number>-?(?:\d+\.?\d*(?:[eE][+-]?\d+)?))(?!\w)
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark><=|>=|[-+=<>(){}\[\],.:;])
    )""",
    re.VERBOSE,
)


class CqlName(str):
    """An identifier where a value could stand."""

    __slots__ = ()


def parse_literal(cql: str) -> Any:
    """The value of a CQL literal: numbers with a point stay text, a map or UDT is a dict, a set a list, a tuple a tuple.

    >>> literal("{name: 'N', tags: {'a', 'b'}, at: (1, null)}")
    {'name': 'N', 'tags': ['a', 'b'], 'at': (1, None)}
    """
    reader = _CqlReader(cql)
    value = reader.value()
    reader.end()
    return value


def parse_write(cql: str) -> Write:
    """The write that a CQL statement stands for.

    Raises:
        StackError: The text has none of the forms above.
    """
    return _CqlReader(cql).statement()


def _freeze_value(value: Any) -> Any:
    """A value that can be a key of a dict."""
    return tuple(map(_freeze_value, value)) if isinstance(value, list) else value


class _CqlReader:
    def __init__(self, cql: str) -> None:
        self.text = cql
        self.tokens: list[tuple[str, str]] = []
        self.at, position = 0, 0
        while position < len(cql.rstrip()):
            match = _TOKEN.match(cql, position)
            if match is None:
                raise self.error(f"character {position + 1} is not understood")
            self.tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
            position = match.end()

    def error(self, reason: str) -> StackError:
        return StackError(
            f"this CQL is not one of the simple forms that are understood here ({reason}): {self.text[:300]}"
        )

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else ("end", "")

    def take(self) -> tuple[str, str]:
        token = self.peek()
        self.at += 1
        return token

    def has(self, *words: str) -> bool:
        """Take these words or marks if they come next."""
        next_words = [self.peek(ahead)[1].upper() for ahead in range(len(words))]
        if next_words != list(words) or any(self.peek(ahead)[0] not in {"word", "mark"} for ahead in range(len(words))):
            return False
        self.at += len(words)
        return True

    def want(self, *words: str) -> None:
        if not self.has(*words):
            raise self.error(f"{' '.join(words)} is missing before {self.peek()[1]!r}")

    def end(self) -> None:
        self.has(";")
        if self.at < len(self.tokens):
            raise self.error(f"it should end before {self.peek()[1]!r}")

    def name(self) -> str:
        kind, lexeme = self.take()
        if kind == "quoted":
            return lexeme[1:-1].replace('""', '"')
        if kind != "word":
            raise self.error(f"a name is missing before {lexeme!r}")
        return lexeme.lower()

    def table(self) -> str:
        keyspace = self.name()
        self.want(".")
        return f"{keyspace}.{self.name()}"

    def value(self) -> Any:
        kind, lexeme = self.take()
        if kind == "text":
            return lexeme[1:-1].replace("''", "'")
        if kind == "number":
            return int(lexeme) if lexeme.lstrip("-").isdigit() else lexeme
        if kind == "blob":
            return bytes.fromhex(lexeme[2:])
        if kind in {"uuid", "duration"}:
            return lexeme
        if kind == "word":
            word = {"null": None, "true": True, "false": False}
            return word[lexeme.lower()] if lexeme.lower() in word else CqlName(lexeme.lower())
        if kind == "quoted":
            return CqlName(lexeme[1:-1].replace('""', '"'))
        if lexeme in {"[", "("}:
            items = self.items("]" if lexeme == "[" else ")")
            return items if lexeme == "[" else tuple(items)
        if lexeme == "{":
            return self.braces()
        raise self.error(f"a value is missing before {lexeme!r}")

    def items(self, close: str) -> list[Any]:
        elements: list[Any] = []
        while not self.has(close):
            elements.append(self.value())
            if self.peek()[1] != close:
                self.want(",")
        return elements

    def braces(self) -> Any:
        pairs: list[tuple[Any, Any]] = []
        elements: list[Any] = []
        while not self.has("}"):
            first = self.value()
            if self.has(":"):
                pairs.append((str(first) if isinstance(first, CqlName) else first, self.value()))
            else:
                elements.append(first)
            if self.peek()[1] != "}":
                self.want(",")
        if not pairs:
            return elements
        try:
            return dict(pairs)
        except TypeError:  # a key that is a collection
            return pairs

    def using(self) -> dict[str, int]:
        parsed_options: dict[str, int] = {}
        if self.has("USING"):
            while True:
                option = self.name()
                parsed_options["timestamp_us" if option == "timestamp" else option] = int(self.take()[1])
                if not self.has("AND"):
                    break
        return parsed_options

    def statement(self) -> Write:
        if self.has("INSERT", "INTO"):
            write = self.insert()
        elif self.has("UPDATE"):
            write = self.update()
        elif self.has("DELETE"):
            write = self.delete()
        else:
            raise self.error("it is no INSERT, UPDATE or DELETE")
        self.end()
        return write

    def insert(self) -> Write:
        table = self.table()
        self.want("(")
        names = self.items(")")
        self.want("VALUES", "(")
        values = self.items(")")
        if len(names) != len(values):
            raise self.error(f"{len(names)} columns have {len(values)} values")
        condition = self.has("IF", "NOT", "EXISTS")
        using: dict[str, Any] = self.using()
        columns = dict(zip(map(str, names), values, strict=True))
        return Insert(table, columns, condition="not exists" if condition else None, **using)

    def update(self) -> Write:
        table = self.table()
        using: dict[str, Any] = self.using()
        self.want("SET")
        assigned: dict[str, Any] = {}
        while True:
            column, change = self.assignment()
            if column in assigned and isinstance(change, Append | Prepend | Remove | SetAt):
                before = assigned[column]
                assigned[column] = [*(before if isinstance(before, list) else [before]), change]
            else:
                assigned[column] = change
            if not self.has(","):
                break
        key, _ = self.where()
        return Update(table, key, assigned, condition="exists" if self.has("IF", "EXISTS") else None, **using)

    def assignment(self) -> tuple[str, Any]:
        column = self.name()
        if self.has("["):
            element_key = self.value()
            self.want("]")
            self.want("=")
            return column, SetAt(_freeze_value(element_key), self.value())
        if self.has("."):
            field = self.name()
            self.want("=")
            return column, SetAt(field, self.value())
        self.want("=")
        first = self.value()
        if self.has("+"):
            second = self.value()
            return (column, Append(second)) if isinstance(first, CqlName) else (column, Prepend(first))
        if self.has("-"):
            return column, Remove(self.value())
        return column, first

    def delete(self) -> Write:
        columns: list[str] = []
        while not self.has("FROM"):
            columns.append(self.name())
            self.has(",")
        table = self.table()
        using: dict[str, Any] = self.using()
        key, bounds = self.where()
        if bounds:
            return DeleteRange(table, key, **bounds, **using)
        return Delete(table, key, columns, condition="exists" if self.has("IF", "EXISTS") else None, **using)

    def where(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self.want("WHERE")
        key: dict[str, Any] = {}
        bounds: dict[str, Any] = {}
        while True:
            column, (_, sign) = self.name(), self.take()
            value = self.value()
            if sign == "=":
                key[column] = value
            elif sign in {">", ">=", "<", "<="}:
                side = "lower" if sign[0] == ">" else "upper"
                bounds |= {side: value, f"{side}_inclusive": sign.endswith("=")}
            else:
                raise self.error(f"{sign!r} is not understood in WHERE")
            if not self.has("AND"):
                return key, bounds
