"""The catalog of a bucket: which slot of the state each column of each version of the table is.

It is a record of the store itself, so that the state can be read without the messages it came from.

- A column keeps its slot from version to version while its name, type and part stay. A column that a version between lacks was
  dropped: what comes back under its name is another column with a slot of its own, and cells of the old one stay away, however
  late they come.
- Versions are in the order of their ids in the registry; without a registry in the order in which they were first seen.
- Another table id is another table (dropped and created): an *era* of its own. What is left of an earlier era is forgotten when
  its row is touched, and its late messages are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from connectors.cql.types import to_text
from connectors.errors import Fatal
from spark_jobs.materializer.engine.rowstate import record_head

if TYPE_CHECKING:
    from spark_jobs.materializer.engine.model import StateColumn

#: The only era of messages that belong to a table that is gone.
GONE: Final = -1


class KnownVersion(msgspec.Struct):
    """One version that the bucket has seen.

    Attributes:
        ident: see ``schema.UpdateVersion.ident``.
        order: its place among versions.
        era: of its table id.
        static: column signature -> slot of the static row.
        regular: the same of rows.
    """

    ident: str
    order: int
    era: int
    static: dict[str, int]
    regular: dict[str, int]


class BucketCatalog(msgspec.Struct):
    """See the module.

    Attributes:
        tables: table ids by era.
        versions: in their order.
        slots: how many there are: of static rows, of rows.
        schema: the newest version's schema, as Avro's text; what the state is shown with.
        form: of the input, for the reader of ``schema``.
    """

    tables: list[str] = []
    versions: list[KnownVersion] = []
    slots: tuple[int, int] = (0, 0)
    schema: str = ""
    form: str = ""

    @property
    def newest(self) -> KnownVersion | None:
        """The version that the state is shown with."""
        return self.versions[-1] if self.versions else None

    def find(self, ident: str) -> KnownVersion | None:
        """A version that was seen before."""
        return next((version for version in self.versions if version.ident == ident), None)

    def add(
        self, ident: str, order: int | None, table: str, static: list[StateColumn], regular: list[StateColumn]
    ) -> KnownVersion:
        """Enter a version.

        Args:
            ident: its name.
            order: its id in the registry; None: it comes behind all others.
            table: the table's id.
            static: its static columns.
            regular: its other columns that are not in the key.
        """
        return self.add_signatures(
            ident, order, table, list(map(describe_column, static)), list(map(describe_column, regular))
        )

    def add_signatures(
        self, ident: str, order: int | None, table: str, static: list[str], regular: list[str]
    ) -> KnownVersion:
        """As ``add``, with columns by their signatures."""
        last = self.versions[-1].order if self.versions else 0
        if order is None:
            order = last + 1
        insert_at = next(
            (index for index, version in enumerate(self.versions) if version.order > order), len(self.versions)
        )
        if table not in self.tables:
            if insert_at == len(self.versions):
                self.tables.append(table)
            else:
                known_version = KnownVersion(ident, order, GONE, {}, {})
                self.versions.insert(insert_at, known_version)
                return known_version
        era = self.tables.index(table)
        siblings = [version for version in self.versions if version.era == era]
        before = next((version for version in reversed(siblings) if version.order <= order), None)
        behind = next((version for version in siblings if version.order > order), None)
        counts = list(self.slots)
        bound: list[dict[str, int]] = []
        for index, columns in enumerate((static, regular)):
            near = [(version.static, version.regular)[index] for version in (before, behind) if version is not None]
            slots: dict[str, int] = {}
            for name in columns:
                slot = next((version[name] for version in near if name in version), None)
                if slot is None:
                    slot = counts[index]
                    counts[index] += 1
                slots[name] = slot
            bound.append(slots)
        self.slots = (counts[0], counts[1])
        known_version = KnownVersion(ident, order, era, *bound)
        self.versions.insert(insert_at, known_version)
        return known_version


def describe_column(column: StateColumn) -> str:
    """Return what identifies a column in two versions: its name and its type."""
    if column.type is None:
        schema = column.schema
        return column.name if schema is None else f"{column.name}\n{schema.type} {schema.name or ''}"
    return f"{column.name}\n{to_text(column.type).replace('varchar', 'text')}"


def pack_catalog(catalog: BucketCatalog) -> bytes:
    """The record of a catalog; never due."""
    return record_head(0) + msgspec.msgpack.encode(catalog)


def unpack_catalog(record: bytes) -> BucketCatalog:
    """The catalog in a record.

    Raises:
        Fatal: it is not a catalog; the state is damaged.
    """
    try:
        return msgspec.msgpack.decode(record[8:], type=BucketCatalog)
    except msgspec.MsgspecError as error:
        raise Fatal(
            f"The catalog of the materializer's state can't be read: {error}. It is damaged or of another version; "
            "rebuild the state from the input."
        ) from None
