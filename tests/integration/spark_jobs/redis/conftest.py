"""Clusters of Redis for the tests of this folder; the Redis that all tests share is another one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import redis as redis_library

from compose.local.targets.redis import Redis
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Redis]:
    """A cluster of one node, which has all slots."""
    # A node's other port is 10,000 higher. It must be below those that the kernel uses for outgoing connections.
    port = random.SystemRandom().randint(10_000, 20_000)
    with Redis(tmp_path, port=port, arguments=["--cluster-enabled", "yes"]) as server:
        client: Any = redis_library.Redis(port=server.port or 0)
        client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        eventually(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"), "the cluster is up")
        yield server
