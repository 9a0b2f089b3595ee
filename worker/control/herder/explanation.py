"""``GET /connectors/NAME/explain``: why each unit is where it is, or why it isn't running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.config.job_config import tasks_note
from worker.control.placement.planning import INSTANCE, Unit, summarize_load

if TYPE_CHECKING:
    from offsets.cluster import ClusterSnapshot
    from offsets.records import ReportedStatus
    from worker.control.node import WorkerNode
    from worker.control.placement.table import Slot


def explain_connector(node: WorkerNode, name: str, *, exactly_once: bool, sink: bool = False) -> dict[str, Any]:
    """The answer's body, from the leader's point of view."""
    snapshot = node.config.snapshot
    state = node.status.state
    table = node.placement.table
    reasons = node.leader.rounds.reasons
    instance = Unit(name, INSTANCE)
    tasks = [Unit(name, task) for task in range(len(snapshot.task_configs(name)))]
    members = {} if node.view is None else node.view.members
    return {
        "name": name,
        "target_state": snapshot.target_state(name),
        "notes": connector_notes(snapshot, name, exactly_once=exactly_once, sink=sink),
        "connector": explain_unit(
            table.get(instance), state.connector(name), reasons.get(instance), node.reconciler.waiting(instance)
        ),
        "tasks": [
            {
                "id": unit.task,
                **explain_unit(
                    table.get(unit), state.task(name, unit.task), reasons.get(unit), node.reconciler.waiting(unit)
                ),
            }
            for unit in tasks
        ],
        "workers": [
            {
                "worker_id": worker_id,
                "draining": member.draining,
                "labels": member.labels,
                "capacity": member.capacity,
                **counts,
            }
            for worker_id, counts in sorted(summarize_load(table.placed(), list(members)).items())
            if (member := members.get(worker_id)) is not None
        ],
        "leader": None if node.view is None else node.view.leader.worker_id,
    }


def connector_notes(snapshot: ClusterSnapshot, name: str, *, exactly_once: bool, sink: bool = False) -> list[str]:
    """Return the notes that apply to the connector as a whole. Pure."""
    remarks = []
    if snapshot.target_state(name) != "STARTED":
        remarks.append(f"Its target state is {snapshot.target_state(name)}: someone paused or stopped it.")
    if name in snapshot.inconsistent:
        remarks.append(
            "Its task configurations in the config topic are incomplete: it has no tasks until it writes them again."
        )
    elif name not in snapshot.task_counts:
        remarks.append("It has not said yet what its tasks are.")
    elif snapshot.task_counts[name] == 0:
        remarks.append("It has no tasks.")
    if exactly_once and name in snapshot.pending_fencing:
        remarks.append("Its tasks start as soon as the producers of their predecessors are fenced (exactly once).")
    if sink:
        remarks.extend(f"{note}." for note in tasks_note(snapshot.connectors.get(name, {})))
        remarks.append(f"How far it is: GET /connectors/{name}/progress.")
    return remarks


def _trace_cause(trace: str) -> str:
    """The line of a trace that says what happened: the first one, or the last error where a Python trace begins with it."""
    lines = trace.strip().splitlines()
    if lines and lines[0].startswith("Traceback (most recent call"):
        last = max(index for index, line in enumerate(lines) if line.startswith("Traceback (most recent call"))
        lines = [line for line in lines[last + 1 :] if not line.startswith(" ")] or lines
    return next(iter(lines), "")


def explain_unit(
    slot: Slot | None,
    status: ReportedStatus | None,
    reason: str | None,
    waiting: str | None,
) -> dict[str, Any]:
    """One unit's place, state and reasons. Pure."""
    body: dict[str, Any] = {
        "worker_id": None if slot is None else slot.owner.worker,
        "state": "UNASSIGNED" if status is None else status.state,
        "placement": reason or (None if slot is None else "it was placed there under an earlier leader"),
    }
    if slot is None:
        body["why_not_running"] = reason or "it is not placed yet"
    elif slot.revoked:
        body["why_not_running"] = f"{slot.owner.worker} has to stop it before another worker may start it"
    elif status is None or status.state == "UNASSIGNED":
        body["why_not_running"] = waiting or f"{slot.owner.worker} has not started it yet"
    elif status.state == "FAILED":
        body["why_not_running"] = f"it failed: {_trace_cause(status.trace or '') or 'without a trace'}"
    elif status.state == "RESTARTING":
        body["why_not_running"] = waiting or _trace_cause(status.trace or "") or "it is being restarted"
    elif waiting is not None:
        body["why_not_running"] = waiting
    return body
