"""The part of HBase's Thrift 2 interface that the sink uses, and a connection to its server.

Version 1 of the interface, which happybase speaks, has one version (timestamp) for all rows of a request; here each row has its
own. Names of requests and numbers of fields are HBase's, names of structures ours. Puts and deletes are put into bytes here:
per row that is several times faster than through objects of each cell.
"""

from __future__ import annotations

import io
import socket
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.steps.lookup.tls import make_tls_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.sinks.hbase.config import HbaseSettings

_INTERFACE: Final = """
struct Cell { 1: binary family, 2: binary qualifier, 3: binary value, 4: i64 timestamp }
struct Row { 1: binary row, 2: list<Cell> cells }
struct Scan { 1: binary first, 2: binary last, 4: i32 caching, 5: i32 versions }
struct TableName { 1: binary space, 2: binary qualifier }
struct Family {
  1: binary name, 2: map<binary, binary> attributes, 3: map<string, string> configuration, 10: i32 versions, 13: i32 ttl_s
}
struct Table { 1: TableName name, 2: list<Family> families, 3: map<binary, binary> attributes }
struct Ignored { }
exception ServerError { 1: string message }
service HBase {
  i32 getThriftServerType()
  bool tableExists(1: TableName name) throws (1: ServerError error)
  Table getTableDescriptor(1: TableName name) throws (1: ServerError error)
  void createTable(1: Table table, 2: list<binary> splits) throws (1: ServerError error)
  void addColumnFamily(1: TableName name, 2: Family family) throws (1: ServerError error)
  void disableTable(1: TableName name) throws (1: ServerError error)
  void enableTable(1: TableName name) throws (1: ServerError error)
  void putMultiple(1: binary table, 2: list<Ignored> puts) throws (1: ServerError error)
  list<Ignored> deleteMultiple(1: binary table, 2: list<Ignored> deletes) throws (1: ServerError error)
  list<Row> getScannerResults(1: binary table, 2: Scan scan, 3: i32 rows) throws (1: ServerError error)
}
"""
#: The second version of the interface, as ``getThriftServerType`` says it.
SECOND: Final = 2

_LENGTH: Final = Struct(">i").pack
_LONG: Final = Struct(">q").pack
# Heads of fields: type and number. 8 is i32, 10 i64, 11 bytes, 12 a structure, 15 a list.
_BYTES_1, _BYTES_2, _BYTES_3 = b"\x0b\x00\x01", b"\x0b\x00\x02", b"\x0b\x00\x03"
_STRUCTURES_2: Final = b"\x0f\x00\x02\x0c"
_LONG_3: Final = b"\x0a\x00\x03"
_END: Final = b"\x00"
#: Delete all versions of a column that are not newer.
_COLUMNS: Final = b"\x08\x00\x04\x00\x00\x00\x01"


@cache
def load_interface() -> Any:
    """The interface, for thriftpy2."""
    from thriftpy2 import load_fp

    return load_fp(io.StringIO(_INTERFACE), "millrace_hbase_thrift")


def head_of_cell(family: str, qualifier: str) -> bytes:
    """The part of a cell that is the same in all rows. Pure."""
    first, second = family.encode(), qualifier.encode()
    return b"".join((_BYTES_1, _LENGTH(len(first)), first, _BYTES_2, _LENGTH(len(second)), second))


def make_cell(head: bytes, value: bytes) -> bytes:
    """A cell of a put. Pure."""
    return b"".join((head, _BYTES_3, _LENGTH(len(value)), value, _END))


def make_put(row: bytes, cells: Sequence[bytes], version: int) -> bytes:
    """A row with its cells, all of one version. Pure."""
    return b"".join(
        (
            *(_BYTES_1, _LENGTH(len(row)), row, _STRUCTURES_2, _LENGTH(len(cells)), *cells),
            *(_LONG_3, _LONG(version), _END),
        )
    )


def make_delete(row: bytes, version: int, columns: Sequence[bytes] = ()) -> bytes:
    """A mark that hides cells of a row up to a version, also those that come later. Pure.

    Args:
        row: its key.
        version: the last that is hidden.
        columns: heads of the columns; none: all of the row.
    """
    if not columns:
        return b"".join((_BYTES_1, _LENGTH(len(row)), row, _LONG_3, _LONG(version), _COLUMNS, _END))
    end = _LONG_3 + _LONG(version) + _END
    parts = [part for head in columns for part in (head, end)]
    return b"".join((_BYTES_1, _LENGTH(len(row)), row, _STRUCTURES_2, _LENGTH(len(columns)), *parts, _COLUMNS, _END))


class HbaseConnection:
    """A connection to the server; blocks, each step for a timeout at most. Used by one thread.

    Args:
        settings: the sink's.

    Raises:
        OSError: it can't be opened.
        ConfigInvalid: a file of TLS can't be read.
    """

    def __init__(self, settings: HbaseSettings) -> None:
        from thriftpy2.protocol import TCyBinaryProtocolFactory
        from thriftpy2.thrift import TClient
        from thriftpy2.transport import TCyBufferedTransportFactory, TCyFramedTransportFactory, TSocket

        access = settings.access
        tls = make_tls_context(access)
        # Not with thriftpy2's own: it keeps the reason of a failure to itself, and knows no IPv6.
        plain = socket.create_connection((settings.host, settings.port), access.timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire = tls.wrap_socket(plain, server_hostname=settings.host) if tls else plain
        except BaseException:
            plain.close()
            raise
        frames = TCyFramedTransportFactory() if settings.framed else TCyBufferedTransportFactory()
        transport = frames.get_transport(TSocket(sock=wire))
        self._client = TClient(load_interface().HBase, TCyBinaryProtocolFactory().get_protocol(transport))

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer to a request of the interface."""
        return getattr(self._client, name)(*arguments)

    def put_rows(self, table: bytes, puts: Sequence[bytes]) -> None:
        """Write rows of ``make_put``."""
        self._send_call("putMultiple", table, puts)

    def delete_rows(self, table: bytes, deletes: Sequence[bytes]) -> None:
        """Write marks of ``make_delete``."""
        self._send_call("deleteMultiple", table, deletes)

    def close(self) -> None:
        """Close it."""
        self._client.close()

    def _send_call(self, name: str, table: bytes, changes: Sequence[bytes]) -> None:
        from thriftpy2.thrift import TMessageType

        protocol = self._client._oprot  # noqa: SLF001 - what the client does, for arguments that are bytes already
        protocol.write_message_begin(name, TMessageType.CALL, 0)
        body = (_BYTES_1, _LENGTH(len(table)), table, _STRUCTURES_2, _LENGTH(len(changes)), *changes, _END)
        protocol.trans.write(b"".join(body))
        protocol.write_message_end()
        protocol.trans.flush()
        self._client._recv(name)  # noqa: SLF001
