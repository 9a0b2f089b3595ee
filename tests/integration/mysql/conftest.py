"""Servers that the tests of this folder run against: MariaDB, and a real MySQL in the slow suite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.mysql.dialect import is_mysql
from tests.integration.mysql.snapshot_live import Live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import HasMariaDb


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> Any:
    """The MariaDB of all tests, and then the MySQL of all tests in the slow suite."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def live(server: HasMariaDb, unique: Callable[[str], str]) -> Iterator[Live]:
    """A database of the test's own, and a task's inside that reads it."""
    world = Live(
        int(server.port or 0), server.user, server.password, unique("pull").replace("-", "_"), mysql=is_mysql(server)
    )
    yield world
    world.close()
