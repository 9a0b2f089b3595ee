"""The datagen connector's task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.api import BadRecord, Batch, SourceTask
from connectors.datagen.config import read_settings
from connectors.datagen.faults import Faults
from connectors.datagen.fields import PARTITION, SEQUENCE
from connectors.datagen.generator import Generator, share_records
from connectors.errors import Fatal, Skippable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from connectors.api import OffsetReader, SourceRecord
    from connectors.datagen.config import DatagenSettings

#: With a rate, batches are at most this long, seconds.
_PACE: Final = 0.1


class DatagenTask(SourceTask):
    """Gives its source partitions' records in turn, each partition's in order."""

    aliases = ("io.confluent.kafka.connect.datagen.DatagenTask",)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield batches until all records were yielded, or forever.

        Raises:
            Fatal: a saved offset is not one of this connector's, or a fault was ordered.
            Retriable: a fault was ordered.
        """
        context = self.context
        options = read_settings(context.config)
        faults = Faults(context.config)
        sources = [_Partition(options, number, context.offsets) for number in options.mine]
        own_transactions = context.transaction_boundary == "connector"
        # A transaction's records follow each other, whatever other partitions there are.
        turn = options.transaction_size if own_transactions and options.transaction_size else options.batch_size
        size = min(options.batch_size, max(1, int(options.rate * _PACE))) if options.rate else options.batch_size
        clock = asyncio.get_running_loop().time
        started, record_count = clock(), 0
        while sources:
            for source in sources:
                begin = source.next
                end = source.turn_end(turn)
                while source.next < end:
                    n = source.next
                    await faults.happen(n)
                    stop = faults.stop_before(n, min(n + size, end))
                    source.next = stop
                    batch = _make_batch(source.generator, n, stop, faults.bad_every)
                    if own_transactions and stop == end:
                        batch.transaction = "commit"
                    faults.leak(stop - n)
                    yield batch
                    record_count += stop - n
                    # Where Kafka is as fast as this loop nothing else would let other tasks run.
                    await asyncio.sleep(
                        max(0.0, started + record_count / options.rate - clock()) if options.rate else 0
                    )
                if source.next == begin:
                    source.finished = True
            sources = [source for source in sources if not source.finished]


class _Partition:
    """One source partition's way through its records."""

    def __init__(self, options: DatagenSettings, number: int, offsets: OffsetReader) -> None:
        self.generator = Generator(
            options.seed,
            number,
            options.spec,
            topic=options.topics[number % len(options.topics)],
            size=options.size,
            keys=options.keys,
            envelope=options.debezium,
        )
        self.next = _saved_number(number, offsets.get(self.generator.source_partition)) + 1
        self._count = share_records(options.records, options.partitions, number)
        self.finished = False

    def turn_end(self, turn: int) -> int:
        """Where this partition's turn ends: at a multiple of ``turn``, so that transactions are the same after a restart."""
        end = self.next - self.next % turn + turn
        return end if self._count < 0 else max(self.next, min(end, self._count))


def _saved_number(number: int, offset: dict[str, Any] | None) -> int:
    """The sequence number of the last record given; -1 for none.

    Raises:
        Fatal: the offset is not this connector's.
    """
    if offset is None:
        return -1
    sequence = offset.get(SEQUENCE)
    if not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < -1:
        raise Fatal(
            f"The offset {offset!r} is saved for {PARTITION} {number}, where a number called {SEQUENCE} must be; reset "
            "or alter this connector's offsets"
        )
    return sequence


def _make_batch(generator: Generator, start: int, stop: int, bad_every: int) -> Batch:
    records = generator.records(start, stop)
    if not bad_every:
        return Batch(records)
    good = [record for record in records if (record.source_offset[SEQUENCE] + 1) % bad_every]
    bad = tuple(_make_bad_record(record) for record in records if (record.source_offset[SEQUENCE] + 1) % bad_every == 0)
    last = records[-1]
    moved = (
        ((last.source_partition, last.source_offset),) if bad and bad[-1].source_offset is last.source_offset else ()
    )
    return Batch(good, bad, moved)


def _make_bad_record(record: SourceRecord) -> BadRecord:
    number = record.source_offset[SEQUENCE]
    error = Skippable(
        f"record {number} of partition {record.source_partition[PARTITION]} is bad because fault.bad.every says so"
    )
    return BadRecord(
        record.source_partition, record.source_offset, error, msgspec.json.encode(record.value), record.topic
    )


def partitions_of(count: int, tasks: int) -> Sequence[Sequence[int]]:
    """Source partitions 0 to ``count - 1`` divided among at most ``tasks`` tasks."""
    used = min(count, tasks)
    return [range(task, count, used) for task in range(used)]
