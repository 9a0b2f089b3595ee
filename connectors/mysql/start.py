"""Where a task begins: its own saved place, or that of the tasks that owned its rows before. Pure functions.

Places are saved per shard. One task saves under ``{"server": PREFIX}``, which is Debezium's partition, several under
``{"server": PREFIX, "shard": "INDEX/COUNT"}``. When the number of tasks changes, a new *layout* begins: each task starts at the
earliest place of the layout before, and leaves out what the former owner of a row has delivered already. The layout's number is
part of the offset. A place without it is Debezium's or an operator's, and counts as the newest unless a layout says that it
began there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import ConfigInvalid
from connectors.mysql import positions, shards
from connectors.mysql.model import Place, Shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from connectors.api import Position

SERVER: Final = "server"
SHARD: Final = "shard"
SNAPSHOT: Final = "snapshot"
LAYOUT: Final = "shard_layout"
#: In an offset: what former owners of rows have delivered beyond the place, see ``Done``.
DONE: Final = "shard_done"
#: In an offset: the place without a layout at which this layout began; or where the first task of all began, after ``_FRESH``.
ORIGIN: Final = "shard_origin"
_FRESH: Final = "new:"
#: In an offset: id of the server that was read; the unfinished transaction's GTID, and its rows before event ``event``.
SOURCE_SERVER: Final = "source_server"
TX_GTID: Final = "tx_gtid"
TX_ROWS: Final = "tx_rows"


class Spot(NamedTuple):
    """A row's place in one server's stream, comparable: where its transaction begins, the event in it, the row in that.

    A row counts as done by a place if its spot is smaller.
    """

    file: int
    pos: int
    event: int
    row: int


class Done(NamedTuple):
    """What a shard of the layout before has delivered: all of its rows before ``spot``."""

    shard: Shard
    spot: Spot


class Resume(NamedTuple):
    """How to find the place again on another server, where events are cut differently.

    Attributes:
        server: the id of the server whose binlog was read, 0: unknown.
        gtid: of the transaction that is not wholly done, or "".
        rows: how many rows of it this task has seen.
    """

    server: int = 0
    gtid: str = ""
    rows: int = 0


class Start(NamedTuple):
    """Where to begin.

    Attributes:
        place: the place, or None: there is no saved one.
        resume: what only our own offsets say about the place.
        layout: number of the layout that this task saves under.
        origin: the place that this layout goes back to, as ``text_of`` writes it; "": this task's own is the first.
        done: what former owners have delivered beyond ``place``.
    """

    place: Place | None
    resume: Resume
    layout: int
    origin: str
    done: tuple[Done, ...]


class _Saved(NamedTuple):
    shard: Shard
    layout: int | None
    place: Place
    resume: Resume
    origin: str
    done: tuple[Done, ...]

    @property
    def text(self) -> str:
        return text_of(self.place)


def partition(prefix: str, shard: Shard) -> Position:
    """The source partition of a task's place in the stream."""
    return {SERVER: prefix} if shard.count == 1 else {SERVER: prefix, SHARD: shards.text(shard)}


def snapshot_partition(prefix: str, request: str, shard: Shard) -> Position:
    """The source partition of a task's progress in a full pull."""
    return {**partition(prefix, shard), SNAPSHOT: request}


def spot_of(place: Place) -> Spot:
    """The first spot that is not done."""
    return Spot(positions.file_number(place.file), place.pos, place.event, place.row)


def is_stream(prefix: str, source: Mapping[str, Any]) -> bool:
    """Whether a partition is that of a place in the stream of this connector."""
    return source.get(SERVER) == prefix and SNAPSHOT not in source


def _read(prefix: str, saved: Iterable[tuple[Position, Position]]) -> list[_Saved]:
    found = []
    for source, offset in saved:
        if not is_stream(prefix, source) or offset.get("file") is None:
            continue
        try:
            shard = shards.parse(source[SHARD]) if SHARD in source else Shard()
            layout, place = offset.get(LAYOUT), positions.from_offset(offset)
            resume = Resume(
                int(offset.get(SOURCE_SERVER) or 0),
                str(offset.get(TX_GTID) or ""),
                int(offset.get(TX_ROWS) or 0) + place.row,
            )
            found.append(
                _Saved(
                    shard,
                    None if layout is None else int(layout),
                    place,
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
    return found


def _numbered(found: list[_Saved]) -> list[_Saved]:
    """Every place with a layout, also those that were written without one."""
    newest = max((each.layout for each in found if each.layout is not None), default=0)
    counts = {each.shard.count for each in found if each.layout == newest}
    used = {each.origin for each in found}
    numbered = []
    for each in found:
        layout = each.layout
        if layout is None and each.text in used:
            layout = 0
        elif layout is None:
            layout = newest if each.shard.count in counts and each.shard.count > 1 else newest + 1
        numbered.append(each._replace(layout=layout))
    return numbered


def start_of(prefix: str, shard: Shard, saved: Iterable[tuple[Position, Position]]) -> Start:
    """Where the task of ``shard`` begins.

    Raises:
        ConfigInvalid: a saved offset is not understood.
    """
    read = _read(prefix, saved)
    if not read:
        return Start(None, Resume(), 1, "", ())
    unnumbered = {each.text for each in read if each.layout is None}
    found = _numbered(read)
    newest = max(each.layout or 0 for each in found)
    members = [each for each in found if each.layout == newest]
    own = next((each for each in members if each.shard == shard), None)
    if own is not None and own.text not in unnumbered:
        return Start(own.place, own.resume, newest, own.origin, _beyond(own, own.done))
    if own is None and any(each.shard.count == shard.count for each in members):
        # Others of this layout have saved already, this one has not: it begins as they began.
        layout, origin = newest, members[0].origin
        former = [each for each in found if each.text == origin or each.layout == newest - 1]
        if not former:
            return Start(_place_of(origin), Resume(), layout, origin, ())
    else:
        former, layout, origin = members, newest + 1, members[0].origin
        if any(each.text in unnumbered for each in members):
            # Somebody who knows nothing of layouts has written it: what was delivered before does not count any more.
            former = [each for each in members if each.text in unnumbered]
            origin = former[0].text
    first = min(former, key=lambda each: spot_of(each.place))
    done = [
        *(Done(each.shard, spot_of(each.place)) for each in former),
        *(past for each in former for past in each.done),
    ]
    return Start(first.place, first.resume, layout, origin, _beyond(first, done))


def _beyond(own: _Saved, done: Iterable[Done]) -> tuple[Done, ...]:
    beginning = spot_of(own.place)
    return tuple(dict.fromkeys(each for each in done if each.spot > beginning))


def done_text(done: Iterable[Done]) -> str:
    """As an offset has it: ``INDEX/COUNT@FILE NUMBER:POS:EVENT:ROW``, with commas between."""
    return ",".join(f"{shards.text(each.shard)}@{':'.join(map(str, each.spot))}" for each in done)


def _done_of(text: str) -> tuple[Done, ...]:
    found = []
    for part in filter(None, text.split(",")):
        shard, _, spot = part.partition("@")
        file, pos, event, row = map(int, spot.split(":"))
        found.append(Done(shards.parse(shard), Spot(file, pos, event, row)))
    return tuple(found)


def fresh(place: Place) -> str:
    """What ``ORIGIN`` is for the first task of all."""
    return _FRESH + text_of(place)


def text_of(place: Place) -> str:
    """A place as ``ORIGIN`` has it."""
    return f"{place.file}:{place.pos}:{place.event}:{place.row}"


def _place_of(text: str) -> Place | None:
    parts = text.removeprefix(_FRESH).rsplit(":", 3)
    return Place(file=parts[0], pos=int(parts[1]), event=int(parts[2]), row=int(parts[3])) if len(parts) == 4 else None


def needs_initial(prefix: str, shard: Shard, saved: Iterable[tuple[Position, Position]], request: str) -> bool:
    """Whether a task has a first full pull (``request``) to do, or to end, by what was saved of it and of those before it."""
    pairs = [(source, offset) for source, offset in saved if source.get(SERVER) == prefix]
    pulls = {source.get(SHARD, ""): offset for source, offset in pairs if source.get(SNAPSHOT) == request}
    own = pulls.get("" if shard.count == 1 else shards.text(shard))
    if own is not None:
        return own.get("state") != "completed"
    if any(shards.parse(text or "0/1").count == shard.count for text in pulls):
        return True
    if pulls:
        return any(offset.get("state") != "completed" for offset in pulls.values())
    stream = [offset for source, offset in pairs if SNAPSHOT not in source and offset.get("file") is not None]
    # Debezium says so in the offset if its own snapshot has not come to its end.
    return not stream or any(offset.get("snapshot") not in {None, False, "false"} for offset in stream)
