"""Settings, versions and replicas of Cassandra's nodes."""

from __future__ import annotations

import pytest

from connectors.cassandra.server import (
    Copies,
    NodeSettings,
    longest_sync_s,
    parse_replication,
    settings_of,
    size_of,
    smallest_space,
    version_of,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096MiB", 4 << 30),
        ("1GiB", 1 << 30),
        ("10 KiB", 10_240),
        ("7B", 7),
        ("8", 8),
        ("", None),
        (None, None),
        ("4MB", None),
    ],
)
def test_sizes(text: str | None, expected: int | None) -> None:
    assert size_of(text) == expected


def test_settings_of_new_and_old_servers() -> None:
    new = settings_of(
        {
            "broadcast_address": "10.0.0.1",
            "cdc_enabled": "true",
            "cdc_block_writes": "false",
            "cdc_total_space": "4096MiB",
            "commitlog_segment_size": "32MiB",
            "cdc_raw_directory": "/c/cdc_raw/",
            "commitlog_directory": "/c/commitlog",
            "transparent_data_encryption_options.enabled": "true",
            "commitlog_sync": "periodic",
            "commitlog_sync_period": "1000ms",
        }
    )
    assert new == NodeSettings(
        address="10.0.0.1",
        cdc_enabled=True,
        cdc_block_writes=False,
        total_space=4 << 30,
        segment_size=32 << 20,
        cdc_raw="/c/cdc_raw",
        commitlog="/c/commitlog",
        encrypted=True,
        sync_s=1.5,
    )
    old = settings_of(
        {
            "listen_address": "h",
            "cdc_enabled": "false",
            "cdc_total_space_in_mb": "0",
            "commitlog_segment_size_in_mb": "32",
            "transparent_data_encryption_options_enabled": "false",
        }
    )
    assert old == NodeSettings(address="h", cdc_enabled=False, segment_size=32 << 20)
    assert smallest_space([new, old]) == 4 << 30
    assert smallest_space([old]) == 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"commitlog_sync": "periodic", "commitlog_sync_period": "10s"}, 15.0),
        ({"commitlog_sync": "periodic", "commitlog_sync_period": "200ms"}, 0.3),
        ({"commitlog_sync": "periodic", "commitlog_sync_period_in_ms": "10000"}, 15.0),
        ({"commitlog_sync": "group", "commitlog_sync_period": "0ms"}, 0.0),
        ({"commitlog_sync": "batch"}, 0.0),
        ({"commitlog_sync": "periodic", "commitlog_sync_period": "null"}, None),
        ({}, None),
    ],
)
def test_how_late_a_change_becomes_readable(values: dict[str, str], expected: float | None) -> None:
    assert settings_of(values).sync_s == (None if expected is None else pytest.approx(expected))


def test_the_slowest_node_counts_and_an_unknown_one_makes_all_unknown() -> None:
    fast, slow, unknown = NodeSettings("a", sync_s=0.0), NodeSettings("b", sync_s=15.0), NodeSettings("c")
    assert longest_sync_s([fast, slow]) == 15.0
    assert longest_sync_s([fast]) == 0.0
    assert longest_sync_s([fast, unknown]) is None
    assert longest_sync_s([]) is None


def test_versions_and_replicas() -> None:
    assert [version_of(text) for text in ("5.0.9", "4.1-beta1", "6.0-alpha2-SNAPSHOT", None, "x")] == [
        (5, 0),
        (4, 1),
        (6, 0),
        (0, 0),
        (0, 0),
    ]
    assert parse_replication(
        [{"key": "class", "value": "x.SimpleStrategy"}, {"key": "replication_factor", "value": "3"}]
    ) == Copies({}, 3)
    assert parse_replication({"class": "NetworkTopologyStrategy", "dc1": "3", "dc2": "3/1"}) == Copies(
        {"dc1": 3, "dc2": 3}
    )
    assert parse_replication({"class": "LocalStrategy"}) == Copies({})
