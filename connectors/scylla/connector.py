"""The Scylla connector: divides the streams of its tables among tasks and follows their generations."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.api import SourceConnector
from connectors.cql.cluster.asking import cluster_tables
from connectors.cql.cluster.failures import CqlLoginRefused
from connectors.cql.cluster.session import CqlSession
from connectors.errors import ConfigInvalid, MillraceError, Retriable
from connectors.scylla.config import keys
from connectors.scylla.config.checks import check_cluster
from connectors.scylla.config.settings import CONFIG, find_problems, parse_tables, read_settings, session_settings
from connectors.scylla.events.ums_signals import parts_of
from connectors.scylla.metrics import METRICS
from connectors.scylla.positions import check_altered, saved_windows
from connectors.scylla.snapshot import merging as snapshot
from connectors.scylla.snapshot import views as snapshot_views
from connectors.scylla.source.groups import assign_groups, encode_share
from connectors.scylla.source.planning import Planner
from connectors.scylla.task import ScyllaTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import ConnectorContext, Instruction, Position
    from connectors.options import Config, ConfigProblem
    from connectors.scylla.model import TableId
    from connectors.scylla.source.planning import TableReadPlan


#: How often to look whether a generation that is over has been read to its end.
_ENDING_S: Final = 1.0
#: How the names of tables with changes end.
_LOG: Final = "_scylla_cdc_log"


class ScyllaConnector(SourceConnector):
    """Reads the CDC logs of Scylla tables: of vnodes and of tablets, several in one connector."""

    version = version("millrace")
    config_def = CONFIG
    task_class = ScyllaTask
    aliases = ("com.scylladb.cdc.debezium.connector.ScyllaConnector", "connectors.scylla.ScyllaConnector")
    metrics = METRICS

    def __init__(self, context: ConnectorContext) -> None:
        super().__init__(context)
        self._tables = parse_tables(context.config)
        self._settings = read_settings(context.config)
        self._session: CqlSession | None = None
        self._planner: Planner | None = None
        self._plans: dict[TableId, TableReadPlan] = {}
        self._planned = False
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to watch generations. The cluster is asked first by ``task_configs``: it may be unavailable now.

        Raises:
            ConfigInvalid: options can't be used together.
        """
        if problems := find_problems(self.context.config):
            raise ConfigInvalid("\n".join(problem.message for problem in problems))
        self._watch = asyncio.create_task(self._watch_tables())

    async def stop(self) -> None:
        """End the watch and give the session back."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.release()

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The groups of the generations that are to be read now, divided among at most ``max_tasks`` tasks.

        A table that does not exist (yet) is left out, with a log line, and looked for at regular intervals.

        Raises:
            Retriable: nodes are unavailable, busy or too slow, or lists of streams are not there yet.
            Fatal: a table's definition is not understood.
            ConfigInvalid: the cluster refuses the credentials or the TLS settings can't be used.
        """
        planner = await self._ready()
        if self._planned:
            await self.context.refresh_offsets()
        saved = saved_windows(self.context.offsets.items())
        planner.new_round()
        plans: dict[TableId, TableReadPlan] = {}
        for table in self._tables:
            plan = await planner.plan(table, saved.get(table, {}), _now_ms(), self._plans.get(table))
            if plan is not None:
                plans[table] = plan
                before = self._plans.get(table)
                if before is None or before.generation.start_ms != plan.generation.start_ms:
                    self.context.log.info(
                        "%s: reading the generation that starts at %d, %d groups of %d streams",
                        table,
                        plan.generation.start_ms,
                        len(plan.groups),
                        sum(len(group.streams) for group in plan.groups),
                    )
        self._plans = plans
        self._planned = True
        planner.forget_but({plan.generation.start_ms for plan in plans.values()})
        sizes = {table: len(plan.groups) for table, plan in plans.items()}
        later = self._find_later_tables()
        shares = assign_groups(
            (replace(group, later=group.table in later) for plan in plans.values() for group in plan.groups), max_tasks
        )
        parts = parts_of([{group.table for group in share} for share in shares])
        return [
            {keys.TASK_GROUPS: encode_share(share, sizes), keys.TASK_PARTS: msgspec.json.encode(part).decode()}
            for share, part in zip(shares, parts, strict=True)
        ]

    def _find_later_tables(self) -> frozenset[TableId]:
        """The tables that are read without a snapshot because they came after the connector's first start."""
        if self._settings.snapshot == "never" or self._settings.snapshot_new_tables:
            return frozenset()
        return snapshot.later_tables(
            {table: plan.history.table_id for table, plan in self._plans.items()}, self.context.offsets.items()
        )

    async def _ready(self) -> Planner:
        if self._session is None:
            self._session = await CqlSession.acquire(session_settings(self.context.config))
        if self._planner is None:
            self._planner = Planner(self._session, self.context.log, self._settings.lookback_ms)
        return self._planner

    async def _watch_tables(self) -> None:
        discovery_s = self._settings.discovery_ms / 1000
        ending = True  # perhaps: this is not known before the first look
        while True:
            await asyncio.sleep(min(discovery_s, _ENDING_S) if ending else discovery_s)
            if not self._planned:
                continue
            try:
                ending = await self._look()
            except (
                Retriable,
                CqlLoginRefused,
            ) as error:  # a login that is refused for good fails the tasks, not what waits here
                self.context.log.warning("can't look for new generations of streams now: %s", error)
                ending = False  # not every second while the cluster is unavailable
            except MillraceError as error:
                self.context.fail(error)
                return

    async def _look(self) -> bool:
        """Ask for new task configurations if a table's generation is read to its end, or a missing table is there.

        Returns:
            Whether something is waited for that comes soon: a generation is over and is only to be read, or new tasks were
            asked for, and the generation that they begin may be over too.
        """
        ending = False
        planner = await self._ready()
        planner.new_round()
        now_ms = _now_ms()
        saved: dict[TableId, dict[int, dict[str, int]]] | None = None
        for table in self._tables:
            plan = self._plans.get(table)
            if plan is None:
                if await planner.available(table, now_ms):
                    self.context.request_task_reconfiguration()
                continue
            if plan.asked:
                ending = True
                continue
            outdated = await planner.outdated(plan, None, now_ms)
            if outdated is None:
                if saved is None:
                    await self.context.refresh_offsets()
                    saved = saved_windows(self.context.offsets.items())
                outdated = await planner.outdated(plan, saved.get(table, {}), now_ms)
                ending = True
            if outdated:
                plan.asked = ending = True
                self.context.request_task_reconfiguration()
        return ending

    @classmethod
    async def validate(cls, config: Config) -> list[ConfigProblem]:
        """Options against each other, then the cluster: reachable, credentials, tables, CDC, images, the right to read."""
        complaints = find_problems(config)
        return complaints or await check_cluster(config)

    @classmethod
    async def capturable(cls, properties: Mapping[str, str]) -> dict[str, Any]:
        """See ``SourceConnector.capturable``."""
        config = CONFIG.parse({keys.PREFIX: "none", **properties, keys.TABLES: ""})
        names = await cluster_tables(session_settings(config))
        return {"option": keys.TABLES, "patterns": False, "tables": [name for name in names if not name.endswith(_LOG)]}

    # What REST asks.

    @classmethod
    def check_snapshot(cls, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
        """See ``SourceConnector.check_snapshot``.

        Raises:
            ConfigInvalid: the request can't be carried out.
        """
        return snapshot_views.check_request(request, parse_tables(config), read_settings(config).skipped)

    @classmethod
    def snapshots(
        cls, config: Config, instructions: Sequence[Instruction], offsets: Sequence[tuple[Position, Position]]
    ) -> list[dict[str, Any]]:
        """See ``SourceConnector.snapshots``."""
        return snapshot_views.list_snapshots(parse_tables(config), instructions, offsets)

    @classmethod
    async def lag(cls, config: Config, offsets: Sequence[tuple[Position, Position]]) -> dict[str, Any]:
        """See ``SourceConnector.lag``: from what is saved."""
        return snapshot_views.measure_lag(parse_tables(config), offsets)

    @classmethod
    async def tables(cls, config: Config, offsets: Sequence[tuple[Position, Position]]) -> list[dict[str, Any]]:
        """See ``SourceConnector.tables``: asks the cluster.

        Raises:
            Retriable: it can't be asked now.
            ConfigInvalid: it refuses the account.
        """
        del offsets
        session = await CqlSession.acquire(session_settings(config))
        try:
            return await snapshot_views.show_tables(session, parse_tables(config))
        finally:
            await session.release()

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        """True: positions are exact to the row, and windows, once closed, do not change."""
        del config
        return True

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        """Check positions, this connector's and the Java one's.

        Raises:
            ConfigInvalid: one that can't be resumed from; the message says why.
        """
        captured = parse_tables(config)
        for partition, offset in offsets:
            try:
                if offset is not None and snapshot.is_snapshot(partition):
                    snapshot.from_offset(offset)
                else:
                    check_altered(partition, offset, captured)
            except MillraceError as error:
                raise ConfigInvalid(
                    f"The offset {offset} of partition {partition} can't be resumed from: {error}"
                ) from error
        return True


def _now_ms() -> int:
    return int(time.time() * 1000)
