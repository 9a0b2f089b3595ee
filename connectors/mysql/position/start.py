"""Where a task begins: its own saved position, or that of the tasks that owned its rows before. Pure functions.

Positions are saved per shard. One task saves under ``{"server": PREFIX}``, which is Debezium's partition, several under
``{"server": PREFIX, "shard": "INDEX/COUNT"}``. When the number of tasks changes, a new *layout* begins: each task starts at
the earliest position of the layout before, and leaves out what the former owner of a row has delivered already. The layout's
number is part of the offset. A position without it is Debezium's or an operator's, and counts as the newest unless a layout
says that it began there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import ConfigInvalid
from connectors.mysql.model import BinlogPosition, Shard
from connectors.mysql.position import positions, shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from connectors.api import Position

SERVER: Final = "server"
SHARD: Final = "shard"
SNAPSHOT: Final = "snapshot"
LAYOUT: Final = "shard_layout"
#: In an offset: what former owners of rows have delivered beyond the position, see ``ShardDone``.
DONE: Final = "shard_done"
#: In an offset: the position without a layout at which this layout began; or where the first task began, after ``_FRESH``.
ORIGIN: Final = "shard_origin"
_FRESH: Final = "new:"
#: In an offset: id of the server that was read; the unfinished transaction's GTID, and its rows before event ``event``.
SOURCE_SERVER: Final = "source_server"
TX_GTID: Final = "tx_gtid"
TX_ROWS: Final = "tx_rows"
#: In an offset: other transactions of which a part was delivered, ``GTID:ROWS`` with commas between. After a failover they may
#: come later than those that are read first.
TX_OTHERS: Final = "tx_others"
#: In an offset: only its GTIDs say where the stream is: the server was asked by them, and has some behind the position.
BY_GTID: Final = "by_gtid"
#: In an offset: where the signal is that has set the position, ``SERVER:FILE:POS``, until the stream has come by it again.
MOVED_BY: Final = "moved_by"
#: In an offset: which record of the signal topic has set the position, ``TOPIC-0:OFFSET``, until the topic is read behind it.
MOVED_BY_RECORD: Final = "moved_by_record"


class RowPosition(NamedTuple):
    """A row's position in one server's stream, comparable: where its transaction starts, the event in it, the row in that.

    A row counts as delivered at a position if its own one is smaller.
    """

    file: int
    pos: int
    event: int
    row: int


class ShardDone(NamedTuple):
    """Says that a shard of the layout before has delivered all of its rows before ``position``."""

    shard: Shard
    position: RowPosition


class Resume(NamedTuple):
    """How to find the position again on another server, where events are cut differently.

    Attributes:
        server: the id of the server whose binlog was read, 0: unknown.
        gtid: of the transaction that is not wholly done, or "".
        rows: how many rows of it this task has seen.
        by_gtid: whether only the GTIDs of the position count, also at that server.
        moved_by: the signal that has set the position, or "".
        moved_by_record: the same of the signal topic.
        others: other transactions that are not wholly done, with their rows that this task has seen.
    """

    server: int = 0
    gtid: str = ""
    rows: int = 0
    by_gtid: bool = False
    moved_by: str = ""
    moved_by_record: str = ""
    others: tuple[tuple[str, int], ...] = ()


class Start(NamedTuple):
    """Where to begin.

    Attributes:
        position: the position, or None: there is no saved one.
        resume: what only our own offsets say about the position.
        layout: number of the layout that this task saves under.
        origin: the position that this layout goes back to, as ``text_of`` writes it; "": this task's own is the first.
        done: what former owners have delivered beyond ``position``.
    """

    position: BinlogPosition | None
    resume: Resume
    layout: int
    origin: str
    done: tuple[ShardDone, ...]


class ConnectionStart(NamedTuple):
    """Where one connection to the source begins.

    Attributes:
        run_start: where the task began.
        position: where this connection begins.
        same_server: whether ``position`` counts events of the server that is read now.
    """

    run_start: Start
    position: BinlogPosition
    same_server: bool


class _Saved(NamedTuple):
    shard: Shard
    layout: int | None
    position: BinlogPosition
    resume: Resume
    origin: str
    done: tuple[ShardDone, ...]

    @property
    def text(self) -> str:
        return text_of(self.position)


def stream_partition(prefix: str, shard: Shard) -> Position:
    """The source partition of a task's position in the stream."""
    return {SERVER: prefix} if shard.count == 1 else {SERVER: prefix, SHARD: shards.format_shard(shard)}


def snapshot_partition(prefix: str, request: str, shard: Shard) -> Position:
    """The source partition of a task's progress in a snapshot."""
    return {**stream_partition(prefix, shard), SNAPSHOT: request}


def row_position_of(position: BinlogPosition) -> RowPosition:
    """The position of the first row that is not delivered."""
    return RowPosition(positions.file_number(position.file), position.pos, position.event, position.row)


def is_stream(prefix: str, source: Mapping[str, Any]) -> bool:
    """Whether a partition is that of a position in the stream of this connector."""
    return source.get(SERVER) == prefix and SNAPSHOT not in source


def is_position(prefix: str, source: Mapping[str, Any]) -> bool:
    """Whether a partition is one under which positions in the stream of this connector are saved, and nothing else."""
    return is_stream(prefix, source) and not set(source) - {SERVER, SHARD}


def _read_saved(prefix: str, saved: Iterable[tuple[Position, Position]]) -> list[_Saved]:
    saved_positions = []
    for source, offset in saved:
        if not is_stream(prefix, source) or offset.get("file") is None:
            continue
        try:
            shard = shards.parse_shard(source[SHARD]) if SHARD in source else Shard()
            layout, position = offset.get(LAYOUT), positions.from_offset(offset)
            resume = Resume(
                int(offset.get(SOURCE_SERVER) or 0),
                str(offset.get(TX_GTID) or ""),
                int(offset.get(TX_ROWS) or 0) + position.row,
                bool(offset.get(BY_GTID)),
                str(offset.get(MOVED_BY) or ""),
                str(offset.get(MOVED_BY_RECORD) or ""),
                _others_of(str(offset.get(TX_OTHERS) or "")),
            )
            saved_positions.append(
                _Saved(
                    shard,
                    None if layout is None else int(layout),
                    position,
                    resume,
                    str(offset.get(ORIGIN) or ""),
                    _done_of(str(offset.get(DONE) or "")),
                )
            )
        except (TypeError, ValueError) as error:
            raise ConfigInvalid(
                f"the saved offset {offset} of partition {source} can't be understood: {error}; correct it "
                "with PATCH /connectors/NAME/offsets, or reset it"
            ) from error
    return saved_positions


def _number_layouts(saved_positions: list[_Saved]) -> list[_Saved]:
    """Every position with a layout, also those that were written without one."""
    newest = max((saved.layout for saved in saved_positions if saved.layout is not None), default=0)
    counts = {saved.shard.count for saved in saved_positions if saved.layout == newest}
    used = {saved.origin for saved in saved_positions}
    numbered = []
    for saved in saved_positions:
        layout = saved.layout
        if layout is None and saved.text in used:
            layout = 0
        elif layout is None:
            layout = newest if saved.shard.count in counts and saved.shard.count > 1 else newest + 1
        numbered.append(saved._replace(layout=layout))
    return numbered


def start_of(prefix: str, shard: Shard, saved: Iterable[tuple[Position, Position]]) -> Start:
    """Where the task of ``shard`` begins.

    Raises:
        ConfigInvalid: a saved offset is not understood.
    """
    read = _read_saved(prefix, saved)
    if not read:
        return Start(None, Resume(), 1, "", ())
    unnumbered = {candidate.text for candidate in read if candidate.layout is None}
    numbered = _number_layouts(read)
    newest = max(candidate.layout or 0 for candidate in numbered)
    members = [candidate for candidate in numbered if candidate.layout == newest]
    own_saved = next((candidate for candidate in members if candidate.shard == shard), None)
    if own_saved is not None and own_saved.text not in unnumbered:
        return Start(
            own_saved.position, own_saved.resume, newest, own_saved.origin, _done_beyond(own_saved, own_saved.done)
        )
    if own_saved is None and any(candidate.shard.count == shard.count for candidate in members):
        # Others of this layout have saved already, this one has not: it begins as they began.
        layout, origin = newest, members[0].origin
        former = [candidate for candidate in numbered if candidate.text == origin or candidate.layout == newest - 1]
        if not former:
            return Start(_position_of(origin), Resume(), layout, origin, ())
    else:
        former, layout, origin = members, newest + 1, members[0].origin
        if any(candidate.text in unnumbered for candidate in members):
            # Somebody who knows nothing of layouts has written it: what was delivered before does not count any more.
            former = [candidate for candidate in members if candidate.text in unnumbered]
            origin = former[0].text
    first = min(former, key=lambda candidate: row_position_of(candidate.position))
    done = [
        *(ShardDone(candidate.shard, row_position_of(candidate.position)) for candidate in former),
        *(past for candidate in former for past in candidate.done),
    ]
    return Start(first.position, first.resume, layout, origin, _done_beyond(first, done))


def _done_beyond(own_saved: _Saved, done: Iterable[ShardDone]) -> tuple[ShardDone, ...]:
    start_position = row_position_of(own_saved.position)
    return tuple(dict.fromkeys(shard_done for shard_done in done if shard_done.position > start_position))


def done_text(done: Iterable[ShardDone]) -> str:
    """As an offset has it: ``INDEX/COUNT@FILE NUMBER:POS:EVENT:ROW``, with commas between."""
    return ",".join(
        f"{shards.format_shard(shard_done.shard)}@{':'.join(map(str, shard_done.position))}" for shard_done in done
    )


def _done_of(packed: str) -> tuple[ShardDone, ...]:
    parsed = []
    for part in filter(None, packed.split(",")):
        shard, _, spot_text = part.partition("@")
        file, pos, event, row = map(int, spot_text.split(":"))
        parsed.append(ShardDone(shards.parse_shard(shard), RowPosition(file, pos, event, row)))
    return tuple(parsed)


def others_text(others: Mapping[str, int], gtid: str) -> str:
    """The transactions of ``TX_OTHERS``, but for one."""
    return ",".join(f"{other}:{rows}" for other, rows in others.items() if other != gtid)


def _others_of(packed: str) -> tuple[tuple[str, int], ...]:
    parts = (part.rpartition(":") for part in filter(None, packed.split(",")))
    return tuple((gtid, int(rows)) for gtid, _, rows in parts)


def fresh_origin(position: BinlogPosition) -> str:
    """Return the value of ``ORIGIN`` for the first task of all."""
    return _FRESH + text_of(position)


def text_of(position: BinlogPosition) -> str:
    """A position as ``ORIGIN`` has it."""
    return f"{position.file}:{position.pos}:{position.event}:{position.row}"


def _position_of(packed: str) -> BinlogPosition | None:
    parts = packed.removeprefix(_FRESH).rsplit(":", 3)
    return (
        BinlogPosition(file=parts[0], pos=int(parts[1]), event=int(parts[2]), row=int(parts[3]))
        if len(parts) == 4
        else None
    )


def needs_initial(prefix: str, shard: Shard, saved: Iterable[tuple[Position, Position]], request: str) -> bool:
    """Whether a task must take or complete an initial snapshot (``request``), by its own and its predecessors' offsets."""
    pairs = [(source, offset) for source, offset in saved if source.get(SERVER) == prefix]
    snapshot_offsets = {source.get(SHARD, ""): offset for source, offset in pairs if source.get(SNAPSHOT) == request}
    own_offset = snapshot_offsets.get("" if shard.count == 1 else shards.format_shard(shard))
    if own_offset is not None:
        return own_offset.get("state") != "completed"
    if any(shards.parse_shard(shard_text or "0/1").count == shard.count for shard_text in snapshot_offsets):
        return True
    if snapshot_offsets:
        return any(offset.get("state") != "completed" for offset in snapshot_offsets.values())
    stream = [offset for source, offset in pairs if SNAPSHOT not in source and offset.get("file") is not None]
    # Debezium says so in the offset if its own snapshot has not come to its end.
    return not stream or any(offset.get("snapshot") not in {None, False, "false"} for offset in stream)
