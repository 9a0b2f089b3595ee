"""``millrace verify`` of a flow into Redis: keys that the sink has written, with what the topic says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis as redis_library

from tests.support.verified_target import (
    VerifiedFlow,
    check_further_types,
    check_parts_are_read,
    check_rows_are_compared,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compose.local.targets.redis import Redis


@pytest.fixture
def flow(
    redis: Redis, spark: SparkSession, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., VerifiedFlow]:
    def make(server: Redis = redis, **options: str) -> VerifiedFlow:
        properties = {
            "sink.type": "redis",
            "sink.redis.url": f"redis://{server.address}",
            "sink.redis.password": server.password,
            **{f"sink.redis.{name.replace('_', '.')}": value for name, value in options.items()},
        }
        return VerifiedFlow(spark, bootstrap, tmp_path, capsys, properties)

    return make


@pytest.mark.parametrize("form", ["hash", "json"])
@pytest.mark.parametrize("deletes", ["real", "soft"])
def test_rows_are_compared_with_the_topic(flow: Callable[..., VerifiedFlow], form: str, deletes: str) -> None:
    rows = flow(form=form, delete_mode=deletes)
    check_rows_are_compared(rows, f"{rows.table.namespace}:*")


@pytest.mark.parametrize("form", ["hash", "json"])
def test_rows_of_a_cluster_are_compared_with_the_topic(
    flow: Callable[..., VerifiedFlow], cluster: Redis, form: str
) -> None:
    rows = flow(cluster, cluster="true", form=form, key="{${table}}:${key}")
    check_rows_are_compared(rows, f"{{{rows.table.namespace.partition('.')[2]}}}:*")


def test_more_keys_than_a_part_has(flow: Callable[..., VerifiedFlow]) -> None:
    check_parts_are_read(flow())


def test_a_field_that_a_hash_lacks_is_null(flow: Callable[..., VerifiedFlow], redis: Redis) -> None:
    rows = flow()
    # Brackets and stars in a key are letters of it, and patterns elsewhere.
    rows.options["sink.redis.key"] = "[${table}]*:${key}"
    with redis_library.Redis(port=redis.port or 0, password=redis.password) as client:
        client.hset(f"[{rows.table.namespace.partition('.')[2]}]*:1", mapping={"id": "1", "flag": "true"})
    rows.send(("c", 1, "one"))
    _, report = rows.verify()
    assert report["examples"] == {"different": ['{"id":"1"}']}
    (row,) = report["differences"]
    assert set(row["topic"].values()) == {"null"}
    assert list(row["topic"]) == ["name", "price", "ratio", "at", "day", "data"]


@pytest.mark.parametrize("form", ["hash", "json"])
def test_further_types_are_compared(flow: Callable[..., VerifiedFlow], form: str) -> None:
    check_further_types(flow(form=form))


def test_keys_that_can_not_be_read(flow: Callable[..., VerifiedFlow]) -> None:
    rows = flow()
    rows.send(("c", 1, "one"))
    assert "it keeps every change as an entry" in rows.refusal(**{"sink.redis.form": "stream"})
    assert "made of columns by a template" in rows.refusal(**{"sink.redis.form": "string", "sink.redis.value": "x"})
    assert "Correct sink.redis.user and sink.redis.password" in rows.refusal(**{"sink.redis.password": "another"})
    assert "127.0.0.1:1" in rows.refusal(**{"sink.redis.url": "redis://127.0.0.1:1"})
