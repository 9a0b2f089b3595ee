"""The table of a bucket: the catalog of its versions in the state, and what follows from it for the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from spark_jobs.materializer.decoding.catalog import BucketCatalog, describe_column, pack_catalog, unpack_catalog
from spark_jobs.materializer.engine.keys import CATALOG, PARTITION, ROW, partition_prefix
from spark_jobs.materializer.engine.model import state_key_parts
from spark_jobs.materializer.engine.rowstate import MergedPartition, unpack_partition
from spark_jobs.materializer.events.images import ImageView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from spark_jobs.materializer.contract import StateStore
    from spark_jobs.materializer.decoding.catalog import KnownVersion
    from spark_jobs.materializer.engine.model import MergeOptions
    from spark_jobs.materializer.engine.resources import Resources
    from spark_jobs.materializer.engine.rowstate import RowState
    from spark_jobs.materializer.events.forms import EventCodec, TableShape


class TableDescription(NamedTuple):
    """The newest version of a table.

    Attributes:
        shape: its columns.
        clustered: whether it has a clustering key.
        partition_values: the values of a partition key from its bytes in keys of the state.
    """

    shape: TableShape
    clustered: bool
    partition_values: Callable[[bytes], Iterable[Any]]


class TableForm(Protocol):
    """How an input format describes tables."""

    def forget(self) -> None:
        """The catalog has changed: nothing that was made from it holds any more."""

    def describe(self, text: str) -> TableDescription:
        """Read the newest version from the catalog's text."""


class BucketTable:
    """The table of one bucket.

    Args:
        options: see ``MergeOptions``.
        resources: compiled schemas of this process.
        form: reads the catalog's versions.

    Attributes:
        store: of the transaction it works in.
        catalog: the versions it knows; while it has none, nothing below is there.
        era: of the newest version; another one is another table of the same name.
        shape: its columns.
        clustered: whether it has a clustering key.
        partition_values: see ``TableDescription``.
        view: its regular columns; ``static_view`` its static ones.
        codec: writes its events.
        live: the slots of its static and of its regular columns.
        has_static: whether it has static columns.
        no_static: their values where none is set.
    """

    era: Any
    shape: TableShape
    clustered: bool
    partition_values: Callable[[bytes], Iterable[Any]]
    view: ImageView
    static_view: ImageView
    codec: EventCodec
    live: tuple[frozenset[int], frozenset[int]]
    has_static: bool
    no_static: list[Any]

    def __init__(self, options: MergeOptions, resources: Resources, form: TableForm) -> None:
        self._options = options
        self._resources = resources
        self._form = form
        self._packed: bytes | None = None
        self.store: StateStore | None = None
        self.catalog = BucketCatalog()

    def attach(self, store: StateStore) -> None:
        """Begin to work in a transaction's store: what was learnt in one that was undone does not count."""
        record = store.get(CATALOG)
        if record != self._packed:
            self._packed = record
            self.catalog = BucketCatalog() if record is None else unpack_catalog(record)
            self._apply_catalog()
        self.store = store

    def _apply_catalog(self) -> None:
        """Make what follows from the catalog."""
        self._form.forget()
        newest = self.catalog.newest
        if newest is None:
            return
        self.era = newest.era
        description = self._form.describe(self.catalog.schema)
        self.shape = shape = description.shape
        self.clustered, self.partition_values = description.clustered, description.partition_values
        slots = self.catalog.slots
        self.static_view = ImageView(
            shape.static, [newest.static[describe_column(column)] for column in shape.static], slots[0]
        )
        self.view = ImageView(
            shape.regular, [newest.regular[describe_column(column)] for column in shape.regular], slots[1]
        )
        self.codec = self._resources.codec(shape)
        self.has_static = bool(shape.static)
        self.live = frozenset(newest.static.values()), frozenset(newest.regular.values())
        self.no_static = self.static_view.nothing

    def keep(self, known_version: KnownVersion, schema_text: str) -> None:
        """Keep the catalog after a version was added to it."""
        catalog = self.catalog
        if catalog.newest is known_version:
            catalog.schema = schema_text
            catalog.form = self._options.input_format
        self._packed = pack_catalog(catalog)
        if self.store is not None:
            self.store.put(CATALOG, self._packed)
        self._apply_catalog()

    # -- what the state holds, as of the newest version

    def fit_state(self, state: RowState) -> None:
        """Bring a state of an earlier version, or of a table that was dropped, to the newest version."""
        if state.era != self.era:
            state.era = self.era
            state.live = state.deletion = state.extra = state.complex = None
            state.values, state.times = [None] * self.view.count, [None] * self.view.count
        self.view.fit(state)

    def read_partition(self, blob: bytes) -> MergedPartition:
        """Unpack a partition's record, as of the newest version."""
        partition = unpack_partition(blob)
        static = partition.static
        if partition.era != self.era:
            return MergedPartition(self.era)
        if static is not None and (len(static.values) != self.static_view.count or self.static_view.dead):
            self.static_view.fit(static)
        return partition

    def static_of(self, partition: MergedPartition | None, part: bytes) -> list[Any]:
        """The static columns that a row was last shown with."""
        if partition is None:
            return self.no_static
        todo = partition.open
        if (
            todo is not None
            and part >= todo.start
            and (todo.end is None or part < todo.end)
            and (part not in todo.visited and len(todo.before) == len(self.no_static))
        ):
            return todo.before
        return self.static_view.image(partition.static)

    def iter_rows(self, store: StateStore, start: bytes) -> Iterator[tuple[bytes, bytes, list[Any], tuple[Any, ...]]]:
        """Every row from ``start`` on: key, record, static columns, values of the primary key."""
        last_key = b""
        partition: MergedPartition | None = None
        values: tuple[Any, ...] = ()
        for key, blob in store.scan(b"", start):
            partition_key, kind, part = state_key_parts(key)
            if not partition_key:
                continue
            if partition_key != last_key:
                last_key = partition_key
                record = store.get(partition_prefix(partition_key) + PARTITION) if self.clustered else None
                partition = None if record is None else self.read_partition(record)
                values = tuple(self.partition_values(partition_key))
            if kind == ROW[0]:
                yield key, blob, self.static_of(partition, part), values
