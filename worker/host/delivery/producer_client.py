"""Connecting a producer's Kafka client, however long Kafka is unavailable."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka

from connectors.errors import Fatal, Fenced
from offsets.fetch import abandon_producer, renew_credentials
from offsets.refusal import find_refusal
from worker.host.delivery.producer_errors import classify_error, permission_hint
from worker.host.delivery.shared_clients import connections_of
from worker.host.errors import retry_pauses

if TYPE_CHECKING:
    import logging

    from worker.host.delivery.routes import ProducerSettings
    from worker.host.delivery.shared_clients import ClientPool

_START_DEADLINE_S: Final = 30.0
#: How many seconds Kafka may refuse a client that it accepted before.
_REFUSED_S: Final = 60.0


class ClientFailure:
    """Whether the client of a producer has failed and must be replaced, and why."""

    __slots__ = ("_failed", "_reason")

    def __init__(self) -> None:
        self._failed = asyncio.Event()
        self._reason = ""

    def report(self, reason: str) -> None:
        """Say that the client has failed."""
        self._reason = reason
        self._failed.set()

    async def wait(self) -> str:
        """Wait until the client has failed; returns the last reason."""
        await self._failed.wait()
        return self._reason

    def clear(self) -> None:
        """Expect no failure, of a new client."""
        self._failed.clear()


class ProducerConnector:
    """Connects the clients of one producer, one after another.

    Args:
        name: of the task; for messages.
        settings: of the producer.
        log: gets the attempts that fail.
        pool: gives them their clients; None: each has a client of its own.
    """

    def __init__(
        self, name: str, settings: ProducerSettings, log: logging.Logger, pool: ClientPool | None = None
    ) -> None:
        self._name = name
        self._settings = settings
        self._log = log
        self._pool = pool
        self._let_in = False

    async def connect(self) -> AIOKafkaProducer:
        """Return a connected client; while Kafka is unavailable it retries without end, so cancel it to give up.

        Raises:
            Fatal: Kafka refuses this client.
            Fenced: another owner of the transactional id came in between.
        """
        # Batches are made and timed here, not in aiokafka.
        refused_since: float | None = None
        for delay in retry_pauses():
            arguments = {"enable_idempotence": True, **self._settings.arguments, "linger_ms": 0}
            client = AIOKafkaProducer(**arguments)
            if self._pool is not None:
                self._pool.equip(client, self._settings)
            try:
                async with asyncio.timeout(_START_DEADLINE_S):
                    await client.start()
            except (kafka.KafkaError, TimeoutError, OSError) as error:
                await self.discard(client, 0, failed=True)
                kind = classify_error(error)
                if kind == "fenced":
                    raise Fenced(f"{self._name}: another process owns the transactional id: {error!r}") from error
                if kind == "fatal" or isinstance(error, kafka.InvalidTransactionTimeout):
                    raise Fatal(
                        f"{self._name}: Kafka refuses the producer: {error!r}{permission_hint(error)}"
                    ) from error
                refused = await find_refusal(arguments)
                now = asyncio.get_running_loop().time()
                refused_since = None if refused is None else now if refused_since is None else refused_since
                # Who was let in before may be in the middle of a rotation: the new secret comes a little later.
                if refused is not None and (not self._let_in or now - (refused_since or now) > _REFUSED_S):
                    raise Fatal(f"{self._name}: {refused}") from error
                self._log.warning(
                    "%s: no connection to Kafka at %s (%s), retrying in %.1f s",
                    self._name,
                    arguments.get("bootstrap_servers"),
                    refused or repr(error),
                    delay,
                )
                await asyncio.sleep(delay)
            except BaseException:
                await self.discard(client, 0, failed=True)
                raise
            else:
                self._let_in = True
                return client
        raise AssertionError("back-off never ends")

    async def discard(self, client: AIOKafkaProducer, patience_s: float, *, failed: bool) -> None:
        """End a client in whatever state, in ``patience_s`` and six seconds; what is not delivered then is dropped.

        Args:
            client: what ``connect`` returned.
            patience_s: seconds to deliver what is left in.
            failed: whether it is ended because of an error.
        """
        try:
            await abandon_producer(client, patience_s)
        finally:
            if self._pool is not None:
                await self._pool.release(client, failed=failed)

    def renew(self, client: AIOKafkaProducer) -> None:
        """Log in with the settings' arguments as they are now from the next connection on; what is connected stays so."""
        renew_credentials(connections_of(client), self._settings.arguments)
