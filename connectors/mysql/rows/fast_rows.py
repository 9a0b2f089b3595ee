"""Rows events straight to keys and values in bytes: ``connectors.wire`` for Debezium's envelope.

A function is compiled per kind of rows event of a structure. It reads an event as ``decode`` does, but builds what the
runtime's forms ask for instead of dicts. It has no effects: whatever it can't do raises, and the event goes the general way.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.codegen import CodeBuilder, dict_display
from connectors.mysql.events.debezium import MySqlDebeziumEvents
from connectors.mysql.events.envelope import VERSION
from connectors.mysql.rows.decode import image_of, owner_condition
from connectors.mysql.rows.decode_code import ImageWriter
from connectors.mysql.schema import types
from connectors.mysql.source import event_types
from connectors.mysql.source.binlog_events import rows_header
from connectors.wire import EVENT, ROW, Encoding, Fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from connectors.mysql.events.debezium_code import Clock
    from connectors.mysql.model import RowSource
    from connectors.mysql.rows.decode_code import Image
    from connectors.mysql.schema.columns import ColumnLayout, FieldPlan
    from connectors.mysql.schema.types import ValueOptions
    from connectors.wire import RowForm, RowWriter, Shape, Wire

    #: ``(event, start, end, number, source, clock) -> (next number, keys, values, rows left out)``: structs to be encoded.
    Build = Callable[[bytes, int, int, int, RowSource, Clock], tuple[int, list[Any], list[Any], int]]

_OPS: Final = {"write": "c", "update": "u", "delete": "d"}
#: What a member of ``source`` is of the event's ``RowSource``; the others are the same in all records.
_SOURCE: Final = {
    "ts_ms": "source.ts_ms",
    "ts_us": "source.ts_us",
    "ts_ns": "source.ts_us * 1000",
    "server_id": "source.server_id",
    "gtid": "source.gtid",
    "file": "source.file",
    "pos": "source.pos",
    "thread": "source.thread",
    "query": "source.query",
}


#: Kinds of columns whose values are null only where the bitmap of nulls says so.
_NEVER_NULL: Final = frozenset(
    {
        types.ColumnKind.INTEGER,
        types.ColumnKind.DECIMAL,
        types.ColumnKind.FLOAT,
        types.ColumnKind.DOUBLE,
        types.ColumnKind.BOOLEAN,
        types.ColumnKind.BITS,
        types.ColumnKind.TEXT,
        types.ColumnKind.BYTES,
        types.ColumnKind.ENUM,
        types.ColumnKind.SET,
        types.ColumnKind.YEAR,
    }
)


class UnusualRowError(Exception):
    """A row that becomes other records than usual: its event goes the general way."""


async def fast_table(
    wire: Wire, layout: ColumnLayout, events: object, options: ValueOptions, owner: tuple[int, int] | None
) -> FastTable | None:
    """The encoder of a structure's rows events; None where only records will do.

    Args:
        wire: of the task.
        layout: how columns become fields.
        events: makes the records.
        options: how values look.
        owner: index and count of the shard whose rows are captured; None: all are.

    Raises:
        Fatal: a service that a converter needs refuses this client.
    """
    if not isinstance(events, MySqlDebeziumEvents) or not events.plain or not layout.values:
        return None
    schemas = events.schemas
    value = Encoding(schemas.envelope, envelope_shape(layout, events))
    writer = await wire.writer(schemas.topic, key_encoding(layout, events), value, events.headers, shares=True)
    return None if writer is None else FastTable(writer, layout, events, options, owner)


def key_encoding(layout: ColumnLayout, events: MySqlDebeziumEvents) -> Encoding | None:
    """The keys of a table; None for a table without."""
    schemas = events.schemas
    if schemas.key is None:
        return None
    extra: dict[str, Any] = {} if schemas.key_extra is None else {schemas.key_extra[0]: Fixed(schemas.key_extra[1])}
    return Encoding(schemas.key, {field.name: ROW for field in layout.key} | extra)


def envelope_shape(layout: ColumnLayout, events: MySqlDebeziumEvents) -> dict[str, Any]:
    """The shape of the values of rows events."""
    row: Shape = {field.name: ROW for field in layout.values}
    source: Shape = {
        "version": Fixed(VERSION),
        "connector": Fixed(events.settings.connector),
        "name": Fixed(events.settings.topics.prefix),
        "snapshot": Fixed("false"),
        "db": Fixed(layout.table.name.database),
        "sequence": Fixed(None),
        "table": Fixed(layout.table.name.table),
        "row": ROW,
        **dict.fromkeys(_SOURCE, EVENT),
        **{name: Fixed(value) for name, value in events.schemas.part.items()},
    }
    return {
        "before": row,
        "after": row,
        "source": source,
        "transaction": Fixed(None),
        "op": EVENT,
        "ts_ms": EVENT,
        "ts_us": EVENT,
        "ts_ns": EVENT,
    }


class FastTable:
    """Encodes rows events of one structure of a table; not thread-safe, does not block.

    Attributes:
        writer: of the table.
        events: makes the same records the general way.
        shared: ``(op, source, clock) -> EncodedBatch.shared``; None: that is empty.
    """

    __slots__ = (
        "_encode_keys",
        "_encode_values",
        "_errors",
        "_functions",
        "_layout",
        "_options",
        "_owner",
        "_readers",
        "events",
        "shared",
        "writer",
    )

    def __init__(
        self,
        writer: RowWriter,
        layout: ColumnLayout,
        events: MySqlDebeziumEvents,
        options: ValueOptions,
        owner: tuple[int, int] | None,
    ) -> None:
        self.writer = writer
        self.events = events
        self.shared = shared_values(writer)
        self._layout = layout
        self._options = options
        self._owner = owner
        self._errors = "strict"
        self._encode_values = writer.value.encode
        self._encode_keys = None if writer.key is None else writer.key.encode
        self._functions: dict[tuple[str, bytes, bytes | None], Build | None] = {}
        #: By type of event: the bytes between table number and rows of the last one, where its rows begin, whether tombstones
        #: follow them, their function.
        self._readers: dict[int, tuple[bytes, int, bool, Build | None]] = {}

    def encode(
        self, raw: bytes, number: int, source: RowSource, clock: Clock
    ) -> tuple[int, list[bytes] | None, list[bytes | None], int] | None:
        """The rows of an event in bytes; None: not possible.

        Args:
            raw: the event.
            number: of the first row.
            source: where they come from.
            clock: the time of processing.

        Returns:
            The number of the row after the last one, keys, values, and how many rows are left out because nothing has changed.

        Raises:
            Exception: a row can't be encoded.
        """
        reader = self._readers.get(raw[4])
        if reader is None or not raw.startswith(reader[0], event_types.AFTER_ID):
            reader = self._find_reader(raw)
        _, start, tombstones, build = reader
        if build is None:
            return None
        try:
            number, key_rows, value_rows, left_out = build(raw, start, len(raw), number, source, clock)
        except UnicodeError:
            # As in ``decode``: what is to be done about invalid text is compiled in when the first such is met.
            if self._errors == self._options.charset_errors:
                raise
            self._errors = self._options.charset_errors
            self._functions.clear()
            self._readers.clear()
            return self.encode(raw, number, source, clock)
        if not value_rows:
            return number, None, [], left_out
        values: list[bytes | None] = self._encode_values(value_rows)  # type: ignore[assignment]
        keys = None if self._encode_keys is None else self._encode_keys(key_rows)
        if tombstones:
            values = [item for value in values for item in (value, None)]
            keys = None if keys is None else [key for key in keys for _ in (0, 1)]
        return number, keys, values, left_out

    def _find_reader(self, raw: bytes) -> tuple[bytes, int, bool, Build | None]:
        """The entry of ``_readers`` for an event."""
        head = rows_header(raw)
        kind = event_types.row_kind(raw[4])
        key = (kind, head.present, head.present_after)
        if key not in self._functions:
            self._functions[key] = self._compile_function(kind, head.present, head.present_after)
        tombstones = kind == "delete" and self.events.settings.tombstones
        reader = raw[event_types.AFTER_ID : head.start], head.start, tombstones, self._functions[key]
        self._readers[raw[4]] = reader
        return reader

    def _compile_function(self, kind: str, present: bytes, present_after: bytes | None) -> Build | None:
        """The function of a kind of event; None where its rows are not ordinary ones."""
        if _OPS.get(kind, "") in {"", *self.events.settings.skipped}:
            return None
        layout = self._layout
        column, owned = owner_condition(layout.table, self._owner)
        if self._owner is not None and column is None:
            return None
        before = image_of(layout.table, layout.plans, present, "b", column)
        after = (
            image_of(layout.table, layout.plans, present_after or present, "a", column) if kind == "update" else None
        )
        if any(
            sum(plan is not None for plan in image.plans) < sum(plan is not None for plan in layout.plans)
            for image in (before, after)
            if image is not None
        ):
            return None
        options = msgspec.structs.replace(self._options, charset_errors=self._errors)
        try:
            generator = RowGenerator(layout, self.writer, owned, skip_unchanged=self.events.settings.skip_unchanged)
            return generator.function(_OPS[kind], before, after, options)
        except ValueError:  # records of this kind have no form
            return None


class RowGenerator:
    """Writes the functions of one table.

    Args:
        layout: how columns become fields.
        writer: of the table.
        owned: as ``decode_code.Writer`` has it.
        careful: whether any value may be null.
        skip_unchanged: whether updates that change nothing that is shown are left out.

    Attributes:
        unscaled: DECIMAL columns of which all that show them want the bytes of the unscaled number.
    """

    def __init__(
        self,
        layout: ColumnLayout,
        writer: RowWriter,
        owned: str = "",
        *,
        careful: bool = False,
        skip_unchanged: bool = False,
    ) -> None:
        self._layout = layout
        self._writer = writer
        self._owned = owned
        self._skip_unchanged = skip_unchanged
        masked = {plan.column.name for plan in layout.plans if plan is not None and plan.transform is not None}
        self._masked = frozenset(masked)
        self.unscaled = frozenset(
            column.name
            for column in layout.table.columns
            if types.kind_of(column) == types.ColumnKind.DECIMAL
            and layout.masker is None
            and column.name not in masked
            and self._as_unscaled(column.name)
        )

        self._never_null = frozenset(
            column.name
            for column in layout.table.columns
            if not careful
            and not column.nullable
            and types.kind_of(column) in _NEVER_NULL
            and column.name not in masked
        )

    def _as_unscaled(self, column: str) -> bool:
        """Whether everything that shows a decimal column wants the bytes of its number."""
        asked = [
            form is not None and field.transform is None and form.unscaled(path)
            for form, field, path in (
                *((self._writer.value, field, ("after", field.name)) for field in self._layout.values),
                *((self._writer.key, field, (field.name,)) for field in self._layout.key),
            )
            if field.column == column
        ]
        return bool(asked) and all(asked)

    def function(self, op: str, before: Image, after: Image | None, options: ValueOptions) -> Build:
        """The function for an operation; its images are as in ``decode``."""
        code = CodeBuilder(from_bytes=int.from_bytes, Odd=UnusualRowError)
        value, key = self._writer.value, self._writer.key
        code.add(0, "def rows(event, p, end, number, source, clock):")
        code.add(1, "ms, us, ns = clock")
        for form in (value, key):
            if form is not None and form.unpack:
                make = code.bind("constants", form.constants)
                code.add(1, f"{form.unpack} = {make}({event_values(form.events, repr(op))})")
        code.add(1, "keys, values, left = [], [], 0")
        code.add(1, "add_key, add_value = keys.append, values.append")
        code.add(1, "while p < end:")
        targets, shown = self._add_image(code, before, "after" if op == "c" else "before", options)
        if after is not None:
            self._add_pair(code, after, targets, shown, options)
        elif self._owned:
            code.add(2, "if brow is None:")
            code.add(3, "number += 1")
            code.add(3, "continue")
        images = {"c": ("None", "brow"), "u": ("brow", "arow"), "d": ("brow", "None")}[op]
        source = value.build(("source",), {"row": value.leaf(("source", "row"), "number", nullable=False)})
        members = {"before": images[0], "after": images[1], "source": source}
        code.add(2, f"add_value({value.build((), members)})")
        if key is not None:
            fields = {field.name: self.field(key, (field.name,), field, targets, code) for field in self._layout.key}
            code.add(2, f"add_key({key.build((), fields)})")
        code.add(2, "number += 1")
        code.add(1, "if p != end: raise ValueError(f'the rows end {p - end} bytes behind the event')")
        code.add(1, "return number, keys, values, left")
        code.names |= {**value.names, **({} if key is None else key.names)}
        return code.function("rows", f"fast rows of {self._layout.table.name}")

    def _add_image(
        self, code: CodeBuilder, image: Image, path: str, options: ValueOptions
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Add the reading of an image; returns the variables of its columns, and the expressions of its fields."""
        columns: dict[str, str] = {}
        shown: dict[str, str] = {}
        row = f"{image.prefix}row"
        masker = self._layout.masker

        def display(targets: dict[str, str]) -> str:
            columns.update(targets)
            if masker is not None:
                return self.masked(masker, targets, code)
            shown.update({field.name: self._value(field, targets, code) for field in self._layout.values})
            return self.build(path, targets, code)

        ImageWriter(code, image, options, owned=self._owned, unscaled=self.unscaled, display=display).write(2)
        if masker is not None:
            shown = self.unmask_names(f"{image.prefix}m")
            code.add(2, f"if {row} is not None:")
            code.add(3, f"{', '.join(shown.values())}, = {row}")
            code.add(3, f"{row} = {self.build(path, columns, code, shown)}")
        return columns, shown

    def _add_pair(
        self,
        code: CodeBuilder,
        after: Image,
        targets: dict[str, str],
        shown: dict[str, str],
        options: ValueOptions,
    ) -> None:
        others, shown_after = self._add_image(code, after, "after", options)
        if self._owned:
            code.add(2, "if brow is None or arow is None:")
            code.add(3, "if brow is not arow: raise Odd")
            code.add(3, "number += 1")
            code.add(3, "continue")
        changed = " or ".join(f"{targets[field.column]} != {others[field.column]}" for field in self._layout.key)
        if changed:
            code.add(2, f"if {changed}: raise Odd")
        if self._skip_unchanged:
            code.add(2, f"if {' and '.join(f'{shown[name]} == {shown_after[name]}' for name in shown)}:")
            code.add(3, "number += 1")
            code.add(3, "left += 1")
            code.add(3, "continue")

    # Masks that look at other fields of a row get a dict of it, as on the general path.

    def masked(self, masker: Callable[[dict[str, Any]], None], targets: dict[str, str], code: CodeBuilder) -> str:
        """The expression of a row's values after such masks."""
        row = dict_display((field.name, self._value(field, targets, code)) for field in self._layout.values)
        return f"{code.bind('masked', partial(_masked, masker))}({row})"

    def unmask_names(self, stem: str) -> dict[str, str]:
        """Variables for these values, by field."""
        return {field.name: f"{stem}{number}" for number, field in enumerate(self._layout.values)}

    def build(
        self, path: str, targets: dict[str, str], code: CodeBuilder, shown: Mapping[str, str] | None = None
    ) -> str:
        """The expression of a row: ``targets`` are the variables of its columns, ``shown`` those of masked rows' fields."""
        form = self._writer.value
        fields = {
            field.name: self.field(form, (path, field.name), field, targets, code)
            if shown is None
            else self._masked_field(form, (path, field.name), field, shown[field.name])
            for field in self._layout.values
        }
        return form.build((path,), fields)

    def _masked_field(self, form: RowForm, path: tuple[str, ...], field: FieldPlan, name: str) -> str:
        changed = field.transform is not None or field.name in self._layout.row_masked
        checked = changed or field.column in self._masked or form.unscaled(path)
        return form.leaf(path, name, nullable=changed or field.column not in self._never_null, checked=checked)

    @staticmethod
    def _value(field: FieldPlan, targets: dict[str, str], code: CodeBuilder) -> str:
        """The expression of a field's value as a record has it, but for decimals."""
        target = targets[field.column]
        if field.transform is None:
            return target
        transform = code.bind("transform", field.transform)
        return f"{transform}({target})" if field.nulls else f"(None if {target} is None else {transform}({target}))"

    def field(
        self, form: RowForm, path: tuple[str, ...], field: FieldPlan, targets: dict[str, str], code: CodeBuilder
    ) -> str:
        """The expression of a field of a key or a row."""
        shown = self._value(field, targets, code)
        if field.transform is not None:
            return form.leaf(path, shown, checked=True)
        # A decimal that is no DECIMAL (BIGINT UNSIGNED) is there as a Decimal.
        checked = field.column in self._masked or (form.unscaled(path) and field.column not in self.unscaled)
        return form.leaf(path, shown, nullable=field.column not in self._never_null, checked=checked)


def event_values(paths: Iterable[tuple[str, ...]], op: str) -> str:
    """Expressions of members marked ``EVENT``, of ``source`` and the clock; ``op`` is that of the operation."""
    clock = {"op": op, "ts_ms": "ms", "ts_us": "us", "ts_ns": "ns"}
    return ", ".join(clock[path[0]] if len(path) == 1 else _SOURCE[path[1]] for path in paths)


def shared_values(writer: RowWriter) -> Callable[[str, RowSource, Clock], tuple[Any, ...]] | None:
    """The function ``(op, source, clock) -> EncodedBatch.shared``; None: that is empty."""
    if not writer.shared:
        return None
    code = CodeBuilder()
    values = event_values(writer.shared, "op")
    code.define("shared(op, source, clock)", ["ms, us, ns = clock", f"return ({values},)"])
    return code.function("shared", f"shared values of {writer.topic}")


def _masked(masker: Callable[[dict[str, Any]], None], row: dict[str, Any]) -> list[Any]:
    masker(row)
    return list(row.values())
