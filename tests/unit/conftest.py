"""Checks of all unit tests."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Descriptors that a module may leave open: those of servers and Spark, which live as long as the session.
_KEPT_OPEN = 100


def _open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.fixture(scope="module", autouse=True)
def _closed_descriptors() -> Iterator[None]:
    """Fail a module that leaves files open: py4j, for one, can't use descriptors above 1,023 and hangs."""
    before = _open_descriptors()
    yield
    if _open_descriptors() - before > _KEPT_OPEN:
        gc.collect()
        left = _open_descriptors() - before
        assert left <= _KEPT_OPEN, f"the module left {left} descriptors open: close what its tests open"
