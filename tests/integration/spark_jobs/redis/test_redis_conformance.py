"""The conformance kit on Redis: rows as hashes, as JSON, and as entries of streams."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import redis as redis_library

from spark_jobs.testing import Gate, SinkTarget, Supports, cases, check_sink
from tests.support.json_rows import stored_in_json
from tests.support.kit_cases import kit_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from compose.local.targets.redis import Redis
    from spark_jobs.contract import Column, TableSchema


def _boolean(value: bytes) -> bool:
    return {"true": True, "false": False}[value.decode()]


#: How the text of a field is read, by type.
READERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("array", "map", "struct"), json.loads),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), lambda value: datetime.fromisoformat(value.decode())),
    "decimal": lambda value: Decimal(value.decode()),
    "boolean": _boolean,
    "date": lambda value: date.fromisoformat(value.decode()),
    "string": bytes.decode,
    "binary": bytes,
}

#: Seconds each: for slow runs.
SLOW = ("killed_at_every_step", "poison_record", "server_silent")


class RedisTarget(SinkTarget):
    """A Redis behind a gate."""

    sink_type = "redis"

    def __init__(self, server: Redis, gate: Gate, form: str = "hash") -> None:
        self.server = server
        self.gate: Gate = gate
        self.form = form
        self.client: Any = redis_library.Redis(port=server.port or 0, password=server.password)

    def options(self) -> Mapping[str, str]:
        return {
            "sink.redis.url": f"redis://127.0.0.1:{self.gate.port}/0",
            "sink.redis.password": self.server.password,
            "sink.redis.form": self.form,
            "sink.redis.timeout.ms": "2000",
            "sink.redis.retries": "1",
            "sink.redis.retry.backoff.ms": "20",
        }

    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        if self.form == "stream":
            entries: Any = self.client.xrange(schema.namespace)
            return [self._typed(schema, fields) for _, fields in entries]
        names = sorted(self.client.scan_iter(match=f"{schema.namespace}:*"))
        if self.form == "hash":
            return [self._typed(schema, self.client.hgetall(name)) for name in names]
        return [json.loads(self.client.get(name), parse_float=Decimal) for name in names]

    def _typed(self, schema: TableSchema, fields: Mapping[bytes, bytes]) -> dict[str, Any]:
        row: dict[str, Any] = {"ums_id_": int(fields[b"ums_id_"]), "ums_op_": fields[b"ums_op_"].decode()}
        for column in schema.columns:
            value = fields.get(column.name.encode())
            row[column.name] = None if value is None else READERS[column.type.typeName()](value)
        return row

    def stored(self, column: Column, value: Any) -> Any:
        return stored_in_json(column, value) if self.form == "json" else value

    def wrong_login(self) -> Mapping[str, str]:
        return {"sink.redis.password": "not-the-secret"}


@pytest.fixture
def gate(redis: Redis) -> Iterator[Gate]:
    with Gate("127.0.0.1", redis.port or 0) as proxy:
        yield proxy


@pytest.mark.proves("into redis", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize("case", kit_cases(cases(), SLOW))
def test_conformance_of_hashes(case: str, redis: Redis, gate: Gate, spark: SparkSession, bootstrap: str) -> None:
    check_sink(RedisTarget(redis, gate), spark=spark, bootstrap=bootstrap, only=case)


@pytest.mark.parametrize(
    "case",
    [
        "replay",
        "older_after_newer",
        "older_after_delete",
        "nulls_and_absent_columns",
        "every_type",
        "every_type_of_key",
    ],
)
def test_conformance_of_json(case: str, redis: Redis, gate: Gate, spark: SparkSession) -> None:
    check_sink(RedisTarget(redis, gate, "json"), spark=spark, only=case)


@pytest.mark.proves("into redis stream", "exactly-once", killed=["driver", "Python worker"])
@pytest.mark.parametrize(
    "case",
    kit_cases(
        ["replay", "delete", "every_type", "many_rows", "connection_breaks_at_every_step", "killed_at_every_step"], SLOW
    ),
)
def test_conformance_of_streams(case: str, redis: Redis, gate: Gate, spark: SparkSession) -> None:
    target = RedisTarget(redis, gate, "stream")
    target.supports = Supports(upsert=False, ordering=False, remembers_deletes=False)
    check_sink(target, spark=spark, only=case)
