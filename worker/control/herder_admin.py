"""Everything of the herder that is not about one connector's life: plugins, loggers, topics, health, metrics, drain."""
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import ConfigInvalid, Retriable
from offsets.records import logger_record, topic_status_record
from worker.control.explanation import explain_connector
from worker.control.placement import INSTANCE
from worker.metrics.exporter import ConnectorNumbers, process_numbers, render
from worker.metrics.registry import Family
from worker.protocol import ListPlugins, PluginConfig, RemoteError
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.control.herder_base import HerderContext
    from worker.protocol import ToHost
    from worker.rest.signing import SessionKey

_NO_HOST_S: Final = 30.0


class AdminOperations:
    """``/``, ``/connector-plugins``, ``/admin``, ``/health``, ``/metrics``, topics and explain."""

    ctx: HerderContext

    def root(self) -> dict[str, Any]:
        """``GET /``."""
        return {"version": self.ctx.version[0], "commit": self.ctx.version[1], "kafka_cluster_id": self.ctx.cluster_id}

    def ready(self) -> bool:
        """Whether requests can be answered from a complete state."""
        if not self.ctx.was_ready:
            leader = self.ctx.node.leader
            self.ctx.was_ready = (self.ctx.node.caught_up and self.ctx.node.view is not None
                                  and (not leader.chosen or leader.active))
        return self.ctx.was_ready

    async def plugins(self, *, connectors_only: bool) -> list[dict[str, Any]]:
        """All plugins."""
        answer: list[dict[str, Any]] = orjson.loads(await self._ask(ListPlugins(connectors_only)))
        return answer

    async def plugin_config(self, plugin: str, version: str | None) -> list[dict[str, Any]]:
        """A plugin's options."""
        answer: list[dict[str, Any]] = orjson.loads(await self._ask(PluginConfig(plugin, version)))
        return answer

    async def validate(self, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
        """``ConfigInfos`` for a configuration."""
        return await self.ctx.ask_validation(dict(config), plugin)

    async def _ask(self, message: ToHost) -> Any:
        try:
            return await self.ctx.node.pool.ask(message, self.ctx.validate_s)
        except RemoteError as error:
            status = {"LookupError": 404, "NotFound": 404, "ConfigInvalid": 400}.get(error.kind, 500)
            raise RestError(status, str(error)) from error
        except TimeoutError:
            raise RestError(500, f"No task host answered within {self.ctx.validate_s:g} s") from None
        except Retriable as error:
            raise RestError(503, str(error)) from error

    async def connector_topics(self, name: str) -> list[str]:
        """Topics a connector has written to."""
        return sorted(self.ctx.node.status.state.topics(name))

    async def reset_connector_topics(self, name: str) -> None:
        """Forget them."""
        for topic in self.ctx.node.status.state.topics(name):
            self.ctx.node.status.put(topic_status_record(name, topic, None))

    async def loggers(self) -> dict[str, dict[str, Any]]:
        """All loggers with a level of their own."""
        return {name: {"level": state.level, "last_modified": state.last_modified}
                for name, state in self.ctx.node.loggers.list().items()}

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

    async def explain(self, name: str) -> dict[str, Any]:
        """Why each unit is where it is; the leader knows."""
        await self.ctx.lead()
        await self.ctx.known(name)
        return explain_connector(self.ctx.node, name, exactly_once=self.ctx.exactly_once,
                                 sink=self.ctx.connector_type(self.ctx.snapshot.connectors[name]) == "sink")

    async def drain(self) -> dict[str, Any]:
        """Hand everything over; answers at once."""
        if self.ctx.start_drain is not None:
            self.ctx.start_drain()
        units = sorted(self.ctx.node.reconciler.have)
        return {"worker_id": self.ctx.node.worker_id, "draining": self.ctx.node.draining,
                "connectors": [unit.connector for unit in units if unit.task == INSTANCE],
                "tasks": [str(unit) for unit in units if unit.task != INSTANCE]}

    async def health(self) -> tuple[bool, str]:
        """Whether this worker can do its work."""
        node = self.ctx.node
        if node.fenced and node.caught_up:
            return False, "It has lost touch with Kafka and has stopped its tasks until that is back."
        missing = [store.log.topic for store in (node.config, node.placement, node.status) if not store.log.connected]
        if missing:
            return False, f"It can't read the topics {', '.join(missing)} at the moment."
        # Hosts are replaced all the time; only without any for long is the worker of no use.
        if time.monotonic() - node.pool.ready_at > _NO_HOST_S:
            return False, f"No task host has answered for {_NO_HOST_S:g} s."
        return True, ""

    async def metrics(self) -> str:
        """The Prometheus exposition."""
        node = self.ctx.node
        stats = node.stats
        stats.version = self.ctx.version[0]
        stats.leader = node.leader.active
        stats.ready = self.ready()
        stats.draining = node.draining
        stats.placement_moves = node.leader.moves
        stats.placement_pending = node.leader.pending
        stats.topics = {
            node.config.log.topic: (node.config.log.connected, node.config.unreadable),
            node.placement.log.topic: (node.placement.log.connected, 0),
            node.status.log.topic: (node.status.log.connected, node.status.state.unreadable.count),
            node.offsets.topic: (node.offsets.connected, node.offsets.unreadable.count),
        }
        connectors = []
        for unit in node.reconciler.have:
            if unit.task == INSTANCE:
                config = self.ctx.snapshot.connectors.get(unit.connector, {})
                status = node.status.state.connector(unit.connector)
                plugin = config.get("connector.class", "")
                connectors.append(ConnectorNumbers(unit.connector, "UNASSIGNED" if status is None else status.state, plugin,
                                                   node.versions.get(plugin, ""), node.types.get(plugin, "unknown")))
        families = [Family(name) for name in self.ctx.config["metrics.families"]]
        return render(stats, connectors, node.tasks, process_numbers(stats.started_at), families=families,
                      now=time.monotonic())

    # Between workers.

    def session_key(self) -> SessionKey | None:
        """The key that requests between workers are signed with."""
        return self.ctx.node.session_key()

    def signature_algorithms(self) -> Sequence[str]:
        """Algorithms accepted from other workers."""
        algorithms: list[str] = self.ctx.config["inter.worker.verification.algorithms"]
        return algorithms
