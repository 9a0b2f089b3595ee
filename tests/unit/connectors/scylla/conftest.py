"""Fixtures of the tests of Scylla's reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def impatience() -> Iterator[None]:
    """The reader looks again soon where there is nothing to read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("connectors.scylla.reader._QUIET_S", 0.02)
        yield
