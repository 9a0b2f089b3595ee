"""The example package is installed into a folder of its own and found there, by entry point, as a user's package is."""
import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "plugins" / "example"

CONFORMANCE = '''
from collections.abc import Mapping
from connectors.testing import Harness, connector_conformance
from millrace_example.connector import CountdownConnector

class Rocket(Harness):
    flood = 20_000

    def config(self) -> Mapping[str, str]:
        return {"topic": "launch", "start": "100000"}

    async def add(self, count: int) -> None:
        """All numbers are there from the beginning."""

TestCountdown = connector_conformance(CountdownConnector, harness=Rocket, waivers={
    "reports_bad_input": "numbers are never bad",
    "survives_a_schema_change": "a number stays a number",
    "survives_an_outage_of_its_source": "there is no source",
})
'''


def builds_wheels() -> bool:
    """Whether this environment has what turns a source tree into a wheel; pip has to fetch it otherwise."""
    return find_spec("wheel") is not None or (
        find_spec("setuptools") is not None and tuple(map(int, version("setuptools").split(".")[:2])) >= (70, 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source") / "example"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    target = tmp_path_factory.mktemp("plugins")
    offline = ["--no-index", "--no-build-isolation"] if builds_wheels() else []
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                           *offline, "--target", str(target), str(source)], capture_output=True, text=True, timeout=180,
                          check=False)
    assert done.returncode == 0, done.stderr
    return target


def run(code: str) -> object:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_is_not_part_of_the_product() -> None:
    assert run("""
import json
from connectors.testing import installed_connectors
print(json.dumps("countdown" in installed_connectors()))""") is False


def test_the_worker_finds_it_on_its_plugin_path(folder: Path) -> None:
    assert run(f"""
import json
from worker.plugins import PluginRegistry
registry = PluginRegistry({str(folder)!r})
plugin = registry.connector_plugin("countdown")
print(json.dumps([plugin.class_name, plugin.version, plugin.builtin, registry.failures, plugin.cls.__name__]))
""") == ["millrace_example.connector.CountdownConnector", "1.2.3", False, {}, "CountdownConnector"]


def test_the_kit_finds_it_in_a_folder(folder: Path) -> None:
    assert run(f"""
import json, sys
from connectors.testing import installed_connectors
sys.path.append({str(folder)!r})
print(json.dumps({{name: cls.__name__ for name, cls in installed_connectors([{str(folder)!r}]).items()}}))
""") == {"countdown": "CountdownConnector"}


def test_it_passes_the_conformance_kit(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "test_countdown.py").write_text(CONFORMANCE)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path),
                           str(tmp_path / "test_countdown.py")], capture_output=True, text=True, timeout=120, check=False,
                          env={"PYTHONPATH": str(folder)}, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 passed, 3 xfailed" in done.stdout
