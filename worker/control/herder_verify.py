"""Verifications asked by REST: one at a time of a connector, each in a process of its own, kept in this worker's memory."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from worker.control.herder_offsets import read_positions
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.control.herder_base import HerderContext

#: Verifications at a time in a worker: each reads whole tables and topics.
_MOST: Final = 2
#: Bytes of a line of the process.
_LINE: Final = 1 << 24


@dataclass
class Run:
    """A verification.

    Attributes:
        body: what REST shows of it.
        task: what waits for its process.
    """

    body: dict[str, Any]
    task: asyncio.Task[None] | None = field(default=None)


class VerifyOperations:
    """``/connectors/{connector}/verify``."""

    ctx: HerderContext

    async def start_verification(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to compare a connector's tables with its topics.

        Raises:
            RestError: 404, 409 if one runs already, or too many do.
        """
        await self.ctx.known(name)
        runs = self.ctx.verifications
        before = runs.get(name)
        if before is not None and before.body["state"] == "running":
            raise RestError(409, f"A verification of connector {name} runs already; cancel it, or wait for its end")
        if sum(run.body["state"] == "running" for run in runs.values()) >= _MOST:
            raise RestError(409, f"This worker runs {_MOST} verifications already; wait for their end")
        run = runs[name] = Run(
            {
                "state": "running",
                "started_ms": int(time.time() * 1000),
                "ended_ms": None,
                "tables": request["tables"],
                "progress": "",
                "error": None,
                "result": None,
            }
        )
        run.task = asyncio.create_task(self._run(name, run, dict(request)), name=f"{name}|verify")
        return dict(run.body)

    async def verification(self, name: str) -> dict[str, Any] | None:
        """The last verification that this worker began, or None."""
        await self.ctx.known(name)
        run = self.ctx.verifications.get(name)
        return None if run is None else dict(run.body)

    async def cancel_verification(self, name: str) -> None:
        """End the verification that runs, if one does."""
        await self.ctx.known(name)
        run = self.ctx.verifications.get(name)
        if run is not None and run.task is not None:
            run.task.cancel()
            await asyncio.gather(run.task, return_exceptions=True)

    async def close_verifications(self) -> None:
        """End all of them."""
        for name in list(self.ctx.verifications):
            run = self.ctx.verifications.pop(name)
            if run.task is not None:
                run.task.cancel()
                await asyncio.gather(run.task, return_exceptions=True)

    async def _run(self, name: str, run: Run, request: Mapping[str, Any]) -> None:
        body = run.body
        try:
            await self._talk(name, body, request)
        except asyncio.CancelledError:
            body["state"] = "cancelled"
            raise
        except (RestError, OSError, ValueError) as error:
            body.update(state="failed", error=str(error))
        finally:
            body["ended_ms"] = int(time.time() * 1000)

    async def _talk(self, name: str, body: dict[str, Any], request: Mapping[str, Any]) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "worker.verify_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LINE,
            start_new_session=True,
        )
        try:
            if process.stdin is None or process.stdout is None:
                raise OSError("the process has no pipes")
            first = {
                **request,
                "connector": dict(self.ctx.snapshot.connectors[name]),
                "worker": dict(self.ctx.properties),
            }
            process.stdin.write(orjson.dumps(first) + b"\n")
            async for line in process.stdout:
                message = orjson.loads(line)
                if "ask" in message:
                    offsets = [
                        {"partition": partition, "offset": offset}
                        for partition, offset in await read_positions(self.ctx, name)
                    ]
                    process.stdin.write(orjson.dumps({"offsets": offsets}) + b"\n")
                elif "progress" in message:
                    body["progress"] = message["progress"]
                elif "result" in message:
                    body.update(state="completed", result=message["result"])
                else:
                    body.update(state="failed", error=message["error"])
            if body["state"] == "running":
                body.update(
                    state="failed", error="The process that compared ended; see the worker's memory and its log"
                )
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
