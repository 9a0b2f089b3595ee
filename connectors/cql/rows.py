"""Rows of a page: what the driver received, left as bytes, and decoders that turn it into tuples.

The driver's own result decoding is replaced: its result message keeps the body of the page (``RawRows``), and the caller
decodes it where and how it wants, with a ``CqlRowDecoder`` that is compiled once per statement. Where the driver was built with
its C extensions they cut the rows and decode what they do well; columns that need Python call a compiled decoder of
``connectors.cql.values`` from there, for cells that are not null. Without the extensions all is done in Python.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from cassandra import cqltypes
from cassandra.protocol import ResultMessage, _ProtocolHandler

from connectors.cql.marshal import read_type
from connectors.cql.types import RAW, CqlType
from connectors.cql.values import BadCell, BadValue, make_decoder
from connectors.errors import Retriable

try:
    from cassandra.bytesio import BytesIOReader
    from cassandra.deserializers import make_deserializers
    from cassandra.obj_parser import ListParser
    from cassandra.parsing import ParseDesc

    HAVE_C: Final = True
except ImportError:
    HAVE_C = False  # type: ignore[misc]

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: A column of a result: keyspace, table, name, type.
ColumnSpec = tuple[str, str, str, CqlType]


class RawRows:
    """A page as it came.

    Attributes:
        columns: its columns, or None if the server left them out because they are as they were when the statement was prepared.
        body: the number of rows and their cells, each with its length in front.
        state: the paging state to continue with, or None.
    """

    __slots__ = ("body", "columns", "state")

    def __init__(self, columns: list[ColumnSpec] | None, body: bytes, state: bytes | None) -> None:
        self.columns = columns
        self.body = body
        self.state = state

    @property
    def count(self) -> int:
        """How many rows it has."""
        return int.from_bytes(self.body[:4], "big")


class _UndecodedResult(ResultMessage):  # type: ignore[misc]
    """A result whose rows stay bytes and whose types are ours. The underscore keeps the driver from registering it for all."""

    @classmethod
    def read_type(cls, f: Any, user_type_map: Any) -> CqlType:
        """A column's type; the driver's own reader fails on some that servers have, and then drops the connection."""
        del user_type_map
        return read_type(f.read)

    def recv_results_rows(
        self, f: Any, protocol_version: int, user_type_map: Any, result_metadata: Any, column_encryption_policy: Any
    ) -> None:
        """Read the header of a page and keep the rest."""
        del protocol_version, column_encryption_policy
        self.recv_results_metadata(f, user_type_map)
        columns = self.column_metadata or result_metadata
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        self.parsed_rows = RawRows(self.column_metadata, f.read(), self.paging_state)


class RawProtocolHandler(_ProtocolHandler):  # type: ignore[misc]
    """For ``Session.client_protocol_handler``: results come as ``RawRows``."""

    message_types_by_opcode = {**_ProtocolHandler.message_types_by_opcode, ResultMessage.opcode: _UndecodedResult}  # noqa: RUF012


def keep_raw(names: object, rows: Any) -> Any:
    """For ``row_factory``: gives the ``RawRows`` back."""
    del names
    return rows


#: Types that the C extensions decode into our forms, with the right handling of zero bytes.
_IN_C: Final = {
    "ascii": cqltypes.AsciiType,
    "text": cqltypes.UTF8Type,
    "varchar": cqltypes.UTF8Type,
    "blob": cqltypes.BytesType,
    "custom": cqltypes.BytesType,
    "raw": cqltypes.BytesType,
    "boolean": cqltypes.BooleanType,
    "tinyint": cqltypes.ByteType,
    "smallint": cqltypes.ShortType,
    "int": cqltypes.Int32Type,
    "bigint": cqltypes.LongType,
    "counter": cqltypes.LongType,
    "timestamp": cqltypes.LongType,
    "time": cqltypes.LongType,
    "float": cqltypes.FloatType,
    "double": cqltypes.DoubleType,
}


def _python_type(decode: Callable[[bytes], Any]) -> Any:
    """A stand-in for a type class of the driver, for which the C parser calls ``decode`` with a cell that is not null."""

    def deserialize(data: bytes, protocol_version: int) -> Any:
        del protocol_version
        try:
            return decode(data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this cell's
            return BadCell(data, error)

    return type(
        "PythonDecoded",
        (),
        {
            "empty_binary_ok": True,
            "support_empty_values": False,
            "deserialize": staticmethod(deserialize),
            "cql_parameterized_type": classmethod(lambda cls: cls.__name__),
            "subtypes": (),
        },
    )


class CqlRowDecoder:
    """Decodes pages of one shape. Thread-safe: it holds no state of a page.

    Cells of a wrong length are bad cells, but for one thing: C takes a number that is followed by further bytes.

    Args:
        names: of the columns.
        kinds: how to decode each; None or ``types.RAW`` leaves the cell's bytes as they are.
        use_c: whether the driver's C extensions may be used, if it has them.

    Raises:
        Fatal: a type is not known.
    """

    def __init__(self, names: Sequence[str], kinds: Sequence[CqlType | None], *, use_c: bool = HAVE_C) -> None:
        self.names = tuple(names)
        known_kinds = tuple(RAW if kind is None else kind for kind in kinds)
        if len(known_kinds) != len(self.names):
            raise BadValue(f"{len(known_kinds)} types for {len(self.names)} columns")
        self._decoders = tuple(make_decoder(kind) for kind in known_kinds)
        self._parse: Callable[[bytes], list[tuple[Any, ...]]] | None = None
        if use_c and HAVE_C and known_kinds:
            self._parse = _c_parser(
                self.names, [_IN_C.get(kind.name) or _python_type(make_decoder(kind)) for kind in known_kinds]
            )

    def decode(self, body: bytes) -> list[tuple[Any, ...]]:
        """The rows of ``RawRows.body``; a cell that can't be decoded is a ``BadCell``.

        Raises:
            Retriable: the page itself is broken: lengths in it do not fit.
        """
        if self._parse is not None:
            try:
                return self._parse(body)
            except Exception:  # noqa: BLE001, S110 - one bad cell, or a broken page: the slow way finds out which
                pass
        return self.decode_in_python(body)

    def decode_in_python(self, body: bytes) -> list[tuple[Any, ...]]:
        """``decode`` without C; slower, and finds the bad cells of a page that C refuses."""
        rows: list[tuple[Any, ...]] = []
        decoders, unpack = self._decoders, _unpack_length
        try:
            (count,) = unpack(body)
            position = 4
            for _ in range(count):
                row: list[Any] = []
                for decode in decoders:
                    (size,) = unpack(body, position)
                    position += 4
                    if size < 0:
                        row.append(None)
                        continue
                    end = position + size
                    data = body[position:end]
                    position = end
                    try:
                        row.append(decode(data))
                    except Exception as error:  # noqa: BLE001 - whatever it is, it is this cell's
                        row.append(BadCell(data, error))
                rows.append(tuple(row))
        except struct.error:
            position = len(body) + 1
        if position > len(body):
            raise Retriable(
                f"a page of {len(body)} bytes from the server ends inside row {len(rows) + 1}: it is read again"
            )
        return rows


_unpack_length = struct.Struct(">i").unpack_from


def _c_parser(names: Sequence[str], types: Sequence[Any]) -> Callable[[bytes], list[tuple[Any, ...]]]:
    description = ParseDesc(list(names), list(types), None, [None] * len(types), make_deserializers(types), 4)
    parse = ListParser().parse_rows
    reader = BytesIOReader

    def decode(body: bytes) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = parse(reader(body), description)
        return rows

    return decode
