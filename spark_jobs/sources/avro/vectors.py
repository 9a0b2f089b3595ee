"""Reads Avro's binary form field by field, each step for all records of a batch at once. In Python workers; no Spark calls.

A batch is one buffer, and for each record the position at which it is read on. A field's step reads the bytes at all positions
in a few array operations and moves the positions. Strings and bytes stay where they are: only where they begin and their sizes
are noted. Nothing is guessed: ``Broken`` says that some record does not fit the schema, or is written in a form that no writer
uses.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import fastavro
import numpy as np

from worker.converters.avro_form.read import without_logical_types

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt

    Positions = npt.NDArray[np.int64]

#: Bytes behind a buffer: a step may read so far over its end before it looks where it is.
_PADDING: Final = 32
_STOP_BITS: Final = np.uint64(0x8080808080808080)
_DATA_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
#: Three steps that move groups of seven bits together: the lower groups of each pair, the upper ones, and how far those move.
_JOINS: Final = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(by))
    for low, high, by in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
_BIT: Final = np.uint64(1)
#: Elements of one array that are read: each takes a step of its own.
_MOST_ELEMENTS: Final = 1000
#: Branches whose number is one byte.
_MOST_BRANCHES: Final = 64
_INT_BYTES: Final = 5


class Broken(Exception):
    """A record does not fit the schema, or is written in an unusual form; the text says how."""


class UnsupportedSchema(Exception):
    """No vectors are made for values of a schema; the text says which."""


class Data:
    """The bytes of a batch.

    Args:
        raw: all records, one after the other.
    """

    def __init__(self, raw: npt.NDArray[np.uint8]) -> None:
        self.bytes = np.zeros(len(raw) + _PADDING, np.uint8)
        self.bytes[: len(raw)] = raw
        #: The eight bytes from each position on as a number, the first byte lowest.
        self.words: npt.NDArray[np.uint64] = np.ndarray(
            (len(self.bytes) - 7,), np.dtype("<u8"), buffer=self.bytes, strides=(1,)
        )


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """Values of one field.

    Attributes:
        count: how many; where there is null, the arrays hold zeros.
        arrays: of numbers and enums: the values; of strings, bytes and fixed: int64, where each begins, and its size in bytes;
            of arrays and maps: int64, their numbers of elements.
        children: of a record: its fields by name; of an array: all elements, in order, under ``items``.
        valid: false where there is null; None: nowhere.
        symbols: of enums, by value.
    """

    count: int
    arrays: tuple[npt.NDArray[Any], ...] = ()
    children: Mapping[str, VectorColumn] = field(default_factory=dict)
    valid: npt.NDArray[np.bool_] | None = None
    symbols: tuple[str, ...] = ()

    def masked(self, valid: npt.NDArray[np.bool_] | None) -> VectorColumn:
        """The same with null also where ``valid`` is false."""
        if valid is None:
            return self
        return replace(self, valid=valid if self.valid is None else self.valid & valid)

    def spread(self, count: int, positions: Positions, present: npt.NDArray[np.bool_]) -> VectorColumn:
        """``count`` values: these ones at ``positions``, which grow and are those where ``present`` is true; else null."""
        valid = present
        if self.valid is not None:
            valid = np.zeros(count, np.bool_)
            valid[positions] = self.valid
        arrays = []
        for array in self.arrays:
            full = np.zeros(count, array.dtype)
            full[positions] = array
            arrays.append(full)
        children = self.children
        if not self.arrays:
            children = {name: child.spread(count, positions, present) for name, child in children.items()}
        return replace(self, count=count, arrays=tuple(arrays), children=children, valid=valid)

    def take(self, order: Positions) -> VectorColumn:
        """The values at the indexes ``order``."""
        children: Mapping[str, VectorColumn]
        if self.arrays and self.children:
            counts = self.arrays[0]
            begins = np.cumsum(counts) - counts
            new_counts = counts[order]
            elements = np.repeat(begins[order] - (np.cumsum(new_counts) - new_counts), new_counts) + np.arange(
                new_counts.sum()
            )
            children = {name: child.take(elements) for name, child in self.children.items()}
        else:
            children = {name: child.take(order) for name, child in self.children.items()}
        return replace(
            self,
            count=len(order),
            arrays=tuple(array[order] for array in self.arrays),
            children=children,
            valid=None if self.valid is None else self.valid[order],
        )


def join_columns(columns: Sequence[VectorColumn]) -> VectorColumn:
    """The values of columns of one field, one after the other."""
    first = columns[0]
    if len(columns) == 1:
        return first
    valid = None
    if any(column.valid is not None for column in columns):
        valid = np.concatenate(
            [np.ones(column.count, np.bool_) if column.valid is None else column.valid for column in columns]
        )
    return replace(
        first,
        count=sum(column.count for column in columns),
        arrays=tuple(np.concatenate(parts) for parts in zip(*(column.arrays for column in columns), strict=True)),
        children={name: join_columns([column.children[name] for column in columns]) for name in first.children},
        valid=valid,
    )


class VectorNode(Protocol):
    """Reads the values of one schema."""

    def read(self, data: Data, at: Positions, end: Positions, *, keep: bool) -> tuple[VectorColumn, Positions]:
        """Values, and the positions behind them. Without ``keep`` the column has no values.

        Args:
            data: the bytes.
            at: where each value begins; is not changed.
            end: behind the last byte of each record.
            keep: whether the values are needed.

        Raises:
            Broken: see there.
        """


def _read_varints(data: Data, at: Positions, end: Positions) -> tuple[npt.NDArray[np.uint64], Positions]:
    """Whole numbers without their sign's form, and the positions behind them."""
    first = data.bytes[at]
    if not len(first) or first.max() < 0x80:
        after = at + 1
        if (after > end).any():
            raise Broken("a number is cut off")
        return first.astype(np.uint64), after
    words = data.words[at]
    stops = ~words & _STOP_BITS
    below = (stops & (~stops + _BIT)) - _BIT  # the bits before the first stop; all, where the eight bytes have none
    size = (np.bitwise_count(below) >> 3).astype(np.int64) + 1
    number = words & below & _DATA_BITS
    for low, high, by in _JOINS:
        number = (number & low) | ((number & high) >> by)
    after = at + size
    (long,) = np.nonzero(size > 8)
    if len(long):
        ninth, tenth = data.bytes[at[long] + 8], data.bytes[at[long] + 9]
        has_tenth = ninth >= 0x80
        if (tenth[has_tenth] > 1).any():
            raise Broken("a number has more than 64 bits")
        number[long] |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        number[long] |= np.where(has_tenth, tenth, 0).astype(np.uint64) << np.uint64(63)
        after[long] += has_tenth
    if (after > end).any():
        raise Broken("a number is cut off")
    return number, after


def _decode_zigzag(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The numbers that Avro's zig-zag form stands for."""
    return ((raw >> _BIT) ^ (~(raw & _BIT) + _BIT)).view(np.int64)


@dataclass(frozen=True, slots=True)
class Whole:
    """An int (32 bits) or a long, as int64."""

    bits: int

    def read(self, data: Data, at: Positions, end: Positions, *, keep: bool) -> tuple[VectorColumn, Positions]:
        """See ``VectorNode.read``."""
        raw, after = _read_varints(data, at, end)
        if self.bits == 32 and ((raw >> np.uint64(32)).any() or (after - at > _INT_BYTES).any()):
            raise Broken("an int has more than 32 bits")
        return VectorColumn(len(at), (_decode_zigzag(raw),) if keep else ()), after


@dataclass(frozen=True, slots=True)
class Enum:
    """An enum, as indexes of its symbols."""

    symbols: tuple[str, ...]

    def read(self, data: Data, at: Positions, end: Positions, *, keep: bool) -> tuple[VectorColumn, Positions]:
        """See ``VectorNode.read``."""
        raw, after = _read_varints(data, at, end)
        if (raw & _BIT).any() or (raw >= np.uint64(2 * len(self.symbols))).any():
            raise Broken("an enum has no such symbol")
        return VectorColumn(len(at), (_decode_zigzag(raw),) if keep else (), symbols=self.symbols), after


@dataclass(frozen=True, slots=True)
class Boolean:
    """A boolean."""

    def read(self, data: Data, at: Positions, end: Positions, *, keep: bool) -> tuple[VectorColumn, Positions]:
        """See ``VectorNode.read``."""
        values, after = data.bytes[at], at + 1
        if (after > end).any() or (values > 1).any():
            raise Broken("a boolean is cut off, or neither 0 nor 1")
        return VectorColumn(len(at), (values.astype(np.bool_),) if keep else ()), after


@dataclass(frozen=True, slots=True)
class Real:
    """A float (4 bytes) or a double."""

    size: int

    def read(self, data: Data, at: Positions, end: Positions, *, keep: bool) -> tuple[VectorColumn, Positions]:
        """See ``VectorNode.read``."""
        after = at + self.size
        if (after > end).any():
            raise Broken("a float is cut off")
        if not keep:
            return VectorColumn(len(at)), after
        words = data.words[at]
        values = words.view(np.float64) if self.size == 8 else words.astype(np.uint32).view(np.float32)
        return VectorColumn(len(at), (values,)), after


@dataclass(frozen=True, slots=True)
class Bytes:
    """A string or bytes."""

    def read(self, data: Data, at: Positions, end: Positions, *, keep: bool) -> tuple[VectorColumn, Positions]:
        """See ``VectorNode.read``."""
        raw, begin = _read_varints(data, at, end)
        # Without a sign, what is negative is larger than any number of bytes that are left.
        if (raw >> _BIT > (end - begin).view(np.uint64)).any() or (raw & _BIT).any():
            raise Broken("a string is longer than its record")
        size = (raw >> _BIT).view(np.int64)
        return VectorColumn(len(at), (begin, size) if keep else ()), begin + size


@dataclass(frozen=True, slots=True)
class FixedNode:
    """A fixed."""

    size: int

    def read(self, data: Data, at: Positions, end: Positions, *, keep: bool) -> tuple[VectorColumn, Positions]:
        """See ``VectorNode.read``."""
        del data
        after = at + self.size
        if (after > end).any():
            raise Broken("a fixed is cut off")
        return VectorColumn(len(at), (at, np.full(len(at), self.size, np.int64)) if keep else ()), after


@dataclass(frozen=True, slots=True)
class Nothing:
    """A null."""

    def read(self, data: Data, at: Positions, end: Positions, *, keep: bool) -> tuple[VectorColumn, Positions]:
        """See ``VectorNode.read``."""
        del data, end, keep
        return VectorColumn(len(at), valid=np.zeros(len(at), np.bool_)), at


@dataclass(frozen=True, slots=True)
class Union:
    """A union; values can be kept only where there are one branch and null."""

    branches: tuple[VectorNode, ...]

    def read(self, data: Data, at: Positions, end: Positions, *, keep: bool) -> tuple[VectorColumn, Positions]:
        """See ``VectorNode.read``."""
        numbers, after = data.bytes[at], at + 1
        if (after > end).any() or (numbers > 2 * len(self.branches) - 2).any() or (numbers & 1).any():
            raise Broken("a union has no such branch")
        column: VectorColumn | None = None
        for number, branch in enumerate(self.branches):
            if isinstance(branch, Nothing):
                continue
            if keep and column is not None:
                raise UnsupportedSchema("a union with several branches and null")
            present = numbers == 2 * number
            if present.all():
                column, after = branch.read(data, after, end, keep=keep)
                continue
            (positions,) = np.nonzero(present)
            column, behind = branch.read(data, after[positions], end[positions], keep=keep)
            after[positions] = behind
            if keep:
                column = column.spread(len(at), positions, present)
        return column or VectorColumn(len(at), valid=np.zeros(len(at), np.bool_)), after


@dataclass(frozen=True, slots=True)
class RecordNode:
    """A record.

    Attributes:
        fields: all of them, by name, in order.
        kept_names: names of those that columns have; None: all.
    """

    fields: Mapping[str, VectorNode]
    kept_names: Collection[str] | None = None

    def read(self, data: Data, at: Positions, end: Positions, *, keep: bool) -> tuple[VectorColumn, Positions]:
        """See ``VectorNode.read``."""
        count = len(at)
        children = {}
        for name, node in self.fields.items():
            kept = keep and (self.kept_names is None or name in self.kept_names)
            column, at = node.read(data, at, end, keep=kept)
            if kept:
                children[name] = column
        return VectorColumn(count, children=children), at


@dataclass(frozen=True, slots=True)
class Items:
    """An array, or a map as an array of records with ``key`` and ``value``."""

    item: VectorNode

    def read(self, data: Data, at: Positions, end: Positions, *, keep: bool) -> tuple[VectorColumn, Positions]:
        """See ``VectorNode.read``."""
        at = at.copy()
        active = np.arange(len(at))
        nothing, _ = self.item.read(data, at[:0], end[:0], keep=keep)
        owners: list[Positions] = [active[:0]]
        parts = [nothing]
        while len(active):
            active, counts, block_ends = self._read_blocks(data, at, end, active)
            max_count = int(counts.max(initial=0))
            if len(owners) + max_count > _MOST_ELEMENTS:
                raise Broken("an array has too many elements to read them so")
            for number in range(max_count):
                owner = active[counts > number]
                column, at[owner] = self.item.read(data, at[owner], end[owner], keep=keep)
                owners.append(owner)
                parts.append(column)
            if ((block_ends >= 0) & (block_ends != at[active])).any():
                raise Broken("a block of an array does not have the size that it says")
        if not keep:
            return VectorColumn(len(at)), at
        owner_of = np.concatenate(owners)
        items = join_columns(parts).take(np.argsort(owner_of, kind="stable"))
        return VectorColumn(len(at), (np.bincount(owner_of, minlength=len(at)),), {"items": items}), at

    def _read_blocks(
        self, data: Data, at: Positions, end: Positions, active: Positions
    ) -> tuple[Positions, Positions, Positions]:
        """Reads the heads of blocks: whose array has one more, how many elements it has, and where it ends (-1: not said)."""
        raw, after = _read_varints(data, at[active], end[active])
        counts = _decode_zigzag(raw)
        sized = counts < 0
        ends = np.full(len(active), -1)
        if sized.any():
            (positions,) = np.nonzero(sized)
            sizes, behind = _read_varints(data, after[positions], end[active][positions])
            after[positions] = behind
            if (sizes >> _BIT > np.uint64(len(data.bytes))).any() or (sizes & _BIT).any():
                raise Broken("a block of an array is longer than its record")
            ends[positions] = behind + (sizes >> _BIT).view(np.int64)
            counts = np.abs(counts)
        at[active] = after
        # An element takes a byte or more: one that takes none could come any number of times.
        if (counts.view(np.uint64) > (end[active] - after).view(np.uint64)).any():
            raise Broken("an array has more elements than its record has bytes")
        has_elements = counts > 0
        return active[has_elements], counts[has_elements], ends[has_elements]


_SIMPLE: Final[Mapping[str, VectorNode]] = {
    "null": Nothing(),
    "boolean": Boolean(),
    "int": Whole(32),
    "long": Whole(64),
    "float": Real(4),
    "double": Real(8),
    "bytes": Bytes(),
    "string": Bytes(),
}


@lru_cache(maxsize=64)
def compile_schema(avro_text: str) -> VectorNode:
    """Return the reader of values of the Avro schema in ``avro_text``.

    Raises:
        Unsupported: the schema contains itself, or has a union with very many branches.
    """
    return _compile_node(fastavro.parse_schema(without_logical_types(json.loads(avro_text))), {})


def _compile_node(schema: Any, named: dict[str, VectorNode]) -> VectorNode:
    if isinstance(schema, list):
        if len(schema) > _MOST_BRANCHES:
            raise UnsupportedSchema("a union with very many branches")
        return Union(tuple(_compile_node(branch, named) for branch in schema))
    if isinstance(schema, str):
        node = _SIMPLE.get(schema) or named.get(schema)
        if node is None:
            raise UnsupportedSchema(f"the schema {schema}, which contains itself")
        return node
    kind = schema["type"]
    if kind in {"record", "error"}:
        fields = {member["name"]: _compile_node(member["type"], named) for member in schema["fields"]}
        return named.setdefault(schema["name"], RecordNode(fields))
    if kind == "enum":
        return named.setdefault(schema["name"], Enum(tuple(schema["symbols"])))
    if kind == "fixed":
        return named.setdefault(schema["name"], FixedNode(schema["size"]))
    if kind == "array":
        return Items(_compile_node(schema["items"], named))
    if kind == "map":
        return Items(RecordNode({"key": Bytes(), "value": _compile_node(schema["values"], named)}))
    return _compile_node(kind, named)


def record_of(node: VectorNode | None) -> RecordNode | None:
    """The record that ``node`` reads, or a union of it and null; None for others."""
    if isinstance(node, Union):
        others = [branch for branch in node.branches if not isinstance(branch, Nothing)]
        node = others[0] if len(others) == 1 else None
    return node if isinstance(node, RecordNode) else None
