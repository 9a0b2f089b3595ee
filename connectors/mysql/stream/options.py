"""How a stream is read, beyond the form of its records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connectors.mysql.model import RowSource
    from connectors.mysql.schema.tables import MySqlTableState
    from connectors.mysql.source.gtid import GtidSet
    from connectors.mysql.source.statements import SqlStatement


@dataclass(frozen=True)
class StreamOptions:
    """How a stream is read.

    Attributes:
        wants_gtid: whether rows of transactions from this source (uuid, or domain-server) are captured; None: all are.
        queries: whether records carry the statement behind their rows.
        keep_going: whether a row that can't be decoded is left out with a log line; else it goes to the output's ``bad``.
        fold_names: whether the server stores names of tables in lower case, whatever their case in statements.
        apart: whether records never hold rows of several transactions, because batches end between them.
    """

    wants_gtid: Callable[[str], bool] | None = None
    queries: bool = False
    keep_going: bool = False
    fold_names: bool = False
    apart: bool = False


@dataclass(frozen=True)
class StreamListener:
    """Callbacks for events that are not rows of captured tables.

    Attributes:
        take_rows: called with the rows of signal and heartbeat tables: state, operation, rows, place of the event, its time
            (seconds since 1970).
        take_statement: called for statements that are no part of a transaction's frame.
        enter_file: gives the transactions that count in a binlog file which may end in the middle of another one, None for a
            file that does not. It is None where no file does.
    """

    take_rows: Callable[[MySqlTableState, str, list[Any], str, int], None]
    take_statement: Callable[[SqlStatement, RowSource], Awaitable[None]]
    enter_file: Callable[[str], Awaitable[GtidSet | None]] | None = None
