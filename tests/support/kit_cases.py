"""Cases of the sinks' conformance kit, of which the long ones run with `--slow` only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


def kit_cases(names: Sequence[str], slow: Sequence[str]) -> list[Any]:
    """Parameters for `names`, those in `slow` with the mark."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else pytest.param(name) for name in names]
