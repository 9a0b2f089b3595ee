"""Names by template: ``${namespace}``, ``${database}``, ``${table}``, ``${key}``, ``${column:<name>}`` and others. Pure.

Parts of a table's name are those of the JDBC sink. A template is bound to a table once; per row only parts of the
row are filled in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from connectors.options import invalid, non_empty
from spark_jobs.namespaces import find_identity, split_namespace
from spark_jobs.sinks.shared.values import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from connectors.options import Validator
    from spark_jobs.sinks.shared.model import RowTable, SinkRow

_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_COLUMN: Final = "column:"
#: Parts of the table's name: ``${namespace}`` is all of it, with its dots; of UMS's seven parts the first four.
TABLE_PARTS: Final = ("namespace", "database", "schema", "table", "instance", "type")
#: Parts of a row: its key (several columns joined by ``:``), its position in Kafka, its order number and operation.
ROW_PARTS: Final = ("key", "topic", "partition", "offset", "ums_id_", "ums_op_")
#: The text between the columns of a key.
SEPARATOR: Final = ":"


class Unfilled(ValueError):
    """A row lacks what a template needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Template:
    """A template as a user writes it; picklable."""

    text: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        return tuple(part.removeprefix(_COLUMN) for part in _PLACEHOLDER.findall(self.text) if part.startswith(_COLUMN))

    @property
    def row_parts(self) -> tuple[str, ...]:
        """The parts of a row that it names, columns aside."""
        return tuple(part for part in _PLACEHOLDER.findall(self.text) if part in ROW_PARTS)

    def of_table(self, namespace: str) -> str:
        """The template with the parts of a table's name; those of rows stay as they are."""
        values = {**split_namespace(namespace), "namespace": find_identity(namespace)}
        return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), self.text)

    def bind(self, table: RowTable, escape: Callable[[str], str] = str) -> Callable[[SinkRow], str]:
        """The function that fills the template for rows of a table.

        Args:
            table: the table.
            escape: what is done to the text of each part of a row.

        Returns:
            A function that raises ``Unfilled`` where a value is null, and ``values.NoText`` where it can't be text.
        """
        fixed = _PLACEHOLDER.split(self.of_table(table.namespace))
        getters = [
            part if number % 2 == 0 else _make_part_getter(part, table, escape)
            for number, part in enumerate(fixed)
            if part
        ]
        if all(isinstance(getter, str) for getter in getters):
            constant = "".join(str(getter) for getter in getters)
            return lambda _: constant
        return lambda row: "".join([getter if isinstance(getter, str) else getter(row) for getter in getters])

    def fill(self, table: RowTable, count: int, strings: Callable[[str], Sequence[str | None]]) -> list[str]:
        """The template filled for rows that are columns.

        Args:
            table: their table.
            count: how many rows there are.
            strings: gives the values of a column, or of a system column, as text.

        Raises:
            Unfilled: a value is null.
        """

        def part_texts(part: str) -> Sequence[str]:
            if part.startswith(_COLUMN):
                return _all_filled(part.removeprefix(_COLUMN), strings)
            if part == "key":
                columns = [_all_filled(name, strings) for name in table.keys]
                if len(columns) == 1:
                    return columns[0]
                return [SEPARATOR.join(map(_escape_part, values)) for values in zip(*columns, strict=True)]
            return _all_filled(part if part in ("ums_id_", "ums_op_") else f"kafka_{part}_", strings)

        fixed = _PLACEHOLDER.split(self.of_table(table.namespace))
        filled = [[part] * count if number % 2 == 0 else part_texts(part) for number, part in enumerate(fixed) if part]
        return list(filled[0]) if len(filled) == 1 else list(map("".join, zip(*filled, strict=True)))


def _all_filled(name: str, strings: Callable[[str], Sequence[str | None]]) -> Sequence[str]:
    values = strings(name)
    if not all(isinstance(value, str) for value in values):
        raise Unfilled(f"the column {name} is null or not a string, and a name is made of it")
    return cast("Sequence[str]", values)


def _make_part_getter(part: str, table: RowTable, escape: Callable[[str], str]) -> Callable[[SinkRow], str]:
    if part.startswith(_COLUMN):
        name = part.removeprefix(_COLUMN)
        return lambda row: escape(_fill_column(row, name))
    if part == "key":
        if len(table.keys) == 1:
            (only,) = table.keys
            return lambda row: escape(_fill_column(row, only))
        return lambda row: escape(SEPARATOR.join([_escape_part(_fill_column(row, name)) for name in table.keys]))
    ways: dict[str, Callable[[SinkRow], Any]] = {
        "topic": lambda row: row.topic,
        "partition": lambda row: row.partition,
        "offset": lambda row: row.offset,
        "ums_id_": lambda row: row.order,
        "ums_op_": lambda row: row.op,
    }
    way = ways[part]
    return lambda row: escape(str(way(row)))


def _escape_part(part: str) -> str:
    """So that ("a:b", "c") and ("a", "b:c") stay two keys."""
    return part.replace("%", "%25").replace(SEPARATOR, "%3A")


def _fill_column(row: SinkRow, name: str) -> str:
    value = row.values.get(name)
    if value is None:
        raise Unfilled(f"the column {name} is null, and a name is made of it")
    return text_of(value)


def template_validator(*, rows: Collection[str] = (), columns: bool = False, empty: bool = False) -> Validator:
    """The validator of an option that is a template.

    Args:
        rows: those of ``ROW_PARTS`` that it may name.
        columns: whether it may name columns.
        empty: whether it may be empty.
    """
    allowed = [f"${{{part}}}" for part in (*TABLE_PARTS, *rows)] + (["${column:<name>}"] if columns else [])

    def check(name: str, value: Any) -> str | None:
        problem = None if empty else non_empty(name, value)
        for part in _PLACEHOLDER.findall(value or ""):
            column = columns and part.startswith(_COLUMN) and part != _COLUMN
            if not column and part not in TABLE_PARTS and part not in rows:
                return invalid(name, value, f"${{{part}}} is not known; there are {', '.join(allowed)}")
        return problem

    return check
