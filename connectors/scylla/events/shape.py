"""Where the columns of a table stand in a log row, and in which order events have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.scylla.schema.log_table import META_COLUMNS

if TYPE_CHECKING:
    from connectors.scylla.model import ScyllaColumn, TableVersion


@dataclass(frozen=True, slots=True)
class LogColumn:
    """The positions of a column's cells.

    Attributes:
        column: the column.
        value: index of its value in a ``LogRow``.
        deleted: index of ``cdc$deleted_<c>``, -1 if it does not exist (key columns).
        elements: index of ``cdc$deleted_elements_<c>``, -1 if it does not exist.
        base: index in ``TableVersion.columns``.
    """

    column: ScyllaColumn
    value: int
    deleted: int
    elements: int
    base: int

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name

    @property
    def is_key(self) -> bool:
        """Whether it is of the primary key."""
        return self.column.kind in {"partition_key", "clustering"}


@dataclass(frozen=True, slots=True)
class LogShape:
    """A table version seen from its log rows.

    Attributes:
        width: members of a ``LogRow``.
        columns: all columns in the order of ``SELECT *`` of the log table: by the bytes of their names. The Java connector's
            structs have this order.
        key: the columns of the primary key as the Java connector's advanced format orders them: partition key, then clustering
            key, each by name.
        partition: columns of the partition key in key order.
        clustering: columns of the clustering key in key order.
    """

    width: int
    columns: tuple[LogColumn, ...]
    key: tuple[LogColumn, ...]
    partition: tuple[LogColumn, ...]
    clustering: tuple[LogColumn, ...]

    @property
    def others(self) -> tuple[LogColumn, ...]:
        """All but the key columns, in the order of ``columns``."""
        return tuple(log_column for log_column in self.columns if not log_column.is_key)


def shape_of(version: TableVersion) -> LogShape:
    """The shape of a table version; follows ``TableVersion.log_columns``."""
    log_columns: list[LogColumn] = []
    index = len(META_COLUMNS)
    for base, column in enumerate(version.columns):
        if column.kind in {"partition_key", "clustering"}:
            log_columns.append(LogColumn(column, index, -1, -1, base))
            index += 1
            continue
        multicell = column.type.is_multicell
        log_columns.append(LogColumn(column, index, index + 1, index + 2 if multicell else -1, base))
        index += 3 if multicell else 2
    by_name = tuple(sorted(log_columns, key=lambda log_column: log_column.name.encode()))
    of_kind = {
        kind: tuple(log_column for log_column in by_name if log_column.column.kind == kind)
        for kind in ("partition_key", "clustering")
    }
    partition = tuple(sorted(of_kind["partition_key"], key=lambda log_column: log_column.column.position))
    clustering = tuple(sorted(of_kind["clustering"], key=lambda log_column: log_column.column.position))
    return LogShape(index, by_name, of_kind["partition_key"] + of_kind["clustering"], partition, clustering)
