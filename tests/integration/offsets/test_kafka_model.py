"""The modelled Kafka of the simulation answers as a real broker does."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import TYPE_CHECKING, Any, Final

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tests.simulation.kafka_cluster import Cluster
from tests.simulation.kafka_connection import connected
from tests.simulation.loop import VirtualLoop, close_quietly, virtual_world
from tests.simulation.network import Network
from tests.simulation.requests import Conversation, Step, talk_to_group

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_RUN: Final = uuid.uuid4().hex[:8]
_count: Final = itertools.count()

STEPS: Final = st.lists(
    st.builds(
        Step,
        st.sampled_from(
            ("init", "init", "add", "add", "produce", "produce", "produce", "repeat", "gap", "commit", "abort", "read")
        ),
        st.integers(0, 3),
        st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    ),
    max_size=14,
).map(lambda steps: [Step("init"), Step("add"), *steps])


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


@pytest.mark.slow
@given(steps=STEPS, seed=st.integers(0, 1000))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_transactions_and_fencing(bootstrap: str, steps: list[Step], seed: int) -> None:
    name = f"model-{_RUN}-{next(_count)}"
    real = asyncio.run(Conversation(bootstrap, name).run(steps))
    assert modelled(lambda servers: Conversation(servers, name).run(steps), seed, check_compaction) == real


def test_generations_of_a_group(bootstrap: str) -> None:
    group = f"model-group-{_RUN}"
    real = asyncio.run(talk_to_group(bootstrap, group))
    assert modelled(lambda servers: talk_to_group(servers, group), 1) == real
