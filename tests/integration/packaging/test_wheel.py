"""The sdist and the wheel: what is in them, and a worker that runs from the wheel in an environment without the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest
from confluent_kafka import Consumer

from compose.local.connect import worker_properties
from compose.local.ports import LOOPBACK, free_port
from compose.local.process.http import is_answering, send_request
from compose.local.process.jvm import write_properties
from compose.local.process.service import Service
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.support.eventually import eventually
from worker.development.licenses import RUNTIME_EXTRAS, bill_of_materials, installed_components

if TYPE_CHECKING:
    from tests.conftest import HasBootstrap

ROOT = Path(__file__).parents[3]
PACKAGES = ("compose", "connectors", "offsets", "spark_jobs", "worker")
FILES = ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist, built from a copy of the sources, so that nothing stays in the checkout."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("sdist")
    left_out = shutil.ignore_patterns("__pycache__", "*.pyc")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=left_out)
    for name in FILES:
        shutil.copy2(ROOT / name, source)
    _python("-c", f"from setuptools.build_meta import build_sdist; build_sdist({str(target)!r})", folder=source)
    (built,) = target.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, made of the sdist alone, as `python -m build` makes it."""
    target = tmp_path_factory.mktemp("wheel")
    _pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(target), str(sdist))
    (built,) = target.glob("*.whl")
    built.with_suffix(".cdx.json").write_text(bill_of_materials(installed_components("millrace", RUNTIME_EXTRAS)))
    return built


def _pip(*arguments: str, python: str = sys.executable) -> None:
    _python("-m", "pip", "--disable-pip-version-check", "--quiet", *arguments, python=python)


def _python(*arguments: str, python: str = sys.executable, folder: Path | None = None) -> None:
    done = subprocess.run([python, *arguments], cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


def test_the_sdist_holds_what_a_wheel_is_made_of(sdist: Path) -> None:
    """The packages with their files and what builds them: no test, no page, nothing that was built."""
    assert sdist.name == f"millrace-{version('millrace')}.tar.gz"
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {*FILES, "PKG-INFO", "worker/fetch/artifacts.toml"} <= names
    assert {name.split("/")[0] for name in names} == {*PACKAGES, *FILES, "PKG-INFO", "millrace.egg-info"}
    assert {name for name in names if name.endswith(".py")} == {*_modules(), "setup.py"}
    assert not any("console/libraries/" in name for name in names)


def _modules() -> set[str]:
    return {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def test_the_wheel_holds_what_the_packages_hold(wheel: Path) -> None:
    """Every module and every file that modules read, and nothing else: no test, no compiled file."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert wheel.name == f"millrace-{version('millrace')}-py3-none-any.whl"
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    assert {name for name in names if name.endswith(".py")} == _modules()
    static = {str(path.relative_to(ROOT)) for path in (ROOT / "worker" / "console" / "static").iterdir()}
    assert static <= names
    assert any(name.startswith("worker/console/libraries/") for name in names)
    assert {"worker/fetch/artifacts.toml", "compose/prometheus/alerts.yml"} <= names


def test_the_bill_of_materials_is_next_to_the_wheel(wheel: Path) -> None:
    """It names the wheel's version and every package that the wheel requires."""
    document = json.loads(wheel.with_suffix(".cdx.json").read_text())
    root = document["metadata"]["component"]
    assert (root["name"], root["version"]) == ("millrace", version("millrace"))
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    required = {
        canonicalize_name(Requirement(line.split(":", 1)[1]).name)
        for line in lines
        if line.startswith("Requires-Dist:") and "extra ==" not in line
    }
    assert len(required) > 20
    assert required <= {canonicalize_name(component["name"]) for component in document["components"]}


@pytest.mark.slow  # fetches and installs all dependencies
def test_a_worker_runs_from_the_wheel_alone(wheel: Path, kafka: HasBootstrap, tmp_path: Path) -> None:
    """In an empty environment and without the checkout, lines of a file reach Kafka."""
    venv.create(tmp_path / "installed", with_pip=True)
    programs = tmp_path / "installed" / "bin"
    _pip("install", str(wheel), python=str(programs / "python"))
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"line {number}\n" for number in range(100)))
    port = free_port()
    properties = worker_properties(kafka.bootstrap, "from-the-wheel", port, 1, {})
    del properties["plugin.discovery"]  # Java only
    write_properties(
        tmp_path / "lines.properties",
        {
            "name": "lines",
            "connector.class": "FileStreamSource",
            "file": str(lines),
            "topic": "from-the-wheel",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        },
    )
    service = Service(
        name="worker from the wheel",
        command=[
            str(programs / "millrace"),
            "worker",
            str(write_properties(tmp_path / "worker.properties", properties)),
            str(tmp_path / "lines.properties"),
        ],
        log_path=tmp_path / "worker.log",
        ready=lambda: is_answering(f"http://{LOOPBACK}:{port}/connectors/lines"),
        environment={"PYTHONPATH": "", "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        folder=tmp_path,
    )
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "from-the-wheel-reader", "auto.offset.reset": "earliest"}
    )
    service.start()
    try:
        status, page = send_request("GET", f"http://{LOOPBACK}:{port}/console")
        assert (status, "<html" in str(page)) == (200, True)
        consumer.subscribe(["from-the-wheel"])
        seen: list[bytes] = []

        def all_lines() -> bool:
            # The topic may not be there yet, which comes as a message with an error.
            seen.extend(message.value() or b"" for message in consumer.consume(100, 0.5) if message.error() is None)
            return len(seen) >= 100

        eventually(all_lines, "all lines are in Kafka", detail=service.log_tail)
        assert seen == [f"line {number}".encode() for number in range(100)]
    finally:
        consumer.close()
        service.stop()


@pytest.mark.slow  # fetches and installs Spark
def test_a_job_runs_from_the_wheel_with_its_extras(wheel: Path, tmp_path: Path) -> None:
    """In an empty environment with the extras, a Spark job makes rows of a file, and tracing has what it needs."""
    venv.create(tmp_path / "installed", with_pip=True)
    programs = tmp_path / "installed" / "bin"
    _pip("install", f"{wheel}[spark,tracing,validation]", python=str(programs / "python"))
    _python(
        "-c",
        "from worker.host.tracing import is_installed; assert is_installed(); import jsonschema_rs",
        python=str(programs / "python"),
        folder=tmp_path,
    )
    (tmp_path / "drop").mkdir()
    (tmp_path / "drop" / "rows.csv").write_text("id,name\n1,a\n2,b\n3,c\n")
    job = {
        "name": "from-the-wheel",
        "source.type": "files",
        "source.files.path": str(tmp_path / "drop"),
        "source.files.format": "csv",
        "source.files.namespace": "drop.rows",
        "source.key.columns": "id",
        "source.table.columns": "id bigint",
        "sink.type": "files",
        "sink.files.path": str(tmp_path / "out"),
        "state.dir": str(tmp_path / "state"),
        "checkpoint.location": str(tmp_path / "checkpoint"),
        "trigger.mode": "available-now",
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [str(programs / "millrace"), "job", "run", "job.json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "", "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Engines leave out folders that begin with an underscore: they hold what was merged into larger files.
    tables = [
        pyarrow.parquet.read_table(path) for path in (tmp_path / "out" / "drop.rows").glob("ums_date_=*/*.parquet")
    ]
    names = sorted(row["name"] for table in tables for row in table.to_pylist())
    assert names == ["a", "b", "c"]
