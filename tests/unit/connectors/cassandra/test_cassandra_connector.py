"""The connector: tasks per node, offsets that can be altered, what a validation says of directories and of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from connectors.cassandra.config import checks, keys
from connectors.cassandra.config.settings import CONFIG, LogNode, log_partition, parse_shard, table_lists, task_node
from connectors.cassandra.connector import MOST_TASKS, CassandraConnector
from connectors.cassandra.metrics import METRICS
from connectors.cassandra.model import LogPosition
from connectors.cassandra.schema import saved
from connectors.cassandra.schema.catalog import CassandraTableFilter
from connectors.cassandra.server import ClusterNodes, Copies, NodeSettings
from connectors.cql.cluster.session import CqlSession
from connectors.cql.mutations.definition import CqlColumn, CqlTableDefinition, make_definition
from connectors.cql.types import CqlType
from connectors.errors import ConfigInvalid, Fatal, Retriable
from worker.control.placement.planning import read_requirement

if TYPE_CHECKING:
    from pathlib import Path

LEAST = {
    "cassandra.hosts": "h",
    "topic.prefix": "shop",
    "cdc.raw.directories": "n1=/nowhere/1,n2=/nowhere/2,/nowhere/3",
    "tasks.max": "8",
}


def parsed(changes: dict[str, str] | None = None) -> Any:
    return CONFIG.parse({**LEAST, **(changes or {})})


class Context:
    def __init__(self, config: Any) -> None:
        self.config = config


def connector(changes: dict[str, str] | None = None) -> CassandraConnector:
    return CassandraConnector(Context(parsed(changes)))  # type: ignore[arg-type]


def table(name: str, *, cdc: bool = True, kind: str = "int", keyspace: str = "ks") -> CqlTableDefinition:
    return make_definition(
        keyspace,
        name,
        f"id-{name}",
        [CqlColumn("p", CqlType("int"), "partition_key", 0), CqlColumn("v", CqlType(kind), "regular")],
        cdc=cdc,
    )


async def test_each_node_has_a_task_where_its_directory_is() -> None:
    configs = await connector().task_configs(5)
    assert [task_config.get(keys.TASK_NODE) for task_config in configs] == ["n1", "n2", "local", None, None]
    assert [read_requirement(task_config) for task_config in configs] == [
        {("millrace.node", "n1")},
        {("millrace.node", "n2")},
        set(),
        set(),
        set(),
    ]
    for index, task_config in enumerate(configs):
        config = parsed(task_config)
        assert parse_shard(config) == (index, 5)
        node = task_node(config)
        assert (node.directory if node else None) == (f"/nowhere/{index + 1}" if index < 3 else None)
    assert configs == await connector().task_configs(5)


async def test_as_many_tasks_as_directories_are_needed() -> None:
    with pytest.raises(ConfigInvalid, match=r"tasks\.max=2.*3 directories"):
        await connector().task_configs(2)
    assert len(await connector().task_configs(1_000)) == MOST_TASKS


async def test_options_that_contradict_keep_it_from_starting() -> None:
    with pytest.raises(ConfigInvalid, match=r"tasks\.max"):
        await connector({"tasks.max": "1"}).start()


def test_the_class_is_complete() -> None:
    assert CassandraConnector.config_def is CONFIG
    assert CassandraConnector.metrics is METRICS
    for name, (kind, text) in METRICS.items():
        assert name.startswith(("cassandra_", "debezium_metrics_")), name
        assert name.startswith("debezium_") or name.endswith("_total") == (kind == "counter"), name
        assert text.endswith("."), name


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        (log_partition("shop", "n1"), LogPosition(5, 6, 1).offset()),
        (log_partition("shop", "n1"), None),
        (log_partition("shop", "gone"), None),
        (saved.definition_partition("shop", "gone", "id-t"), saved.definition_offset(table("t"), 1)),
        (saved.definition_partition("shop", "n1", "id-t"), None),
        ({"cluster": "shop", "snapshot": "initial", "shard": "0/2"}, {"state": "completed"}),
        ({"cluster": "shop", "snapshot": "initial", "shard": "0/2"}, None),
    ],
)
async def test_offsets_that_can_be_resumed_from(partition: dict[str, Any], offset: dict[str, Any] | None) -> None:
    assert await CassandraConnector.alter_offsets(parsed(), [(partition, offset)])


@pytest.mark.parametrize(
    ("partition", "offset", "reason"),
    [
        (log_partition("shop", "n9"), LogPosition(5).offset(), "has no node n9"),
        (log_partition("other", "n1"), LogPosition(5).offset(), "topic.prefix"),
        (log_partition("shop", "n1"), {"segment": 0}, "no position in a commit log"),
        (log_partition("shop", "n1"), {"segment": 5, "position": -1}, "no position in a commit log"),
        (saved.definition_partition("shop", "n1", "id-x"), saved.definition_offset(table("t"), 1), "id-t"),
        (saved.definition_partition("shop", "n1", "id-x"), {"definition": "{}"}, "can't be read"),
        (saved.definition_partition("shop", "n1", "id-x"), {}, "can't be read"),
        ({"cluster": "shop", "snapshot": "initial", "shard": "2/2"}, {"state": "completed"}, "INDEX/COUNT"),
        ({"cluster": "shop", "snapshot": "initial", "shard": "1/2"}, {}, "state"),
        ({"cluster": "shop", "file": "x"}, None, "a partition of this connector has"),
    ],
)
async def test_offsets_that_can_not(partition: dict[str, Any], offset: dict[str, Any] | None, reason: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        await CassandraConnector.alter_offsets(parsed(), [(partition, offset)])
    assert reason in str(caught.value)


# Directories.


def described(problems: list[Any]) -> list[tuple[str, bool]]:
    return [(problem.name, problem.warning) for problem in problems]


def test_directories_that_are_elsewhere_are_a_matter_of_labels() -> None:
    problems = checks.check_directories(parsed())
    assert described(problems) == [(keys.DIRECTORIES, True), (keys.DIRECTORIES, True), (keys.DIRECTORIES, False)]
    assert "node.labels=n1=yes" in problems[0].message
    assert "LABEL=/nowhere/3" in problems[2].message
    # The whole connector was sent somewhere: this worker need not see it.
    assert all(problem.warning for problem in checks.check_directories(parsed({"millrace.labels": "zone=a"})))


def test_directories_that_are_here(tmp_path: Path) -> None:
    empty, used, file = tmp_path / "empty", tmp_path / "used", tmp_path / "file"
    empty.mkdir()
    used.mkdir()
    (used / "CommitLog-7-1.log").touch()
    file.touch()
    config = parsed({keys.DIRECTORIES: f"a={empty},b={used},{file}"})
    first, last = checks.check_directories(config)
    assert first.warning
    assert "has no segments" in first.message
    assert not last.warning
    assert str(file) in last.message


# The cluster.


@pytest.mark.parametrize(
    ("error", "changes", "name"),
    [
        (Retriable("no node could answer"), {}, keys.HOSTS),
        (Fatal("not understood"), {}, keys.HOSTS),
        (
            ConfigInvalid("the cluster refuses the credentials: no"),
            {"cassandra.username": "u", "cassandra.password": "p"},
            keys.PASSWORD,
        ),
        (ConfigInvalid("the cluster refuses the credentials: none given"), {}, keys.USER),
        (ConfigInvalid("the trust store /x can't be read"), {"cassandra.ssl.enabled": "true"}, keys.SSL),
    ],
)
async def test_a_failed_session_is_a_problem_of_the_right_option(
    monkeypatch: pytest.MonkeyPatch, error: Exception, changes: dict[str, str], name: str
) -> None:
    async def acquire(_: Any) -> Any:
        raise error

    monkeypatch.setattr(CqlSession, "acquire", acquire)
    (problem,) = await checks.check_cluster(parsed(changes))
    assert problem.name == name
    assert str(error) in problem.message


async def test_a_validation_that_fails_early_asks_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def acquire(_: Any) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(CqlSession, "acquire", acquire)
    problems = await CassandraConnector.validate(parsed({"tasks.max": "1", "http.port": "1"}))
    assert described(problems) == [("tasks.max", False), ("http.port", True)]


def test_old_servers_are_refused() -> None:
    assert checks.version_problems(ClusterNodes(("4.0.1", "5.0.9"), 2)) == []
    (problem,) = checks.version_problems(ClusterNodes(("3.11.4", "4.0.1"), 2))
    assert "3.11.4" in problem.message
    assert not problem.warning


GOOD = NodeSettings(
    "10.0.0.1",
    cdc_enabled=True,
    cdc_block_writes=True,
    total_space=4 << 30,
    segment_size=32 << 20,
    cdc_raw="/c/cdc_raw",
    commitlog="/c/commitlog",
)


@pytest.mark.parametrize(
    ("changes", "reason", "warning"),
    [
        ({"cdc_enabled": False}, "cdc_enabled: true", False),
        ({"encrypted": True}, "transparent_data_encryption_options", False),
        ({"cdc_block_writes": False}, "changes are lost silently", True),
        ({"total_space": 100 << 20}, "fewer than four segments", True),
        ({"commitlog": "/n1/cdc_raw"}, "name its cdc_raw_directory, /c/cdc_raw", False),
    ],
)
def test_settings_of_nodes(changes: dict[str, Any], reason: str, warning: bool) -> None:
    log_nodes = [LogNode("n1", "/n1/cdc_raw")]
    assert checks.settings_problems([GOOD], log_nodes) == []
    (problem,) = checks.settings_problems([GOOD, GOOD._replace(address="10.0.0.2", **changes)], log_nodes)
    assert reason in problem.message
    assert problem.warning is warning


def table_messages(config: Any, tables: list[CqlTableDefinition]) -> list[str]:
    filter_ = CassandraTableFilter(*table_lists(config))
    chosen = [
        definition for definition in tables if definition.cdc and filter_.matches(definition.keyspace, definition.table)
    ]
    return [
        problem.message
        for problem in checks.table_problems(
            config,
            tables,
            [definition for definition in chosen if not definition.refusal],
            [definition for definition in chosen if definition.refusal],
        )
    ]


def test_tables_that_are_captured_and_not() -> None:
    assert (
        table_messages(parsed(), [table("t"), table("off", cdc=False), table("local", cdc=False, keyspace="system")])
        == []
    )
    (nothing,) = table_messages(parsed(), [table("local", cdc=False, keyspace="system")])
    assert "create one WITH cdc = true" in nothing
    (off,) = table_messages(parsed(), [table("Off", cdc=False)])
    assert 'ALTER TABLE ks."Off" WITH cdc = true' in off
    (chosen,) = table_messages(parsed({keys.TABLES: r"ks\..*"}), [table("t"), table("off", cdc=False)])
    assert "ks.off" in chosen
    (counter,) = table_messages(parsed(), [table("t"), table("c", kind="counter")])
    assert "ALTER TABLE ks.c WITH cdc = false" in counter
    (listed,) = table_messages(
        parsed({keys.TABLES: r"ks\.t,ks\.c"}), [table("t"), table("c", kind="counter", cdc=False)]
    )
    assert "ks.c can't be captured: changes of counters can't be merged; take them out" in listed
    assert table_messages(parsed(), [table("t"), table("c", kind="counter", cdc=False)]) == []
    idle, nothing = table_messages(parsed({keys.TABLES: r"ks\.nope"}), [table("t")])
    assert r"No table matches ks\.nope" in idle
    assert "no table to capture yet" in nothing
    (excluded,) = table_messages(parsed({keys.NOT_TABLES: r"ks\.nope"}), [table("t")])
    assert "No table matches" in excluded
    (shared,) = table_messages(parsed(), [table("a b"), table("a_b")])
    assert "share the topic shop.ks.a_b" in shared


@pytest.mark.parametrize(
    ("copies", "nodes", "output", "expected"),
    [
        (1, 3, "partition-update", []),
        (3, 3, "partition-update", []),
        (1, 4, "partition-update", [keys.DIRECTORIES]),
        (3, 5, "partition-update", []),
        (3, 6, "partition-update", [keys.DIRECTORIES]),
        (3, 3, "debezium", [keys.OUTPUT]),
        (1, 3, "debezium", []),
    ],
)
def test_replicas_nodes_and_directories(copies: int, nodes: int, output: str, expected: list[str]) -> None:
    problems = checks.replica_problems(
        parsed({keys.OUTPUT: output}), [table("t")], {"ks": Copies({}, copies)}, ClusterNodes((), nodes, "dc1", nodes)
    )
    assert described(problems) == [(name, True) for name in expected]


@pytest.mark.parametrize(
    ("copies", "centre_nodes", "output", "expected"),
    [
        # Three directories; the other data centre has nine nodes.
        ({"dc1": 1, "dc2": 3}, 3, "partition-update", []),
        ({"dc1": 1, "dc2": 9}, 4, "partition-update", [keys.DIRECTORIES]),
        ({"dc1": 2, "dc2": 1}, 4, "partition-update", []),
        ({"dc1": 1, "dc2": 3}, 3, "debezium", []),
        ({"dc1": 2, "dc2": 1}, 3, "debezium", [keys.OUTPUT]),
        ({"dc2": 3}, 3, "partition-update", [keys.LOCAL_DC]),
    ],
)
def test_the_data_centre_that_is_read_counts(
    copies: dict[str, int], centre_nodes: int, output: str, expected: list[str]
) -> None:
    problems = checks.replica_problems(
        parsed({keys.OUTPUT: output}),
        [table("t")],
        {"ks": Copies(copies)},
        ClusterNodes((), centre_nodes + 9, "dc1", centre_nodes),
    )
    assert described(problems) == [(name, True) for name in expected]
    assert all("dc1" in problem.message for problem in problems if problem.name != keys.OUTPUT)


def test_a_directory_that_is_full() -> None:
    here, there = LogNode("n1", "/c/cdc_raw"), LogNode("n2", "/elsewhere/cdc_raw")
    assert checks.space_problems([GOOD], {here: 3 << 30, there: 1}) == []
    # Where no path is the same, as in containers, the smallest space counts.
    full, also = checks.space_problems(
        [GOOD, GOOD._replace(cdc_raw="/x", total_space=8 << 20)], {here: 4 << 30, there: 8 << 20}
    )
    assert "/c/cdc_raw (node n1) has 4096 of 4096 MiB" in full.message
    assert "/elsewhere/cdc_raw (node n2) has 8 of 8 MiB" in also.message
    assert full.warning
    assert checks.space_problems([GOOD._replace(total_space=None)], {here: 4 << 30}) == []


# What REST asks.


def test_snapshots_are_asked_for_by_tables() -> None:
    request = CassandraConnector.check_snapshot(parsed(), {"tables": [r"ks\.t"], "priority": 3})
    assert (request["tables"], request["priority"]) == ([r"ks\.t"], 3)
    with pytest.raises(ConfigInvalid, match="conditions"):
        CassandraConnector.check_snapshot(parsed(), {"tables": ["ks.t"], "conditions": {"ks.t": "v > 1"}})
    asked = {"id": "r1", "state": "running", "origin": "rest", "created_ms": 5, **request}
    (shown,) = CassandraConnector.snapshots(parsed(), [asked], [])
    assert (shown["id"], shown["state"]) == ("r1", "waiting")


def test_tables_are_shown_as_saved() -> None:
    offsets = [(saved.definition_partition("shop", "n1", "id-t"), saved.definition_offset(table("t"), 1))]
    assert [shown["table"] for shown in CassandraConnector.tables(parsed(), offsets)] == ["ks.t"]
    assert CassandraConnector.tables(parsed({"topic.prefix": "other"}), offsets) == []
