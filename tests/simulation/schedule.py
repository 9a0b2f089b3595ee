"""The events of a run besides the product's own work: faults and REST requests, drawn from a seed before the run begins.

A schedule is data: a run is reproduced by its seed alone, and made shorter by leaving events out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

NAMES: Final = ("alpha", "beta", "gamma")
#: Of a connector.
MOST_TASKS: Final = 3
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
#: Of delivery.
_DELIVERY_FAULTS: Final = (
    *("kill", "kill", "drain", "double", "pause", "restart task", "restart task", "pause task", "alter offset"),
    *("cut", "cut broker", "broker", "leaders", "coordinators", "slow"),
)
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
#: Drawn after the others, so that a seed's other events stay as they are.
_SMALL_REQUESTS: Final = (
    *("snapshot", "snapshot", "forget", "rules", "rules", "drop rules"),
    *("verify", "verify", "cancel", "patch"),
)
#: The part of runs with real task hosts.
_REAL_HOSTS: Final = 0.1
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
        real_hosts: whether tasks run in real task hosts, and deliver; else hosts are modelled, and faster.
    """

    seed: int
    workers: int
    exactly_once: bool
    events: tuple[Event, ...]
    end_s: float
    real_hosts: bool = False


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """A run of delivery.

    Attributes:
        seed: of the loop.
        exactly_once: whether records are sent in transactions.
        boundary: what ends them: ``poll``, ``interval`` or ``connector``; "" without them.
        tasks: how many there are.
        offsets: the topic of their positions: the worker's, or the connector's own.
        events: faults by time.
        end_s: when all faults are over.
    """

    seed: int
    exactly_once: bool
    boundary: str
    tasks: int
    offsets: str
    events: tuple[Event, ...]
    end_s: float


def _drawn(draw: random.Random, weights: dict[str, int]) -> str:
    return draw.choices(list(weights), list(weights.values()))[0]


def make_plan(seed: int) -> Plan:
    """The plan of a seed. Pure."""
    draw = random.Random(seed)
    workers, exactly_once, real_hosts = draw.choice((2, 3, 3, 3, 4)), draw.random() < 0.5, draw.random() < _REAL_HOSTS
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
        for _ in range(draw.choice((0, 1, 2, 3, 5, 8)) * (1 + real_hosts))
    ]
    for _ in range(draw.randrange(2, 12)):
        at, kind = draw.uniform(begin / 2, end), _drawn(draw, _REQUESTS)
        first, second = draw.randrange(1 << 16), draw.randrange(1 << 16)
        # Only a stopped connector's offsets can be reset.
        kinds = ("stop", "offsets", "resume") if kind == "offsets" and second % 4 else (kind,)
        events += [Event(at + number / 1000, f"request {kind}", first, second) for number, kind in enumerate(kinds)]
    for _ in range(draw.randrange(8)):
        kind = draw.choice(_SMALL_REQUESTS)
        events.append(
            Event(draw.uniform(begin, end), f"request {kind}", draw.randrange(1 << 16), draw.randrange(1 << 16))
        )
    for _ in range(draw.choice((0, 0, 1, 2)) if not real_hosts else 0):
        length = draw.choice((0.0, draw.uniform(0, 4)))
        events.append(Event(draw.uniform(begin, end), "fail units", length_s=length))
    # Without a connector nothing can go wrong with one.
    events += [Event(begin / 2 + number / 10, "request create", number, draw.randrange(1 << 16)) for number in range(2)]
    return Plan(seed, workers, exactly_once, tuple(sorted(events, key=lambda event: event.at_s)), end, real_hosts)


def make_delivery_plan(seed: int) -> DeliveryPlan:
    """The plan of a seed's run of delivery. Pure."""
    draw = random.Random(seed)
    exactly_once = draw.random() < 0.7
    boundary = draw.choice(("poll", "poll", "interval", "connector")) if exactly_once else ""
    tasks, end = draw.choice((1, 1, 2)), draw.uniform(8, 20)
    offsets = draw.choice(("offsets", "offsets", "own-offsets"))
    events: list[Event] = []
    at = 0.0
    while (at := at + draw.uniform(0.1, 4)) < end:
        length = draw.choice((draw.uniform(0.05, 1), draw.uniform(1, 8)))
        kind = draw.choice(_DELIVERY_FAULTS)
        events.append(Event(at, kind, draw.randrange(1 << 16), draw.randrange(1 << 16), length))
    return DeliveryPlan(seed, exactly_once, boundary, tasks, offsets, tuple(events), end)
