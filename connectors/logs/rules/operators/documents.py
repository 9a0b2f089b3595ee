"""Operators that open documents inside a field: json, jsonPath, logfmt, keyValue, csv, url."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

from msgspec import Meta

from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.operators.paths import parse_path, read_document
from connectors.logs.rules.options import Operator
from connectors.logs.rules.plans import ChangeRecord, ExtractFields, Plan
from connectors.logs.rules.records import (
    LINE,
    ORIGIN_FIELDS,
    FieldName,
    LineOrigin,
    Record,
    StepFailed,
    name_of,
    read_field,
    replace_in_shape,
)
from connectors.logs.rules.types import read_text

if TYPE_CHECKING:
    from collections.abc import Callable

_URL_PARTS: Final = ("scheme", "user", "host", "port", "path", "query", "fragment")


class Json(Operator, frozen=True):
    """The members of a JSON object become fields, in place of the field; objects in it stay values for jsonPath."""

    field: Annotated[FieldName, Meta(description="The field that holds the object.")] = LINE
    prefix: Annotated[str, Meta(description="The text before the name of each member.")] = ""
    flatten: Annotated[bool, Meta(description="Members of objects inside become fields, too: user.name.")] = False
    keep: Annotated[bool, Meta(description="Keep the field that was read.")] = False

    def make_plan(self) -> Plan:
        """As in the base class."""
        return ChangeRecord(self.field, _open_field(self.field, self._read_members, keep=self.keep))

    def _read_members(self, value: Any) -> Record:
        document = read_document(value)
        if not isinstance(document, dict):
            raise StepFailed(f"this is JSON, but no object: it is {_kind(document)}")
        if not self.flatten:
            return {f"{self.prefix}{name}": member for name, member in document.items()}
        result: Record = {}
        _flatten(document, self.prefix, result)
        return result


def _flatten(document: dict[str, Any], prefix: str, result: Record) -> None:
    for name, member in document.items():
        if isinstance(member, dict) and member:
            _flatten(member, f"{prefix}{name}.", result)
        else:
            result[f"{prefix}{name}"] = member


def _kind(document: Any) -> str:
    if document is None:
        return "null"
    return {list: "a list", str: "a string", bool: "true or false"}.get(type(document), "a number")


class JsonPath(Operator, frozen=True):
    """Values at JSON paths of a field become fields, in its place; a path that leads nowhere gives null."""

    paths: Annotated[
        dict[str, str], Meta(description="The new fields: name and path, such as $.user.name or $.items[0].")
    ]
    field: Annotated[FieldName, Meta(description="The field that holds the document.")] = LINE
    keep: Annotated[bool, Meta(description="Keep the field that was read.")] = False

    def make_plan(self) -> Plan:
        """As in the base class."""
        if not self.paths:
            raise OperatorOptionInvalid("paths", "give at least one name with its path")
        readers = [(name, parse_path("paths", path)) for name, path in self.paths.items()]

        def members(value: Any) -> Record:
            document = read_document(value)
            return {name: reader.read(document) for name, reader in readers}

        # The field may hold a decoded document, so this is no ``ExtractFields``, whose source is text.
        names = tuple(self.paths)
        return ChangeRecord(self.field, _open_field(self.field, members, keep=self.keep), names, self.keep)


class KeyValue(Operator, frozen=True):
    """Pairs such as a=1;b=2 become fields, in place of the field."""

    pair: Annotated[str, Meta(description="The string between pairs.")] = " "
    assign: Annotated[str, Meta(description="The string between a key and its value.")] = "="
    quote: Annotated[
        str, Meta(description="The character around values that hold the strings above; empty for none.")
    ] = '"'
    prefix: Annotated[str, Meta(description="The text before each key.")] = ""
    field: Annotated[FieldName, Meta(description="The field to read.")] = LINE
    keep: Annotated[bool, Meta(description="Keep the field that was read.")] = False

    def make_plan(self) -> Plan:
        """As in the base class."""
        for name, value in (("pair", self.pair), ("assign", self.assign)):
            if not value:
                raise OperatorOptionInvalid(name, "the string must not be empty")
        if self.pair == self.assign:
            raise OperatorOptionInvalid("assign", "it must differ from pair")
        if len(self.quote) > 1:
            raise OperatorOptionInvalid("quote", "give one character, or nothing")

        def members(value: Any) -> Record:
            return read_pairs(read_text(value), self.pair, self.assign, self.quote, self.prefix)

        return ChangeRecord(self.field, _open_field(self.field, members, keep=self.keep))


class Logfmt(Operator, frozen=True):
    """Pairs as many Go programs log them, level=info msg="two words", become fields; a key without value is true."""

    prefix: Annotated[str, Meta(description="The text before each key.")] = ""
    field: Annotated[FieldName, Meta(description="The field to read.")] = LINE
    keep: Annotated[bool, Meta(description="Keep the field that was read.")] = False

    def make_plan(self) -> Plan:
        """As in the base class."""

        def members(value: Any) -> Record:
            return read_pairs(read_text(value), " ", "=", '"', self.prefix, lone="true")

        return ChangeRecord(self.field, _open_field(self.field, members, keep=self.keep))


def read_pairs(source: str, pair: str, assign: str, quote: str, prefix: str, *, lone: str | None = None) -> Record:
    r"""The pairs of a string; in quotes ``\`` makes the next character a plain one.

    Raises:
        StepFailed: there are no pairs, one has no value (unless ``lone`` is its value), or a quote is not closed.
    """
    result: Record = {}
    position = 0
    while position < len(source):
        if source.startswith(pair, position):
            position += len(pair)
            continue
        end = _end(source.find(pair, position), source)
        middle = source.find(assign, position, end)
        if middle < 0:
            if lone is None:
                raise StepFailed(f"there is no {assign!r} in {source[position:end][:60]!r}")
            result[prefix + source[position:end]] = lone
            position = end
            continue
        key = source[position:middle].strip()
        position = middle + len(assign)
        if quote and source.startswith(quote, position):
            value, position = _read_quoted(source, position + 1, quote)
        else:
            end = _end(source.find(pair, position), source)
            value, position = source[position:end], end
        result[prefix + key] = value
    if not result:
        raise StepFailed("there are no pairs")
    return result


def _end(position: int, source: str) -> int:
    return len(source) if position < 0 else position


def _read_quoted(source: str, position: int, quote: str) -> tuple[str, int]:
    parts: list[str] = []
    start = position
    while position < len(source):
        character = source[position]
        if character == quote:
            parts.append(source[start:position])
            return "".join(parts), position + 1
        if character == "\\" and position + 1 < len(source):
            parts += [source[start:position], {"n": "\n", "t": "\t"}.get(source[position + 1], source[position + 1])]
            position += 2
            start = position
        else:
            position += 1
    raise StepFailed(f"the quote at {source[max(start - 1, 0) :][:40]!r} is not closed")


class Csv(Operator, frozen=True):
    """Columns of a line of CSV become fields, in place of the field."""

    names: Annotated[list[str], Meta(description="A name for each column.")]
    delimiter: Annotated[str, Meta(description="The character between columns.")] = ","
    quote: Annotated[str, Meta(description="The character around values; twice in a value it stands for itself.")] = '"'
    field: Annotated[FieldName, Meta(description="The field to read.")] = LINE
    keep: Annotated[bool, Meta(description="Keep the field that was read.")] = False

    def make_plan(self) -> Plan:
        """As in the base class."""
        if not self.names or len(set(self.names)) != len(self.names):
            raise OperatorOptionInvalid("names", "give each column a name of its own")
        for name, value in (("delimiter", self.delimiter), ("quote", self.quote)):
            if len(value) != 1 or value in "\r\n":
                raise OperatorOptionInvalid(name, "give one character")
        count = len(self.names)

        def extract(line: str) -> list[str]:
            try:
                lines = list(csv.reader([line], delimiter=self.delimiter, quotechar=self.quote, strict=True))
            except csv.Error as error:
                raise StepFailed(f"this is no line of CSV: {error}") from None
            values = lines[0] if lines else []
            if len(values) != count:
                raise StepFailed(f"there are {len(values)} columns for {count} names")
            return values

        return ExtractFields(self.field, tuple(self.names), extract, self.keep)


class Url(Operator, frozen=True):
    """The parts of a URL become the fields FIELD.scheme, .user, .host, .port, .path, .query and .fragment."""

    field: Annotated[str, Meta(description="The field that holds the URL.")]
    prefix: Annotated[str | None, Meta(description="The text before the parts' names instead of FIELD and a dot.")] = (
        None
    )
    keep: Annotated[bool, Meta(description="Keep the field that was read.")] = False

    def make_plan(self) -> Plan:
        """As in the base class."""
        prefix = f"{self.field}." if self.prefix is None else self.prefix
        return ExtractFields(self.field, tuple(f"{prefix}{name}" for name in _URL_PARTS), _read_url, self.keep)


def _read_url(url: str) -> list[Any]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise StepFailed(f"this is no URL: {error}") from None
    values = (parts.scheme, parts.username, parts.hostname, port, parts.path, parts.query, parts.fragment)
    return [None if value in ("", None) else value for value in values]


def _open_field(
    field: FieldName, members: Callable[[Any], Record], *, keep: bool
) -> Callable[[Record, LineOrigin], Record]:
    """A function that puts members that are read from a field in its place."""

    def change(record: Record, origin: LineOrigin) -> Record:
        new = members(read_field(record, field, origin))
        if len(record) == 1 and not keep and field in record:
            return new
        source = str(field) if field in ORIGIN_FIELDS else name_of(record, field)
        names = replace_in_shape(tuple(record), source, tuple(new), keep=keep)
        return {name: new[name] if name in new else record[name] for name in names}

    return change
