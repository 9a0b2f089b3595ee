"""The options: Debezium's names and defaults, what follows from them, complaints and warnings."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.errors import ConfigInvalid
from connectors.mysql.config.checks import Findings, binlog_variables, parse_grants
from connectors.mysql.config.problems import find_problems, find_warnings
from connectors.mysql.config.settings import (
    CONFIG,
    connection_settings,
    event_settings,
    gtid_source,
    heartbeat_settings,
    replica_settings,
    snapshot_settings,
    stream_settings,
    value_options,
)
from connectors.mysql.config.validators import parse_hosts
from connectors.mysql.model import Shard, TableName
from connectors.mysql.source.connection import ServerInfo
from connectors.options import ConfigType, Password

LEAST = {"database.hostname": "db", "database.user": "u", "topic.prefix": "p"}
MARIADB_CLASS = "io.debezium.connector.mariadb.MariaDbConnector"
#: Options of Debezium 3.5.0.Final's two connectors and their defaults, as its documentation and classes have them.
DEBEZIUM = {
    "database.port": 3306,
    "database.server.id.offset": 10_000,
    "database.query.timeout.ms": 600_000,
    "connect.timeout.ms": 30_000,
    "connect.keep.alive": True,
    "connect.keep.alive.interval.ms": 60_000,
    "use.nongraceful.disconnect": False,
    "binlog.net.write.timeout": 0,
    "binlog.net.read.timeout": 0,
    "min.row.count.to.stream.results": 1_000,
    "binlog.buffer.size": 0,
    "topic.naming.strategy": "io.debezium.schema.DefaultTopicNamingStrategy",
    "include.query": False,
    "snapshot.mode": "initial",
    "time.precision.mode": "adaptive_time_microseconds",
    "bigint.unsigned.handling.mode": "long",
    "inconsistent.schema.handling.mode": "fail",
    "enable.time.adjuster": True,
    "read.only": False,
    "gtid.source.filter.dml.events": True,
    "snapshot.locking.mode": "minimal",
    "retriable.restart.connector.wait.ms": 10_000,
    "tombstones.on.delete": True,
    "max.queue.size": 8_192,
    "max.batch.size": 2_048,
    "poll.interval.ms": 500,
    "max.queue.size.in.bytes": 0,
    "snapshot.delay.ms": 0,
    "incremental.snapshot.allow.schema.changes": False,
    "provide.transaction.metadata": False,
    "event.processing.failure.handling.mode": "fail",
    "skipped.operations": ["t"],
    "skip.messages.without.change": False,
    "binary.handling.mode": "bytes",
    "schema.name.adjustment.mode": "none",
    "field.name.adjustment.mode": "none",
    "query.fetch.size": 0,
    "snapshot.max.threads": 1,
    "snapshot.max.threads.multiplier": 1,
    "signal.poll.interval.ms": 5_000,
    "signal.enabled.channels": ["source"],
    "errors.max.retries": -1,
    "incremental.snapshot.watermarking.strategy": "INSERT_INSERT",
    "event.converting.failure.handling.mode": "warn",
    "streaming.delay.ms": 0,
    "snapshot.query.mode": "select_all",
    "snapshot.mode.configuration.based.snapshot.data": False,
    "snapshot.mode.configuration.based.snapshot.schema": False,
    "snapshot.mode.configuration.based.start.stream": False,
    "snapshot.mode.configuration.based.snapshot.on.schema.error": False,
    "snapshot.mode.configuration.based.snapshot.on.data.error": False,
    "connection.validation.timeout.ms": 60_000,
    "executor.shutdown.timeout.ms": 4_000,
    "extended.headers.enabled": True,
    "guardrail.collections.max": 0,
    "guardrail.collections.limit.action": "warn",
    "decimal.handling.mode": "precise",
    "snapshot.lock.timeout.ms": 10_000,
    "include.schema.changes": True,
    "include.schema.comments": False,
    "table.ignore.builtin": True,
    "snapshot.tables.order.by.row.count": "disabled",
    "heartbeat.interval.ms": 0,
    "topic.heartbeat.prefix": "__debezium-heartbeat",
    "topic.transaction": "transaction",
    "topic.delimiter": ".",
    "topic.cache.size": 10_000,
    "openlineage.integration.enabled": False,
    "database.ssl.keystore": None,
    "database.ssl.truststore": None,
    "database.include.list": None,
    "table.exclude.list": None,
    "column.include.list": None,
    "message.key.columns": None,
    "signal.data.collection": None,
    "heartbeat.action.query": None,
    "gtid.source.includes": None,
    "snapshot.include.collection.list": None,
    "snapshot.select.statement.overrides": None,
    "custom.metric.tags": None,
    "column.propagate.source.type": None,
    "datatype.propagate.source.type": None,
    "database.initial.statements": None,
    "notification.enabled.channels": [],
    "schema.history.internal.kafka.topic": None,
    "converters": None,
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
    for key in CONFIG.keys.values():
        assert key.doc.endswith((".", ".)", "?")), key.name
        assert key.type is ConfigType.PASSWORD or "password" not in key.name, key.name


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", (("a", 3306),)),
        ("a,b:3307", (("a", 3306), ("b", 3307))),
        ("[::1]:1", (("::1", 1),)),
        ("fe80::1", (("fe80::1", 3306),)),
        (" a , a:3306 ", (("a", 3306),)),
    ],
)
def test_hosts(text: str, hosts: Any) -> None:
    assert parse_hosts(text) == hosts


@pytest.mark.parametrize("text", ["", ",", "a b", "a:0", "a:x", "[::1", "a/b"])
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"database\.hostname"):
        parsed({"database.hostname": text})


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({}, "preferred"),
        ({"connector.class": MARIADB_CLASS}, None),
        ({"database.ssl.mode": "disable"}, None),
        ({"database.ssl.mode": "VERIFY-FULL"}, "verify_identity"),
        ({"database.ssl.mode": "trust"}, "required"),
        ({"connector.class": MARIADB_CLASS, "database.ssl.mode": "verify_ca"}, "verify_ca"),
    ],
)
def test_tls_modes_of_both_connectors(changes: dict[str, str], mode: str | None) -> None:
    tls = connection_settings(parsed(changes)).tls
    assert (None if tls is None else tls.mode) == mode


def test_a_tasks_connection() -> None:
    config = parsed(
        {
            "database.server.id": "4000000000",
            "database.server.id.offset": "200000000",
            "task.shard": "2/3",
            "database.initial.statements": "SET a=1;; SET b=';;' ; SET c=2",
            "database.password": "x",
            "connect.timeout.ms": "1500",
            "connect.keep.alive.interval.ms": "3000",
        }
    )
    settings = connection_settings(config)
    assert settings.server_id == 4_000_000_000 + 400_000_000 - 4_294_967_295
    assert settings.statements == ("SET a=1; SET b=';'", "SET c=2")
    assert (settings.secret, settings.connect_timeout_s, settings.silence_s, settings.heartbeat_s) == (
        "x",
        1.5,
        3.0,
        1.0,
    )
    assert stream_settings(config).shard == Shard(2, 3)
    with pytest.raises(ConfigInvalid, match=r"task\.shard"):
        stream_settings(parsed({"task.shard": "3/3"}))


def test_the_replica_inherits_what_is_not_said() -> None:
    assert replica_settings(parsed()) is None
    replica = replica_settings(
        parsed(
            {
                "snapshot.hostname": "r",
                "database.port": "3310",
                "database.password": "x",
                "snapshot.user": "reader",
                "database.server.id": "7",
            }
        )
    )
    assert replica is not None
    assert (replica.host, replica.port, replica.user, replica.password, replica.server_id) == (
        "r",
        3310,
        "reader",
        Password("x"),
        0,
    )
    assert snapshot_settings(parsed({"snapshot.hostname": "r"})).replica


@pytest.mark.parametrize(
    ("mode", "plan"),
    [
        ("initial", ("initial", True, False, "now")),
        ("always", ("always", True, False, "now")),
        ("initial_only", ("initial", False, False, "now")),
        ("when_needed", ("initial", True, True, "now")),
        ("no_data", ("never", True, False, "now")),
        ("schema_only", ("never", True, False, "now")),
        ("never", ("never", True, False, "oldest")),
        ("Recovery", ("never", True, False, "now")),
        ("configuration_based", ("initial", True, True, "now")),
    ],
)
def test_snapshot_modes(mode: str, plan: tuple[str, bool, bool, str]) -> None:
    based = {
        f"snapshot.mode.configuration.based.{name}": "true"
        for name in ("snapshot.data", "start.stream", "snapshot.on.data.error")
    }
    snapshot_plan = stream_settings(parsed({"snapshot.mode": mode, **based})).plan
    assert (snapshot_plan.snapshot, snapshot_plan.stream, snapshot_plan.on_purged, snapshot_plan.begin) == plan


def test_statements_of_the_snapshot_become_conditions_or_stay() -> None:
    option = "snapshot.select.statement.overrides"
    statements = {
        "a.plain": "SELECT * FROM a.plain WHERE x = 'LIMIT; --' AND y IN (1, 2) ORDER BY x DESC;",
        "a.all": "select * from `a`.`all`",
        "a.few": "SELECT id, x FROM a.few WHERE id > 3",
        "a.limited": "SELECT * FROM a.limited WHERE id > 3 LIMIT 10",
        "a.aliased": "SELECT t.* FROM a.aliased AS t WHERE t.id > 3",
        "a.union": "SELECT * FROM a.union UNION SELECT * FROM a.b",
    }
    config = parsed({option: ", ".join(statements), **{f"{option}.{name}": text for name, text in statements.items()}})
    assert find_problems(config) == []
    assert find_warnings(config) == []
    overrides = stream_settings(config).overrides
    assert overrides.conditions == {"a.plain": "x = 'LIMIT; --' AND y IN (1, 2)"}
    assert set(overrides.selects) == {"a.few", "a.limited", "a.aliased", "a.union"}
    for wrong in ({option: "a.b"}, {option: "a.b", f"{option}.a.b": "DELETE FROM a.b"}):
        assert names(find_problems(parsed(wrong))) == [option]


def test_the_stream() -> None:
    config = parsed(
        {
            "event.deserialization.failure.handling.mode": "ignore",
            "inconsistent.schema.handling.mode": "warn",
            "signal.data.collection": "ops.signals",
            "signal.enabled.channels": "source, kafka",
            "signal.kafka.bootstrap.servers": "k:1",
            "heartbeat.table": "ops.beat",
            "binlog.buffer.size": "100",
            "snapshot.include.collection.list": r"a\.b,a\.c{1\,2}",
            "output.format": "ums",
            "topic.delimiter": "-",
        }
    )
    settings = stream_settings(config)
    assert (settings.failures, settings.inconsistent, settings.rollback_rows) == ("skip", "warn", 100)
    assert settings.signal_table == TableName("ops", "signals")
    assert settings.channels == {"source", "kafka"}
    assert settings.signal_topic == "p-signal"
    assert settings.heartbeat_table == TableName("ops", "beat")
    assert settings.snapshot_tables == (r"a\.b", r"a\.c{1,2}")
    assert settings.version_topic == "p-table-versions"
    assert stream_settings(parsed({"output.format": "ums", "table.version.topic": "none"})).version_topic == ""
    assert stream_settings(parsed()).version_topic == ""
    assert (
        stream_settings(parsed({"signal.data.collection": "a.b", "signal.enabled.channels": "file"})).signal_table
        is None
    )


@pytest.mark.parametrize(
    ("changes", "source", "included"),
    [
        ({"gtid.source.includes": "0-1,0-2"}, "0-2", True),
        ({"gtid.source.includes": "0-1"}, "0-12", False),
        ({"gtid.source.excludes": "0-1.*"}, "0-12", False),
        ({"gtid.source.excludes": "0-1"}, "0-2", True),
        ({"gtid.source.includes": "ABC.*"}, "abcd", True),
    ],
)
def test_gtid_sources(changes: dict[str, str], source: str, included: bool) -> None:
    wants = gtid_source(stream_settings(parsed(changes)))
    assert wants is not None
    assert wants(source) is included
    assert gtid_source(stream_settings(parsed())) is None


def test_heartbeats() -> None:
    assert not heartbeat_settings(parsed()).enabled
    table = heartbeat_settings(parsed({"heartbeat.table": "a.b"}))
    assert (table.enabled, table.interval_s, table.table, table.source) == (True, 10.0, "a.b", "p")
    query = heartbeat_settings(parsed({"heartbeat.action.query": "DO 1", "heartbeat.interval.ms": "2000"}))
    assert (query.enabled, query.interval_s, query.action_query, query.table) == (True, 2.0, "DO 1", "")
    assert not heartbeat_settings(parsed({"heartbeat.action.query": "DO 1"})).enabled


def test_values_and_events() -> None:
    options = value_options(
        parsed({"decimal.handling.mode": "String", "event.processing.failure.handling.mode": "warn"}), "mysql"
    )
    assert (options.decimal_mode, options.invalid_dates, options.flavor) == ("string", "epoch", "mysql")
    assert value_options(parsed(), "mariadb").invalid_dates == "fail"
    events = event_settings(
        parsed(
            {
                "skipped.operations": "c, d",
                "table.include.list": r"a\.b{1\,2}",
                "table.ignore.builtin": "false",
                "topic.naming.strategy": "io.debezium.schema.SchemaUnicodeTopicNamingStrategy",
                "signal.data.collection": "o.s",
                "column.mask.with.5.chars": r"a\.b\.c",
                "topic.regex": "x",
                "ums.topic.per": "SCHEMA",
            }
        ),
        "mariadb",
    )
    assert events.skipped == {"c", "d"}
    assert events.tables == r"a\.b{1\,2}"
    assert events.builtin_tables
    assert (events.topics.strategy, events.topics.unicode, events.topics.regex) == ("schema", True, "")
    assert events.signal_tables == ("o.s",)
    assert len(events.masks.rules) == 1
    assert events.ums.topic_per == "schema"
    assert event_settings(parsed({"skipped.operations": "none"}), "mysql").skipped == frozenset()


@pytest.mark.parametrize(
    ("name", "server", "connector"),
    [
        ("connectors.mysql.connector.MySqlConnector", "mariadb", "mariadb"),
        ("connectors.mysql.connector.MySqlConnector", "mysql", "mysql"),
        (MARIADB_CLASS, "mysql", "mariadb"),
        ("io.debezium.connector.mysql.MySqlConnector", "mariadb", "mysql"),
    ],
)
def test_events_name_the_connector_as_the_class_does(name: str, server: str, connector: str) -> None:
    assert event_settings(parsed({"connector.class": name}), server).connector == connector


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"table.include.list": "a", "table.exclude.list": "b"}, "table.exclude.list"),
        ({"gtid.source.includes": "a", "gtid.source.excludes": "b"}, "gtid.source.excludes"),
        ({"max.queue.size": "2048"}, "max.queue.size"),
        ({"converters": "x"}, "converters"),
        ({"post.processors": "x"}, "post.processors"),
        ({"snapshot.mode": "custom"}, "snapshot.mode"),
        ({"snapshot.query.mode": "custom"}, "snapshot.query.mode"),
        ({"topic.naming.strategy": "com.example.Mine"}, "topic.naming.strategy"),
        (
            {"topic.naming.strategy": "io.debezium.schema.DefaultRegexTopicNamingStrategy", "topic.regex": "x"},
            "topic.replacement",
        ),
        ({"signal.enabled.channels": "kafka"}, "signal.kafka.bootstrap.servers"),
        ({"mask.rules": "m"}, "mask.m.type"),
        ({"database.ssl.keystore.password": "x"}, "database.ssl.keystore"),
    ],
)
def test_what_would_give_other_data_is_refused(changes: dict[str, str], name: str) -> None:
    problems = find_problems(parsed(changes))
    assert names(problems) == [name]
    assert problems[0].message


@pytest.mark.parametrize(
    "changes",
    [
        {"table.include.list": "("},
        {"skipped.operations": "x"},
        {"skipped.operations": "none,c"},
        {"topic.prefix": "a b"},
        {"time.precision.mode": "adaptive"},
        {"message.key.columns": "nonsense"},
        {"signal.data.collection": "nodatabase"},
        {"database.server.id": "-1"},
        {"database.ssl.mode": "on"},
        {"snapshot.mode": "sometimes"},
    ],
)
def test_what_no_option_takes(changes: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid, match=next(iter(changes)).replace(".", r"\.")):
        parsed(changes)


@pytest.mark.parametrize(
    ("changes", "name", "word"),
    [
        (
            {"schema.history.internal.kafka.topic": "h"},
            "schema.history.internal.kafka.topic",
            "no schema history topic",
        ),
        (
            {"schema.history.internal.consumer.security.protocol": "SSL"},
            "schema.history.internal.consumer.security.protocol",
            "no schema history topic",
        ),
        ({"read.only": "true"}, "read.only", "nothing is written"),
        ({"signal.enabled.channels": "file"}, "signal.enabled.channels", "file"),
        ({"driver.connectionTimeZone": "UTC"}, "driver.connectionTimeZone", "JDBC"),
        ({"snapshot.mode": "schema_only"}, "snapshot.mode", "no_data"),
        ({"database.hostnam": "x"}, "database.hostnam", "spelled"),
        ({"provide.transaction.metadata": "true", "tasks.max": "4"}, "provide.transaction.metadata", "one task"),
        ({"heartbeat.action.query": "DO 1"}, "heartbeat.action.query", "never run"),
        ({"snapshot.port": "1"}, "snapshot.port", "snapshot.hostname"),
        ({"database.ssl.truststore": "/ca.pem"}, "database.ssl.truststore", "verify_ca"),
        ({"custom.metric.tags": "a=b"}, "custom.metric.tags", "has no effect"),
        ({"snapshot.hostname": "r", "snapshot.mode": "never"}, "snapshot.hostname", "on demand"),
    ],
)
def test_what_has_no_effect_is_named_and_accepted(changes: dict[str, str], name: str, word: str) -> None:
    config = parsed(changes)
    assert find_problems(config) == []
    warnings = find_warnings(config)
    assert names(warnings) == [name]
    assert word in warnings[0].message


def test_defaults_that_are_written_out_are_no_warnings() -> None:
    defaults = {
        name: str(value).lower()
        if isinstance(value, bool)
        else ",".join(value)
        if isinstance(value, list)
        else str(value)
        for name, value in DEBEZIUM.items()
        if value is not None
    }
    config = parsed(defaults)
    assert find_problems(config) == []
    assert find_warnings(config) == []


GOOD = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}


def server(flavor: str = "mariadb", **changes: str | None) -> ServerInfo:
    variables = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return ServerInfo(
        flavor=flavor,
        version=(11, 4, 5),
        version_text="11.4.5-MariaDB",
        server_id=5,
        variables=variables,
        address="db:1",
    )


@pytest.mark.parametrize(
    ("info", "changes", "errors", "warned", "word"),
    [
        (server(), {}, [], [], ""),
        (server(log_bin="OFF"), {}, ["database.hostname"], [], "log_bin"),
        (server(binlog_format="MIXED"), {}, ["database.hostname"], [], "SET GLOBAL binlog_format = ROW"),
        (server(binlog_row_image="MINIMAL"), {}, [], ["database.hostname"], "SET GLOBAL binlog_row_image = FULL"),
        (server(binlog_row_metadata="NO_LOG"), {}, [], ["database.hostname"], "SET GLOBAL binlog_row_metadata = FULL"),
        (server(binlog_row_metadata=None), {}, [], ["database.hostname"], "does not write the names"),
        (server(), {"database.server.id": "5"}, ["database.server.id"], [], "the server's own number"),
        (server(), {"include.query": "true"}, [], ["include.query"], "SET GLOBAL binlog_annotate_row_events = ON"),
        (
            server("mysql"),
            {"include.query": "true"},
            [],
            ["include.query"],
            "SET GLOBAL binlog_rows_query_log_events = ON",
        ),
    ],
)
def test_settings_of_the_binlog(
    info: ServerInfo, changes: dict[str, str], errors: list[str], warned: list[str], word: str
) -> None:
    findings = Findings()
    binlog_variables(info, parsed(changes), findings)
    assert (names(findings.errors), names(findings.warnings)) == (errors, warned)
    assert word in "".join(problem.message for problem in [*findings.errors, *findings.warnings])


def test_grants() -> None:
    table = TableName("a_b", "t")
    grants = parse_grants(
        [
            "GRANT SELECT, REPLICATION SLAVE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*X' WITH GRANT OPTION",
            "GRANT SELECT (`id`, `x`), INSERT ON `a\\_b`.`t` TO `u`@`%`",
            "GRANT ALL PRIVILEGES ON `c%`.* TO `u`@`%`",
        ]
    )
    assert grants.may("REPLICATION SLAVE")
    assert not grants.may("INSERT")
    assert grants.may("INSERT", table)
    assert not grants.may("UPDATE", table)
    assert not grants.may("INSERT", TableName("axb", "t"))
    assert grants.may("UPDATE", TableName("crm", "t"))
    assert parse_grants(["GRANT USAGE ON *.* TO `u`@`%`", "GRANT `reader`@`%` TO `u`@`%`"]).may("REPLICATION SLAVE")
    assert not parse_grants(["GRANT USAGE ON *.* TO `u`@`%`"]).may("REPLICATION SLAVE")
    assert parse_grants(["GRANT ALL PRIVILEGES ON *.* TO `u`@`%`"]).may("REPLICATION SLAVE")


def test_statements_that_hold_masked_values_are_no_part_of_events() -> None:
    rules = {"mask.rules": "m", "mask.m.columns": r"a\.b\.c", "mask.m.type": "md5"}
    assert names(find_problems(parsed({**rules, "include.query": "true"}))) == ["include.query"]
    assert find_problems(parsed(rules)) == []
    debezium = parsed({"column.mask.with.3.chars": r"a\.b\.c", "include.query": "true"})
    assert find_problems(debezium) == []
    assert "include.query" in names(find_warnings(debezium))
