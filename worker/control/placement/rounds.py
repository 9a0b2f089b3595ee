"""The leader's rounds of placement: what it placed before, and why some units are where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.api import LABELS_KEY, NODE_KEY, TOGETHER_KEY
from worker.control.placement.planning import (
    INSTANCE,
    Unit,
    Worker,
    place_units,
    read_requirement,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offsets.cluster import ClusterSnapshot
    from worker.control.group.membership import WorkerMember
    from worker.control.placement.planning import Placement, Requirement
    from worker.control.placement.table import PlacementTable, Slot


def wanted_units(snapshot: ClusterSnapshot) -> dict[Unit, Requirement]:
    """Every unit that shall be placed, with what it needs of its worker. Pure."""
    units: dict[Unit, Requirement] = {}
    for name, config in snapshot.connectors.items():
        needed = read_requirement(config)
        units[Unit(name, INSTANCE)] = needed
        for task, task_config in enumerate(snapshot.task_configs(name)):
            # A task may ask for another node than its connector does; its own word counts.
            asks = NODE_KEY in task_config or LABELS_KEY in task_config
            units[Unit(name, task)] = read_requirement({**config, **task_config}) if asks else needed
    return units


def groups_of(snapshot: ClusterSnapshot) -> dict[Unit, str]:
    """The groups of tasks that share a worker, by task. Pure."""
    return {
        Unit(name, task): config[TOGETHER_KEY]
        for name in snapshot.connectors
        for task, config in enumerate(snapshot.task_configs(name))
        if config.get(TOGETHER_KEY)
    }


class PlacementRounds:
    """Places the units of the cluster, round by round.

    Attributes:
        reasons: why units are where they are.
        moves: units that went from one live worker to another while this one led.
        pending: units that are on their way or nowhere.
    """

    def __init__(self) -> None:
        self.reasons: dict[Unit, str] = {}
        self.moves = 0
        self.pending = 0
        self._nowhere = 0
        self._placed_for: frozenset[tuple[str, str, bool]] = frozenset()
        self._intended: dict[Unit, str] = {}

    def restart(self) -> None:
        """This worker begins to lead: another one may have placed since."""
        self._placed_for = frozenset()
        self._intended = {}

    def assign_units(
        self, members: Mapping[str, WorkerMember], snapshot: ClusterSnapshot, table: PlacementTable
    ) -> Placement:
        """Place every unit on ``members``, by worker id."""
        workers = {
            worker_id: Worker(member.capacity, member.labels, member.draining) for worker_id, member in members.items()
        }
        present = frozenset((worker_id, member.incarnation, member.draining) for worker_id, member in members.items())
        previous = {**self._intended, **table.placed()}
        for unit, worker in self._intended.items():
            slot = table.get(unit)
            if slot is not None and (slot.revoked or slot.owner.worker != worker):
                previous[unit] = worker  # it is on its way there
        units = wanted_units(snapshot)
        placement = place_units(
            units,
            workers,
            previous,
            rebalance=present != self._placed_for,
            together=groups_of(snapshot),
        )
        self._nowhere = len(units) - len(placement.assigned)
        self.reasons.update(placement.reasons)
        for unit in self.reasons.keys() - units.keys():
            del self.reasons[unit]
        self._placed_for = present
        self._intended = placement.assigned
        return placement

    def count(self, table: PlacementTable, placement: Placement, changes: dict[str, dict[int, Slot]]) -> None:
        """Count what ``changes`` of the table bring about."""
        self.pending = self._nowhere + sum(
            slot.revoked for slots in (table.slots | changes).values() for slot in slots.values()
        )
        self.moves += sum(
            slot.revoked and table.get(Unit(name, task)) != slot and Unit(name, task) in placement.assigned
            for name, slots in changes.items()
            for task, slot in slots.items()
        )
