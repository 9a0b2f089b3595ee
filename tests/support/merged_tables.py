"""The rows that the materializer makes of a connector's partition updates, next to those that SELECT shows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.materializer.contract import InputRecord
from spark_jobs.materializer.events.images import live_rows
from tests.support.materializer import Bench, MemoryRegistry
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from connectors.api import SourceRecord
    from tests.support.cql_tables import RandomTable

_AVRO: Final = AvroSettings()
Rows = list[dict[str, Any]]


class Messages:
    """Records as messages: Avro, whose schemas have ids in the order in which they came, or JSON with or without its schema."""

    def __init__(self, records: Iterable[SourceRecord], form: str = "avro") -> None:
        self.registry = MemoryRegistry()
        self._json = JsonConverter({"schemas.enable": str(form == "json with schemas").lower()})
        self._form = form
        self._encoders: dict[int, tuple[Any, Callable[[Any], bytes | None]]] = {}
        for record in records:
            self.encode(record, 0)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the materializer that reads them."""
        if self._form == "avro":
            return {"registry": self.registry, "input_encoding": "avro"}
        schemas = [avro_text(schema, _AVRO) for schema, _ in self._encoders.values()] if self._form == "json" else []
        return {"input_encoding": "json", "input_schemas": tuple(schemas)}

    def encode(self, record: SourceRecord, offset: int) -> InputRecord:
        """A record as the materializer reads it."""
        schema = record.value_schema
        assert schema is not None
        if id(schema) not in self._encoders:
            number = self.registry.register("in-value", avro_text(schema, _AVRO))
            self._encoders[id(schema)] = (
                schema,
                compile_avro(schema, _AVRO, b"\x00" + number.to_bytes(4, "big"))
                if self._form == "avro"
                else self._json.encoder("t", schema),
            )
        return InputRecord(record.key, self._encoders[id(schema)][1](record.value), offset, record.timestamp or 0)


def records_of(records: Sequence[SourceRecord], table: str) -> list[SourceRecord]:
    """Those of a table, by its bare name."""
    return [
        record
        for record in records
        if dict(record.value_schema.parameters)["table"] == table  # type: ignore[union-attr]
    ]


def unlike_rows(
    chance: random.Random, table: RandomTable, records: Sequence[SourceRecord], rows: Rows, *, altered: bool
) -> tuple[Rows, Rows]:
    """Merge the records of a table and compare.

    Args:
        chance: how large transactions are, and which records come twice.
        table: as it is now.
        records: in the order in which they came; where the table was not altered also in others.
        rows: what SELECT shows.
        altered: whether the definition changed: events of a row may have other columns and another key than the ones before.

    Returns:
        The rows that only the merge has, and those that only SELECT has; of the first order in which there are any.
    """
    if not records:
        return [], rows
    messages = Messages(records, chance.choice(["avro", "avro", "json", "json with schemas"]))
    orders = [list(records)]
    if not altered:
        orders += [orders[0][::-1], chance.sample(orders[0], len(records))]
    extra: Rows = []
    missing: Rows = []
    for order in orders:
        bench = Bench(limit=chance.choice([1, 3, 1000]), **messages.options)
        if altered:
            bench.folds = False
        bench.now_s = chance.choice([0, int(time.time())])
        for number, record in enumerate(order):
            for _ in range(1 + (chance.random() < 0.1)):
                bench.apply(messages.encode(record, number))
        bench.expire(int(time.time()))
        merged = [row.values for row in bench.engine.rows(bench.store)]
        assert altered or len(merged) == len(bench.rows), "the events lead to other rows than the state has"
        extra, missing = _unlike(merged, _shown(bench, table, rows), table)
        if extra or missing:
            break
    return extra, missing


def _shown(bench: Bench, table: RandomTable, rows: Rows) -> Rows:
    """The rows of SELECT as the state shows its own; those without a row key are static only."""
    shape = bench.engine._table.shape
    show = live_rows(shape)
    names = {column.name for column in shape.columns}
    first = table.clustering[0].name if table.clustering else None
    shown = []
    for row in rows:
        assert all(value is None for name, value in row.items() if name not in names), "a column that no message has"
        if first is None or row[first] is not None:
            shown.append(show([row.get(column.name) for column in shape.columns], 0).values)
    return shown


def _unlike(merged: Rows, selected: Rows, table: RandomTable) -> tuple[Rows, Rows]:
    """Rows that only one of them has, as text; columns that the table has no more are left out."""
    present = {column.name for column in (*table.key, *table.clustering, *table.others)}

    def by_text(rows: Rows) -> Mapping[str, dict[str, Any]]:
        kept = [{name: value for name, value in row.items() if name in present} for row in rows]
        return {repr(sorted(row.items())): row for row in kept}

    first, second = by_text(merged), by_text(selected)
    assert len(first) == len(merged), "a row is there twice"
    return [row for text, row in first.items() if text not in second], [
        row for text, row in second.items() if text not in first
    ]
