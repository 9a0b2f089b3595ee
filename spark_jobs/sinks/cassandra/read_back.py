"""Reads the tables of the Cassandra sink back, for ``millrace verify``. Blocks: call it in a thread."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from connectors.verify.values import AddressText, Milliseconds, ValueSet
from spark_jobs.sinks.cassandra.cluster import open_cluster, read_table
from spark_jobs.sinks.cassandra.config import CONFIG_DEF, parse_settings
from spark_jobs.sinks.cassandra.tables import names_of, quote_name
from spark_jobs.sinks.shared.read_back import ROWS_AT_ONCE, demand_row_settings, parse_own_options, select_present

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from connectors.cql.types import CqlType

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _moment_of(milliseconds: int) -> Any:
    with suppress(OverflowError):  # Cassandra has years that Python does not have
        return Milliseconds.of(_EPOCH + timedelta(milliseconds=milliseconds))
    return milliseconds


#: The value that a decoded cell means, by its type; see ``connectors.cql.values``. Days are as in messages.
_MEANINGS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "timestamp": _moment_of,
    "time": lambda nanoseconds: timedelta(microseconds=nanoseconds // 1000),
    "decimal": Decimal,
    "varint": int,
    "uuid": UUID,
    "timeuuid": UUID,
    "inet": AddressText,
}


def _find_meaning(kind: CqlType) -> Callable[[Any], Any]:
    """The function from a decoded cell of a type to the value that it means."""
    match kind.name:
        case "list" | "set" as name:
            item = _find_meaning(kind.arguments[0])
            make = ValueSet if name == "set" else list
            return lambda items: None if items is None else make(map(item, items))
        case "map":
            member = _find_meaning(kind.arguments[1])
            return lambda entries: (
                None if entries is None else {str(entry["key"]): member(entry["value"]) for entry in entries}
            )
        case name:
            mean = _MEANINGS.get(name)
            return lambda value: value if value is None or mean is None else mean(value)


class CassandraTargetRows:
    """The rows of one job.

    Args:
        properties: of the job, references resolved.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._settings = parse_settings(parse_own_options(CONFIG_DEF, properties))
        demand_row_settings(self._settings.rows)

    def name(self, namespace: str) -> str:
        """The table that a source table is written to, with its keyspace."""
        return ".".join(names_of(self._settings, namespace))

    def rows(self, namespace: str) -> Iterator[list[dict[str, Any]]]:
        """The rows of that table, a page at a time, without those that are deleted.

        Raises:
            Retriable: the cluster is unavailable.
            Fatal: it refuses.
        """
        keyspace, table = names_of(self._settings, namespace)
        with open_cluster(self._settings) as connection:
            if read_table(connection, keyspace, table) is None:
                return
            query = f"SELECT * FROM {quote_name(keyspace)}.{quote_name(table)}"  # noqa: S608 - quoted
            statement = connection.prepare(query, None)
            bound = statement.bind((), ROWS_AT_ONCE, self._settings.consistency, None)
            state: bytes | None = None
            while True:
                try:
                    page = connection.session.execute(bound, paging_state=state).one()
                except Exception as error:
                    raise connection.error(error, query) from error
                rows = statement.decode(page)
                columns = [(column[2], _find_meaning(column[3])) for column in statement.columns]
                yield select_present(
                    {name: mean(value) for (name, mean), value in zip(columns, row, strict=True)} for row in rows
                )
                if (state := page.state) is None:
                    return
