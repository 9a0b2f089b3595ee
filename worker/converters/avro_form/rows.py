"""Avro's binary form of rows, from expressions in a connector's generated code: AvroConverter's part of the fast path.

A struct is the bytes of its members in order, so an expression joins them: those of a member that differs from row to row,
those of a struct in it, or a run of neighbours that the rows of an event share. The connector vouches for the values; what
is checked or seldom (unions, enums, lists, maps) is written by ``write``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, cast

from connectors.codegen import CodeBuilder
from connectors.schema import DECIMAL, Type
from connectors.wire import EVENT, ROW, Fixed, Items
from worker.converters.avro_form.schema import AvroSettings, is_enum, is_union, null_last
from worker.converters.avro_form.write import LENGTH, SHORT, long_bytes, value_bytes, zigzag_bytes
from worker.converters.json_form.text import INTEGER_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.schema import Schema
    from connectors.wire import Encoding, Shape

    Path = tuple[str, ...]

_SCALARS: Final = frozenset({*INTEGER_BITS, Type.STRING, Type.BYTES, Type.BOOLEAN, Type.FLOAT32, Type.FLOAT64})


class AvroRowForm:
    """See ``RowForm``.

    Args:
        encoding: the schema and shape.
        settings: of the converter.
        head: the bytes before each message.
        stem: begins all names.

    Raises:
        Skippable: a fixed value doesn't match its schema.
    """

    def __init__(self, encoding: Encoding, settings: AvroSettings, head: bytes, stem: str) -> None:
        self._settings = settings
        self._stem = stem
        self._schemas: dict[Path, Schema] = {(): encoding.schema}
        #: By struct, its parts in order: a member's name, or the number of a run.
        self._parts: dict[Path, list[str | int]] = {}
        self._runs: list[list[tuple[Path, Schema, Any]]] = []
        self._count = 0
        #: By the expression of a struct or array, those whose bytes it joins: what it is in joins them itself.
        self._joined_expressions: dict[str, list[str]] = {}
        self.names: dict[str, Any] = {
            f"{stem}_{name}": value
            for name, value in {
                "join": b"".join,
                "LENGTH": LENGTH,
                "SHORT": SHORT,
                "long": long_bytes,
                "zigzag": zigzag_bytes,
                "double": struct.Struct("<d").pack,
                "single": struct.Struct("<f").pack,
                "refuse": _refuse_null,
                "narrow": _narrow_zigzag,
                "head": head,
            }.items()
        }
        self._add_struct((), encoding.schema, encoding.shape)
        self.events = tuple(path for run in self._runs for path, _, item in run if item == EVENT)
        self.unpack = "".join(f"{stem}_run{number}, " for number in range(len(self._runs)))
        self.constants = self._write_constants()

    def _add_struct(self, path: Path, schema: Schema, shape: Shape) -> None:
        parts: list[str | int] = []
        for member in schema.fields:
            item = shape[member.name]
            position = (*path, member.name)
            self._schemas[position] = member.schema
            if item == EVENT or isinstance(item, Fixed):
                if not parts or isinstance(parts[-1], str):
                    parts.append(len(self._runs))
                    self._runs.append([])
                self._runs[parts[-1]].append((position, member.schema, item))  # type: ignore[index]
                continue
            parts.append(member.name)
            if isinstance(item, Items):
                self._add_struct(position, cast("Schema", member.schema.value_schema), item.shape)
            elif item != ROW:
                self._add_struct(position, member.schema, item)
        self._parts[path] = parts

    def build(self, path: Path, members: Mapping[str, str]) -> str:
        """See ``RowForm``."""
        schema = self._schemas[path]
        if schema.type is Type.ARRAY:
            schema = cast("Schema", schema.value_schema)
        expressions = (
            [f"{self._stem}_head"]
            if not path
            else [repr(_branch_number(schema, null=False))]
            if schema.optional
            else []
        )
        for part in self._parts[path]:
            if isinstance(part, int):
                expressions.append(f"{self._stem}_run{part}")
                continue
            nested = self._schemas[*path, part]
            absent = members[part] == "None" and (*path, part) in self._parts
            written = repr(_branch_number(nested, null=True)) if absent else members[part]
            expressions += self._joined_expressions.get(written, [written])
        return self._joined(expressions)

    def _joined(self, expressions: list[str]) -> str:
        expression = f"{self._stem}_join(({', '.join(expressions)},))"
        self._joined_expressions[expression] = expressions
        return expression

    def array(self, path: Path, elements: Sequence[str]) -> str:
        """See ``RowForm``."""
        schema = self._schemas[path]
        count = long_bytes(len(elements))
        begin = _branch_number(schema, null=False) + count if schema.optional else count
        expressions = [
            expression for element in elements for expression in self._joined_expressions.get(element, [element])
        ]
        return self._joined([repr(begin), *expressions, repr(b"\0")])

    def _length(self, expression: str) -> str:
        """The expression of a length, which stays in a variable."""
        number = f"{self._stem}_n"
        return f"({self._stem}_LENGTH[{number}] if ({number} := {expression}) < {len(LENGTH)} else {self._stem}_long({number}))"

    # Members that differ from row to row.

    def unscaled(self, path: Path) -> bool:
        """See ``RowForm``."""
        schema = self._schemas[path]
        return schema.type is Type.BYTES and schema.name == DECIMAL

    def leaf(self, path: Path, name: str, *, nullable: bool = True, checked: bool = False) -> str:
        """See ``RowForm``."""
        return self._write_member(self._schemas[path], name, self.names, nullable=nullable, checked=checked)

    def _write_member(self, schema: Schema, name: str, names: dict[str, Any], *, nullable: bool, checked: bool) -> str:
        settings = self._settings
        self._count += 1
        if checked or is_union(schema) or is_enum(schema, settings) or schema.type not in _SCALARS:
            function = f"{self._stem}_checked{self._count}"
            default = schema.default
            names[function] = lambda value: value_bytes(schema, default if value is None else value, settings)
            if nullable and not checked and schema.optional and default is None and not is_union(schema):
                return f"({_branch_number(schema, null=True)!r} if {name} is None else {function}({name}))"
            return f"{function}({name})"
        present = self._write_present(schema, name)
        if schema.optional:
            present = f"{_branch_number(schema, null=False)!r} + {present}"
        if not nullable:
            return present
        if schema.default is not None:
            null = repr(value_bytes(schema, schema.default, settings))
        elif schema.optional:
            null = repr(_branch_number(schema, null=True))
        else:
            null = f"{self._stem}_refuse()"
        return f"({null} if {name} is None else {present})"

    def _write_present(self, schema: Schema, name: str) -> str:
        """The expression of a value that is not null, without the number of its branch."""
        stem, kind = self._stem, schema.type
        number = f"{stem}_n"
        if kind is Type.STRING or kind is Type.BYTES:
            data = f"{stem}_t"
            value = f"{name}.encode()" if kind is Type.STRING else name
            return f"{self._length(f'len({data} := {value})')} + {data}"
        if kind is Type.BOOLEAN:
            return f"(b'\\1' if {name} else b'\\0')"
        if kind is Type.FLOAT64:
            return f"{stem}_double({name})"
        if kind is Type.FLOAT32:
            return f"{stem}_single({name})"
        bits = INTEGER_BITS[kind]
        fits = min(len(SHORT), 2 << bits)
        longer = f"{stem}_zigzag({number})" if kind is Type.INT64 else f"{stem}_narrow({number}, {bits})"
        return f"({stem}_SHORT[{number}] if ({number} := {name} << 1 ^ {name} >> 63) < {fits} else {longer})"

    # Members that are shared.

    def _write_constants(self) -> Callable[..., tuple[Any, ...]]:
        code = CodeBuilder(**self.names)
        arguments = {path: f"e{number}" for number, path in enumerate(self.events)}
        runs = []
        for run in self._runs:
            expressions = [
                repr(self._encode_fixed(schema, item.value))
                if isinstance(item, Fixed)
                else self._write_member(schema, arguments[path], code.names, nullable=True, checked=False)
                for path, schema, item in run
            ]
            runs.append(f"{self._stem}_join(({', '.join(expressions)},))")
        code.define(f"constants({', '.join(arguments.values())})", [f"return ({''.join(f'{run}, ' for run in runs)})"])
        return code.function("constants", f"shared avro of {self._stem}")

    def _encode_fixed(self, schema: Schema, value: Any) -> bytes:
        return value_bytes(schema, schema.default if value is None else value, self._settings)

    @staticmethod
    def encode(rows: list[bytes]) -> list[bytes]:
        """See ``RowForm``: the structs are bytes already."""
        return rows


def _branch_number(schema: Schema, *, null: bool) -> bytes:
    """The number of a branch of an optional schema's union."""
    return b"\x02" if null == null_last(schema) else b"\x00"


def _refuse_null() -> bytes:
    raise ValueError("null where the schema allows none")


def _narrow_zigzag(number: int, bits: int) -> bytes:
    """The zigzag form of a number that has to fit into ``bits`` bits and a sign."""
    if number >= 2 << bits:
        raise OverflowError(f"more than {bits} bits")
    return zigzag_bytes(number)
