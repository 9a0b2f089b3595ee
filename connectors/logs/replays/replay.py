"""Replays: lines that were read before are given to the rules again, at the same time as the task's source.

The first task replays the lines of ``unknown_table``: it reads the topic back, up to its end when the replay begins. How far it
is, is saved with the rows, under source partitions of the replay, so that with exactly once a crash neither loses nor repeats a
row. A line that is accepted is deleted in ``unknown_table`` among its rows, by a tombstone or by a UMS message: no later replay
gets it.

Replays of the input are ``input_replay``'s.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from connectors.api import Batch, Position, SourceRecord
from connectors.errors import Skippable
from connectors.logs.config import ID_COLUMN, OUTPUT
from connectors.logs.metrics import REPLAYED
from connectors.logs.replays.input_replay import InputReplays
from connectors.logs.replays.requests import (
    ACCEPTED,
    END,
    LINES,
    NEXT,
    PARTITION,
    PARTS,
    REPLAY,
    from_input,
    is_done,
    is_part,
)
from connectors.logs.replays.unknown_lines import find_deleted, read_unknown
from connectors.logs.rows import DELIVERED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from connectors.api import Instruction, TaskContext, WrittenRecord
    from connectors.logs.replays.unknown_lines import UnknownLine
    from connectors.logs.rows import RowMaker

_SAVED_PAUSE_S: Final = 0.2
_NEVER: Final = -1


class Replays:
    """The replays of one task.

    Args:
        context: of the task.
        rows: makes records of lines.
        host: the host of lines that do not say theirs.
        asked: the replays that were asked for before the task started.
    """

    def __init__(self, context: TaskContext, rows: RowMaker, host: str = "", asked: Sequence[Instruction] = ()) -> None:
        self._inputs = InputReplays(context, rows, host, asked)
        self._context = context
        self._rows = rows
        #: The key of a UMS message is that of all rows: only the message says which row it deletes.
        self._is_ums = context.config[OUTPUT] == "ums"
        self._asked: dict[str, Instruction] = {}
        #: Replay -> part -> offset, as it was saved or given since; the part "" is the replay as a whole.
        self._progress: dict[str, dict[Any, Position]] = {}
        for partition, offset in context.offsets.items():
            if is_part(partition):
                self._progress.setdefault(partition[REPLAY], {})[partition.get(PARTITION, "")] = offset

    def take(self, asked: Sequence[Instruction]) -> None:
        """Note the complete list of replays that are asked for."""
        self._asked = {replay["id"]: replay for replay in asked}
        self._inputs.take(asked)

    def passed(self, batch: Batch) -> None:
        """A batch of the source was given."""
        self._inputs.passed(batch)

    @property
    def pending(self) -> bool:
        """Whether ``run`` has something to do."""
        return self._pending_unknown or self._inputs.pending

    @property
    def _pending_unknown(self) -> bool:
        return self._context.task == 0 and (bool(self._forgotten_replays()) or self._next_replay() is not None)

    async def run(self) -> AsyncGenerator[Batch, None]:
        """Yield batches until no replay is left to run.

        Raises:
            Fatal: a file can't be read.
            Retriable: Kafka does not answer, or a file can't be read now.
        """
        while self.pending:
            replays = self._run_unknown() if self._pending_unknown else self._inputs.run()
            async with aclosing(replays) as batches:
                async for batch in batches:
                    yield batch
                    del batch

    async def _run_unknown(self) -> AsyncGenerator[Batch, None]:
        forgotten = self._forgotten_replays()
        if forgotten:
            yield Batch([], offsets=tuple((part, None) for replay in forgotten for part in self._parts_of(replay)))
            for replay in forgotten:
                del self._progress[replay]
        while (name := self._next_replay()) is not None:
            if name not in self._progress:
                yield await self._note_bounds(name)
            for part in sorted(part for part in self._progress[name] if part != ""):
                async with aclosing(self._run_part(name, part)) as batches:
                    async for batch in batches:
                        yield batch
                        del batch
            while not self._is_saved(name):
                # The next replay reads what this one deletes: only what is committed can be read.
                yield Batch([])
                await asyncio.sleep(_SAVED_PAUSE_S)

    def _forgotten_replays(self) -> list[str]:
        """Replays with progress that are not asked for any more."""
        return [name for name in self._progress if name not in self._asked]

    def _next_replay(self) -> str | None:
        return next(
            (
                name
                for name, replay in self._asked.items()
                if replay["state"] == "running"
                and REPLAY in replay
                and not from_input(replay)
                and not is_done(self._progress.get(name, {}))
            ),
            None,
        )

    def _is_running(self, name: str) -> bool:
        return name in self._asked and self._asked[name]["state"] == "running"

    def _parts_of(self, name: str) -> list[Position]:
        return [_replay_partition(name, part) for part in self._progress[name]]

    def _is_saved(self, name: str) -> bool:
        """Whether all progress of a replay is committed; true where it does not run any more."""
        if not self._is_running(name) or not is_done(self._progress[name]):
            return True
        saved = self._context.offsets.get
        return all(saved(_replay_partition(name, part)) == offset for part, offset in self._progress[name].items())

    async def _note_bounds(self, name: str) -> Batch:
        """Note where each partition of the topic ends now; nothing behind it is replayed."""
        topic = self._rows.unknown_topic
        bounds = await self._context.written.bounds(topic)
        progress: dict[Any, Position] = {
            part: {NEXT: first, END: end, LINES: 0, ACCEPTED: 0} for part, (first, end) in bounds.items()
        }
        progress[""] = {PARTS: len(bounds)}
        self._progress[name] = progress
        self._context.log.info("replay %s begins with topic %s", name, topic)
        return Batch([], offsets=tuple((_replay_partition(name, part), offset) for part, offset in progress.items()))

    async def _run_part(self, name: str, part: int) -> AsyncGenerator[Batch, None]:
        """The batches of one partition of the topic, until its end or until the replay is paused."""
        topic, written = self._rows.unknown_topic, self._context.written
        offset = self._progress[name][part]
        start, end = offset[NEXT], offset[END]
        if start >= end or not self._is_running(name):
            return
        #: Key, or with UMS what identifies the line -> the offset of the last record that deletes it.
        deleted: dict[bytes | str | None, int] = {}
        async with aclosing(written.read(topic, part, start, end)) as stretches:
            async for records, _ in stretches:
                for record in records:
                    if record.value is None:
                        deleted[record.key] = record.offset
                    elif self._is_ums and (line := await self._find_deleted(record)) is not None:
                        deleted[line] = record.offset
                yield Batch([])
        async with aclosing(written.read(topic, part, start, end)) as stretches:
            async for records, behind in stretches:
                if not self._is_running(name):
                    return
                yield await self._make_batch(name, part, records, deleted, behind)

    async def _make_batch(
        self,
        name: str,
        part: int,
        records: Sequence[WrittenRecord],
        deleted: Mapping[bytes | str | None, int],
        behind: int,
    ) -> Batch:
        since = self._asked[name][REPLAY].get("since_ms") or 0
        lines = [
            (record, await self._read_line(record))
            for record in records
            if record.value is not None
            and record.timestamp >= since
            and record.offset >= deleted.get(record.key, _NEVER)
        ]
        # Nothing is awaited from here on: all rows are made by the same rules.
        partition, offset = _replay_partition(name, part), self._progress[name][part]
        created: list[SourceRecord] = []
        for record, line in lines:
            if line is None or record.offset < deleted.get(line.name, _NEVER):
                continue
            before = {**offset, NEXT: record.offset}
            delivered = before.pop(DELIVERED, 0) if offset[NEXT] == record.offset else 0
            before.pop(DELIVERED, None)
            after = {**before, NEXT: record.offset + 1, LINES: offset[LINES] + 1}
            identity = line.name or f"{self._rows.unknown_topic}/{part}:{record.offset}"
            counted = len(created)
            accepted = self._rows.add_replayed(
                created,
                partition,
                before,
                after,
                line.line,
                line.origin,
                identity,
                line.number,
                delivered,
            )
            after[ACCEPTED] += accepted
            if len(created) > counted:
                created[-1].source_offset = after
            offset = after
            self._context.metrics.add(REPLAYED, 1, {"result": "accepted" if accepted else "unknown"})
        offset = {key: value for key, value in offset.items() if key != DELIVERED} | {NEXT: behind}
        self._progress[name][part] = offset
        return Batch(created, offsets=((partition, offset),), receipt=self._rows.counts.report())

    async def _read_line(self, record: WrittenRecord) -> UnknownLine | None:
        """The line in a record; None if it is something else."""
        try:
            value = await self._decode_record(record)
        except Skippable as error:
            self._context.log.warning(
                "offset %d of %s is no unknown line: %s", record.offset, self._rows.unknown_topic, error
            )
            return None
        return read_unknown(value, record.timestamp, self._context.config[ID_COLUMN])

    async def _find_deleted(self, record: WrittenRecord) -> str | None:
        """The name of the line that a UMS message deletes; None if the record is something else."""
        try:
            return find_deleted(await self._decode_record(record), self._context.config[ID_COLUMN])
        except Skippable:
            return None  # ``_read_line`` says so

    async def _decode_record(self, record: WrittenRecord) -> Any:
        return await self._context.written.decode(self._rows.unknown_topic, record.value or b"")


def _replay_partition(name: str, part: Any) -> Position:
    return {REPLAY: name} if part == "" else {REPLAY: name, PARTITION: part}
