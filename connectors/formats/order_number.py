"""The order number of a change, ``ums_id_``: the larger one of two changes of a key is the newer one.

One function for every form of a message (Debezium's envelope, UMS) and every reader (jobs' sources, the materializer, verify),
so that a table can be fed by any of them in turn. Pure functions.

* Binlog (MySQL, MariaDB): ``file number * 10^12 + position of the row's event + number of the row in the event``, DBus's
  layout. File 103, position 12,345,678 is 103000012345678 (DBus writes 000103000012345678). A row takes at least one byte of
  its event, so the next event's numbers are larger. In a compressed event (MariaDB's log_bin_compress, MySQL's
  TRANSACTION_PAYLOAD) there can be more rows than bytes; there ``row_number`` ends at the event's last byte, and the rows that
  are left share that number. A snapshot's row has the number of its read view's position, which is below any later change.
* Scylla, Cassandra: the write time in µs.
* PostgreSQL: the LSN.
* The materializer gives a number of its own to each event (``source.ums_id``).

Readers let a later arrival of an equal number win: rows with one number come in order, and a replay brings the last one, too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Numbers for one binlog file: a file has fewer bytes.
FILE_UNIT: Final = 10**12
#: The largest file number whose numbers fit 64 bits.
LAST_FILE: Final = (1 << 63) // FILE_UNIT - 1
#: ``source.connector`` of sources that order changes by write time.
BY_WRITE_TIME: Final = ("scylla", "cassandra")
#: Members of a ``source`` block that order its change, as ``order_number`` takes them.
MEMBERS: Final = ("connector", "ums_id", "lsn", "file", "pos", "row", "ts_us", "ts_ns", "ts_ms")
NO_FILE_NUMBER: Final = (
    "the binlog file's name must end with a point and a number up to 9223371, as in mysql-bin.000103"
)
NO_POSITION: Final = "the binlog position must be from 0 to 10^12 - 1"


def binlog_number(file: str, pos: int, row: int = 0) -> int:
    """The number of a row of a binlog event.

    Args:
        file: the binlog file's name.
        pos: where the event begins in it.
        row: the row's number in the event, from 0; see ``row_number``.

    Raises:
        ValueError: the file's name has no number, or the number or the position is too large.
    """
    base = _file_base(file)
    if base is None:
        raise ValueError(f"no order number for {file!r}: {NO_FILE_NUMBER}")
    if not 0 <= pos + row < FILE_UNIT:
        raise ValueError(f"no order number for {file}:{pos} row {row}: {NO_POSITION}")
    return base + pos + row


@lru_cache(maxsize=64)
def _file_base(file: str) -> int | None:
    _, point, digits = file.rpartition(".")
    if not point or not digits.isascii() or not digits.isdigit() or int(digits) > LAST_FILE:
        return None
    return int(digits) * FILE_UNIT


def row_number(row: int, size: int) -> int:
    """The number of a row in its event as messages have it: less than the event's bytes. ``size`` 0: it is not known."""
    return min(row, size - 1) if size else row


def order_number(
    connector: str | None,
    ums_id: int | None,
    lsn: int | None,
    file: str | None,
    pos: int | None,
    row: int | None,
    ts_us: int | None,
    ts_ns: int | None,
    ts_ms: int | None,
) -> int | None:
    """The number that the members of a Debezium event's ``source`` say (``MEMBERS``); None: they say none.

    Where they say none, Kafka's offset is what orders changes.

    Raises:
        ValueError: see ``binlog_number``.
    """
    if ums_id is not None:
        return int(ums_id)
    if connector in BY_WRITE_TIME:
        return choose_micros(ts_us, ts_ns, ts_ms)
    if lsn is not None:
        return int(lsn)
    if not file or pos is None:
        return None
    return binlog_number(file, int(pos), int(row or 0))


def source_number(source: Mapping[str, Any]) -> int | None:
    """``order_number`` of a ``source`` block."""
    return order_number(*[source.get(name) for name in MEMBERS])


def choose_micros(ts_us: int | None, ts_ns: int | None, ts_ms: int | None) -> int | None:
    """The time of a change in µs since 1970, from the finest member that is there; None if the time is unknown."""
    if ts_us is not None:
        return int(ts_us)
    if ts_ns is not None:
        return int(ts_ns) // 1000
    return None if ts_ms is None else int(ts_ms) * 1000
