"""Writes rows to HBase in a task: puts and deletes, each with the version of its change."""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import md5
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.hbase.config import HASHED, PREFIX, REVERSED
from spark_jobs.sinks.hbase.protocol import (
    HbaseConnection,
    head_of_cell,
    load_interface,
    make_cell,
    make_delete,
    make_put,
)
from spark_jobs.sinks.hbase.types import make_cell_encoder
from spark_jobs.sinks.shared.model import WriteCounts
from spark_jobs.sinks.shared.templates import Unfilled
from spark_jobs.sinks.shared.values import NoText, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spark_jobs.sinks.hbase.config import HbaseSettings
    from spark_jobs.sinks.shared.model import Refuse, RowTable, SinkRow

#: The columns that are written next to those of the source.
SYSTEM: Final = ("ums_id_", "ums_ts_", "ums_op_")
ACTIVE: Final = "ums_active_"
UID: Final = "ums_uid_"
#: Java's shorts, and longs without the one that means "now".
_LONGEST_KEY: Final = 32_767
_LAST_VERSION: Final = (1 << 63) - 2
#: A row that the Thrift server fails at without a reason is not to blame if it is smaller than this.
_LARGE: Final = 1 << 20
_SHOWN: Final = 400


class HbaseMisfit(ValueError):
    """A row can't be written; the message says why."""


def system_columns(settings: HbaseSettings) -> tuple[str, ...]:
    """The columns that are written next to those of the source. Pure."""
    return (*SYSTEM, *([UID] if settings.append else []), *([ACTIVE] if settings.soft else []))


class HbaseRows:
    """Makes puts and deletes of a table's rows. Pure.

    Args:
        settings: the sink's.
        kinds: the type of each column, by name, as Spark calls it.
        table: the rows' table.
    """

    def __init__(self, settings: HbaseSettings, kinds: Mapping[str, str], table: RowTable) -> None:
        self._settings = settings
        namespace = table.namespace

        def head(name: str) -> bytes:
            return head_of_cell(settings.family_of(name, namespace), name)

        self._columns = [
            (name, head(name), make_cell_encoder(kinds[name], binary=settings.binary)) for name in table.columns
        ]
        number = make_cell_encoder("long", binary=settings.binary)
        ways: dict[str, Callable[[SinkRow], bytes]] = {
            "ums_id_": lambda row: number(row.order),
            "ums_ts_": lambda row: text_of(row.time).encode(),
            "ums_op_": lambda row: row.op.encode(),
            UID: lambda row: (row.uid or row.position).encode(),
            ACTIVE: lambda row: number(0 if row.deleted else 1),
        }
        self._system = [(head(name), ways[name]) for name in system_columns(settings)]
        self._key = settings.row_key.bind(table)
        self._keyed = bool(table.keys) or "${key}" not in settings.row_key.text

    def changes(self, row: SinkRow) -> tuple[bytes, bytes]:
        """The put and the mark that a row becomes; either may be empty. Raises ``HbaseMisfit``."""
        version = row.order + self._settings.version_offset
        if not 0 <= version <= _LAST_VERSION:
            raise HbaseMisfit(
                f"its order number {row.order} with {PREFIX}version.offset ({self._settings.version_offset}) is no version: "
                f"that is from 0 to {_LAST_VERSION}"
            )
        key = self._row_key(row, version)
        append = self._settings.append
        if row.deleted and not append and not self._settings.soft:
            return b"", make_delete(key, version)
        cells: list[bytes] = []
        nulls: list[bytes] = []
        values = row.values
        name = ""
        try:
            for name, head, encode in self._columns:
                value = values[name]
                if value is None:
                    nulls.append(head)
                else:
                    cells.append(make_cell(head, encode(value)))
        except NoText as error:
            raise HbaseMisfit(f"the column {name}: {error}") from error
        cells += [make_cell(head, encode(row)) for head, encode in self._system]
        # Of a delete the key alone may be known: the other columns stay as they are.
        hidden = make_delete(key, version, nulls) if nulls and not append and not row.deleted else b""
        return make_put(key, cells, version), hidden

    def _row_key(self, row: SinkRow, version: int) -> bytes:
        try:
            key_text = self._key(row) if self._keyed else ""
            key = form_of(key_text, self._settings.row_key_form) if key_text else b""
        except (Unfilled, NoText, UnicodeEncodeError) as error:
            raise HbaseMisfit(str(error)) from error
        if self._settings.append:
            # Each change is a row; those of a key are neighbours, in the order of their versions.
            change = f"{version:019d}:{row.op}:{row.uid or row.position}".encode()
            key = key + b":" + change if key else change
        if not 0 < len(key) <= _LONGEST_KEY:
            raise HbaseMisfit(f"its row key has {len(key)} bytes; HBase takes 1 to {_LONGEST_KEY}")
        return key


def form_of(key: str, form: str) -> bytes:
    """The row key of a row. Pure.

    Args:
        key: as the template has it.
        form: joined, reversed or hashed.
    """
    if form == REVERSED:
        return key[::-1].encode()
    name = key.encode()
    if form == HASHED:
        return md5(name, usedforsecurity=False).hexdigest()[:8].encode() + b"_" + name
    return name


class HBaseClient:
    """See ``shared.model.RowClient``.

    Args:
        settings: the sink's.
        name: of the table in HBase.
        kinds: see ``HbaseRows``.
        table: the rows' table.
    """

    def __init__(self, settings: HbaseSettings, name: str, kinds: Mapping[str, str], table: RowTable) -> None:
        self._settings = settings
        self._name = name.encode()
        self._rows = HbaseRows(settings, kinds, table)
        self._connection: HbaseConnection | None = None

    def write(self, rows: Sequence[SinkRow], refuse: Refuse) -> WriteCounts:
        """See ``RowClient.write``. What is written again is the same cell, and stays one."""
        refused: list[tuple[SinkRow, str]] = []
        puts: list[tuple[SinkRow, bytes]] = []
        hiding: list[tuple[SinkRow, bytes]] = []
        for row in rows:
            try:
                written, hidden = self._rows.changes(row)
            except HbaseMisfit as error:
                refused.append((row, str(error)))
                continue
            if written:
                puts.append((row, written))
            if hidden:
                hiding.append((row, hidden))
        done = WriteCounts(rows=len(rows) - len(refused))
        with translate_errors(self._settings):
            connection = self._open_connection()
            bad = self._send_changes(connection.put_rows, puts, done)
            bad_rows = {id(row) for row, _ in bad}
            hiding = [(row, hidden) for row, hidden in hiding if id(row) not in bad_rows]  # its old values stay
            bad += self._send_changes(connection.delete_rows, hiding, done)
            done.rows -= len(bad)
            refused += bad
        refuse(refused)
        return done

    def close(self) -> None:
        """See ``RowClient.close``."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open_connection(self) -> HbaseConnection:
        if self._connection is None:
            self._connection = HbaseConnection(self._settings)
        return self._connection

    def _send_changes(
        self,
        send: Callable[[bytes, Sequence[bytes]], None],
        changes: Sequence[tuple[SinkRow, bytes]],
        done: WriteCounts,
    ) -> list[tuple[SinkRow, str]]:
        """Send changes; a request that is refused for one of its rows is halved until that row is alone.

        Returns:
            The rows that are refused, with the reasons.
        """
        refused: list[tuple[SinkRow, str]] = []
        waiting = [changes] if changes else []
        while waiting:
            part = waiting.pop()
            done.requests += 1
            try:
                send(self._name, [change for _, change in part])
            except Exception as error:
                reason = row_fault(error)
                if not reason:
                    raise
                if len(part) > 1:
                    middle = len(part) // 2
                    waiting += [part[middle:], part[:middle]]
                    continue
                row, change = part[0]
                if not _text_of_server(error) and len(change) < _LARGE:
                    raise
                refused.append((row, f"HBase refuses it, of {len(change):,} bytes: {reason}"))
        return refused


def row_fault(error: Exception) -> str:
    """The server's reason to refuse a request for one of its rows; empty if the error is about something else. Pure."""
    from thriftpy2.thrift import TApplicationException

    if isinstance(error, TApplicationException):
        # It says no more; its log does.
        return f"{error} (a value may be above the Thrift server's hbase.client.keyvalue.maxsize, 10 MiB by default)"
    message = _text_of_server(error)
    return message if "exceeds limit" in message else ""


def _text_of_server(error: Exception) -> str:
    if not isinstance(error, load_interface().ServerError):
        return ""
    return str(getattr(error, "message", "") or "").partition("\n")[0][:_SHOWN]


def explain_error(error: Exception, settings: HbaseSettings) -> Retriable | Fatal:
    """The error of ours for one of the client. Pure."""
    from thriftpy2.thrift import TApplicationException

    where = f"HBase's Thrift server {settings.access.address}"
    message = _text_of_server(error)
    if "AccessDenied" in message:
        return Fatal(f"{where}: {message}. Give its user the rights to write the table (and to create it)")
    if "NamespaceNotFound" in message:
        return Fatal(f"{where}: {message}. Create the namespace that {PREFIX}table names ({settings.table.text})")
    if "FailedSanityCheck" in message:
        return Fatal(
            f"{where}: {message}. Versions are order numbers: leave hbase.hregion.keyvalue.timestamp.slop.millisecs unset"
        )
    if isinstance(error, TApplicationException) and "method name" in str(error):
        return Fatal(f"{where} speaks another interface ({error}): name a Thrift 2 server in {PREFIX}address")
    return Retriable(f"{where}: {message or error or type(error).__name__}")


@contextmanager
def translate_errors(settings: HbaseSettings) -> Iterator[None]:
    """Turns the client's errors into ours."""
    from thriftpy2.thrift import TException

    try:
        yield
    except (TException, OSError, EOFError) as error:
        raise explain_error(error, settings) from error
