"""CQL types as values: read from the text of ``system_schema``, and written back."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class CqlType:
    """One CQL type; immutable, hashable, compared by content.

    Attributes:
        name: the native name in lower case (``int``, ``text`` ... ``varchar`` is kept apart from ``text``), or ``list``,
            ``set``, ``map``, ``tuple``, ``vector``, ``udt``, ``custom``. Two more say how a cell is to be decoded and are never
            in a schema: ``raw`` (its bytes) and ``timed_list`` (see ``timed_list``).
        arguments: element types: list and set one, map key and value, tuple its members, vector one, udt its fields' types.
        frozen: whether it is frozen at this level. Everything inside a frozen type is frozen, written so or not; tuples and
            vectors always are. Native types are not: for them the word means nothing.
        keyspace: of a udt.
        udt_name: of a udt.
        field_names: of a udt, in order; empty for all others.
        dimension: of a vector.
        class_name: of a custom type, the Java class.
    """

    name: str
    arguments: tuple[CqlType, ...] = ()
    frozen: bool = False
    keyspace: str = ""
    udt_name: str = ""
    field_names: tuple[str, ...] = ()
    dimension: int = 0
    class_name: str = ""

    @property
    def is_multicell(self) -> bool:
        """Whether its elements are cells of their own: a non-frozen list, set, map or UDT."""
        return not self.frozen and self.name in _MULTICELL


_MULTICELL = frozenset({"list", "set", "map", "udt"})

#: Digits of a vector's dimension.
LONGEST_DIMENSION: Final = 9

#: Types without parts, by the names that CQL gives them.
NATIVE: Final = frozenset(
    {
        "ascii",
        "bigint",
        "blob",
        "boolean",
        "counter",
        "date",
        "decimal",
        "double",
        "duration",
        "empty",
        "float",
        "inet",
        "int",
        "smallint",
        "text",
        "time",
        "timestamp",
        "timeuuid",
        "tinyint",
        "uuid",
        "varchar",
        "varint",
    }
)
#: How many arguments a type with parts has; 0: any number from one up.
_ARITY: Final = {"list": 1, "set": 1, "map": 2, "tuple": 0, "vector": 2, "frozen": 1}
#: For a cell whose bytes are wanted as they are.
RAW: Final = CqlType("raw")

_TOKEN: Final = re.compile(
    r"""\s*(?: (?P<word>[A-Za-z0-9_]+) | "(?P<quoted>(?:[^"]|"")+)" | '(?P<java>(?:[^']|'')*)'
                               | (?P<mark>[<>,.]) )""",
    re.VERBOSE,
)
_PLAIN: Final = re.compile(r"[a-z][a-z0-9_]*\Z")
#: Words that can't be names without quotes, of Cassandra and Scylla together.
_RESERVED_TEXT: Final = """
    add allow alter and apply asc authorize batch begin by columnfamily create default delete desc describe drop entries execute
    from full grant if in index infinity insert into is keyspace limit materialized mbean mbeans modify nan norecursive not null
    of on or order primary rename replace revoke schema select set table to token truncate unlogged unset update use using view
    where with
"""
_RESERVED: Final = frozenset(_RESERVED_TEXT.split())


class UnknownType(Fatal):
    """A type text that is not understood, or that names a UDT which the keyspace does not have (any more)."""


#: Types in one another. Servers have no limit; decoders are functions that call each other.
_DEEPEST: Final = 64


def check_depth(depth: int) -> None:
    """Refuse a type inside more than 64 others.

    Raises:
        UnknownType: it is one.
    """
    if depth > _DEEPEST:
        raise UnknownType(f"a CQL type has more than {_DEEPEST} types in one another: leave its column out")


def timed_list(element: CqlType) -> CqlType:
    """The decoding of a cell of type ``map<timeuuid, element>`` as a list of (time uuid as 16 bytes, element) in time order.

    It is what a multicell list is in logs of changes: the time uuid is the name of the element's cell.
    """
    return CqlType("timed_list", (element,), frozen=True)


def raw_timeuuids() -> CqlType:
    """The decoding of a cell of type ``set<timeuuid>`` as a list of 16 bytes each."""
    return CqlType("set", (RAW,), frozen=True)


def freeze_type(kind: CqlType) -> CqlType:
    """``kind`` as it is inside ``frozen<...>``: itself and everything in it frozen."""
    if not kind.arguments:
        return replace(kind, frozen=True) if kind.name == "udt" and not kind.frozen else kind
    arguments = tuple(freeze_type(member) for member in kind.arguments)
    if kind.frozen and arguments == kind.arguments:
        return kind
    return replace(kind, arguments=arguments, frozen=True)


def parse_type(
    type_name: str, resolve: Callable[[str], CqlType | None] | None = None, *, keyspace: str = ""
) -> CqlType:
    """The type that ``type_name`` names.

    Args:
        type_name: as ``system_schema.columns.type`` and ``system_schema.types.field_types`` have it, or as a user would write
            it.
        resolve: finds UDTs of the keyspace; None where there can't be any.
        keyspace: the keyspace it is of; a UDT may be written with it in front.

    Raises:
        UnknownType: the text is not understood, or a UDT is not known.
    """
    return _CqlTypeParser(type_name, resolve, keyspace).whole()


class _CqlTypeParser:
    """Reads one text from left to right."""

    def __init__(self, type_name: str, resolve: Callable[[str], CqlType | None] | None, keyspace: str) -> None:
        self.depth = 0
        self.text = type_name
        self.resolve = resolve
        self.keyspace = keyspace
        self.tokens = self._split_tokens()
        self.index = 0

    def _split_tokens(self) -> list[tuple[str, str]]:
        tokens: list[tuple[str, str]] = []
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise self._make_error(f"character {position + 1} can't be part of it")
            kind = match.lastgroup or ""
            tokens.append((kind, match.group(kind)))
            position = match.end()
        return tokens

    def _make_error(self, reason: str) -> UnknownType:
        where = f" of keyspace {self.keyspace}" if self.keyspace else ""
        return UnknownType(f"the CQL type {self.text!r}{where} is not understood: {reason}")

    def _next_token(self) -> tuple[str, str]:
        token = self._peek_token()
        self.index += 1
        return token

    def _peek_token(self) -> tuple[str, str]:
        return self.tokens[self.index] if self.index < len(self.tokens) else ("end", "")

    def _expect_mark(self, symbol: str) -> None:
        if self._next_token() != ("mark", symbol):
            raise self._make_error(f"a {symbol!r} is missing")

    def whole(self) -> CqlType:
        """All of the text."""
        result = self._parse_type()
        if self.index < len(self.tokens):
            raise self._make_error(f"{self.tokens[self.index][1]!r} follows a complete type")
        return result

    def _parse_type(self) -> CqlType:
        kind, token = self._next_token()
        if kind == "java":
            return CqlType("custom", class_name=token.replace("''", "'"))
        if kind == "quoted":
            return self._parse_udt(token.replace('""', '"'))
        if kind != "word":
            raise self._make_error("a type's name is missing")
        if self._peek_token() == ("mark", "<") and token.lower() in _ARITY:
            return self._parse_parameterized(token.lower())
        if token.lower() in NATIVE and self._peek_token() != ("mark", "."):
            return CqlType(token.lower())
        return self._parse_udt(token.lower())

    def _parse_udt(self, name: str) -> CqlType:
        if self._peek_token() == ("mark", "."):
            self.index += 1
            if self.keyspace and name != self.keyspace:
                raise self._make_error(f"it is of another keyspace, {name!r}")
            kind, token = self._next_token()
            name = token.replace('""', '"') if kind == "quoted" else token.lower()
        udt = self.resolve(name) if self.resolve is not None else None
        if udt is None:
            raise self._make_error(f"there is no type {name!r}")
        return udt

    def _parse_parameterized(self, name: str) -> CqlType:
        self._expect_mark("<")
        self.depth += 1
        check_depth(self.depth)
        arguments: list[CqlType] = []
        dimension = 0
        while True:
            if name == "vector" and arguments:
                kind, token = self._next_token()
                if kind != "word" or not token.isdecimal() or len(token) > LONGEST_DIMENSION or int(token) < 1:
                    raise self._make_error("a vector needs its dimension, a number")
                dimension = int(token)
                break
            arguments.append(self._parse_type())
            if self._peek_token() != ("mark", ","):
                break
            self.index += 1
        self._expect_mark(">")
        self.depth -= 1
        arity = _ARITY[name]
        if arity and len(arguments) + (1 if dimension else 0) != arity:
            raise self._make_error(f"{name} takes {arity} argument(s), not {len(arguments)}")
        if name == "frozen":
            return freeze_type(arguments[0])
        result = CqlType(name, tuple(arguments), dimension=dimension)
        return freeze_type(result) if name in {"tuple", "vector"} else result


def quote_name(name: str) -> str:
    """``name`` as CQL needs it: in double quotes unless it is plain lower case and no reserved word."""
    return name if _PLAIN.match(name) and name not in _RESERVED else '"' + name.replace('"', '""') + '"'


def unquote_name(text: str) -> str:
    """The name that ``quote_name`` has written."""
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def to_text(kind: CqlType) -> str:
    """``kind`` as ``system_schema`` writes it; ``parse_type`` of it gives an equal type."""
    if kind.name == "custom":
        return "'" + kind.class_name.replace("'", "''") + "'"
    if kind.name == "udt":
        type_text = quote_name(kind.udt_name)
    elif kind.name == "vector":
        return f"vector<{to_text(kind.arguments[0])}, {kind.dimension}>"
    elif kind.arguments:
        type_text = f"{kind.name}<{', '.join(to_text(member) for member in kind.arguments)}>"
    else:
        return kind.name
    return f"frozen<{type_text}>" if kind.frozen else type_text


def udt_resolver(
    keyspace: str, definitions: Mapping[str, tuple[Sequence[str], Sequence[str]]]
) -> Callable[[str], CqlType | None]:
    """A resolver over the UDTs of ``keyspace``.

    Args:
        keyspace: its name.
        definitions: UDT's name -> (field names, field types as strings), as the rows of ``system_schema.types`` have them.

    Returns:
        The resolver; it builds each type once and may raise ``UnknownType`` for a UDT whose own fields can't be resolved.
    """
    resolved: dict[str, CqlType] = {}
    open_: list[str] = []

    def resolve(name: str) -> CqlType | None:
        if name in resolved:
            return resolved[name]
        definition = definitions.get(name)
        if definition is None:
            return None
        if name in open_:
            raise UnknownType(f"the user-defined type {keyspace}.{name} contains itself")
        open_.append(name)
        try:
            names, field_types = definition
            fields = tuple(parse_type(field_type, resolve, keyspace=keyspace) for field_type in field_types)
        finally:
            open_.pop()
        resolved[name] = CqlType("udt", fields, keyspace=keyspace, udt_name=name, field_names=tuple(names))
        return resolved[name]

    return resolve


def same_on_the_wire(expected: CqlType, actual: CqlType) -> bool:
    """Whether values of ``actual`` can be decoded as ``expected``.

    Frozen or not does not matter, nor does text or varchar; a UDT may have more or fewer fields at its end.
    """
    if expected.name == "raw":
        return True
    if expected.name == "timed_list":
        return actual.name == "map" and same_on_the_wire(expected.arguments[0], actual.arguments[1])
    first, second = _SPELLINGS.get(expected.name, expected.name), _SPELLINGS.get(actual.name, actual.name)
    if first != second or expected.dimension != actual.dimension or expected.class_name != actual.class_name:
        return False
    if expected.name == "udt":
        names = zip(expected.field_names, actual.field_names, strict=False)
        if expected.udt_name != actual.udt_name or any(left != right for left, right in names):
            return False
    elif len(expected.arguments) != len(actual.arguments):
        return False
    return all(same_on_the_wire(left, right) for left, right in zip(expected.arguments, actual.arguments, strict=False))


_SPELLINGS: Final = {"varchar": "text"}


def has_newer_fields(expected: CqlType, actual: CqlType) -> bool:
    """Whether a UDT somewhere in ``actual`` has fields that ``expected`` does not have (given ``same_on_the_wire``)."""
    if expected.name == "timed_list":
        return has_newer_fields(expected.arguments[0], actual.arguments[1])
    if expected.name == "udt" and len(actual.field_names) > len(expected.field_names):
        return True
    return any(has_newer_fields(left, right) for left, right in zip(expected.arguments, actual.arguments, strict=False))
