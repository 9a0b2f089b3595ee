"""Verifications over REST, and messages that make a topic differ from its table."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compose.local.worker import MillraceWorker


def verify(worker: MillraceWorker, connector: str, **request: Any) -> dict[str, Any]:
    """The result of a verification that starts now; it must not fail."""
    path = f"/connectors/{connector}/verify"
    status, answer = worker.request("POST", path, request)
    assert status == 202, answer

    def ended() -> bool:
        return bool(worker.request("GET", path)[1]["state"] != "running")

    eventually(ended, "the verification ends", within=120, detail=lambda: worker.request("GET", path)[1])
    run = worker.request("GET", path)[1]
    assert run["state"] == "completed", run
    result: dict[str, Any] = run["result"]
    return result


def run_verify(*arguments: str) -> tuple[int, str]:
    """Exit code and output of ``millrace verify``. Blocks."""
    command = [sys.executable, "-m", "worker.cli", "verify", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def tables(result: dict[str, Any]) -> dict[str, Any]:
    """The tables of a result, by their name without the keyspace."""
    return {table["table"].rpartition(".")[2]: table for table in result["tables"]}


def send(bootstrap: str, topic: str, messages: Iterable[tuple[Any, Any]]) -> None:
    """Write keys and values as JSON to a topic; a key of bytes as it is, and no value for None."""

    async def write() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for key, value in messages:
                await producer.send_and_wait(
                    topic,
                    None if value is None else json.dumps(value).encode(),
                    key if isinstance(key, bytes) else json.dumps(key).encode(),
                )

    asyncio.run(write())
