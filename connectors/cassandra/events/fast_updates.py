"""Mutations of the log straight to partition updates in bytes, those with decoded values and raw ones; see ``fast_entries``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.cassandra.events.contract import record_time
from connectors.cassandra.events.partition_update import NO_VALUE, PartitionUpdateEvents, deleted_line
from connectors.cassandra.events.raw import (
    KEY_AT,
    ONE_BYTE,
    SIX_MORE,
    SIX_MORE_BITS,
    SIZE,
    RawEvents,
    unpack_word,
)
from connectors.codegen import CodeBuilder, unpack_names
from connectors.cql.mutations.head import HAS_STATIC_ROW, IS_EMPTY, TIMESTAMP_EPOCH
from connectors.formats.cql_schema import make_renamer
from connectors.formats.names import field_name
from connectors.schema import BYTES
from connectors.wire import EVENT, ROW, Encoding, Fixed, Items

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.cassandra.events.fast_entries import Build
    from connectors.formats.partition_update import ColumnLike
    from connectors.wire import RowForm, RowWriter, Shape, Wire

    #: ``(partition key, clustering values, values) -> (key, row)``: structs of the value.
    MakeRow = Callable[..., tuple[Any, Any]]

#: Lists of columns with code of their own.
_SHAPES: Final = 1000
#: Members that the entries of one call share, and the variables with their values.
_SHARED: Final = {
    ("source", "read_time"): "read_ms",
    ("source", "position", "node"): "node",
    ("source", "position", "segment"): "segment",
}
_ANYTHING: Final = {"read_ms": 0, "node": "", "segment": 0}
#: What follows from a mutation's time in µs.
_TIME: Final = "ms = us // 1000"
_TIMESTAMP: Final = "ms if 0 <= ms <= read_ms else record_time(ms, read_ms)"


async def update_build(wire: Wire, events: object) -> tuple[RowWriter, Build] | None:
    """The writer of a table's partition updates and what ``FastEntries`` makes them with; None where only records will do.

    Args:
        wire: of the task.
        events: makes the records.

    Raises:
        Fatal: a service that a converter needs refuses this client.
    """
    if isinstance(events, RawEvents):
        if not events.begin or events.checks_values:
            return None
        shape: Shape = {"source": _source_shape(events.id), "write_time": ROW, "update": ROW}
        writer = await wire.writer(events.topic, BYTES, Encoding(events.schema, shape))
        return None if writer is None else (writer, _raw_loop(events, writer))
    if isinstance(events, PartitionUpdateEvents) and events.begin:
        writer = await wire.writer(events.topic, BYTES, Encoding(events.layout.schema, _update_shape(events)))
        return None if writer is None else (writer, _Loop(events, writer).function())
    return None


def _source_shape(identity: str) -> Shape:
    position: Shape = {"node": EVENT, "segment": EVENT, "position": ROW, "index": Fixed(0)}
    return {"schema": Fixed(identity), "snapshot": Fixed(value=False), "read_time": EVENT, "position": position}


def _source(form: RowForm) -> str:
    """The expression of ``source``; the entry's position is in ``position``."""
    path = ("source", "position")
    position = form.build(path, {"position": form.leaf((*path, "position"), "position", nullable=False)})
    return form.build(path[:1], {"position": position})


def _before_loop(form: RowForm, code: CodeBuilder) -> list[str]:
    arguments = ", ".join(_SHARED[path] for path in form.events)
    return [
        "read_ms, node, segment = where.read_ms, where.node, where.segment",
        *([f"{form.unpack} = {code.bind('constants', form.constants)}({arguments})"] if form.unpack else []),
        "keys, values, times = [], [], []",
        "add_key, add_value, add_time = keys.append, values.append, times.append",
    ]


def _raw_loop(events: RawEvents, writer: RowWriter) -> Build:
    """See ``RawEvents.entries``."""
    form = writer.value
    code = CodeBuilder(
        begin=events.begin,
        all_good=events.good,
        check_columns=events.check_columns,
        unpack_word=unpack_word,
        size_of=SIZE,
        record_time=record_time,
    )
    members = {
        "source": _source(form),
        "write_time": form.leaf(("write_time",), "us", nullable=False),
        "update": form.leaf(("update",), "update", nullable=False),
    }
    code.define(
        "build(data, entries, where)",
        [
            *_before_loop(form, code),
            "try:",
            "    for start, end, position in entries:",
            f"        key_start = start + {KEY_AT}",
            "        key_size = data[key_start - 1]",
            "        key_end = key_start + key_size",
            "        flags = data[key_end]",
            f"        if key_size >= {ONE_BYTE} or flags & {IS_EMPTY} or not data.startswith(begin, start): break",
            "        at = key_end + 8",
            "        (word,) = unpack_word(data, key_end + 1)",
            f"        if word >> 57 != {SIX_MORE}: break",
            "        at += size_of[data[at]]",
            "        at += size_of[data[at]]",
            f"        has_static = 1 if flags & {HAS_STATIC_ROW} else 0",
            "        good = all_good[has_static]",
            "        if not (good and data.startswith(good[0], at)):",
            "            check_columns(data, start + 1, at, good, where, lists=1 + has_static)",
            f"        us = (word >> 8 & {SIX_MORE_BITS}) + {TIMESTAMP_EPOCH}",
            f"        {_TIME}",
            "        update = data[start + 1 : end]",
            f"        add_value({form.build((), members)})",
            "        add_key(data[key_start:key_end])",
            f"        add_time({_TIMESTAMP})",
            # Whatever it is: the general way finds it out, and reports it.
            "except Exception: pass",
            "return keys, values, times",
        ],
    )
    code.names |= form.names
    return code.function("build", f"fast raw updates of {events.table}")


def _update_shape(events: PartitionUpdateEvents) -> Shape:
    layout = events.layout
    row: dict[str, Any] = {
        "clustering": _columns_shape(layout.clustering),
        "liveness": {"stamp": Fixed(None)},
        "deletion": Fixed(None),
        "stamp": Fixed(None),
        "cells": _columns_shape(layout.regular),
        "deleted": ROW,
        "stamps": Fixed(None),
        "complex_deletions": Fixed(None),
    }
    return {
        "source": _source_shape(events.id),
        "key": _columns_shape(layout.key),
        "write_time": ROW,
        "ttl": ROW,
        "expires": ROW,
        "deletion": Fixed(None),
        "static": Fixed(None),
        "rows": Items(row),
        "ranges": Fixed(None),
    }


def _columns_shape(columns: Sequence[ColumnLike]) -> Shape:
    return {field_name(column.name): ROW for column in columns}


class _Loop:
    """Writes the function that goes over entries and makes partition updates; see ``PartitionUpdateEvents.entries``.

    Args:
        events: makes the same records the general way.
        writer: of the table.
    """

    def __init__(self, events: PartitionUpdateEvents, writer: RowWriter) -> None:
        self._events = events
        self._form = writer.value
        #: By the written columns; whether the row was inserted decides which of both.
        self._rows: tuple[dict[tuple[str, ...], MakeRow], dict[tuple[str, ...], MakeRow]] = ({}, {})

    def function(self) -> Build:
        """The function."""
        events, form = self._events, self._form
        code = CodeBuilder(
            plain_of=events.decoder.plain,
            begin=events.begin,
            updated=self._rows[0],
            inserts=self._rows[1],
            make_row=self._make_row,
            record_time=record_time,
        )
        members = {
            "source": _source(form),
            "key": "key",
            "write_time": form.leaf(("write_time",), "us", nullable=False),
            "ttl": form.leaf(("ttl",), "ttl"),
            "expires": form.leaf(("expires",), "expires"),
            "rows": form.array(("rows",), ["row"]),
        }
        code.define(
            "build(data, entries, where)",
            [
                *_before_loop(form, code),
                "try:",
                "    for start, end, position in entries:",
                "        plain = plain_of(data, start + 1) if data.startswith(begin, start) else None",
                "        if plain is None: break",
                "        key, key_bytes, rows, found = plain",
                "        if found != end or len(rows) != 1 or rows[0][0]: break",
                "        _, clustering, inserted, us, ttl, expires, names, cells = rows[0]",
                "        make = (inserts if inserted else updated).get(names) or make_row(names, inserted)",
                "        key, row = make(key, clustering, cells)",
                f"        {_TIME}",
                f"        add_value({form.build((), members)})",
                "        add_key(key_bytes)",
                f"        add_time({_TIMESTAMP})",
                # Whatever it is: the general way finds it out, and reports it.
                "except Exception: pass",
                "return keys, values, times",
            ],
        )
        code.names |= form.names
        return code.function("build", f"fast updates of {events.table}")

    def _make_row(self, names: tuple[str, ...], inserted: object) -> MakeRow:
        """The function for rows that write these columns."""
        cache = self._rows[1 if inserted else 0]
        if len(cache) >= _SHAPES:
            cache.clear()
        make = cache[names] = self._row(names, inserted=bool(inserted))
        return make

    def _row(self, names: tuple[str, ...], *, inserted: bool) -> MakeRow:
        events, form, code = self._events, self._form, CodeBuilder(NAMES=names)
        layout = events.layout
        lines = [f"{unpack_names('k', len(layout.key))} = key"]
        members = {"liveness": form.build(("rows", "liveness"), {}) if inserted else "None"}
        if layout.clustering:
            lines.append(f"{unpack_names('c', len(layout.clustering))} = clustering")
            clustering_locals = _locals("c", layout.clustering)
            members["clustering"] = self._struct(("rows", "clustering"), layout.clustering, clustering_locals, code)
        if layout.regular:
            cells = {name: f"v{index}" for index, name in enumerate(names)}
            members["cells"] = "None"
            if names:
                written = self._struct(("rows", "cells"), layout.regular, cells, code)
                code.add(0, f"no_cells = {form.leaf(('rows', 'cells'), 'None', checked=True)}")
                members["cells"] = f"(no_cells if {NO_VALUE} else {written})"
        if any(not column.type.is_multicell for column in layout.regular):
            lines.append(deleted_line(names))
            members["deleted"] = form.leaf(("rows", "deleted"), "deleted")
        if names:
            lines.append(f"{unpack_names('v', len(names))} = values")
        key = self._struct(("key",), layout.key, _locals("k", layout.key), code)
        lines.append(f"return {key}, {form.build(('rows',), members)}")
        if form.unpack:
            # What the updates of one call share is not in a row: any values will do.
            anything = [_ANYTHING[_SHARED[path]] for path in form.events]
            code.add(0, f"{form.unpack} = {code.bind('constants', form.constants)}(*{code.bind('any', anything)})")
        code.define("made(key, clustering, values)", lines)
        code.names |= form.names
        return code.function("made", f"fast rows of {events.table}")

    def _struct(
        self, path: tuple[str, ...], columns: Sequence[ColumnLike], values: Mapping[str, str], code: CodeBuilder
    ) -> str:
        """The expression of the struct of columns at ``path``; columns without a variable in ``values`` are null."""
        members = {}
        for column in columns:
            local, change = values.get(column.name, "None"), make_renamer(column.type)
            checked = change is not None and local != "None"
            text = f"{code.bind('change', change)}({local})" if checked else local
            field = field_name(column.name)
            members[field] = self._form.leaf((*path, field), text, checked=checked)
        return self._form.build(path, members)


def _locals(stem: str, columns: Sequence[ColumnLike]) -> dict[str, str]:
    return {column.name: f"{stem}{index}" for index, column in enumerate(columns)}
