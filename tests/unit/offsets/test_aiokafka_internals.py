"""The product's changes of aiokafka."""

from __future__ import annotations

import pytest
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import NodeNotReadyError

from offsets import aiokafka_internals


async def test_a_client_that_knows_no_broker_yet_says_so_with_an_error_that_is_retried() -> None:
    client = AIOKafkaClient(bootstrap_servers="127.0.0.1:1")
    try:
        with pytest.raises(NodeNotReadyError, match="none of its brokers"):
            await client.coordinator_lookup(CoordinationType.TRANSACTION, "id")
        with pytest.raises(NodeNotReadyError):
            aiokafka_internals.choose_broker(client)
    finally:
        await client.close()
    assert NodeNotReadyError.retriable
