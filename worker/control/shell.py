"""The Faust app that carries the worker's parts, and nothing else of Faust's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import faust
from faust.app.base import BootStrategy
from mode import Service

from worker.control.group.membership import shell_classes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from connectors.options import Config
    from worker.control.group.membership import GroupMembership

_log = logging.getLogger(__name__)
#: What mode says of its services belongs to Faust's own messages.
_FAUST_LOG: Final = logging.getLogger("faust.millrace")


class WorkerPart(Service):  # type: ignore[misc]  # mode has no types
    """A part of the worker as a service of the app."""

    logger = _FAUST_LOG

    def __init__(self, label: str, start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]) -> None:
        self._label = label
        self._start_part = start
        self._stop_part = stop
        self._began = False
        super().__init__()

    @property
    def label(self) -> str:
        """Its name in Faust's logs."""
        return self._label

    async def on_start(self) -> None:
        """Start it."""
        self._began = True
        await self._start_part()

    async def on_stop(self) -> None:
        """Stop it, if its start began; what goes wrong is logged, for the others have to stop too."""
        if not self._began:
            return
        try:
            await self._stop_part()
        except Exception:  # noqa: BLE001 - whatever it is, the others have to stop too
            _log.exception("Stopping %s went wrong", self._label)


def make_app(
    config: Config, membership: GroupMembership, consumer: Mapping[str, Any], parts: Sequence[WorkerPart]
) -> Any:
    """Make the app; its ``start`` starts the parts and joins the group.

    Args:
        config: the worker's properties, parsed.
        membership: of the group.
        consumer: aiokafka arguments of the member.
        parts: in the order of their start.
    """
    assignor, leader, transport = shell_classes(membership, dict(consumer))
    session_s: float = config["session.timeout.ms"] / 1000

    class Boot(BootStrategy):  # type: ignore[misc]
        enable_kafka_producer = False
        enable_web = False
        enable_sensors = False

        def server(self) -> Iterable[Any]:
            return [*parts, *super().server()]

    class Shell(faust.App):  # type: ignore[misc]
        logger = _FAUST_LOG

        def _new_transport(self) -> Any:
            return transport(self.conf.broker_consumer, self)

    Shell.BootStrategy = Boot
    return Shell(
        config["group.id"],
        broker="kafka://" + ";kafka://".join(config["bootstrap.servers"]),
        store="memory://",
        web_enabled=False,
        PartitionAssignor=assignor,
        LeaderAssignor=leader,
        topic_allow_declare=False,
        broker_session_timeout=session_s,
        broker_heartbeat_interval=config["heartbeat.interval.ms"] / 1000,
        broker_rebalance_timeout=session_s,
        broker_request_timeout=session_s + 4,
        stream_wait_empty=False,
        # Faust only makes this folder; with memory:// nothing is kept in it.
        datadir="/tmp",  # noqa: S108
    )
