"""Failures as soon as they happen: a run that is ended from outside, at a limit of CI's, prints no summary.

With MILLRACE_FAILED_TESTS in the environment their names go to that file, one a line, for who runs them once more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

#: The last lines of a failure that are shown at once. The summary has the whole.
_SHOWN_LINES: Final = 25


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of a failure when it happens."""
    report = yield
    names = os.environ.get("MILLRACE_FAILED_TESTS")
    if report.failed and names:
        with Path(names).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")
    reporter: Any = item.config.pluginmanager.get_plugin("terminalreporter")
    if report.failed and reporter is not None:
        reporter.ensure_newline()
        reporter.write_line(f"failed: {report.nodeid} ({report.when}), the end of its trace:")
        for line in report.longreprtext.splitlines()[-_SHOWN_LINES:]:
            reporter.write_line(f"    {line}")
    return report
