"""Calls for hashes that are made a column at a time: those that are made of each row."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from spark_jobs.config import job_files as job_config
from spark_jobs.sinks.redis.client import _Form
from spark_jobs.sinks.redis.columns import guard_of, hash_calls, is_guard
from spark_jobs.sinks.redis.config import RedisSettings, parse_settings
from spark_jobs.sinks.shared.model import RowTable
from spark_jobs.sinks.shared.task import NUMBER, SYSTEM, rows_of

COLUMNS = ("id", "part", "name", "price", "rate", "whole", "paid", "at", "raw", "words")
TABLE = RowTable("shop.orders", COLUMNS, ("id", "part"))
INSTANT = pa.timestamp("us", "UTC")


def chosen(**options: str) -> RedisSettings:
    config, problems = job_config.check_job(
        {
            "name": "columns",
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "source.topics": "orders",
            "source.format": "plain",
            "sink.type": "redis",
            "sink.redis.url": "redis://127.0.0.1:1",
            **{f"sink.redis.{name}": value for name, value in options.items()},
        }
    )
    assert config is not None, problems
    return parse_settings(config)


def rows(**replaced: list[Any]) -> pa.Table:
    time = datetime(2026, 5, 28, 20, 26, 40, tzinfo=UTC)
    values: dict[str, Any] = {
        "id": [1, 2, 3],
        "part": ["a:b", "ä%", ""],
        "name": ["x", None, "z"],
        "price": pa.array([Decimal("0.000001"), Decimal("-12.500000"), None], pa.decimal128(20, 6)),
        "rate": pa.array([Decimal("0.0000000001"), Decimal(0), None], pa.decimal128(20, 10)),
        "whole": [1e16, 0.1, float("nan")],
        "paid": [True, False, None],
        "at": pa.array([time, time.replace(microsecond=10), None], INSTANT),
        "raw": [b"\xff\x00", b"", None],
        "words": [["a"], [], None],
        "ums_id_": [9007199254740993, -1, 7],
        "ums_ts_": pa.array([time] * 3, INSTANT),
        "ums_op_": ["i", "u", "d"],
        "ums_uid_": ["a", "b", "c"],
        "kafka_topic_": ["orders"] * 3,
        "kafka_partition_": pa.array([0] * 3, pa.int32()),
        "kafka_offset_": [5, 6, 7],
        NUMBER: pa.array([0] * 3, pa.int32()),
        **replaced,
    }
    assert tuple(values) == (*COLUMNS, *SYSTEM, NUMBER)
    return pa.table(values)


@pytest.mark.parametrize("delete_mode", ["soft", "real"])
@pytest.mark.parametrize("key", ["", "${database}:${key}", "${column:id}/{${column:part}}"])
def test_calls_are_those_of_each_row(delete_mode: str, key: str) -> None:
    options = chosen(**{"delete.mode": delete_mode, **({"key": key} if key else {})})
    table = rows()
    calls = hash_calls(options, TABLE, table)
    assert calls is not None
    form = _Form(options, TABLE)
    expected = [form.call(row) for row in rows_of(table, COLUMNS)]
    assert list(calls.keys) == [call.key for call in expected]
    assert list(calls.guards) == [call.guard for call in expected]
    for arguments, call in zip(calls.arguments, expected, strict=True):
        # A script does not look at the values of a delete.
        assert msgspec.msgpack.encode(arguments[: len(call.arguments)]) == msgspec.msgpack.encode(call.arguments)
    assert calls.row(1) == rows_of(table, COLUMNS)[1]


def test_rows_without_a_key_or_a_value_as_text_are_made_one_by_one() -> None:
    assert hash_calls(chosen(), TABLE, rows(part=["a", None, "c"])) is None
    assert hash_calls(chosen(key="${column:raw}:${key}"), TABLE, rows()) is None


@pytest.mark.parametrize("key", ["shop.t:1", "{t}:1", "{}:1", "}{:ü"])
def test_guards_are_known_by_their_names(key: str) -> None:
    assert is_guard(guard_of(key))
    assert not is_guard(key)


def test_a_row_may_have_the_end_of_a_guard() -> None:
    assert not is_guard("shop.t:x:ums_id_")
