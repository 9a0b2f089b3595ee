"""Every connector that is installed with this project: declared by the rules, and tested with the conformance kit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from connectors.testing import DECLARATION_CHECKS, WAIVERS, installed_connectors
from connectors.testing.checks import CHECKS
from connectors.testing.declarations import JOB_CHECKS
from connectors.testing.fleet import installed_jobs

ROOT = Path(__file__).parents[3]
OURS = {
    name: connector
    for name, connector in installed_connectors().items()
    if connector.__module__.startswith("connectors.")
}
#: Sources of tables: they have the same parts.
DATABASES = {"mysql", "scylla", "cassandra"}
#: Connectors that move data themselves: their options and contract are checked here; the kit and TYPES.md are about records.
JOBS = installed_jobs()


def test_the_fleet_is_found() -> None:
    assert {"spark"} <= JOBS.keys()
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
    tests = [
        path
        for path in (ROOT / "tests").rglob(f"test_{name}_conformance.py")
        if re.search(rf"^Test\w+ = connector_conformance\({OURS[name].__name__}\b", path.read_text(), re.MULTILINE)
    ]
    assert tests, f"no test_{name}_conformance.py calls connector_conformance({OURS[name].__name__}, ...)"


@pytest.mark.parametrize("name", ["mysql", "cassandra", "scylla"])
def test_every_database_passes_the_checks_of_snapshots(name: str) -> None:
    call = rf"^Test\w+ = snapshot_conformance\({OURS[name].__name__}\b"
    (path,) = (ROOT / "tests").rglob(f"test_{name}_conformance.py")
    assert re.search(call, path.read_text(), re.MULTILINE), f"{path} does not call snapshot_conformance"


@pytest.mark.parametrize("name", OURS)
def test_every_folder_reads_the_same(name: str) -> None:
    folder = ROOT / OURS[name].__module__.rpartition(".")[0].replace(".", "/")
    names = {path.name.removesuffix(".py") for path in folder.iterdir()}
    assert {"connector", "config", "task", "TYPES.md"} <= names
    if name in DATABASES:
        assert {"events", "metrics", "model", "schema", "snapshot", "verify"} <= names
    assert (ROOT / "docs" / "connectors" / f"{name}.md").exists()


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("check", JOB_CHECKS)
def test_jobs(name: str, check: str) -> None:
    problems = list(JOB_CHECKS[check](JOBS[name]))
    if name.startswith("java-"):  # the options' names are those of the Java classes
        problems = [problem for problem in problems if not problem.endswith("use lower-case words joined by dots")]
    assert not problems


@pytest.mark.parametrize("name", JOBS)
def test_every_job_has_its_page(name: str) -> None:
    if name.startswith("java-"):  # they share one, which names their classes
        page = (ROOT / "docs" / "jobs" / "java-sinks.md").read_text()
        assert [alias for alias in JOBS[name].aliases if alias not in page] == []
    else:
        assert (ROOT / "docs" / "connectors" / f"{name}-job.md").exists()


def test_aliases_are_unique() -> None:
    named = [(connector.aliases, connector.__name__) for connector in OURS.values()]
    named += [(job.aliases, job.__name__) for job in JOBS.values()]
    names = [alias for aliases, name in named for alias in {*aliases, name}]
    assert len(set(names)) == len(names)


def test_waivers_name_connectors_and_checks() -> None:
    assert set(WAIVERS) <= set(OURS)
    for name, waived in WAIVERS.items():
        assert set(waived) <= {*CHECKS, *DECLARATION_CHECKS}, name
        assert all(waived.values()), name
