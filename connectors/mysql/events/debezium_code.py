"""The loops over the rows of an event, written for one table: most of what a row costs is here.

The functions get the rows, the number of the first in its event, the ``source`` block of row 0, the offset before the event and
the clock, and append records. Rows that need thought (another shard's, not complete, with a new key) go to ``odd``. They return
how many rows they have left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from connectors.api import SourceRecord
from connectors.codegen import CodeBuilder, dict_display
from connectors.mysql.events.shaping import value_members

if TYPE_CHECKING:
    from collections.abc import Callable

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
    key = dict_display(members) if members else "None"

    def content(before: str, after: str, source: str, op: str) -> str:
        return (
            f'{{"before": {before}, "after": {after}, "source": {source}, "transaction": None, "op": "{op}", "ts_ms": ms, '
            f'"ts_us": us, "ts_ns": ns}}'
        )

    def record(offset: str, value: str, schema: str, key: str) -> str:
        return f"append(RECORD(PARTITION, {offset}, TOPIC, {value}, {schema}, {key}, KEY, None, HEADERS))"

    head = ["ms, us, ns = clock", "left = 0"]
    step = [
        "    block = source.copy()",
        '    block["row"] = number',
        "    number += 1",
        "    offset = base.copy()",
        '    offset["row"] = number',
    ]

    def careful(op: str) -> list[str]:
        pair = "None, row" if op == "c" else "row, None"
        return [
            f"    if row is None or len(row) != {columns}:",
            f'        left += ODD("{op}", {pair}, number, source, base, clock, append)',
            "        number += 1",
            "        continue",
        ]

    image = "row" if shape is None else "shape(row)"
    code.define("key_of(row)", [f"return {key}"])
    code.define(
        "creates(rows, number, source, base, clock, append)",
        [
            *head,
            "for row in rows:",
            *careful("c"),
            *step,
            "    " + record("offset", content("None", image, "block", "c"), "ENVELOPE", key),
            "return left",
        ],
    )
    if settings.tombstones:
        delete = [
            f"    key = {key}",
            "    " + record("done", content(image, "None", "block", "d"), "ENVELOPE", "key"),
            "    " + record("offset", "None", "None", "key"),
            "    done = offset",
        ]
    else:
        delete = ["    " + record("offset", content(image, "None", "block", "d"), "ENVELOPE", key)]
    code.define(
        "deletes(rows, number, source, base, clock, append)",
        [
            *head,
            "done = base.copy()",
            'done["row"] = number',
            "for row in rows:",
            *careful("d"),
            *step,
            *delete,
            "return left",
        ],
    )
    key_conditions = "".join(f" or row[{field.column!r}] != after[{field.column!r}]" for field in layout.key)
    images = ["    before = row"] if shape is None else ["    before, after = shape(row), shape(after)"]
    unchanged = ["    if before == after:", "        number += 1", "        left += 1", "        continue"]
    code.define(
        "updates(rows, number, source, base, clock, append)",
        [
            *head,
            "pairs = iter(rows)",
            "for row, after in zip(pairs, pairs):",
            f"    if row is None or after is None or len(row) != {columns} or len(after) != {columns}{key_conditions}:",
            '        left += ODD("u", row, after, number, source, base, clock, append)',
            "        number += 1",
            "        continue",
            *images,
            *(unchanged if settings.skip_unchanged else []),
            *step,
            "    " + record("offset", content("before", "after", "block", "u"), "ENVELOPE", key),
            "return left",
        ],
    )
    code.define(
        "reads(rows, source, offset, clock, append)",
        [
            "ms, us, ns = clock",
            "for row in rows:",
            "    " + record("offset", content("None", image, "source.copy()", "r"), "ENVELOPE", key),
        ],
    )
    functions = code.compile(f"events of {layout.table.name}")
    return Loops(
        functions["creates"], functions["updates"], functions["deletes"], functions["reads"], functions["key_of"]
    )
