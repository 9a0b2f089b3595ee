"""The tests of this folder on other versions of Cassandra too: `MILLRACE_CASSANDRA_41=1` and `MILLRACE_CASSANDRA_6=1`."""
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compose.local.cassandra import VERSIONS, CassandraNode, wanted
from compose.local.console import say
from compose.local.errors import Unavailable
from compose.local.jvm import FAST_START

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import HasCassandra

DEFAULT = "5.0"


@pytest.fixture(scope="session", params=VERSIONS)
def cassandra_version(request: pytest.FixtureRequest) -> str:
    """Every version of Cassandra in turn; those that are not asked for by their variable are skipped."""
    version = str(request.param)
    try:
        wanted(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    return version


@pytest.fixture(scope="session")
def cassandra(cassandra_version: str, request: pytest.FixtureRequest,
              tmp_path_factory: pytest.TempPathFactory) -> Iterator[HasCassandra]:
    """The shared server of all tests, then one of each other version that is asked for."""
    if cassandra_version == DEFAULT:
        yield request.getfixturevalue("cassandra")
        return
    folder = tmp_path_factory.mktemp("cassandra")
    with CassandraNode(folder, port=None, version=cassandra_version, jvm_options=FAST_START, say=say) as node:
        yield node
        node.kill()  # faster than a shutdown
