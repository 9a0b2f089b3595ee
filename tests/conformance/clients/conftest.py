"""One worker of Kafka's and one of ours for all public clients."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from compose.local.worker import MillraceWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compose.local.connect import JavaConnect

PROPERTIES = {"offset.flush.interval.ms": "500"}


@pytest.fixture(scope="package")
def urls(
    java_connect: Callable[..., JavaConnect], bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """Kafka's worker and ours."""
    theirs = java_connect(properties=PROPERTIES)
    ours = MillraceWorker(
        tmp_path_factory.mktemp("clients"),
        bootstrap,
        group=f"clients-{secrets.token_hex(4)}",
        properties=PROPERTIES,
        processes=1,
    )
    try:
        yield theirs.url, ours.start().url
    finally:
        ours.kill()
        theirs.stop()
