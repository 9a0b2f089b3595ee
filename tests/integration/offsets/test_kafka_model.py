"""The modelled Kafka of the simulation answers as a real broker does."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import TYPE_CHECKING, Any, Final, cast

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from tests.selection import scaled
from tests.simulation.kafka_cluster import Cluster
from tests.simulation.kafka_connection import connected
from tests.simulation.loop import VirtualLoop, close_quietly, virtual_world
from tests.simulation.network import Network
from tests.simulation.requests import Conversation, Kind, Step, talk_to_group

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_RUN: Final = uuid.uuid4().hex[:8]
_count: Final = itertools.count()

_KINDS: Final[tuple[Kind, ...]] = (
    *("init", "init", "add", "add", "add", "produce", "produce", "produce", "produce", "repeat", "repeat"),
    *("gap", "large", "early", "keyless", "commit", "commit", "abort", "read"),
)
#: Mostly one partition, and the epoch that a producer was given: only with these does anything happen.
STEPS: Final = st.lists(
    st.builds(
        Step,
        st.sampled_from(_KINDS),
        st.integers(0, 3),
        st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
        st.sampled_from((0, 0, 1)),
        st.sampled_from((0,) * 9 + (1,)),
    ),
    max_size=20,
).map(lambda steps: [Step("init"), Step("add"), *steps])


def parse(text: str) -> list[Step]:
    """Steps from words ``kind`` or ``kind:number``; ``+`` after one is a later epoch, ``/`` the second partition."""
    steps = []
    for word in text.split():
        kind, _, number = word.rstrip("+/").partition(":")
        steps.append(Step(cast("Kind", kind), int(number or 0), (0,), int("/" in word), int("+" in word)))
    return steps


#: What the model once answered in another way than a broker, and what the simulation relies on.
_EXAMPLES: Final[dict[str, list[Step]]] = {
    "a later epoch than that of the open transaction": parse("init add produce produce+"),
    "the first batch after a marker is the first of its epoch": parse("init add commit add gap produce"),
    "a batch that follows one that was refused": parse("init produce add gap produce"),
    "a batch of a later epoch that follows one that was refused": parse("init produce init add:1 gap:1"),
    "an older epoch does not hold up a newer one": parse("init init add:1 produce:1 produce:0 produce:1"),
    "a fenced producer": parse(
        "init add produce init produce add commit abort add:1 produce repeat produce:1 commit:1"
    ),
    "five batches are remembered": [
        *parse("init add produce produce produce produce produce produce produce"),
        *(Step("repeat", keys=(earlier,)) for earlier in (4, 5, 6)),
    ],
    "a batch is repeated in the next transaction": parse("init add produce commit repeat add repeat read produce"),
    "a transaction is ended twice": parse(
        "init commit add produce commit+ commit commit abort add abort abort commit init abort:1"
    ),
    "a producer begins while markers are written": parse(
        "init add add/ produce produce/ commit init add:1 produce:1 abort:1 add:1 produce:1"
    ),
    "the last stable offset is that of the oldest open transaction": parse(
        "init:0 init:1 add:0 add:1 produce:0 produce:1 commit:1 read abort:0 read"
    ),
    "a partition that is not in the transaction": parse("init add produce/"),
    "batches that the topic does not take": parse("init:3 large early keyless produce large produce early gap produce"),
    "batches that the topic does not take in a transaction": parse(
        "init add large produce large keyless/ produce/ add/ keyless/ produce/ commit early add early produce abort read"
    ),
    "a producer without transactions": parse("init:3 produce repeat gap produce+ produce repeat"),
}


def explicit(test: Any) -> Any:
    """The test with all explicit examples."""
    for steps in _EXAMPLES.values():
        test = example(steps=steps, seed=1)(test)
    return test


def modelled(
    work: Callable[[str], Coroutine[Any, Any, Any]], seed: int, after: Callable[[Cluster], None] | None = None
) -> Any:
    """The answers that ``work`` gets from the model."""
    loop = VirtualLoop(seed)
    loop.adopt_outside()
    cluster = Cluster(loop, Network(loop), 1)
    client = loop.spawn("client")
    asyncio.set_event_loop(loop)
    try:
        with virtual_world(loop, seed), connected(cluster, lambda: "client"):
            answers = loop.run_until_complete(loop.run_in(client, work(cluster.addresses)))
            if after is not None:
                after(cluster)
            return answers
    finally:
        asyncio.set_event_loop(None)
        close_quietly(loop)


def check_compaction(cluster: Cluster) -> None:
    """The newest committed value of each key is the same after a compaction."""
    for logs in cluster.topics.values():
        for log in logs:
            before = {key: value for _offset, key, value in log.records(committed=True)}
            log.compact(log.end)
            assert {key: value for _offset, key, value in log.records(committed=True)} == before


@pytest.mark.scaled
@explicit
@given(steps=STEPS, seed=st.integers(0, 1000))
@settings(
    max_examples=scaled(quick=30, slow=400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_transactions_and_fencing(bootstrap: str, steps: list[Step], seed: int) -> None:
    name = f"model-{_RUN}-{next(_count)}"
    real = asyncio.run(Conversation(bootstrap, name).run(steps))
    assert modelled(lambda servers: Conversation(servers, name).run(steps), seed, check_compaction) == real


def test_a_transaction_that_takes_too_long(bootstrap: str) -> None:
    """A broker looks for these every ten seconds."""
    name = f"model-{_RUN}-{next(_count)}"
    steps = parse("init add produce expire read produce repeat add commit abort init add:1 produce:1 commit:1")
    real = asyncio.run(Conversation(bootstrap, name, timeout_ms=3000).run(steps))
    assert modelled(lambda servers: Conversation(servers, name, timeout_ms=3000).run(steps), 1) == real


def test_generations_of_a_group(bootstrap: str) -> None:
    group = f"model-group-{_RUN}"
    real = asyncio.run(talk_to_group(bootstrap, group))
    assert modelled(lambda servers: talk_to_group(servers, group), 1) == real
