"""Generated Python that reads Avro's binary form: some fields of records, without a step for each value that is left out.

It is straight-line code made from the writer's own schema. Source: Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from connectors.codegen import CodeBuilder, indent_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    #: Names of a record's fields, each with those of the record that it is; None: all of its value.
    Fields = Mapping[str, "Fields | None"]

_MASK: Final = 0x8080808080808080
_EIGHT: Final = 0x0080808080808080

#: What generated code raises at bytes that do not fit the schema.
READ_FAILURES: Final = (IndexError, struct.error, UnicodeDecodeError, ValueError, OverflowError, TypeError)


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


def keep_fields(avro: Any, fields: Fields) -> Any:
    """The schema of a record with these fields only.

    Raises:
        KeyError, TypeError: it is no record that has them all.
    """
    types = {field["name"]: field["type"] for field in avro["fields"]}
    kept = {name: types[name] if inner is None else keep_fields(types[name], inner) for name, inner in fields.items()}
    members = [{**field, "type": kept[field["name"]]} for field in avro["fields"] if field["name"] in fields]
    return {**avro, "fields": members}


def compile_fields(avro: Any, fields: Fields) -> Callable[[bytes], dict[str, Any]]:
    """The function that reads a record's fields, records as dicts, logical types as what they are written as.

    It raises ``READ_FAILURES``. What follows the last of the fields is not looked at.

    Args:
        avro: the writer's schema, for which ``keep_fields`` is possible.
        fields: the fields.

    Raises:
        KeyError, TypeError, ValueError: a field has a type that is not read here: a map, an enum, a union of several types.
    """
    code = AvroCode()
    last = max(number for number, field in enumerate(avro["fields"]) if field["name"] in fields)
    lines, record = code.fields(fields)({**avro, "fields": avro["fields"][: last + 1]}, "")
    lines = ["p = 0", *lines, "if p > len(d): raise ValueError('the message is cut')", f"return {record}"]
    code.code.define("read_fields(d)", lines)
    return code.code.function("read_fields", f"avro fields of {avro.get('name')}")


class AvroCode:
    """Writes the source for one schema. Methods that read return statements, which move the position p, and the value.

    Attributes:
        code: gets functions that are defined on the way.
        named: types by their full names, and the namespaces that names in them are of.
    """

    def __init__(self, **names: Any) -> None:
        self.named: dict[str, Any] = {}
        self.code = CodeBuilder(
            read_long=read_long,
            read_length=read_length,
            LENGTHS=LENGTHS,
            skip_blocks=skip_blocks,
            double=struct.Struct("<d").unpack_from,
            single=struct.Struct("<f").unpack_from,
            bad=_bad_branch,
            **names,
        )

    # -- names

    def fresh(self, stem: str = "x") -> str:
        """A name that is not used yet."""
        return self.code.new_name(stem)

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
                return lines, _dict_of(parts)
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

    def fields(self, fields: Fields) -> Any:
        """How to read a record as a dict of some of its fields."""
        return self.record(
            {name: self.value if inner is None else self.fields(inner) for name, inner in fields.items()}, _dict_of
        )

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


def _bad_branch() -> None:
    raise ValueError("an unknown branch of a union")


def _dict_of(parts: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {part}" for name, part in parts.items()) + "}"
