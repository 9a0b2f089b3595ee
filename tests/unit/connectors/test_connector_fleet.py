"""Every connector that is installed with this project: declared by the rules, and tested with the conformance kit."""
import re
from pathlib import Path

import pytest

from connectors.testing import DECLARATION_CHECKS, WAIVERS, installed_connectors
from connectors.testing.checks import CHECKS

ROOT = Path(__file__).parents[3]
OURS = {name: connector for name, connector in installed_connectors().items() if connector.__module__.startswith("connectors.")}


def test_the_fleet_is_found() -> None:
    assert {"file", "datagen"} <= OURS.keys()


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("check", DECLARATION_CHECKS)
def test_declarations(name: str, check: str) -> None:
    problems = list(DECLARATION_CHECKS[check](OURS[name]))
    if check in WAIVERS.get(name, {}):
        assert problems, f"{name}: the waiver of {check} is not needed any more"
    else:
        assert not problems


@pytest.mark.parametrize("name", OURS)
def test_every_connector_runs_the_kit(name: str) -> None:
    tests = [path for path in (ROOT / "tests").rglob(f"test_{name}_conformance.py")
             if re.search(rf"^Test\w+ = connector_conformance\({OURS[name].__name__}\b", path.read_text(), re.MULTILINE)]
    assert tests, f"no test_{name}_conformance.py calls connector_conformance({OURS[name].__name__}, ...)"


@pytest.mark.parametrize("name", OURS)
def test_every_folder_reads_the_same(name: str) -> None:
    folder = ROOT / OURS[name].__module__.rpartition(".")[0].replace(".", "/")
    assert {"connector.py", "config.py", "task.py", "TYPES.md"} <= {path.name for path in folder.iterdir()}
    assert (ROOT / "docs" / "connectors" / f"{name}.md").exists()


@pytest.mark.parametrize("name", OURS)
def test_no_connector_knows_the_worker_or_another_connector(name: str) -> None:
    folder = ROOT / OURS[name].__module__.rpartition(".")[0].replace(".", "/")
    allowed = {"api", "errors", "options", "schema", "formats", "cql", folder.name}
    imports = re.compile(r"^\s*(?:from|import) (worker|connectors|offsets|compose)(?:\.(\w+))?", re.MULTILINE)
    for path in folder.rglob("*.py"):
        for package, module in imports.findall(path.read_text()):
            assert package == "connectors", f"{path} imports {package}"
            assert module in allowed | {""}, f"{path} imports connectors.{module}"


def test_aliases_are_unique() -> None:
    names = [alias for connector in OURS.values() for alias in {*connector.aliases, connector.__name__}]
    assert len(set(names)) == len(names)


def test_waivers_name_connectors_and_checks() -> None:
    assert set(WAIVERS) <= set(OURS)
    for name, waived in WAIVERS.items():
        assert set(waived) <= {*CHECKS, *DECLARATION_CHECKS}, name
        assert all(waived.values()), name
