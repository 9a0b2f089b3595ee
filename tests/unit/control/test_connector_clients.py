"""Clients of the control process that stand in for those of a connector's tasks: the same login, the same Kafka."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from connectors.errors import ConfigInvalid
from tests.support.eventually import pass_turns
from worker.control.clients import ConnectorClients
from worker.control.fencing import TaskFencing
from worker.control.herder import offsets
from worker.control.herder.offsets import OffsetOperations
from worker.rest.facade import RestError
from worker.secrets.providers import ConfigData
from worker.secrets.rotation import SecretKeeper

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from offsets.positions import Position
    from worker.control.herder.base import HerderContext
    from worker.control.herder.snapshots import SnapshotOperations
    from worker.control.leader import LeaderDuties
    from worker.secrets.providers import ConfigProvider

WORKER = {"bootstrap.servers": "here:9092", "offset.storage.topic": "offsets"}
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="tasks" password="hush-hush";'
REFERENCE = {
    "producer.override.security.protocol": "SASL_PLAINTEXT",
    "producer.override.sasl.mechanism": "PLAIN",
    "producer.override.sasl.jaas.config": "${vault:kafka:login}",
    "database.password": "${vault:broken:password}",
}
ELSEWHERE = {"producer.override.bootstrap.servers": "elsewhere:9092"}


class Vault:
    """A config provider; what Kafka's clients do not need can't be had."""

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        if path == "broken":
            raise ConfigInvalid("no such path")
        values = {"login": LOGIN, "topic": "mine"}
        return ConfigData({key: values[key] for key in keys}, None)

    def subscribe(self, path: str, keys: Collection[str], changed: object) -> None:
        """It never changes."""


def connector_clients(*, exactly_once: bool = False) -> ConnectorClients:
    keeper = SecretKeeper({"vault": cast("ConfigProvider", Vault())}, lambda _: None)
    return ConnectorClients(WORKER, keeper, exactly_once=exactly_once)


async def test_producers_of_tasks_whose_login_comes_from_a_config_provider_are_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logins: list[tuple[Any, Any]] = []

    async def fence_producers(producer: Mapping[str, Any], ids: Collection[str], deadline_s: float) -> None:
        assert ids
        assert deadline_s
        logins.append((producer["sasl_plain_username"], producer["sasl_plain_password"]))
        await pass_turns()

    monkeypatch.setattr("worker.control.fencing.fence_producers", fence_producers)
    leader = SimpleNamespace(snapshot=SimpleNamespace(connectors={"c": REFERENCE}))
    producers = connector_clients(exactly_once=True).task_producer
    await TaskFencing(cast("LeaderDuties", leader), {"group.id": "g"}, producers).fence_ids("c", 2)
    assert logins == [("tasks", "hush-hush")]


async def test_a_login_that_can_not_be_had_is_reported_without_fencing() -> None:
    leader = SimpleNamespace(
        snapshot=SimpleNamespace(connectors={"c": {"producer.override.sasl.jaas.config": "${vault:broken:login}"}})
    )
    producers = connector_clients(exactly_once=True).task_producer
    with pytest.raises(RestError, match="Failed to fence out task producers for source connector c: no such path"):
        await TaskFencing(cast("LeaderDuties", leader), {"group.id": "g"}, producers).fence_ids("c", 2)


@pytest.mark.parametrize(
    ("config", "exactly_once", "expected"),
    [
        ({}, False, None),
        ({}, True, None),
        ({"offsets.storage.topic": " offsets "}, True, None),
        ({"offsets.storage.topic": "mine"}, False, ("mine", "here")),
        ({"offsets.storage.topic": "${vault:kafka:topic}"}, False, ("mine", "here")),
        # Tasks keep them with the records where a transaction can't span both Kafka clusters.
        (ELSEWHERE, True, ("offsets", "elsewhere")),
        (ELSEWHERE, False, None),
        (ELSEWHERE | {"offsets.storage.topic": "offsets"}, False, ("offsets", "elsewhere")),
        (ELSEWHERE | {"offsets.storage.topic": "mine"} | REFERENCE, True, ("mine", "elsewhere")),
    ],
)
async def test_offsets_that_rest_shows_and_changes_are_those_that_tasks_read(
    config: dict[str, str], exactly_once: bool, expected: tuple[str, str] | None
) -> None:
    offsets_topic = await connector_clients(exactly_once=exactly_once).own_offsets(config)
    shown = None if offsets_topic is None else (offsets_topic[0], offsets_topic[1]["bootstrap_servers"])
    assert shown == (expected and (expected[0], [f"{expected[1]}:9092"]))
    if offsets_topic is not None and "producer.override.sasl.jaas.config" in config:
        assert offsets_topic[1]["sasl_plain_password"] == "hush-hush"


async def test_a_reset_reaches_the_offsets_of_a_connector_that_writes_to_another_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved: dict[str, dict[str, Position]] = {"here:9092": {}, "elsewhere:9092": {"t": {"at": 7}}}

    class Store:
        """A topic of offsets in memory."""

        def __init__(self, topic: str, client: Mapping[str, Any]) -> None:
            assert topic == "offsets"
            self.saved = saved[client["bootstrap_servers"][0]]

        async def start(self, deadline_s: float) -> None:
            assert deadline_s

        async def stop(self) -> None:
            """Nothing is open."""

        async def read_to_end(self, deadline_s: float) -> None:
            assert deadline_s

        async def positions(self, name: str) -> list[tuple[Position, Position]]:
            assert name == "c"
            return [({"table": table}, offset) for table, offset in self.saved.items()]

        async def write(
            self, name: str, changes: Collection[tuple[Position, Position | None]], deadline_s: float
        ) -> None:
            assert name == "c"
            assert deadline_s
            for partition, offset in changes:
                if offset is None:
                    self.saved.pop(partition["table"], None)
                else:
                    self.saved[partition["table"]] = offset

    async def nothing(*_: object) -> None:
        """It is so already."""

    async def ask(message: object, deadline_s: float, environments: object) -> bool:
        assert message
        assert (deadline_s, environments) == (5.0, None)
        return True

    monkeypatch.setattr(offsets, "OffsetStore", Store)
    snapshot = SimpleNamespace(
        connectors={"c": ELSEWHERE}, target_state=lambda _: "STOPPED", task_counts={}, fenced_counts={}
    )
    context = SimpleNamespace(
        snapshot=snapshot,
        lead=nothing,
        require_connector=nothing,
        wait_stopped=nothing,
        connector_type=lambda _: "source",
        exactly_once=True,
        validate_s=5.0,
        config_locks={"c": asyncio.Lock()},
        node=SimpleNamespace(
            offsets=Store("offsets", {"bootstrap_servers": ["here:9092"]}),
            pool=SimpleNamespace(ask=ask),
            leader=SimpleNamespace(check=lambda: None),
        ),
        own_offsets=connector_clients(exactly_once=True).own_offsets,
    )
    snapshots = SimpleNamespace(ended_snapshots=nothing, forget_snapshots=nothing)
    operations = OffsetOperations(cast("HerderContext", context), cast("SnapshotOperations", snapshots))
    assert await operations.connector_offsets("c") == [{"partition": {"table": "t"}, "offset": {"at": 7}}]
    await operations.reset_connector_offsets("c")
    assert await operations.connector_offsets("c") == []
    assert saved == {"here:9092": {}, "elsewhere:9092": {}}
