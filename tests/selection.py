"""Selection of a run's tests and of the skips that it may have: hooks of pytest, imported by ``conftest.py``.

Tests marked ``slow`` are left out unless ``--slow`` is given. Tests marked ``scaled`` run always, and take more cases with
``--slow`` (``scaled``). ``./millrace test slow`` runs both kinds. With ``--strict-skips``, as in CI, a skip that is not in
``EXPECTED_SKIPS`` fails the run.
"""

from __future__ import annotations

import gc
import re
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

_T = TypeVar("_T")

#: Reasons of skips that are right on any machine, as regular expressions.
EXPECTED_SKIPS: Final = (
    r"MILLRACE_CONFLUENT_CLASSPATH names no class path",
    r"the sink does not support ",
    r"the target has no ",
    r"an emulated Scylla ",
    r"the sink promises nothing after a crash ",
    r"(are|is) in test_\w+\.py$",
    r"this machine has no MariaDB of its own ",
    r"which only MariaDB does$",
)

#: Fixtures of servers that are too large to download for every run: their tests are slow ones.
_LARGE_SERVERS: Final = frozenset({"mysql", "mysql_pair"})

_slow_run = False


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("millrace")
    group.addoption(
        "--slow", action="store_true", help="run tests marked slow as well, and more cases of those marked scaled"
    )
    group.addoption(
        "--strict-skips", action="store_true", help="fail if a test is skipped for a reason that is not expected"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks."""
    global _slow_run  # noqa: PLW0603 - pytest has no other way to tell modules that are being collected
    _slow_run = bool(config.getoption("--slow"))
    config.addinivalue_line("markers", "slow: takes too long for every run, or needs large downloads; runs with --slow")
    config.addinivalue_line("markers", "scaled: takes more cases with --slow")
    config.addinivalue_line(
        "markers", "proves(end, level, killed): shows a guarantee; see worker/development/guarantee_matrix.py"
    )


def scaled(quick: _T, slow: _T) -> _T:
    """``slow`` in a slow run, else ``quick``. Tests that use it are marked ``scaled``."""
    return slow if _slow_run else quick


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests, which no summary then lists as skipped."""
    for item in items:
        if not _LARGE_SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
    if config.getoption("--slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow") is not None]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item.get_closest_marker("slow") is None]


def pytest_collection_finish() -> None:
    """Keep the garbage collector off what lives to the end anyway: thousands of tests and all modules."""
    gc.collect()
    gc.freeze()


def unexpected_skips(reasons: Iterable[str]) -> list[str]:
    """The reasons that are not in ``EXPECTED_SKIPS``, each once."""
    patterns = [re.compile(pattern) for pattern in EXPECTED_SKIPS]
    return [reason for reason in dict.fromkeys(reasons) if not any(pattern.search(reason) for pattern in patterns)]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which tests were skipped for an unexpected reason."""
    unexpected = _unexpected(session.config)
    if unexpected and session.config.getoption("--strict-skips") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the skips that are not expected; the expected ones are in pytest's own summary."""
    for reason in _unexpected(config):
        terminalreporter.write_line(f"unexpected skip: {reason} (tests/selection.py lists the skips that may be)")


def _unexpected(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter is not None else []
    return unexpected_skips(
        report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
        for report in skipped
    )
