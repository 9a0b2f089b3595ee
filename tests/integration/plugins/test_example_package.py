"""The example package is installed into a folder of its own, as a user's package is, and passes its own tests there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from .conftest import SOURCES

if TYPE_CHECKING:
    from pathlib import Path


def millrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "worker.cli", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_its_own_tests_pass_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    """With nothing of this checkout's tests in reach: Millrace's kits come with the product."""
    shutil.copytree(SOURCES / "example" / "tests", tmp_path / "tests")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "tests"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(installed / "example-1.2.3")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "19 passed, 3 xfailed" in done.stdout


def test_the_command_line_lists_plugins_with_environments_and_what_can_not_be_used(
    installed: Path, tmp_path: Path
) -> None:
    info = tmp_path / "bad" / "bad-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[millrace.connectors]\nbad = bad:Bad\n")
    (tmp_path / "bad" / "bad.py").write_text("import os\nprint('last words', flush=True)\nos._exit(3)\n")
    done = millrace("plugins", "--plugin-path", f"{installed},{tmp_path}")
    rows = {tuple(line.split()) for line in done.stdout.splitlines()}
    wheel = "millrace_example-2.0.0-py3-none-any.whl"
    assert ("source", "millrace_example.connector.CountdownConnector", "1.2.3", "example-1.2.3") in rows
    assert ("source", "millrace_example.connector.CountdownConnector", "2.0.0", wheel) in rows
    assert ("transformation", "example_b.ClashB", "1.0", "b") in rows
    assert any(row[0] == "source" and row[-1] == "main" for row in rows)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "failed to load bad: bad:Bad: the process that imported it ended with exit code 3. The end "
        "of what it printed: last words"
    )


def test_options_of_a_connector_in_an_environment(installed: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "worker.cli", "options", "countdown"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "MILLRACE_PLUGIN_PATH": str(installed)},
    )
    assert done.returncode == 0, done.stderr
    assert "start  (long, numbers; default 10)" in done.stdout
