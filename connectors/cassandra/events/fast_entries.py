"""Mutations of the log straight to keys and values in bytes, for ``connectors.wire``; here those of Debezium's form.

One function goes over entries, another one for each list of written columns builds a row. Neither has effects: they stop at the
first entry that they can't do, which goes the general way. Partition updates: see ``fast_updates``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.cassandra.events.contract import CONNECTOR, Where
from connectors.cassandra.events.debezium import INSERT, LAST_MICROS, UPDATE, CassandraDebeziumEvents
from connectors.cassandra.events.envelope import RANGE_END, RANGE_START, VERSION
from connectors.cassandra.events.fast_updates import update_build
from connectors.codegen import CodeBuilder, unpack_names
from connectors.wire import EVENT, ROW, Encoding, Fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import SourceRecord
    from connectors.cassandra.events.contract import CassandraTableEvents
    from connectors.cassandra.model import LogEntry
    from connectors.cql.mutations.definition import CqlColumn
    from connectors.encoded_parts import EncodedParts
    from connectors.formats.masks.record_masks import RecordMasker
    from connectors.wire import RowForm, RowWriter, Shape, Wire

    #: ``(partition key, clustering values, values, expiry in µs) -> (key, after)``: structs to be encoded.
    MakeRow = Callable[..., tuple[Any, Any]]
    #: (the bytes that entries are in, entries, where they are) -> keys and values to be encoded, and timestamps or nothing.
    Build = Callable[[bytes, Sequence[LogEntry], Where], tuple[list[Any], list[Any], list[int | None]]]

#: Entries that are encoded in one call: few enough to stay in the processor's cache.
CHUNK_ENTRIES: Final = 64
#: Lists of columns with code of their own.
_SHAPES: Final = 1000
#: Members of ``source`` that differ from entry to entry.
_SOURCE: Final = {"ts_ms": "us // 1000", "ts_us": "us", "ts_ns": "us * 1000", "pos": "position"}


async def fast_entries(wire: Wire, events: CassandraTableEvents | None) -> FastEntries | None:
    """The encoder of a table's mutations; None where only records will do.

    Args:
        wire: of the task.
        events: makes the records; None: no one does.

    Raises:
        Fatal: a service that a converter needs refuses this client.
    """
    if events is None:
        return None
    plain: object = events
    masker: RecordMasker | None = getattr(events, "masker", None)
    if masker is not None:  # of ``MaskedEvents``, which is imported only where there are masks
        from connectors.formats.masks.masked_wire import MaskedWire

        plain, wire = events.inner, MaskedWire(wire, masker)  # type: ignore[attr-defined]
    try:
        writer_and_build = await (
            _build(wire, plain) if isinstance(plain, CassandraDebeziumEvents) else update_build(wire, plain)
        )
    except ValueError:  # records of this kind have no form
        return None
    return None if writer_and_build is None else FastEntries(events, *writer_and_build)


async def _build(wire: Wire, events: CassandraDebeziumEvents) -> tuple[RowWriter, Build] | None:
    if not events.begin:
        return None
    table, schemas = events.table, events.schemas
    key_columns = (*table.key, *table.clustering)
    key = Encoding(schemas.key, {column.name: ROW for column in key_columns})
    writer = await wire.writer(events.topic, key, Encoding(schemas.value, _envelope_shape(events)))
    return None if writer is None else (writer, _Loop(events, writer).function())


def _envelope_shape(events: CassandraDebeziumEvents) -> Shape:
    table, settings = events.table, events.settings
    source: dict[str, Any] = {
        "version": Fixed(VERSION),
        "connector": Fixed(CONNECTOR),
        "name": Fixed(settings.topic_prefix),
        "snapshot": Fixed("false"),
        "db": Fixed("NULL"),
        "sequence": Fixed(None),
        "cluster": Fixed(settings.cluster or settings.topic_prefix),
        "file": EVENT,
        "keyspace": Fixed(table.keyspace),
        "table": Fixed(table.table),
        **dict.fromkeys(_SOURCE, ROW),
    }
    row: dict[str, Any] = {RANGE_START: Fixed(None), RANGE_END: Fixed(None)}
    for column in (*table.key, *table.clustering):
        row[column.name] = {"value": ROW, "deletion_ts": Fixed(None), "set": Fixed(value=True)}
    for column in (*table.regular, *table.static):
        # The last two are of collections, which are always null here: mutations with cells of them go the general way.
        row[column.name] = {"value": ROW, "deletion_ts": ROW, "set": Fixed(value=True), "mode": ROW, "removed": ROW}
    return {"ts_ms": EVENT, "op": ROW, "source": source, "after": row}


class FastEntries:
    """Encodes mutations of one definition of a table; not thread-safe, does not block.

    Args:
        events: makes the same records the general way.
        writer: of the table.
        build: goes over entries, up to the first that is not one simple update of the table.
    """

    def __init__(self, events: CassandraTableEvents, writer: RowWriter, build: Build) -> None:
        self._events = events
        self._writer = writer
        self._build = build

    def take(self, data: bytes, entries: Sequence[LogEntry], where: Where, after: int, parts: EncodedParts) -> int:
        """Encode entries up to the first that is not one simple update of the table.

        Args:
            data: the bytes that the entries are in.
            entries: of which nothing was delivered.
            where: where they are: segment, version and ``read_ms``.
            after: how many records of the batch come before them.
            parts: gets what is encoded.

        Returns:
            How many entries are done, each with one record.
        """
        key_form = self._writer.key
        if key_form is None:
            return 0
        keys: list[bytes] = []
        values: list[bytes | None] = []
        timestamps: list[int | None] = []
        for start in range(0, len(entries), CHUNK_ENTRIES):
            chunk = entries[start : start + CHUNK_ENTRIES]
            key_rows, value_rows, times = self._build(data, chunk, where)
            if not value_rows:
                break
            try:
                key_chunk = key_form.encode(key_rows)
                values += self._writer.value.encode(value_rows)
            except Exception:  # noqa: BLE001 - the general way finds out what it is, and reports it
                break
            keys += key_chunk
            timestamps += times
            if len(value_rows) < len(chunk):
                break
        done = len(values)
        if done:
            position = Where(
                partition=where.partition,
                node=where.node,
                segment=where.segment,
                version=where.version,
                read_ms=where.read_ms,
            )
            parts.add(
                self._writer,
                after,
                keys,
                values,
                lambda: self._make_records(data, entries[:done], position),
                timestamps or None,
            )
        return done

    def _make_records(self, data: bytes, entries: Sequence[LogEntry], where: Where) -> list[SourceRecord]:
        """The same records the general way."""
        records: list[SourceRecord] = []
        while len(records) < len(entries):
            done = self._events.entries(data, entries[len(records) :], where, records)
            if not done:  # the decoder has forgotten the list of columns meanwhile
                start, end, where.position = entries[len(records)]
                where.done = 0
                self._events.update(data, start + 1, end, where, records)
        return records


class _Loop:
    """Writes the function that goes over entries.

    Args:
        events: makes the same records the general way.
        writer: of the table.
    """

    def __init__(self, events: CassandraDebeziumEvents, writer: RowWriter) -> None:
        self._events = events
        self._writer = writer
        self._rows: dict[tuple[str, ...], MakeRow] = {}

    def function(self) -> Build:
        """The function."""
        events, form = self._events, self._writer.value
        code = CodeBuilder(
            plain_of=events.decoder.plain,
            begin=events.begin,
            rows_of=self._rows,
            make_row=self._make_row,
            file_of=events.file_of,
        )
        source = {
            name: form.leaf(("source", name), text if text.isidentifier() else f"({text})", nullable=False)
            for name, text in _SOURCE.items()
        }
        members = {
            "op": form.leaf(("op",), "op", nullable=False),
            "source": form.build(("source",), source),
            "after": "after",
        }
        arguments = ", ".join("read_ms" if path == ("ts_ms",) else "file" for path in form.events)
        code.define(
            "build(data, entries, where)",
            [
                "read_ms, file = where.read_ms, file_of(where)",
                *([f"{form.unpack} = {code.bind('constants', form.constants)}({arguments})"] if form.unpack else []),
                "keys, values = [], []",
                "add_key, add_value = keys.append, values.append",
                "try:",
                "    for start, end, position in entries:",
                "        plain = plain_of(data, start + 1) if data.startswith(begin, start) else None",
                "        if plain is None: break",
                "        key, _, rows, found = plain",
                "        if found != end or len(rows) != 1 or rows[0][0]: break",
                "        _, clustering, inserted, us, _, expires, names, cells = rows[0]",
                f"        if not {-LAST_MICROS} <= us <= {LAST_MICROS}: break",
                "        make = rows_of.get(names) or make_row(names)",
                "        key, after = make(key, clustering, cells, None if expires is None else expires * 1000000)",
                f"        op = {INSERT!r} if inserted else {UPDATE!r}",
                f"        add_value({form.build((), members)})",
                "        add_key(key)",
                # Whatever it is: the general way finds it out, and reports it.
                "except Exception: pass",
                "return keys, values, []",
            ],
        )
        code.names |= form.names
        return code.function("build", f"fast entries of {self._events.table}")

    def _make_row(self, names: tuple[str, ...]) -> MakeRow:
        """The function for rows that write these columns."""
        if len(self._rows) >= _SHAPES:
            self._rows.clear()
        make = self._rows[names] = _RowSource(self._events, self._writer, names).function()
        return make


class _RowSource:
    """Writes the function of rows with the same columns.

    Args:
        events: makes the same records the general way.
        writer: of the table.
        names: the written columns.
    """

    def __init__(self, events: CassandraDebeziumEvents, writer: RowWriter, names: tuple[str, ...]) -> None:
        self._events = events
        self._writer = writer
        self._names = names
        self._code = CodeBuilder()

    def function(self) -> MakeRow:
        """The function."""
        code, table = self._code, self._events.table
        value, key = self._writer.value, self._writer.key
        if key is None:
            raise AssertionError("tables have keys")
        key_columns = [(column, f"k{index}") for index, column in enumerate(table.key)]
        key_columns += [(column, f"c{index}") for index, column in enumerate(table.clustering)]
        fields = {column.name: self._write_leaf(key, (column.name,), column, local) for column, local in key_columns}
        lines = [f"{unpack_names('k', len(table.key))} = key"]
        if table.clustering:
            lines.append(f"{unpack_names('c', len(table.clustering))} = clustering")
        if self._names:
            lines.append(f"{unpack_names('v', len(self._names))} = values")
        lines.append(f"return {key.build((), fields)}, {value.build(('after',), self._write_cells(key_columns))}")
        for form in (value, key):
            if form.unpack:
                # What rows of one call share is not in a row: any values will do.
                code.add(
                    0,
                    f"{form.unpack} = {code.bind('constants', form.constants)}(*{code.bind('any', _sample_values(form))})",
                )
        code.define("made(key, clustering, values, expires)", lines)
        code.names |= {**value.names, **key.names}
        return code.function("made", f"fast rows of {table}")

    def _write_cells(self, key_columns: list[tuple[CqlColumn, str]]) -> dict[str, str]:
        form, table = self._writer.value, self._events.table
        cells = {column.name: "None" for column in (*table.regular, *table.static)}
        for column, local in key_columns:
            path = ("after", column.name)
            cells[column.name] = form.build(path, {"value": self._write_leaf(form, (*path, "value"), column, local)})
        columns = {column.name: column for column in (*table.regular, *table.static)}
        for index, name in enumerate(self._names):
            if name in self._events.excluded:
                continue
            path, local = ("after", name), f"v{index}"
            expiry = f"(None if {local} is None else expires)"
            members = {
                "value": self._write_leaf(form, (*path, "value"), columns[name], local),
                "deletion_ts": form.leaf((*path, "deletion_ts"), expiry),
            }
            cells[name] = form.build(path, members)
        return cells

    def _write_leaf(self, form: RowForm, path: tuple[str, ...], column: CqlColumn, local: str) -> str:
        """The expression of a column's value."""
        change = self._events.schemas.types[column.name].change
        if change is None:
            return form.leaf(path, local)
        name = self._code.bind("change", change)
        return form.leaf(path, f"(None if {local} is None else {name}({local}))", checked=True)


def _sample_values(form: RowForm) -> list[Any]:
    return [0 if path == ("ts_ms",) else "" for path in form.events]
