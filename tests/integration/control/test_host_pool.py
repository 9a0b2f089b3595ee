"""A pool with real task hosts: what a question that ends its host costs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from connectors.errors import Retriable
from tests.support.eventually import eventually_async
from worker.control.hosts import HostPool
from worker.protocol import Init, Validate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from worker.control.host_process import HostProcess

SOURCE = "failing_answers.FailingSource"


@pytest.fixture
async def pool(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostPool]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("plugin")), prepend=":")
    properties = {
        "bootstrap.servers": bootstrap,
        "group.id": "pool",
        "plugin.path": SOURCE.replace(".", ":"),
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.topic": "pool-offsets",
    }

    def make_init(host: HostProcess) -> Init:
        return Init("127.0.0.1:8083", host.number, properties, {}, "cluster")

    started = HostPool(3, make_init, Mock(), stuck_s=30.0)
    try:
        await started.start()
        yield started
    finally:
        await started.stop(5)


def question(failure: Path) -> Validate:
    return Validate({"name": "source", "connector.class": SOURCE, "failure": str(failure)})


async def test_a_question_that_ends_its_host_ends_no_other(pool: HostPool, tmp_path: Path) -> None:
    failure = tmp_path / "failure"
    failure.write_text("always ends")
    before = {host.number: host.pid for host in pool.hosts}
    with pytest.raises(Retriable, match=r"task host \d .* ended before it answered"):
        await pool.ask(question(failure), 30, ())

    def list_replaced() -> list[int]:
        return [host.number for host in pool.hosts if host.pid != before[host.number]]

    await eventually_async(list_replaced, "the host has a successor", 60)
    assert len(list_replaced()) == 1, "the others work on"


async def test_a_question_goes_past_a_host_that_has_ended(pool: HostPool, tmp_path: Path) -> None:
    first: Any = pool.hosts[0]
    pool.kill(0)
    await eventually_async(first.peer.closed.is_set, "the host has ended", 20, every=0.001)
    first.ready = True  # as until its keeper has seen it
    assert await asyncio.wait_for(pool.ask(question(tmp_path / "failure"), 30, ()), 30)
