"""The events of a run besides the product's own work: faults and REST requests, drawn from a seed before the run begins.

A schedule is data: a run is reproduced by its seed alone, and made shorter by leaving events out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

NAMES: Final = ("alpha", "beta", "gamma")
#: Kind -> how often it is drawn.
_FAULTS: Final = {
    "kill worker": 6,
    "drain worker": 4,
    "kill host": 4,
    "hang host": 3,
    "pause worker": 4,
    "pause machine": 4,
    "cut worker from broker": 4,
    "cut worker from Kafka": 5,
    "cut workers": 3,
    "refuse connections": 4,
    "jump clock": 2,
    "stop broker": 5,
    "move leaders": 3,
    "move coordinators": 3,
    "slow network": 3,
    "compact": 3,
}
_REQUESTS: Final = {
    "create": 5,
    "change": 5,
    "delete": 3,
    "pause": 2,
    "resume": 3,
    "stop": 3,
    "restart": 2,
    "offsets": 2,
}
#: Seconds in which workers start undisturbed in half of the runs.
_QUIET_S: Final = 8.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens.

    Attributes:
        at_s: when, in seconds after the start.
        kind: what.
        first: chooses whom.
        second: chooses whom else, or how.
        length_s: how long it lasts.
    """

    at_s: float
    kind: str
    first: int = 0
    second: int = 0
    length_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.at_s:7.3f} s  {self.kind} ({self.first}, {self.second}) for {self.length_s:.3f} s"


@dataclass(frozen=True, slots=True)
class Plan:
    """A run.

    Attributes:
        seed: of the loop.
        workers: how many there are.
        exactly_once: whether tasks are fenced.
        events: faults and requests by time.
        end_s: when all faults are over.
    """

    seed: int
    workers: int
    exactly_once: bool
    events: tuple[Event, ...]
    end_s: float


def _drawn(draw: random.Random, weights: dict[str, int]) -> str:
    return draw.choices(list(weights), list(weights.values()))[0]


def make_plan(seed: int) -> Plan:
    """The plan of a seed. Pure."""
    draw = random.Random(seed)
    workers = draw.choice((2, 3, 3, 3, 4))
    begin = draw.choice((0.5, _QUIET_S))
    end = begin + draw.uniform(5, 25)
    events = [
        Event(
            draw.uniform(begin, end),
            _drawn(draw, _FAULTS),
            draw.randrange(1 << 16),
            draw.randrange(1 << 16),
            draw.choice((draw.uniform(0.05, 1), draw.uniform(1, 5), draw.uniform(4, 12))),
        )
        for _ in range(draw.choice((0, 1, 2, 3, 5, 8)))
    ]
    events += [
        Event(
            draw.uniform(begin / 2, end),
            f"request {_drawn(draw, _REQUESTS)}",
            draw.randrange(1 << 16),
            draw.randrange(1 << 16),
        )
        for _ in range(draw.randrange(2, 12))
    ]
    # Without a connector nothing can go wrong with one.
    events += [Event(begin / 2 + number / 10, "request create", number, draw.randrange(1 << 16)) for number in range(2)]
    return Plan(seed, workers, draw.random() < 0.5, tuple(sorted(events, key=lambda event: event.at_s)), end)
