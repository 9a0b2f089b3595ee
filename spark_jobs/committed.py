"""What a job has committed to its consumer group, read with the runtime's own Kafka client."""
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from connectors.errors import Retriable
from worker.kafka_clients import client_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEADLINE_S: Final = 20.0
_PREFIX: Final = "kafka."


async def committed(properties: Mapping[str, str], group: str) -> dict[tuple[str, int], int]:
    """(topic, partition) -> the next offset to be read; empty for a group that never committed.

    Args:
        properties: the job's, with its ``kafka.*``.
        group: the consumer group.

    Raises:
        Retriable: Kafka does not answer.
        ConfigInvalid: a ``kafka.*`` property is wrong.
    """
    arguments: dict[str, Any] = client_arguments(
        {name.removeprefix(_PREFIX): value for name, value in properties.items()
         if name.startswith(_PREFIX) and name != "kafka.group.id"}, "admin").arguments
    client = AIOKafkaAdminClient(**arguments)
    try:
        async with asyncio.timeout(_DEADLINE_S):
            await client.start()
            found = await client.list_consumer_group_offsets(group)
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retriable(f"the committed offsets of group {group} can't be read from "
                        f"{properties.get('kafka.bootstrap.servers')}: {error!r}") from error
    finally:
        await client.close()
    return {(where.topic, where.partition): each.offset for where, each in found.items() if each.offset >= 0}
