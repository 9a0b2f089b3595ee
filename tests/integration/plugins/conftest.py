"""The example packages of tests/plugins, built from their sources and installed as users do it, without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "plugins"


def _builds_wheels() -> bool:
    """Whether this environment has what turns a source tree into a wheel; pip has to fetch it otherwise."""
    return find_spec("wheel") is not None or (
        find_spec("setuptools") is not None and tuple(map(int, version("setuptools").split(".")[:2])) >= (70, 1)
    )


def pip(command: str, flag: str, target: Path, *sources: Path) -> None:
    """Install packages into a folder, or make wheels there."""
    offline = ["--no-index", "--no-build-isolation"] if _builds_wheels() else []
    arguments = [command, "--quiet", "--disable-pip-version-check", "--no-deps", *offline, flag, str(target)]
    arguments += map(str, sources)
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment in each sub-folder: a, b, example-1.2.3, and a wheel of example 2.0.0."""
    source, target = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("installed")
    left_out = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", ".*")
    for name in ("example", "example_a", "example_b", "clash_1", "clash_2"):
        shutil.copytree(SOURCES / name, source / name, ignore=left_out)
    second = source / "example_2"
    shutil.copytree(source / "example", second)
    for file in (*second.rglob("*.py"), second / "setup.cfg"):
        if "1.2.3" in file.read_text():
            file.write_text(file.read_text().replace("1.2.3", "2.0.0"))
    with ThreadPoolExecutor(2) as pool:
        list(
            pool.map(
                lambda arguments: pip(*arguments),
                [
                    ("install", "--target", target / "example-1.2.3", source / "example"),
                    ("wheel", "--wheel-dir", target, second),
                    ("install", "--target", target / "a", source / "example_a", source / "clash_1"),
                    ("install", "--target", target / "b", source / "example_b", source / "clash_2"),
                ],
            )
        )
    return target


@pytest.fixture
def plugin_path(tmp_path: Path) -> Path:
    """An empty folder for ``plugin.path``."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    return folder


def put(installed: Path, name: str, plugin_path: Path) -> Path:
    """Copy an environment into ``plugin.path``."""
    source = next(installed.glob(f"{name}*"))
    target = plugin_path / source.name
    if source.is_file():
        shutil.copy2(source, target)
    else:
        shutil.copytree(source, target)
    return target
