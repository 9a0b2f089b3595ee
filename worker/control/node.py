"""This worker: its input from the cluster's topics and from its hosts, and the reports that it writes.

Everything here runs on the control process's loop and blocks nowhere. The decisions are in pure modules (``placement``,
``table``, ``desired_runs``, ``reconciler.plan``); this one only carries facts between them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from offsets.records import (
    ReportedStatus,
    TopicStatus,
    connector_status_record,
    task_status_record,
    topic_status_record,
)
from worker.control.numbers import WorkerNumbers
from worker.control.placement.desired_runs import DesiredRuns, awaiting_fencing, find_connector_runs, restart_plan
from worker.control.placement.planning import INSTANCE, Unit
from worker.control.placement.reconciler import PluginChoice
from worker.control.placement.table import SlotOwner
from worker.control.reports import MemberReports
from worker.control.task_configs import TaskConfigSubmission
from worker.metrics.windows import HostNumbers, TaskTable
from worker.protocol import HostTaskId, SetLogLevel, TopicForgotten
from worker.rest.security.signing import SigningKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from offsets.cluster import ConfigChange
    from offsets.records import Pair, RestartRequest
    from offsets.store import OffsetStore
    from worker.control.group.membership import Contact, GroupView
    from worker.control.host_process import HostProcess
    from worker.control.hosts import HostPool
    from worker.control.leader import LeaderDuties
    from worker.control.placement.reconciler import DesiredRun, Reconciler
    from worker.control.plugins import PluginWatch
    from worker.control.state.stores import ConfigStore, PlacementStore, StatusStore
    from worker.logs import LoggerRegistry
    from worker.metrics.exporter import WorkerStats
    from worker.protocol import ActiveTopic, ConnectorStateChanged, Stats, TaskConfigs, TaskStateChanged
    from worker.rest.forwarding import WorkerClient

_log = logging.getLogger(__name__)
_OFFSETS_DEADLINE_S: Final = 30.0


class WorkerNode:
    """Glue between the cluster's state, this worker's hosts, and the leader.

    Attributes:
        worker_id: ``host:port`` of this worker, as in statuses.
        incarnation: differs for every start of the process.
        draining: whether it hands its work over to other workers.
        fenced: whether it runs nothing, because it is not in contact with Kafka (any more, or yet).
    """

    config: ConfigStore
    placement: PlacementStore
    status: StatusStore
    offsets: OffsetStore
    leader: LeaderDuties
    pool: HostPool
    plugins: PluginWatch
    reconciler: Reconciler
    client: WorkerClient

    def __init__(
        self,
        worker_id: str,
        incarnation: str,
        loggers: LoggerRegistry,
        *,
        exactly_once: bool,
        put_task_configs: Callable[[str, list[dict[str, str]]], Awaitable[None]],
    ) -> None:
        self.worker_id = worker_id
        self.incarnation = incarnation
        self.loggers = loggers
        self.numbers = WorkerNumbers(worker_id)
        self.tasks = TaskTable()
        #: With Kafka's group coordinator, once there is any.
        self.contact: Contact | None = None
        self.draining = False
        self.fenced = True
        self.caught_up = False
        self.view: GroupView | None = None
        self._exactly_once = exactly_once
        self.submission = TaskConfigSubmission(self, put_task_configs)
        self._background: set[asyncio.Task[None]] = set()
        self._reports = MemberReports(self)
        self._desired_runs = DesiredRuns()

    @property
    def stats(self) -> WorkerStats:
        """This worker's counters."""
        return self.numbers.stats

    @property
    def me(self) -> SlotOwner:
        """This process as an owner of units."""
        return SlotOwner(self.worker_id, self.incarnation)

    def start(self) -> None:
        """Begin to report; does not block."""
        self.numbers.start()
        self._reports.start()

    async def stop(self) -> None:
        """End background work."""
        self.numbers.stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(self._reports.stop(), self.submission.stop(), *self._background, return_exceptions=True)

    # What the cluster says.

    def see(self, view: GroupView) -> None:
        """Take over a new view of the group."""
        self.view = view
        stats = self.stats
        stats.rebalances += 1
        stats.last_rebalance_at = time.time()
        stats.epoch = view.generation
        stats.members = len(view.members)
        stats.leader_name = view.leader.worker_id
        _log.info(
            "Generation %d of the group: %s; %s leads",
            view.generation,
            ", ".join(sorted(view.members)),
            view.leader.worker_id,
        )
        self.leader.see(view)
        self.reconciler.wake()

    def config_changed(self, change: ConfigChange) -> None:
        """A record of the config topic came."""
        self.leader.wake()
        self.reconciler.wake()
        if change.kind == "restart" and change.restart is not None:
            self._restart_units(change.restart)
        elif change.kind == "logger" and change.level is not None:
            self._set_level(change.name, change.level)
        elif change.kind in ("connector", "removed", "tasks", "target_state"):
            self._settle_instance(change.name)
            self.submission.submit(change.name)

    def placement_changed(self) -> None:
        """Records of the placement topic came."""
        self.stats.placement_version = self.placement.table.epoch
        self.leader.wake()
        self.reconciler.wake()
        self._reports.wake()

    def _restart_units(self, request: RestartRequest) -> None:
        state = self.status.state
        units = restart_plan(request, state.connector(request.connector), state.tasks(request.connector))
        mine = [unit for unit in units if self.placement.table.owner(unit) == self.me]
        for unit in mine:
            self.put_status(unit, "RESTARTING", self._unit_epoch(unit))
        self.reconciler.restart(mine)

    def set_level(self, name: str, level: str) -> list[str]:
        """Set a logger's level in this worker's processes; returns the loggers of this one that changed."""
        affected = self.loggers.set(name, level)
        self._spawn_task(self.pool.tell_all(SetLogLevel(name, level), 5))
        return affected

    def _set_level(self, name: str, level: str) -> None:
        try:
            self.set_level(name, level)
        except ConfigInvalid as error:
            _log.warning("The config topic asks for a level of logger %s that can't be set: %s", name, error)

    # What shall run here (reconciler.Listener).

    def desired_runs(self) -> Mapping[Unit, DesiredRun]:
        """Return the units that shall run here now."""
        if self.fenced or not self.caught_up:
            return {}
        assigned = self.placement.table.assigned_to(self.me)
        desired_runs = self._desired_runs.find(assigned, self.config.snapshot, self._encode_instructions)
        instances = [name for name, epochs in assigned.items() if INSTANCE in epochs]
        self.stats.assigned_connectors = len(instances)
        self.stats.assigned_tasks = sum(map(len, assigned.values())) - len(instances)
        for name in instances:
            if Unit(name, INSTANCE) not in desired_runs:
                self._settle_instance(name)
        # A task whose host died is in neither set: no process reports that it has stopped.
        here = desired_runs.keys() | self.reconciler.local_runs.keys()
        if gone := [task_id for task_id in self.tasks.tasks if Unit(task_id.connector, task_id.task) not in here]:
            self.tasks.forget(gone)
        return desired_runs

    def _encode_instructions(self, name: str, config: Mapping[str, str]) -> bytes:
        """The instructions of a connector's tasks: operators' requests, its rule set, whether a verification waits."""
        asked = self.placement.rules.instructions(name, config, self.placement.instructions.encoded(name))
        return self.placement.verifications.instructions(name, asked)

    def _is_desired(self, unit: Unit) -> bool:
        """Whether one unit shall run here now. ``desired_runs`` looks at all: too slow for thousands that stop at once."""
        if self.fenced or not self.caught_up or self.placement.table.owner(unit) != self.me:
            return False
        return unit in find_connector_runs(unit.connector, {unit.task: 0}, self.config.snapshot)

    def choose(self, desired: DesiredRun) -> PluginChoice | None:
        """Choose the plugins that a unit shall run with; None while plugins are still being examined."""
        selection = self.plugins.select({**desired.connector_config, **(desired.config or {})})
        if selection.problems and self.plugins.pending:
            return None
        problem = selection.problem or ""
        if problem and selection.connector is None:
            problem += (
                f". If the connector's package has yet to be installed on {self.worker_id}: put it into a folder of "
                "plugin.path, then restart the connector"
            )
        return PluginChoice(
            selection.environments, "" if selection.connector is None else selection.connector.version, problem
        )

    def unready(self) -> frozenset[Unit]:
        """Units that must wait for fencing."""
        if not self._exactly_once:
            return frozenset()
        return awaiting_fencing(self.placement.table.assigned_to(self.me), self.config.snapshot)

    def refused(self, unit: Unit, desired: DesiredRun, error: str) -> None:
        """A host refused to start a unit."""
        self.numbers.count_start(unit, failed=True)
        self.put_status(unit, "FAILED", desired.epoch, error)

    def stopped(self, unit: Unit, desired: DesiredRun, *, in_time: bool) -> None:
        """A unit has stopped here."""
        del in_time
        if unit.task == INSTANCE:
            self.submission.forget(unit.connector)
        if self._is_desired(unit):
            return  # it starts again
        if unit.task != INSTANCE:
            self.tasks.forget([HostTaskId(*unit)])
        snapshot = self.config.snapshot
        if unit.connector not in snapshot.connectors:
            self.forget_status(unit)
        elif unit.task == INSTANCE and snapshot.target_state(unit.connector) == "STOPPED":
            self._settle_instance(unit.connector)
        elif unit.task == INSTANCE or snapshot.task_config(*unit) is not None:
            self.put_status(unit, "UNASSIGNED", desired.epoch)
        else:
            self.forget_status(unit)

    def changed(self) -> None:
        """Handle a change of the set of units that run here."""
        self._reports.wake()

    def _settle_instance(self, name: str) -> None:
        """Write the status of a stopped connector's instance, if this worker owns it: the instance itself runs nowhere."""
        unit = Unit(name, INSTANCE)
        snapshot = self.config.snapshot
        if (
            name not in snapshot.connectors
            or snapshot.target_state(name) != "STOPPED"
            or unit in self.reconciler.local_runs
            or self.placement.table.owner(unit) != self.me
        ):
            return
        current = self.status.state.connector(name)
        if current is None or current.state != "STOPPED" or current.worker_id != self.worker_id:
            self.put_status(unit, "STOPPED", self._unit_epoch(unit))

    # What hosts say (hosts.Events).

    def host_ready(self, host: HostProcess) -> None:
        """A host can take units."""
        self.tasks.hosts.setdefault(host.number, HostNumbers()).environment = host.label
        self.reconciler.wake()

    def host_retired(self, host: HostProcess) -> None:
        """A host with other environments has ended because nothing needed it."""
        self.tasks.forget_host(host.number)
        self.reconciler.wake()

    def plugins_changed(self) -> None:
        """Plugins were added or removed."""
        self.reconciler.wake()

    def host_died(
        self, host: HostProcess, units: frozenset[Unit], culprit: Unit | None, reason: str, details: str
    ) -> None:
        """A host has ended: restart its units as the policy allows, and write that into their statuses."""
        numbers = self.tasks.hosts.setdefault(host.number, HostNumbers())
        numbers.up = False
        numbers.restarts += 1
        numbers.stuck += host.stuck is not None
        epochs = {
            unit: local_run.desired.epoch
            for unit in units
            if (local_run := self.reconciler.local_runs.get(unit)) is not None
        }
        for unit, will_restart in self.reconciler.host_died(host, units, culprit).items():
            if self.placement.table.owner(unit) != self.me:
                self.tasks.forget([HostTaskId(*unit)])
                continue  # placed elsewhere meanwhile: its status is the other worker's
            blame = "" if culprit is None or culprit == unit else f"; {culprit} is to blame"
            count = self.reconciler.crash_count(unit)
            tried = f" (crash {count} within ten minutes)" if count else ""
            stacks = f"\n{details}" if details and unit == culprit else ""
            if unit.task != INSTANCE:
                self.tasks.set_state(HostTaskId(*unit), "RESTARTING" if will_restart else "FAILED")
            if will_restart:
                self.put_status(unit, "RESTARTING", epochs[unit], f"{reason}{blame}{tried}; it starts again{stacks}")
            else:
                self.put_status(
                    unit,
                    "FAILED",
                    epochs[unit],
                    f"{reason}{tried}: this happened too often, it is not "
                    f"started again. Fix the cause, then restart it{stacks}",
                )

    def stats_came(self, host: HostProcess, event: Stats) -> None:
        """Take over the numbers that a host reports."""
        self.tasks.observe(host.number, event, time.monotonic())
        self.numbers.observe_group()

    def task_state(self, host: HostProcess, event: TaskStateChanged) -> None:
        """A task's state changed."""
        self._report_state(host, Unit(event.id.connector, event.id.task), event.state, event.generation, event.trace)

    def connector_state(self, host: HostProcess, event: ConnectorStateChanged) -> None:
        """A connector instance's state changed."""
        self._report_state(host, Unit(event.name, INSTANCE), event.state, event.generation, event.trace)

    def _report_state(self, host: HostProcess, unit: Unit, state: str, generation: int, trace: str | None) -> None:
        local_run = self.reconciler.local_runs.get(unit)
        if local_run is None or local_run.host is not host:
            return  # of a run that is over
        if state == "STOPPED":
            return  # the answer to the stop request tells
        local_run.failed = state == "FAILED"
        self.numbers.count_state(unit, local_run, state)
        if local_run.failed:
            _log.error("%s failed: %s", unit, trace)
        self.put_status(unit, state, generation, trace)

    def task_configs(self, host: HostProcess, event: TaskConfigs) -> None:
        """A connector says what its tasks are; the leader writes it down."""
        local_run = self.reconciler.local_runs.get(Unit(event.name, INSTANCE))
        if local_run is None or local_run.host is not host:
            return
        self.submission.note(event.name, event.configs)

    def active_topic(self, event: ActiveTopic) -> None:
        """A task wrote to a topic for the first time."""
        name = event.id.connector
        if event.topic not in self.status.state.topics(name) and name in self.config.snapshot.connectors:
            self.status.put(
                topic_status_record(
                    name, event.topic, TopicStatus(event.topic, name, event.id.task, int(time.time() * 1000))
                )
            )

    def topic_gone(self, connector: str, topic: str) -> None:
        """An active topic was removed (a reset): the connector's tasks here report it again when they next use it."""
        local_runs = self.reconciler.local_runs
        for host in {local_runs[unit].host for unit in self._tasks_of(connector) if unit in local_runs}:
            host.event(TopicForgotten(connector, topic))

    def _tasks_of(self, connector: str) -> list[Unit]:
        """The tasks that a connector has now; to search all that runs here for them takes too long for many topics."""
        return [Unit(connector, task) for task in range(len(self.config.snapshot.task_configs(connector)))]

    async def read_offsets(self, connector: str) -> list[tuple[bytes, bytes]]:
        """All saved offsets of a connector, read to the topic's end.

        Exactly once needs all that the task's predecessor has committed, which may stand behind the open transaction of any
        other task: of one that was killed, for instance, until its own successor aborts it.
        """
        await self.offsets.read_to_end(_OFFSETS_DEADLINE_S, open_transactions=self._exactly_once)
        return self.offsets.raw(connector)

    def lease(self) -> float:
        """Return the monotonic time until which no other worker can have been given this worker's units."""
        return 0.0 if self.contact is None or self.fenced else self.contact.trusted_until

    # Statuses.

    def put_status(self, unit: Unit, state: str, generation: int, trace: str | None = None) -> None:
        """Write a unit's status soon."""
        config = self.config.snapshot.connectors.get(unit.connector, {})
        version = self.version(unit, config) or None
        status = ReportedStatus(state, self.worker_id, generation, trace, version)  # type: ignore[arg-type]  # hosts use these names
        if (local_run := self.reconciler.local_runs.get(unit)) is not None:
            local_run.status = status
        self._put_record(unit, status)

    def status_gone(self, connector: str, task: int | None) -> None:
        """The status of a connector, with its tasks', or of one task was removed or replaced: report again.

        The worker that removes a status may not know yet that the connector was recreated. When a connector's status is
        deleted, all workers also forget the statuses of its tasks. The previous owner of a unit, or the leader in its place,
        may be late and write after the new owner. A status is only written when it changes, so no one else would correct it.
        """
        if task is None:
            shown = self.status.state.connector(connector)
            if shown is not None and shown.state == "UNASSIGNED":
                self._settle_instance(connector)
        instance = Unit(connector, INSTANCE)
        for unit in (instance, *self._tasks_of(connector)) if task is None else (Unit(connector, task),):
            local_run = self.reconciler.local_runs.get(unit)
            if local_run is not None and local_run.status is not None and self._is_overwritten(unit, local_run.status):
                self._put_record(unit, local_run.status)

    def _is_overwritten(self, unit: Unit, status: ReportedStatus) -> bool:
        """Whether what this worker wrote of a unit that shall run here is no longer there."""
        state = self.status.state
        shown = state.connector(unit.connector) if unit.task == INSTANCE else state.task(unit.connector, unit.task)
        written = self.status.written(_status_record(unit, None)[0])
        late = (
            written is not None
            and written.generation <= status.generation
            # A worker that was started again has the name of the one before, whose units the leader gave up.
            and (written.worker_id != self.worker_id or written.state == "UNASSIGNED" != status.state)
        )
        return (shown is None or late) and self._is_desired(unit)

    def _put_record(self, unit: Unit, status: ReportedStatus | None) -> None:
        self.status.put(_status_record(unit, status))

    def version(self, unit: Unit, config: Mapping[str, str]) -> str:
        """Return the version of a unit's connector: the one that runs, or the one that would run; "" if it has no version."""
        local_run = self.reconciler.local_runs.get(unit)
        if local_run is not None and local_run.version:
            return local_run.version
        plugin = self.plugins.catalog.connector(config)
        return "" if plugin is None else plugin.version

    def forget_status(self, unit: Unit) -> None:
        """Remove a unit's status."""
        self._put_record(unit, None)

    def _unit_epoch(self, unit: Unit) -> int:
        slot = self.placement.table.get(unit)
        return self.placement.table.epoch if slot is None else slot.epoch

    def session_key(self) -> SigningKey | None:
        """The key that requests between workers are signed with."""
        saved_key = self.config.snapshot.session_key
        return None if saved_key is None else SigningKey(saved_key.key, saved_key.algorithm)

    def owner_url(self, unit: Unit) -> str | None:
        """REST address of the worker that runs a unit, or None if none does."""
        owner = self.placement.table.owner(unit)
        member = None if owner is None or self.view is None else self.view.members.get(owner.worker)
        return None if member is None else member.url

    def _spawn_task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _status_record(unit: Unit, status: ReportedStatus | None) -> Pair:
    """The record of a unit's status."""
    if unit.task == INSTANCE:
        return connector_status_record(unit.connector, status)
    return task_status_record(unit.connector, unit.task, status)
