"""An event loop with virtual time on which several simulated processes run, and which a seed reproduces exactly.

Each callback belongs to the process in whose context it was scheduled. Callbacks of a process run in the order in which
asyncio promises them; which process is next is drawn from the seed. A process can be killed (its callbacks are dropped,
without any clean-up, as by SIGKILL) or paused (they wait, as after SIGSTOP). There are no sockets and no threads: what is
given to an executor runs at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import logging
import random
import secrets
import sys
import time
import uuid
import warnings
import zlib
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

#: What a callback costs at most, in seconds of virtual time: no two things happen at exactly the same time.
_STEP_S: Final = 20e-6
#: Wall-clock time at the start, in seconds since the epoch.
#: Beyond the real clock, which aiokafka's C code gives records: Kafka refuses timestamps that are in its future.
_EPOCH_S: Final = 4_000_000_000.0


class SimulationStuck(Exception):
    """Nothing is left to happen, although the simulation has not ended."""


class Process:
    """A simulated process.

    Attributes:
        name: for the trace.
        machine: where it runs.
        alive: whether its callbacks run.
        paused: whether they wait.
        clock_s: how far its wall clock is wrong.
    """

    def __init__(self, name: str, machine: str = "") -> None:
        self.name = name
        self.machine = machine or name
        self.alive = True
        self.paused = False
        self.clock_s = 0.0
        self.ready: deque[asyncio.Handle] = deque()

    def __repr__(self) -> str:
        return f"<process {self.name}>"


_OUTSIDE: Final = Process("outside")
CURRENT: Final[contextvars.ContextVar[Process]] = contextvars.ContextVar("process", default=_OUTSIDE)


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class NumberedFuture(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address."""

    def __init__(self, *, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop.

    Args:
        seed: decides which process is next, and what callbacks cost.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._now = 1000.0
        self.random = random.Random(seed)
        self._numbers = 0
        self._processes: list[Process] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        #: What happened: time, process, text.
        self.trace: list[tuple[float, str, str]] = []
        #: Folds every step, so that two runs can be compared.
        self.digest = 0
        self.steps = 0
        #: Called with the topic and the numbers of a batch when the runtime reports its delivery to the task.
        self.report_delivered: Callable[[str, range], None] = lambda _topic, _numbers: None
        #: Tasks of killed processes: they must not be collected, which would run their clean-up.
        self._graves: list[asyncio.Task[Any]] = []
        self.errors: list[dict[str, Any]] = []
        #: Makes the other end of a pipe, and child processes (``processes.Children``).
        self.children: Any = None
        self.set_task_factory(self._make_task)
        self.set_exception_handler(lambda _loop, context: self.errors.append(context))

    # What asyncio asks of a loop.

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        """A future in this loop."""
        self._numbers += 1
        return NumberedFuture(number=self._numbers, loop=self)

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._numbers += 1
        return NumberedTask(coro, number=self._numbers, loop=loop, **options)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        del handle  # it is left out when its time comes

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback."""
        handle = asyncio.Handle(callback, args, self, context)
        self._put(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run ``func`` now."""
        del executor
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the caller sees it
            future.set_exception(error)
        return future

    async def create_connection(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        """Connect a modelled socket."""
        del args
        protocol = protocol_factory()
        end = options["sock"]
        end.attach(protocol)
        return end, protocol

    async def subprocess_exec(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        """Start a modelled child process."""
        del args
        protocol = protocol_factory()
        transport = self.children.start(options["pass_fds"][0])
        protocol.connection_made(transport)
        return transport, protocol

    def _process_events(self, event_list: Any) -> None:
        del event_list

    def _write_to_self(self) -> None:
        pass

    def _put(self, handle: asyncio.Handle) -> None:
        process: Process = handle._context.get(CURRENT, _OUTSIDE)  # type: ignore[attr-defined]
        if not process.alive:
            return
        process.ready.append(handle)

    def _run_once(self) -> None:
        timers = self._timers
        while True:
            while timers and timers[0][0] <= self._now:
                timer = heapq.heappop(timers)[2]
                if not timer._cancelled:
                    self._put(timer)
            runnable = [process for process in self._all() if process.ready and not process.paused]
            if runnable:
                break
            if not timers:
                raise SimulationStuck("no callback and no timer is left")
            self._now = max(self._now, timers[0][0])
        process = runnable[0] if len(runnable) == 1 else runnable[int(self.random.random() * len(runnable))]
        handle = process.ready.popleft()
        self._now += self.random.random() * _STEP_S
        if not handle._cancelled:
            handle._run()
            self.steps += 1
            self.digest = zlib.crc32(b"%.6f %s" % (self._now, process.name.encode()), self.digest)

    def _all(self) -> list[Process]:
        return self._processes

    # Processes.

    def spawn(self, name: str, machine: str = "") -> Process:
        """A new process that runs nothing yet."""
        process = Process(name, machine)
        self._processes.append(process)
        return process

    def adopt_outside(self) -> None:
        """Let callbacks outside of all processes run too."""
        _OUTSIDE.alive = True
        _OUTSIDE.ready.clear()
        self._processes.append(_OUTSIDE)

    def context_of(self, process: Process) -> contextvars.Context:
        """A context whose callbacks belong to ``process``."""
        context = contextvars.Context()
        context.run(CURRENT.set, process)
        return context

    def run_in(self, process: Process, coro: Coroutine[Any, Any, Any], name: str = "") -> asyncio.Task[Any]:
        """Start a coroutine in a process."""
        return self.create_task(coro, name=name or None, context=self.context_of(process))

    def call_in(self, process: Process, delay_s: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call something in a process after a while, if the process is alive then."""
        self.call_later(delay_s, callback, *args, context=self.context_of(process))

    def kill(self, process: Process) -> None:
        """End a process as SIGKILL does: nothing of it runs any more."""
        process.alive = False
        self._graves += [task for task in asyncio.all_tasks(self) if not task.done()]
        process.ready.clear()
        if process in self._processes:
            self._processes.remove(process)

    def note(self, text: str, process: Process | None = None) -> None:
        """Add a line to the trace."""
        name = (process or CURRENT.get()).name
        self.trace.append((self._now, name, text))
        self.digest = zlib.crc32(text.encode(), self.digest)


@contextmanager
def virtual_world(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Replace clocks, and sources of randomness, for as long as ``loop`` runs."""
    draw = random.Random(seed ^ 0x5EED)
    start = loop.time()

    def wall() -> float:
        return _EPOCH_S + loop.time() - start + CURRENT.get().clock_s

    def wall_ns() -> int:
        return int(wall() * 1e9)

    def monotonic_ns() -> int:
        return int(loop.time() * 1e9)

    def token_bytes(size: int = 32) -> bytes:
        return draw.randbytes(size)

    def token_hex(size: int = 16) -> str:
        return draw.randbytes(size).hex()

    def unique() -> uuid.UUID:
        return uuid.UUID(int=draw.getrandbits(128), version=4)

    state = random.getstate()
    random.seed(seed)
    replaced: dict[tuple[Any, str], Any] = {
        (time, "monotonic"): loop.time,
        (time, "perf_counter"): loop.time,
        (time, "process_time"): loop.time,
        (time, "monotonic_ns"): monotonic_ns,
        (time, "time"): wall,
        (time, "time_ns"): wall_ns,
        (uuid, "uuid4"): unique,
        (secrets, "token_bytes"): token_bytes,
        (secrets, "token_hex"): token_hex,
    }
    patches = [mock.patch.object(module, name, value) for (module, name), value in replaced.items()]
    try:
        for patch in patches:
            patch.start()
        yield
    finally:
        for patch in patches:
            patch.stop()
        random.setstate(state)


def close_quietly(loop: VirtualLoop) -> None:
    """Drop all that is left in a loop without running it; what coroutines say when they are dropped half done is not heard."""
    left = [*loop._graves, *asyncio.all_tasks(loop)]
    for process in loop._processes:
        process.alive = False
        process.ready.clear()
    loop._timers.clear()
    loop._graves.clear()
    heard, disabled = sys.unraisablehook, logging.root.manager.disable
    sys.unraisablehook = lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in left:
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
            loop.set_exception_handler(lambda _loop, _context: None)
            left.clear()
            loop.close()
            gc.collect()
    finally:
        sys.unraisablehook = heard
        logging.disable(disabled)
