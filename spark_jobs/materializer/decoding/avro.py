"""A function per writer's schema that reads Avro's binary form of a partition update into the classes of ``schema``.

It is straight-line Python made from the writer's own Avro schema: what the engine does not need (the position in the source,
TTLs, names) is skipped, the rest goes into the objects without a dict in between. Any field order is read; names bind.
Source: Avro 1.12 specification, "Binary Encoding".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from connectors.errors import Skippable
from spark_jobs.materializer.decoding.schema import (
    ComplexDeletion,
    DecodedDeletion,
    DecodedSource,
    Liveness,
    UpdateStamp,
)
from worker.converters.avro_form.fields import READ_FAILURES, AvroCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_jobs.materializer.decoding.schema import ColumnPart, UpdateVersion


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


class _UpdateCompiler(AvroCode):
    """Writes the source for one schema."""

    def __init__(self, schema: Any, version: UpdateVersion | None) -> None:
        super().__init__(
            Source=DecodedSource,
            Stamp=UpdateStamp,
            Deletion=DecodedDeletion,
            Liveness=Liveness,
            ComplexDeletion=ComplexDeletion,
        )
        self.schema = schema
        self.of_version = version

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
            except READ_FAILURES as error:
                raise Skippable(
                    f"The message does not match its Avro schema: {error!r}. It was cut, or written with another "
                    "schema than its id says."
                ) from None

        return decode

    # -- the parts of a partition update

    def bind(self, value: Any) -> str:
        """A global name for ``value``."""
        return self.code.bind("g", value)

    def span(self, avro: Any, space: str) -> tuple[list[str], str]:
        """Bytes that stay where they are: their start and end."""
        if self.resolved(avro, space)[0]["type"] != "bytes":
            raise KeyError("update is not bytes")
        lines, n = self.length()
        x = self.fresh()
        return [*lines, f"{x} = p, p + {n}; p += {n}"], x

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
