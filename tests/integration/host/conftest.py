"""A control process's side of a task host, against real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import secrets
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer

from offsets.admin import TopicAdmin
from offsets.store import OffsetStore
from offsets.topics import ensure_internal_topic, internal_topic
from tests.support.eventually import eventually_async, patience
from worker.host.main import serve_host
from worker.metrics.topics import TOPICS
from worker.pipe import Peer
from worker.protocol import (
    HostMessage,
    HostTaskId,
    Init,
    LoopStuck,
    PauseTask,
    ReadLease,
    ReadOffsets,
    StartTask,
    Stats,
    StopTask,
    TaskStateChanged,
    TaskStats,
    ToControl,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PLUGIN = Path(__file__).parent / "plugin"


#: Parts of log lines: asyncio's for a coroutine that was never ended or an error that was never read, aiokafka's for a client
#: that is not closed.
_LEFTOVER_WARNINGS = ("was destroyed", "never retrieved", "Unclosed", "Unexpected error in sender")


def find_leftovers(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Log lines about coroutines and clients that were not ended."""
    gc.collect()
    return [line for line in caplog.text.splitlines() if any(warning in line for warning in _LEFTOVER_WARNINGS)]


class Control:
    """Starts a host, in this process or in one of its own, and remembers what it tells."""

    def __init__(self, bootstrap: str, name: str, properties: dict[str, str] | None = None) -> None:
        self.name = name
        self.client = {"bootstrap_servers": bootstrap}
        self.properties = {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{name}",
            "offset.storage.topic": f"offsets-{name}",
            "offset.storage.replication.factor": "1",
            "offset.flush.interval.ms": "200",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "plugin.path": "host_counter_source:CounterConnector",
            **(properties or {}),
        }
        self.events: list[HostMessage] = []
        #: How long the lease is when the host asks for it, in seconds.
        self.lease_s = 60.0
        self.leases_asked = 0
        self.process: asyncio.subprocess.Process | None = None
        self.peer: Peer | None = None
        self.offsets = OffsetStore(self.properties["offset.storage.topic"], self.client)
        self._serving: asyncio.Task[None] | None = None

    async def start(self, *, process: bool = False) -> None:
        await ensure_internal_topic(
            self.client,
            internal_topic(
                "offset",
                self.properties,
                name=self.properties["offset.storage.topic"],
                partitions=3,
                replication_factor=1,
            ),
        )
        await self.offsets.start()
        await self.start_host(process=process)

    async def start_host(self, *, process: bool) -> None:
        ours, theirs = socket.socketpair()
        if process:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")])}
            with theirs:
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "worker.host.main",
                    "--fd",
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    env=environment,
                )
        else:
            self._serving = asyncio.create_task(serve_host(theirs))
        reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 24)
        self.peer = Peer(reader, writer, self._handle, ToControl)
        self.peer.start()
        await self.ask(Init("127.0.0.1:8083", 0, self.properties, {}, "cluster"), 30)

    async def stop(self) -> None:
        await self.stop_host()
        await self.offsets.stop()

    async def stop_host(self) -> None:
        if self.peer is not None:
            await self.peer.close()
            self.peer = None
        if self._serving is not None:
            await asyncio.wait_for(self._serving, 30)
            self._serving = None
        if self.process is not None:
            await asyncio.wait_for(self.process.wait(), 10)
            self.process = None

    async def assert_ended(self, caplog: pytest.LogCaptureFixture) -> None:
        """Stop a host of this process and assert that its producers leave nothing in the event loop or in the log."""
        await self.stop()
        assert find_leftovers(caplog) == []
        names = [str(getattr(task.get_coro(), "__qualname__", "")) for task in asyncio.all_tasks()]
        assert [
            name for name in names if name.startswith(("Sender.", "SendProduceReqHandler.", "MessageAccumulator."))
        ] == []

    async def kill(self) -> None:
        """``kill -9`` of the host process."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()
        self.process = None
        await self.stop_host()
        self.events = [event for event in self.events if not isinstance(event, Stats)]

    async def ask(self, message: HostMessage, deadline_s: float = 20) -> Any:
        assert self.peer is not None
        return await self.peer.request(message, deadline_s)

    def config(self, **options: Any) -> dict[str, str]:
        return {
            "name": self.name,
            "connector.class": "host_counter_source.CounterConnector",
            "topic": self.name,
            **{name.replace("_", "."): str(value) for name, value in options.items()},
        }

    async def start_task(self, *, paused: bool = False, task: int = 0, **options: Any) -> HostTaskId:
        identity = HostTaskId(self.name, task)
        await self.ask(StartTask(identity, self.config(**options), {}, 1, paused))
        return identity

    async def stop_task(self, task: HostTaskId, deadline_s: float = 5) -> bool:
        stopped: bool = await self.ask(StopTask(task, deadline_s), deadline_s + 15)
        return stopped

    async def pause(self, task: HostTaskId, *, paused: bool) -> None:
        await self.ask(PauseTask(task, paused))

    async def _handle(self, message: HostMessage) -> Any:
        if isinstance(message, ReadOffsets):
            await self.offsets.read_to_end()
            return self.offsets.raw(message.connector)
        if isinstance(message, ReadLease):
            self.leases_asked += 1
            return time.monotonic() + self.lease_s
        if isinstance(message, Stats):
            self.events = [event for event in self.events if not isinstance(event, Stats)]
        self.events.append(message)
        return None

    async def until(self, condition: Callable[[], Any], deadline_s: float = 30) -> Any:
        """Wait until ``condition`` gives something true; a failure shows the host's last events."""
        return await eventually_async(
            condition, "the host has come so far", deadline_s, detail=lambda: self.events[-20:]
        )

    def states(self, task: HostTaskId) -> list[str]:
        return [event.state for event in self.events if isinstance(event, TaskStateChanged) and event.id == task]

    async def state(self, task: HostTaskId, state: str, deadline_s: float = 30) -> TaskStateChanged:
        change: TaskStateChanged = await self.until(
            lambda: next(
                (
                    event
                    for event in reversed(self.events)
                    if isinstance(event, TaskStateChanged) and event.id == task and event.state == state
                ),
                None,
            ),
            deadline_s,
        )
        return change

    @staticmethod
    def own_numbers(stats: TaskStats) -> dict[str, float]:
        """The connector's own metrics."""
        return {item.name: item.value for item in stats.custom if item.name not in TOPICS}

    def stats(self, task: HostTaskId) -> TaskStats | None:
        return next(
            (stats for event in self.events if isinstance(event, Stats) for stats in event.tasks if stats.id == task),
            None,
        )

    def stuck(self) -> list[LoopStuck]:
        return [event for event in self.events if isinstance(event, LoopStuck)]

    async def saved(self) -> dict[str, int]:
        """Source partition -> its saved offset."""
        await self.offsets.read_to_end()
        return {partition["source"]: offset["n"] for partition, offset in self.offsets.connector_offsets(self.name)}

    async def saved_is(self, expected: dict[str, int], deadline_s: float = 30) -> None:
        saved: dict[str, int] = {}

        async def reached() -> bool:
            nonlocal saved
            saved = await self.saved()
            return saved == expected

        await eventually_async(reached, f"the offsets are {expected}", deadline_s, every=0.05, detail=lambda: saved)

    async def consume(
        self, topic: str, count: int, deadline_s: float = 30, isolation: str = "read_committed"
    ) -> list[Any]:
        """All records of a topic, at least ``count`` of them, to its end."""
        async with patience(deadline_s), TopicAdmin(self.client) as admin:
            await eventually_async(lambda: admin.partitions(topic), f"topic {topic} exists", deadline_s, every=0.05)
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.client["bootstrap_servers"],
            auto_offset_reset="earliest",
            isolation_level=isolation,
            check_crcs=True,
        )
        await consumer.start()
        try:
            consumed: list[Any] = []
            async with patience(deadline_s):
                quiet = False
                while len(consumed) < count or not quiet:
                    got = await consumer.getmany(timeout_ms=300)
                    consumed += [record for records in got.values() for record in records]
                    quiet = not got
        except TimeoutError:
            pytest.fail(f"only {len(consumed)} of {count} records in {topic}")
        finally:
            await consumer.stop()
        return consumed

    async def numbers(self, count: int, **options: Any) -> list[int]:
        """The counter's numbers in its topic."""
        return [json.loads(record.value)["n"] for record in await self.consume(self.name, count, **options)]


@pytest.fixture
async def control_for(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Control]]:
    """Factory of ``Control``s with worker properties; started ones are stopped after the test."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    controls: list[Control] = []

    def make(**properties: Any) -> Control:
        controls.append(
            Control(
                bootstrap,
                f"host-{secrets.token_hex(4)}",
                {name.replace("_", "."): str(value) for name, value in properties.items()},
            )
        )
        return controls[-1]

    yield make
    for control in controls:
        if control.process is not None:
            with contextlib.suppress(ProcessLookupError):
                control.process.kill()
        await control.stop()
