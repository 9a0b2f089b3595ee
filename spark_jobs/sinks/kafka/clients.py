"""The Kafka clients that a Python worker of Spark keeps from task to task."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.sinks.kafka.markers import explain_failure, make_quiet_logger
from spark_jobs.spark.watchdog import limit

if TYPE_CHECKING:
    from spark_jobs.sinks.kafka.config import KafkaSinkSettings

#: The client's own limit of a record, at its most: the topic's limit counts, and what came from a topic may fit into another.
_OF_PRODUCERS: Final = {
    "queue.buffering.max.messages": 200_000,
    "message.max.bytes": 1_000_000_000,
    "delivery.report.only.error": True,
}
_CLIENTS_KEPT: Final = 128


class OwnedProducer:
    """A producer and the token by which it recognizes its own last commit."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.token = secrets.token_hex(8)


class ResidentClients:
    """The clients that a Python worker keeps from task to task: producers, and consumers that read positions.

    A transactional producer costs 60 ms and more to start; tasks have no other place that outlives them. One process serves
    the flows of an application, which may have different logins: a client is used again only with the same configuration.
    Clients beyond a bound are given up, the longest unused first.
    """

    def __init__(self) -> None:
        self._owned: OrderedDict[tuple[str, str], OwnedProducer] = OrderedDict()
        self._plain: OrderedDict[str, Any] = OrderedDict()
        self._consumers: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def transactional(self, settings: KafkaSinkSettings, transactional_id: str) -> OwnedProducer | None:
        """The kept producer, or None."""
        key = (_client_key(settings), transactional_id)
        producer = self._owned.get(key)
        if producer is not None:
            self._owned.move_to_end(key)
        return producer

    def create_owned(self, settings: KafkaSinkSettings, transactional_id: str) -> OwnedProducer:
        """A new producer, initialized: earlier ones with this id can't commit any more. Blocks.

        Raises:
            Retriable: Kafka does not answer.
            Fatal: it refuses.
        """
        from confluent_kafka import KafkaException, Producer

        self.drop(settings, transactional_id)
        producer = Producer(
            {
                "linger.ms": 20,
                "compression.type": "lz4",
                **_OF_PRODUCERS,
                **settings.client,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": settings.transaction_timeout_ms,
                "retry.backoff.ms": 20,
            },
            logger=make_quiet_logger(),
        )
        try:
            with limit(f"init_transactions of {transactional_id}", settings.timeout_s):
                producer.init_transactions(settings.timeout_s)
        except KafkaException as error:
            raise explain_failure(error, f"transactions of {transactional_id} can't be started") from error
        owned = self._owned[_client_key(settings), transactional_id] = OwnedProducer(producer)
        _give_up_oldest(self._owned, settings)
        return owned

    def drop(self, settings: KafkaSinkSettings, transactional_id: str) -> None:
        """Give the producer up; a writer that still has it is the last one to let it go."""
        with limit(f"the end of the producer {transactional_id}", settings.timeout_s):
            self._owned.pop((_client_key(settings), transactional_id), None)

    def plain(self, settings: KafkaSinkSettings) -> Any:
        """The producer without transactions."""
        from confluent_kafka import Producer

        key = _plain_key(settings)
        if key not in self._plain:
            safe = settings.guarantee != "none"
            self._plain[key] = Producer(
                {
                    "linger.ms": 20,
                    "compression.type": "lz4",
                    **_OF_PRODUCERS,
                    **settings.client,
                    "enable.idempotence": safe,
                    "acks": "all" if safe else settings.acks,
                },
                logger=make_quiet_logger(),
            )
            _give_up_oldest(self._plain, settings)
        self._plain.move_to_end(key)
        return self._plain[key]

    def drop_plain(self, settings: KafkaSinkSettings) -> None:
        """Give the producer without transactions up: after some errors it would refuse every further record."""
        with limit("the end of a producer", settings.timeout_s):
            self._plain.pop(_plain_key(settings), None)

    def consumer(self, settings: KafkaSinkSettings) -> Any:
        """The consumer that asks for positions; it never joins the group."""
        from confluent_kafka import Consumer

        key = (_client_key(settings), settings.group)
        if key not in self._consumers:
            self._consumers[key] = Consumer(
                {
                    **settings.client,
                    "group.id": settings.group,
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                },
                logger=make_quiet_logger(),
            )
            _give_up_oldest(self._consumers, settings)
        self._consumers.move_to_end(key)
        return self._consumers[key]


RESIDENT: Final = ResidentClients()


def _client_key(settings: KafkaSinkSettings) -> str:
    """Holds credentials: never to be printed."""
    return repr(sorted(settings.client.items()))


def _plain_key(settings: KafkaSinkSettings) -> str:
    return f"{_client_key(settings)} {settings.guarantee} {settings.acks}"


def _give_up_oldest(clients: OrderedDict[Any, Any], settings: KafkaSinkSettings) -> None:
    """Give up the clients beyond the bound. Blocks while they end."""
    while len(clients) > _CLIENTS_KEPT:
        with limit("the end of the longest unused client", settings.timeout_s):
            clients.popitem(last=False)
