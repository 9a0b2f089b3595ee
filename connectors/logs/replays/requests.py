"""Requests for replays, and how far each is. Pure functions."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from connectors.logs.config import EVENT_START, FROM_KAFKA, TIME_COLUMN, TOPICS, check_stored
from connectors.logs.inputs.kafka_input import OFFSET, TOPIC
from connectors.logs.inputs.kafka_input import PARTITION as TOPIC_PARTITION
from connectors.logs.network.options import INPUT, SCHEMES
from connectors.text_files.options import DIRECTORY, FILE
from connectors.text_files.reader import FILENAME, FINGERPRINT, POSITION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Instruction, Position

#: In an instruction: what is replayed. In a source partition: of which replay it is the progress.
REPLAY: Final = "replay"
PARTITION: Final = "partition"
#: In a request: the oldest version of rules whose rows are replaced, and those rules from it on, which the worker adds.
REPLACES, EARLIER = "replaces", "earlier"
#: In an offset: the next record, the end of the replay, and what was read and accepted so far.
NEXT, END, LINES, ACCEPTED = "next", "end", "lines", "accepted"
#: In an offset of a replay of the input: the file in which the end is, whether the asked time is reached, and the end.
END_FINGERPRINT, REACHED, DONE = "end_fingerprint", "reached", "done"
#: In the offset of a replay as a whole: into how many parts it is divided.
PARTS: Final = "parts"


def from_input(replay: Mapping[str, Any]) -> bool:
    """Whether a replay is one of the input, not of ``unknown_table``."""
    return REPLAY in replay and replay[REPLAY].get("source") == "input"


def check_replay(request: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a request that is kept.

    Raises:
        ConfigInvalid: its time or a position can't be read, or the input can't be read again.
    """
    kept: dict[str, Any] = {}
    since = request.get("since")
    if since:
        kept["since_ms"] = _parse_milliseconds(since)
    positions = request.get("positions")
    if str(request.get("source", "unknown")).lower() != "input":
        if positions:
            raise ConfigInvalid('positions are of the input: give "source": "input", too')
        if request.get(REPLACES):
            raise ConfigInvalid(
                f'{REPLACES} is of the input: give "source": "input", too; unknown lines are deleted in any case'
            )
        return kept
    _check_input(config, kept)
    if request.get(REPLACES):
        for rules in request[EARLIER]:
            check_stored(config, rules, f"whose rows version {request[REPLACES]} and later ones made")
        kept |= {REPLACES: request[REPLACES], EARLIER: request[EARLIER]}
    if positions:
        if since:
            raise ConfigInvalid("give either since or positions; both are there")
        kept["positions"] = [_check_position(asked, config) for asked in positions]
    return {"source": "input", **kept}


def _check_input(config: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    if config[INPUT] in SCHEMES:
        raise ConfigInvalid(
            f"it takes lines from the network ({INPUT}={config[INPUT]}), which can't be read again. Replay the lines of "
            'unknown_table ("source": "unknown"), or let the senders send again'
        )
    if config[INPUT] == FROM_KAFKA:
        if config[EVENT_START]:
            raise ConfigInvalid(
                f"lines of topics that {EVENT_START} joins can't be replayed while the source reads on: stop the connector, "
                "alter its offsets, and resume it"
            )
    elif "since_ms" in kept and not config[TIME_COLUMN]:
        raise ConfigInvalid(
            f"a file does not say when its lines were written: set {TIME_COLUMN} to the column that has the time, or give "
            "positions instead of since"
        )


def _check_position(asked: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """A source partition and the offset to start at."""
    partition, offset = asked.get("partition"), asked.get("offset")
    names, member = ((TOPIC, TOPIC_PARTITION), OFFSET) if config[INPUT] == FROM_KAFKA else ((FILENAME,), POSITION)
    if not isinstance(partition, dict) or set(partition) != set(names) or not _is_of(partition, config):
        raise ConfigInvalid(
            f"{partition!r} is no source partition of this connector; GET /connectors/NAME/offsets shows them, with the "
            f"members {', '.join(names)}"
        )
    number = offset.get(member) if isinstance(offset, dict) else None
    if not isinstance(offset, dict) or not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConfigInvalid(f"an offset must have a number {member!r} from 0; {offset!r} has not")
    start: dict[str, Any] = {member: number}
    if isinstance(offset.get(FINGERPRINT), str):
        start[FINGERPRINT] = offset[FINGERPRINT]
    return {"partition": {name: partition[name] for name in names}, "offset": start}


def _is_of(partition: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a source partition is one of this connector."""
    if config[INPUT] == FROM_KAFKA:
        return partition.get(TOPIC) in config[TOPICS] and isinstance(partition.get(TOPIC_PARTITION), int)
    path = partition.get(FILENAME)
    if not isinstance(path, str):
        return False
    return path == config[FILE] or (bool(config[DIRECTORY]) and Path(path).parent == Path(config[DIRECTORY]))


def _parse_milliseconds(since: str) -> int:
    try:
        moment = datetime.fromisoformat(since)
    except ValueError as error:
        raise ConfigInvalid(f"since is no time: {error}; write it as in 2026-11-26T17:00:00Z") from error
    if moment.tzinfo is None:
        raise ConfigInvalid(f"since has no time zone: {since}; write it as in 2026-11-26T17:00:00Z")
    return int(moment.timestamp() * 1000)


def is_done(progress: Mapping[Any, Position]) -> bool:
    """Whether a replay of ``unknown_table`` with this progress has come to its end."""
    whole = progress.get("")
    parts = [offset for part, offset in progress.items() if part != ""]
    return whole is not None and len(parts) >= whole[PARTS] and all(part[NEXT] >= part[END] for part in parts)


def is_part(partition: Position) -> bool:
    """Whether a source partition is the progress of a replay of ``unknown_table``."""
    return REPLAY in partition and FILENAME not in partition and TOPIC not in partition


def show_replays(
    config: Mapping[str, Any],
    instructions: Sequence[Instruction],
    offsets: Sequence[tuple[Position, Position]],
) -> list[dict[str, Any]]:
    """The replays of a connector with their progress (``SourceConnector.snapshots``)."""
    return [
        _show_input(config, replay, offsets) if from_input(replay) else _show_unknown(replay, offsets)
        for replay in instructions
    ]


def _show_unknown(replay: Instruction, offsets: Sequence[tuple[Position, Position]]) -> dict[str, Any]:
    saved = {
        partition.get(PARTITION, ""): offset
        for partition, offset in offsets
        if is_part(partition) and partition[REPLAY] == replay["id"]
    }
    parts = [offset for part, offset in saved.items() if part != ""]
    left = sum(max(0, part[END] - part[NEXT]) for part in parts) if saved else None
    return _show_replay(replay, parts, left, started=bool(saved), done=is_done(saved))


def _show_input(
    config: Mapping[str, Any], replay: Instruction, offsets: Sequence[tuple[Position, Position]]
) -> dict[str, Any]:
    parts, inputs = [], 0
    for partition, offset in offsets:
        if REPLAY not in partition:
            inputs += _is_of(partition, config)
        elif partition[REPLAY] == replay["id"] and not is_part(partition):
            parts.append(offset)
    running = [part for part in parts if not part.get(DONE)]
    left = None
    if parts and all(OFFSET in part for part in running):
        left = sum(max(0, part[END] - part[OFFSET]) for part in running)
    done = len(parts) >= max(inputs, 1) and not running
    return _show_replay(replay, parts, left, started=bool(parts), done=done)


def _show_replay(
    replay: Instruction, parts: Sequence[Position], left: int | None, *, started: bool, done: bool
) -> dict[str, Any]:
    state = replay["state"]
    if done:
        state = "completed"
    elif state == "running" and not started:
        state = "waiting"
    return {
        **replay,
        REPLAY: {name: value for name, value in replay[REPLAY].items() if name != EARLIER},
        "state": state,
        "lines": sum(part[LINES] for part in parts),
        "accepted": sum(part[ACCEPTED] for part in parts),
        "records_left": left,
    }
