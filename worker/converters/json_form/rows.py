"""JSON of many rows at once, from structs that a connector's generated code has built: JsonConverter's part of the fast path.

A class is made for each struct of a table's records, with its members in order and without types: the connector vouches for
the values, msgspec writes them. What all rows of an event share is JSON text that is made once (``msgspec.Raw``): neighbours
that are shared make one such text, which is the value of the first of them. Text is corrected as ``compile`` does.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from connectors.codegen import CodeBuilder
from connectors.schema import DECIMAL, Type
from connectors.wire import EVENT, ROW, Fixed, Items
from worker.converters.javatext import decimal_text
from worker.converters.json_form.compile import compile_encoder
from worker.converters.json_form.text import (
    INTEGER_BITS,
    JsonSettings,
    float_json,
    java_escapes,
    schema_text,
    string_text,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.schema import Schema
    from connectors.wire import Encoding, Shape

    Path = tuple[str, ...]

_BACKSLASH: Final = 92
_encode: Final = msgspec.json.Encoder().encode
_encode_lines: Final = msgspec.json.Encoder().encode_lines
#: Values of these types are written as they are.
_PLAIN: Final = frozenset({*INTEGER_BITS, Type.STRING, Type.BOOLEAN, Type.BYTES})


class _JsonRun(NamedTuple):
    """Neighbours that are shared by the rows of an event, or by all records."""

    members: list[tuple[Path, Schema, Any]]


class _Struct(NamedTuple):
    """The class of one struct: its name in the code, and its members: a name that differs from row to row, or a run."""

    name: str
    slots: list[str | _JsonRun]


class JsonRowForm:
    """See ``RowForm``.

    Args:
        encoding: the schema and shape.
        settings: how values are written.
        stem: begins all names.
        envelope: whether the schema goes with each value (``schemas.enable``).

    Raises:
        ValueError: msgspec can't write the names of a struct.
        Skippable: the schema itself can't be written.
    """

    def __init__(self, encoding: Encoding, settings: JsonSettings, stem: str, *, envelope: bool) -> None:
        schema = encoding.schema
        self._settings = settings
        self._stem = stem
        self._prefix = f'{{"schema":{schema_text(schema, settings)},"payload":'.encode() if envelope else b""
        self._suffix = b"}" if envelope else b""
        self._schemas: dict[Path, Schema] = {(): schema}
        self._structs: dict[Path, _Struct] = {}
        self._runs: list[_JsonRun] = []
        self.names: dict[str, Any] = {}
        self._add_struct((), schema, encoding.shape)
        self.events = tuple(path for run in self._runs for path, _, item in run.members if item is EVENT)
        self.unpack = "".join(f"{self._run_name(number)}, " for number in range(len(self._runs)))
        self.constants = self._write_constants()

    def _run_name(self, number: int) -> str:
        return f"{self._stem}_run{number}"

    def _bind_name(self, stem: str, value: object) -> str:
        name = f"{self._stem}_{stem}{len(self.names)}"
        self.names[name] = value
        return name

    # The classes.

    def _add_struct(self, path: Path, schema: Schema, shape: Shape) -> None:
        slots: list[str | _JsonRun] = []
        for member in schema.fields:
            item = shape[member.name]
            position = (*path, member.name)
            self._schemas[position] = member.schema
            if item == EVENT or isinstance(item, Fixed):
                if not slots or isinstance(slots[-1], str):
                    run = _JsonRun([])
                    slots.append(run)
                    self._runs.append(run)
                slots[-1].members.append((position, member.schema, item))  # type: ignore[union-attr]
                continue
            slots.append(member.name)
            if isinstance(item, Items):
                self._add_struct(position, cast("Schema", member.schema.value_schema), item.shape)
            elif item != ROW:
                self._add_struct(position, member.schema, item)
        names = [slot if isinstance(slot, str) else slot.members[0][0][-1] for slot in slots]
        fields = [(f"f{index}", Any) for index in range(len(names))]
        row_class = msgspec.defstruct(
            "Row", fields, rename={f"f{index}": name for index, name in enumerate(names)}, gc=False
        )
        self._structs[path] = _Struct(self._bind_name("Row", row_class), slots)

    def build(self, path: Path, members: Mapping[str, str]) -> str:
        """See ``RowForm``."""
        name, slots = self._structs[path]
        values = [members[slot] if isinstance(slot, str) else self._run_name(self._run_number(slot)) for slot in slots]
        return f"{name}({', '.join(values)})"

    def array(self, path: Path, elements: Sequence[str]) -> str:
        """See ``RowForm``."""
        del path
        return f"[{', '.join(elements)}]"

    def _run_number(self, run: _JsonRun) -> int:
        return next(number for number, candidate in enumerate(self._runs) if candidate is run)

    # Members that differ from row to row.

    def unscaled(self, path: Path) -> bool:
        """See ``RowForm``: Base64 shows these bytes."""
        schema = self._schemas[path]
        return schema.type is Type.BYTES and schema.name == DECIMAL and not self._settings.numeric_decimals

    def leaf(self, path: Path, name: str, *, nullable: bool = True, checked: bool = False) -> str:
        """See ``RowForm``."""
        schema = self._schemas[path]
        if checked:
            return f"{self._bind_name('checked', self._make_checker(schema))}({name})"
        present = self._write_present(schema, name)
        if not nullable:
            return present
        if schema.default is not None and self._settings.replace_null:
            return f"({self._bind_name('default', self._default_json(schema))} if {name} is None else {present})"
        if not schema.optional:
            return f"({self._bind_name('refuse', _refuse_null)}() if {name} is None else {present})"
        return present if present == name else f"(None if {name} is None else {present})"

    def _write_present(self, schema: Schema, name: str) -> str:
        """The expression of a value that is not null."""
        if schema.type is Type.BYTES and schema.name == DECIMAL:
            return f"{self._bind_name('decimal', _raw_decimal)}({name})" if self._settings.numeric_decimals else name
        if schema.type in _PLAIN:
            return name
        if schema.type is Type.FLOAT64:
            raw = self._bind_name("double", _raw_double)
            return f"({name} if 0.001 <= {name} < 1e7 or -1e7 < {name} <= -0.001 or {name} == 0.0 else {raw}({name}))"
        if schema.type is Type.FLOAT32:
            return f"{self._bind_name('float', _raw_float)}({name})"
        return f"{self._bind_name('checked', self._make_checker(schema))}({name})"

    def _make_checker(self, schema: Schema) -> Callable[[Any], msgspec.Raw]:
        encode = compile_encoder(schema, self._settings, envelope=False)
        return lambda value: msgspec.Raw(encode(value) or b"null")

    def _default_json(self, schema: Schema) -> msgspec.Raw:
        return msgspec.Raw(value_text(schema, schema.default, self._settings, "the default"))

    # Members that are shared.

    def _write_constants(self) -> Callable[..., tuple[Any, ...]]:
        """The function that writes the runs of one event: numbers and quoted text between what is fixed."""
        code = CodeBuilder(Raw=msgspec.Raw, quote=_quote_string)
        arguments = {path: f"e{number}" for number, path in enumerate(self.events)}
        lines = [
            line
            for run in self._runs
            for path, schema, item in run.members
            if item is EVENT
            for line in self._write_shared(schema, arguments[path], code)
        ]
        runs = [self._run(run, arguments) for run in self._runs]
        code.define(
            f"constants({', '.join(arguments.values())})",
            [*lines, f"return ({''.join(f'Raw({run}), ' for run in runs)})"],
        )
        return code.function("constants", f"shared json of {self._stem}")

    def _run(self, run: _JsonRun, arguments: Mapping[Path, str]) -> str:
        """The expression of a run's text; its first member's name is the struct's."""
        expression = ""
        for path, schema, item in run.members:
            if expression:
                expression += "," + _escape_braces(_quote_string(path[-1])) + ":"
            fixed = isinstance(item, Fixed)
            expression += (
                _escape_braces(value_text(schema, item.value, self._settings)) if fixed else f"{{{arguments[path]}}}"
            )
        return f"f{expression!r}"

    def _write_shared(self, schema: Schema, name: str, code: CodeBuilder) -> list[str]:
        """Statements that make the value in ``name`` its text, or a number."""
        null = ""
        if schema.default is not None and self._settings.replace_null:
            null = code.bind("null", bytes(self._default_json(schema)).decode())
        elif schema.optional:
            null = "'null'"
        if schema.type in INTEGER_BITS:
            return [f"if {name} is None: {name} = {null}"] if null else []
        if schema.type is Type.STRING:
            return [f"{name} = {null} if {name} is None else quote({name})" if null else f"{name} = quote({name})"]
        encode = compile_encoder(schema, self._settings, envelope=False)
        return [f"{name} = {code.bind('encode', encode)}({name}).decode()"]

    # Bytes.

    def encode(self, rows: list[Any]) -> list[bytes]:
        """See ``RowForm``."""
        if len(rows) == 1:
            encoded = _encode(rows[0])
            if _BACKSLASH in encoded or not encoded.isascii():
                encoded = java_escapes(encoded)
            return [self._prefix + encoded + self._suffix if self._prefix else encoded]
        encoded = _encode_lines(rows)
        if _BACKSLASH in encoded or not encoded.isascii():
            encoded = java_escapes(encoded)
        lines = encoded.split(b"\n")  # JSON has no line feeds inside
        lines.pop()
        if self._prefix:
            prefix, suffix = self._prefix, self._suffix
            return [prefix + line + suffix for line in lines]
        return lines


def _quote_string(value: str) -> str:
    """A JSON string."""
    json_text = encode_basestring(value)
    return json_text if json_text.isascii() and "\\" not in json_text else string_text(value)


def _escape_braces(json_text: str) -> str:
    """Text inside of an f-string."""
    return json_text.replace("{", "{{").replace("}", "}}")


def _raw_double(value: float) -> msgspec.Raw:
    return msgspec.Raw(float_json(value, "", single=False))


def _raw_float(value: float) -> msgspec.Raw:
    return msgspec.Raw(float_json(value, "", single=True))


def _raw_decimal(value: Any) -> msgspec.Raw:
    return msgspec.Raw(decimal_text(value))


def _refuse_null() -> None:
    raise ValueError("null where the schema allows none")
