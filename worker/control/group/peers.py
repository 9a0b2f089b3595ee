"""Workers that have ended without leaving the group: found by their refused connections, long before their session is over.

A worker keeps a connection open to the REST addresses of a few others. When a worker's process is killed, the kernel of its
machine closes them at once and refuses new ones, which a machine that hangs, or can't be reached, never does. Then the
worker is put out of the group: the others of the group begin a new generation. This finds out, it decides nothing: a worker
that lives joins again before its units may run elsewhere (``takeover_s``), and producers are fenced as ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from yarl import URL

from connectors.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from worker.control.group.membership import GroupView, WorkerMember

_log = logging.getLogger("worker.membership")
#: How many others a worker watches: each is watched by as many, so that the loss of one is seen though another is lost too.
_WATCHED: Final = 3
#: The number of refusals in a row, and the seconds between them, that mean that the process has ended.
_REFUSALS: Final = 4
_APART_S: Final = 0.1
_CONNECT_S: Final = 2.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


class PeerConnection(Protocol):
    """An open connection to another worker, over which nothing is sent.

    Attributes:
        address: the host and port that accepted it.
    """

    address: tuple[str, int]

    async def wait_closed(self) -> None:
        """Return when the other side has ended it."""

    def close(self) -> None:
        """Close this side; does not block."""


class SocketConnection:
    """A TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.address: tuple[str, int] = writer.get_extra_info("peername")[:2]

    async def wait_closed(self) -> None:
        """Return when the other side has ended it."""
        with contextlib.suppress(OSError):
            while await self._reader.read(1024):
                pass

    def close(self) -> None:
        """Close this side; does not block."""
        self._writer.close()


async def open_peer(host: str, port: int) -> PeerConnection:
    """Connect to another worker.

    Raises:
        ConnectionRefusedError: its machine says that nothing listens there.
        OSError: it can't be reached.
    """
    return SocketConnection(*await asyncio.open_connection(host, port))


def watched_peers(members: Mapping[str, WorkerMember], me: str) -> dict[str, WorkerMember]:
    """The members that a worker watches, those that follow it in the order of their ids, by Kafka's names for them. Pure."""
    others = sorted(
        (worker_id for worker_id in members if worker_id != me), key=lambda worker_id: (worker_id < me, worker_id)
    )
    return {
        members[worker_id].member_id: members[worker_id]
        for worker_id in others[:_WATCHED]
        if members[worker_id].member_id and not members[worker_id].draining
    }


class PeerWatch:
    """Watches other workers, and has those put out of the group whose processes have ended.

    Args:
        me: this worker's incarnation.
        put_out: leaves the group on behalf of a member; returns whether Kafka has counted it out.
        connect: see ``open_peer``.
    """

    def __init__(
        self,
        me: str,
        put_out: Callable[[WorkerMember], Awaitable[bool]],
        connect: Callable[[str, int], Awaitable[PeerConnection]] = open_peer,
    ) -> None:
        self._me = me
        self._ask_out = put_out
        self._connect = connect
        self._watches: dict[str, asyncio.Task[None]] = {}
        #: Incarnations that this worker has put out. One that comes back lives, whatever its address says.
        self._put_out: set[str] = set()
        self._stopped = False

    def see(self, view: GroupView) -> None:
        """Watch the members of a new view, unless the watches have been ended; does not block."""
        if self._stopped:
            return
        me = next((member.worker_id for member in view.members.values() if member.incarnation == self._me), None)
        watched = {} if me is None else watched_peers(view.members, me)
        for member_id in self._watches.keys() - watched.keys():
            self._watches.pop(member_id).cancel()
        for member_id, member in watched.items():
            if member_id in self._watches:
                continue
            if member.incarnation in self._put_out:
                _log.warning(
                    "Worker %s lives though its address refused connections: from now on only its session counts",
                    member.worker_id,
                )
                continue
            self._watches[member_id] = asyncio.create_task(self._watch(member), name=f"peer-{member.worker_id}")

    async def stop(self) -> None:
        """End all watches, for good."""
        self._stopped = True
        watches = list(self._watches.values())
        self._watches.clear()
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    async def _watch(self, member: WorkerMember) -> None:
        """Hold a connection to a member, until its process has ended."""
        url = URL(member.url)
        if url.host is None or url.port is None:
            return
        pauses = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        accepted: tuple[str, int] | None = None
        while True:
            with contextlib.suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(_CONNECT_S):
                    connection = await self._connect(url.host, url.port)
                accepted = connection.address
                began = time.monotonic()
                try:
                    await connection.wait_closed()
                finally:
                    connection.close()
                if time.monotonic() - began > _LONGEST_PAUSE_S:
                    pauses.reset()
            # An address that never accepted a connection of this worker may refuse them for any reason.
            if accepted is not None and await self._refuses(accepted):
                _log.warning(
                    "Worker %s has closed its connections and refuses new ones: it is put out of the group",
                    member.worker_id,
                )
                self._put_out.add(member.incarnation)
                if await self._ask_out(member):
                    return
                self._put_out.discard(member.incarnation)
            await asyncio.sleep(pauses.next_s())

    async def _refuses(self, address: tuple[str, int]) -> bool:
        """Whether an address refuses all of some connections; silence does not count."""
        for number in range(_REFUSALS):
            if number:
                await asyncio.sleep(_APART_S)
            try:
                async with asyncio.timeout(_CONNECT_S):
                    connection = await self._connect(*address)
            except ConnectionRefusedError:
                continue
            except OSError:
                return False
            connection.close()
            return False
        return True
