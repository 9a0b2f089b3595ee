"""Requests for previews to a real application process. It starts no driver, as the configurations are refused before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from connectors.errors import ConfigInvalid
from spark_jobs.control import FileLock
from spark_jobs.preview.client import ask_preview, preview_flow
from spark_jobs.preview.request import FlowPreviewRequest, preview_address
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

INVALID = {
    "name": "j",
    "kafka.bootstrap.servers": "127.0.0.1:9",
    "source.topics": "t",
    "source.format": "plain",
    "sink.type": "console",
    "trigger.interval.ms": "soon",
}


@pytest.fixture(autouse=True)
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def running() -> bool:
    lock = preview_address().lock
    return lock.exists() and FileLock.is_locked(lock)


@pytest.mark.parametrize("detached", [False, True])
def test_an_application_answers_several_requests_and_ends_when_idle(*, detached: bool) -> None:
    async def ask() -> None:
        for _ in range(2):
            with pytest.raises(ConfigInvalid, match=r"trigger\.interval\.ms"):
                await ask_preview(INVALID, FlowPreviewRequest(), idle_s=2, detached=detached)
            assert running()

    asyncio.run(ask())
    eventually(lambda: not running(), "the application ended", within=30)
    assert not preview_address().socket.exists()


def test_a_wrong_configuration_or_request_starts_nothing() -> None:
    with pytest.raises(ConfigInvalid, match=r"trigger\.interval\.ms"):
        asyncio.run(preview_flow(INVALID, {}, deadline_s=10))
    with pytest.raises(ConfigInvalid, match="limit must be"):
        asyncio.run(preview_flow(INVALID, {"limit": 0}, deadline_s=10))
    assert not preview_address().lock.exists()
