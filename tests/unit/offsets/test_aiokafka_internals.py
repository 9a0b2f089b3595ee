"""The product's changes of aiokafka."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import ConcurrentTransactions, NodeNotReadyError
from aiokafka.producer.sender import AddPartitionsToTxnHandler, InitPIDHandler, Sender
from aiokafka.producer.transaction_manager import TransactionManager

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


def _make_sender() -> Sender:
    return Sender(
        SimpleNamespace(_client_id="test"),
        acks=-1,
        txn_manager=TransactionManager("id", 60_000),
        message_accumulator=None,
        retry_backoff_ms=100,
        request_timeout_ms=40_000,
    )


async def test_pauses_between_requests_that_the_coordinator_refuses_double() -> None:
    sender = _make_sender()
    sender._txn_manager.set_pid_and_epoch(7, 0)
    sender._txn_manager.begin_transaction()
    partition = TopicPartition("topic", 0)
    sender._txn_manager.maybe_add_partition_to_txn(partition)

    def pause_after(code: int) -> float | None:
        answer = SimpleNamespace(errors=[("topic", [(0, code)])])
        pause: float | None = AddPartitionsToTxnHandler(sender, {partition}).handle_response(answer)
        return pause

    busy = ConcurrentTransactions.errno
    assert [pause_after(busy) for _ in range(8)] == [0.02, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    assert pause_after(0) is None
    assert pause_after(busy) == 0.1, "aiokafka's, for a transaction that has partitions"


async def test_a_new_producer_asks_for_its_id_after_pauses_that_double() -> None:
    sender = _make_sender()
    busy = SimpleNamespace(error_code=ConcurrentTransactions.errno)
    assert [InitPIDHandler(sender).handle_response(busy) for _ in range(5)] == [0.1, 0.1, 0.2, 0.4, 0.5]
    assert (
        InitPIDHandler(sender).handle_response(SimpleNamespace(error_code=0, producer_id=1, producer_epoch=2)) is None
    )
    assert InitPIDHandler(sender).handle_response(busy) == 0.1
