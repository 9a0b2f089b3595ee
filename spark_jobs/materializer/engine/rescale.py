"""Another number of buckets: merges the catalogs of all buckets into one, and adapts rows to it.

Each bucket numbers the columns of its rows (slots) and the incarnations of its table (eras) as it met them, so rows of two
buckets may disagree. ``merge_catalogs`` makes one numbering; ``Renumbering`` brings a row to it. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal
from spark_jobs.materializer.decoding.catalog import GONE, BucketCatalog, KnownVersion
from spark_jobs.materializer.engine.keys import PARTITION
from spark_jobs.materializer.engine.model import state_key_parts
from spark_jobs.materializer.engine.rowstate import pack_partition, pack_row, unpack_partition, unpack_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spark_jobs.materializer.engine.rowstate import RowState

#: The era of rows of a table that no bucket's catalog names any more: forgotten when they are touched.
_FORGOTTEN: Final = GONE


class Renumbering(msgspec.Struct, frozen=True):
    """How the rows of one bucket are brought to a merged catalog.

    Attributes:
        eras: era in the bucket -> era in the merged catalog.
        static, regular: slot in the bucket -> slot in the merged catalog, of static rows and of rows.
        counts: how many slots the merged catalog has.
    """

    eras: dict[int, int]
    static: dict[int, int]
    regular: dict[int, int]
    counts: tuple[int, int]

    @property
    def changes_nothing(self) -> bool:
        """Whether records stay as they are."""
        return all(old == new for part in (self.eras, self.static, self.regular) for old, new in part.items())

    def record(self, key: bytes, blob: bytes) -> bytes:
        """The record of a state key in the merged numbering; raises as ``pack_row``."""
        if state_key_parts(key)[1] == PARTITION[0]:
            partition = unpack_partition(blob)
            partition.era = self.eras.get(partition.era, _FORGOTTEN)
            if partition.static is not None:
                self._renumber_row(partition.static, self.static, self.counts[0])
            packed = pack_partition(partition)
            return blob if packed is None else packed
        row = unpack_row(blob)
        self._renumber_row(row, self.regular, self.counts[1])
        return pack_row(row)

    def _renumber_row(self, row: RowState, slots: Mapping[int, int], count: int) -> None:
        row.era = self.eras.get(row.era, _FORGOTTEN)
        values: list[Any] = [None] * count
        times: list[int | None] = [None] * count
        for old, new in slots.items():
            if old < len(row.times):
                values[new], times[new] = row.values[old], row.times[old]
        row.values, row.times = values, times
        if row.extra:
            row.extra = {slots[slot]: entry for slot, entry in row.extra.items() if slot in slots}
        if row.complex:
            row.complex = {slots[slot]: entry for slot, entry in row.complex.items() if slot in slots}


def merge_catalogs(catalogs: Sequence[BucketCatalog], *, ordered_by_registry: bool) -> BucketCatalog:
    """One catalog with every version that some bucket has seen, in their order.

    Args:
        catalogs: of all buckets.
        ordered_by_registry: whether ``KnownVersion.order`` is an id of the registry, so that orders of two buckets compare.

    Raises:
        Fatal: the buckets have seen versions whose order is not known.
    """
    first = max(catalogs, key=lambda catalog: len(catalog.versions), default=BucketCatalog())
    if all(catalog == first for catalog in catalogs):
        return first
    merged = BucketCatalog()
    sources = [(catalog, version) for catalog in catalogs for version in catalog.versions]
    if ordered_by_registry:
        sources.sort(key=lambda pair: (pair[1].order, pair[1].era == GONE))
    else:
        _check_order(first, catalogs)
        ranks = {version.ident: rank for rank, version in enumerate(first.versions)}
        sources.sort(key=lambda pair: (ranks[pair[1].ident], pair[1].era == GONE))
    for catalog, version in sources:
        if merged.find(version.ident) is not None:
            continue
        table = catalog.tables[version.era] if version.era != GONE else None
        _enter_version(merged, version, table, version.order if ordered_by_registry else None)
    newest = merged.newest
    for catalog in catalogs:
        if newest is not None and catalog.newest is not None and catalog.newest.ident == newest.ident:
            merged.schema, merged.form = catalog.schema, catalog.form
    return merged


def _check_order(first: BucketCatalog, catalogs: Iterable[BucketCatalog]) -> None:
    """Whether each bucket saw some of the versions of the one that saw most, in the same order."""
    names = [version.ident for version in first.versions]
    for catalog in catalogs:
        remaining_names = iter(names)
        if not all(version.ident in remaining_names for version in catalog.versions):
            raise Fatal(
                "the buckets have seen different versions of the table, and without a schema registry nothing says which is "
                f"the newer one ({', '.join(names)}; {', '.join(version.ident for version in catalog.versions)}). Start the "
                "job from the savepoint with its old number of buckets, let a change of each part of the table come with the "
                "newest definition (a snapshot does that), and make another savepoint"
            )


def _enter_version(merged: BucketCatalog, version: KnownVersion, table: str | None, order: int | None) -> None:
    if table is None:
        merged.versions.append(KnownVersion(version.ident, version.order, GONE, {}, {}))
    else:
        merged.add_signatures(version.ident, order, table, list(version.static), list(version.regular))


def make_renumbering(catalog: BucketCatalog, merged: BucketCatalog) -> Renumbering:
    """How the rows of a bucket with ``catalog`` are adapted to ``merged``, which has all its versions."""
    static: dict[int, int] = {}
    regular: dict[int, int] = {}
    for version in catalog.versions:
        there = merged.find(version.ident)
        if there is None:
            continue
        # A later version overwrites: a slot's cells are shown as what its newest version says they are.
        static |= {slot: there.static[name] for name, slot in version.static.items() if name in there.static}
        regular |= {slot: there.regular[name] for name, slot in version.regular.items() if name in there.regular}
    eras = {era: merged.tables.index(table) for era, table in enumerate(catalog.tables) if table in merged.tables}
    return Renumbering(eras, static, regular, merged.slots)
