"""The merge engine (``contract.Engine``): updates in, state and events out. What it does is docs/jobs/MERGE.md.

Pure but for the clock and the schema registry: no Kafka, no files. One engine serves one bucket and one pass; what is compiled
(schemas, codecs) is kept in ``Resources``, one per process.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import astuple

from connectors.errors import Fatal, Skippable
from spark_jobs.materializer.engine.bucket_table import BucketTable
from spark_jobs.materializer.engine.event_writer import EventWriter
from spark_jobs.materializer.engine.keys import PARTITION, ROW, bucket_of, partition_prefix
from spark_jobs.materializer.engine.merge import NO_LIMIT, delete_row, hide_cells, merge_row
from spark_jobs.materializer.engine.model import EventOrigin, state_key_parts
from spark_jobs.materializer.engine.resources import Puts, Resources, Work
from spark_jobs.materializer.engine.rowstate import (
    MergedPartition,
    OpenFanout,
    RowState,
    is_empty,
    lapse_row,
    new_row,
    pack_partition,
    pack_row,
    record_due,
    unpack_row,
)
from spark_jobs.materializer.engine.updates import UpdateDecoder
from spark_jobs.materializer.engine.whole_state import list_living_rows, replay_rows
from spark_jobs.materializer.events.fanout import change_partition, find_covering_deletion, has_changed, lapse_partition
from spark_jobs.materializer.stages import Stages
from spark_jobs.reports.met_heartbeats import MetHeartbeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spark_jobs.materializer.contract import InputRecord, LiveRow, OutputRecord, StateStore
    from spark_jobs.materializer.decoding.bind import Binding
    from spark_jobs.materializer.engine.bucket_table import TableForm
    from spark_jobs.materializer.engine.model import MergeOptions

#: After this number of events of one call the bucket gets a chance to commit.
_EVENTS: Final = 2000
FAILURES: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    ArithmeticError,
    IndexError,
    struct.error,
)


class UpdateEngine:
    """An ``Engine`` for partition updates.

    Attributes:
        latency: publish latencies since they were taken last.
        stages: the same by stage, as samples.
    """

    def __init__(
        self,
        options: MergeOptions,
        sequence: int,
        resources: Resources,
        clock: Callable[[], int],
        form: TableForm | None = None,
    ) -> None:
        self.options = options
        self.stages = Stages()
        self.heartbeats = MetHeartbeats()
        self._clock = clock
        self._grace = options.grace_s
        self._decoder = UpdateDecoder(resources.writers, avro=options.input_encoding == "avro")
        self._table = BucketTable(options, resources, form or self._decoder)
        self._events = EventWriter(options, self._table, sequence)
        self.latency = self._events.latency
        #: How many events of a call show what was due before its record, which the store has.
        self._settled = 0
        #: Which bucket of how many it is limited to; None: it takes every row.
        self._share: tuple[int, int] | None = None

    @property
    def sequence(self) -> int:
        """See ``Engine``."""
        return self._events.sequence

    # -- buckets by key

    def route(self, record: InputRecord) -> list[bytes]:
        """See ``Engine``."""
        if record.value is None:
            return []
        binding, update = self._decoder.decode(self._table, record.value)
        try:
            return [partition_prefix(binding.partition_key(_partition_key(binding, update)))]
        except FAILURES as error:
            raise Skippable(f"The partition key at offset {record.offset} can't be read: {error!r}.") from error

    def limit_to(self, bucket: int, buckets: int) -> None:
        """See ``Engine``."""
        self._share = bucket, buckets

    def _takes(self, prefix: bytes) -> bool:
        share = self._share
        return share is None or bucket_of(prefix, share[1]) == share[0]

    # -- apply

    def apply(self, record: InputRecord, store: StateStore, emit: list[OutputRecord]) -> bool:
        """See ``Engine``."""
        if record.value is None:
            return True
        if store is not self._table.store:
            self._table.attach(store)
        binding, update = self._decoder.decode(self._table, record.value)
        if binding.gone or binding.era != self._table.era:
            return True
        now_ns = self._events.now_ns = self._clock()
        first = self._settled = len(emit)
        try:
            done = self._merge_update(binding, update, record.offset, store, emit, now_ns // 1_000_000_000)
        except (Skippable, *FAILURES) as error:
            del emit[self._settled :]
            if isinstance(error, Skippable):
                raise
            raise Skippable(
                f"The partition update at offset {record.offset} has a value that is not of its column's type: "
                f"{error!r}. Correct what writes it."
            ) from error
        # Only copies that changed something count, and no snapshots: their write times say nothing about the latency.
        if now_ns >= self.stages.due_ns and len(emit) > first and not update.source.snapshot:
            self.stages.sample(update.write_time, update.source.read_time, record.timestamp_ms, now_ns)
        return done

    def _merge_update(
        self, binding: Binding, update: Any, offset: int, store: StateStore, emit: list[OutputRecord], now_s: int
    ) -> bool:
        key = _partition_key(binding, update)
        prefix = partition_prefix(binding.partition_key(key))
        if self._share is not None and not self._takes(prefix):
            return True
        origin = EventOrigin(update.write_time, update.source.snapshot, offset, "write")
        if binding.clustered:
            return self._apply_clustered(binding, update, prefix, key, origin, store, emit, now_s)
        rows = update.rows
        if rows is not None and len(rows) == 1 and update.deletion is None:
            return self._apply_row(binding, update, rows[0], prefix + ROW, key, (), origin, store, emit, now_s)
        self._apply_alone(binding, update, prefix + ROW, key, origin, store, emit, now_s)
        return True

    def _apply_row(
        self,
        binding: Binding,
        update: Any,
        row: Any,
        key: bytes,
        partition_key: tuple[Any, ...],
        clustering: tuple[Any, ...],
        origin: EventOrigin,
        store: StateStore,
        emit: list[OutputRecord],
        now_s: int,
    ) -> bool:
        """One row of which nothing is said but its own cells, in a partition of which nothing is known: the fast path."""
        expires = update.expires or 0
        table = self._table
        no_static = table.no_static
        blob = store.get(key)
        if blob is None:
            state = new_row(table.era, list(clustering), update.write_time, table.view.count)
            before = None
            lapsed = False
        else:
            state, before, lapsed = self._load(blob, partition_key, no_static, emit, now_s)
        if merge_row(state, row, update.write_time, expires, binding.regular, NO_LIMIT, now_s, self._grace) or lapsed:
            keys = (*partition_key, *state.clustering)
            self._finish(key, state, before, keys, no_static, no_static, origin, store, emit, now_s)
        return True

    def _apply_alone(
        self,
        binding: Binding,
        update: Any,
        key: bytes,
        keys: tuple[Any, ...],
        origin: EventOrigin,
        store: StateStore,
        emit: list[OutputRecord],
        now_s: int,
    ) -> None:
        """A table without clustering key: the deletion of the partition is that of its row."""
        work = self._start_work(store, key, (), keys, self._table.no_static, update.write_time, emit, now_s)
        deletion = update.deletion
        if deletion is not None:
            forget = max(deletion.local_deletion_time, now_s) + self._grace
            work.changed |= delete_row(work.state, (deletion.write_time, forget))
        for row in update.rows or ():
            work.changed |= merge_row(
                work.state, row, update.write_time, update.expires or 0, binding.regular, NO_LIMIT, now_s, self._grace
            )
        if work.changed:
            self._finish(
                key,
                work.state,
                work.before,
                keys,
                self._table.no_static,
                self._table.no_static,
                origin,
                store,
                emit,
                now_s,
            )

    def _apply_clustered(
        self,
        binding: Binding,
        update: Any,
        prefix: bytes,
        key: tuple[Any, ...],
        origin: EventOrigin,
        store: StateStore,
        emit: list[OutputRecord],
        now_s: int,
    ) -> bool:
        partition: MergedPartition | None = None
        blob = store.get(prefix + PARTITION)
        concerns_partition = (
            update.deletion is not None or update.ranges or (self._table.has_static and update.static is not None)
        )
        rows = update.rows
        if blob is None and not concerns_partition and rows is not None and len(rows) == 1:
            clustering = _read_clustering_key(binding, rows[0])
            row_key = prefix + ROW + binding.clustering(clustering)
            return self._apply_row(binding, update, rows[0], row_key, key, clustering, origin, store, emit, now_s)
        if blob is not None:
            partition = self._table.read_partition(blob)
            due = record_due(blob)
            if (
                due
                and (due <= now_s or partition.open is not None)
                and not self._settle_partition(prefix, partition, key, store, emit, now_s, origin)
            ):
                return False
            self._settled = len(emit)
        opened: OpenFanout | None = None
        packed: bytes | None = None
        changed = False
        if concerns_partition:
            if partition is None:
                partition = MergedPartition(self._table.era)
            changed = change_partition(partition, update, binding, self._table.static_view, now_s, self._grace)
            if changed:
                packed, opened = pack_partition(partition), partition.open
        if update.rows:
            self._apply_rows(binding, update, prefix, key, partition, opened, origin, store, emit, now_s)
        if opened is not None and partition is not None:
            return self._visit_rows(prefix, partition, key, store, emit, now_s, origin)
        if changed:
            store.put(prefix + PARTITION, packed)
        return True

    def _apply_rows(
        self,
        binding: Binding,
        update: Any,
        prefix: bytes,
        key: tuple[Any, ...],
        partition: MergedPartition | None,
        opened: OpenFanout | None,
        origin: EventOrigin,
        store: StateStore,
        emit: list[OutputRecord],
        now_s: int,
    ) -> None:
        """Merge the rows of a message, each with all that the message says of it, and note them in ``opened`` as visited."""
        static = (
            self._table.static_view.image(partition.static)
            if partition is not None and partition.static is not None
            else (self._table.no_static)
        )
        static_before = static if opened is None else opened.before
        moved = opened is not None and has_changed(static_before, static)
        expires = update.expires or 0
        works: dict[bytes, Work] = {}
        for row in update.rows:
            clustering = _read_clustering_key(binding, row)
            part = binding.clustering(clustering)
            limit = NO_LIMIT if partition is None else find_covering_deletion(partition, part)
            work = works.get(part)
            if work is None:
                work = works[part] = self._start_work(
                    store, prefix + ROW + part, clustering, key, static_before, update.write_time, emit, now_s
                )
                if opened is not None:
                    work.changed |= (moved and work.before is not None) | hide_cells(work.state, limit)
            work.changed |= merge_row(
                work.state, row, update.write_time, expires, binding.regular, limit, now_s, self._grace
            )
        # All or nothing: a row that can't be encoded must not leave half of the message behind.
        puts: list[tuple[bytes, bytes | None]] = []
        target = store if len(works) == 1 else Puts(puts)
        for part, work in works.items():
            if work.changed:
                self._finish(
                    prefix + ROW + part,
                    work.state,
                    work.before,
                    (*key, *work.state.clustering),
                    static_before,
                    static,
                    origin,
                    target,
                    emit,
                    now_s,
                )
        for put in puts:
            store.put(*put)
        if opened is not None:
            opened.visited = sorted(works)

    # -- rows

    def _start_work(
        self,
        store: StateStore,
        key: bytes,
        clustering: tuple[Any, ...],
        partition_key: tuple[Any, ...],
        static: list[Any],
        base: int,
        emit: list[OutputRecord],
        now_s: int,
    ) -> Work:
        blob = store.get(key)
        if blob is None:
            table = self._table
            return Work(new_row(table.era, list(clustering), base, table.view.count), None)
        state, before, lapsed = self._load(blob, partition_key, static, emit, now_s)
        work = Work(state, before)
        work.changed = lapsed
        return work

    def _load(
        self, blob: bytes, partition_key: tuple[Any, ...], static: list[Any], emit: list[OutputRecord], now_s: int
    ) -> tuple[RowState, list[Any] | None, bool]:
        """A row and how it was last shown; what has run out by now is shown first. The last: whether that changed it.

        Its key is the state's: to Cassandra 1.0 and 1.00 are one clustering value, and a row has one key.
        """
        state = unpack_row(blob)
        table = self._table
        view = table.view
        if state.era != table.era or len(state.values) != view.count or view.dead:
            self._table.fit_state(state)
        before = view.image(state) if state.shown else None
        due = record_due(blob)
        if not due or due > now_s or not lapse_row(state, now_s, self._grace):
            return state, before, False
        image = view.image(state)
        keys = (*partition_key, *state.clustering)
        self._events.show_change(
            state, before, image, keys, static, static, EventOrigin(due * 1_000_000, False, None, "expiry"), emit
        )
        return state, image if state.shown else None, True

    def _finish(
        self,
        key: bytes,
        state: RowState,
        before: list[Any] | None,
        keys: tuple[Any, ...],
        static_before: list[Any],
        static: list[Any],
        origin: EventOrigin,
        store: Any,
        emit: list[OutputRecord],
        now_s: int,
    ) -> None:
        """Show a row that changed, and write it."""
        if state.extra or state.complex or (state.live is not None and state.live[1]):
            lapse_row(state, now_s, self._grace)  # what had run out before it came
        self._events.show_change(
            state, before, self._table.view.image(state), keys, static_before, static, origin, emit
        )
        store.put(key, None if is_empty(state) else pack_row(state))

    # -- partitions

    def _settle_partition(
        self,
        prefix: bytes,
        partition: MergedPartition,
        key: tuple[Any, ...],
        store: StateStore,
        emit: list[OutputRecord],
        now_s: int,
        origin: EventOrigin,
    ) -> bool:
        """Finish what is open, and let time pass; False: the store is full."""
        if partition.open is not None and not self._visit_rows(prefix, partition, key, store, emit, now_s, origin):
            return False
        lapse_partition(partition, self._table.static_view, now_s, self._grace)
        if partition.open is not None:
            return self._visit_rows(
                prefix, partition, key, store, emit, now_s, EventOrigin(now_s * 1_000_000, False, None, "expiry")
            )
        store.put(prefix + PARTITION, pack_partition(partition))
        return True

    def _visit_rows(
        self,
        prefix: bytes,
        partition: MergedPartition,
        key: tuple[Any, ...],
        store: StateStore,
        emit: list[OutputRecord],
        now_s: int,
        origin: EventOrigin,
    ) -> bool:
        """Visit the rows that a change of the partition concerns; False: the store is full, and the place is kept."""
        try:
            return self._continue_visit(prefix, partition, key, store, emit, now_s, origin)
        except Skippable as error:
            # The partition's change is in the store: this can't be undone by leaving the message out.
            raise Fatal(f"A row of the state can't be written as an event: {error}") from error

    def _continue_visit(
        self,
        prefix: bytes,
        partition: MergedPartition,
        key: tuple[Any, ...],
        store: StateStore,
        emit: list[OutputRecord],
        now_s: int,
        origin: EventOrigin,
    ) -> bool:
        todo = partition.open
        if todo is None:
            return True
        rows = prefix + ROW
        view = self._table.static_view
        before, static = todo.before, view.image(partition.static)
        if len(before) != len(static):
            before = static  # the columns changed meanwhile; each row's next event shows them
        moved = has_changed(before, static)
        visited = frozenset(todo.visited)
        key_start = len(rows)
        end = None if todo.end is None else rows + todo.end
        first = len(emit)
        done = False
        for row_key, blob in store.scan(rows, rows + todo.start, end):
            if row_key[key_start:] in visited:
                continue
            if done and (store.full or len(emit) - first >= _EVENTS):
                todo.start = row_key[key_start:]
                todo.visited = [part for part in todo.visited if part > todo.start]
                store.put(prefix + PARTITION, pack_partition(partition))
                return False
            done = True
            state, shown, lapsed = self._load(blob, key, before, emit, now_s)
            keys = (*key, *state.clustering)
            limit = find_covering_deletion(partition, row_key[key_start:])
            changed = limit is not NO_LIMIT and hide_cells(state, limit)
            if changed or (moved and shown is not None):
                self._events.show_change(
                    state, shown, self._table.view.image(state), keys, before, static, origin, emit
                )
            if changed or lapsed or state.shown != (shown is not None):
                store.put(row_key, None if is_empty(state) else pack_row(state))
        partition.open = None
        store.put(prefix + PARTITION, pack_partition(partition))
        return True

    # -- time

    def expire(self, store: StateStore, emit: list[OutputRecord], now_s: int) -> bool:
        """See ``Engine``."""
        if store is not self._table.store:
            self._table.attach(store)
        if self._table.catalog.newest is None:
            return True
        self._events.now_ns = self._clock()
        first = len(emit)
        done = False
        for due, key in store.due(now_s):
            if done and (store.full or len(emit) - first >= _EVENTS):
                return False
            done = True
            blob = store.get(key)
            if blob is None or not 0 < record_due(blob) <= now_s:
                continue  # dealt with meanwhile
            try:
                if not self._expire_one(store, key, blob, emit, now_s, due):
                    return False
            except (Skippable, *FAILURES) as error:
                raise Fatal(f"A row of the state can't be written as an event: {error!r}") from error
        return True

    def _expire_one(
        self, store: StateStore, key: bytes, blob: bytes, emit: list[OutputRecord], now_s: int, due: int
    ) -> bool:
        partition_key, kind, part = state_key_parts(key)
        prefix = partition_prefix(partition_key)
        values = tuple(self._table.partition_values(partition_key))
        if kind == PARTITION[0]:
            return self._settle_partition(
                prefix,
                self._table.read_partition(blob),
                values,
                store,
                emit,
                now_s,
                EventOrigin(due * 1_000_000, False, None, "expiry"),
            )
        record = store.get(prefix + PARTITION) if self._table.clustered else None
        partition = None if record is None else self._table.read_partition(record)
        static = self._table.static_of(partition, part)
        state, _, _ = self._load(blob, values, static, emit, now_s)
        store.put(key, None if is_empty(state) else pack_row(state))
        return True

    # -- the state as a whole

    def replay(self, store: StateStore, emit: list[OutputRecord], start: bytes = b"") -> bytes | None:
        """See ``Engine``. Rows are as they were last shown: what is due comes as events of its own."""
        self._table.attach(store)
        self._events.now_ns = self._clock()
        return replay_rows(self._table, self._events, store, emit, start)

    def rows(self, store: StateStore, start: bytes = b"") -> Iterator[LiveRow]:
        """See ``Engine``."""
        self._table.attach(store)
        return list_living_rows(self._table, store, start, self._clock() // 1_000_000_000, self._grace)


def _partition_key(binding: Binding, update: Any) -> tuple[Any, ...]:
    key: tuple[Any, ...] = update.key if type(update.key) is tuple else astuple(update.key)
    return key if binding.key_readers is None else _read_values(key, binding.key_readers)


def _read_clustering_key(binding: Binding, row: Any) -> tuple[Any, ...]:
    values: tuple[Any, ...] = row.clustering if type(row.clustering) is tuple else astuple(row.clustering)
    return values if binding.clustering_readers is None else _read_values(values, binding.clustering_readers)


def _read_values(values: tuple[Any, ...], readers: list[Any]) -> tuple[Any, ...]:
    return tuple([value if read is None else read(value) for value, read in zip(values, readers, strict=True)])
