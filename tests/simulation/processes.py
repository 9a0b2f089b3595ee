"""Child processes and the pipes to them, as a simulated worker sees them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self

from tests.simulation.loop import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.simulation.loop import Process, VirtualLoop

_PIPE_S: Final = 0.0005
_KILLED: Final = -9


class PipeEnd(asyncio.Transport):
    """One end of a socket pair; stands for its socket and, once connected, for its transport."""

    def __init__(self, loop: VirtualLoop, number: int) -> None:
        super().__init__()
        self._loop = loop
        self._number = number
        self.other: PipeEnd | None = None
        self.process: Process | None = None
        self._protocol: Any = None
        self._closed = False
        self._last = 0.0
        #: What came before anyone read.
        self._early: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    # As a socket.

    def fileno(self) -> int:
        """Its number."""
        return self._number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass  # a child has it

    def attach(self, protocol: Any) -> None:
        """Read from now on, in the current process."""
        self.process = CURRENT.get()
        self._protocol = protocol
        protocol.connection_made(self)
        early, self._early = self._early, []
        for callback, arguments in early:
            self._loop.call_soon(callback, *arguments)

    # As a transport.

    def write(self, data: Any) -> None:
        """Send bytes."""
        if not self._closed:
            self._tell("_received", bytes(data))

    def is_closing(self) -> bool:
        """Whether this end or the other is closed."""
        return self._closed

    def close(self) -> None:
        """Close this end."""
        if not self._closed:
            self._closed = True
            self._tell("_hung_up")
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, None)

    def hang_up(self) -> None:
        """The process of this end has gone."""
        if not self._closed:
            self._closed = True
            self._tell("_hung_up")

    def pause_reading(self) -> None:
        """Nothing is dropped without it."""

    def resume_reading(self) -> None:
        """See ``pause_reading``."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the default: it knows nothing."""
        del name
        return default

    def _tell(self, name: str, *arguments: Any) -> None:
        other = self.other
        if other is None:
            return
        self._last = max(self._last, self._loop.time() + self._loop.random.random() * _PIPE_S)
        if other.process is None:
            other._early.append((getattr(other, name), arguments))
            return
        self._loop.call_in(other.process, self._last - self._loop.time(), getattr(other, name), *arguments)

    def _received(self, data: bytes) -> None:
        if not self._closed:
            self._protocol.data_received(data)

    def _hung_up(self) -> None:
        if not self._closed:
            self._closed = True
            self._protocol.eof_received()
            self._protocol.connection_lost(None)


class Child:
    """A child process as its parent sees it: what asyncio calls a subprocess transport."""

    def __init__(self, children: Children, pid: int, process: Process, end: PipeEnd) -> None:
        self._children = children
        self._pid = pid
        self.process = process
        self.end = end
        self.code: int | None = None
        self._waiting: list[asyncio.Future[int]] = []

    def get_pid(self) -> int:
        """Its process id."""
        return self._pid

    def get_returncode(self) -> int | None:
        """Its exit code, once it has ended."""
        return self.code

    def get_pipe_transport(self, number: int) -> None:
        """It has none."""
        del number

    async def _wait(self) -> int:
        if self.code is not None:
            return self.code
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return await waiter

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._children.end(self, _KILLED)

    def close(self) -> None:
        """Nothing is left to close."""

    def ended(self, code: int) -> None:
        """It has ended."""
        self.code = code
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(code)


class Children:
    """All child processes of all workers.

    Args:
        loop: the simulation's.
        main: what a child runs, given its number and its end of the pipe.
    """

    def __init__(self, loop: VirtualLoop, main: Callable[[Child], Coroutine[Any, Any, None]]) -> None:
        self._loop = loop
        self._main = main
        self._ends: dict[int, PipeEnd] = {}
        self._count = 0
        self.alive: list[Child] = []

    def socketpair(self) -> tuple[PipeEnd, PipeEnd]:
        """Two ends that are connected."""
        first, second = (PipeEnd(self._loop, self._count + number) for number in (1, 2))
        self._count += 2
        first.other, second.other = second, first
        first.process = CURRENT.get()
        self._ends[second.fileno()] = second
        return first, second

    def start(self, number: int) -> Child:
        """Start a child that has the end with this number."""
        parent = CURRENT.get()
        self._count += 1
        process = self._loop.spawn(f"{parent.name}/host-{self._count}", parent.machine)
        child = Child(self, self._count, process, self._ends.pop(number))
        self.alive.append(child)
        self._loop.run_in(process, self._run(child), name=process.name)
        return child

    async def _run(self, child: Child) -> None:
        await self._main(child)
        self._loop.call_soon(self.end, child, 0)

    def end(self, child: Child, code: int) -> None:
        """A child ends, at once and without any clean-up."""
        if child not in self.alive:
            return
        self.alive.remove(child)
        self._loop.kill(child.process)
        child.end.hang_up()
        child.ended(code)

    def orphan(self, machine: str) -> None:
        """The parent on a machine has gone: so do its children."""
        for child in [child for child in self.alive if child.process.machine == machine]:
            self.end(child, _KILLED)
