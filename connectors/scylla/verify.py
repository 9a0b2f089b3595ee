"""Scylla's side of ``millrace verify``: tables read chunk by chunk, as the records that a snapshot would send."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from connectors.cql.cluster.session import CqlSession
from connectors.errors import ConfigInvalid
from connectors.scylla.config import keys
from connectors.scylla.config.settings import CONFIG, event_settings, read_settings, session_settings
from connectors.scylla.config.settings import parse_tables as configured
from connectors.scylla.events import build_events
from connectors.scylla.events.names import topic_name
from connectors.scylla.model import TableId
from connectors.scylla.positions import saved_windows
from connectors.scylla.schema import tables
from connectors.scylla.snapshot.rows import RowPlan
from connectors.verify.source import UPDATES, ComparedTable, field_naming, no_tables, token_chunks
from connectors.verify.writes import cell_table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from connectors.api import BadRecord, Position, SourceRecord
    from connectors.scylla.events.contract import EventBuilder
    from connectors.scylla.model import TableVersion
    from connectors.verify.source import BadRows

#: After every write time: nothing is left to the stream.
_EVER_US: Final = 1 << 62
_SETTLE_S: Final = 5.0


class ScyllaView:
    """See ``connectors.verify.source.CellSource``."""

    settle_s = _SETTLE_S
    condition: str | None = ""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Read the configuration.

        Raises:
            ConfigInvalid: it is wrong, or its form can't be compared.
        """
        config = CONFIG.parse(properties)
        events = event_settings(config)
        if events.output_format == "ums":
            raise ConfigInvalid(
                f"{keys.OUTPUT}=ums: verify reads partition updates and row events of a Scylla connector"
            )
        if events.output_format == "advanced" and events.include_after != "full":
            raise ConfigInvalid(
                f"{keys.AFTER}={events.include_after}: verify needs whole rows in events ({keys.AFTER}=full)"
            )
        # Whatever events are left out: what is there must be equal to what the source has.
        self._events = msgspec.structs.replace(events, skipped_operations=frozenset(), tombstones=False)
        self._config = config
        self.reads_keys = events.output_format != UPDATES
        self._settings = read_settings(config)
        self._session: CqlSession | None = None
        self._versions: dict[str, tuple[TableVersion, RowPlan, EventBuilder]] = {}
        self.tables: dict[str, ComparedTable] = {}
        self.notes: list[str] = []

    async def open(self, is_chosen: Callable[[str], bool]) -> None:
        """See ``CellSource.open``."""
        session = self._session = await CqlSession.acquire(session_settings(self._config))
        names = {str(table): table for table in configured(self._config)}
        for name, table in names.items():
            if is_chosen(name):
                version = (await tables.load_history(session, table, now_us=int(time.time() * 1_000_000))).newest
                self._add_table(name, version)
        if not self.tables:
            raise ConfigInvalid(no_tables(keys.TABLES, self._config[keys.USER], names=names))

    def _add_table(self, name: str, version: TableVersion) -> None:
        form = self._events.output_format
        self._versions[name] = version, RowPlan(version), build_events(version, self._events)
        compared = self.tables[name] = ComparedTable(
            cell_table(name, version.columns, name_field=field_naming(form)),
            topic_name(self._events.topic_prefix, version.id),
            form,
        )
        if form != UPDATES and compared.cells.multicell:
            self.notes.append(
                f"{name}: columns of several cells are not compared in this form: "
                f"{', '.join(sorted(compared.cells.multicell))}"
            )

    async def records(self, name: str, bad: BadRows) -> AsyncIterator[list[SourceRecord]]:
        """See ``CellSource.records``."""
        _, plan, events = self._versions[name]
        if self._session is None:
            raise ConfigInvalid("the source is not open")
        for after, upto in token_chunks():
            state: bytes | None = None
            before = ""
            while True:
                page = await self._session.page(
                    plan.query,
                    (after, upto),
                    fetch_size=self._settings.snapshot_rows,
                    state=state,
                    consistency=self._settings.consistency,
                    timeout_s=self._settings.query_timeout_s,
                    token=after + 1,
                )
                records: list[SourceRecord] = []
                refused: list[BadRecord] = []
                now_us = int(time.time() * 1_000_000)
                for item in plan.items(page.rows, before):
                    before = item.digest
                    kept = plan.keep(item, _EVER_US)
                    if kept is not None:
                        newest = now_us if kept.newest_us is None else kept.newest_us
                        events.snapshot_row({}, {}, kept.cells, newest, records, refused)
                for refusal in refused:
                    bad.add(refusal.error)
                if records:
                    yield records
                state = page.state
                if state is None:
                    break

    def reached(self, offsets: Sequence[tuple[Position, Position]], time_ms: int) -> tuple[bool, str] | None:
        """See ``CellSource.reached``: each table's newest generation, and the group in it that is most behind."""
        windows = saved_windows(offsets)
        behind: list[int] = []
        for name in self.tables:
            generations = windows.get(TableId(*name.split(".", 1)))
            if not generations:
                return False, f"nowhere yet in {name}"
            behind += generations[max(generations)].values()
        oldest = min(behind)
        return oldest >= time_ms, f"{(time_ms - oldest) / 1000:.1f} s before the tables were read"

    async def close(self) -> None:
        """See ``CellSource.close``."""
        session, self._session = self._session, None
        if session is not None:
            await session.release()
