"""Clients that a Python worker keeps for the flows of an application. No broker: a client connects when it is used."""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.sinks.kafka.clients import ResidentClients
from spark_jobs.sinks.kafka.config import KafkaSinkSettings

ALICE = KafkaSinkSettings(
    job="alice",
    client={"bootstrap.servers": "127.0.0.1:9", "sasl.username": "alice"},
    guarantee="at-least-once",
    stream="",
    group="written",
    markers="markers",
    topic_ids={},
    topics={},
    partitioner="source",
    keyless=False,
    timestamps=True,
    acks="all",
    transaction_timeout_ms=10_000,
)


def test_another_login_is_another_client() -> None:
    resident = ResidentClients()
    bob = replace(ALICE, client=ALICE.client | {"sasl.username": "bob"})
    same = replace(ALICE, job="another", client=dict(ALICE.client))
    assert resident.plain(ALICE) is resident.plain(same)
    assert resident.plain(ALICE) is not resident.plain(bob)
    assert resident.consumer(ALICE) is resident.consumer(same)
    assert resident.consumer(ALICE) is not resident.consumer(bob)
    first = resident.plain(ALICE)
    resident.drop_plain(bob)
    assert resident.plain(ALICE) is first
