"""All targets by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz import formats, sources

if TYPE_CHECKING:
    from tests.fuzz.engine import Target

TARGETS: Final[dict[str, Target]] = {target.name: target for target in (*sources.TARGETS, *formats.TARGETS)}
