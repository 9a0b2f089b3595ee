"""A function per writer's schema that reads Avro's binary form of a partition update into the classes of ``schema``.

It is straight-line Python made from the writer's own Avro schema: what the engine does not need (the position in the source,
TTLs, names) is skipped, the rest goes into the objects without a dict in between. Any field order is read; names bind.
Source: Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

from connectors.codegen import CodeBuilder, indent_lines
from connectors.errors import Skippable
from spark_jobs.materializer.decoding.schema import (
    ComplexDeletion,
    DecodedDeletion,
    DecodedSource,
    Liveness,
    UpdateStamp,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spark_jobs.materializer.decoding.schema import ColumnPart, UpdateVersion

_MASK: Final = 0x8080808080808080
_EIGHT: Final = 0x0080808080808080
_FAILURES: Final = (IndexError, struct.error, UnicodeDecodeError, ValueError, OverflowError, TypeError)


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """The number of variable length at ``position``, and the position behind it."""
    n = int.from_bytes(data[position : position + 8], "little")
    if n & _MASK == _EIGHT:  # eight bytes: a time in µs
        n = (
            n & 0x7F
            | n >> 1 & 0x3F80
            | n >> 2 & 0x1FC000
            | n >> 3 & 0xFE00000
            | n >> 4 & 0x7F0000000
            | n >> 5 & 0x3F800000000
            | n >> 6 & 0x1FC0000000000
            | n >> 7 & 0xFE000000000000
        )
        return n >> 1 ^ -(n & 1), position + 8
    shift = n = 0
    while True:
        byte = data[position]
        position += 1
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            return n >> 1 ^ -(n & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


#: Lengths of one byte by that byte; -1 of others, and of negative ones.
LENGTHS: Final = tuple(byte >> 1 if byte < 0x80 and not byte & 1 else -1 for byte in range(256))


def read_length(data: bytes, position: int) -> tuple[int, int]:
    """As ``read_long``, of a length."""
    n, position = read_long(data, position)
    if n < 0:
        raise ValueError("a negative length")
    return n, position


def skip_blocks(data: bytes, position: int, skip_item: Callable[[bytes, int], int]) -> int:
    """The position behind an array's or map's blocks."""
    while True:
        count, position = read_long(data, position)
        if count == 0:
            return position
        if count < 0:
            size, position = read_long(data, position)
            position += size
            continue
        for _ in range(count):
            position = skip_item(data, position)


def compile_reader(avro_text: str, version: UpdateVersion) -> Callable[[bytes, int], Any]:
    """The function (message, position of the value in it) -> an object of ``version.update``.

    Args:
        avro_text: the writer's schema.
        version: the version that was read from it.

    Raises:
        Skippable: the schema is no Avro schema of a partition update.
    """
    return _UpdateCompiler(json.loads(avro_text), version).function()


def compile_envelope(avro_text: str) -> Callable[[bytes, int], tuple[bool, int | None, tuple[int, int]]]:
    """The function (message, position of the value in it) -> ``source.snapshot``, ``source.read_time``, where ``update`` is.

    For messages that hold the bytes of an update; where it is: its start and end in the message.

    Args:
        avro_text: the writer's schema.

    Raises:
        Skippable: the schema is not that of such messages.
    """
    return _UpdateCompiler(json.loads(avro_text), None).envelope()


class _UpdateCompiler:
    """Writes the source for one schema."""

    def __init__(self, schema: Any, version: UpdateVersion | None) -> None:
        self.schema = schema
        self.of_version = version
        self.named: dict[str, Any] = {}
        self.code = CodeBuilder(
            read_long=read_long,
            read_length=read_length,
            LENGTHS=LENGTHS,
            skip_blocks=skip_blocks,
            Source=DecodedSource,
            Stamp=UpdateStamp,
            Deletion=DecodedDeletion,
            Liveness=Liveness,
            ComplexDeletion=ComplexDeletion,
            double=struct.Struct("<d").unpack_from,
            single=struct.Struct("<f").unpack_from,
            bad=_bad_branch,
        )

    @property
    def version(self) -> UpdateVersion:
        """The version of a decoded update's schema."""
        if self.of_version is None:
            raise KeyError("no version")
        return self.of_version

    def function(self) -> Callable[[bytes, int], Any]:
        """See ``compile_reader``."""
        return self.compiled(self.update, self.version.ident)

    def envelope(self) -> Callable[[bytes, int], Any]:
        """See ``compile_envelope``."""
        source = self.record(
            {"snapshot": self.value, "read_time": self.value},
            lambda part: f"{part['snapshot']}, {part.get('read_time')}",
        )
        whole = self.record(
            {"source": source, "update": self.span}, lambda part: f"({part['source']}, {part['update']})"
        )
        return self.compiled(lambda avro: whole(avro, ""), "raw updates")

    def compiled(self, read: Callable[[Any], tuple[list[str], str]], description: str) -> Callable[[bytes, int], Any]:
        """The function that reads a whole message as ``read`` says."""
        try:
            lines, name = read(self.schema)
        except (KeyError, TypeError, IndexError) as error:
            raise Skippable(
                f"The registry's schema can't be read as that of a partition update: {error!r}. Correct it in the "
                "registry."
            ) from None
        self.code.define(
            "decode_update(d, p)", [*lines, "if p != len(d): raise ValueError('bytes follow')", f"return {name}"]
        )
        function = self.code.function("decode_update", f"avro reader of {description}")

        def decode(data: bytes, position: int) -> Any:
            try:
                return function(data, position)
            except _FAILURES as error:
                raise Skippable(
                    f"The message does not match its Avro schema: {error!r}. It was cut, or written with another "
                    "schema than its id says."
                ) from None

        return decode

    # -- names

    def fresh(self, stem: str = "x") -> str:
        """A name that is not used yet."""
        return self.code.new_name(stem)

    def bind(self, value: Any) -> str:
        """A global name for ``value``."""
        return self.code.bind("g", value)

    def resolved(self, avro: Any, space: str = "") -> tuple[Any, str]:
        """A schema as an object, and the namespace that names in it are of."""
        if isinstance(avro, list):
            return avro, space
        if isinstance(avro, str):
            if avro in {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}:
                return {"type": avro}, space
            full = avro if "." in avro or not space else f"{space}.{avro}"
            resolved_type: tuple[Any, str] = self.named.get(full) or self.named[avro]
            return resolved_type
        if isinstance(avro["type"], dict | list):
            return self.resolved(avro["type"], space)
        if "name" in avro:
            name = avro["name"]
            full = name if "." in name else ".".join(filter(None, (avro.get("namespace", space), name)))
            space = full.rpartition(".")[0]
            self.named[full] = avro, space
        return avro, space

    # -- parts: each returns statements that read at p and move it, and the expression of the value

    def long(self) -> tuple[list[str], str]:
        """A number."""
        x = self.fresh()
        return [
            f"{x} = d[p]",
            f"if {x} < 128: {x} = {x} >> 1 ^ -({x} & 1); p += 1",
            f"else: {x}, p = read_long(d, p)",
        ], x

    def span(self, avro: Any, space: str) -> tuple[list[str], str]:
        """Bytes that stay where they are: their start and end."""
        if self.resolved(avro, space)[0]["type"] != "bytes":
            raise KeyError("update is not bytes")
        lines, n = self.length()
        x = self.fresh()
        return [*lines, f"{x} = p, p + {n}; p += {n}"], x

    def length(self) -> tuple[list[str], str]:
        """A length, which must not be negative."""
        n = self.fresh()
        return [f"{n} = LENGTHS[d[p]]", f"if {n} >= 0: p += 1", f"else: {n}, p = read_length(d, p)"], n

    def value(self, avro: Any, space: str) -> tuple[list[str], str]:
        """Any value, records as dicts."""
        avro, space = self.resolved(avro, space)
        if isinstance(avro, list):
            return self.union(avro, space, self.value)
        kind = avro["type"]
        match kind:
            case "null":
                return [], "None"
            case "boolean":
                x = self.fresh()
                return [f"{x} = d[p] == 1; p += 1"], x
            case "int" | "long":
                return self.long()
            case "double" | "float":
                x = self.fresh()
                size, reader = (8, "double") if kind == "double" else (4, "single")
                return [f"{x} = {reader}(d, p)[0]; p += {size}"], x
            case "string" | "bytes":
                lines, n = self.length()
                x = self.fresh()
                expression = "d[p:q].decode()" if kind == "string" else "d[p:q]"
                return [*lines, f"q = p + {n}", f"{x} = {expression}; p = q"], x
            case "array":
                return self.array(avro, space, self.value)
            case "record":
                lines, parts = self.members(avro, space, {field["name"]: self.value for field in avro["fields"]})
                return lines, "{" + ", ".join(f"{name!r}: {part}" for name, part in parts.items()) + "}"
        raise KeyError(kind)

    def union(self, branches: list[Any], space: str, inner: Any) -> tuple[list[str], str]:
        """A union of null and one type."""
        null = next(index for index, branch in enumerate(branches) if branch in ("null", {"type": "null"}))
        (present,) = (branch for index, branch in enumerate(branches) if index != null)
        lines, value = inner(present, space)
        x = self.fresh()
        return [
            f"if d[p] == {2 * null}: {x} = None; p += 1",
            "else:",
            f"    if d[p] != {2 - 2 * null}: bad()",
            "    p += 1",
            *indent_lines([*lines, f"{x} = {value}"]),
        ], x

    def array(self, avro: Any, space: str, inner: Any) -> tuple[list[str], str]:
        """An array, as a list."""
        x, n, i = self.fresh(), self.fresh("n"), self.fresh("i")
        lines, value = inner(avro["items"], space)
        return [
            f"{x} = []",
            "while True:",
            f"    {n}, p = read_long(d, p)",
            f"    if {n} == 0: break",
            f"    if {n} < 0:",
            f"        {n} = -{n}; i, p = read_long(d, p)",
            f"    for {i} in range({n}):",
            *indent_lines([*lines, f"{x}.append({value})"], 2),
        ], x

    def members(self, avro: Any, space: str, readers: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
        """The fields of a record in the writer's order; those that are not ``readers`` are skipped."""
        lines: list[str] = []
        parts: dict[str, str] = {}
        for field in avro["fields"]:
            inner = readers.get(field["name"])
            if inner is None:
                lines += self.skip(field["type"], space)
            else:
                field_lines, parts[field["name"]] = inner(field["type"], space)
                lines += field_lines
        return lines, parts

    def record(self, readers: Mapping[str, Any], make: Any) -> Any:
        """How to read a record (or null) with ``make`` of the expressions of its parts."""

        def read(avro: Any, space: str) -> tuple[list[str], str]:
            avro, space = self.resolved(avro, space)
            if isinstance(avro, list):
                return self.union(avro, space, read)
            lines, parts = self.members(avro, space, readers)
            return lines, make(parts)

        return read

    def skip(self, avro: Any, space: str) -> list[str]:
        """Statements that move p behind a value."""
        avro, space = self.resolved(avro, space)
        if isinstance(avro, list):
            if len(avro) == 2 and "null" in avro:
                null = avro.index("null")
                lines = self.skip(avro[1 - null], space) or ["pass"]
                return ["p += 1", f"if d[p - 1] != {2 * null}:", *indent_lines(lines)]
            raise KeyError("a union of several types")
        kind = avro["type"]
        match kind:
            case "null":
                return []
            case "boolean":
                return ["p += 1"]
            case "int" | "long":
                return ["while d[p] > 127: p += 1", "p += 1"]
            case "double":
                return ["p += 8"]
            case "float":
                return ["p += 4"]
            case "string" | "bytes":
                lines, n = self.length()
                return [*lines, f"p += {n}"]
            case "record":
                return [line for field in avro["fields"] for line in self.skip(field["type"], space)]
            case "fixed":
                return [f"p += {avro['size']}"]
            case "enum":
                return ["while d[p] > 127: p += 1", "p += 1"]
            case "array" | "map":
                name = self.fresh("skip")
                lines = (
                    self.skip(avro["items"], space)
                    if kind == "array"
                    else [*self.skip("string", space), *self.skip(avro["values"], space)]
                )
                self.code.define(f"{name}(d, p)", [*lines, "return p"])
                return [f"p = skip_blocks(d, p, {name})"]
        raise KeyError(kind)

    # -- the parts of a partition update

    def update(self, avro: Any) -> tuple[list[str], str]:
        """The message."""
        stamp = self.record(
            {"write_time": self.value, "expires": self.value},
            lambda part: f"Stamp({part['write_time']}, None, {part.get('expires')})",
        )
        deletion = self.record(
            {"write_time": self.value, "local_deletion_time": self.value},
            lambda part: f"Deletion({part['write_time']}, {part['local_deletion_time']})",
        )
        row = self.row(self.version.regular, stamp, deletion)
        prefix = self.named_tuple([column.field for column in self.version.clustering], self.version.bound_prefix)
        bound = self.record(
            {"prefix": prefix, "inclusive": self.value},
            lambda part: f"{self.bind(self.version.bound)}({part['prefix']}, {part['inclusive']})",
        )
        range_ = self.record(
            {"start": bound, "end": bound, "write_time": self.value, "local_deletion_time": self.value},
            lambda part: (
                f"{self.bind(self.version.range)}({part['start']}, {part['end']}, {part['write_time']}, "
                f"{part['local_deletion_time']})"
            ),
        )
        source = self.record(
            {"snapshot": self.value, "read_time": self.value},
            lambda part: f"Source('', {part['snapshot']}, {part.get('read_time')})",
        )
        whole = self.record(
            {
                "source": source,
                "key": self.plain_tuple([column.field for column in self.version.key]),
                "write_time": self.value,
                "expires": self.value,
                "deletion": deletion,
                "static": self.row(self.version.static, stamp, deletion),
                "rows": self.list_of(row),
                "ranges": self.list_of(range_),
            },
            lambda part: (
                f"{self.bind(self.version.update)}({part['source']}, {part['key']}, {part['write_time']}, None, "
                f"{part.get('expires')}, {part.get('deletion')}, {part.get('static')}, {part.get('rows')}, "
                f"{part.get('ranges')})"
            ),
        )
        read_update: tuple[list[str], str] = whole(avro, "")
        return read_update

    def list_of(self, inner: Any) -> Any:
        """How to read an array (or null) of what ``inner`` reads."""

        def read(avro: Any, space: str) -> tuple[list[str], str]:
            avro, space = self.resolved(avro, space)
            if isinstance(avro, list):
                return self.union(avro, space, read)
            return self.array(avro, space, inner)

        return read

    def plain_tuple(self, fields: list[str]) -> Any:
        """How to read a record as a tuple of ``fields``."""
        return self.record(
            dict.fromkeys(fields, self.value), lambda part: "(" + "".join(f"{part[field]}, " for field in fields) + ")"
        )

    def named_tuple(self, fields: list[str], tuple_class: type[Any]) -> Any:
        """How to read a record as an object of a class with ``fields``."""
        return self.record(
            dict.fromkeys(fields, self.value),
            lambda part: f"{self.bind(tuple_class)}({', '.join(part[field] for field in fields)})",
        )

    def row(self, part: ColumnPart, stamp: Any, deletion: Any) -> Any:
        """How to read a row, or the static row."""
        fields = [column.field for column in part.columns]
        liveness = self.record({"stamp": stamp}, lambda parts: f"Liveness({parts['stamp']})")
        complex_ = self.record(
            {"column": self.value, "write_time": self.value, "local_deletion_time": self.value},
            lambda parts: f"ComplexDeletion({parts['column']}, {parts['write_time']}, {parts['local_deletion_time']})",
        )
        cells = self.record(
            {column.field: self.cell(part.cell_types[index], stamp) for index, column in enumerate(part.columns)},
            lambda parts: "(" + "".join(f"{parts.get(field)}, " for field in fields) + ")",
        )
        stamps = self.record(
            dict.fromkeys(fields, stamp),
            lambda parts: "{" + ", ".join(f"{name!r}: {value}" for name, value in parts.items()) + "}",
        )
        clustering = self.plain_tuple([column.field for column in self.version.clustering])
        return self.record(
            {
                "clustering": clustering,
                "liveness": liveness,
                "deletion": deletion,
                "stamp": stamp,
                "cells": cells,
                "deleted": self.value,
                "stamps": stamps,
                "complex_deletions": self.list_of(complex_),
            },
            lambda parts: (
                f"{self.bind(part.row)}({parts.get('clustering', '()')}, {parts.get('liveness')}, "
                f"{parts.get('deletion')}, {parts.get('stamp')}, {parts.get('cells')}, {parts.get('deleted')}, "
                f"{parts.get('stamps')}, {parts.get('complex_deletions')})"
            ),
        )

    def cell(self, cell_class: Any, stamp: Any) -> Any:
        """How to read the cells of one column; ``cell_class``: the class of its elements or fields, or None."""
        if cell_class is None:
            return self.value
        if cell_class.__name__ == "Element":
            return self.list_of(
                self.record(
                    {"path": self.value, "value": self.value, "stamp": stamp},
                    lambda part: f"{self.bind(cell_class)}({part['path']}, {part['value']}, {part['stamp']})",
                )
            )
        stamps = self.each_of(stamp)
        return self.record(
            {"fields": self.value, "deleted": self.value, "stamps": stamps},
            lambda part: f"{self.bind(cell_class)}({part['fields']}, {part['deleted']}, {part['stamps']})",
        )

    def each_of(self, inner: Any) -> Any:
        """How to read a record (or null) as a dict whose fields ``inner`` reads."""

        def read(avro: Any, space: str) -> tuple[list[str], str]:
            avro, space = self.resolved(avro, space)
            if isinstance(avro, list):
                return self.union(avro, space, read)
            lines, parts = self.members(avro, space, {field["name"]: inner for field in avro["fields"]})
            return lines, "{" + ", ".join(f"{name!r}: {value}" for name, value in parts.items()) + "}"

        return read


def _bad_branch() -> None:
    raise ValueError("an unknown branch of a union")
