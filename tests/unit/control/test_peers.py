"""Other workers are watched over real sockets: who ends is put out of the group, who is silent or lives is not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.eventually import eventually_async, pass_turns
from worker.control.group.membership import Contact, GroupView, WorkerMember, lately_put_out, takeover_s
from worker.control.group.peers import PeerWatch, watched_peers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


def member(name: str, number: int = 1, port: int = 1, *, draining: bool = False) -> WorkerMember:
    return WorkerMember(
        worker_id=name,
        url=f"http://127.0.0.1:{port}",
        incarnation=f"{name}-process",
        member_id=f"{name}-{number}",
        draining=draining,
    )


def view(*members: WorkerMember) -> GroupView:
    return GroupView(1, {member.worker_id: member for member in members}, members[0])


class Peer:
    """A worker's REST listener."""

    def __init__(self) -> None:
        self.port = 0
        self.connections: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections.append(writer)
            with contextlib.suppress(OSError):
                await reader.read()

        self._server = await asyncio.start_server(accepted, "127.0.0.1", self.port, reuse_address=True)
        self.port = self._server.sockets[0].getsockname()[1]

    def hang_up(self) -> None:
        for connection in self.connections:
            connection.close()
        self.connections.clear()

    def end(self) -> None:
        """As the kernel does for a process that is killed."""
        if self._server is not None:
            self._server.close()
        self.hang_up()


@asynccontextmanager
async def watching(put_out: list[str]) -> AsyncIterator[tuple[PeerWatch, Peer]]:
    async def ask_out(gone: WorkerMember) -> bool:
        put_out.append(gone.member_id)
        return True

    peer, watch = Peer(), PeerWatch("me-process", ask_out)
    await peer.listen()
    try:
        yield watch, peer
    finally:
        await watch.stop()
        peer.end()


async def test_a_worker_whose_process_has_ended_is_put_out() -> None:
    put_out: list[str] = []
    async with watching(put_out) as (watch, peer):
        watch.see(view(member("me"), member("you", port=peer.port)))
        await eventually_async(lambda: bool(peer.connections), "a connection")
        peer.end()
        await eventually_async(lambda: put_out == ["you-1"], "it is put out")


async def test_an_address_that_never_accepted_a_connection_is_no_evidence(caplog: pytest.LogCaptureFixture) -> None:
    """After a wrong guess, too: the worker is back by another of Kafka's names, and its process is not suspected again."""
    put_out: list[str] = []
    async with watching(put_out) as (watch, peer):
        watch.see(view(member("me"), member("you", port=peer.port)))
        await eventually_async(lambda: bool(peer.connections), "a connection")
        peer.end()
        await eventually_async(lambda: bool(put_out), "it is put out")
        await peer.listen()
        watch.see(view(member("me"), member("you", 2, peer.port), member("other", port=peer.port)))
        await eventually_async(lambda: bool(peer.connections), "a connection of the other's watch")
        assert len(peer.connections) == 1
        assert "you lives though its address refused connections" in caplog.text


async def test_a_closed_connection_alone_is_no_evidence() -> None:
    put_out: list[str] = []
    async with watching(put_out) as (watch, peer):
        watch.see(view(member("me"), member("you", port=peer.port)))
        for _ in range(3):
            await eventually_async(lambda: bool(peer.connections), "a connection")
            peer.hang_up()
        await eventually_async(lambda: bool(peer.connections), "another connection")
        assert not put_out


async def test_silence_is_no_evidence() -> None:
    """A listener whose queue is full drops connections, as a machine does that can't be reached."""
    put_out: list[str] = []
    tried: list[tuple[str, int]] = []

    async with watching(put_out) as (_, peer):

        async def ask_out(gone: WorkerMember) -> bool:
            put_out.append(gone.member_id)
            return True

        async def connect(host: str, port: int) -> BriefConnection:
            tried.append((host, port))
            if len(tried) > 1:
                raise OSError("No route to host")
            return BriefConnection((host, port))

        watch = PeerWatch("me-process", ask_out, connect)
        watch.see(view(member("me"), member("you", port=peer.port)))
        await eventually_async(lambda: len(tried) > 4, "it is tried again")
        await watch.stop()
        assert not put_out


class BriefConnection:
    """A connection that ends at once."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    async def wait_closed(self) -> None:
        return

    def close(self) -> None:
        return


async def test_an_address_that_refused_from_the_start_is_asked_on_and_never_put_out() -> None:
    put_out: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with watching(put_out) as (watch, peer):
        watch.see(view(member("me"), member("you", port=port)))
        peer.end()
        peer.port = port
        await pass_turns()
        await peer.listen()
        await eventually_async(lambda: bool(peer.connections), "a connection")
        assert not put_out


def test_each_worker_is_watched_by_as_many() -> None:
    members = {name: member(name) for name in "abcde"}
    watched = {name: [peer.worker_id for peer in watched_peers(members, name).values()] for name in members}
    assert watched["a"] == ["b", "c", "d"]
    assert watched["d"] == ["e", "a", "b"]
    assert all(sum(name in others for others in watched.values()) == 3 for name in members)


def test_who_drains_or_has_no_name_yet_is_not_watched() -> None:
    members = {
        "a": member("a"),
        "b": member("b", draining=True),
        "c": WorkerMember(worker_id="c", url="http://c:1", incarnation="c"),
    }
    assert watched_peers(members, "a") == {}


def test_who_was_put_out_and_is_not_back() -> None:
    evictor = WorkerMember(worker_id="a", url="", incarnation="a-process", put_out=["b-process", "c-process"])
    assert lately_put_out(view(evictor, member("b"))) == {"c-process"}


def test_a_worker_that_was_counted_out_stops_before_others_start() -> None:
    contact = Contact(6.0, 0.5)
    contact.confirmed = 100.0
    assert contact.trusted_until == 104.0
    contact.counted_out = True
    assert contact.trusted_until == 101.0
    assert takeover_s(0.5, 6.0) > 1.0
    contact.has_joined()
    assert not contact.counted_out
    assert takeover_s(3.0, 6.0) == 6.0
