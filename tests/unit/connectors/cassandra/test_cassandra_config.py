"""The options: what follows from them, complaints and warnings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from connectors.cassandra.config import keys, settings
from connectors.cassandra.config.rules import contact_points, parse_directories, regex_list, shard_of, split_regexes
from connectors.cassandra.config.settings import CONFIG, LogNode, find_problems, find_warnings
from connectors.errors import ConfigInvalid
from connectors.options import Password

LEAST = {"cassandra.hosts": "h", "topic.prefix": "shop", "cdc.raw.directories": "cass-1=/var/lib/cassandra/cdc_raw"}
#: Options of Debezium's Cassandra connector and their defaults, as its configuration class has them.
DEBEZIUM = {
    "http.port": 8000,
    "commit.log.post.processing.enabled": True,
    "commit.log.error.reprocessing.enabled": False,
    "commit.log.real.time.processing.enabled": False,
    "commit.log.marked.complete.poll.interval.ms": 10_000,
    "commit.log.transfer.class": "io.debezium.connector.cassandra.BlackHoleCommitLogTransfer",
    "offset.flush.interval.ms": 0,
    "max.offset.flush.size": 100,
    "snapshot.scan.interval.ms": 10_000,
    "commit.log.relocation.dir.poll.interval.ms": 10_000,
    "num.of.change.event.queues": 1,
    "latest.commit.log.only": False,
    "tombstones.on.delete": False,
    "decimal.handling.mode": "double",
    "varint.handling.mode": "long",
    "snapshot.mode": "initial",
    "snapshot.consistency": "QUORUM",
    "event.order.guarantee.mode": "commitlog_file",
    "tracing.enabled": False,
}


def parsed(changes: dict[str, str] | None = None) -> Any:
    return CONFIG.parse({**LEAST, **(changes or {})})


def names(problems: list[Any]) -> list[str]:
    return [problem.name for problem in problems]


@pytest.mark.parametrize("name", sorted(DEBEZIUM))
def test_debeziums_options_have_their_defaults(name: str) -> None:
    assert CONFIG.keys[name].default == DEBEZIUM[name]


def test_the_least_configuration_is_complete_and_quiet() -> None:
    config = parsed()
    assert find_problems(config) == []
    assert find_warnings(config) == []
    assert settings.parse_nodes(config) == (LogNode("cass-1", "/var/lib/cassandra/cdc_raw"),)
    assert settings.task_node(config) is None
    assert settings.parse_shard(config) == (0, 1)
    log = settings.log_settings(config, settings.parse_nodes(config)[0])
    assert (log.node, log.directory, log.mode, log.policy, log.aside, log.delete) == (
        "cass-1",
        Path("/var/lib/cassandra/cdc_raw"),
        "idx",
        "stop",
        None,
        True,
    )
    events = settings.event_settings(config)
    assert (events.topic_prefix, events.cluster, events.output_format, events.tombstones) == (
        "shop",
        "",
        "partition-update",
        False,
    )
    assert settings.session_settings(config).contact_points == (("h", 9042),)
    assert settings.snapshot_settings(config).tables == (".*",)


def test_every_option_has_a_text_and_a_group() -> None:
    for key in CONFIG.keys.values():
        assert key.doc.endswith("."), key.name
        assert key.group or key.internal, key.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=/x", [LogNode("a", "/x")]),
        (" a = /x/ , b=/y ", [LogNode("a", "/x"), LogNode("b", "/y")]),
        ("10.0.0.1=/x,h:9042=/x", [LogNode("10.0.0.1", "/x"), LogNode("h:9042", "/x")]),
        ("/x", [LogNode("local", "/x", placed=False)]),
        ("/with=sign/cdc_raw", [LogNode("local", "/with=sign/cdc_raw", placed=False)]),
        ("a=/with=sign", [LogNode("a", "/with=sign")]),
        ("/x,b=/y", [LogNode("local", "/x", placed=False), LogNode("b", "/y")]),
    ],
)
def test_directories(text: str, expected: list[LogNode]) -> None:
    assert list(parse_directories(text.split(","))) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "at least one"),
        (" , ", "at least one"),
        ("a=x", "absolute path"),
        ("x", "absolute path"),
        ("a=", "absolute path"),
        ("a=/x,a=/y", "node a is there twice"),
        ("/x,/y", "only one directory may stand without a label"),
        ("-a=/x", "not a label"),
        ("a b=/x", "not a label"),
        ("=/x", "not a label"),
    ],
)
def test_wrong_directories_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigInvalid, match=reason):
        parse_directories(text.split(","))
    with pytest.raises(ConfigInvalid, match=r"cdc\.raw\.directories: .*" + reason):
        parsed({keys.DIRECTORIES: text})


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["h"], (("h", 9142),)),
        (["h:1", " h:1 "], (("h", 1),)),
        (["[::1]:7", "::1"], (("::1", 7), ("::1", 9142))),
        (["10.0.0.1"], (("10.0.0.1", 9142),)),
    ],
)
def test_hosts(items: list[str], expected: tuple[tuple[str, int], ...]) -> None:
    assert contact_points(items, 9142) == expected


@pytest.mark.parametrize("item", ["", "h:x", "h:0", "[::1", "10.0.0", "::zz", "a b", "h:1:2"])
def test_wrong_hosts_are_refused(item: str) -> None:
    with pytest.raises(ConfigInvalid):
        contact_points([item], 9042)


def test_lists_of_expressions_keep_escaped_commas() -> None:
    assert split_regexes(r"a\.b, c{1\,2} ,,") == [r"a\.b", "c{1,2}"]
    assert regex_list("x", [r"a\.b", "c["]) is not None
    config = parsed({keys.TABLES: r"shop\.o{1\,2}, crm\..*"})
    assert settings.table_lists(config)[0].split(", ")[0] == r"shop\.o{1\,2},crm\..*"
    assert settings.snapshot_settings(config).tables == (r"shop\.o{1,2}", r"crm\..*")


def test_all_settings_arrive() -> None:
    config = parsed(
        {
            "cassandra.hosts": "a,b:1",
            "cassandra.port": "9142",
            "cassandra.user": "u",
            "cassandra.password": "p",
            "cassandra.local.dc": "dc1",
            "cassandra.ssl.enabled": "true",
            "cassandra.ssl.truststore.path": "/t",
            "commit.log.read.mode": "MARKER",
            "commit.log.error.policy": "Skip",
            "commit.log.error.directory": "/aside",
            "commit.log.delete": "false",
            "cdc.dir.poll.interval.ms": "50",
            "max.batch.bytes": "65536",
            "max.batch.size": "10",
            "heartbeat.interval.ms": "5000",
            "schema.refresh.interval.ms": "2000",
            "output.format": "Debezium",
            "cassandra.cluster.name": "Test",
            "tombstones.on.delete": "true",
            "cassandra.debezium.extended": "false",
            "decimal.handling.mode": "STRING",
            "varint.handling.mode": "PRECISE",
            "cassandra.logical.types": "NAMED",
            "field.exclude.list": "shop.t.c, shop.t.d",
            "snapshot.mode": "ALWAYS",
            "snapshot.consistency": "local_quorum",
            "snapshot.chunk.rows": "7",
            "snapshot.rows.per.second": "8",
            "snapshot.max.threads": "3",
            "cassandra.task.node": "cass-1",
            "cassandra.task.shard": "1/3",
        }
    )
    session = settings.session_settings(config)
    assert session.contact_points == (("a", 9142), ("b", 1))
    assert (session.user, session.password, session.local_dc) == ("u", Password("p"), "dc1")
    assert session.tls is not None
    assert (session.tls.truststore, session.tls.check_hostname) == ("/t", True)
    node = settings.task_node(config)
    assert node is not None
    log = settings.log_settings(config, node)
    assert (log.mode, log.policy, log.aside, log.delete, log.poll_ms, log.max_bytes) == (
        "marker",
        "skip",
        Path("/aside/cass-1"),
        False,
        50,
        65_536,
    )
    task = settings.task_settings(config)
    assert (task.prefix, task.max_batch, task.max_bytes, task.heartbeat_s, task.refresh_s) == (
        "shop",
        10,
        65_536,
        5.0,
        2.0,
    )
    events = settings.event_settings(config)
    assert (
        events.output_format,
        events.cluster,
        events.tombstones,
        events.extended,
        events.decimals,
        events.varints,
    ) == ("debezium", "Test", True, False, "string", "precise")
    assert events.logical
    assert events.excluded == {"shop.t.c", "shop.t.d"}
    snapshot = settings.snapshot_settings(config)
    assert (snapshot.mode, snapshot.consistency, snapshot.chunk_rows, snapshot.rows_per_s, snapshot.threads) == (
        "always",
        "LOCAL_QUORUM",
        7,
        8,
        3,
    )
    assert settings.parse_shard(config) == (1, 3)


def test_a_task_for_a_node_that_is_gone() -> None:
    with pytest.raises(ConfigInvalid, match="node cass-9"):
        settings.task_node(parsed({"cassandra.task.node": "cass-9"}))


@pytest.mark.parametrize("text", ["", "1", "3/3", "-1/2", "a/b"])
def test_wrong_shares_are_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        shard_of(text)


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"cdc.raw.directories": "a=/x,b=/y"}, "tasks.max", "each of the 2 directories"),
        ({"cdc.raw.directories": "a=/x,b=/y,c=/z", "tasks.max": "2"}, "tasks.max", "Set tasks.max to 3"),
        ({"table.include.list": "a", "table.exclude.list": "b"}, keys.NOT_TABLES, "not be given together"),
        ({"cassandra.username": "u"}, keys.PASSWORD, "give both or neither"),
        ({"cassandra.password": "u"}, keys.USER, "give both or neither"),
        ({"cassandra.ssl.certificate.path": "/c"}, keys.PRIVATE_KEY, "give both or neither"),
        (
            {
                "cassandra.ssl.certificate.path": "/c",
                "cassandra.ssl.private.key.path": "/k",
                "cassandra.ssl.keystore.path": "/s",
            },
            keys.KEYSTORE,
            "both name",
        ),
        ({"field.exclude.list": "a.b", "output.format": "debezium"}, keys.EXCLUDED, r"keyspace\.table\.column"),
        ({"field.exclude.list": "a.b.c"}, keys.EXCLUDED, "other forms have all columns"),
    ],
)
def test_complaints(changes: dict[str, str], name: str, reason: str) -> None:
    (problem,) = find_problems(parsed(changes))
    assert problem.name == name
    assert not problem.warning
    assert re.search(reason, problem.message)


def test_enough_tasks_are_no_complaint() -> None:
    assert find_problems(parsed({"cdc.raw.directories": "a=/x,b=/y", "tasks.max": "2"})) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"commit.log.relocation.dir": "/x", "offset.backing.store.dir": "/y", "http.port": "8000"},
            ["commit.log.relocation.dir", "offset.backing.store.dir"],
        ),
        ({"snapshot.mode": "INITIAL", "event.order.guarantee.mode": "COMMITLOG_FILE"}, []),
        ({"kafka.producer.bootstrap.servers": "x"}, ["kafka.producer.bootstrap.servers"]),
        (
            {"commit.log.transfer.class": "x.Y", "commit.log.transfer.bucket": "b"},
            ["commit.log.transfer.class", "commit.log.transfer.bucket"],
        ),
        (
            {"cassandra.host": "h", "commit.log.delet": "x", "somebody.else": "1"},
            ["cassandra.host", "commit.log.delet"],
        ),
        (
            {"decimal.handling.mode": "string", "tombstones.on.delete": "true"},
            ["tombstones.on.delete", "decimal.handling.mode"],
        ),
        ({"decimal.handling.mode": "string", "output.format": "debezium", "cassandra.logical.types": "Named"}, []),
        ({"cassandra.logical.types": "named"}, ["cassandra.logical.types"]),
        (
            {"commit.log.delete": "false", "commit.log.error.policy": "skip"},
            ["commit.log.delete", "commit.log.error.policy"],
        ),
        ({"cassandra.ssl.keystore.path": "/x"}, ["cassandra.ssl.keystore.path"]),
    ],
)
def test_warnings_name_what_has_no_effect(changes: dict[str, str], expected: list[str]) -> None:
    warnings = find_warnings(parsed(changes))
    assert names(warnings) == expected
    assert all(warning.warning for warning in warnings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commit.log.read.mode", "fast"),
        ("commit.log.error.policy", "ignore"),
        ("output.format", "avro"),
        ("snapshot.mode", "sometimes"),
        ("snapshot.consistency", "ANY"),
        ("topic.prefix", "a b"),
        ("topic.prefix", ""),
        ("table.include.list", "shop\\.["),
        ("cdc.dir.poll.interval.ms", "0"),
        ("commit.log.error.directory", "relative"),
        ("cassandra.hosts", ""),
        ("cassandra.task.shard", "2/2"),
    ],
)
def test_wrong_values_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigInvalid, match=name.replace(".", r"\.")):
        parsed({name: value})
