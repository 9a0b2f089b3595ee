"""Full pulls as REST shows and takes them; see ``connectors.pull_views``. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectors import pull_views
from connectors.mysql import start
from connectors.mysql.snapshot import state as notes
from connectors.mysql.statements import is_condition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Instruction, Position


def check_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request for a full pull in the form in which tasks get it.

    Raises:
        ConfigInvalid: a member is not what it has to be; the message says what is expected.
    """
    return pull_views.check_request(request, condition=is_condition)


def snapshots(
    prefix: str, instructions: Sequence[Instruction], offsets: Sequence[tuple[Position, Position]]
) -> list[dict[str, Any]]:
    """All full pulls: those that were asked for, and what tasks have saved of them and of others; the oldest first."""
    saved: dict[str, list[Mapping[str, Any]]] = {}
    for partition, offset in offsets:
        request = partition.get(start.SNAPSHOT)
        if partition.get(start.SERVER) == prefix and isinstance(request, str):
            saved.setdefault(request, []).append(offset)
    return pull_views.views(instructions, saved, lambda name, text: notes.progress(name, notes.parse(text)))
