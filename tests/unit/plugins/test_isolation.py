"""A process with other environments imports their packages, except those that Millrace itself runs on."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from connectors.entry_points import own_entries
from worker.plugins.isolation import modules_of, own_distributions, parse_requirements

from ._packages import package

if TYPE_CHECKING:
    from pathlib import Path

ASK = """
import importlib, json, sys
from importlib.metadata import distributions, entry_points, version
import six, json as stdlib, msgspec
found = {"library": importlib.import_module("shadow_me").where, "version": version("shadow-me"),
         "protected": six.__file__, "protected_version": version("six"), "stdlib": stdlib.__file__,
         "own": importlib.import_module("worker.config.worker_config").__file__,
         "spaces": [importlib.import_module("myspace.a").where, importlib.import_module("myspace.b").where],
         "elsewhere": [each.name for each in distributions(path=["/nowhere"])],
         "entries": [each.name for each in entry_points(group="millrace.transforms")],
         "millrace": [each.name for each in entry_points(group="console_scripts") if each.name == "millrace"]}
print(json.dumps(found))
"""


def ask(tmp_path: Path, *environments: Path) -> dict[str, Any]:
    (tmp_path / "asked.py").write_text(ASK)
    arguments = [part for folder in environments for part in ("--environment", str(folder))]
    done = subprocess.run(
        [sys.executable, "-m", "worker.plugins.isolation", *arguments, "asked"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PYTHONPATH": f"{tmp_path}:{tmp_path / 'main'}"},
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_an_environment_comes_before_what_lies_beside_millrace(tmp_path: Path) -> None:
    package(tmp_path / "main", "shadow-me", version="1.0", code="where = 'main'")
    env = package(
        tmp_path / "env",
        "shadow-me",
        version="2.0",
        code="where = 'env'",
        entries="[millrace.transforms]\nshout = shadow_me:Shout\n",
    )
    for folder, name in ((tmp_path / "main", "a"), (env, "b")):
        (folder / "myspace").mkdir()
        (folder / "myspace" / f"{name}.py").write_text(f"where = {folder.name!r}")
    # What must not be taken from there, whatever it holds.
    package(env, "six", version="99.0", code="raise RuntimeError('not Millrace\\'s')")
    package(env, "json", version="99.0", code="raise RuntimeError('not the standard library')")
    (env / "worker").mkdir()
    (env / "worker" / "__init__.py").write_text("raise RuntimeError('not this Millrace')")
    report = ask(tmp_path, env)
    assert (report["library"], report["version"]) == ("env", "2.0")
    assert not report["protected"].startswith(str(env))
    assert report["protected_version"] != "99.0"
    assert not report["stdlib"].startswith(str(env))
    assert not report["own"].startswith(str(env))
    assert report["spaces"] == ["main", "env"]
    assert [name for name in report["entries"] if name not in own_entries("millrace.transforms")] == ["shout"]
    assert report["elsewhere"] == []
    assert report["millrace"] == ["millrace"]


def test_what_millrace_runs_on() -> None:
    distributions = own_distributions()
    assert {"millrace", "aiohttp", "yarl", "msgspec", "packaging"} <= distributions.keys()
    assert {"opentelemetry-sdk", "jsonschema-rs"} <= distributions.keys(), "of the extras that a task host may use"
    assert not {"pytest", "pyspark", "hypothesis"} & distributions.keys()
    modules = modules_of(distributions)
    assert {"aiohttp", "yarl", "msgspec", "six"} <= modules
    assert "pytest" not in modules


def test_requirements_that_count_here() -> None:
    requirements = ["a>=1", "b; python_version < '3'", "c; extra == 'fast'", "not a requirement !!", "d[x]>=2"]
    assert [requirement.name for requirement in parse_requirements(requirements)] == ["a", "d"]
    assert [requirement.name for requirement in parse_requirements(requirements, ["fast"])] == ["a", "c", "d"]
