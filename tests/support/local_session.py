"""A task's session without Kafka, for tests of what a session does with its task."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from worker.host.delivery.session import TaskSession
from worker.host.options import CONNECTOR
from worker.protocol import HostTaskId, TaskStats
from worker.turns import Turnstile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connectors.api import SourceTask
    from worker.host.plan import TaskPlan


class LocalSession(TaskSession):
    """Without Kafka: it reads nothing and writes nothing."""

    async def open(self) -> None:
        self.producer = cast("Any", SimpleNamespace(room=asyncio.Event(), rows=0))
        self.kafka.room.set()

    def refresh_stats(self) -> None:
        pass

    async def settle(self) -> None:
        pass

    async def commit(self) -> None:
        pass

    async def shut(self) -> None:
        pass


def local_session(task: SourceTask, refresh_secrets: Callable[[], Awaitable[bool]] | None = None) -> LocalSession:
    """A session that runs ``task``; config providers are asked by ``refresh_secrets``."""

    def stub(**more: Any) -> Any:
        return SimpleNamespace(**more)

    plan = stub(
        scrub=str,
        refresh_secrets=refresh_secrets,
        metrics=None,
        tracing=None,
        id=HostTaskId("c", 0),
        options=CONNECTOR.parse({"errors.retry.delay.max.ms": "1"}),
        log=logging.LoggerAdapter(logging.getLogger(__name__), {}),
        producer=stub(max_request_size=10_000),
        key_converter=None,
        value_converter=None,
        header_converter=None,
        make_task=lambda: task,
        stop_s=1.0,
        turn=Turnstile().turn,
        flush_interval_s=60.0,
    )
    return LocalSession(cast("TaskPlan", plan), TaskStats(HostTaskId("c", 0)), lambda: None)
