"""The one place that reaches into aiokafka: what its public interface lacks. The pinned version is in setup.cfg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import BrokerResponseError, NodeNotReadyError, kafka_errors
from aiokafka.producer.sender import AddPartitionsToTxnHandler, InitPIDHandler

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.cluster import ClusterMetadata


class InvalidRecordError(BrokerResponseError):  # type: ignore[misc]  # aiokafka has no types
    """The broker's checks refuse a record: mostly one without a key, in a compacted topic. aiokafka has no class for it."""

    errno = 87
    message = "INVALID_RECORD"
    description = "The broker refuses a record: a compacted topic takes none without a key, for example."


# Else such an answer is an unknown error, which looks like an outage.
kafka_errors[InvalidRecordError.errno] = InvalidRecordError


_get_random_node = AIOKafkaClient.get_random_node


def choose_broker(client: AIOKafkaClient) -> int:
    """A broker that ``client`` knows.

    Raises:
        NodeNotReadyError: it knows none: a broker that has just started accepts clients before it knows its cluster.
    """
    node: int | None = _get_random_node(client)
    if node is None:
        raise NodeNotReadyError("Kafka has named none of its brokers yet")
    return node


# aiokafka looks for coordinators with what this gives, and takes no broker for a mistake of the caller: ``AssertionError``.
# It waits after the error that comes in its place, and retries.
AIOKafkaClient.get_random_node = choose_broker


#: The longest pause before a producer repeats what Kafka's coordinator of transactions can't do yet.
_LAST_PAUSE_S: Final = 0.5


def lengthen_pauses(handler: Any) -> None:
    """Have requests of this kind repeated after pauses that double from the third on, up to half a second.

    aiokafka asks every 20 or 100 ms. Where the markers of thousands of transactions are being written, a coordinator would get
    thousands of repetitions a second, and the transactions that they wait for would end later still.

    Args:
        handler: the class of aiokafka that sends the requests and reads the answers.
    """
    read_answer = handler.handle_response

    def choose_pause(request: Any, answer: Any) -> float | None:
        pause: float | None = read_answer(request, answer)
        sender = request._sender
        repetitions = getattr(sender, "repetitions", 0)
        sender.repetitions = 0 if pause is None else repetitions + 1
        doublings = max(0, repetitions - 1)
        return None if pause is None else max(pause, min(pause * 2**doublings, _LAST_PAUSE_S))

    handler.handle_response = choose_pause


lengthen_pauses(AddPartitionsToTxnHandler)
lengthen_pauses(InitPIDHandler)


def client_of(owner: Any) -> AIOKafkaClient:
    """The connections of a consumer or of a group coordinator."""
    client: AIOKafkaClient = owner._client
    return client


async def fetch_all_metadata(consumer: AIOKafkaConsumer) -> ClusterMetadata:
    """The topics of the cluster with their partitions; ``consumer.topics()`` gives names only."""
    return await client_of(consumer).fetch_all_metadata()


def coordinator_of(consumer: AIOKafkaConsumer) -> Any:
    """The consumer's side of the group protocol: ``generation``, ``request_rejoin``."""
    return consumer._coordinator


def coordinator_calls(
    coordinator: Any,
) -> tuple[Callable[[], Awaitable[bool]], Callable[[Any], Awaitable[bool]], Callable[[Any], Awaitable[Any]]]:
    """The coroutines that send a heartbeat, join the group with a subscription, and as its leader assign to all members."""
    return coordinator._do_heartbeat, coordinator._do_rejoin_group, coordinator._perform_assignment


def replace_coordinator_calls(
    coordinator: Any,
    heartbeat: Callable[[], Awaitable[bool]],
    join: Callable[[Any], Awaitable[bool]],
    assign: Callable[[Any], Awaitable[Any]],
) -> None:
    """Have the coordinator call others in their place; there is no public hook."""
    coordinator._do_heartbeat = heartbeat
    coordinator._do_rejoin_group = join
    coordinator._perform_assignment = assign


def sender_task(producer: AIOKafkaProducer) -> asyncio.Task[Any]:
    """The task that sends a producer's batches; only it holds the error that ended it."""
    task: asyncio.Task[Any] = producer._sender.sender_task
    return task


def replace_client(producer: AIOKafkaProducer, client: Any) -> None:
    """Have a producer that is not started use other connections than those it would make."""
    producer.client = client
    producer._metadata = client.cluster
    producer._message_accumulator._cluster = client.cluster
    producer._sender.client = client


def tracked_topics(client: AIOKafkaClient) -> set[str]:
    """The topics that a client asks Kafka about again and again; may be changed."""
    topics: set[str] = client._topics
    return topics


async def wait_for_partitions(client: AIOKafkaClient, topic: str) -> set[int]:
    """The partitions of a topic, from what the client knows or by asking; waits at most the client's request timeout."""
    partitions: set[int] = await client._wait_on_metadata(topic)
    return partitions


def add_partitions_to_transaction(producer: AIOKafkaProducer, partitions: Iterable[tuple[str, int]]) -> None:
    """Have partitions added to the open transaction with the next ones that are written to; sends nothing now.

    Raises:
        AssertionError: no transaction is open.
    """
    for topic, partition in partitions:
        producer._txn_manager.maybe_add_partition_to_txn(TopicPartition(topic, partition))


def silence_producer(producer: AIOKafkaProducer) -> None:
    """Mark a producer as closed, so that its destructor does not complain."""
    producer._closed = True


def waiting_futures(producer: AIOKafkaProducer) -> list[asyncio.Future[Any]]:
    """The futures of a dead producer that may hold an error: of its transaction and of its batches."""
    futures: list[asyncio.Future[Any]] = []
    transactions = producer._txn_manager
    if transactions is not None and transactions._transaction_waiter is not None:
        futures.append(transactions._transaction_waiter)
    for batches in producer._message_accumulator._batches.values():
        futures += [batch._drain_waiter for batch in batches]
    return futures


async def send_request(admin: Any, request: Any, node: int) -> Any:
    """Send a request of the protocol that the admin client has no method for, to one broker."""
    return await admin._send_request(request, node)
