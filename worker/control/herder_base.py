"""What all parts of the herder share."""
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import Retriable
from worker.control.placement import INSTANCE
from worker.protocol import RemoteError, Validate
from worker.rest.facade import REBALANCE_TEXT, RestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.options import Config
    from offsets.cluster import ClusterSnapshot
    from worker.control.node import Node

#: How long a request waits for a leader that is just taking over.
_TAKE_OVER_S: Final = 5.0


class HerderContext:
    """The node, and checks that most operations begin with.

    Args:
        node: this worker.
        config: the worker's parsed configuration.
        cluster_id: Kafka's cluster id.
        version: version of Millrace, as ``GET /`` shows it.
        store_client: aiokafka arguments to read and write a connector's own offsets topic with.
    """

    def __init__(self, node: Node, config: Config, cluster_id: str, version: tuple[str, str],
                 store_client: Callable[[Mapping[str, str]], dict[str, Any]]) -> None:
        self.node = node
        self.config = config
        self.cluster_id = cluster_id
        self.version = version
        self.store_client = store_client
        self.validate_s: float = config["validate.timeout.ms"] / 1000
        self.start_drain: Callable[[], None] | None = None

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The config topic's state now."""
        return self.node.config.snapshot

    def known(self, name: str) -> None:
        """Raise 404 unless the connector exists."""
        if name not in self.snapshot.connectors:
            raise RestError(404, f"Connector {name} not found")

    def connector_type(self, config: Mapping[str, str]) -> str:
        """``source``, ``sink`` or ``unknown``."""
        return self.node.types.get(config.get("connector.class", ""), "unknown")

    async def lead(self) -> None:
        """Raise ``NotLeader`` unless this worker leads; waits a moment if it is just taking over."""
        leader = self.node.leader
        if leader.chosen and not leader.active:
            try:
                async with asyncio.timeout(_TAKE_OVER_S):
                    while leader.chosen and not leader.active:
                        await asyncio.sleep(0.02)
            except TimeoutError:
                pass
        leader.check()

    @property
    def exactly_once(self) -> bool:
        """Whether source records are written in transactions."""
        return str(self.config["exactly.once.source.support"]).lower() == "enabled"

    async def ask_validation(self, config: dict[str, str], plugin: str | None) -> dict[str, Any]:
        """``ConfigInfos`` from a task host."""
        try:
            answer: dict[str, Any] = orjson.loads(await self.node.pool.ask(Validate(config, plugin), self.validate_s))
        except TimeoutError:
            raise RestError(500, f"The connector did not finish to validate its configuration within {self.validate_s:g} s "
                                 "(validate.timeout.ms). Check that the systems it has to reach answer") from None
        except Retriable as error:
            raise RestError(503, str(error)) from error
        except RemoteError as error:
            status = 404 if error.kind == "LookupError" else 400 if error.kind == "ConfigInvalid" else 500
            raise RestError(status, str(error)) from error
        return answer

    async def wait_stopped(self, name: str, deadline_s: float) -> None:
        """Wait until no worker runs a task of the connector.

        Raises:
            RestError: 409: not within the deadline.
        """
        try:
            async with asyncio.timeout(deadline_s):
                while any(task != INSTANCE for task in self.node.placement.table.slots.get(name, ())):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise RestError(409, REBALANCE_TEXT) from None
