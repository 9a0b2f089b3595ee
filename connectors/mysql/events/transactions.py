"""``provide.transaction.metadata``: begins and ends of transactions, and the place of each event in its transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors import schema as connect
from connectors.api import Position, SourceRecord
from connectors.mysql.events.names import schema_name
from connectors.mysql.schema.topics import MySqlTopics
from connectors.schema import Schema, array, struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.mysql.events.contract import MySqlEventSettings
    from connectors.mysql.model import RowSource, TableName

_ID: Final = "transaction_id"
_ORDER: Final = "transaction_data_collection_order_"
_COUNTS: Final = struct(
    "event.collection", {"data_collection": connect.STRING, "event_count": connect.INT64}, optional=True, version=1
)


class Transactions:
    """Counts the events of the open transaction, for all tables of a task. Its state is part of every offset, as in Debezium.

    It counts the events of this task only: with several tasks per connector no task sees all of them.

    Attributes:
        id: of the open transaction; None if no transaction is open.
    """

    def __init__(self, settings: MySqlEventSettings, partition: Position) -> None:
        """No transaction is open."""
        self.id: str | None = None
        self._total = 0
        self._counts: dict[str, int] = {}
        self._partition = partition
        self._topic = MySqlTopics(settings.topics).transactions
        common = "io.debezium.connector.common.TransactionMetadata"
        self._key_schema = struct(schema_name(f"{common}Key", settings.schema_names), {"id": connect.STRING}, version=1)
        self._value_schema: Schema = struct(
            schema_name(f"{common}Value", settings.schema_names),
            {
                "status": connect.STRING,
                "id": connect.STRING,
                "event_count": connect.OPTIONAL_INT64,
                "data_collections": array(_COUNTS, optional=True),
                "ts_ms": connect.INT64,
            },
            version=1,
        )

    def load(self, offset: Mapping[str, Any]) -> None:
        """Continue the transaction that was open at a saved offset."""
        transaction_id = offset.get(_ID)
        self.id = transaction_id if isinstance(transaction_id, str) else None
        self._counts = {
            name.removeprefix(_ORDER): int(count) for name, count in offset.items() if name.startswith(_ORDER)
        }
        if self.id is None:
            self._counts = {}
        self._total = sum(self._counts.values())

    def begin(self, source: RowSource, offset: Position, out: list[SourceRecord]) -> None:
        """Append the record of the transaction's begin; nothing where it is open already, after a restart within it.

        Args:
            source: of its first event.
            offset: before its first event; names the transaction where it has no GTID.
            out: gets the record.
        """
        transaction_id = source.gtid or f"file={offset['file']},pos={offset['pos']}"
        if transaction_id == self.id:
            return
        self.id, self._total, self._counts = transaction_id, 0, {}
        self._append_record(
            "BEGIN", source.ts_ms, {"event_count": None, "data_collections": None}, {**offset, **self.state()}, out
        )

    def end(self, source: RowSource, offset: Position, out: list[SourceRecord]) -> None:
        """Append the record of the end of the open transaction, if one is open."""
        if self.id is None:
            return
        counts = [{"data_collection": name, "event_count": count} for name, count in self._counts.items()]
        self._append_record("END", source.ts_ms, {"event_count": self._total, "data_collections": counts}, offset, out)
        self.abort()

    def abort(self) -> None:
        """The open transaction was rolled back, and its records have been taken out again."""
        self.id, self._total, self._counts = None, 0, {}

    def state(self) -> Position:
        """The part of an offset that describes the open transaction."""
        return {_ID: self.id, **{_ORDER + name: count for name, count in self._counts.items()}}

    def count(self, name: TableName, out: list[SourceRecord], start: int) -> None:
        """Give the events in ``out`` from ``start`` on, all of one table, their ``transaction`` blocks, and offsets the state.

        Records of one row have one offset but for the last of them; the state in an offset is that behind its rows.
        """
        if self.id is None:
            return
        table_name = str(name)
        order = self._counts.get(table_name, 0)
        done = self.state()
        for index in range(start, len(out)):
            record = out[index]
            if record.value is not None:
                self._total += 1
                order += 1
                record.value["transaction"] = {
                    "id": self.id,
                    "total_order": self._total,
                    "data_collection_order": order,
                }
            following = out[index + 1] if index + 1 < len(out) else None
            if following is None or not _same_row(record, following):
                self._counts[table_name] = order
                done = self.state()
            record.source_offset = {**record.source_offset, **done}

    def _append_record(
        self, status: str, ts_ms: int, counts: dict[str, Any], offset: Position, out: list[SourceRecord]
    ) -> None:
        value = {"status": status, "id": self.id, **counts, "ts_ms": ts_ms}
        out.append(
            SourceRecord(
                self._partition, offset, self._topic, value, self._value_schema, {"id": self.id}, self._key_schema
            )
        )


def _same_row(record: SourceRecord, following: SourceRecord) -> bool:
    """Whether both are of one row: a tombstone, or the second half of a change of the key."""
    if following.value is None:
        return True
    if record.value is not None:
        return bool(following.value["source"]["row"] == record.value["source"]["row"])
    return bool(following.value["op"] == "c")
