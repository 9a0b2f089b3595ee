"""Snapshots that wait for a time of day: what tasks get until then. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: In an instruction: when its snapshot may begin, milliseconds since 1970.
START_MS: Final = "start_ms"


def due_instructions(instructions: Sequence[Mapping[str, Any]], now_ms: int) -> tuple[list[dict[str, Any]], int | None]:
    """The instructions as tasks get them now, and in how many milliseconds the next one begins; None: none waits.

    A snapshot that waits is a paused one for them, so that a worker whose clock is behind loses nothing that was read.
    """
    waits = [
        int(instruction.get(START_MS) or 0) - now_ms
        for instruction in instructions
        if instruction.get("state") == "running"
    ]
    later = [wait for wait in waits if wait > 0]
    current = [
        {**instruction, "state": "paused"}
        if instruction.get("state") == "running" and int(instruction.get(START_MS) or 0) > now_ms
        else dict(instruction)
        for instruction in instructions
    ]
    return current, min(later, default=None)
