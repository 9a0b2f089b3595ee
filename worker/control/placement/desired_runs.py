"""From placement and configuration to what shall run on this worker, and how. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.control.placement.planning import INSTANCE, Unit
from worker.control.placement.reconciler import DesiredRun
from worker.control.state.instructions import NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offsets.cluster import ClusterSnapshot
    from offsets.records import ReportedStatus, RestartRequest


def find_desired_runs(
    assigned: Mapping[Unit, int],
    snapshot: ClusterSnapshot,
    instructions: Callable[[str, Mapping[str, str]], bytes] = lambda *_: NONE,
) -> dict[Unit, DesiredRun]:
    """Return the desired run of each unit that shall run.

    Tasks run by the connector configuration that was in effect when their own was written: a changed connector
    restarts them once, when it has said what its tasks are now, and not twice.

    Args:
        assigned: units that are placed here, with their epochs.
        snapshot: the config topic's state.
        instructions: of the tasks of a connector with this configuration, as JSON.
    """
    desired_runs: dict[Unit, DesiredRun] = {}
    tasks: dict[str, list[dict[str, str]]] = {}
    for unit, epoch in assigned.items():
        name = unit.connector
        config = snapshot.connectors.get(name)
        target = snapshot.target_state(name)
        if config is None or target == "STOPPED":
            continue
        paused = target == "PAUSED"
        created_offset = snapshot.creation_offsets.get(name, -1)
        if unit.task == INSTANCE:
            desired_runs[unit] = DesiredRun(config, None, epoch, paused, created_offset=created_offset)
            continue
        configs = tasks.get(name)
        if configs is None:
            configs = tasks[name] = snapshot.task_configs(name)
        if unit.task < len(configs):
            applied = snapshot.applied.get(name, config)
            desired_runs[unit] = DesiredRun(
                applied, configs[unit.task], epoch, paused, instructions(name, applied), created_offset
            )
    return desired_runs


def awaiting_fencing(desired_runs: Iterable[Unit], snapshot: ClusterSnapshot) -> frozenset[Unit]:
    """Tasks that must not start before the producers of their predecessors are fenced (exactly once)."""
    if not snapshot.pending_fencing:
        return frozenset()
    return frozenset(
        unit for unit in desired_runs if unit.task != INSTANCE and unit.connector in snapshot.pending_fencing
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
