"""A consumer group of the modelled Kafka: members, generations, sessions (the classic protocol)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tests.simulation.loop import Process, VirtualLoop

NOT_COORDINATOR: Final = 16
ILLEGAL_GENERATION: Final = 22
INCONSISTENT_PROTOCOL: Final = 23
UNKNOWN_MEMBER: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
MEMBER_ID_REQUIRED: Final = 79
#: How long the first generation of a group waits for more members.
_INITIAL_S: Final = 0.3

#: error, generation, protocol, leader, member, members with their metadata.
Joined = tuple[int, int, str, str, str, list[tuple[str, None, bytes]]]
#: error, assignment.
Synced = tuple[int, bytes]


@dataclass
class Member:
    """A member of a group."""

    session_s: float
    rebalance_s: float
    protocols: dict[str, bytes]
    expires: asyncio.TimerHandle | None = None
    joining: Callable[[Joined], None] | None = None
    syncing: Callable[[Synced], None] | None = None
    assignment: bytes = b""


@dataclass
class Group:
    """The group, on whichever broker coordinates it.

    Args:
        loop: for timers.
        process: in which timers run; the cluster replaces it when the coordinator moves.
    """

    loop: VirtualLoop
    process: Process
    name: str
    state: str = "Empty"
    generation: int = 0
    leader: str = ""
    protocol: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    _count: int = 0
    #: Numbers of member ids that were given out and used; an id is good for one membership.
    _used: set[int] = field(default_factory=set)
    _deadline: asyncio.TimerHandle | None = None
    #: What a new coordinator reads: generation, leader, members with protocols and assignments.
    _stored: tuple[int, str, str, dict[str, Member]] = (0, "", "", {})

    def join(
        self,
        member_id: str,
        session_s: float,
        rebalance_s: float,
        protocols: dict[str, bytes],
        reply: Callable[[Joined], None],
    ) -> None:
        """A JoinGroup request."""
        if not member_id:
            self._count += 1
            reply((MEMBER_ID_REQUIRED, -1, "", "", f"{self.name}-{self._count}", []))
            return
        others = [member.protocols for key, member in self.members.items() if key != member_id]
        if any(not protocols.keys() & other.keys() for other in others):
            reply((INCONSISTENT_PROTOCOL, -1, "", "", member_id, []))
            return
        member = self.members.get(member_id)
        if member is None and not member_id.startswith(f"{self.name}-"):
            reply((UNKNOWN_MEMBER, -1, "", "", member_id, []))
            return
        if member is None and int(member_id.rpartition("-")[2]) not in self._awaited():
            reply((UNKNOWN_MEMBER, -1, "", "", member_id, []))
            return
        if member is None:
            self._used.add(int(member_id.rpartition("-")[2]))
            member = self.members[member_id] = Member(session_s, rebalance_s, protocols)
            changed = True
        else:
            changed = member.protocols != protocols
            member.protocols = protocols
            member.session_s, member.rebalance_s = session_s, rebalance_s
        self._cancel(member)
        if self.state == "Stable" and not changed and member_id != self.leader:
            reply(self._joined(member_id))
            self._refresh(member_id)
            return
        if self.state == "Completing" and not changed:
            reply(self._joined(member_id))
            self._refresh(member_id)
            return
        if member.joining is not None:
            member.joining((UNKNOWN_MEMBER, -1, "", "", member_id, []))
        member.joining = reply
        self._prepare()

    def _awaited(self) -> set[int]:
        return set(range(1, self._count + 1)) - self._used

    def _prepare(self) -> None:
        if self.state != "Preparing":
            for member in self.members.values():
                if member.syncing is not None:
                    member.syncing((REBALANCE_IN_PROGRESS, b""))
                    member.syncing = None
            first = self.state == "Empty"
            self.state = "Preparing"
            wait = _INITIAL_S if first else max((member.rebalance_s for member in self.members.values()), default=0)
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = self._later(wait, self._complete)
            if first:
                return
        elif self.generation == 0:
            return  # the initial delay
        if all(member.joining is not None for member in self.members.values()):
            self._complete()

    def _complete(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self.state != "Preparing":
            return
        for member_id in [key for key, member in self.members.items() if member.joining is None]:
            self._remove(member_id)
        self.generation += 1
        if not self.members:
            self.state = "Empty"
            self._store()
            return
        self.state = "Completing"
        common = set.intersection(*(set(member.protocols) for member in self.members.values()))
        self.protocol = min(common)
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        for member_id, member in self.members.items():
            reply, member.joining = member.joining, None
            member.assignment = b""
            self._refresh(member_id)
            if reply is not None:
                reply(self._joined(member_id))
        self._deadline = self._later(max(member.rebalance_s for member in self.members.values()), self._sync_expired)

    def _sync_expired(self) -> None:
        if self.state != "Completing":
            return
        for member_id in [key for key, member in self.members.items() if member.syncing is None]:
            self._remove(member_id)
        self._prepare()

    def _joined(self, member_id: str) -> Joined:
        roster: list[tuple[str, None, bytes]] = (
            [(key, None, member.protocols[self.protocol]) for key, member in self.members.items()]
            if member_id == self.leader
            else []
        )
        return 0, self.generation, self.protocol, self.leader, member_id, roster

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes], reply: Callable[[Synced], None]
    ) -> None:
        """A SyncGroup request."""
        error = self._check(member_id, generation)
        if error:
            reply((error, b""))
        elif self.state == "Preparing":
            reply((REBALANCE_IN_PROGRESS, b""))
        elif self.state == "Stable":
            reply((0, self.members[member_id].assignment))
            self._refresh(member_id)
        else:
            member = self.members[member_id]
            self._cancel(member)
            member.syncing = reply
            if member_id == self.leader:
                self._assign(assignments)

    def _assign(self, assignments: dict[str, bytes]) -> None:
        self.state = "Stable"
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        for member_id, member in self.members.items():
            member.assignment = assignments.get(member_id, b"")
            reply, member.syncing = member.syncing, None
            self._refresh(member_id)
            if reply is not None:
                reply((0, member.assignment))
        self._store()

    def heartbeat(self, member_id: str, generation: int) -> int:
        """A Heartbeat request; returns the error code."""
        error = self._check(member_id, generation)
        if error:
            return error
        self._refresh(member_id)
        return REBALANCE_IN_PROGRESS if self.state == "Preparing" else 0

    def leave(self, member_id: str) -> int:
        """A LeaveGroup request; returns the error code."""
        if member_id not in self.members:
            return UNKNOWN_MEMBER
        self.loop.note(f"member {member_id} leaves the group")
        self._remove(member_id)
        self._changed()
        return 0

    def _check(self, member_id: str, generation: int) -> int:
        if member_id not in self.members:
            return UNKNOWN_MEMBER
        return ILLEGAL_GENERATION if generation != self.generation else 0

    def _refresh(self, member_id: str) -> None:
        member = self.members[member_id]
        self._cancel(member)
        member.expires = self._later(member.session_s, self._expire, member_id, member)

    def _expire(self, member_id: str, member: Member) -> None:
        if self.members.get(member_id) is member and member.joining is None and member.syncing is None:
            self._remove(member_id)
            self._changed()

    def _changed(self) -> None:
        if self.state in ("Stable", "Completing"):
            self._prepare()
        elif (
            self.state == "Preparing"
            and self.generation
            and all(member.joining is not None for member in self.members.values())
        ):
            self._complete()

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._cancel(member)
        for reply in (member.joining, member.syncing):
            if reply is not None:
                reply((UNKNOWN_MEMBER, -1, "", "", member_id, []) if reply is member.joining else (UNKNOWN_MEMBER, b""))  # type: ignore[arg-type]

    @staticmethod
    def _cancel(member: Member) -> None:
        if member.expires is not None:
            member.expires.cancel()
            member.expires = None

    def _later(self, delay_s: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
        return self.loop.call_later(delay_s, callback, *arguments, context=self.loop.context_of(self.process))

    # A new coordinator.

    def _store(self) -> None:
        members = {
            member_id: Member(
                member.session_s, member.rebalance_s, dict(member.protocols), assignment=member.assignment
            )
            for member_id, member in self.members.items()
        }
        self._stored = (self.generation, self.leader, self.protocol, members)

    def move(self, process: Process) -> None:
        """Another broker coordinates the group: it knows what was stored, and members' sessions begin again."""
        self.process = process
        for member_id, member in self.members.items():
            self._cancel(member)
            # A broker that is still there says so; what one that is not would say does not arrive.
            if member.joining is not None:
                member.joining((NOT_COORDINATOR, -1, "", "", member_id, []))
            if member.syncing is not None:
                member.syncing((NOT_COORDINATOR, b""))
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.generation, self.leader, self.protocol, members = self._stored
        self.members = members
        self.state = "Stable" if members else "Empty"
        self._store()
        for member_id in self.members:
            self._refresh(member_id)
