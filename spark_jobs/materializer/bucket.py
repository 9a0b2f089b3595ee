"""One bucket at work, inside a Spark task: reads its input partition's records of a batch, merges, commits. Exactly once.

Order of things for each transaction: outputs and changed rows go to the producer, then the marker and the consumed offset, then
Kafka commits, then LMDB is written. Whoever dies in between leaves either nothing (the next producer of the bucket aborts it)
or a committed transaction that the cache lacks (the next one reads it from the changelog). So the marker alone says what was
done.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from connectors.backoff import pause_after
from connectors.errors import Fatal, Retriable, Skippable
from connectors.formats.masks.masking import hide_reason
from spark_jobs.materializer.config import Marker
from spark_jobs.materializer.passes import PassRange, Result, check_marker
from spark_jobs.materializer.state.store import BucketCache, Meta, Moved, Overlay
from spark_jobs.materializer.state.transaction import BucketWriter, Redo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spark_jobs.materializer.config import BucketOptions
    from spark_jobs.materializer.contract import Engine, InputRecord, OutputRecord
    from spark_jobs.materializer.state.changelog import Changelog
    from spark_jobs.reports.met_heartbeats import MetHeartbeat

_log = logging.getLogger(__name__)
#: How often a failed transaction is retried before the batch fails.
ATTEMPTS: Final = 8
_BACKOFF_S: Final = 0.4
_MOST_BACKOFF_S: Final = 5.0


def crash_at(spec: str, point: str) -> None:
    """Kill this process if ``spec`` (``<point>@<file>``) names ``point`` and its file can be removed: so it happens once.

    For crash tests; points: ``produce``, ``commit``, ``committed``, ``written``.
    """
    if not spec:
        return
    where, _, token = spec.partition("@")
    if where == point:
        try:
            Path(token).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def catch_up(cache: BucketCache, changelog: Changelog, options: BucketOptions, bucket: int) -> tuple[Meta, int]:
    """Bring a cache to its changelog's end. Blocks; in bounded memory; what was read stays if it is interrupted.

    Returns:
        What the cache holds then, and how many records were read.

    Raises:
        Moved: another process writes it at the same time.
        Retriable, Fatal: see ``Changelog``.
    """
    records = 0
    while True:
        meta = cache.meta()
        _, end = changelog.ends(bucket)
        if meta.position > end:
            cache.reset(f"it is at offset {meta.position}, the changelog ends at {end}")
            continue
        # A transaction has a marker and a control record: one offset is the control record of the last one.
        if end - meta.position <= 1:
            return meta, records
        age = time.time() * 1000 - meta.checked_ms
        if meta.position and age > options.delete_retention_ms / 2:
            cache.reset("it was not used for longer than half of the changelog's delete.retention.ms")
            continue
        for step in changelog.read(bucket, meta.position, end):
            marker = meta.marker if step.marker is None else step.marker
            # A restore that is abandoned and continues much later must not look fresh: its time is that of its start.
            checked = int(time.time() * 1000) if step.position >= end or not meta.position else meta.checked_ms
            after = msgspec.structs.replace(meta, position=step.position, marker=marker, checked_ms=checked)
            cache.write(step.changes, meta, after)
            meta = after
            records += step.records


class Bucket:
    """The open resources of one bucket in this process, and the pass over them. Used by one thread; blocks."""

    def __init__(self, options: BucketOptions, bucket: int, changelog: Changelog) -> None:
        self.options = options
        self.number = bucket
        self._changelog = changelog
        self._cache = BucketCache(options.folder(bucket), options.job, bucket, options.changelog_id)
        self._writer: BucketWriter | None = None
        #: Whose marker was the last one when the writer was made.
        self._before = ""
        self._meta = self._cache.meta()
        self._marker: Marker | None = None
        self._engine: Engine | None = None
        self._overlay: Overlay | None = None
        self._emit: list[OutputRecord] = []
        #: Records since the last commit, to be processed again if the transaction fails.
        self._chunk: list[InputRecord] = []
        #: With buckets by key: input partition -> the offset after its last record of this pass, once another one follows.
        self._passed: dict[int, int] = {}
        self._outputs = 0
        self._output_bytes = 0
        self._output_time = 0
        self._failures = 0
        self.result = Result(bucket)

    def close(self) -> None:
        """Give everything back. An open transaction is left to the successor."""
        self._end_overlay()
        self._drop_writer()
        self._cache.close()

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    # Getting ready

    def prepare(self) -> None:
        """Own the bucket and bring the cache to the changelog's end.

        Raises:
            Retriable: Kafka does not answer.
            Fatal: another run owns the bucket, or the changelog is damaged.
        """
        self._end_overlay()
        while True:
            fresh = self._writer is None
            if self._writer is None:
                # First of all: only when no other producer can commit any more is the end of the changelog final.
                self._writer = BucketWriter(self.options, self.number)
            try:
                self._catch_up()
                marker = msgspec.json.decode(self._meta.marker, type=Marker) if self._meta.marker else None
                last = "" if marker is None else marker.writer
                if fresh:
                    self._before = last
                elif last not in (self._writer.token, self._before):
                    # Another process has had the bucket since (Spark hands tasks to any process): this producer was fenced. To
                    # find that out at the commit would cost the whole batch.
                    self._drop_writer()
                    continue
                self._check_owner(marker)
                self._engine = self.options.engine(0 if marker is None else marker.sequence)
                if self.options.buckets:
                    self._engine.limit_to(self.number, self.options.buckets)
                self._marker = marker
                self._begin_overlay()
            except Moved:
                continue
            else:
                return

    def _catch_up(self) -> None:
        """Read what the cache lacks."""
        began = time.monotonic()
        self._meta, records = catch_up(self._cache, self._changelog, self.options, self.number)
        if records:
            self.result.restored += records
            self.result.restore_s += time.monotonic() - began
        self.result.discarded = self._cache.discarded or self.result.discarded
        self._cache.discarded = ""

    def export(self) -> Iterator[tuple[bytes, bytes]]:
        """Every record of the state as of the changelog's end, in key order; ``marker`` is that moment's. Blocks.

        No run may write the bucket meanwhile.

        Raises:
            Retriable: Kafka does not answer.
            Fatal: the changelog is damaged.
        """
        while True:
            try:
                self._catch_up()
                break
            except Moved:
                self._meta = self._cache.meta()
        with self._cache.reading() as txn:
            yield from self._cache.scan(txn, b"", None)

    @property
    def marker(self) -> bytes:
        """The last marker of the state that ``export`` gives, as it is in the changelog; empty: there is no marker."""
        return self._meta.marker

    def _check_owner(self, marker: Marker | None) -> None:
        mine = self.options.owner
        if marker is not None and marker.owner != mine and marker.owner.epoch >= mine.epoch:
            raise Fatal(
                f"another run of the job {self.options.job} (run {marker.owner.run}, started after this one) "
                f"has taken over bucket {self.number}. One of them must be stopped; jobs that should run "
                "side by side need different names."
            )

    # The pass

    def run(self, records: Iterable[InputRecord], span: PassRange, *, now_s: int | None = None) -> Result:
        """Merge ``records``, move the marker to ``span.end``, do what is due. Blocks.

        Raises:
            Retriable, Fatal: as the contract of sinks says; nothing is half done.
        """
        self.result = Result(self.number)
        self._chunk, self._failures = [], 0
        cpu = time.process_time()
        try:
            source: Iterator[InputRecord] = iter(records)
            while True:
                try:
                    self.prepare()
                    if self._marker is None and span.start < 0 and not span.parts:
                        break
                    self._position = check_marker(self.options, self.number, self._marker, span)
                    self._passed = {}
                    self._replay_output()
                    self._merge_records(source)
                    self._expire_rows(int(time.time()) if now_s is None else now_s)
                    self._finish_pass(span)
                    break
                except (Redo, Moved) as error:
                    # What was not committed comes first; what was is below the marker and skipped.
                    self._recover_from(error)
                    source = chain(self._chunk, source)
                    self._chunk = []
            self._end_overlay()
            if self._engine is not None:
                self.result.stages = self._engine.stages.take()
                self.result.heartbeats = [self._locate(beat) for beat in self._engine.heartbeats.take()]
            with self._cache.reading() as txn:
                self.result.next_due = self._cache.next_due(txn)
            self.result.rows, self.result.bytes = self._cache.size()
        except BaseException:
            self._abandon_pass()
            raise
        self.result.cpu_s = time.process_time() - cpu
        return self.result

    def _locate(self, beat: MetHeartbeat) -> MetHeartbeat:
        partition = beat.partition if self.options.buckets else self.number
        return msgspec.structs.replace(beat, topic=self.options.input_topic, partition=partition)

    def _merge_records(self, source: Iterator[InputRecord]) -> None:
        assert self._engine is not None and self._overlay is not None  # noqa: S101,PT018 - prepare has set them
        emit, chunk, result = self._emit, self._chunk, self.result
        max_size, overlay, begin = self.options.max_bytes, self._overlay, self._position.next
        size = 0
        partition = last = -1 if self.options.buckets else 0
        for record in source:
            offset = record.offset
            if record.partition != partition:
                if partition >= 0:
                    self._passed[partition] = max(last + 1, begin)
                partition = record.partition
                begin = self._position.positions.get(partition, 0)
            last = offset
            if offset < begin:
                result.replayed += 1
                continue
            chunk.append(record)
            result.records += 1
            size += len(record.value or b"")
            while not self._apply_record(record, overlay):
                # A fan-out that is larger than a transaction: the position stays before this record.
                overlay = self._commit_partial(self._make_marker(offset, partition))
                chunk[:] = [record]
            if emit:
                self._hand_over()
            else:
                result.suppressed += 1
            if overlay.full or size >= max_size or self._output_bytes >= max_size:
                self._commit_work(self._make_marker(offset + 1, partition))
                overlay, size = self._restart_overlay(), 0
                chunk.clear()

    def _apply_record(self, record: InputRecord, overlay: Overlay) -> bool:
        """Merge a record, or put it aside; False: the store is full, and the rest of the record is still to be merged."""
        assert self._engine is not None  # noqa: S101
        try:
            return self._engine.apply(record, overlay, self._emit)
        except Skippable as error:
            self._dead_letter(record, error)
            return True

    def _make_marker(self, offset: int, partition: int) -> Marker:
        """The marker with everything done up to ``offset`` (excluded) of an input partition, and in those before it."""
        position = self._position
        if not self.options.buckets:
            return msgspec.structs.replace(position, next=offset)
        return msgspec.structs.replace(position, positions={**position.positions, **self._passed, partition: offset})

    def _commit_partial(self, position: Marker) -> Overlay:
        """Commit an unfinished part of the work at ``position``; return the overlay to continue with."""
        assert self._overlay is not None  # noqa: S101
        if not self._overlay.changes and not self._emit:
            raise Fatal(
                f"the merge of bucket {self.number} at offset {position.positions or position.next} makes no progress: it "
                "asks for a commit and has changed nothing. This is a fault of the program."
            )
        self._hand_over()
        self._commit_work(position)
        return self._restart_overlay()

    def _restart_overlay(self) -> Overlay:
        self._begin_overlay()
        assert self._overlay is not None  # noqa: S101
        return self._overlay

    def _expire_rows(self, now_s: int) -> None:
        assert self._engine is not None and self._overlay is not None  # noqa: S101,PT018
        if next(self._overlay.due(now_s), None) is None:
            return
        before = self.result.outputs
        overlay = self._overlay
        while not self._engine.expire(overlay, self._emit, now_s):
            overlay = self._commit_partial(self._find_reached_position())
            self._chunk.clear()
        self._hand_over()
        self.result.expired += self.result.outputs - before

    def _replay_output(self) -> None:
        """Fill a new output topic from the state, or continue to fill it; see ``Marker.replay``."""
        assert self._engine is not None and self._overlay is not None  # noqa: S101,PT018
        marker = self._position
        if marker.output_id == self.options.output_id and marker.replay is None:
            return
        start = bytes.fromhex(marker.replay or "") if marker.output_id == self.options.output_id else b""
        while True:
            following = self._engine.replay(self._overlay, self._emit, start)
            self._hand_over()
            self._position = msgspec.structs.replace(
                self._position, output_id=self.options.output_id, replay=None if following is None else following.hex()
            )
            self._commit_work(self._position, force=True)
            self._begin_overlay()
            if following is None:
                return
            start = following

    def _finish_pass(self, span: PassRange) -> None:
        # Also offsets without a record (control records, compacted ones) are done.
        position = self._find_reached_position()
        if self.options.buckets:
            reached = position.positions
            ends = {partition: max(end, reached.get(partition, 0)) for partition, (_, end) in span.parts.items()}
            position = msgspec.structs.replace(position, positions={**reached, **ends})
        else:
            position = msgspec.structs.replace(position, next=max(position.next, span.end))
        if (
            position != self._position
            or self._marker is None
            or (self._overlay is not None and self._overlay.changes)
            or (self._writer is not None and self._writer.open)
        ):
            self._commit_work(position, force=True)
        self._chunk.clear()

    def _find_reached_position(self) -> Marker:
        return (
            self._make_marker(self._chunk[-1].offset + 1, self._chunk[-1].partition) if self._chunk else self._position
        )

    # The transaction

    def _begin_overlay(self) -> None:
        self._end_overlay()
        self._overlay = Overlay(
            self._cache, self._meta, max_changes=self.options.max_changes, max_bytes=self.options.max_bytes
        )
        self._outputs = self._output_bytes = self._output_time = 0
        self._emit.clear()

    def _end_overlay(self) -> None:
        if self._overlay is not None:
            self._overlay.end()
            self._overlay = None

    def _open_transaction(self) -> BucketWriter:
        writer = self._writer
        assert writer is not None  # noqa: S101 - prepare has made it
        if not writer.open:
            writer.begin()
        return writer

    def _hand_over(self) -> None:
        """Give the emitted records to the producer, which sends them while the merge continues."""
        emit = self._emit
        if not emit:
            return
        writer = self._writer
        if writer is None or not writer.open:
            writer = self._open_transaction()
            crash_at(self.options.kill, "produce")
        writer.outputs(emit)
        self._outputs += len(emit)
        for _, value, timestamp, _ in emit:
            self._output_time += timestamp
            if value is not None:
                self._output_bytes += len(value)
        self.result.outputs += len(emit)
        emit.clear()

    def _dead_letter(self, record: InputRecord, error: Skippable) -> None:
        letters = self.options.dead_letters
        topic = self.options.input_topic
        number = record.partition if self.options.buckets else self.number
        masked = self.options.masked
        if masked:
            error = hide_reason(error)
        if letters is None:
            raise Fatal(
                f"{topic} [{number}] offset {record.offset}: {error}. Set errors.tolerance=all to put such records "
                "aside."
            ) from (None if masked else error)
        if letters.topic:
            # In the transaction that moves the marker over the record: there once, whatever happens.
            story = letters.story(topic, number, record.offset, error, "VALUE_CONVERTER")
            key, value = (None, None) if masked else (record.key, record.value)
            self._open_transaction().dead_letter(letters.topic, key, value, story)
            if letters.counter is not None:
                letters.counter.add(1)
        else:
            letters.report(topic, number, record.offset, record.key, record.value, error)
        self.result.dead += 1

    def _commit_work(self, position: Marker, *, force: bool = False) -> None:
        """Commit what was done, with the marker at ``position``, then write the cache.

        Raises:
            Redo: the transaction is gone.
        """
        overlay = self._overlay
        assert overlay is not None and self._engine is not None  # noqa: S101,PT018
        changes = overlay.changes
        if (
            not force
            and not changes
            and self._writer is not None
            and not self._writer.open
            and position == self._position
        ):
            return
        began = time.monotonic()
        options = self.options
        writer = self._open_transaction()
        writer.changes(changes.items())
        sequence = max(self._engine.sequence, self._position.sequence)
        marker = msgspec.structs.replace(position, sequence=sequence, owner=options.owner, writer=writer.token)
        raw = msgspec.json.encode(marker)
        at = writer.commit(
            raw,
            None if options.buckets else marker.next,
            self._changelog.group_metadata(),
            before_commit=lambda: crash_at(options.kill, "commit"),
        )
        crash_at(options.kill, "committed")
        now_ms = int(time.time() * 1000)
        result = self.result
        result.transactions += 1
        result.changes += len(changes)
        result.latency_ms += now_ms * self._outputs - self._output_time
        self._failures = 0
        self._position = self._marker = marker
        before, self._meta = (
            self._meta,
            msgspec.structs.replace(self._meta, position=at + 1, marker=raw, checked_ms=now_ms),
        )
        self._end_overlay()
        self._cache.write(changes, before, self._meta)
        crash_at(options.kill, "written")
        result.transaction_s += time.monotonic() - began

    def _recover_from(self, error: Redo | Moved) -> None:
        """Make ready to do the transaction again."""
        self._failures += 1
        self.result.redone += 1
        _log.warning(
            "bucket %d of %s: what was not committed is repeated (attempt %d of %d): %s",
            self.number,
            self.options.job,
            self._failures,
            ATTEMPTS,
            error,
        )
        if self._failures > ATTEMPTS:
            raise Retriable(
                f"bucket {self.number} of {self.options.job} can't commit ({self._failures} attempts): {error}"
            ) from error
        self._emit.clear()
        # Records that are processed again are counted again.
        self.result.records -= len(self._chunk)
        self.result.outputs -= self._outputs
        writer = self._writer
        # Of one that is replaced the successor ends the transaction.
        if (isinstance(error, Redo) and error.replace) or (writer is not None and not writer.abort()):
            self._drop_writer()
        if self._failures > 1:
            time.sleep(pause_after(self._failures - 1, _BACKOFF_S, _MOST_BACKOFF_S))

    def _abandon_pass(self) -> None:
        """After an error that ends the pass: nothing of it may stay, and nothing of it be committed later."""
        self._emit.clear()
        self._chunk.clear()
        self._end_overlay()
        self._engine = None
        if self._writer is not None and not self._writer.abort():
            self._drop_writer()
