"""Rows that differ, with what both sides say of them, in a form that is small enough to be shown. Pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Row = Mapping[str, Any]

#: Rows that are shown with their values, of each kind of difference of a table.
MOST_ROWS: Final = 10
#: Columns of a row that are shown.
MOST_COLUMNS: Final = 20
#: Characters of a value that are shown.
MOST_LETTERS: Final = 200
#: How many equal characters are shown before the first that differs.
_LEAD: Final = 20
_CUT: Final = "…"
_encode: Final = msgspec.json.Encoder(order="sorted", enc_hook=str).encode


class RowDifference(msgspec.Struct):
    """A row that differs.

    Attributes:
        kind: ``missing``, ``extra``, ``different`` or ``unsettled``.
        key: as in the examples of the report.
        source: by column, its value as JSON text, perhaps cut; of a row that both sides have, the columns that differ alone.
            None: the source does not have the row.
        topic: likewise.
        columns_left_out: how many further columns differ.
    """

    kind: str
    key: str
    source: dict[str, str] | None
    topic: dict[str, str] | None
    columns_left_out: int = 0


def differing_columns(source: Row, topic: Row) -> tuple[Row, Row]:
    """The columns of two rows whose values are not equal; one that only one row has differs."""
    names = [name for name in {**source, **topic} if source.get(name) != topic.get(name)]
    return _chosen(source, names), _chosen(topic, names)


def differing_common_columns(source: Row, topic: Row) -> tuple[Row, Row]:
    """Like ``differing_columns``, without the columns that only one row has."""
    names = [name for name, value in source.items() if name in topic and topic[name] != value]
    return _chosen(source, names), _chosen(topic, names)


def _chosen(row: Row, names: list[str]) -> Row:
    return {name: row[name] for name in names if name in row}


def row_difference(
    kind: str,
    key: str,
    source: Row | None,
    topic: Row | None,
    differing: Callable[[Row, Row], tuple[Row, Row]] = differing_columns,
) -> RowDifference:
    """A row that differs, made small.

    Args:
        kind: of the difference.
        key: the row's, as text.
        source: the row in the source; None: it is not there.
        topic: likewise.
        differing: the columns that differ, of a row that both have.
    """
    if source is not None and topic is not None:
        source, topic = differing(source, topic)
    names = list({**(source or {}), **(topic or {})})
    shown_rows: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for name in islice(names, MOST_COLUMNS):
        sides = [None if row is None or name not in row else _text(row[name]) for row in (source, topic)]
        for shown, text in zip(shown_rows, cut(*sides), strict=True):
            if text is not None:
                shown[name] = text
    return RowDifference(
        kind,
        key,
        None if source is None else shown_rows[0],
        None if topic is None else shown_rows[1],
        max(len(names) - MOST_COLUMNS, 0),
    )


def _text(value: Any) -> str:
    return _encode(value).decode()


def cut(first: str | None, second: str | None) -> tuple[str | None, str | None]:
    """Shorten two strings so that they can be shown, around the position where they start to differ."""
    start = 0
    if first is not None and second is not None and max(len(first), len(second)) > MOST_LETTERS:
        equal = next(
            (number for number, (left, right) in enumerate(zip(first, second, strict=False)) if left != right),
            min(len(first), len(second)),
        )
        start = max(equal - _LEAD, 0)
    return _part(first, start), _part(second, start)


def _part(text: str | None, start: int) -> str | None:
    if text is None:
        return None
    end = start + MOST_LETTERS
    return (_CUT if start else "") + text[start:end] + (_CUT if len(text) > end else "")
