"""Random tables, statements and runs of the connector against a real Cassandra: the merged events are what SELECT shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.cassandra.history_world import CassandraHistory

if TYPE_CHECKING:
    from tests.conftest import HasCassandra

#: An even seed changes definitions, with a multiple of 3 there are snapshots, with one of 5 short times to live, with one of 7
#: events of the form of Debezium, which are compared with those of the fast path only.
#: ``MILLRACE_SEEDS`` names others.
SEEDS: list[Any] = [int(seed) for seed in os.environ.get("MILLRACE_SEEDS", "").split(",") if seed] or [
    6,
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 5, 10, 12, 14, 30)),
]


@pytest.mark.parametrize("seed", SEEDS)
async def test_events_lead_to_what_select_shows(cassandra: HasCassandra, seed: int) -> None:
    await run_history(cassandra, seed)


async def run_history(cassandra: HasCassandra, seed: int) -> None:
    """The history of a seed, compared after each round."""
    snapshots = seed % 3 == 0
    async with CassandraHistory(cassandra.address, cassandra.cdc_raw, seed, snapshots=snapshots) as history:
        await history.create()
        alters = seed % 2 == 0
        for _ in range(3):
            for _ in range(history.chance.choice([0, 1, 2]) if alters else 0):
                await history.alter()
            await history.write(history.chance.randint(5, 40))
            for _ in range(history.chance.choice([0, 1, 2])):
                await history.read(stop_after=history.chance.choice([0, 1, 3]))
            await history.read()
            await history.compare()
