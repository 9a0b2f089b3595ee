"""The placement topic: what is assigned to whom right now, and the hand-over of a unit from one live worker to another.

Two kinds of records, both JSON:
- ``placement-CONNECTOR``, written by the leader: a slot per unit of the connector, in the order instance, task 0, task 1 ...
- ``member-WORKER``, written by that worker: how far it has read placements, and what it still has to stop.

A unit goes from a live worker to another in two steps: the leader *revokes* it; the worker stops it and says so by its member
record; only then the leader assigns it again. A worker that is gone is not asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from worker.control.placement.planning import INSTANCE, Unit

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

_PLACEMENT: Final = "placement-"
_MEMBER: Final = "member-"


class SlotOwner(NamedTuple):
    """One process of a worker: a restarted worker is another owner."""

    worker: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a unit is.

    Attributes:
        owner: the process it is assigned to, or, when ``revoked``, the one that has to stop it.
        epoch: the publication in which that was decided.
        revoked: whether it is being taken away.
    """

    owner: SlotOwner
    epoch: int
    revoked: bool = False


class WorkerReport(msgspec.Struct, frozen=True):
    """A worker's report about itself.

    Attributes:
        incarnation: its process.
        seen: the last epoch it acted on.
        stopping: units (connector, task) that are no longer its own but still run there.
    """

    incarnation: str
    seen: int
    stopping: frozenset[tuple[str, int]]


class _SlotRow(msgspec.Struct, frozen=True):
    epoch: int
    owners: list[tuple[str, str]]
    #: per unit: index into ``owners`` or -1, epoch, revoked.
    slots: list[tuple[int, int, bool]]


_decode_row: Final = msgspec.json.Decoder(_SlotRow).decode
_decode_report: Final = msgspec.json.Decoder(WorkerReport).decode
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class PlacementTable:
    """The placement topic folded: slots by unit, reports by worker. Nothing blocks."""

    def __init__(self) -> None:
        self.slots: dict[str, dict[int, Slot]] = {}
        self.reports: dict[str, WorkerReport] = {}
        self.epoch = 0
        #: Grows with each record.
        self.version = 0
        #: What was asked for last: whose units, by connector, and the connectors that were changed since.
        self._owner: SlotOwner | None = None
        self._assigned: dict[str, Mapping[int, int]] = {}
        self._changed: set[str] = set()
        #: Connectors of which units are being taken away.
        self._revoking: set[str] = set()

    def apply(self, key: bytes | None, value: bytes | None) -> str | None:
        """Fold one record in; returns the connector whose slots changed, if any. Unreadable records are left out."""
        name = (key or b"").decode(errors="replace")
        self.version += 1
        try:
            if name.startswith(_MEMBER):
                if value is None:
                    self.reports.pop(name[len(_MEMBER) :], None)
                else:
                    self.reports[name[len(_MEMBER) :]] = _decode_report(value)
                return None
            if not name.startswith(_PLACEMENT):
                return None
            connector = name[len(_PLACEMENT) :]
            if value is None:
                self.slots.pop(connector, None)
                self._note_change(connector)
                return connector
            row = _decode_row(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        self.epoch = max(self.epoch, row.epoch)
        owners = [SlotOwner(*owner) for owner in row.owners]
        self.slots[connector] = {
            task: Slot(owners[owner], epoch, revoked)
            for task, (owner, epoch, revoked) in enumerate(row.slots, start=INSTANCE)
            if owner >= 0
        }
        self._note_change(connector)
        return connector

    def _note_change(self, connector: str) -> None:
        self._changed.add(connector)
        self._revoking.discard(connector)
        if any(slot.revoked for slot in self.slots.get(connector, {}).values()):
            self._revoking.add(connector)

    def get(self, unit: Unit) -> Slot | None:
        """The unit's slot."""
        return self.slots.get(unit.connector, {}).get(unit.task)

    def assigned_to(self, owner: SlotOwner) -> Mapping[str, Mapping[int, int]]:
        """The units that ``owner`` shall run now: connector -> task -> the epoch of its assignment.

        It holds until the next call. What it has of a connector is the same object until a record changes the connector.
        """
        if self._owner != owner:
            self._owner, self._assigned, self._changed = owner, {}, set(self.slots)
        for connector in self._changed:
            slots = self.slots.get(connector, {})
            epochs = {task: slot.epoch for task, slot in slots.items() if slot.owner == owner and not slot.revoked}
            if epochs:
                self._assigned[connector] = epochs
            else:
                self._assigned.pop(connector, None)
        self._changed.clear()
        return self._assigned

    def revoked_from(self, owner: SlotOwner) -> list[int]:
        """The epochs in which units were taken away that ``owner`` has to stop, and of which the leader waits to hear."""
        return [
            slot.epoch
            for connector in self._revoking
            for slot in self.slots[connector].values()
            if slot.revoked and slot.owner == owner
        ]

    def owner(self, unit: Unit) -> SlotOwner | None:
        """The process that runs the unit (or is about to), or None."""
        slot = self.get(unit)
        return None if slot is None or slot.revoked else slot.owner

    def placed(self) -> dict[Unit, str]:
        """Unit -> worker of everything that is assigned."""
        return {
            Unit(connector, task): slot.owner.worker
            for connector, slots in self.slots.items()
            for task, slot in slots.items()
            if not slot.revoked
        }


def row_record(connector: str, slots: Mapping[int, Slot], epoch: int) -> tuple[bytes, bytes | None]:
    """The record of a connector's slots; no slots delete it."""
    key = (_PLACEMENT + connector).encode()
    if not slots:
        return key, None
    owners = sorted({slot.owner for slot in slots.values()})
    index = {owner: number for number, owner in enumerate(owners)}
    row = [
        (index[slots[task].owner], slots[task].epoch, slots[task].revoked) if task in slots else (-1, 0, False)
        for task in range(INSTANCE, max(slots) + 1)
    ]
    return key, _encode(_SlotRow(epoch, [(owner.worker, owner.incarnation) for owner in owners], row))


def report_record(worker: str, report: WorkerReport | None) -> tuple[bytes, bytes | None]:
    """The record of a worker's report."""
    return (_MEMBER + worker).encode(), None if report is None else _encode(report)


def is_released(slot: Slot, unit: Unit, report: WorkerReport | None) -> bool:
    """Whether the owner of a revoked slot has said that it stopped the unit."""
    return (
        report is not None
        and report.incarnation == slot.owner.incarnation
        and report.seen >= slot.epoch
        and unit not in report.stopping
    )


def advance_slots(
    table: PlacementTable, desired: Mapping[Unit, str], live: Mapping[str, str], epoch: int
) -> dict[str, dict[int, Slot]]:
    """The next slots of every connector whose slots change on the way to ``desired``.

    Args:
        table: what is published.
        desired: unit -> worker.
        live: worker -> incarnation of all live workers.
        epoch: number of the next publication.
    """
    connectors: dict[str, dict[int, str]] = {}
    for unit, worker in desired.items():
        connectors.setdefault(unit.connector, {})[unit.task] = worker
    changed: dict[str, dict[int, Slot]] = {}
    for connector in {*table.slots, *connectors}:
        before = table.slots.get(connector, {})
        after = _advance_connector(connector, before, connectors.get(connector, {}), table.reports, live, epoch)
        if after != before:
            changed[connector] = after
    return changed


def _advance_connector(
    connector: str,
    before: Mapping[int, Slot],
    desired: Mapping[int, str],
    reports: Mapping[str, WorkerReport],
    live: Mapping[str, str],
    epoch: int,
) -> dict[int, Slot]:
    after: dict[int, Slot] = {}
    for task in {*before, *desired}:
        slot, desired_worker = before.get(task), desired.get(task)
        fresh = (
            None
            if desired_worker is None or desired_worker not in live
            else Slot(SlotOwner(desired_worker, live[desired_worker]), epoch)
        )
        if slot is None or live.get(slot.owner.worker) != slot.owner.incarnation:
            following = fresh
        elif desired_worker == slot.owner.worker:
            following = fresh if slot.revoked else slot
        elif not slot.revoked:
            following = Slot(slot.owner, epoch, revoked=True)
        elif is_released(slot, Unit(connector, task), reports.get(slot.owner.worker)):
            following = fresh
        else:
            following = slot
        if following is not None:
            after[task] = following
    return after


def lost_units(table: PlacementTable, live: Mapping[str, str]) -> dict[Unit, str]:
    """Unit -> worker of everything whose process is gone."""
    return {
        Unit(connector, task): slot.owner.worker
        for connector, slots in table.slots.items()
        for task, slot in slots.items()
        if live.get(slot.owner.worker) != slot.owner.incarnation
    }


def still_held(assigned: Mapping[str, Container[int]], running: Iterable[Unit]) -> frozenset[tuple[str, int]]:
    """Return the units that a worker has to report as stopping: they run there and are not assigned to it."""
    return frozenset((name, task) for name, task in running if task not in assigned.get(name, ()))
