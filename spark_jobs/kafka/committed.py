"""The offsets that a job has committed to its consumer group, read with the runtime's own Kafka client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaError,
    NotCoordinatorForGroupError,
    for_code,
)
from aiokafka.protocol.commit import OffsetFetchRequest

from connectors.errors import Retriable
from offsets.aiokafka_internals import send_request
from worker.kafka.clients import client_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEADLINE_S: Final = 20.0
#: While the group's coordinator moves, reads its log, or its topic is made (the first group of a cluster).
_PASSING: Final = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)
_PAUSE_S: Final = 0.1
_PREFIX: Final = "kafka."


async def read_committed(properties: Mapping[str, str], group: str) -> dict[tuple[str, int], int]:
    """(topic, partition) -> the next offset to be read; empty for a group that never committed.

    Args:
        properties: the job's, with its ``kafka.*``.
        group: the consumer group.

    Raises:
        Retriable: Kafka does not answer.
        ConfigInvalid: a ``kafka.*`` property is wrong.
    """
    arguments: dict[str, Any] = client_arguments(
        {
            name.removeprefix(_PREFIX): value
            for name, value in properties.items()
            if name.startswith(_PREFIX) and name != "kafka.group.id"
        },
        "admin",
    ).arguments
    client = AIOKafkaAdminClient(**arguments)
    away: KafkaError | None = None
    try:
        async with asyncio.timeout(_DEADLINE_S):
            await client.start()
            while True:
                try:
                    return await _request_offsets(client, group)
                except _PASSING as error:
                    away = error
                    await asyncio.sleep(_PAUSE_S)
    except (KafkaError, OSError, TimeoutError) as error:
        cause = away if away is not None and isinstance(error, TimeoutError) else error
        raise Retriable(
            f"the committed offsets of group {group} can't be read from "
            f"{properties.get('kafka.bootstrap.servers')}: {cause!r}"
        ) from error
    finally:
        await client.close()


async def _request_offsets(client: AIOKafkaAdminClient, group: str) -> dict[tuple[str, int], int]:
    coordinator = await client.find_coordinator(group)
    # aiokafka's list_consumer_group_offsets takes a refusal of the whole request for a group without offsets.
    answer = await send_request(client, OffsetFetchRequest(group, None), coordinator)
    codes = [answer.error_code, *(code for _, topic_offsets in answer.topics for _, _, _, code in topic_offsets)]
    refused = next((code for code in codes if code), None)
    if refused is not None:
        raise for_code(refused)
    return {
        (topic, partition): offset
        for topic, topic_offsets in answer.topics
        for partition, offset, _, _ in topic_offsets
        if offset >= 0
    }
