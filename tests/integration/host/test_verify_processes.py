"""The processes of a verification: killed, or not needed any more."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from connectors.errors import Retriable
from connectors.mysql.model import BinlogPosition
from tests.support.eventually import eventually, eventually_async
from worker.verify.topics import TopicSide, read_in_process

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def silent_kafka() -> Iterator[socket.socket]:
    """Takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def make_side(kafka: socket.socket, folder: Path) -> TopicSide:
    """A topic there."""
    return TopicSide(
        connector={"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"},
        worker={"bootstrap.servers": f"127.0.0.1:{kafka.getsockname()[1]}"},
        topics=frozenset({"t"}),
        keys={"a.t": ("id",)},
        plain={},
        parts={},
        row_ends={},
        columns={"a.t": ("id",)},
        position=BinlogPosition(file="b.000001", pos=4),
        folder=str(folder),
        files=8,
    )


def children() -> set[int]:
    """Processes that this one has started."""
    return {
        int(number)
        for path in Path("/proc/self/task").glob("*/children")
        for number in path.read_text().split()
        if b"spawn_main" in Path(f"/proc/{number}/cmdline").read_bytes()
    }


def test_the_reader_of_topics_ends_when_it_is_not_needed_any_more(silent_kafka: socket.socket, tmp_path: Path) -> None:
    """The source has failed, say."""

    async def read() -> None:
        reading = asyncio.create_task(read_in_process(make_side(silent_kafka, tmp_path)))
        connection, _ = await asyncio.to_thread(silent_kafka.accept)
        reading.cancel()
        with connection, suppress(asyncio.CancelledError):
            await reading

    thread = threading.Thread(target=asyncio.run, args=(read(),), daemon=True)
    thread.start()
    eventually(lambda: not thread.is_alive(), "the process has ended, and nothing waits for Kafka", within=25)
    assert not children()


async def test_the_reader_of_topics_is_killed(silent_kafka: socket.socket, tmp_path: Path) -> None:
    reading = asyncio.create_task(read_in_process(make_side(silent_kafka, tmp_path)))
    (child,) = await eventually_async(children, "the process runs")
    os.kill(child, signal.SIGKILL)
    with pytest.raises(Retriable, match=r"the process that reads the topics ended \(exit code -9\)"):
        await reading
