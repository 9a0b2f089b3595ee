"""The plugins, environments and versions that a configuration selects."""

from __future__ import annotations

import pytest

from connectors.errors import ConfigInvalid
from worker.plugins.catalog import PluginCatalog
from worker.plugins.environments import Environment
from worker.plugins.model import PluginInfo, list_plugins

WORKER = {"key.converter": "Json", "value.converter": "Json", "config.providers.vault.class": "vault"}


def plugin(kind: str, name: str, version: str, environment: str = "") -> PluginInfo:
    simple = name.rpartition(".")[2]
    return PluginInfo(kind, (name,), (simple, simple.removesuffix("Connector")), (name,), version, environment)


def env(key: str, **distributions: str) -> tuple[str, Environment]:
    name, _, fingerprint = key.partition("@")
    return key, Environment(name, f"/{name}", fingerprint, distributions)


ENVIRONMENTS = dict(
    [
        env("old@1", plug="1"),
        env("new@1", plug="2"),
        env("a@1", clash="1"),
        env("b@1", clash="2"),
        env("c@1", other="1"),
        env("secrets@1"),
    ]
)
PLUGINS = [
    plugin("source", "org.FileConnector", "4"),
    plugin("converter", "org.Json", "4"),
    plugin("transformation", "org.Filter", "4"),
    plugin("sink", "org.JobConnector", "1"),
    plugin("source", "com.CountConnector", "1.0", "old@1"),
    plugin("source", "com.CountConnector", "2.0", "new@1"),
    plugin("transformation", "com.Stamp", "1.0", "old@1"),
    plugin("transformation", "com.Stamp", "2.0", "new@1"),
    plugin("source", "com.AConnector", "1", "a@1"),
    plugin("transformation", "com.B", "1", "b@1"),
    plugin("predicate", "com.C", "1", "c@1"),
    plugin("converter", "org.Json", "4", "c@1"),
    plugin("config_provider", "com.Vault", "1", "secrets@1"),
]
CATALOG = PluginCatalog(
    [*PLUGINS, PluginInfo("config_provider", ("x.vault",), ("vault",), ("x.vault",), "1", "secrets@1")],
    ENVIRONMENTS,
    {"millrace"},
)


def select(catalog: PluginCatalog = CATALOG, /, **config: str) -> tuple[tuple[str, ...], str, dict[str, str]]:
    selection = catalog.select({name.replace("_", "."): value for name, value in config.items()}, WORKER)
    return (
        selection.environments,
        "" if selection.connector is None else selection.connector.version,
        dict(selection.problems),
    )


def test_what_millrace_has_itself_needs_nothing() -> None:
    assert select(connector_class="File", transforms="f", transforms_f_type="org.Filter") == ((), "4", {})


def test_the_latest_version_is_taken_unless_one_is_asked_for() -> None:
    assert select(connector_class="Count") == (("new@1",), "2.0", {})
    assert select(connector_class="com.CountConnector", connector_plugin_version="[1,2)") == (("old@1",), "1.0", {})
    environments, version, problems = select(connector_class="Count", connector_plugin_version="3")
    assert (environments, version) == (("new@1",), "2.0")
    assert set(problems) == {"connector.class", "connector.plugin.version"}
    assert problems["connector.class"] == (
        "Plugin com.CountConnector not found that matches the version range [3,3], available versions: [1.0, 2.0]"
    )


def test_parts_without_a_version_follow_the_connector() -> None:
    parts = {"connector_class": "Count", "transforms": "s", "transforms_s_type": "Stamp"}
    assert select(**parts) == (("new@1",), "2.0", {})
    assert select(**parts, connector_plugin_version="1.0") == (("old@1",), "1.0", {})
    # Asked for, it must be that version.
    environments, _, problems = select(**parts, connector_plugin_version="1.0", transforms_s_plugin_version="2.0")
    assert environments == ("old@1",)
    assert set(problems) == {"transforms.s.type", "transforms.s.plugin.version"}
    assert (
        "the environments old and new hold different versions of the distribution plug" in problems["transforms.s.type"]
    )


def test_a_set_of_environments() -> None:
    assert select(connector_class="A", predicates="p", predicates_p_type="com.C") == (("a@1", "c@1"), "1", {})
    # Among equal versions that of an environment which is needed anyway; it makes no difference to the set.
    assert select(connector_class="A") == (("a@1",), "1", {})
    environments, _, problems = select(connector_class="A", transforms="t", transforms_t_type="com.B")
    assert environments == ("a@1",)
    assert "hold different versions of the distribution clash: 1 and 2" in problems["transforms.t.type"]


def test_config_providers_and_jobs() -> None:
    assert select(connector_class="File", password="${vault:x:y}") == (("secrets@1",), "4", {})
    assert select(connector_class="File", password="${other:x:y}") == ((), "4", {})
    assert select(connector_class="Job", transforms="t", transforms_t_type="com.B") == ((), "1", {})


def test_names_that_are_nothing() -> None:
    _, _, problems = select(connector_class="Nope")
    assert problems["connector.class"].startswith(
        "Failed to find any class that implements Connector and which name matches Nope, available connectors are: PluginDesc{"
    )
    assert select(connector_class="${env:CLASS}") == ((), "", {})
    assert select(connector_class="File", transforms="t", transforms_t_type="Nope") == ((), "4", {})
    two = PluginCatalog([plugin("source", "a.TwoConnector", "1"), plugin("source", "b.TwoConnector", "1")])
    with pytest.raises(ConfigInvalid, match="More than one source matches alias Two"):
        two.find("source", "Two")
    assert "More than one source" in select(two, connector_class="Two")[2]["connector.class"]
    assert two.connector({"connector.class": "Two"}) is None


def test_of_equal_versions_the_one_in_an_environment_that_is_needed_anyway_is_taken() -> None:
    both = PluginCatalog(
        [
            plugin("source", "com.XConnector", "1", "z@1"),
            plugin("transformation", "com.Y", "1", "other@1"),
            plugin("transformation", "com.Y", "1", "z@1"),
        ],
        dict([env("other@1"), env("z@1")]),
    )
    assert select(both, connector_class="X", transforms="t", transforms_t_type="Y") == (("z@1",), "1", {})


def test_the_workers_converters_count_where_the_connector_names_none() -> None:
    catalog = PluginCatalog([*PLUGINS, plugin("converter", "com.Packed", "1", "c@1")], ENVIRONMENTS)
    worker = {"value.converter": "com.Packed"}
    assert catalog.select({"connector.class": "File"}, worker).environments == ("c@1",)
    assert catalog.select({"connector.class": "File", "value.converter": "org.Json"}, worker).environments == ()


def test_a_plugin_of_any_kind() -> None:
    for kind in ("source", "sink", "converter", "header_converter", "transformation", "predicate"):
        catalog = PluginCatalog(
            [plugin("config_provider", "com.P", "9"), plugin(kind, "com.P", "1"), plugin(kind, "com.P", "2")]
        )
        assert catalog.any_kind("com.P") == plugin(kind, "com.P", "2")
        assert catalog.any_kind("com.P", "1") == plugin(kind, "com.P", "1")
    assert CATALOG.any_kind("Vault") is None


def test_a_plugin_that_is_there_but_can_not_be_loaded() -> None:
    catalog = PluginCatalog(
        PLUGINS, ENVIRONMENTS, failures={"": {}, "boom-1": {"boom.parts:Boom": "RuntimeError: kaboom"}}
    )
    for name in ("boom.parts.Boom", "boom.parts:Boom", "Boom", "Boom$Value"):
        assert select(catalog, connector_class="File", transforms="t", transforms_t_type=name)[2] == {
            "transforms.t.type": f"Class {name} is in the environment boom-1 of plugin.path, but can't be loaded: "
            "RuntimeError: kaboom"
        }
    assert "but can't be loaded" in select(catalog, connector_class="boom.parts.Boom")[2]["connector.class"]


def test_a_worker_of_one_process() -> None:
    single = PluginCatalog(PLUGINS, ENVIRONMENTS, isolating=False)
    assert select(single, connector_class="File")[2] == {}
    assert "--processes 0" in select(single, connector_class="Count")[2]["connector.class"]
    with_own = PluginCatalog([*PLUGINS, plugin("source", "com.CountConnector", "0.9")], ENVIRONMENTS, isolating=False)
    assert select(with_own, connector_class="Count") == ((), "0.9", {})


def test_every_version_is_listed() -> None:
    rows = [(row["class"], row["version"]) for row in list_plugins(CATALOG.plugins, connectors_only=True)]
    assert rows == [
        ("com.AConnector", "1"),
        ("com.CountConnector", "1.0"),
        ("com.CountConnector", "2.0"),
        ("org.FileConnector", "4"),
        ("org.JobConnector", "1"),
    ]
    everything = list_plugins(CATALOG.plugins, connectors_only=False)
    assert [row["class"] for row in everything if row["type"] == "converter"] == ["org.Json"]
    assert {row["type"] for row in everything} == {"source", "sink", "transformation", "predicate", "converter"}
    assert {info.environment for info in CATALOG.others(("new@1",))} == {"old@1", "a@1", "b@1", "c@1"}
