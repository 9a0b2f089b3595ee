"""The engine for Debezium events and UMS messages: whole rows in the order of their source's positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from connectors.errors import Fatal, Skippable
from spark_jobs.config.keys import SHARDS
from spark_jobs.materializer.decoding.rows import RowEventReader, RowLayout, SourceRowChange, layout_text, read_layout
from spark_jobs.materializer.engine.bucket_table import TableDescription
from spark_jobs.materializer.engine.engine import FAILURES, UpdateEngine
from spark_jobs.materializer.engine.keys import ROW, partition_prefix
from spark_jobs.materializer.engine.merge import position_of, replace_row
from spark_jobs.materializer.engine.model import EventOrigin
from spark_jobs.materializer.engine.rowstate import new_row, unpack_row
from spark_jobs.materializer.events.forms import TableShape
from spark_jobs.rows.shards import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_jobs.materializer.contract import InputRecord, OutputRecord, StateStore
    from spark_jobs.materializer.engine.bucket_table import BucketTable
    from spark_jobs.materializer.engine.model import MergeOptions
    from spark_jobs.materializer.engine.resources import Resources


class RowLayouts:
    """The ``TableForm`` of whole rows: the slots of each layout's columns.

    Args:
        shards: ``sink.shards``.
    """

    def __init__(self, shards: str) -> None:
        self._shards = shards
        self._slots: dict[str, list[int]] = {}
        self._keys: tuple[str, ...] = ()

    def forget(self) -> None:
        """See ``TableForm``."""
        self._slots = {}

    def describe(self, text: str) -> TableDescription:
        """See ``TableForm``."""
        layout = read_layout(text)
        self._keys = tuple(column.name for column in layout.keys)
        shape = TableShape(layout.constants, layout.keys, (), layout.others)
        return TableDescription(shape, clustered=False, partition_values=msgspec.msgpack.decode)

    def slots_of(
        self, table: BucketTable, layout: RowLayout, *, deleted: bool, is_news: Callable[[], bool]
    ) -> list[int]:
        """The slots of a layout's columns; enters it into the catalog if it is new.

        That of a delete counts for nothing where a row has shown one: JSON without a schema may hold the key alone, and the
        columns of the table would be taken for dropped. An earlier layout that comes back with news has a column that was
        dropped and added again: it is a version of its own.
        """
        known_slots = self._slots.get(layout.ident)
        if known_slots is not None:
            return known_slots
        catalog = table.catalog
        if catalog.tables and catalog.tables != [layout.table]:
            raise Skippable(
                f"The topic has events of {layout.table} besides {catalog.tables[0]}: a materialized table has one "
                "topic. Divide them (a transform, the connector's topic naming)."
            )
        names = tuple(column.name for column in layout.keys)
        if catalog.versions and (self._keys[:2] == NUMBERS) != (names[:2] == NUMBERS):
            raise Fatal(
                f"{SHARDS} was changed to {self._shards}: the key of {layout.table} is "
                f"({', '.join(self._keys)}) in the state and would be "
                f"({', '.join(names)}). Set it back, or start a job with another name and output."
            )
        same = [version for version in catalog.versions if version.ident.partition(".")[0] == layout.ident]
        known_version, ident = (same[-1], f"{layout.ident}.{len(same)}") if same else (None, layout.ident)
        # Of a layout that lacks a newer column the rows are late ones: they must not take that column away.
        newest = catalog.newest
        comes_back = (
            known_version is not None and newest is not None and known_version.regular.keys() > newest.regular.keys()
        )
        if comes_back and not deleted and is_news():
            known_version, comes_back = None, False
        if known_version is None and deleted and catalog.versions:
            return []
        if known_version is None:
            known_version = catalog.add(ident, None, layout.table, [], list(layout.others))
            table.keep(known_version, layout_text(layout))
        slots = list(known_version.regular.values())
        slots = [slot if slot in table.live[1] else -1 for slot in slots]
        if not comes_back:  # the next change may be news
            self._slots[layout.ident] = slots
        return slots


class RowEngine(UpdateEngine):
    """An ``Engine``; see the module."""

    def __init__(self, options: MergeOptions, sequence: int, resources: Resources, clock: Callable[[], int]) -> None:
        self._layouts = RowLayouts(options.shards)
        super().__init__(options, sequence, resources, clock, self._layouts)
        self._reader = RowEventReader(options, resources.registry)
        self.heartbeats = self._reader.heartbeats

    def route(self, record: InputRecord) -> list[bytes]:
        """See ``Engine``."""
        if record.value is None:
            return []
        return [_key_prefix(change) for change in self._reader.changes(record)]

    def apply(self, record: InputRecord, store: StateStore, emit: list[OutputRecord]) -> bool:
        """See ``Engine``."""
        if record.value is None:
            return True
        if store is not self._table.store:
            self._table.attach(store)
        changes = self._reader.changes(record)
        self._events.now_ns = self._clock()
        written = _Layer(store)
        first = len(emit)
        try:
            for change in changes:
                self._apply_change(change, record.offset, written, emit)
        except (Skippable, *FAILURES) as error:
            del emit[first:]
            if isinstance(error, Skippable):
                raise
            raise Skippable(
                f"The message at offset {record.offset} has a value that is not of its column's type: {error!r}. "
                "Correct what writes it."
            ) from error
        for key, value in written.changed.items():
            store.put(key, value)
        if self._events.now_ns >= self.stages.due_ns and len(emit) > first and changes and not changes[-1].snapshot:
            self.stages.sample(changes[-1].write_time, None, record.timestamp_ms, self._events.now_ns)
        return True

    def _apply_change(self, change: SourceRowChange, offset: int, store: _Layer, emit: list[OutputRecord]) -> None:
        prefix = _key_prefix(change)
        key = prefix + ROW

        def is_news() -> bool:
            old_blob = store.get(key)
            return old_blob is None or position_of(unpack_row(old_blob)) < change.position

        slots = self._layouts.slots_of(self._table, change.layout, deleted=change.values is None, is_news=is_news)
        now_s = self._events.now_ns // 1_000_000_000
        if self._share is not None and not self._takes(prefix):
            return
        blob = store.get(key)
        if blob is None:
            state, before = new_row(self._table.era, [], change.position, self._table.view.count), None
        else:
            state, before, _ = self._load(blob, change.key, [], emit, now_s)
        if replace_row(state, change.values, slots, change.position, now_s + self._grace):
            origin = EventOrigin(change.write_time, change.snapshot, offset, "write")
            self._finish(key, state, before, change.key, [], [], origin, store, emit, now_s)


def _key_prefix(change: SourceRowChange) -> bytes:
    return partition_prefix(msgspec.msgpack.encode(change.key))


class _Layer:
    """Changes above a store, so that a message is applied whole or not at all."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.changed: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        return self.changed[key] if key in self.changed else self._store.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set it; None deletes."""
        self.changed[key] = value
