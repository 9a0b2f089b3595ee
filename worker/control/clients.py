"""aiokafka arguments of the control process's own clients, from the worker's (resolved) properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from worker.kafka import clients as kafka_clients

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from worker.secrets.rotation import SecretKeeper

#: Name of a connector's own offsets topic.
OFFSETS_TOPIC: Final = "offsets.storage.topic"
_OVERRIDES: Final = "producer.override."
#: The worker's plain properties that its own clients take; those for tasks stand behind ``producer.`` and so on.
_PLAIN_PROPERTIES: Final = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "metadata.max.age.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
        "connections.max.idle.ms",
    }
)
#: aiokafka bounds one request by it; longer ones only delay that a dead connection is noticed.
_REQUEST_MS: Final = 15_000


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The worker's properties that concern all its own clients."""
    selected = {
        name: value
        for name, value in properties.items()
        if name in _PLAIN_PROPERTIES or name.startswith(kafka_clients.SECURITY_PREFIXES)
    }
    if not selected.get("client.id"):
        selected.pop("client.id", None)
    return selected


def left_for_a_start(names: Iterable[str]) -> list[str]:
    """Those of the worker's properties whose new values it takes over when it starts only. Pure.

    Everything that Kafka clients log in with is taken over while it runs; REST's listeners have their stores' passwords
    from their start on, and may take them from the plain ``ssl.`` properties.
    """
    behind = tuple(
        f"{kind}{prefix}"
        for kind in ("", "producer.", "consumer.", "admin.", "offset.storage.producer.")
        for prefix in ("sasl.", "ssl.")
    )
    return sorted(name for name in names if not name.startswith(behind))


def reader_arguments(properties: Mapping[str, str], client_id: str) -> dict[str, Any]:
    """For readers and administration. Reads stores: blocks for a moment.

    Raises:
        ConfigInvalid: a property is wrong.
    """
    arguments = kafka_clients.client_arguments(own_properties(properties), "admin").arguments
    arguments.setdefault("client_id", client_id)
    arguments["request_timeout_ms"] = min(arguments.get("request_timeout_ms", _REQUEST_MS), _REQUEST_MS)
    return arguments


def leader_producer(
    properties: Mapping[str, str], client_id: str, transactional_id: str, timeout_ms: int
) -> dict[str, Any]:
    """For the leader's transactional producer."""
    return {
        **reader_arguments(properties, client_id),
        "acks": "all",
        "enable_idempotence": True,
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms,
        "linger_ms": 0,
    }


class ConnectorClients:
    """Settings of clients that stand in for a connector's own, by its configuration.

    Args:
        properties: the worker's, resolved.
        secrets: resolves the connector's references to config providers: its tasks log in with what they stand for.
        exactly_once: whether its tasks write in transactions.
    """

    def __init__(self, properties: Mapping[str, str], secrets: SecretKeeper, *, exactly_once: bool) -> None:
        self._properties = properties
        self._secrets = secrets
        self._exactly_once = exactly_once

    async def task_producer(self, connector: Mapping[str, str]) -> dict[str, Any]:
        """For taking over the transactional ids of a connector's tasks: connected as their producers are.

        Raises:
            ConfigInvalid: the policy forbids an override, or a property is wrong.
            Retriable: a config provider is unavailable.
        """
        overrides = await self._overrides(connector)
        return kafka_clients.client_arguments(self._producer_properties(overrides), "producer").arguments

    async def own_offsets(self, connector: Mapping[str, str]) -> tuple[str, dict[str, Any]] | None:
        """A connector's own offsets topic, on the Kafka its tasks write to, and arguments to read and write it with.

        None if its offsets are in the worker's topic alone.

        Raises:
            ConfigInvalid, Retriable: as ``task_producer``.
        """
        overrides = await self._overrides(connector)
        named = (await self._secrets.resolve({OFFSETS_TOPIC: connector.get(OFFSETS_TOPIC, "")}))[OFFSETS_TOPIC].strip()
        workers_topic = self._properties.get("offset.storage.topic", "")
        here = self._properties.get("bootstrap.servers")
        elsewhere = overrides.get("bootstrap.servers", here) != here
        # As tasks have it (``worker.host.plan.own_offsets_topic``): a transaction can't span two Kafka clusters.
        topic = named or (workers_topic if self._exactly_once and elsewhere else "")
        if not topic or (topic == workers_topic and not elsewhere):
            return None
        return topic, kafka_clients.client_arguments(
            {
                name: value
                for name, value in self._producer_properties(overrides).items()
                if name in _PLAIN_PROPERTIES or name.startswith(kafka_clients.SECURITY_PREFIXES)
            },
            "admin",
        ).arguments

    async def _overrides(self, connector: Mapping[str, str]) -> dict[str, str]:
        resolved = await self._secrets.resolve(
            {name: value for name, value in connector.items() if name.startswith(_OVERRIDES)}
        )
        return kafka_clients.override_properties(resolved, _OVERRIDES, self._properties)

    def _producer_properties(self, overrides: Mapping[str, str]) -> dict[str, str]:
        merged = {**kafka_clients.inherited_properties(self._properties, "producer."), **overrides}
        merged.pop("transactional.id", None)
        merged.pop("client.id", None)
        return merged
