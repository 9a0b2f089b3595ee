"""Every declared option of every connector and sink is read, and every field of their settings comes from an option."""

from __future__ import annotations

import dataclasses
import sys
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

import pytest

from connectors.options import ConfigDef
from connectors.testing import installed_connectors
from tests.support.option_uses import Field, fields_of, modules_of, read_options

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

CONNECTORS: Final = {
    name: connector
    for name, connector in installed_connectors().items()
    if connector.__module__.startswith("connectors.")
}
SINKS: Final = {
    point.name: point.load() for point in entry_points(group="millrace.sinks") if "spark_jobs" in point.value
}
#: What several connectors, or several sinks, read their options with.
SHARED: Final = (
    "connectors.cql.options",
    "connectors.formats.masks.masking",
    "connectors.formats.masks.record_masks",
    "connectors.source_options.new_tables",
    "connectors.source_options.number_keys",
    "connectors.text_files",
)
SHARED_BY_SINKS: Final = (
    "spark_jobs.sinks.shared",
    "spark_jobs.sinks.lake",
    "spark_jobs.sinks.jdbc.config",
    "spark_jobs.json_options",
)
#: Groups whose options have no effect, or are refused: they are read by their declarations.
WITHOUT_EFFECT: Final = frozenset({"Accepted for compatibility", "Refused"})
#: Options that are accepted and have no effect, although they are among others.
ACCEPTED: Final = frozenset(
    {
        # Debezium's mode configuration_based: structures of tables need no snapshot here.
        "snapshot.mode.configuration.based.snapshot.schema",
        "snapshot.mode.configuration.based.snapshot.on.schema.error",
    }
)
#: Fields that no option sets, with the reason.
NOT_OPTIONS: Final = {
    "ConnectionSettings.time_zone": "values are read in UTC, whatever the server's zone is",
    "ConnectionSettings.verify_checksums": "only tests read a binlog without it",
    "HeartbeatSettings.timeout_s": "a constant",
    "CassandraEventSettings.max_rows": "a constant of Cassandra's partition updates",
    "CassandraEventSettings.max_bytes": "a constant of Cassandra's partition updates",
    "JdbcSettings.together": "set where there is a second database",
    "CqlTlsSettings.verify": "certificates are verified where there is TLS",
}
#: Structs that still have defaults: those of the snapshot engine, and one that converters have with other options.
WITH_DEFAULTS: Final = frozenset({"SnapshotSettings", "CassandraSnapshotSettings", "OAuthSettings"})
CLUSTERS: Final = {"cassandra": "connectors.cassandra.config.keys", "scylla": "connectors.scylla.config.keys"}


class _Recorder(dict[str, Any]):
    """Parsed options that note which of them are read."""

    def __init__(self, values: Any) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)


def cluster_options(name: str) -> set[str]:
    """The options that a connector over CQL reads to connect, with TLS."""
    keys = import_module(CLUSTERS[name]).CLUSTER_KEYS
    defaults = {key.name: key.default for key in (getattr(keys, field.name) for field in dataclasses.fields(keys))}
    config = _Recorder({**defaults, keys.tls.name: True})
    keys.session(config, (("n1", 9042),), "ONE")
    return config.read


def modules_and_shared(package: str, shared: tuple[str, ...]) -> list[ModuleType]:
    return [*modules_of(package), *(module for name in shared for module in modules_of(name))]


def unread(config_def: Any, read: set[str]) -> list[str]:
    return [
        name
        for name, key in config_def.keys.items()
        if name not in read and key.group not in WITHOUT_EFFECT and name not in ACCEPTED
    ]


@pytest.mark.parametrize("name", CONNECTORS)
def test_every_option_of_a_connector_is_read(name: str) -> None:
    read = read_options(modules_and_shared(CONNECTORS[name].__module__.rpartition(".")[0], SHARED))
    if name in CLUSTERS:
        read |= cluster_options(name)
    assert unread(CONNECTORS[name].config_def, read) == []


@pytest.mark.parametrize("name", SINKS)
def test_every_option_of_a_sink_is_read(name: str) -> None:
    package = SINKS[name].__module__.rpartition(".")[0]
    read = read_options(modules_and_shared(package, SHARED_BY_SINKS), (f"sink.{name}.",))
    assert unread(SINKS[name].config_def, read) == []


def all_fields() -> list[Field]:
    names = [kind.__module__.rpartition(".")[0] for kind in (*CONNECTORS.values(), *SINKS.values())]
    modules = {module.__name__: module for name in (*names, *SHARED, *SHARED_BY_SINKS) for module in modules_of(name)}
    return [field for module in modules.values() for field in fields_of(module)]


def test_every_field_comes_from_an_option_and_has_no_default() -> None:
    fields = all_fields()
    assert len(fields) > 300
    assert {field.name for field in fields if field.default} - {
        field.name for field in fields if field.name.partition(".")[0] in WITH_DEFAULTS
    } == set()
    alone = {
        field.name for field in fields if not field.from_option and field.name.partition(".")[0] not in WITH_DEFAULTS
    }
    assert alone == set(NOT_OPTIONS)


def test_an_option_that_is_only_declared_and_complained_about_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "option_sample.py").write_text(
        """
from connectors.options import ConfigKey, ConfigType, KeyGroup
READ = "a.read"
DECLARED = "a.declared"
LATE = "a.late"
KEYS = (
    ConfigKey(name=READ, type=ConfigType.INT, doc=""),
    KeyGroup("A").low.integer(DECLARED, "", default=1),
    KeyGroup("A").integer(LATE, "", default=1),
)
class SampleSettings:
    _fields = ("read", "fixed", "left")
    _field_defaults = {"left": 0}
    def __init__(self, **values): ...
def settings(config):
    if config[READ] < 0:
        invalid(DECLARED, None, f"{DECLARED} is not {config[READ]}")
    doubled = config[READ] * 2
    return SampleSettings(read=doubled, fixed=5)
"""
    )
    sys.path.insert(0, str(tmp_path))
    try:
        module = import_module("option_sample")
    finally:
        sys.path.remove(str(tmp_path))
    definition = ConfigDef(module.KEYS)
    assert unread(definition, read_options([module])) == ["a.declared", "a.late"]
    assert list(fields_of(module)) == [
        Field("SampleSettings.read", default=False, from_option=True),
        Field("SampleSettings.fixed", default=False, from_option=False),
        Field("SampleSettings.left", default=True, from_option=False),
    ]
