"""The client of REST in a simulation: what it asked, what was acknowledged, and what must be true for that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import MillraceError
from offsets.cluster import ClusterState
from tests.simulation.schedule import MOST_TASKS, NAMES, Event
from tests.simulation.verification import is_scheduled
from worker.control.placement.planning import INSTANCE, Unit
from worker.control.state.instructions import InstructionTable
from worker.control.state.rule_sets import RuleTable
from worker.control.state.verifications import RUNNING, VerificationTable
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offsets.cluster import ClusterSnapshot
    from tests.simulation.world import World

_TARGETS: Final = {"pause": "PAUSED", "resume": "STARTED", "stop": "STOPPED"}
#: A client repeats what had no answer, or was refused for a moment.
_ATTEMPTS: Final = 5
#: Of a connector's properties.
_PATCHED: Final = frozenset({"count", "version", "tasks.max"})
_PAUSE_S: Final = 1.5
#: Refusals by which the client knows that nothing was changed.
_REFUSED: Final = frozenset({400, 404})
_REFUSALS: Final = ("already exists", "is used by")


@dataclass
class Belief:
    """A client's belief of one value: what was acknowledged last, and what may have been written instead."""

    acknowledged: Any = None
    possible: set[Any] = field(default_factory=set)

    def allows(self, value: Any) -> bool:
        """Whether the value can be true."""
        return value == self.acknowledged or value in self.possible


def snapshot_of(world: World) -> ClusterSnapshot:
    """The config topic as it is in Kafka."""
    state = ClusterState()
    for log in world.kafka.topics.get("configs", ()):
        for offset, key, value in log.records(committed=True):
            state.apply(offset, key, value)
    return state.snapshot()


@dataclass
class Requested:
    """The requests of REST that the placement topic keeps, as they are in Kafka.

    Attributes:
        instructions: requests to connectors.
        rules: rule sets.
        verifications: the last one of each connector.
    """

    instructions: InstructionTable = field(default_factory=InstructionTable)
    rules: RuleTable = field(default_factory=RuleTable)
    verifications: VerificationTable = field(default_factory=VerificationTable)

    def of_tasks(self, name: str, config: Mapping[str, str]) -> bytes:
        """The instructions that the tasks of a connector must have."""
        asked = self.rules.instructions(name, config, self.instructions.encoded(name))
        return self.verifications.instructions(name, asked)


def requested_of(world: World) -> Requested:
    """Read them from the model of Kafka."""
    requested = Requested()
    for log in world.kafka.topics.get("configs-placement", ()):
        for _, key, value in log.records(committed=True):
            for table in (requested.instructions, requested.rules, requested.verifications):
                table.apply(key, value)
    return requested


def _make_rules(number: int) -> dict[str, Any]:
    """A small rule set that is like no other."""
    steps = [{"saveAs": {"columns": [{"name": "line"}]}}]
    return {"tables": [{"name": f"lines{number}", "groups": [{"name": "all", "steps": steps}]}]}


def _make_restart(name: str, number: int) -> tuple[str, list[Any], dict[str, Any], list[Unit]]:
    """One of the calls that restart something: the method, its arguments, and the units that it restarts in any case."""
    tasks = [Unit(name, task) for task in range(MOST_TASKS)]
    instance = Unit(name, INSTANCE)
    if number % 4 == 0:
        return "restart_task", [name, 0], {}, tasks[:1]
    if number % 4 == 1:
        return "restart_connector", [name], {}, [instance]
    only_failed = number % 4 == 2
    named = {"include_tasks": True, "only_failed": only_failed}
    return "restart_connector_and_tasks", [name], named, [] if only_failed else [instance, *tasks]


class Client:
    """Sends the requests of a schedule, one after the other for each connector.

    Args:
        world: whom it asks.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._queues: dict[str, asyncio.Queue[tuple[int, Event]]] = {name: asyncio.Queue() for name in NAMES}
        self._tasks = [world.loop.run_in(world.client, self._serve(name), name=f"client-{name}") for name in NAMES]
        self._count = 0
        self.versions = {name: Belief() for name in NAMES}
        self.targets = {name: Belief("STARTED") for name in NAMES}
        #: Rule set of a connector's name -> what was saved last, and all that was acknowledged.
        self.rules = {name: Belief() for name in NAMES}
        self._saved: dict[str, set[str]] = {name: set() for name in NAMES}
        #: Connector -> the request that started its last verification, and whether one may run.
        self.verifications = {name: Belief() for name in NAMES}
        self.verifying = {name: Belief(False) for name in NAMES}
        #: Connectors that a configuration may have had that asks for verifications.
        self._scheduled: set[str] = set()
        #: Connector -> id of a snapshot -> whether it is asked for.
        self.snapshots: dict[str, dict[str, Belief]] = {name: {} for name in NAMES}
        #: When the last acknowledged request to restart a unit was sent.
        self.restarts: dict[Unit, float] = {}
        self.idle = dict.fromkeys(NAMES, True)
        self.acknowledged = 0

    def ask(self, event: Event) -> None:
        """Send a request soon."""
        self._count += 1
        name = NAMES[event.first % len(NAMES)]
        self.idle[name] = False
        self._queues[name].put_nowait((self._count, event))

    def done(self) -> bool:
        """Whether all requests have been answered."""
        return all(self.idle.values())

    async def _serve(self, name: str) -> None:
        while True:
            number, event = await self._queues[name].get()
            await self._send(name, number, event)
            self.idle[name] = self._queues[name].empty()

    async def _send(self, name: str, number: int, event: Event) -> None:
        loop, kind = self._world.loop, event.kind.removeprefix("request ")
        worker = self._world.workers[event.second % len(self._world.workers)]
        version, target = str(number), _TARGETS.get(kind)
        config = self._world.connector_config(name, 1 + number % MOST_TASKS, version)
        named = {"force": True, "comment": version} if kind == "rules" else {}
        calls: dict[str, tuple[Any, ...]] = {
            "create": ("create_connector", name, config, None),
            "change": ("put_connector_config", name, config),
            "patch": ("patch_connector_config", name, {key: config[key] for key in _PATCHED & config.keys()}),
            "delete": ("delete_connector", name),
            "restart": ("restart_connector_and_tasks", name),
            "offsets": ("offsets.reset_connector_offsets", name),
            "snapshot": ("snapshots.create_snapshot", name, {"id": version}),
            "forget": ("snapshots.delete_snapshot", name, self._choose_snapshot(name, event.second)),
            "rules": ("rules.put_rules", name, _make_rules(number)),
            "drop rules": ("rules.delete_rules", name),
            "verify": ("verifications.start_verification", name, {"tables": version, "repair": number % 2 == 0}),
            "cancel": ("verifications.cancel_verification", name),
        }
        method, *arguments = calls.get(kind, ("set_target_state", name, target))
        restarted: list[Unit] = []
        if kind == "restart":
            method, arguments, named, restarted = _make_restart(name, number)
        loop.note(f"{kind} {name} (request {number}) to {worker.name}")
        sent_at = loop.time()
        changed = self._possible(name, kind, version if kind != "forget" else arguments[-1], target)
        for attempt in range(_ATTEMPTS):
            try:
                await self._world.request(worker, method, *arguments, **named)
            except (MillraceError, TimeoutError, OSError) as error:
                loop.note(f"request {number}: {error!r}"[:200])
                if isinstance(error, RestError) and (
                    error.status in _REFUSED or any(refusal in str(error) for refusal in _REFUSALS)
                ):
                    return
                # It may be done all the same, now or later.
                for belief, value in changed:
                    belief.possible.add(value)
            else:
                self._acknowledged(name, number, changed)
                self.restarts |= dict.fromkeys(restarted, sent_at)
                return
            worker = self._world.workers[(event.second + attempt) % len(self._world.workers)]
            await asyncio.sleep(_PAUSE_S)

    def _acknowledged(self, name: str, number: int, changed: list[tuple[Belief, Any]]) -> None:
        self._world.loop.note(f"request {number} is acknowledged")
        self.acknowledged += 1
        for belief, value in changed:
            belief.acknowledged = value
            if belief is self.rules[name] and value is not None:
                self._saved[name].add(value)
        self._check(name, f"when request {number} is acknowledged")

    def _choose_snapshot(self, name: str, number: int) -> str:
        ids = list(self.snapshots[name])
        return ids[number % len(ids)] if ids else "unknown"

    def _possible(self, name: str, kind: str, version: str, target: str | None) -> list[tuple[Belief, Any]]:
        """The beliefs that a request changes, with their new values.

        Args:
            name: of the connector.
            kind: of the request.
            version: of the configuration, or the id of a snapshot.
            target: the state that is asked for.
        """
        versions, targets, snapshots = self.versions[name], self.targets[name], self.snapshots[name]
        if kind == "snapshot":
            # A delete that was not answered may come later still, and take it along.
            return [(snapshots.setdefault(version, Belief(False, {False} if versions.allows(None) else set())), True)]
        if kind == "forget":
            return [(snapshots[version], False)] if version in snapshots else []
        verification, verifying = self.verifications[name], self.verifying[name]
        if kind == "rules":
            return [(self.rules[name], version)]
        if kind == "drop rules":
            self._saved[name].clear()
            return [(self.rules[name], None)]
        if kind == "verify":
            gone = {None} if versions.allows(None) else set()
            verification.possible |= gone
            return [(verification, version), (verifying, True)]
        if kind == "cancel":
            return [(verifying, False)]
        if kind in ("create", "change", "patch"):
            if kind != "patch" and is_scheduled(version):
                self._scheduled.add(name)
            return [(versions, version)]
        if kind == "delete":
            false = (verifying, *snapshots.values())
            return [
                (versions, None),
                (targets, "STARTED"),
                (verification, None),
                *((belief, False) for belief in false),
            ]
        return [] if target is None else [(targets, target)]

    def _check(self, name: str, moment: str) -> None:
        snapshot = snapshot_of(self._world)
        config = snapshot.connectors.get(name)
        version = None if config is None else config["version"]
        if not self.versions[name].allows(version):
            self._world.watch.fail(
                f"{moment}, connector {name} has version {version}; {self.versions[name].acknowledged} was acknowledged"
            )
        target = snapshot.target_state(name)
        if config is not None and not self.targets[name].allows(target):
            self._world.watch.fail(
                f"{moment}, connector {name} is {target}; {self.targets[name].acknowledged} was acknowledged"
            )
        requested = requested_of(self._world)
        asked = {row["id"] for row in requested.instructions.get(name)}
        for snapshot_id, belief in self.snapshots[name].items():
            if not belief.allows(snapshot_id in asked):
                self._world.watch.fail(
                    f"{moment}, snapshot {snapshot_id} of {name} is {'' if snapshot_id in asked else 'not '}asked for; "
                    f"{belief.acknowledged} was acknowledged"
                )

        self._check_rules(name, moment, requested.rules)
        self._check_verification(name, moment, requested.verifications)

    def _check_rules(self, name: str, moment: str, table: RuleTable) -> None:
        saved = table.versions(name)
        comments = [version.comment for version in saved]
        if [version.version for version in saved] != list(range(1, len(saved) + 1)):
            self._world.watch.fail(f"{moment}, the rule set {name} has the versions {saved}")
        if not self.rules[name].allows(comments[-1] if comments else None) or not self._saved[name] <= set(comments):
            self._world.watch.fail(
                f"{moment}, the rule set {name} was saved by the requests {comments}; {self.rules[name].acknowledged} "
                f"and before it {self._saved[name]} were acknowledged"
            )

    def _check_verification(self, name: str, moment: str, table: VerificationTable) -> None:
        body = table.get(name)
        if body is not None and not body["tables"] and name in self._scheduled:
            return
        belief = self.verifications[name]
        if not belief.allows(None if body is None else body["tables"]):
            self._world.watch.fail(
                f"{moment}, the verification of {name} is {body}; {belief.acknowledged} was acknowledged"
            )
        if body is not None and body["state"] == RUNNING and not self.verifying[name].allows(True):
            self._world.watch.fail(f"{moment}, a verification of {name} runs that was cancelled")

    def check_all(self) -> None:
        """All acknowledged changes must be there."""
        for name in NAMES:
            self._check(name, "at the end")
