"""Servers that the tests of this folder run against: MariaDB, and a real MySQL in the slow suite."""
from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> Any:
    """The MariaDB of all tests, and then the MySQL of all tests where the run has one (``MILLRACE_SLOW=1``)."""
    return request.getfixturevalue(request.param)
