"""Internal topics: made compacted with settings that keep a start fast, or checked when they exist.

Compaction never touches a partition's active segment, and by default leaves a log alone until half of it is stale. With
Kafka's defaults (1 GiB and seven days to a segment) an offsets topic keeps every version of every offset for days: with 73,728
offsets, as a large Scylla cluster has, a worker's start then reads hundreds of megabytes. ``TUNING`` rolls segments by 16 MiB
or ten minutes and compacts from a tenth of stale data on. ``retention.ms`` is no way out: it deletes offsets still needed.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from aiokafka.errors import InvalidReplicationFactorError, KafkaError

from connectors.errors import ConfigInvalid, Retriable
from offsets.admin import TopicAdmin, TopicRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOG: Final = logging.getLogger(__name__)
Kind = Literal["config", "offset", "status", "placement"]

_PURPOSES: Final[dict[Kind, str]] = {
    "config": "connector configurations",
    "offset": "source connector offsets",
    "status": "connector and task statuses",
    "placement": "the placement of tasks",
}
#: These are logs, in which the order of all records matters.
_SINGLE: Final = frozenset({"config", "placement"})
#: Defaults for the offsets topic (see above); any ``offset.storage.<setting>`` of the worker goes before them.
TUNING: Final[dict[str, str]] = {
    "segment.bytes": str(16 << 20),
    "segment.ms": str(10 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
_RESERVED_SETTINGS: Final = frozenset({"topic", "replication.factor", "partitions", "cleanup.policy"})
_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """An internal topic as it shall be.

    Attributes:
        kind: what it holds.
        name: its name.
        partitions: their number if it must be made; -1 leaves it to the broker.
        replication_factor: likewise.
        settings: further topic settings; ``cleanup.policy`` is always ``compact``.
        prop: the property that names it.
    """

    kind: Kind
    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str] = field(default_factory=dict)
    prop: str = ""

    @property
    def named_by(self) -> str:
        """The property to mention in errors."""
        return self.prop or f"{self.kind}.storage.topic"


def internal_topic(
    kind: Kind, properties: Mapping[str, str], *, name: str, partitions: int, replication_factor: int, prop: str = ""
) -> InternalTopic:
    """The topic that worker properties ask for: numbers as parsed, ``<kind>.storage.*`` settings passed through.

    Config and placement topic have one partition whatever the properties say. ``prop`` names another property that gave the
    name (``offsets.storage.topic`` of a connector).
    """
    prefix = f"{kind}.storage."
    asked = {key[len(prefix) :]: value for key, value in properties.items() if key.startswith(prefix)}
    if "cleanup.policy" in asked:
        _LOG.warning(
            "Ignoring %scleanup.policy=%s: internal topics are always compacted", prefix, asked["cleanup.policy"]
        )
    if kind in _SINGLE and "partitions" in asked:
        _LOG.warning(
            "Ignoring %spartitions=%s: the %s topic always has one partition", prefix, asked["partitions"], kind
        )
    settings = {
        **(TUNING if kind == "offset" else {}),
        **{key: value for key, value in asked.items() if key not in _RESERVED_SETTINGS},
    }
    return InternalTopic(kind, name, 1 if kind in _SINGLE else partitions, replication_factor, settings, prop)


def policy_problem(topic: InternalTopic, policy: str, bootstrap: object) -> str | None:
    """Why an existing topic with this ``cleanup.policy`` can't be used, or None. Kafka Connect's words, and how to fix it."""
    policies = {item.strip().lower() for item in policy.split(",") if item.strip()}
    if not policies or policies == {"compact"}:
        return None
    purpose = _PURPOSES[topic.kind]
    return (
        f"Topic '{topic.name}' supplied via the '{topic.named_by}' property is required to have 'cleanup.policy=compact' "
        f"to guarantee consistency and durability of {purpose}, but found the topic currently has "
        f"'cleanup.policy={','.join(sorted(policies))}'. Continuing would likely result in eventually losing {purpose} and "
        f"problems restarting this Connect cluster in the future. Change the '{topic.named_by}' property in the Connect "
        "worker configurations to use a topic with 'cleanup.policy=compact'. To fix this topic instead: "
        f"kafka-configs.sh --bootstrap-server {_format_servers(bootstrap)} --alter --entity-type topics --entity-name "
        f"{topic.name} --add-config cleanup.policy=compact"
    )


def partitions_problem(topic: InternalTopic, partitions: int) -> str | None:
    """Why an existing topic with this number of partitions can't be used, or None."""
    if topic.kind not in _SINGLE or partitions == 1:
        return None
    return (
        f"Topic '{topic.name}' supplied via the '{topic.named_by}' property is required to have a single partition in "
        f"order to guarantee consistency of {_PURPOSES[topic.kind]}, but found {partitions} partitions. Give "
        f"'{topic.named_by}' the name of a topic with one partition, or of none yet: it is created then."
    )


def _format_servers(bootstrap: object) -> str:
    return ",".join(bootstrap) if isinstance(bootstrap, list | tuple) else str(bootstrap)


async def ensure_internal_topic(client: Mapping[str, Any], topic: InternalTopic, deadline_s: float = 60.0) -> bool:
    """Make the topic if it is not there, else check it; returns whether it was made.

    While brokers are too few for the replication factor it waits: a cluster may just be starting.

    Raises:
        ConfigInvalid: the topic, or what is asked of it, can't work.
        Retriable: no broker answered within ``deadline_s``.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline_s
    bootstrap = client.get("bootstrap_servers")
    while True:
        try:
            async with TopicAdmin(client, max(1.0, min(15.0, until - loop.time()))) as admin:
                return await _ensure_topic(admin, topic, bootstrap)
        except TopicRefused as error:
            if error.kind is not InvalidReplicationFactorError:
                raise ConfigInvalid(
                    f"topic '{topic.name}' ({topic.named_by}) can't be created with "
                    f"{dict(topic.settings)}: {error}. Change the {topic.kind}.storage.* properties"
                ) from error
            if loop.time() + _RETRY_S >= until:
                raise ConfigInvalid(
                    f"topic '{topic.name}' ({topic.named_by}) can't be created: the brokers can't hold a replication factor of "
                    f"{topic.replication_factor} ({error}). Start more brokers, or set "
                    f"{topic.kind}.storage.replication.factor to at most their number"
                ) from error
            _LOG.info("Waiting to create topic %s: %s", topic.name, error)
        except Retriable:
            if loop.time() + _RETRY_S >= until:
                raise
        await asyncio.sleep(_RETRY_S)


async def _ensure_topic(admin: TopicAdmin, topic: InternalTopic, bootstrap: object) -> bool:
    outcome = "exists"
    try:
        present = await admin.partitions(topic.name)
    except KafkaError as error:
        raise ConfigInvalid(
            f"topic '{topic.name}' ({topic.named_by}) can't be described: {error!r}. Give the worker's user "
            "the permissions Describe, DescribeConfigs, Create, Read and Write on it"
        ) from error
    if present is None:
        outcome = await admin.create(
            topic.name, topic.partitions, topic.replication_factor, {**topic.settings, "cleanup.policy": "compact"}
        )
        if outcome == "created":
            _LOG.info("Created topic %s for %s", topic.name, _PURPOSES[topic.kind])
            return True
        if outcome == "denied":
            raise ConfigInvalid(
                f"topic '{topic.name}' ({topic.named_by}) does not exist and the worker's user may not create "
                f"it. Give it the permission Create, or create the topic with cleanup.policy=compact and "
                f"{'one partition' if topic.kind in _SINGLE else 'some partitions'}"
            )
        present = await admin.partitions(topic.name)
    problem = partitions_problem(topic, present) if present is not None else None
    problem = problem or policy_problem(topic, (await admin.settings(topic.name)).get("cleanup.policy", ""), bootstrap)
    if problem is not None:
        raise ConfigInvalid(problem)
    return False
