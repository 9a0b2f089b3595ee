"""Places in a binlog: as offsets, as numbers, compared. Pure functions.

An offset has the members and meanings of Debezium's. With them come members of other parts (transaction counters, states of
incremental snapshots ...): they are no part of a position and are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.formats.order_number import FILE_UNIT
from connectors.mysql.model import BinlogPosition
from connectors.mysql.source.gtid import parse_gtids

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Position

FILE: Final = "file"
POS: Final = "pos"
GTIDS: Final = "gtids"
EVENT: Final = "event"
ROW: Final = "row"
SERVER_ID: Final = "server_id"
TS_SEC: Final = "ts_sec"
TRANSACTION_ID: Final = "transaction_id"

#: Where a file's first event begins.
FIRST: Final = 4


def from_offset(offset: Mapping[str, Any]) -> BinlogPosition:
    """The position that an offset describes; other members are ignored, numbers may be strings.

    Raises:
        ValueError: it has no file, or a member is not what it has to be.
    """
    file = offset.get(FILE)
    if not isinstance(file, str) or not file:
        raise ValueError(f"{FILE} must be the name of a binlog file, not {file!r}")
    gtids = offset.get(GTIDS)
    if not isinstance(gtids, str | None):
        raise ValueError(f"{GTIDS} must be a string, not {gtids!r}")  # noqa: TRY004 - a wrong value for whoever wrote it
    return BinlogPosition(
        file=file,
        pos=max(_read_number(offset, POS), FIRST),
        gtids="".join(gtids.split()) if gtids else "",
        event=_read_number(offset, EVENT),
        row=_read_number(offset, ROW),
        server_id=_read_number(offset, SERVER_ID),
        ts_sec=_read_number(offset, TS_SEC),
    )


def _read_number(offset: Mapping[str, Any], name: str) -> int:
    value = offset.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{name} must be a whole number, not {value!r}")  # noqa: TRY004 - see above
    try:
        number = int(value)
    except ValueError:
        raise ValueError(f"{name} must be a whole number, not {value!r}") from None
    if number < 0:
        raise ValueError(f"{name} must not be negative, it is {number}")
    return number


def to_offset(position: BinlogPosition) -> Position:
    """The offset of a position; members without a value are left out as Debezium does."""
    offset: Position = {TRANSACTION_ID: None}
    if position.ts_sec:
        offset[TS_SEC] = position.ts_sec
    offset[FILE] = position.file
    offset[POS] = position.pos
    if position.gtids:
        offset[GTIDS] = position.gtids
    if position.row:
        offset[ROW] = position.row
    if position.server_id:
        offset[SERVER_ID] = position.server_id
    if position.event:
        offset[EVENT] = position.event
    return offset


def file_number(file: str) -> int:
    """The number at the end of a binlog file's name; 0 if it has none."""
    digits = file.rpartition(".")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def next_log(file: str, files: Sequence[str]) -> str | None:
    """The first of a server's files that comes behind ``file``; None: it is the last one."""
    return min((other for other in files if file_number(other) > file_number(file)), key=file_number, default=None)


def order_key(position: BinlogPosition) -> tuple[int, int, int, int]:
    """Return the sort key of a position among positions of the same server."""
    return file_number(position.file), position.pos, position.event, position.row


def position_number(file: str, pos: int) -> int:
    """File and position as one number that grows along the binlog of one server."""
    return file_number(file) * FILE_UNIT + pos


def is_reached(now: BinlogPosition, target: BinlogPosition, flavor: str, *, by_gtid: bool) -> bool:
    """Whether everything before ``target`` is done at ``now``.

    By GTID if asked for and both have some (the positions may then be of different servers), else by file and position.
    """
    if by_gtid and now.gtids and target.gtids:
        return parse_gtids(flavor, target.gtids).is_subset(parse_gtids(flavor, now.gtids))
    return (file_number(now.file), now.pos) >= (file_number(target.file), target.pos)


def bytes_behind(position: BinlogPosition, logs: Sequence[tuple[str, int]]) -> int | None:
    """Bytes of the server's files behind ``position``; None if it is in none of them (purged, or of another server).

    ``logs`` as ``connection.binary_logs`` gives them.
    """
    names = [name for name, _ in logs]
    if position.file not in names:
        return None
    at = names.index(position.file)
    return max(logs[at][1] - position.pos, 0) + sum(size for _, size in logs[at + 1 :])
