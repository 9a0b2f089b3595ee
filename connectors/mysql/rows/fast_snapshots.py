"""Rows of snapshots straight to keys and values in bytes: as ``fast_rows``, from rows that a query has given."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from connectors.codegen import CodeBuilder
from connectors.mysql.events.debezium import MySqlDebeziumEvents
from connectors.mysql.rows.fast_rows import RowGenerator, envelope_shape, event_values, key_encoding, shared_values
from connectors.mysql.rows.type_values import EXACT
from connectors.mysql.schema import type_codes as codes
from connectors.wire import ROW, EncodedBatch, Encoding, Fixed, unscaled_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

    from connectors.api import Position, SourceRecord
    from connectors.mysql.events.contract import Marker, Row
    from connectors.mysql.events.debezium_code import Clock
    from connectors.mysql.model import RowSource
    from connectors.mysql.schema.columns import ColumnLayout
    from connectors.wire import RowWriter, Wire

    #: ``(rows, markers, source, clock) -> (keys, values)``: structs to be encoded.
    Build = Callable[[Sequence[Row], Sequence[Marker], RowSource, Clock], tuple[list[Any], list[Any]]]

#: Rows encoded at once: they fit into the CPU's cache.
_STEP = 64


async def fast_snapshot(wire: Wire, layout: ColumnLayout, events: object) -> FastSnapshot | None:
    """The encoder of rows of a table's snapshots; None where only records will do.

    Args:
        wire: of the task.
        layout: how columns become fields.
        events: makes the records.

    Raises:
        Fatal: a service that a converter needs refuses this client.
    """
    if not isinstance(events, MySqlDebeziumEvents) or not layout.values:
        return None
    if "r" in events.settings.skipped:
        return None
    shape = envelope_shape(layout, events)
    shape |= {
        "before": Fixed(None),
        "source": shape["source"] | {"snapshot": ROW, "row": Fixed(0)},
        "op": Fixed("r"),
    }
    value = Encoding(events.schemas.envelope, shape)
    writer = await wire.writer(events.schemas.topic, key_encoding(layout, events), value, events.headers, shares=True)
    try:
        return None if writer is None else FastSnapshot(writer, layout, events)
    except ValueError:  # records of this kind have no form
        return None


class FastSnapshot:
    """Encodes rows of one structure of a table; not thread-safe, does not block."""

    def __init__(self, writer: RowWriter, layout: ColumnLayout, events: MySqlDebeziumEvents) -> None:
        self._writer = writer
        self._events = events
        self._build = _compile_build(layout, writer)
        self._shared = shared_values(writer)

    def encode(
        self,
        rows: Sequence[Row],
        source: RowSource,
        marker: Marker,
        offset: Position,
        first: Marker | None,
        last: Marker | None,
    ) -> EncodedBatch | None:
        """Rows as bytes; None: they have to be records. Arguments as of ``MySqlTableEvents.snapshot``."""
        if not rows:
            return None
        events, writer = self._events, self._writer
        clock = events.clock()
        markers: list[Marker] = [marker] * len(rows)
        markers[0] = first or markers[0]
        markers[-1] = last or markers[-1]
        keys: list[bytes] = []
        values: list[bytes | None] = []
        try:
            for start in range(0, len(rows), _STEP):
                stop = start + _STEP
                key_rows, value_rows = self._build(rows[start:stop], markers[start:stop], source, clock)
                values += writer.value.encode(value_rows)
                if writer.key is not None:
                    keys += writer.key.encode(key_rows)
        except Exception:  # noqa: BLE001 - the general way finds out what it is, and reports it
            return None

        def records() -> list[SourceRecord]:
            remade: list[SourceRecord] = []
            with events.at(clock):
                events.snapshot(rows, source, marker, offset, remade, first=first, last=last)
            return remade

        shared = () if self._shared is None else self._shared("r", source, clock)
        return EncodedBatch(writer, 0, keys or None, values, records, shared=shared)


def _compile_build(layout: ColumnLayout, writer: RowWriter) -> Build:
    generator = RowGenerator(layout, writer, careful=True)
    code = CodeBuilder()
    value, key = writer.value, writer.key
    code.add(0, "def build(rows, markers, source, clock):")
    code.add(1, "ms, us, ns = clock")
    for form in (value, key):
        if form is not None and form.unpack:
            make = code.bind("constants", form.constants)
            code.add(1, f"{form.unpack} = {make}({event_values(form.events, repr('r'))})")
    code.add(1, "keys, values = [], []")
    code.add(1, "add_key, add_value = keys.append, values.append")
    code.add(1, "for row, marker in zip(rows, markers):")
    targets: dict[str, str] = {}
    for number, plan in enumerate(layout.plans):
        if plan is None:
            continue
        name = plan.column.name
        target = targets[name] = f"x{number}"
        code.add(2, f"{target} = row[{name!r}]")
        if name in generator.unscaled:
            scale = codes.split_decimal(plan.column.meta)[1]
            code.add(
                2,
                f"if {target} is not None: {target} = {code.bind('unscaled', partial(_to_unscaled, scale))}({target})",
            )
    shown: dict[str, str] | None = None
    if layout.masker is not None:
        shown = generator.unmask_names("m")
        code.add(2, f"{', '.join(shown.values())}, = {generator.masked(layout.masker, targets, code)}")
    code.add(2, f"after = {generator.build('after', targets, code, shown)}")
    snapshot = value.leaf(("source", "snapshot"), "marker", nullable=False)
    code.add(2, f"block = {value.build(('source',), {'snapshot': snapshot})}")
    code.add(2, f"add_value({value.build((), {'after': 'after', 'source': 'block'})})")
    if key is not None:
        fields = {field.name: generator.field(key, (field.name,), field, targets, code) for field in layout.key}
        code.add(2, f"add_key({key.build((), fields)})")
    code.add(1, "return keys, values")
    code.names |= {**value.names, **({} if key is None else key.names)}
    return code.function("build", f"fast snapshot of {layout.table.name}")


def _to_unscaled(scale: int, value: Decimal) -> bytes:
    scaled = EXACT.scaleb(value, scale)
    number = int(scaled)
    if number != scaled:
        raise ValueError("more digits than the column has")
    return unscaled_bytes(number)
