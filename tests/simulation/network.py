"""Links between simulated machines: delays, links that are cut for a while, and connections that break."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.loop import Process, VirtualLoop

_FAST_S: Final = 0.002
#: One message of that many takes long.
_RARE: Final = 50


class Network:
    """The links: who reaches whom, and how fast.

    Args:
        loop: its randomness decides delays.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self._cut: set[frozenset[str]] = set()
        self._delayed: dict[frozenset[str], list[tuple[Process, Callable[..., Any], tuple[Any, ...]]]] = {}
        #: The longest a slow message takes, in seconds.
        self.slow_s = 0.05

    def delay(self) -> float:
        """Seconds that a message takes."""
        draw = self.loop.random
        if draw.random() * _RARE < 1:
            return draw.random() * self.slow_s
        return draw.random() * _FAST_S

    def blocked(self, first: str, second: str) -> bool:
        """Whether nothing gets from one machine to the other now."""
        return first != second and frozenset((first, second)) in self._cut

    def cut(self, first: str, second: str) -> None:
        """Let nothing through between two machines; messages wait for the end, as TCP repeats them."""
        self._cut.add(frozenset((first, second)))

    def join(self, first: str, second: str) -> None:
        """Let messages through again, those that waited first."""
        pair = frozenset((first, second))
        self._cut.discard(pair)
        for process, callback, arguments in self._delayed.pop(pair, ()):
            self.loop.call_in(process, 0, callback, *arguments)

    def hold(
        self, first: str, second: str, process: Process, callback: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> None:
        """Keep a message until the machines reach each other again."""
        self._delayed.setdefault(frozenset((first, second)), []).append((process, callback, arguments))


class Channel:
    """One direction of a connection: messages arrive late, but in order.

    Args:
        network: decides when.
        source: the sending machine.
        target: the receiving machine.
        process: in which process they arrive.
    """

    def __init__(self, network: Network, source: str, target: str, process: Process) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._process = process
        self._last = 0.0

    def send(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call something at the other end when the message arrives."""
        loop = self._network.loop
        self._last = max(self._last, loop.time() + self._network.delay())
        loop.call_in(self._process, self._last - loop.time(), self._arrive, callback, arguments)

    def _arrive(self, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if self._network.blocked(self._source, self._target):
            self._network.hold(self._source, self._target, self._process, callback, arguments)
        else:
            callback(*arguments)
