"""Selection of a run's tests, skips that fail it, and failures shown at once: pytest on a small suite with the same hooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.selection import unexpected_skips

ROOT = Path(__file__).parents[2]
HOOKS = """
from tests.failures import pytest_runtest_makereport
from tests.selection import (pytest_addoption, pytest_collection_modifyitems, pytest_configure, pytest_sessionfinish,
                             pytest_terminal_summary)
"""
SUITE = """
import pytest
from tests.selection import scaled

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.scaled
def test_scaled(): assert scaled(1, 2) == {cases}

def test_quick(): pass
"""
SKIPS = """
import pytest

def test_skipped(): pytest.skip("{reason}")
"""
CUT_SHORT = """
import os

def test_fails(): assert 6 * 7 == 41

def test_ends_the_run(): os._exit(9)
"""


def run(folder: Path, suite: str, *options: str) -> tuple[int, str]:
    (folder / "conftest.py").write_text(HOOKS, encoding="utf-8")
    (folder / "test_it.py").write_text(suite, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={folder}",
        *options,
        str(folder),
    ]
    # Other packages' plugins take seconds to load, and the hooks need none of them.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    return done.returncode, done.stdout


def test_slow_tests_are_left_out(tmp_path: Path) -> None:
    code, output = run(tmp_path, SUITE.format(cases=1))
    assert (code, "2 passed, 1 deselected" in output) == (0, True), output


def test_the_slow_suite_has_slow_and_scaled_tests(tmp_path: Path) -> None:
    code, output = run(tmp_path, SUITE.format(cases=2), "--slow", "-m", "slow or scaled")
    assert (code, "2 passed, 1 deselected" in output) == (0, True), output


@pytest.mark.parametrize(
    ("reason", "options", "code"),
    [
        ("the moon is full", ["--strict-skips"], 1),
        ("the moon is full", [], 0),
        ("the sink does not support evolution", ["--strict-skips"], 0),
    ],
)
def test_an_unexpected_skip_fails_a_strict_run(tmp_path: Path, reason: str, options: list[str], code: int) -> None:
    exit_code, output = run(tmp_path, SKIPS.format(reason=reason), *options)
    assert exit_code == code, output
    assert (f"unexpected skip: {reason}" in output) is ("moon" in reason)


def test_reasons_are_listed_once() -> None:
    assert unexpected_skips(["a", "b", "a", "the target has no gate"]) == ["a", "b"]


def test_a_run_that_is_cut_short_has_shown_its_failures(tmp_path: Path) -> None:
    code, output = run(tmp_path, CUT_SHORT)
    assert code == 9
    assert "failed: test_it.py::test_fails (call)" in output
    assert "assert (6 * 7) == 41" in output
