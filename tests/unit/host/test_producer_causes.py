"""A transactional producer whose sender has ended: later calls report what ended it, not that they are not permitted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import IllegalOperation, ProducerFenced, UnknownError

from connectors.errors import Fenced
from tests.unit.host.test_record_chunks import filled
from worker.host.delivery.producer import Producer
from worker.host.delivery.producer_errors import TransactionLost
from worker.host.delivery.routes import ProducerSettings, TopicPartitionWriter

if TYPE_CHECKING:
    from connectors.errors import MillraceError


class EndedClient:
    """Like aiokafka's producer after its sender has ended: every call is refused by its state alone."""

    def __init__(self, error: Exception | None) -> None:
        task: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if error is None:
            task.set_result(None)
        else:
            task.set_exception(error)
        self._sender = SimpleNamespace(sender_task=task)

    async def send_batch(self, *_: Any, **__: Any) -> None:
        raise IllegalOperation("Can't send messages while not in transaction")

    async def commit_transaction(self) -> None:
        raise AssertionError("Invalid state transition")


@pytest.mark.parametrize(
    ("cause", "kind"), [(ProducerFenced(), Fenced), (UnknownError(), TransactionLost), (None, TransactionLost)]
)
async def test_the_cause_is_reported(cause: Exception | None, kind: type[MillraceError]) -> None:
    failures: list[Exception] = []
    producer = Producer("task", ProducerSettings({"transactional_id": "t"}), failures.append)
    producer._client = EndedClient(cause)
    with pytest.raises(kind):
        await producer.commit()
    writer = TopicPartitionWriter("rows", 0, 1 << 20)
    writer.full.append(filled([(1, None, b"value", [])]))
    producer.serve(writer)
    async with asyncio.timeout(10):
        await producer._died.wait()
    assert [type(failure) for failure in failures] == [kind]
