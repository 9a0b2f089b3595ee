"""The merge against Cassandra itself: random writes, the connector's partition updates shuffled and repeated, then SELECT.

The server is the emulation's Cassandra: base tables are its own, so what SELECT shows is Cassandra's merge and not ours.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from connectors.cql.encoding import encode_partition_key
from connectors.cql.types import parse_type
from spark_jobs.materializer.contract import InputRecord
from tests.integration.scylla.test_random_histories import History, folded, plain
from tests.support.materializer import Bench
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable

    from compose.local.scylla.client import Emulation

_PK = [parse_type("int")]


def simplified(row: dict[str, Any]) -> dict[str, Any]:
    """Without nulls and empty collections; maps and sets in one form."""
    return {name: plain(name, value) for name, value in row.items() if value not in (None, [])}


@pytest.mark.parametrize("tablets", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["vnodes", "tablets"])
def test_events_lead_to_what_select_shows(
    scylla: Emulation, scylla_keyspace: Callable[..., str], tablets: bool
) -> None:
    keyspace = scylla_keyspace(tablets=tablets)
    if scylla.emulated and not scylla.generations():
        scylla.new_generation()

    @given(seed=st.integers(0, 2**32))
    @settings(
        max_examples=int(os.environ.get("MILLRACE_EXAMPLES", "3")),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
    def check(seed: int) -> None:
        history = History(scylla, keyspace, seed, **{"output.format": "partition-update"})
        history.create(images=False)
        asyncio.run(folded(history))
        write = JsonConverter({"schemas.enable": "true"})
        records = [
            InputRecord(
                encode_partition_key(_PK, [record.value["key"]["pk"]]),
                write.from_connect("t", record.value_schema, record.value),
                number,
                record.timestamp or 0,
            )
            for number, record in enumerate(history.records)
        ]
        chance = random.Random(seed)
        repeated = records + chance.sample(records, len(records) // 3)
        for order in (records, records[::-1], chance.sample(repeated, len(repeated))):
            bench = Bench(limit=chance.choice([1, 3, 1000]))
            for record in order:
                bench.apply(record)
            merged = {(row["pk"], row["ck"]): simplified(row) for row in bench.rows.values()}
            selected = {
                (row["pk"], row["ck"]): simplified(row)
                for row in scylla.base_rows(history.full)
                if row["ck"] is not None
            }
            assert merged == selected

    check()
