"""Rows of the base table as the snapshot reads and sends them: compiled once per table version, pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.scylla.config.names import qualify_table, quote_name
from connectors.scylla.snapshot.order import ORDER_SEPARATOR, PARTITION_CHARS, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from connectors.scylla.model import LogRow, TableVersion
    from connectors.scylla.snapshot.merging import ChangeTraces

#: A row of a page: token, the columns in the order of ``TableVersion.columns``, then write times (us).
RawRow = tuple[Any, ...]

_META: Final = 6  # members of a LogRow before its cells
_TIME: Final = 1
_DIGEST: Final = PARTITION_CHARS // 2


class SnapshotRow(NamedTuple):
    """One row to be sent: a row of the table, or the static cells of a partition.

    Attributes:
        token: of its partition.
        digest: identifies it and gives its position in its partition: see ``order.Seek``.
        static: whether it is the static cells.
        raw: where it is from.
    """

    token: int
    digest: str
    static: bool
    raw: RawRow


class Kept(NamedTuple):
    """The part of a row that is sent.

    Attributes:
        cells: in the order of ``TableVersion.columns``.
        newest_us: the newest write time among them, or None if none has one.
        left_out: cells that the stream is still to bring.
    """

    cells: list[Any]
    newest_us: int | None
    left_out: int


def _hash_cells(cells: Sequence[Any]) -> str:
    return blake2b(repr(cells).encode("utf-8", "surrogatepass"), digest_size=_DIGEST).hexdigest()


class RowPlan:
    """Selects and identifies rows of one table version, and cuts them back to a moment."""

    def __init__(self, table: TableVersion) -> None:
        columns = table.columns
        kinds = [column.kind for column in columns]
        timed = [
            i for i, column in enumerate(columns) if kinds[i] in {"static", "regular"} and not column.type.is_multicell
        ]
        self.version: Final = table.version
        self._width = len(columns) + 1
        self._partition = kinds.count("partition_key")
        self._keys = self._partition + kinds.count("clustering")
        self._clustered = self._keys > self._partition
        self._encode_order = place_of(table.clustering_key)
        self._statics = [i for i, kind in enumerate(kinds) if kind == "static"]
        self._regulars = [i for i, kind in enumerate(kinds) if kind == "regular"]
        time_indexes = {column: self._width + n for n, column in enumerate(timed)}
        self._timed = {
            static: [(i, time_indexes[i]) for i in timed if (kinds[i] == "static") is static]
            for static in (False, True)
        }
        multicell = [i for i, column in enumerate(columns) if column.type.is_multicell]
        self._untimed = {static: [i for i in multicell if (kinds[i] == "static") is static] for static in (False, True)}
        names = [quote_name(column.name) for column in columns]
        token = f"token({', '.join(quote_name(column.name) for column in table.partition_key)})"
        selected = [token, *names, *(f"writetime({names[i]})" for i in timed)]
        #: Parameters: the token before the first and the last token.
        self.query: Final = (
            f"SELECT {', '.join(selected)} FROM {qualify_table(table.id)} "  # noqa: S608 - names are quoted
            f"WHERE {token} > ? AND {token} <= ?"
        )

    def items(self, rows: Iterable[RawRow], before: str = "") -> list[SnapshotRow]:
        """The rows to be sent of a page, in order.

        Args:
            rows: the page.
            before: digest of the row before it, so that the static cells of a partition are sent once.
        """
        result: list[SnapshotRow] = []
        width, first, last = self._width, 1 + self._partition, 1 + self._keys
        partition: Any = None
        part = before[:PARTITION_CHARS]
        encode_order = self._encode_order
        no_clustering = _hash_cells((None,) * (last - first))
        for raw in rows:
            key = raw[1:first]
            if key != partition:
                partition = key
                digest = _hash_cells(key)
                if digest != part:
                    part = digest
                    if self._statics and any(raw[1 + i] is not None for i in self._statics):
                        result.append(SnapshotRow(raw[0], part + no_clustering + ORDER_SEPARATOR, True, raw))
            if self._clustered:
                clustering = raw[first:last]
                if None in clustering and not any(cell is not None for cell in clustering):
                    continue  # a partition that has static cells only
                digest = part + _hash_cells(clustering)
                row_order = encode_order(clustering) if encode_order is not None else None
                result.append(
                    SnapshotRow(
                        raw[0], digest if row_order is None else digest + ORDER_SEPARATOR + row_order, False, raw
                    )
                )
            else:
                result.append(SnapshotRow(raw[0], part + no_clustering, False, raw))
            assert len(raw) >= width  # noqa: S101 - a page of another query
        return result

    def keep(self, item: SnapshotRow, below_us: int) -> Kept | None:
        """The cells that are older than ``below_us``; None if the stream is still to bring all that the row has."""
        static = item.static
        raw = item.raw
        cells = list(raw[1 : self._width])
        for i in self._regulars if static else self._statics:
            cells[i] = None
        if static:
            cells[self._partition : self._keys] = [None] * (self._keys - self._partition)
        newest = -1 << 63
        left_out = 0
        kept = False
        for i, index in self._timed[static]:
            time = raw[index]
            if time is None:
                continue
            if time >= below_us:
                cells[i] = None
                left_out += 1
                continue
            kept = True
            newest = max(newest, time)
        if not kept:
            kept = any(cells[i] is not None for i in self._untimed[static])
            if not kept and (left_out or static):
                return None
            return Kept(cells, None, left_out)
        return Kept(cells, newest, left_out)

    def key(self, item: SnapshotRow) -> int:
        """A hash of the row's key, the same as in ``trace``."""
        key = item.raw[1 : 1 + self._keys]
        if item.static:
            key = (*key[: self._partition], *[None] * (self._keys - self._partition))
        return hash(repr(key))

    def trace(self, rows: Iterable[LogRow], traces: ChangeTraces) -> None:
        """Note the changes among rows of the log, of whatever version: key columns never change and come first."""
        stop = _META + self._keys
        for row in rows:
            traces.add(hash(repr(row[_META:stop])), row[_TIME])
