"""The cluster as REST sees it: Kafka Connect 4.1's ``DistributedHerder``, with the same messages where clients match on them.

Connectors and tasks are here; each other subject is an object of its own over the same ``HerderContext``. Whatever changes the
cluster goes through the leader; answers come from memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from offsets.records import (
    RestartRequest,
    commit_record,
    connector_record,
    restart_record,
    target_state_record,
    task_record,
)
from worker.control.herder.admin import AdminOperations
from worker.control.herder.base import lock_of
from worker.control.herder.console import ConsoleOperations
from worker.control.herder.flows import FlowOperations
from worker.control.herder.offsets import OffsetOperations
from worker.control.herder.progress import shown_progress
from worker.control.herder.rule_sets import RuleStore
from worker.control.herder.rules import RuleOperations
from worker.control.herder.savepoints import SavepointOperations
from worker.control.herder.snapshots import SnapshotOperations
from worker.control.herder.topics import TopicOperations
from worker.control.herder.verify import VerifyOperations
from worker.control.placement.desired_runs import restart_plan, restore_references
from worker.control.placement.planning import INSTANCE, Unit
from worker.control.state.instructions import instructions_record
from worker.protocol import HostTaskId
from worker.rest.facade import NO_OWNER_TEXT, REBALANCE_TEXT, NotLeader, RestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offsets.records import ReportedStatus, TargetStateName
    from worker.control.herder.base import HerderContext
    from worker.rest.security.signing import SigningKey

_INITIAL: Final[dict[str, TargetStateName]] = {"RUNNING": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}
_TARGETS: Final[dict[str, TargetStateName]] = {"STARTED": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}


class ClusterHerder:
    """Implements ``worker.rest.facade.Herder`` and the requests between workers (``InternalHerder``)."""

    def __init__(self, ctx: HerderContext) -> None:
        self.ctx = ctx
        self.admin = AdminOperations(ctx)
        self.console = ConsoleOperations(ctx)
        self.flows = FlowOperations(ctx)
        self.logs = RuleOperations(ctx)
        self.rules = RuleStore(ctx)
        self.savepoints = SavepointOperations(ctx)
        self.snapshots = SnapshotOperations(ctx)
        self.offsets = OffsetOperations(ctx, self.snapshots)
        self.topics = TopicOperations(ctx)
        self.verifications = VerifyOperations(ctx, self.snapshots)

    # Reading.

    async def connectors(self) -> list[str]:
        """Names of all connectors."""
        await self.ctx.catch_up()
        return sorted(self.ctx.snapshot.connectors)

    async def connector_info(self, name: str) -> dict[str, Any]:
        """A connector's configuration and tasks."""
        await self.ctx.require_connector(name)
        snapshot = self.ctx.snapshot
        config = snapshot.connectors[name]
        tasks = [{"connector": name, "task": task} for task in range(len(snapshot.task_configs(name)))]
        return {"name": name, "config": config, "tasks": tasks, "type": self.ctx.connector_type(config)}

    async def connector_status(self, name: str) -> dict[str, Any]:
        """States of a connector and its tasks; UNASSIGNED from the moment it was created."""
        await self.ctx.catch_up(name)
        config = self.ctx.snapshot.connectors.get(name)
        if config is None:
            raise RestError(404, f"No status found for connector {name}")
        state = self.ctx.node.status.state
        tasks = [
            {"id": task, **_show_status(state.task(name, task))}
            for task in range(len(self.ctx.snapshot.task_configs(name)))
        ]
        return {
            "name": name,
            "connector": _show_status(state.connector(name)),
            "tasks": tasks,
            "type": self.ctx.connector_type(config),
        }

    async def task_infos(self, name: str) -> list[dict[str, Any]]:
        """All tasks with their configurations."""
        await self.ctx.require_connector(name)
        return [
            {"id": {"connector": name, "task": task}, "config": config}
            for task, config in enumerate(self.ctx.snapshot.task_configs(name))
        ]

    async def tasks_config(self, name: str) -> dict[str, dict[str, str]]:
        """All task configurations by the tasks' names."""
        await self.ctx.require_connector(name)
        return {f"{name}-{task}": config for task, config in enumerate(self.ctx.snapshot.task_configs(name))}

    async def connector_progress(self, name: str) -> dict[str, Any]:
        """How far a connector's job is; the worker that runs it knows."""
        await self.ctx.require_connector(name)
        config = self.ctx.snapshot.connectors[name]
        kind = self.ctx.connector_type(config)
        if kind == "source":
            raise RestError(400, f"Connector {name} is a source: GET /connectors/{name}/offsets says how far it is")
        count = len(self.ctx.snapshot.task_configs(name))
        if not count:
            return {"name": name, "type": kind, "tasks": []}
        unit = Unit(name, 0)  # the tasks of a job share a worker
        if self.ctx.node.placement.table.owner(unit) == self.ctx.node.me:
            windows = [self.ctx.node.tasks.tasks.get(HostTaskId(name, task)) for task in range(count)]
            tasks = [
                shown_progress(self.ctx.node.worker_id, None if window is None else window.latest.job, task)
                for task, window in enumerate(windows)
            ]
            return {"name": name, "type": kind, "tasks": tasks}
        url = self.ctx.node.owner_url(unit)
        if url is None:
            raise RestError(409, REBALANCE_TEXT)
        raise NotLeader(url)

    async def task_status(self, name: str, task: int) -> dict[str, Any]:
        """One task's state."""
        await self.ctx.catch_up(name)
        if not 0 <= task < len(self.ctx.snapshot.task_configs(name)):
            raise RestError(404, f"No status found for task {name}-{task}")
        return {"id": task, **_show_status(self.ctx.node.status.state.task(name, task))}

    # Changing.

    async def create_connector(self, name: str, config: Mapping[str, str], initial_state: str | None) -> dict[str, Any]:
        """Create a connector."""
        created, info = await self._put_config(
            name, config, None if initial_state is None else _INITIAL[initial_state], replace=False
        )
        del created
        return info

    async def put_connector_config(self, name: str, config: Mapping[str, str]) -> tuple[bool, dict[str, Any]]:
        """Create a connector or replace its configuration."""
        return await self._put_config(name, config, None, replace=True)

    async def patch_connector_config(self, name: str, patch: Mapping[str, str | None]) -> dict[str, Any]:
        """Change single properties (KIP-477); null removes one."""
        await self.ctx.lead()
        while True:
            await self.ctx.require_connector(name)
            before = self.ctx.snapshot.connectors[name]
            merged = {key: value for key, value in {**before, **patch, "name": name}.items() if value is not None}
            await self._refuse_invalid(merged)
            async with lock_of(self.ctx.config_locks, name):
                if self.ctx.snapshot.connectors.get(name) == before:
                    await self.ctx.node.leader.write([connector_record(name, merged)])
                    break
            # Somebody has changed or deleted it while this was checked: what is patched is what they made of it.
        return await self.connector_info(name)

    async def delete_connector(self, name: str) -> None:
        """Delete a connector; its offsets stay, its requests for snapshots and its verification go."""
        await self.ctx.lead()
        async with lock_of(self.ctx.config_locks, name):
            await self.ctx.require_connector(name)
            instructions = [instructions_record(name, [])] if self.snapshots.instructions(name) else []
            await self.ctx.node.leader.write(
                [connector_record(name, None), target_state_record(name, None)],
                [*instructions, *self.verifications.deletion_records(name)],
            )
            await self.verifications.forget_verification(name)

    async def set_target_state(self, name: str, state: str) -> None:
        """Start, pause or stop a connector."""
        await self.ctx.lead()
        async with lock_of(self.ctx.config_locks, name):
            if name not in self.ctx.snapshot.connectors:
                raise RestError(404, f"Unknown connector {name}")
            target = _TARGETS[state]
            # Without tasks first: a STOPPED connector that still had some would confuse.
            drop = [commit_record(name, 0)] if target == "STOPPED" and self.ctx.snapshot.task_configs(name) else []
            await self.ctx.node.leader.write([*drop, target_state_record(name, target)])

    async def restart_connector(self, name: str) -> None:
        """Restart the connector's own instance, on whichever worker it is."""
        await self.ctx.catch_up(name)
        if name not in self.ctx.snapshot.connectors:
            raise RestError(404, f"Unknown connector: {name}")
        self._restart_here(Unit(name, INSTANCE))

    async def restart_task(self, name: str, task: int) -> None:
        """Restart one task, on whichever worker it is."""
        await self.ctx.catch_up(name)
        if name not in self.ctx.snapshot.connectors:
            raise RestError(404, f"Unknown connector: {name}")
        if task not in self.ctx.snapshot.tasks.get(name, {}):
            raise RestError(404, f"Unknown task: {name}-{task}")
        if task >= len(self.ctx.snapshot.task_configs(name)):
            # It was one of the connector's tasks before a stop or a smaller set; Kafka Connect finds no worker that runs it.
            raise RestError(409, NO_OWNER_TEXT)
        self._restart_here(Unit(name, task))

    async def restart_connector_and_tasks(self, name: str, *, include_tasks: bool, only_failed: bool) -> dict[str, Any]:
        """Restart by plan (KIP-745)."""
        await self.ctx.lead()
        if name not in self.ctx.snapshot.connectors:
            raise RestError(404, f"Unknown connector: {name}")
        request = RestartRequest(name, include_tasks, only_failed)
        body = await self.connector_status(name)
        state = self.ctx.node.status.state
        # A task that the connector no longer has may still have a status: its host has not ended it yet.
        tasks = {task: status for task, status in state.tasks(name).items() if task < len(body["tasks"])}
        for unit in restart_plan(request, state.connector(name), tasks):
            shown_state = body["connector"] if unit.task == INSTANCE else body["tasks"][unit.task]
            shown_state["state"] = "RESTARTING"
        await self.ctx.node.leader.write([restart_record(request)])
        return body

    # Between workers.

    def session_key(self) -> SigningKey | None:
        """The key that requests between workers are signed with."""
        return self.ctx.node.session_key()

    def signature_algorithms(self) -> Sequence[str]:
        """Algorithms accepted from other workers."""
        algorithms: list[str] = self.ctx.config["inter.worker.verification.algorithms"]
        return algorithms

    async def put_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Write the task configurations that a connector asked for, in one transaction with their commit."""
        await self.ctx.lead()
        # A request to stop that is being written would leave the connector stopped, and with tasks.
        async with lock_of(self.ctx.config_locks, name):
            config = self.ctx.snapshot.connectors.get(name)
            if config is None or self.ctx.snapshot.target_state(name) == "STOPPED":
                return
            tasks = restore_references(configs, config)
            await self.ctx.node.leader.write(
                [
                    *(task_record(name, task, task_config) for task, task_config in enumerate(tasks)),
                    commit_record(name, len(tasks)),
                ]
            )

    async def fence_zombies(self, name: str) -> None:
        """Fence the producers of earlier task generations."""
        await self.ctx.lead()
        await self.ctx.node.leader.fencing.fence(name)

    async def set_cluster_level(self, name: str, level: str) -> None:
        """Set a logger's level on all workers."""
        await self.admin.set_log_level(name, level, cluster=True)

    # Parts.

    async def _put_config(
        self, name: str, config: Mapping[str, str], target: TargetStateName | None, *, replace: bool
    ) -> tuple[bool, dict[str, Any]]:
        await self.ctx.lead()
        await self._refuse_invalid(config)
        state = [] if target is None else [target_state_record(name, target)]
        # Two that create it at once are one after the other: the second finds it.
        async with lock_of(self.ctx.config_locks, name):
            exists = name in self.ctx.snapshot.connectors
            if exists and not replace:
                raise RestError(409, f"Connector {name} already exists")
            await self.ctx.node.leader.write([*state, connector_record(name, dict(config))])
        return not exists, await self.connector_info(name)

    async def _refuse_invalid(self, config: Mapping[str, str]) -> None:
        infos = await self.ctx.ask_validation(dict(config), None)
        if not infos["error_count"]:
            return
        lines = [message for item in infos["configs"] for message in item["value"]["errors"]]
        raise RestError(
            400,
            f"Connector configuration is invalid and contains the following {infos['error_count']} error(s):\n"
            + "\n".join(lines)
            + "\nYou can also find the above list of errors at the endpoint "
            "`/connector-plugins/{connectorType}/config/validate`",
        )

    def _restart_here(self, unit: Unit) -> None:
        owner = self.ctx.node.placement.table.owner(unit)
        if owner == self.ctx.node.me:
            self.ctx.node.reconciler.restart([unit])
            return
        url = self.ctx.node.owner_url(unit)
        if url is None:
            raise RestError(409, REBALANCE_TEXT)
        raise NotLeader(url)


def _show_status(status: ReportedStatus | None) -> dict[str, Any]:
    if status is None:
        return {"state": "UNASSIGNED", "worker_id": ""}
    shown: dict[str, Any] = {"state": status.state, "worker_id": status.worker_id}
    if status.trace:
        shown["trace"] = status.trace
    if status.version is not None:
        shown["version"] = status.version
    return shown
