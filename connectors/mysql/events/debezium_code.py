"""The loops over the rows of an event, written for one table: most of what a row costs is here.

The functions get the rows, the number of the first in its event, the ``source`` block of row 0, the offset before the event and
the clock, and append records. Rows that need thought (another shard's, not complete, with a new key) go to ``odd``. They return
how many rows they have left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.api import SourceRecord
from connectors.codegen import CodeBuilder, dict_display
from connectors.mysql.events.shaping import value_members

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import Header, Position
    from connectors.mysql.events.contract import MySqlEventSettings
    from connectors.mysql.events.envelope import MySqlEventSchemas
    from connectors.mysql.schema.columns import ColumnLayout

Clock = tuple[int, int, int]


class Loops(NamedTuple):
    """The compiled functions of one table."""

    creates: Callable[..., int]
    updates: Callable[..., int]
    deletes: Callable[..., int]
    reads: Callable[..., None]
    key: Callable[[dict[str, Any]], dict[str, Any] | None]


def compile_loops(
    layout: ColumnLayout,
    schemas: MySqlEventSchemas,
    settings: MySqlEventSettings,
    partition: Position,
    headers: tuple[Header, ...],
    shape: Callable[[dict[str, Any]], dict[str, Any]] | None,
    add_unusual: Callable[..., int],
) -> Loops:
    """Write and compile the functions; about a millisecond.

    Args:
        layout: of the table.
        schemas: of its events.
        settings: see ``MySqlEventSettings``.
        partition: the source partition of the records.
        headers: of all records.
        shape: makes a value of a row (``shaping.make_shaper``), or None.
        add_unusual: ``odd(op, before, after, number, source, base, clock, append) -> rows left out`` for rows that need
            thought.
    """
    columns = sum(plan is not None for plan in layout.plans)
    code = CodeBuilder(
        RECORD=SourceRecord,
        PARTITION=partition,
        TOPIC=schemas.topic,
        ENVELOPE=schemas.envelope,
        KEY=schemas.key,
        HEADERS=headers,
        ODD=add_unusual,
        shape=shape,
    )
    members = value_members(layout.key, code)
    if schemas.key_extra is not None:
        name, value = schemas.key_extra
        members.append((name, repr(value)))
    row = _RowCode(
        columns=columns,
        key=dict_display(members) if members else "None",
        image="row" if shape is None else "shape(row)",
    )
    code.define("key_of(row)", [f"return {row.key}"])
    _write_creates(code, row)
    _write_deletes(code, row, tombstones=settings.tombstones)
    key_fields = [field.column for field in layout.key]
    _write_updates(code, row, key_fields, shaped=shape is not None, skip_unchanged=settings.skip_unchanged)
    _write_reads(code, row)
    functions = code.compile(f"events of {layout.table.name}")
    return Loops(
        functions["creates"], functions["updates"], functions["deletes"], functions["reads"], functions["key_of"]
    )


class _RowCode(NamedTuple):
    """The parts that the loops of a table have in common.

    Attributes:
        columns: how many a whole row has.
        key: the expression of the key of ``row``.
        image: the expression of the image of ``row``.
    """

    columns: int
    key: str
    image: str


_HEAD: Final = ("ms, us, ns = clock", "left = 0")
#: The source block and the offset of the present row.
_STEP: Final = (
    "    block = source.copy()",
    '    block["row"] = number',
    "    number += 1",
    "    offset = base.copy()",
    '    offset["row"] = number',
)


def _envelope(before: str, after: str, source: str, op: str) -> str:
    return (
        f'{{"before": {before}, "after": {after}, "source": {source}, "transaction": None, "op": "{op}", "ts_ms": ms, '
        f'"ts_us": us, "ts_ns": ns}}'
    )


def _append_record(offset: str, value: str, key: str, schema: str = "ENVELOPE") -> str:
    return f"    append(RECORD(PARTITION, {offset}, TOPIC, {value}, {schema}, {key}, KEY, None, HEADERS))"


def _pass_unusual(op: str, columns: int) -> list[str]:
    pair = "None, row" if op == "c" else "row, None"
    return [
        f"    if row is None or len(row) != {columns}:",
        f'        left += ODD("{op}", {pair}, number, source, base, clock, append)',
        "        number += 1",
        "        continue",
    ]


def _write_creates(code: CodeBuilder, row: _RowCode) -> None:
    code.define(
        "creates(rows, number, source, base, clock, append)",
        [
            *_HEAD,
            "for row in rows:",
            *_pass_unusual("c", row.columns),
            *_STEP,
            _append_record("offset", _envelope("None", row.image, "block", "c"), row.key),
            "return left",
        ],
    )


def _write_deletes(code: CodeBuilder, row: _RowCode, *, tombstones: bool) -> None:
    value = _envelope(row.image, "None", "block", "d")
    if tombstones:
        delete = [
            f"    key = {row.key}",
            _append_record("done", value, "key"),
            _append_record("offset", "None", "key", schema="None"),
            "    done = offset",
        ]
    else:
        delete = [_append_record("offset", value, row.key)]
    code.define(
        "deletes(rows, number, source, base, clock, append)",
        [
            *_HEAD,
            "done = base.copy()",
            'done["row"] = number',
            "for row in rows:",
            *_pass_unusual("d", row.columns),
            *_STEP,
            *delete,
            "return left",
        ],
    )


def _write_updates(
    code: CodeBuilder, row: _RowCode, key_fields: Sequence[str], *, shaped: bool, skip_unchanged: bool
) -> None:
    key_conditions = "".join(f" or row[{column!r}] != after[{column!r}]" for column in key_fields)
    images = ["    before, after = shape(row), shape(after)"] if shaped else ["    before = row"]
    unchanged = ["    if before == after:", "        number += 1", "        left += 1", "        continue"]
    code.define(
        "updates(rows, number, source, base, clock, append)",
        [
            *_HEAD,
            "pairs = iter(rows)",
            "for row, after in zip(pairs, pairs):",
            f"    if row is None or after is None or len(row) != {row.columns} or len(after) != {row.columns}{key_conditions}:",
            '        left += ODD("u", row, after, number, source, base, clock, append)',
            "        number += 1",
            "        continue",
            *images,
            *(unchanged if skip_unchanged else []),
            *_STEP,
            _append_record("offset", _envelope("before", "after", "block", "u"), row.key),
            "return left",
        ],
    )


def _write_reads(code: CodeBuilder, row: _RowCode) -> None:
    code.define(
        "reads(rows, source, offset, clock, append)",
        [
            "ms, us, ns = clock",
            "for row in rows:",
            _append_record("offset", _envelope("None", row.image, "source.copy()", "r"), row.key),
        ],
    )
