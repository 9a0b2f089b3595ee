"""Fencing of transactional producers: what ``Admin.fenceProducers`` does for Kafka Connect (KIP-618)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from connectors.errors import Retriable
from offsets.fetch import abandon_producer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: How many run at the same time: each takes its own connection.
_AT_ONCE: Final = 16


async def fence_producers(producer: Mapping[str, Any], ids: Sequence[str], deadline_s: float) -> None:
    """Take over each transactional id once: producers that used it can't commit any more, open transactions are aborted.

    Args:
        producer: aiokafka producer arguments without a transactional id.
        ids: the transactional ids.
        deadline_s: for all of them.

    Raises:
        Retriable: not all could be taken over in time.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def fence(transactional_id: str) -> None:
        async with gate:
            client = AIOKafkaProducer(
                **{**producer, "acks": "all", "enable_idempotence": True, "transactional_id": transactional_id}
            )
            try:
                await client.start()
            finally:
                await abandon_producer(client)

    try:
        async with asyncio.timeout(deadline_s):
            await asyncio.gather(*(fence(transactional_id) for transactional_id in ids))
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retriable(
            f"transactional ids {ids[0]} to {ids[-1]} could not be taken over within {deadline_s:g} s ({error!r}): "
            "check the brokers, and that the producer's user may use these ids"
        ) from error
