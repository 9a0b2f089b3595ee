"""In place of a verification's process: it says what the process says, and compares nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from worker.control.herder.offsets import read_positions

if TYPE_CHECKING:
    import random

    from worker.control.herder.verify import VerificationRun, VerifyOperations

#: Between two verifications of a connector whose configuration asks for them.
INTERVAL_MS: Final = 20_000
TABLES: Final = ("one", "two", "three")
_POSITIONS: Final = 0.3
_FAILS: Final = 0.05
_DIFFERS: Final = 0.3


def is_scheduled(version: str) -> bool:
    """Whether a version of a connector's configuration asks for verifications."""
    return int(version) % 3 == 0


async def compare_tables(draw: random.Random, operations: VerifyOperations, name: str, run: VerificationRun) -> None:
    """Say how the tables of a connector compare that are not compared yet.

    Raises:
        OSError: the process could not be started.
    """
    if draw.random() < _FAILS:
        raise OSError("the process could not be started")
    done = [table["table"] for table in (run.body["result"] or {"tables": ()})["tables"]]
    await asyncio.sleep(draw.random())
    await operations._handle_message(name, run, {"tables": TABLES})
    for table in TABLES:
        if table in done:
            continue
        await asyncio.sleep(draw.random() ** 3 * 4)
        if draw.random() < _POSITIONS:
            await read_positions(operations.ctx, name)
        different = int(draw.random() < _DIFFERS)
        counts = {"missing": 0, "extra": 0, "different": different, "unsettled": 0}
        result = {"table": table, "equal": not different, "rows": {"source": 1, "topic": 1}, "condition": "id = 1"}
        await operations._handle_message(name, run, {"table": {**result, **counts}, "notes": []})
    await operations._handle_message(name, run, {"completed": True})
