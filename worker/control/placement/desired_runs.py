"""From placement and configuration to what shall run on this worker, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.control.placement.planning import INSTANCE, Unit
from worker.control.placement.reconciler import DesiredRun
from worker.control.state.instructions import NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offsets.cluster import ClusterSnapshot
    from offsets.records import ReportedStatus, RestartRequest


class DesiredRuns:
    """How the units of this worker shall run: worked out again only for connectors of which something has changed.

    A worker may have thousands of units, and each that starts or stops asks for a look at all of them.
    """

    def __init__(self) -> None:
        #: Connector -> all that its desired runs depend on, and the runs.
        self._last: dict[str, tuple[tuple[object, ...], dict[Unit, DesiredRun]]] = {}

    def find(
        self,
        assigned: Mapping[str, Mapping[int, int]],
        snapshot: ClusterSnapshot,
        instructions: Callable[[str, Mapping[str, str]], bytes],
    ) -> dict[Unit, DesiredRun]:
        """Return the desired run of each unit that shall run.

        Args:
            assigned: the tasks of each connector that are placed here, with their epochs.
            snapshot: the config topic's state.
            instructions: of the tasks of a connector with this configuration, as JSON.
        """
        desired_runs: dict[Unit, DesiredRun] = {}
        for name, epochs in assigned.items():
            config = snapshot.connectors.get(name)
            if config is None:
                continue
            asked = instructions(name, snapshot.applied.get(name, config))
            facts = (epochs, asked, *snapshot.facts(name))
            last = self._last.get(name)
            if last is None or last[0] != facts:
                last = self._last[name] = facts, find_connector_runs(name, epochs, snapshot, asked)
            desired_runs.update(last[1])
        for name in self._last.keys() - assigned.keys():
            del self._last[name]
        return desired_runs


def find_connector_runs(
    name: str, epochs: Mapping[int, int], snapshot: ClusterSnapshot, instructions: bytes = NONE
) -> dict[Unit, DesiredRun]:
    """Return the desired run of each unit of a connector that shall run. Pure.

    Tasks run by the connector configuration that was in effect when their own was written: a changed connector
    restarts them once, when it has said what its tasks are now, and not twice.

    Args:
        name: the connector.
        epochs: of the tasks that are placed here.
        snapshot: the config topic's state.
        instructions: of its tasks, as JSON.
    """
    config = snapshot.connectors.get(name)
    target = snapshot.target_state(name)
    if config is None or target == "STOPPED":
        return {}
    paused = target == "PAUSED"
    created_offset = snapshot.creation_offsets.get(name, -1)
    applied = snapshot.applied.get(name, config)
    desired_runs: dict[Unit, DesiredRun] = {}
    for task, epoch in epochs.items():
        if task == INSTANCE:
            desired = DesiredRun(config, None, epoch, paused, created_offset=created_offset)
        elif (task_config := snapshot.task_config(name, task)) is not None:
            desired = DesiredRun(applied, task_config, epoch, paused, instructions, created_offset)
        else:
            continue
        desired_runs[Unit(name, task)] = desired
    return desired_runs


def awaiting_fencing(assigned: Mapping[str, Iterable[int]], snapshot: ClusterSnapshot) -> frozenset[Unit]:
    """Tasks that must not start before the producers of their predecessors are fenced (exactly once)."""
    return frozenset(
        Unit(name, task) for name in snapshot.pending_fencing for task in assigned.get(name, ()) if task != INSTANCE
    )


def restart_plan(
    request: RestartRequest, connector: ReportedStatus | None, tasks: Mapping[int, ReportedStatus]
) -> list[Unit]:
    """The units a restart request is about (KIP-745)."""
    units = []
    if connector is not None and (not request.only_failed or connector.state == "FAILED"):
        units.append(Unit(request.connector, INSTANCE))
    if request.include_tasks:
        units.extend(
            Unit(request.connector, task)
            for task, status in sorted(tasks.items())
            if not request.only_failed or status.state == "FAILED"
        )
    return units


def need_new_configs(new_configs: list[dict[str, str]], snapshot: ClusterSnapshot, name: str) -> bool:
    """Whether the task configurations a connector asks for have to be written."""
    config = snapshot.connectors.get(name)
    if config is None or snapshot.target_state(name) == "STOPPED":
        return False
    return (
        name in snapshot.inconsistent
        or name not in snapshot.task_counts
        or snapshot.task_configs(name) != new_configs
        or snapshot.applied.get(name) != config
    )


def restore_references(task_configs: Iterable[Mapping[str, str]], config: Mapping[str, str]) -> list[dict[str, str]]:
    """Task configurations with the connector's references to config providers put back: no secret gets into the topic."""
    references = {name: value for name, value in config.items() if "${" in value}
    return [{**task, **{name: value for name, value in references.items() if name in task}} for task in task_configs]
