"""Asks a process of its own for the plan of a flow: it imports Spark's types, which a worker must not."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Retriable

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_SHOWN: Final = 2000


async def ask_plan(
    properties: Mapping[str, str], running: Mapping[str, str] | None, deadline_s: float
) -> dict[str, Any]:
    """``planning.plan_flow`` of these properties, which go to the process by its standard input.

    Raises:
        ConfigInvalid: the configuration can't be planned.
        Retriable: the process died, or was not done in time.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "spark_jobs.flows.planning",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    request = json.dumps({"configuration": dict(properties), "running": None if running is None else dict(running)})
    try:
        async with asyncio.timeout(deadline_s):
            output, said = await process.communicate(request.encode())
    except TimeoutError:
        raise Retriable(f"the plan was not done within {deadline_s:g} s: Kafka or the sink answers slowly") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        answer = json.loads(output)
    except ValueError:
        message = said.decode("utf-8", "replace").strip()[-_LONGEST_SHOWN:]
        raise Retriable(
            f"the process that plans ended with exit code {process.returncode}; it says: {message}"
        ) from None
    if "error" in answer:
        raise (ConfigInvalid if answer["invalid"] else Retriable)(answer["error"])
    plan: dict[str, Any] = answer["plan"]
    return plan
