"""Replays of the input: its lines are read and given to the rules again, up to where the source is when the replay begins.

Each task replays its own files or partitions, at the same time as it reads on. How far it is, is saved with the rows, under a
source partition for each file or partition of the replay. What a line becomes has the identity that it had before. Rows that
earlier rules made, and those of now do not, are deleted where the request names these rules.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from aiokafka import TopicPartition

from connectors.api import Batch, Position
from connectors.errors import ConfigInvalid, Fatal
from connectors.logs.config import FROM_KAFKA, check_stored, task_partitions
from connectors.logs.heartbeats import LogHeartbeats
from connectors.logs.inputs.file_input import read_file_again
from connectors.logs.inputs.kafka_input import OFFSET, PARTITION, TOPIC, find_offsets, read_partition_again
from connectors.logs.metrics import LINES as LINES_METRIC
from connectors.logs.metrics import REPLAYED, ROWS, UNKNOWN
from connectors.logs.network.options import INPUT, SCHEMES
from connectors.logs.replays.requests import (
    ACCEPTED,
    DONE,
    EARLIER,
    END,
    END_FINGERPRINT,
    LINES,
    REACHED,
    REPLAY,
    from_input,
)
from connectors.logs.rows import DELIVERED, RowMaker
from connectors.logs.rules.compiled import compile_rules
from connectors.text_files.options import read_settings
from connectors.text_files.reader import FILENAME, FINGERPRINT, POSITION

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from connectors.api import Instruction, TaskContext

#: Members of a replay's offset that are the input's own.
_INPUT_MEMBERS: Final = frozenset({POSITION, FINGERPRINT, OFFSET, DELIVERED})


class InputReplays:
    """The replays of the input of one task.

    Args:
        context: of the task.
        rows: what the source makes rows with; the replays' rows are made by the same rules.
        host: the host of lines that do not say theirs.
        asked: the replays that were asked for before the task started.
    """

    def __init__(self, context: TaskContext, rows: RowMaker, host: str, asked: Sequence[Instruction] = ()) -> None:
        self._context = context
        self._rows = rows
        self._host = host
        self._counts = _Counts(context)
        self._heartbeats = LogHeartbeats(context.config, self._counts, host)
        self._maker = RowMaker(rows.rules, context.config, self._counts, self._heartbeats)
        self._asked: dict[str, Instruction] = {}
        self._inputs = {_partition_key(partition): partition for partition in _source_partitions(context.config)}
        #: Input -> the offset behind what the source gave.
        self._source_offsets: dict[tuple[Any, ...], Position] = {}
        #: Replay -> input -> offset, as it was saved or given since.
        self._progress: dict[str, dict[tuple[Any, ...], Position]] = {}
        for partition, offset in context.offsets.items():
            source = {name: value for name, value in partition.items() if name != REPLAY}
            if _partition_key(source) in self._inputs:
                if REPLAY in partition:
                    self._progress.setdefault(partition[REPLAY], {})[_partition_key(source)] = offset
                else:
                    self._source_offsets[_partition_key(source)] = offset
        #: Replays in which the inputs of ``_unread`` have no part: they came later, or the source reads all of them itself.
        self._older = {replay["id"] for replay in asked}
        self._unread = self._inputs.keys() - self._source_offsets.keys()

    def take(self, asked: Sequence[Instruction]) -> None:
        """Note the complete list of replays that are asked for."""
        self._asked = {replay["id"]: replay for replay in asked}

    def passed(self, batch: Batch) -> None:
        """A batch of the source was given."""
        last = batch.records[-1:]
        for partition, offset in (
            *((record.source_partition, record.source_offset) for record in last),
            *batch.offsets,
        ):
            key = _partition_key(partition)
            if offset is None:
                self._source_offsets.pop(key, None)
            elif key in self._inputs:
                self._source_offsets[key] = offset

    @property
    def pending(self) -> bool:
        """Whether ``run`` has something to do."""
        return bool(self._forgotten_replays()) or self._next_replay() is not None

    async def run(self) -> AsyncGenerator[Batch, None]:
        """Yield batches until no replay is left to run.

        Raises:
            Fatal: a file can't be read.
            Retriable: Kafka does not answer, or a file can't be read now.
        """
        for forgotten in self._forgotten_replays():
            parts = tuple((self._replay_partition(forgotten, key), None) for key in self._progress.pop(forgotten))
            yield Batch([], offsets=parts)
        while (name := self._next_replay()) is not None:
            progress = self._progress.setdefault(name, {})
            missing = [key for key in self._inputs if key not in progress]
            if missing:
                read = [key for key in missing if name not in self._older or key not in self._unread]
                starts = await self._find_starts(self._asked[name][REPLAY], read) if read else {}
                # Nothing is awaited from here on: the source may have gone on before.
                progress.update({key: self._start_offset(starts.get(key), key) for key in missing})
                self._context.log.info("replay %s begins with %d inputs", name, len(missing))
                yield Batch([], offsets=tuple((self._replay_partition(name, key), progress[key]) for key in missing))
            if not self._is_running(name):
                continue
            # Later than the numbers of all rows before, whichever of a line's rows had them.
            self._maker.order_base = self._asked[name]["created_ms"] * 1000
            self._maker.replaced = await self._make_replaced(name)
            for key in [key for key, offset in progress.items() if not offset.get(DONE)]:
                async with aclosing(self._run_input(name, key)) as batches:
                    async for batch in batches:
                        yield batch
                        del batch

    async def _make_replaced(self, name: str) -> list[RowMaker]:
        """Makers by the rules whose rows a replay replaces."""
        config = self._context.config
        documents = self._asked[name][REPLAY].get(EARLIER, ())

        def compile_all() -> list[RowMaker]:
            rules = [compile_rules(check_stored(config, document, f"of replay {name}")) for document in documents]
            return [RowMaker(compiled, config, self._counts) for compiled in rules]

        try:
            return await asyncio.to_thread(compile_all)
        except ConfigInvalid as error:
            raise Fatal(f"the rules whose rows replay {name} replaces don't work any more: {error}") from error

    def _forgotten_replays(self) -> list[str]:
        return [name for name in self._progress if name not in self._asked]

    def _next_replay(self) -> str | None:
        return next(
            (
                name
                for name, replay in self._asked.items()
                if self._is_running(name)
                and from_input(replay)
                and any(not self._progress.get(name, {}).get(key, {}).get(DONE) for key in self._inputs)
            ),
            None,
        )

    def _is_running(self, name: str) -> bool:
        return name in self._asked and self._asked[name]["state"] == "running"

    def _replay_partition(self, name: str, key: tuple[Any, ...]) -> Position:
        return {REPLAY: name, **self._inputs[key]}

    async def _find_starts(
        self, request: Mapping[str, Any], keys: Sequence[tuple[Any, ...]]
    ) -> dict[tuple[Any, ...], Position]:
        """Where to start with each input; those that are not replayed are left out."""
        positions = request.get("positions")
        if positions:
            return {_partition_key(asked["partition"]): asked["offset"] for asked in positions}
        if self._context.config[INPUT] != FROM_KAFKA:
            return {key: {POSITION: 0} for key in keys}
        offsets = await find_offsets(
            self._context.config, [_topic_partition(self._inputs[key]) for key in keys], request.get("since_ms")
        )
        return {
            _partition_key({TOPIC: partition.topic, PARTITION: partition.partition}): {OFFSET: offset}
            for partition, offset in offsets.items()
        }

    def _start_offset(self, start: Position | None, key: tuple[Any, ...]) -> Position:
        """The first offset of the replay of an input: nothing behind what the source gave is replayed."""
        source = self._source_offsets.get(key)
        counted = {LINES: 0, ACCEPTED: 0}
        if start is None or source is None:
            return {**counted, DONE: 1}
        end = source[OFFSET] if OFFSET in source else source[POSITION]
        offset = {name: value for name, value in start.items() if name in _INPUT_MEMBERS} | counted | {END: end}
        return {**offset, END_FINGERPRINT: source[FINGERPRINT]} if FINGERPRINT in source else offset

    async def _run_input(self, name: str, key: tuple[Any, ...]) -> AsyncGenerator[Batch, None]:
        """The batches of one input, until its end or until the replay is paused."""
        if not self._is_running(name):
            return
        partition, since = self._replay_partition(name, key), self._asked[name][REPLAY].get("since_ms")
        async with aclosing(self._read_input(key, self._progress[name][key])) as batches:
            async for batch in batches:
                yield self._take_over(name, key, partition, batch, since)
                if not self._is_running(name):
                    return
        self._progress[name][key] = {**self._progress[name][key], DONE: 1}
        yield Batch([], offsets=((partition, self._progress[name][key]),))

    def _read_input(self, key: tuple[Any, ...], offset: Position) -> AsyncGenerator[Batch, None]:
        """The batches of an input as its source makes them, from an offset of a replay to its end."""
        start = {name: value for name, value in offset.items() if name in _INPUT_MEMBERS}
        if self._context.config[INPUT] == FROM_KAFKA:
            partition = _topic_partition(self._inputs[key])
            return read_partition_again(self._context, self._use_rules, self._host, partition, start, offset[END])
        path, end = self._inputs[key][FILENAME], {POSITION: offset[END], FINGERPRINT: offset.get(END_FINGERPRINT)}
        return read_file_again(self._context, self._use_rules, self._host, self._heartbeats, path, start, end)

    def _use_rules(self) -> RowMaker:
        """The maker of rows, with the rules that the source uses now."""
        if self._maker.rules is not self._rows.rules:
            self._maker.use(self._rows.rules)
        return self._maker

    def _take_over(
        self, name: str, key: tuple[Any, ...], partition: Position, batch: Batch, since: int | None
    ) -> Batch:
        """The batch as one of the replay: its offsets are those of the replay."""
        before = self._progress[name][key]
        lines, unknown = self._counts.take()
        for result, count in (("accepted", lines - unknown), ("unknown", unknown)):
            if count:
                self._context.metrics.add(REPLAYED, count, {"result": result})
        kept = {member: value for member, value in before.items() if member not in _INPUT_MEMBERS}
        offset = next((moved for _, moved in reversed(batch.offsets) if moved is not None), None)
        if offset is None and batch.records:
            offset = batch.records[-1].source_offset
        records = batch.records
        if since is not None and FILENAME in partition and not before.get(REACHED):
            # A file does not say when its lines were written: the first row of that time does.
            unknown_topic = self._rows.unknown_topic
            first = next(
                (
                    index
                    for index, record in enumerate(records)
                    if record.topic != unknown_topic and (record.timestamp or 0) >= since
                ),
                None,
            )
            while first and DELIVERED in records[first - 1].source_offset:
                first -= 1  # of the same line
            records = [] if first is None else records[first:]
            if first is not None:
                kept[REACHED] = 1
        for record in records:
            record.source_partition, record.source_offset = partition, {**kept, **record.source_offset}
        for bad in batch.bad:
            bad.source_partition, bad.source_offset = partition, {**kept, **bad.source_offset}
        position = (
            {member: value for member, value in before.items() if member in _INPUT_MEMBERS}
            if offset is None
            else offset
        )
        after = {**kept, **position, LINES: before[LINES] + lines, ACCEPTED: before[ACCEPTED] + lines - unknown}
        self._progress[name][key] = after
        return Batch(records, batch.bad, ((partition, after),), receipt=batch.receipt)


class _Counts:
    """Counts what becomes of replayed lines, apart from the lines of the source.

    Args:
        context: gets the rows.
    """

    def __init__(self, context: TaskContext) -> None:
        self._metrics = context.metrics
        self._lines = 0
        self._unknown = 0

    def set(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Nothing is shown: ages of heartbeats are those of the source."""

    def add(self, name: str, value: float = 1, labels: Mapping[str, str] | None = None) -> None:
        """Count lines, and pass rows on."""
        if name == LINES_METRIC:
            self._lines += int(value)
        elif name == UNKNOWN:
            self._unknown += int(value)
        elif name == ROWS:
            self._metrics.add(name, value, labels)

    def take(self) -> tuple[int, int]:
        """Lines, and those of them that no group accepts, since the last call."""
        counts = self._lines, self._unknown
        self._lines = self._unknown = 0
        return counts


def _source_partitions(config: Mapping[str, Any]) -> Iterable[Position]:
    """The source partitions of a task."""
    if config[INPUT] in SCHEMES:
        return []
    if config[INPUT] == FROM_KAFKA:
        return [{TOPIC: topic, PARTITION: number} for topic, number in task_partitions(config)]
    return [{FILENAME: path} for path in read_settings(config).files]


def _partition_key(partition: Position) -> tuple[Any, ...]:
    return tuple(sorted(partition.items()))


def _topic_partition(partition: Position) -> TopicPartition:
    return TopicPartition(partition[TOPIC], partition[PARTITION])
