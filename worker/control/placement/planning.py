"""The placement of units: a pure function of the units that shall run, the live workers, and the previous placement.

A *unit* is a connector's own instance or one of its tasks. Rules, in this order:
1. A unit runs only where it may (labels), never on a worker that drains; no unit is lost or placed twice.
2. What is placed stays, unless its worker has gone or ``rebalance`` says that the set of workers changed.
3. A unit without a worker goes to the least loaded one; the tasks of one connector spread.
4. With ``rebalance``, as few units as possible move until no worker has two more than another (relative to its capacity).
5. Tasks of one group (``TOGETHER_KEY``) run on one worker and count as one unit in all of the above.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.api import LABELS_KEY, NODE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: ``Unit.task`` of a connector's own instance.
INSTANCE: Final = -1
#: The label that ``millrace.node`` is compared with, in addition to the worker's host and id.
_NODE_LABEL: Final = "node"
#: Values by which a label says that the worker is not what the label's name says.
_NOT: Final = frozenset({"", "no", "false"})
#: How many of a worker's connectors are looked at to choose the one that gives a task away.
_CANDIDATES: Final = 16


class Unit(NamedTuple):
    """A connector's instance (``task`` is ``INSTANCE``) or a task."""

    connector: str
    task: int

    def __str__(self) -> str:
        return self.connector if self.task == INSTANCE else f"{self.connector}-{self.task}"


#: Labels a unit needs; empty for anywhere.
Requirement = frozenset[tuple[str, str]]
ANYWHERE: Final[Requirement] = frozenset()


@dataclass(frozen=True, slots=True)
class Worker:
    """A live worker as placement sees it."""

    capacity: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """The result: a worker for each unit that may run somewhere; reasons for those that are not simply left where they were."""

    assigned: dict[Unit, str]
    reasons: dict[Unit, str]


def read_requirement(config: Mapping[str, str]) -> Requirement:
    """Return the requirement that a connector's or task's configuration has for its worker."""
    needed: set[tuple[str, str]] = set()
    node = config.get(NODE_KEY, "").strip()
    if node:
        needed.add((NODE_KEY, node))
    for item in config.get(LABELS_KEY, "").split(","):
        name, separator, value = item.partition("=")
        if separator:
            needed.add((name.strip(), value.strip()))
    return frozenset(needed)


def is_match(needed: Requirement, worker_id: str, labels: Mapping[str, str]) -> bool:
    """Whether a worker has all that is ``needed``.

    A node is a worker's id, its host, its label ``node``, or the name of any of its labels: a worker that stands for several
    nodes has a label for each (``cass-2=yes,cass-3=yes``).
    """
    for name, value in needed:
        if name == NODE_KEY:
            if (
                value not in (worker_id, worker_id.rpartition(":")[0], labels.get(_NODE_LABEL))
                and labels.get(value, "").lower() in _NOT
            ):
                return False
        elif labels.get(name) != value:
            return False
    return True


def place_units(
    requirements: Mapping[Unit, Requirement],
    workers: Mapping[str, Worker],
    previous: Mapping[Unit, str],
    *,
    rebalance: bool,
    together: Mapping[Unit, str] | None = None,
) -> Placement:
    """Place every unit.

    Args:
        requirements: the units that shall be placed, each with what it needs.
        workers: live workers by id.
        previous: where units were placed; may name workers and units that are gone.
        rebalance: whether units may move to even the load out (the set of workers has changed).
        together: the groups of units that share a worker, by unit.
    """
    groups: dict[str, list[Unit]] = {}
    for unit, group in sorted((together or {}).items()):
        if unit in requirements:
            groups.setdefault(group, []).append(unit)
    if not groups:
        return _place_units(requirements, workers, previous, rebalance=rebalance)
    # A group is placed as one unit, under a name that no connector has.
    members = {Unit(f"\0{group}", 0): units for group, units in groups.items()}
    grouped = {unit for units in members.values() for unit in units}
    alone: dict[Unit, Requirement] = {unit: needed for unit, needed in requirements.items() if unit not in grouped}
    before = dict(previous)
    for unit, units in members.items():
        alone[unit] = frozenset[tuple[str, str]]().union(*(requirements[member] for member in units))
        counts = Counter(sorted(previous[member] for member in units if previous.get(member) in workers))
        if counts:
            before[unit] = counts.most_common(1)[0][0]
    placement = _place_units(alone, workers, before, rebalance=rebalance)
    assigned, reasons = dict(placement.assigned), dict(placement.reasons)
    for unit, units in members.items():
        target, reason = assigned.pop(unit, None), reasons.pop(unit, "")
        name = unit.connector[1:]
        for member in units:
            if target is not None:
                assigned[member] = target
                if previous.get(member) != target:
                    reasons[member] = f"it runs on {target} with all of {name}" + (f": {reason}" if reason else "")
            else:
                reasons[member] = f"all of {name} runs on one worker, and {reason}"
    return Placement(assigned, reasons)


def _place_units(
    needs: Mapping[Unit, Requirement], workers: Mapping[str, Worker], previous: Mapping[Unit, str], *, rebalance: bool
) -> Placement:
    """``place_units`` for units that nothing holds together."""
    chooser = _Chooser(workers)
    reasons: dict[Unit, str] = {}
    homeless: list[Unit] = []
    tasks, instances = _Loads(workers), _Loads(workers)
    for unit, needed in needs.items():
        before = previous.get(unit)
        if before is not None and before in chooser.eligible(needed):
            (instances if unit.task == INSTANCE else tasks).add(unit, before)
        else:
            homeless.append(unit)
    for unit in sorted(homeless):
        eligible = chooser.eligible(needs[unit])
        if not eligible:
            reasons[unit] = _why_nowhere(needs[unit], workers)
            continue
        load, other_loads = (instances, tasks) if unit.task == INSTANCE else (tasks, instances)
        target = load.least(unit, eligible, other_loads, spread_first=not rebalance)
        load.add(unit, target)
        before = previous.get(unit)
        reasons[unit] = (
            f"it was placed on {target}, the least loaded of {len(eligible)} workers that may run it"
            if before is None
            else f"it went to {target}, the least loaded: {before} " + _why_left(before, workers)
        )
    if rebalance:
        for load in (tasks, instances):
            for unit, source, target in _even_out(load, needs, chooser):
                reasons[unit] = f"it moved from {source} to {target} to even the load out"
    return Placement({**tasks.where, **instances.where}, reasons)


def _why_nowhere(needed: Requirement, workers: Mapping[str, Worker]) -> str:
    if not workers:
        return "no worker is there"
    if not needed:
        return "every worker is draining"
    explanation = "no worker that is not draining has " + ", ".join(f"{name}={value}" for name, value in sorted(needed))
    node = dict(needed).get(NODE_KEY)
    # Labels themselves name what is missing; a node can be named in several ways.
    return (
        explanation
        if node is None
        else (
            f"{explanation}: start one on the host {node}, or add {node}=yes (or {_NODE_LABEL}={node}) to the node.labels "
            "of the worker that shall run it"
        )
    )


def _why_left(worker_id: str, workers: Mapping[str, Worker]) -> str:
    worker = workers.get(worker_id)
    if worker is None:
        return "is gone"
    return "is draining" if worker.draining else "no longer has what it needs"


class _Chooser:
    """Finds the workers that may run a unit; remembers the answer per requirement."""

    def __init__(self, workers: Mapping[str, Worker]) -> None:
        self._workers = workers
        self._eligible_workers: dict[Requirement, frozenset[str]] = {}

    def eligible(self, needed: Requirement) -> frozenset[str]:
        eligible_workers = self._eligible_workers.get(needed)
        if eligible_workers is None:
            eligible_workers = self._eligible_workers[needed] = frozenset(
                worker_id
                for worker_id, worker in self._workers.items()
                if not worker.draining and is_match(needed, worker_id, worker.labels)
            )
        return eligible_workers


class _Loads:
    """Units of one kind per worker, in all and per connector."""

    def __init__(self, workers: Mapping[str, Worker]) -> None:
        self.where: dict[Unit, str] = {}
        self.count = dict.fromkeys(workers, 0)
        self.capacity = {worker_id: max(1, worker.capacity) for worker_id, worker in workers.items()}
        self._siblings: dict[str, dict[str, int]] = {worker_id: {} for worker_id in workers}

    def add(self, unit: Unit, worker: str) -> None:
        self.where[unit] = worker
        self.count[worker] += 1
        siblings = self._siblings[worker]
        siblings[unit.connector] = siblings.get(unit.connector, 0) + 1

    def take(self, unit: Unit) -> None:
        worker = self.where.pop(unit)
        self.count[worker] -= 1
        self._siblings[worker][unit.connector] -= 1

    def siblings(self, connector: str, worker: str) -> int:
        return self._siblings[worker].get(connector, 0)

    def least(self, unit: Unit, eligible: Iterable[str], other_loads: _Loads, *, spread_first: bool) -> str:
        """The worker to take one more unit; of equal ones that with fewer units of the other kind."""

        def load(worker: str) -> float:
            return (self.count[worker] + 1) / self.capacity[worker]

        def spread(worker: str) -> float:
            return (self.siblings(unit.connector, worker) + 1) / self.capacity[worker]

        if spread_first:
            return min(eligible, key=lambda worker: (spread(worker), load(worker), other_loads.count[worker], worker))
        return min(eligible, key=lambda worker: (load(worker), spread(worker), other_loads.count[worker], worker))


def _even_out(load: _Loads, requirements: Mapping[Unit, Requirement], chooser: _Chooser) -> list[tuple[Unit, str, str]]:
    """Move units from the most to the least loaded workers while that makes the load more even; returns the moves.

    A unit moves at most once: each move goes to a worker that has less after it than the giver had before it.
    """
    moves: dict[Unit, tuple[str, str]] = {}
    classes = {chooser.eligible(needed) for needed in set(requirements.values())}
    for eligible in sorted(classes, key=lambda workers: (len(workers), sorted(workers))):
        # Within a set of workers every one of its units may go to any of them.
        if len(eligible) < 2:
            continue
        givers = _Givers(load, requirements, chooser, eligible)
        while True:
            target = min(eligible, key=lambda worker: ((load.count[worker] + 1) / load.capacity[worker], worker))
            floor = (load.count[target] + 1) / load.capacity[target]
            source = givers.most_loaded(floor)
            if source is None:
                break
            unit = givers.give(source, target)
            if unit is None:
                continue
            load.take(unit)
            load.add(unit, target)
            moves[unit] = (moves[unit][0] if unit in moves else source, target)
            givers.note(unit, target)
    return [(unit, source, target) for unit, (source, target) in moves.items() if source != target]


class _Givers:
    """The workers of one class of units, and which of its units each would give away first."""

    def __init__(
        self, load: _Loads, requirements: Mapping[Unit, Requirement], chooser: _Chooser, eligible: frozenset[str]
    ) -> None:
        self._load = load
        self._movable: dict[str, dict[str, list[Unit]]] = {worker: {} for worker in sorted(eligible)}
        for unit, worker in sorted(load.where.items()):
            if worker in eligible and chooser.eligible(requirements[unit]) >= eligible:
                self._movable[worker].setdefault(unit.connector, []).append(unit)
        self._heaps = {
            worker: [(-len(units), connector) for connector, units in movable.items()]
            for worker, movable in self._movable.items()
        }
        for heap in self._heaps.values():
            heapq.heapify(heap)

    def most_loaded(self, floor: float) -> str | None:
        """The worker with the most per capacity that has something to give, if it has more than ``floor``."""
        candidates = [worker for worker, heap in self._heaps.items() if heap]
        if not candidates:
            return None
        source = max(candidates, key=lambda worker: (self._load.count[worker] / self._load.capacity[worker], worker))
        return source if self._load.count[source] / self._load.capacity[source] > floor else None

    def give(self, source: str, target: str) -> Unit | None:
        """Take the unit whose move spreads its connector best; None if a stale entry was met."""
        heap, movable = self._heaps[source], self._movable[source]
        looked: list[tuple[int, str]] = []
        while heap and len(looked) < _CANDIDATES:
            count, connector = heapq.heappop(heap)
            if connector in movable and len(movable[connector]) == -count:
                looked.append((count, connector))
        if not looked:
            return None
        best = min(
            looked,
            key=lambda entry: (self._load.siblings(entry[1], target) - self._load.siblings(entry[1], source), entry),
        )
        units = movable[best[1]]
        unit = units.pop()
        for entry in looked:
            if entry is not best:
                heapq.heappush(heap, entry)
        if units:
            heapq.heappush(heap, (-len(units), best[1]))
        else:
            del movable[best[1]]
        return unit

    def note(self, unit: Unit, worker: str) -> None:
        """``unit`` is on ``worker`` now and could be given on."""
        units = self._movable[worker].setdefault(unit.connector, [])
        units.append(unit)
        heapq.heappush(self._heaps[worker], (-len(units), unit.connector))


def summarize_load(assigned: Mapping[Unit, str], workers: Sequence[str]) -> dict[str, dict[str, int]]:
    """Connectors and tasks per worker, for logs and ``explain``."""
    result = {worker: {"connectors": 0, "tasks": 0} for worker in workers}
    for unit, worker in assigned.items():
        counts = result.setdefault(worker, {"connectors": 0, "tasks": 0})
        counts["connectors" if unit.task == INSTANCE else "tasks"] += 1
    return result
