"""The options: names as users write them, values that follow, complaints. Hypothesis: names of tables in any quoting."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from connectors.options import ConfigType, Importance
from connectors.scylla.config import keys
from connectors.scylla.config.names import contact_point, qualify_table, table_name
from connectors.scylla.config.settings import (
    CONFIG,
    event_settings,
    find_problems,
    parse_tables,
    read_settings,
    session_settings,
)
from connectors.scylla.model import TableId

LEAST = {"topic.prefix": "p", "scylla.cluster.ip.addresses": "127.0.0.1:9042", "scylla.table.names": "ks.t"}


def parsed(**changes: str) -> Any:
    return CONFIG.parse({**LEAST, **{name.replace("__", "."): value for name, value in changes.items()}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1:9042", ("10.0.0.1", 9042)),
        ("scylla-1.example:19042", ("scylla-1.example", 19042)),
        ("node", ("node", 9042)),
        ("[::1]:9043", ("::1", 9043)),
        ("[fd00::2]", ("fd00::2", 9042)),
        (" a:1 ", ("a", 1)),
    ],
)
def test_contact_points(text: str, expected: tuple[str, int]) -> None:
    assert contact_point(text) == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("::1:9042", "in brackets"),
        ("[::1:9042", r"\[address\]:port"),
        ("[nonsense]:1", "not an IPv6 address"),
        ("a:", "not a port"),
        ("a:0", "not a port"),
        ("a:65536", "not a port"),
        ("a:b", "not a port"),
        (":9042", "name or address of a host"),
        ("a b:1", "name or address"),
        ("10.0.0.256:1", "not an IPv4 address"),
        ("[::1]9042", "not of the form"),
    ],
)
def test_what_is_no_contact_point_is_refused(text: str, word: str) -> None:
    with pytest.raises(ConfigInvalid, match=word):
        contact_point(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ks.t", TableId("ks", "t")),
        ("Ks.T1", TableId("ks", "t1")),
        ('"Ks"."T"', TableId("Ks", "T")),
        ('ks."1t"', TableId("ks", "1t")),
        (' ks . "T" ', TableId("ks", "T")),
        ("ks._t", None),
        ("kst", None),
        ("a.b.c", None),
        ('"a.b"', None),
        ("ks.", None),
        (".t", None),
        ('"a".b"', None),
        ("ks.t-1", None),
        ('ks."t-1"', None),
        ("ks.1t", None),
        ("ks.t t", None),
        ('ks.""', None),
    ],
)
def test_tables(text: str, expected: TableId | None) -> None:
    if expected is not None:
        assert table_name(text) == expected
        return
    with pytest.raises(ConfigInvalid):
        table_name(text)


NAMES = st.text("ABCabc019_", min_size=1, max_size=48)


@given(NAMES, NAMES)
def test_quoted_names_keep_their_case(keyspace: str, table: str) -> None:
    table_id = TableId(keyspace, table)
    assert table_name(qualify_table(table_id)) == table_id


def test_how_to_connect() -> None:
    settings = session_settings(
        parsed(
            scylla__user="u",
            scylla__password="p",
            scylla__local__dc="dc1",
            scylla__connect__timeout__ms="1500",
            scylla__consistency__level="one",
        )
    )
    assert (
        settings.user,
        settings.local_dc,
        settings.connect_timeout_s,
        settings.request_timeout_s,
        settings.consistency,
        settings.tls,
    ) == ("u", "dc1", 1.5, 12.0, "ONE", None)
    assert settings == session_settings(
        CONFIG.parse(
            {
                **LEAST,
                "scylla.user": "u",
                "scylla.password": "p",
                "scylla.local.dc": "dc1",
                "scylla.connect.timeout.ms": "1500",
                "scylla.consistency.level": "One",
                "tombstones.on.delete": "false",
            }
        )
    )
    tls = session_settings(
        CONFIG.parse(
            {
                **LEAST,
                "scylla.ssl.enabled": "true",
                "scylla.ssl.truststore.path": "/t.p12",
                "scylla.ssl.keystore.path": "/k.p12",
                "scylla.ssl.cipherSuites": "A, B",
            }
        )
    ).tls
    assert tls is not None
    assert (tls.truststore, tls.keystore, tls.ciphers, tls.check_hostname) == ("/t.p12", "/k.p12", ("A", "B"), False)


def test_lists_have_no_repetitions_and_keep_their_order() -> None:
    config = parsed(scylla__table__names='b.t, a.t,"b".t', scylla__cluster__ip__addresses="b:1,a:1, b:1")
    assert parse_tables(config) == (TableId("b", "t"), TableId("a", "t"))
    assert session_settings(config).contact_points == (("b", 1), ("a", 1))


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("scylla.cluster.ip.addresses", "", "at least one host:port"),
        ("scylla.cluster.ip.addresses", "::1:1", "in brackets"),
        ("scylla.table.names", "ks", "keyspace.table"),
        ("scylla.table.names", "ks.t_scylla_cdc_log", "is a log table"),
        ("scylla.table.names", "ks.1t", 'must stand in double quotes: "1t"'),
        ("cdc.output.format", "v3", "LEGACY, ADVANCED"),
        ("output.format", "avro", "PARTITION-UPDATE"),
        ("cdc.include.before", "all", "ONLY-UPDATED"),
        ("cdc.include.primary-key.placement", "kafka-key,nowhere", "'nowhere' is not one of"),
        ("cdc.include.primary-key.placement", "", "at least one of"),
        ("scylla.consistency.level", "SOME", "LOCAL_QUORUM"),
        ("worker.max.retries", "0", "-1 for no limit"),
        ("worker.jitter.percentage", "0", "at least 1"),
        ("scylla.query.time.window.size", "0", "at least 1"),
        ("topic.prefix", "a b", "name of a topic"),
        ("topic.prefix", "", "non-empty"),
        ("scylla.compat", "everything", "is not one of"),
        ("skipped.operations", "x", "is not one of"),
        ("scylla.streams.per.query", "101", "no more than 100"),
        ("scylla.password", "x", ""),
    ],
)
def test_values_that_are_refused(name: str, value: str, word: str) -> None:
    errors = [error for option in CONFIG.values({**LEAST, name: value}).values() for error in option.errors]
    if word:
        assert len(errors) == 1
        assert word in errors[0]
        assert name in errors[0]
    else:
        assert not errors


def test_what_is_missing_is_named() -> None:
    errors = {name for name, value in CONFIG.values({}).items() if value.errors}
    assert errors == set(LEAST)


def test_defaults_of_events_are_the_java_connectors() -> None:
    settings = event_settings(parsed())
    assert (settings.output_format, settings.include_before, settings.include_after, settings.payload_key_name) == (
        "legacy",
        "none",
        "none",
        "key",
    )
    assert settings.key_placement == {"kafka-key", "payload-after", "payload-before"}
    assert (settings.preimages, settings.tombstones, settings.deletes_mode, settings.compat) == (
        False,
        True,
        "rows",
        frozenset(),
    )


def test_values_are_taken_without_regard_to_case() -> None:
    settings = event_settings(parsed(cdc__output__format="Advanced", cdc__include__before="Only-Updated"))
    assert (settings.output_format, settings.include_before) == ("advanced", "only-updated")
    assert event_settings(parsed(output__format="UMS", cdc__output__format="advanced")).output_format == "ums"
    config = CONFIG.parse({**LEAST, "cdc.include.primary-key.placement": "Kafka-Key, payload-diff"})
    assert event_settings(config).key_placement == {"kafka-key"}


def test_windows_are_fixed_only_when_set() -> None:
    free, fixed = (
        read_settings(parsed()),
        read_settings(parsed(scylla__query__time__window__size="30000", scylla__confidence__window__size="0")),
    )
    assert (free.window_ms, free.confidence_ms) == (None, None)
    assert (fixed.window_ms, fixed.confidence_ms) == (30_000, 0)


def test_reading_in_plain_values() -> None:
    settings = read_settings(
        parsed(
            scylla__consistency__level="local_quorum",
            worker__max__retries="-1",
            worker__jitter__percentage="50",
            snapshot__mode="initial",
            skipped__operations="c,t",
        )
    )
    assert (settings.consistency, settings.max_tries, settings.retry_jitter, settings.snapshot) == (
        "LOCAL_QUORUM",
        None,
        0.5,
        "initial",
    )
    assert settings.skipped == event_settings(parsed(skipped__operations="C, t")).skipped_operations == {"c"}
    assert event_settings(parsed(scylla__legacy__columns="ALL")).legacy_columns == "all"
    assert settings.fetch_size == 5_000
    assert read_settings(parsed(scylla__query__options__fetch__size="100")).fetch_size == 100


def test_old_name_of_the_prefix() -> None:
    raw = {name: value for name, value in LEAST.items() if name != "topic.prefix"}
    assert event_settings(CONFIG.parse({**raw, "scylla.name": "old"})).topic_prefix == "old"


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"scylla.user": "u"}, ["scylla.password"]),
        ({"scylla.password": "s3cret"}, ["scylla.user"]),
        ({"cdc.include.before": "full"}, ["cdc.include.before"]),
        ({"cdc.include.before": "full", "cdc.include.after": "full", "cdc.output.format": "advanced"}, []),
        ({"cdc.include.primary-key.placement": "payload-key"}, ["cdc.include.primary-key.placement"]),
        ({"cdc.include.primary-key.placement": "payload-before,kafka-key,payload-after"}, []),
        ({"experimental.preimages.enabled": "true"}, []),
        (
            {"experimental.preimages.enabled": "true", "cdc.output.format": "advanced"},
            ["experimental.preimages.enabled"],
        ),
        ({"cdc.include.before": "full", "output.format": "ums"}, []),
        ({"scylla.window.min.ms": "5000", "scylla.window.max.ms": "4000"}, ["scylla.window.min.ms"]),
        (
            {"scylla.confidence.window.min.ms": "5000", "scylla.confidence.window.max.ms": "4000"},
            ["scylla.confidence.window.min.ms"],
        ),
        ({"scylla.ssl.enabled": "true", "scylla.ssl.openssl.privateKey": "/k"}, ["scylla.ssl.certificate.path"]),
    ],
)
def test_options_against_each_other(changes: dict[str, str], names: list[str]) -> None:
    problems = find_problems(CONFIG.parse({**LEAST, **changes}))
    assert [problem.name for problem in problems] == names
    assert "s3cret" not in repr(problems)


def test_every_option_of_the_java_connector_is_taken() -> None:
    java = """scylla.worker.config scylla.cluster.ip.addresses scylla.ssl.enabled scylla.ssl.provider scylla.ssl.truststore.path
        scylla.ssl.truststore.password scylla.ssl.keystore.path scylla.ssl.keystore.password scylla.ssl.cipherSuites
        scylla.ssl.openssl.keyCertChain scylla.ssl.openssl.privateKey scylla.table.names scylla.user scylla.password
        scylla.query.time.window.size scylla.confidence.window.size scylla.minimal.wait.for.window.time
        scylla.initial.lookback.ms scylla.consistency.level scylla.query.options.fetch.size scylla.local.dc cdc.include.before
        cdc.include.after cdc.include.primary-key.placement cdc.include.primary-key.payload-key-name
        cdc.incomplete.task.timeout.ms cdc.output.format experimental.preimages.enabled heartbeat.interval.ms
        worker.retry.backoff.base worker.maximum.backoff worker.jitter.percentage worker.max.retries
        worker.shared.session.enabled worker.pooling.core.pool.local worker.pooling.max.pool.local worker.pooling.max.queue.size
        worker.pooling.max.requests.per.connection worker.pooling.pool.timeout.ms topic.prefix scylla.name tombstones.on.delete
        max.batch.size max.queue.size poll.interval.ms skipped.operations sourceinfo.struct.maker"""
    known_names = set(CONFIG.keys) | {alias for key in CONFIG.keys.values() for alias in key.aliases}
    assert [name for name in java.split() if name not in known_names] == []


def test_every_option_is_declared_in_full() -> None:
    for key in CONFIG.keys.values():
        assert key.doc.endswith("."), key.name
        assert key.group or key.internal, key.name
        assert key.display_name or key.internal or key.group == "Accepted for compatibility", key.name
        if key.type in {ConfigType.INT, ConfigType.LONG} and key.group != "Accepted for compatibility":
            assert key.unit or key.name == "worker.max.retries", key.name
        if key.group == "Accepted for compatibility":
            assert key.importance is Importance.LOW
            assert key.doc.startswith("Accepted for compatibility"), key.name
    assert all(CONFIG.keys[name].secret for name in (keys.PASSWORD, keys.TRUSTSTORE_PASSWORD, keys.KEYSTORE_PASSWORD))
