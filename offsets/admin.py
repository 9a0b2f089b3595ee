"""The few administrative requests the runtime needs: describe, create and check topics.

``AIOKafkaAdminClient.describe_topics`` lets the broker create a topic that it was only asked about; this does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest

from connectors.errors import Retriable
from offsets.fetch import BrokersOnlyClient, limit_timeouts
from offsets.refusal import find_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOPIC_RESOURCE: Final = 2
#: Seconds between two looks whether a broker knows a new topic.
_LOOK_AGAIN_S: Final = 0.05
_DENIED: Final = (ClusterAuthorizationFailedError, TopicAuthorizationFailedError)
#: What a controller says while brokers start or stop; the error's code is that of a wrong replication factor.
_NO_BROKER_READY: Final = "All brokers are currently fenced"


class TopicRefused(KafkaError):  # type: ignore[misc]  # aiokafka's errors are untyped
    """The broker will not create a topic as it was asked to; its words are the message.

    Attributes:
        kind: the broker's error class.
    """

    def __init__(self, kind: type[Exception], message: str) -> None:
        super().__init__(message)
        self.kind = kind


class TopicAdmin:
    """A short-lived connection for administration: ``async with TopicAdmin(client_arguments) as admin``.

    Args:
        client: aiokafka client arguments.
        deadline_s: how long each request may take, and the connection to be made.
    """

    def __init__(self, client: Mapping[str, Any], deadline_s: float = 15.0) -> None:
        self._arguments = dict(client)
        self._deadline_s = deadline_s
        self._client: Any = None

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            BrokerLoginRefused: a broker answers, and does not let this client in.
            Retriable: no broker could be reached.
        """
        self._client = BrokersOnlyClient(**limit_timeouts(self._arguments))
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._client.bootstrap()
        except (KafkaError, OSError, TimeoutError) as error:
            await self._close_client()
            refused = await find_refusal(self._arguments)
            if refused is not None:
                raise refused from error
            raise Retriable(
                f"no Kafka broker answers at {self._arguments.get('bootstrap_servers')} ({error!r}): check "
                "bootstrap.servers, the security settings and the brokers"
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close_client()

    async def _close_client(self) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2):
                await self._client.close()

    async def _send_request(self, request: Any) -> Any:
        failure: BaseException | None = None
        try:
            async with asyncio.timeout(self._deadline_s):
                for broker in self._client.cluster.brokers():
                    try:
                        return await self._client.send(broker.nodeId, request)
                    except (KafkaConnectionError, OSError) as error:
                        failure = error
        except (KafkaError, TimeoutError) as error:
            failure = error
        raise Retriable(
            f"{type(request).__name__} to {self._arguments.get('bootstrap_servers')} was not answered "
            f"({failure!r}): check the brokers"
        ) from failure

    def count_brokers(self) -> int:
        """How many brokers the cluster has now, as the broker that answered knows it."""
        return len(self._client.cluster.brokers())

    async def partitions(self, topic: str) -> int | None:
        """How many partitions the topic has; None if it does not exist. Never creates it.

        Raises:
            KafkaError: the broker refused (``TopicAuthorizationFailedError`` ...).
            Retriable: it did not answer.
        """
        return _count_partitions(
            topic, await self._send_request(MetadataRequest([topic], allow_auto_topic_creation=False))
        )

    async def wait_visible(self, topic: str) -> None:
        """Wait until every broker knows a topic with its partitions: brokers learn of a new one one after the other.

        Brokers that can't be reached, and users who may not describe the topic, don't hold it up.

        Raises:
            Retriable: a broker does not know the topic in time.
        """
        request = MetadataRequest([topic], allow_auto_topic_creation=False)
        waiting = {broker.nodeId for broker in self._client.cluster.brokers()}
        loop = asyncio.get_running_loop()
        until = loop.time() + self._deadline_s
        while waiting:
            for node in sorted(waiting):
                try:
                    async with asyncio.timeout_at(until):
                        if _count_partitions(topic, await self._client.send(node, request)):
                            waiting.discard(node)
                except TimeoutError:
                    break
                except (KafkaConnectionError, OSError, *_DENIED):
                    waiting.discard(node)
                except KafkaError:
                    continue  # a new topic may have no leader yet: asked again
            if waiting and loop.time() >= until:
                raise Retriable(
                    f"topic {topic} was created, but brokers {sorted(waiting)} don't know it after "
                    f"{self._deadline_s:g} s: check whether they keep up with the controller"
                )
            if waiting:
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def create(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        settings: Mapping[str, str],
    ) -> Literal["created", "exists", "denied"]:
        """Create a topic and wait until all brokers know it; -1 leaves a number to the broker.

        ``denied`` means no permission to create.

        Raises:
            TopicRefused: the broker will not have it so.
            Retriable: it did not answer, can't create topics now, or a broker does not know the new topic in time.
        """
        answer = await self._send_request(
            CreateTopicsRequest(
                [(topic, partitions, replication_factor, [], list(settings.items()))],
                int(self._deadline_s * 1000),
                validate_only=False,
            )
        )
        _name, code, message, *_ = answer.topic_errors[0]
        kind = for_code(code)
        if not code or kind is TopicAlreadyExistsError:
            await self.wait_visible(topic)  # also where somebody else created it a moment ago
            return "exists" if code else "created"
        if kind in _DENIED:
            return "denied"
        if kind.retriable or _NO_BROKER_READY in (message or ""):
            raise Retriable(f"the brokers can't create topic {topic} now: {message or kind.__name__}")
        raise TopicRefused(kind, message or kind.__name__)

    async def settings(self, topic: str) -> dict[str, str]:
        """The topic's settings in effect; empty when this user may not see them, or there is no such topic.

        Raises:
            Retriable: the broker did not answer.
        """
        answer = await self._send_request(DescribeConfigsRequest([(_TOPIC_RESOURCE, topic, None)]))
        code, _message, _kind, _name, entries = answer.resources[0]
        if code:
            return {}
        return {name: value for name, value, *_ in entries if value is not None}


def _count_partitions(topic: str, answer: Any) -> int | None:
    """Partitions of ``topic`` in an answer to ``MetadataRequest``; None if it is unknown. Raises the broker's error."""
    for code, _name, _internal, partitions, *_ in answer.topics:
        kind = for_code(code)
        if kind is UnknownTopicOrPartitionError:
            return None
        if code and not partitions:
            raise kind(f"describing topic {topic!r}")
        return len(partitions)
    return None
