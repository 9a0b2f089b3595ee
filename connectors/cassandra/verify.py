"""Cassandra's side of ``millrace verify``: tables read chunk by chunk, as the records that a snapshot would send."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from connectors.cassandra.config import keys
from connectors.cassandra.config.settings import (
    CONFIG,
    event_settings,
    session_settings,
    snapshot_settings,
    table_lists,
)
from connectors.cassandra.events import build_events
from connectors.cassandra.schema.catalog import CassandraCatalog, CassandraTableFilter
from connectors.cassandra.snapshot.cluster import SnapshotCluster, default_ttl, describe_masked, masked_columns
from connectors.cassandra.snapshot.rows import ReadMoment, SnapshotRowReader
from connectors.cassandra.snapshots import add_rows
from connectors.cql.cluster.session import CqlSession
from connectors.errors import ConfigInvalid
from connectors.verify.source import UPDATES, ComparedTable, field_naming, no_tables, token_chunks
from connectors.verify.writes import cell_table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from connectors.api import BadRecord, Position, SourceRecord
    from connectors.cassandra.events.contract import CassandraTableEvents
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.verify.source import BadRows

#: Any version of the log's format: it matters to the raw form only.
_LOG_VERSION: Final = 8
#: Nodes sync their logs every 10 s by default, and a change is not in ``cdc_raw`` before.
_SETTLE_S: Final = 12.0


class CassandraView:
    """See ``connectors.verify.source.CellSource``."""

    settle_s = _SETTLE_S
    #: A snapshot reads whole tables.
    condition: str | None = ""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Read the configuration.

        Raises:
            ConfigInvalid: it is wrong, or its form can't be compared.
        """
        config = CONFIG.parse(properties)
        self._events = event_settings(config)
        if self._events.output_format == "partition-update-raw":
            raise ConfigInvalid(
                f"{keys.OUTPUT}=partition-update-raw holds the database's own bytes, which verify does not read: compare "
                "what the materializer makes of them"
            )
        self._config = config
        self.reads_keys = self._events.output_format == "debezium"
        self._settings = snapshot_settings(config)
        self._session: CqlSession | None = None
        self._definitions: dict[str, CqlTableDefinition] = {}
        self._readers: dict[str, tuple[SnapshotRowReader, CassandraTableEvents, int]] = {}
        self.tables: dict[str, ComparedTable] = {}
        self.notes: list[str] = []

    async def open(self, is_chosen: Callable[[str], bool]) -> None:
        """See ``CellSource.open``."""
        session = self._session = await CqlSession.acquire(session_settings(self._config))
        catalog = CassandraCatalog(CassandraTableFilter(*table_lists(self._config)), None, session=session)
        await catalog.refresh()
        captured = {str(table): table for table in catalog.tables()}
        self._definitions = {name: table for name, table in captured.items() if is_chosen(name)}
        if not self._definitions:
            raise ConfigInvalid(no_tables(keys.TABLES, self._config[keys.USER], names=captured))
        cluster = await SnapshotCluster.of(session, self._settings.timeout_s)
        form = UPDATES if self._events.output_format == "partition-update" else "cassandra"
        for name, table in self._definitions.items():
            if masked := await masked_columns(session, table, self._settings.timeout_s):
                raise ConfigInvalid(describe_masked(table, masked))
            events = build_events(table, _LOG_VERSION, self._events)
            reader = SnapshotRowReader(self._settings.prefix, table, elements=cluster.elements)
            self._readers[name] = reader, events, await default_ttl(session, table, self._settings.timeout_s)
            compared = self.tables[name] = ComparedTable(
                cell_table(name, table.columns, name_field=field_naming(form)), events.topic, form
            )
            if form != UPDATES and compared.cells.multicell:
                self.notes.append(
                    f"{name}: columns of several cells are not compared in this form: "
                    f"{', '.join(sorted(compared.cells.multicell))}"
                )

    async def records(self, name: str, bad: BadRows) -> AsyncIterator[list[SourceRecord]]:
        """See ``CellSource.records``."""
        reader, events, ttl = self._readers[name]
        if self._session is None:
            raise ConfigInvalid("the source is not open")
        for after, upto in token_chunks():
            state: bytes | None = None
            while True:
                page = await self._session.page(
                    reader.select.text,
                    (after, upto),
                    fetch_size=self._settings.chunk_rows,
                    state=state,
                    consistency=self._settings.consistency,
                    timeout_s=self._settings.timeout_s,
                    types=reader.select.types,
                    token=after + 1,
                )
                now_ms = int(time.time() * 1000)
                read = reader.read(page.rows, ReadMoment(now_ms * 1000, now_ms, ttl))
                records: list[SourceRecord] = []
                refused: list[BadRecord] = []
                for update in read.updates:
                    add_rows(events, update, ({}, {}), records, refused)
                for complaint in (*read.bad, *(item.error for item in refused)):
                    bad.add(complaint)
                if records:
                    yield records
                state = page.state
                if state is None:
                    break

    def reached(self, offsets: Sequence[tuple[Position, Position]], time_ms: int) -> tuple[bool, str] | None:
        """A position in a log says nothing of the time: None."""
        del offsets, time_ms
        return None

    async def close(self) -> None:
        """See ``CellSource.close``."""
        session, self._session = self._session, None
        if session is not None:
            await session.release()
