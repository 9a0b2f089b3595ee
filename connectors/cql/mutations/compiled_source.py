"""Writes the code that decodes simple rows: one function per list of columns that mutations of a table name."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.codegen import CodeBuilder, indent_lines, unpack_names
from connectors.cql.mutations.head import add_delta
from connectors.cql.values import read_unsigned_vint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connectors.cql.types import CqlType

    #: (bytes, position behind the names of columns, the least timestamp, time of expiry, TTL) -> (rows, end of the update).
    ReadRows = Callable[[bytes, int, int, int, int], tuple[list[Any], int]]
    #: (bytes, start, end) -> values of the partition key.
    ReadKey = Callable[[bytes, int, int], tuple[Any, ...]]


class NotPlain(Exception):
    """An update says more than generated code reads."""


class PlainColumn(NamedTuple):
    """A column of a list of columns.

    Attributes:
        name: its name.
        type: its type.
        width: of its values, or None where each has its length before it.
        decode: bytes of a value -> value.
        multicell: whether it is a multicell column, which only has its place in the list.
    """

    name: str
    type: CqlType
    width: int | None
    decode: Callable[[bytes], Any]
    multicell: bool = False


_LAYOUTS: Final = {"int": ">i", "bigint": ">q", "timestamp": ">q", "double": ">d", "float": ">f"}
_STRING_TYPES: Final = frozenset({"text", "varchar"})
#: Flags of rows (see ``reference``): inserted or not, with TTL or not, and then with cells of all columns.
_INSERTED: Final = (4, 12)
_ALL: Final = 32
_STATIC: Final = 128
#: Up to this number of columns, rows that lack cells are distinguished by bits, and the names of the cells they have are kept.
_BITS: Final = 63
_NAMES_KEPT: Final = 4096
#: Headers of more clustering values than this are not read here.
_CLUSTERING: Final = 32
# Flags of cells.
_TOMBSTONE: Final = 5
_TOMBSTONE_OF_ROW: Final = 13
_EMPTY: Final = 4
_OF_ROW: Final = 8
_ONE_BYTE: Final = 0x80


def rows_reader(
    static: Sequence[PlainColumn] | None, regular: Sequence[PlainColumn], clustering: Sequence[PlainColumn]
) -> ReadRows:
    """The function that reads the rows behind one list of columns.

    It raises ``NotPlain`` where an update says more, and ``IndexError``, ``ValueError`` or ``struct.error`` for damage.

    Args:
        static: written static columns, or None where the update has no static row.
        regular: written regular columns.
        clustering: of the table.
    """
    return _DecoderSource().rows(static, regular, clustering)


def key_reader(columns: Sequence[PlainColumn]) -> ReadKey:
    """The function that reads a partition key; it may take a damaged one for a good one of other values."""
    return _DecoderSource().key(columns)


class _DecoderSource:
    """The lines of one function, and the objects that they name."""

    def __init__(self) -> None:
        self._code = CodeBuilder(
            NotPlain=NotPlain, uv=read_unsigned_vint, timestamp=add_delta, odd=_read_odd, subset_names=_subset_names
        )

    def _bind_value(self, value: Any) -> str:
        for name, bound in self._code.names.items():
            if bound is value:
                return name
        return self._code.bind("x", value)

    def key(self, columns: Sequence[PlainColumn]) -> ReadKey:
        lines = []
        if len(columns) == 1:
            decode = self._bind_value(columns[0].decode)
            layout = _LAYOUTS.get(columns[0].type.name)
            values = f"({decode}(data[p:end]),)"
            if layout is not None:
                values = f"{self._bind_value(_UNPACK[layout])}(data, p) if end - p == {columns[0].width} else {values}"
        else:
            for index, column in enumerate(columns):
                lines += [
                    "e = p + 2 + (data[p] << 8 | data[p + 1])",
                    f"v{index} = {self._bind_value(column.decode)}(data[p + 2:e])",
                    "p = e + 1",
                ]
            lines.append("if p != end: raise NotPlain")
            values = unpack_names("v", len(columns))
        self._code.define("key(data, p, end)", [*lines, f"return {values}"])
        return self._code.function("key", "keys of mutations")

    def rows(
        self, static: Sequence[PlainColumn] | None, regular: Sequence[PlainColumn], clustering: Sequence[PlainColumn]
    ) -> ReadRows:
        lines = ["found = []"]
        if static is not None:
            lines += self._write_static(static)
        # How many rows the writer expected.
        lines += [
            "if data[p] < 128: p += 1",
            "else: _, p = uv(data, p)",
            "while True:",
            "    f = data[p]",
            "    if f == 1: return found, p + 1",
            "    p += 1",
        ]
        key = list(self._write_clustering(clustering))
        names = {0: tuple(column.name for column in regular)}
        inserted, inserted_ttl = _INSERTED
        for whole in (True, False):
            extra = _ALL if whole else 0
            lines += indent_lines(
                [
                    f"if f == {inserted | extra} or f == {inserted_ttl | extra}:",
                    *indent_lines(
                        [*key, *_LIVENESS, *self._write_cells(regular, names, whole=whole, own_stamps=False)]
                    ),
                    "    found.append((False, clustering, True, written, ttl, expires, names, values))",
                    "    continue",
                    f"if f == {extra}:",
                    *indent_lines([*key, *self._write_cells(regular, names, whole=whole, own_stamps=True)]),
                    "    found.append((False, clustering, False, base_written, ttl, expires, names, values))",
                    "    continue",
                ]
            )
        self._code.define("rows(data, p, base_written, base_local, base_ttl)", [*lines, "    raise NotPlain"])
        return self._code.function("rows", "rows of mutations")

    def _write_static(self, columns: Sequence[PlainColumn]) -> Iterator[str]:
        names = {0: tuple(column.name for column in columns)}
        yield "f = data[p]"
        yield "if data[p + 1] != 1: raise NotPlain"
        yield "p += 2"
        for whole in (True, False):
            yield f"{'if' if whole else 'elif'} f == {_STATIC | (_ALL if whole else 0)}:"
            yield from indent_lines(self._write_cells(columns, names, whole=whole, own_stamps=True))
            yield "    found.append((True, (), False, base_written, ttl, expires, names, values))"
        yield "else: raise NotPlain"

    def _write_clustering(self, columns: Sequence[PlainColumn]) -> Iterator[str]:
        if not columns:
            yield "clustering = ()"
            return
        if len(columns) > _CLUSTERING:
            yield "raise NotPlain"
            return
        # A header of zero: none of the values is empty.
        yield "if data[p]: raise NotPlain"
        yield "p += 1"
        for index, column in enumerate(columns):
            yield from self._write_value(f"v{index}", column)
        yield f"clustering = {unpack_names('v', len(columns))}"

    def _write_cells(
        self, columns: Sequence[PlainColumn], names: dict[int, tuple[str, ...]], *, whole: bool, own_stamps: bool
    ) -> Iterator[str]:
        """Lines that set ``names`` and ``values``, and for cells with stamps of their own ``ttl`` and ``expires``.

        Args:
            columns: the list of columns.
            names: of all of them, under 0; for ``subset_names``.
            whole: whether the row has all of them.
            own_stamps: whether the cells have stamps of their own, and not the row's.
        """
        if not whole:
            yield "missing = data[p]"
            yield "if missing < 128: p += 1"
            yield "else: missing, p = uv(data, p)"
            if len(columns) > _BITS:
                yield "if missing: raise NotPlain"
            names_local = self._bind_value(names)
            yield f"names = {names_local}.get(missing) or subset_names({names_local}, missing)"
        if own_stamps:
            # All cells have the same bytes before their value as the first: the least time, the least TTL, so zeros.
            yield "prefix = OWN_TTL if data[p] & 7 in (2, 6) else OWN"
            yield "ttl, expires = (base_ttl, base_local) if prefix is OWN_TTL else (None, None)"
            self._code.names |= {"OWN": b"\x00\x00", "OWN_TTL": b"\x02\x00\x00\x00"}
        if not whole:
            yield "values = []"
        for index, column in enumerate(columns):
            lines = self._write_cell(column, f"v{index}", own_stamps=own_stamps)
            if whole:
                yield from lines
            else:
                yield f"if not missing & {1 << index}:"
                yield from indent_lines([*lines, f"values.append(v{index})"])
        if whole:
            yield f"names = {self._bind_value(names[0])}"
            yield f"values = [{', '.join(f'v{index}' for index in range(len(columns)))}]"
        if own_stamps and not (whole and columns):
            # A row that says nothing is no change.
            yield "if not names: raise NotPlain"

    def _write_cell(self, column: PlainColumn, target: str, *, own_stamps: bool) -> Iterator[str]:
        if column.multicell:
            yield "raise NotPlain"
            return
        yield "if data.startswith(prefix, p):" if own_stamps else "if data[p] == live:"
        yield "    p += len(prefix)" if own_stamps else "    p += 1"
        yield from indent_lines(self._write_value(target, column))
        prefix = "prefix" if own_stamps else "(live,)"
        yield f"else: {target}, p = odd(data, p, {prefix}, {self._bind_value(column.decode)})"

    def _write_value(self, target: str, column: PlainColumn) -> Iterator[str]:
        """Yield the lines that read one value at ``p`` and move ``p`` behind it."""
        layout = _LAYOUTS.get(column.type.name)
        if layout is not None:
            yield f"{target}, = {self._bind_value(_UNPACK[layout])}(data, p)"
            yield f"p += {column.width}"
            return
        if column.type.name == "boolean":
            yield f"{target} = data[p] != 0"
            yield "p += 1"
            return
        if column.width is not None:
            yield f"e = p + {column.width}"
        else:
            yield "e = data[p]"
            yield "p += 1"
            # A value of many bytes; one that reaches beyond the end leads to an IndexError at what follows.
            yield "if e > 127: e, p = uv(data, p - 1)"
            yield "e += p"
        yield (
            f"{target} = data[p:e].decode()"
            if column.type.name in _STRING_TYPES
            else (f"{target} = {self._bind_value(column.decode)}(data[p:e])")
        )
        yield "p = e"


_UNPACK: Final = {layout: struct.Struct(layout).unpack_from for layout in set(_LAYOUTS.values())}
#: Lines that read the stamp of an inserted row; its cells then have the flags ``live``.
_LIVENESS: Final = (
    "n = data[p]",
    "if n < 128:",
    "    written = base_written + n",
    "    p += 1",
    "else:",
    "    n, p = uv(data, p)",
    "    written = timestamp(n, base_written)",
    "if f & 8:",
    "    ttl, p = uv(data, p)",
    "    expires, p = uv(data, p)",
    "    ttl += base_ttl",
    "    expires += base_local",
    "    if ttl > 0x7fffffff or expires > 0x7fffffff: raise NotPlain",
    "    live = 26",
    "else:",
    "    ttl = expires = None",
    "    live = 8",
)


def _read_odd(data: bytes, p: int, prefix: Sequence[int], decode: Callable[[bytes], Any]) -> tuple[Any, int]:
    """The value of a cell that is not as the others are, and the position behind it: a tombstone (None) or an empty value.

    Args:
        data: the bytes.
        p: where the cell begins.
        prefix: flags of the row's other cells and what follows them before the value.
        decode: of the column.
    """
    flags = data[p]
    if flags == (_TOMBSTONE_OF_ROW if prefix[0] & _OF_ROW else _TOMBSTONE):
        p += 1
        if flags == _TOMBSTONE:
            if data[p]:
                raise NotPlain
            p += 1
        # When it was made.
        return (None, p + 1) if data[p] < _ONE_BYTE else (None, read_unsigned_vint(data, p)[1])
    end = p + len(prefix)
    if flags == prefix[0] | _EMPTY and not any(data[p + 1 : end]):
        return decode(b""), end
    raise NotPlain


def _subset_names(subsets: dict[int, tuple[str, ...]], missing: int) -> tuple[str, ...]:
    """Names of the columns whose bit in ``missing`` is not set; kept in ``subsets``, in which all are under 0."""
    names = tuple([name for index, name in enumerate(subsets[0]) if not missing >> index & 1])
    if len(subsets) < _NAMES_KEPT:
        subsets[missing] = names
    return names
