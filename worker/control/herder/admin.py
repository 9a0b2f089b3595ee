"""Everything of the herder that is not about one connector's life: plugins, loggers, topics, health, metrics, drain."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from connectors.errors import ConfigInvalid
from offsets.records import logger_record, topic_status_record
from worker.control.herder.base import ask_host
from worker.control.herder.explanation import explain_connector
from worker.control.herder.verify import verify_numbers
from worker.control.placement.planning import INSTANCE, Unit
from worker.metrics.exporter import ConnectorNumbers, Options, collect_parts, render_parts
from worker.metrics.registry import Family
from worker.plugins.model import list_plugins
from worker.protocol import ListTables, PluginConfig
from worker.rest.facade import REBALANCE_TEXT, RestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.control.herder.base import HerderContext

#: The version of Kafka Connect whose API this is. Clients compare it with the version that brought a call, and leave the call
#: out if it is older; so Millrace's own version is in ``commit``.
KAFKA_CONNECT: Final = "4.1.2"
_NO_HOST_S: Final = 30.0
#: How long the leader may refuse task configurations: keys and leaders change.
_REFUSED_S: Final = 30.0


class AdminOperations:
    """``/``, ``/connector-plugins``, ``/admin``, ``/health``, ``/metrics``, topics and explain."""

    def __init__(self, ctx: HerderContext) -> None:
        self.ctx = ctx

    def root(self) -> dict[str, Any]:
        """``GET /``."""
        return {
            "version": KAFKA_CONNECT,
            "commit": f"millrace-{self.ctx.version[0]}",
            "kafka_cluster_id": self.ctx.cluster_id,
        }

    def ready(self) -> bool:
        """Whether requests can be answered from a complete state."""
        if not self.ctx.was_ready:
            leader = self.ctx.node.leader
            self.ctx.was_ready = (
                self.ctx.node.caught_up and self.ctx.node.view is not None and (not leader.chosen or leader.active)
            )
        return self.ctx.was_ready

    async def plugins(self, *, connectors_only: bool) -> list[dict[str, Any]]:
        """All plugins."""
        return list(list_plugins(self.ctx.node.plugins.catalog.plugins, connectors_only=connectors_only))

    async def plugin_config(self, plugin: str, version: str | None) -> list[dict[str, Any]]:
        """A plugin's options."""
        catalog = self.ctx.node.plugins.catalog
        try:
            match = catalog.any_kind(plugin, version)
        except ConfigInvalid as error:
            raise RestError(400, str(error)) from error
        environments = (match.environment,) if match is not None and match.environment else ()
        answer: list[dict[str, Any]] = orjson.loads(
            await ask_host(
                self.ctx, PluginConfig(plugin, version, catalog.others(environments)), environments=environments
            )
        )
        return answer

    async def plugin_environments(self) -> dict[str, Any]:
        """The environments of ``plugin.path``, their plugins, their hosts, and what can't be used."""
        pool = self.ctx.node.pool
        hosts = [
            {
                "host": host.number,
                "environment": host.label,
                "pid": host.pid,
                "ready": host.ready,
                "units": sorted(map(str, host.units)),
            }
            for host in pool.hosts
            if host.environments
        ]
        return {"worker_id": self.ctx.node.worker_id, **self.ctx.node.plugins.report(), "hosts": hosts}

    async def refresh_plugins(self) -> dict[str, Any]:
        """Look at the folders of ``plugin.path`` now."""
        await self.ctx.node.plugins.refresh(self.ctx.validate_s)
        return await self.plugin_environments()

    async def validate(self, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
        """``ConfigInfos`` for a configuration."""
        return await self.ctx.ask_validation(dict(config), plugin)

    async def source_tables(self, config: Mapping[str, str]) -> dict[str, Any]:
        """The tables that the source of a configuration has: option, patterns, tables."""
        selection = self.ctx.node.plugins.select(dict(config))
        if "connector.class" in selection.problems:
            raise RestError(400, selection.problems["connector.class"])
        tables: dict[str, Any] = orjson.loads(
            await ask_host(self.ctx, ListTables(dict(config)), environments=selection.environments)
        )
        return tables

    async def config_providers(self) -> list[str]:
        """Names of the config providers that configurations may refer to."""
        names = self.ctx.properties.get("config.providers", "")
        return sorted({name.strip() for name in names.split(",") if name.strip()})

    async def connector_topics(self, name: str) -> list[str]:
        """Topics a connector has written to."""
        return sorted(self.ctx.node.status.state.topics(name))

    async def reset_connector_topics(self, name: str) -> None:
        """Forget them."""
        for topic in self.ctx.node.status.state.topics(name):
            self.ctx.node.status.put(topic_status_record(name, topic, None))

    async def loggers(self) -> dict[str, dict[str, Any]]:
        """All loggers with a level of their own."""
        return {
            name: {"level": state.level, "last_modified": state.last_modified}
            for name, state in self.ctx.node.loggers.list().items()
        }

    async def logger(self, name: str) -> dict[str, Any]:
        """One logger."""
        state = self.ctx.node.loggers.get(name)
        if state is None:
            raise RestError(404, f"Logger {name} not found.")
        return {"level": state.level, "last_modified": state.last_modified}

    async def set_log_level(self, name: str, level: str, *, cluster: bool) -> list[str]:
        """Set a level here, or by the config topic on all workers."""
        if cluster:
            await self.ctx.lead()
            await self.ctx.node.leader.write([logger_record(name, level)])
            return []
        try:
            return self.ctx.node.set_level(name, level)
        except ConfigInvalid as error:
            raise RestError(404, str(error)) from error

    async def send_log_level(self, leader_url: str | None, name: str, level: str) -> list[str]:
        """Let the leader set a level on all workers."""
        key = self.ctx.node.session_key()
        if leader_url is None or key is None:
            raise RestError(409, REBALANCE_TEXT)
        await self.ctx.node.client.send_signed(
            "PUT", leader_url, f"/loggers/{quote(name, safe='')}", orjson.dumps({"level": level}), key
        )
        return []

    async def explain(self, name: str) -> dict[str, Any]:
        """Why each unit is where it is; the leader knows."""
        await self.ctx.lead()
        await self.ctx.require_connector(name)
        return explain_connector(
            self.ctx.node,
            name,
            exactly_once=self.ctx.exactly_once,
            sink=self.ctx.connector_type(self.ctx.snapshot.connectors[name]) == "sink",
        )

    async def drain(self) -> dict[str, Any]:
        """Hand everything over; answers at once."""
        if self.ctx.start_drain is not None:
            self.ctx.start_drain()
        units = sorted(self.ctx.node.reconciler.local_runs)
        return {
            "worker_id": self.ctx.node.worker_id,
            "draining": self.ctx.node.draining,
            "connectors": [unit.connector for unit in units if unit.task == INSTANCE],
            "tasks": [str(unit) for unit in units if unit.task != INSTANCE],
        }

    async def health(self) -> tuple[bool, str]:
        """Whether this worker can do its work."""
        node = self.ctx.node
        if node.fenced and node.caught_up:
            return False, "It has lost touch with Kafka and has stopped its tasks until that is back."
        logs = (node.config.log, node.placement.log, node.status.log, node.offsets)
        lost = [log.topic for log in logs if log.lost]
        if lost:
            return False, (
                f"The topics {', '.join(lost)} were deleted, recreated or emptied after this worker had read them. What they "
                "held is only in the memory of the workers that run now: before you stop them, save it again, as 'A topic "
                "that was deleted' in docs/operations.md says."
            )
        missing = [log.topic for log in logs if not log.connected]
        if missing:
            return False, f"It can't read the topics {', '.join(missing)} at the moment."
        refusal = node.submission.find_refusal(_REFUSED_S)
        if refusal is not None:
            return False, refusal
        # Hosts are replaced all the time; only without any for long is the worker of no use.
        if time.monotonic() - node.pool.ready_at > _NO_HOST_S:
            return False, f"No task host has answered for {_NO_HOST_S:g} s."
        return True, ""

    async def metrics(self) -> bytes:
        """Return the Prometheus exposition; other work continues while it is created."""
        node = self.ctx.node
        node.numbers.refresh(node.contact)
        stats = node.stats
        stats.version, stats.commit = self.ctx.version
        stats.leader = node.leader.active
        stats.ready = self.ready()
        stats.draining = node.draining
        stats.placement_moves = node.leader.rounds.moves
        stats.placement_pending = node.leader.rounds.pending
        stats.topics = {
            log.topic: (log.connected, log.lost, unreadable)
            for log, unreadable in (
                (node.config.log, node.config.unreadable),
                (node.placement.log, 0),
                (node.status.log, node.status.state.unreadable.count),
                (node.offsets, node.offsets.unreadable.count),
            )
        }
        stats.verifications = verify_numbers(self.ctx)
        units = (*node.reconciler.local_runs, *node.reconciler.given_up)
        connectors = [self._connector_numbers(unit) for unit in units if unit.task == INSTANCE]
        if node.leader.active:
            # A stopped connector is on no worker: the leader shows it.
            here = {item.name for item in connectors}
            connectors += [
                self._connector_numbers(Unit(name, INSTANCE))
                for name in self.ctx.snapshot.connectors
                if name not in here and self.ctx.snapshot.target_state(name) == "STOPPED"
            ]
        settings = self.ctx.config
        options = Options(
            tuple(Family(name) for name in settings["metrics.families"]),
            settings["metrics.jvm.names"],
            settings["metrics.clients.max"],
        )
        began = time.perf_counter()
        body, stats.render_blocked_s = await collect_parts(
            render_parts(
                stats, connectors, node.tasks, node.numbers.process_numbers(), options=options, now=time.monotonic()
            )
        )
        stats.render_s = time.perf_counter() - began
        return body

    def _connector_numbers(self, unit: Unit) -> ConnectorNumbers:
        config = self.ctx.snapshot.connectors.get(unit.connector, {})
        status = self.ctx.node.status.state.connector(unit.connector)
        return ConnectorNumbers(
            unit.connector,
            "UNASSIGNED" if status is None else status.state,
            config.get("connector.class", ""),
            self.ctx.node.version(unit, config),
            self.ctx.connector_type(config),
        )

    # Between workers.
