"""The plugins of one process: entry points, names, versions, packages that don't load."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from connectors.errors import ConfigInvalid
from worker.plugins.model import PluginInfo
from worker.plugins.registry import PluginRegistry

from .sample_plugins import OtherSampleSourceConnector, SampleSourceConnector

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HERE = SampleSourceConnector.__module__
FILE = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.fixture(autouse=True)
def _clean_path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


def package(folder: Path, name: str, code: str, entries: str) -> Path:
    """An installed package: a module and the metadata that pip would write."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(textwrap.dedent(code))
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(textwrap.dedent(entries))
    return folder


UNDECLARED = """
    from connectors.api import SourceConnector
    class Broken(SourceConnector):
        async def task_configs(self, max_tasks):
            return []
"""
CONNECTOR = """
    from tests.unit.validation.sample_plugins import SampleSourceConnector
    class PackagedConnector(SampleSourceConnector):
        version = "7.0"
        aliases = ("com.example.Packaged{n}Connector",)
"""


@pytest.mark.parametrize(
    "name",
    [
        FILE,
        "FileStreamSource",
        "FileStreamSourceConnector",
        "file",
        f" {FILE} ",
        "connectors.file.connector.FileStreamSourceConnector",
        "connectors.file.connector:FileStreamSourceConnector",
    ],
)
def test_names_of_a_connector(name: str) -> None:
    from connectors.file.connector import FileStreamSourceConnector

    assert PluginRegistry().connector(name) is FileStreamSourceConnector


def test_an_unknown_name() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        PluginRegistry().connector("Nope")
    text = str(caught.value)
    assert text.startswith(
        "Failed to find any class that implements Connector and which name matches Nope, available "
        "connectors are: PluginDesc{klass=class "
    )
    assert f"PluginDesc{{klass=class {FILE}, name='{FILE}', version='" in text


def test_a_connector_is_listed_under_each_name_that_can_be_configured() -> None:
    registry = PluginRegistry()
    rows = registry.describe()
    classes = [row["class"] for row in rows]
    assert FILE in classes
    assert "connectors.file.connector.FileStreamSourceConnector" in classes
    assert classes == sorted(classes)
    assert {row["type"] for row in rows} == {"source", "sink"}
    assert {row["class"] for row in rows if row["type"] == "sink"} >= {
        "spark_jobs.SparkJob",
        "spark_jobs.connector.SparkJob",
        "io.debezium.connector.jdbc.JdbcSinkConnector",
    }
    for row in rows:
        assert registry.connector(row["class"]).version == row["version"]
    everything = registry.describe(connectors_only=False)
    assert {row["type"] for row in everything} == {
        "source",
        "sink",
        "transformation",
        "predicate",
        "converter",
        "header_converter",
    }
    assert everything[: len(rows)] == rows


def test_a_class_named_in_plugin_path() -> None:
    registry = PluginRegistry(f"{HERE}:SampleSourceConnector")
    assert registry.connector("com.example.SampleSourceConnector") is SampleSourceConnector
    assert registry.connector("SampleSource") is SampleSourceConnector
    assert registry.failures.keys() <= PluginRegistry().failures.keys()


def test_a_short_name_of_two_connectors_means_neither() -> None:
    registry = PluginRegistry([f"{HERE}:SampleSourceConnector", f"{HERE}:OtherSampleSourceConnector"])
    with pytest.raises(ConfigInvalid, match="More than one source matches alias SampleSource") as caught:
        registry.connector("SampleSource")
    assert "com.example.SampleSourceConnector, org.other.SampleSourceConnector" in str(caught.value)
    assert registry.connector("org.other.SampleSourceConnector") is OtherSampleSourceConnector


@pytest.mark.parametrize("isolated", [False, True])
def test_packages_that_can_be_imported(tmp_path: Path, isolated: bool) -> None:
    name = f"millrace_test_packaged_{int(isolated)}"
    package(
        tmp_path,
        name,
        CONNECTOR.format(n=int(isolated)),
        f"[millrace.connectors]\npackaged{int(isolated)} = {name}:PackagedConnector\n",
    )
    sys.path.insert(0, str(tmp_path))
    registry = PluginRegistry("", [str(tmp_path)] if isolated else [])
    assert registry.connector(f"com.example.Packaged{int(isolated)}Connector").version == "7.0"
    assert registry.connector(f"packaged{int(isolated)}").__module__ == name
    assert f"packaged{int(isolated)}" not in registry.builtin_connectors()
    assert {"class": f"{name}.PackagedConnector", "type": "source", "version": "7.0"} in registry.describe()


def test_of_two_versions_the_one_that_is_wanted(tmp_path: Path) -> None:
    name = "millrace_test_newer"
    package(
        tmp_path,
        name,
        CONNECTOR.replace("com.example.Packaged{n}Connector", FILE).replace("7.0", "999.0"),
        f"[millrace.connectors]\nnewer = {name}:PackagedConnector\n",
    )
    sys.path.insert(0, str(tmp_path))
    registry = PluginRegistry("", [str(tmp_path)])
    builtin_version = PluginRegistry().connector_plugin(FILE).version
    assert registry.connector(FILE).__module__ == name
    assert registry.connector(FILE, builtin_version).__module__ == "connectors.file.connector"
    assert registry.connector(FILE, "[1000,)").__module__ == name
    assert (
        registry.connector("connectors.file.connector.FileStreamSourceConnector").__module__
        == "connectors.file.connector"
    )
    assert registry.versions("source", FILE) == [builtin_version, "999.0"]
    assert registry.check_version(registry.connector_plugin(FILE), "[1000,)") == (
        f"Plugin {FILE} not found that matches the version range [1000,), available versions: [{builtin_version}, 999.0]"
    )
    assert PluginRegistry("", [str(tmp_path)], [f"{name}:PackagedConnector"]).versions("source", FILE) == [
        builtin_version
    ]


def test_lists_with_the_plugins_of_other_processes() -> None:
    other = PluginInfo("source", (FILE,), ("FileStreamSource",), (FILE,), "999.0", "other@1")
    stage = PluginInfo("transformation", ("com.example.Stamp",), ("stamp",), ("com.example.Stamp",), "1", "other@1")
    registry = PluginRegistry().seeing([other, stage])
    assert registry.versions("source", "FileStreamSource")[-1] == "999.0"
    assert "com.example.Stamp" in registry.class_names("transformation")
    assert {"class": FILE, "type": "source", "version": "999.0"} in registry.describe()
    assert PluginRegistry().versions("source", FILE) != registry.versions("source", FILE)


@pytest.mark.parametrize(
    ("label", "code", "target", "text"),
    [
        ("raises", "raise RuntimeError('no driver')", "Broken", "RuntimeError: no driver"),
        ("exits", "raise SystemExit(3)", "Broken", "SystemExit: 3"),
        ("missing", "", "Broken", "AttributeError"),
        ("import", "import millrace_no_such_driver", "Broken", "millrace_no_such_driver"),
        ("function", "def Broken(): pass", "Broken", "it is a function, not a class"),
        ("other", "class Broken: pass", "Broken", "it is no SourceConnector"),
        (
            "abstract",
            "from tests.unit.validation.sample_plugins import UnfinishedConnector as Broken",
            "Broken",
            "task_configs",
        ),
        ("undeclared", UNDECLARED, "Broken", "it does not declare version"),
    ],
)
def test_a_package_that_does_not_load_harms_no_other(
    tmp_path: Path, label: str, code: str, target: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"millrace_test_broken_{label}"
    package(tmp_path, name, code, f"[millrace.connectors]\nbroken = {name}:{target}\n")
    package(
        tmp_path, f"{name}_ok", CONNECTOR.format(n=label), f"[millrace.connectors]\nok = {name}_ok:PackagedConnector\n"
    )
    sys.path.insert(0, str(tmp_path))
    registry = PluginRegistry("", [str(tmp_path)])
    assert text in registry.failures[f"{name}:{target}"]
    assert any(f"{name}:{target}" in record.getMessage() for record in caplog.records)
    assert registry.connector(f"com.example.Packaged{label}Connector").version == "7.0"
    assert registry.connector("FileStreamSource")


def test_a_name_that_is_taken_stays(tmp_path: Path) -> None:
    name = "millrace_test_taken"
    package(
        tmp_path,
        name,
        CONNECTOR.replace("com.example.Packaged{n}Connector", FILE),
        f"[millrace.connectors]\ntaken = {name}:PackagedConnector\n",
    )
    sys.path.insert(0, str(tmp_path))
    registry = PluginRegistry()
    assert registry.connector(FILE).__module__ == "connectors.file.connector"
    assert f"the name {FILE} is" in registry.failures[f"{name}:PackagedConnector"]


def test_what_plugin_path_names_must_be_there(tmp_path: Path) -> None:
    registry = PluginRegistry(f"{tmp_path}/nowhere,nosuchname,{tmp_path},file,no.such.module:Class")
    assert "neither a folder nor an entry point" in registry.failures["nosuchname"]
    assert "ModuleNotFoundError" in registry.failures["no.such.module:Class"]
    assert registry.failures.keys() == {"nosuchname", "no.such.module:Class"}
    assert registry.connector("FileStreamSource")


@pytest.mark.parametrize("name", ["org.apache.kafka.connect.json.JsonConverter", "JsonConverter", "Json"])
def test_names_of_a_converter(name: str) -> None:
    from worker.converters.json import JsonConverter

    registry = PluginRegistry()
    assert registry.converter(name) is JsonConverter
    assert registry.header_converter(name) is JsonConverter


def test_converters_and_providers() -> None:
    registry = PluginRegistry()
    assert registry.header_converter("SimpleHeaderConverter")
    with pytest.raises(
        ConfigInvalid, match=r"Class SimpleHeaderConverter could not be found\. Available are: .*JsonConverter"
    ):
        registry.converter("SimpleHeaderConverter")
    assert registry.find("config_provider", "org.apache.kafka.common.config.provider.FileConfigProvider") is not None
    assert registry.find("config_provider", "Nope") is None
    assert "JsonConverter" in registry.converter_definitions()
    assert set(registry.transform_definitions()) >= {"RegexRouter", "TopicNameMatches"}
    assert set(registry.builtin_connectors()) >= {"file"}


@pytest.mark.parametrize(
    ("version_range", "shown"),
    [
        (None, None),
        ("1.2.3", None),
        ("[1,2)", None),
        ("latest", None),
        ("1.2", "[1.2,1.2]"),
        ("[2,3)", "[2,3)"),
        ("bogus", "[bogus,bogus]"),
    ],
)
def test_versions(version_range: str | None, shown: str | None) -> None:
    registry = PluginRegistry(f"{HERE}:SampleSourceConnector")
    complaint = registry.check_version(registry.connector_plugin("SampleSource"), version_range)
    if shown is None:
        assert complaint is None
    else:
        assert complaint == (
            f"Plugin com.example.SampleSourceConnector not found that matches the version range {shown}, "
            "available versions: [1.2.3]"
        )
