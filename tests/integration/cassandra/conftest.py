"""The tests of this folder run on other versions of Cassandra as well, in the slow suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compose.local.cassandra import VERSIONS, CassandraNode
from worker.fetch.java import FAST_START
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import HasCassandra

DEFAULT = "5.0"


@pytest.fixture(
    scope="session",
    params=[version if version == DEFAULT else pytest.param(version, marks=pytest.mark.slow) for version in VERSIONS],
)
def cassandra_version(request: pytest.FixtureRequest) -> str:
    """Every version of Cassandra in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def cassandra(
    cassandra_version: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HasCassandra]:
    """The shared server of all tests, then one of each other version that is asked for."""
    if cassandra_version == DEFAULT:
        yield request.getfixturevalue("cassandra")
        return
    folder = tmp_path_factory.mktemp("cassandra")
    with CassandraNode(folder, port=None, version=cassandra_version, jvm_options=FAST_START, say=say) as node:
        yield node
        node.kill()  # faster than a shutdown
