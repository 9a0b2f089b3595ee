"""Cells of ``after`` in Debezium's form from those of partition updates, and the ends of deleted ranges."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

from connectors.cassandra.events.debezium_types import class_text, debezium_type, field_types, map_has_entries
from connectors.cql.encoding import make_encoder
from connectors.cql.java_text import header_text
from connectors.cql.types import quote_name

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Sequence

    from connectors.cassandra.events.contract import CassandraEventSettings
    from connectors.cassandra.events.debezium_types import Change
    from connectors.cassandra.events.envelope import CassandraSchemas
    from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition
    from connectors.cql.types import CqlType
    from connectors.formats.partition_update import Cell, RangeDeletion, UpdateDeletion

_MICROS: Final = 1_000_000
#: The first day of year 1, in days since 1970; then the years and the days after which the calendar repeats.
_YEAR_1: Final = 1 - dt.date(1970, 1, 1).toordinal()
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
#: Later years have a sign before them.
_LAST_YEAR: Final = 9999
#: How Cassandra prints a field of a tuple or of a user-defined type that is null.
_NULL: Final = "@"


class CellWriter:
    """Writes ``after``, by column, and keys of one table.

    Attributes:
        no_clustering: clustering values of what has none: the static row, a whole partition.
    """

    def __init__(
        self,
        table: CqlTableDefinition,
        settings: CassandraEventSettings,
        schemas: CassandraSchemas,
        skipped: Counter[str],
    ) -> None:
        self.no_clustering: tuple[Any, ...] = (None,) * len(table.clustering)
        self._extended = settings.extended
        self._skipped = skipped
        self._partition = [(column.name, schemas.types[column.name].change) for column in table.key]
        self._clustering = [(column.name, schemas.types[column.name].change) for column in table.clustering]
        columns = (*table.static, *table.regular)
        self._columns = [column.name for column in columns]
        self._regular = [column.name for column in table.regular]
        self._simple = {
            column.name: schemas.types[column.name].change for column in columns if not column.type.is_multicell
        }
        self._multicell = {column.name: _Multicell(column, settings) for column in columns if column.type.is_multicell}

    def key(self, key: tuple[Any, ...], clustering: tuple[Any, ...]) -> dict[str, Any]:
        """The record's key."""
        return {
            name: value if change is None or value is None else change(value)
            for (name, change), value in zip((*self._partition, *self._clustering), (*key, *clustering), strict=True)
        }

    def keys(self, key: tuple[Any, ...], clustering: tuple[Any, ...]) -> dict[str, Any]:
        """The cells of the key columns; without clustering values those of the partition key."""
        columns = (*self._partition, *self._clustering) if clustering else self._partition
        return {
            name: _make_cell(value if change is None or value is None else change(value), None)
            for (name, change), value in zip(columns, (*key, *clustering), strict=True)
        }

    def nothing(self, key: tuple[Any, ...], clustering: tuple[Any, ...], deleted: int | None) -> dict[str, Any]:
        """All cells of a row or a partition that is gone since ``deleted`` (µs): null but those of the key.

        A deleted row leaves the static columns as they are; Debezium lists them with the others all the same.
        """
        after = self.keys(key, clustering)
        if deleted is not None:
            for (name, _), value in zip(self._clustering, clustering, strict=True):
                if value is None:
                    after[name] = _make_cell(None, deleted)
        row_only = deleted is not None and self._extended and clustering != self.no_clustering
        return after | {name: _make_cell(None, deleted) for name in (self._regular if row_only else self._columns)}

    def write(
        self, cells: Iterable[Cell], overwritten: Sequence[tuple[str, UpdateDeletion]], *, whole: bool
    ) -> dict[str, Any]:
        """The cells of the columns that a row was given.

        Args:
            cells: of the row.
            overwritten: its complex deletions.
            whole: whether multicell columns have all of their elements among ``cells``.
        """
        after: dict[str, Any] = {}
        elements: dict[str, list[Cell]] = {name: [] for name, _ in overwritten}
        for cell in cells:
            name = cell.column
            if name in self._multicell:
                elements.setdefault(name, []).append(cell)
                continue
            value, change, expires = cell.value, self._simple[name], cell.stamp.expires
            after[name] = _make_cell(
                value if change is None or value is None else change(value),
                None if value is None or expires is None else expires * _MICROS,
            )
        if elements:
            modes = {name: "overwrite" for name, _ in overwritten}
            for name, element_cells in elements.items():
                after[name] = self._write_elements(
                    name, element_cells, "overwrite" if whole else modes.get(name, "modify")
                )
        return after

    def _write_elements(self, name: str, cells: list[Cell], mode: str) -> dict[str, Any]:
        column = self._multicell[name]
        added = [cell for cell in cells if cell.value is not None]
        removed = [column.named(cell.path) for cell in cells if cell.value is None]
        if not self._extended:
            # Debezium gives removed elements as null; those of sets it gives as if they had been added.
            self._skipped["elements"] += bool(removed) and column.shape != "map"
            self._skipped["overwrite"] += mode == "overwrite"
            return _make_cell(column.value(cells if column.shape in {"list", "map"} else added), None)
        expiries = {cell.stamp.expires for cell in added}
        expires = expiries.pop() if len(expiries) == 1 else None
        return {
            **_make_cell(column.value(added), None if expires is None else expires * _MICROS),
            "mode": mode,
            "removed": removed or None,
        }


class _Multicell:
    """How the elements of one column are written.

    Attributes:
        shape: ``list``, ``set``, ``map`` or ``udt``.
    """

    def __init__(self, column: CqlColumn, settings: CassandraEventSettings) -> None:
        kind = column.type
        self.shape = kind.name
        self._entries = kind.name == "map" and map_has_entries(kind, settings)
        self._fields = (
            {name: field_type.change for name, field_type in field_types(kind, settings).items()}
            if kind.name == "udt"
            else {}
        )
        # The structs' names do not matter here.
        self._path: Change = (
            debezium_type(kind.arguments[0], "x", settings).change if kind.name in {"set", "map"} else None
        )
        self._value: Change = None if kind.name == "udt" else debezium_type(kind.arguments[-1], "x", settings).change

    def named(self, path: Any) -> Any:
        """The name of an element."""
        return path if self._path is None else self._path(path)

    def value(self, cells: list[Cell]) -> Any:
        """The value of the column that has these elements; null ones only of lists and maps."""
        if self.shape == "udt":
            changes = self._fields
            return (
                {
                    cell.path: cell.value if (change := changes[cell.path]) is None else change(cell.value)
                    for cell in cells
                }
                if cells
                else None
            )
        if self.shape == "set":
            return [self.named(cell.path) for cell in cells]
        change = self._value
        values = [cell.value if change is None or cell.value is None else change(cell.value) for cell in cells]
        if self.shape == "list":
            return values
        names = [self.named(cell.path) for cell in cells]
        if self._entries:
            return [{"key": name, "value": value} for name, value in zip(names, values, strict=True)]
        return dict(zip(names, values, strict=True))


def range_bounds(table: CqlTableDefinition, deleted: RangeDeletion) -> tuple[dict[str, Any], dict[str, Any]]:
    """``_range_start`` and ``_range_end`` of a deleted range; without values where the range is open."""
    prefixes = []
    for bound, suffix in ((deleted.start, "START_BOUND"), (deleted.end, "END_BOUND")):
        inclusive = bound.inclusive or not bound.prefix
        values = [
            {
                "name": quote_name(column.name),
                "value": _format_value(column.type, value),
                "type": class_text(column.type, reversed_order=column.reversed),
            }
            for column, value in zip(table.clustering, bound.prefix, strict=False)
        ]
        prefixes.append({"method": f"{'INCL' if inclusive else 'EXCL'}_{suffix}", "values": values})
    return prefixes[0], prefixes[1]


def _make_cell(value: Any, deleted: int | None) -> dict[str, Any]:
    return {"value": value, "deletion_ts": deleted, "set": True}


def _format_value(kind: CqlType, value: Any) -> str:
    """A clustering value as Cassandra prints it."""
    if value is None:
        return ""
    match kind.name:
        case "blob" | "custom":
            return str(value.hex())
        case "date":
            return _format_day(value)
        case "timestamp":
            return f"{_format_day(value // 86_400_000)}T{_format_clock(value % 86_400_000 * 1_000_000, 3)}Z"
        case "time":
            return _format_clock(value, 9)
        case "boolean" | "float" | "double":
            return header_text(kind)(value)
        case "list" | "set" | "map" | "vector":
            return make_encoder(kind)(value).hex()
        case "tuple" | "udt":
            names = kind.field_names or [f"field_{index}" for index in range(len(kind.arguments))]
            return ":".join(
                _NULL if (member := value.get(name)) is None else _escape_value(_format_value(inner, member))
                for name, inner in zip(names, kind.arguments, strict=True)
            )
    return str(value)


def _escape_value(raw: str) -> str:
    return raw.replace(":", "\\:").replace(_NULL, f"\\{_NULL}")


def _format_day(days: int) -> str:
    """The date in the Gregorian calendar, years of any size as ``java.time`` prints them: ``-0001-01-01``, ``+10000-01-01``."""
    cycles, day_in_cycle = divmod(days - _YEAR_1, _CYCLE_DAYS)
    day = dt.date.fromordinal(day_in_cycle + 1)
    year = day.year + cycles * _CYCLE_YEARS
    sign = "-" if year < 0 else "+" if year > _LAST_YEAR else ""
    return f"{sign}{abs(year):04}-{day.month:02}-{day.day:02}"


def _format_clock(nanos: int, digits: int) -> str:
    seconds, fraction = divmod(nanos, 10**9)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction // 10 ** (9 - digits):0{digits}}"
