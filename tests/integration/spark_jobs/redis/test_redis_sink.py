"""Forms of rows in Redis: strings, sorted sets, JSON and streams with their options; clusters; a server that is killed; TLS."""

from __future__ import annotations

import json
import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import redis as redis_library
from pyspark.sql.types import DoubleType, IntegerType, StringType, TimestampType

from compose.local.targets.redis import Redis
from connectors.errors import Fatal, Retriable
from spark_jobs.contract import Column, TableSchema
from spark_jobs.sinks.redis.client import RedisSinkClient
from spark_jobs.sinks.redis.config import CONFIG_DEF, parse_settings
from spark_jobs.sinks.shared.model import RowTable, SinkRow
from spark_jobs.sinks.shared.task import NUMBER, rows_of
from spark_jobs.testing.batches import BatchFeed, change
from spark_jobs.testing.kit import key_column, make_sink, parse_config
from tests.support.tls_door import tls_door

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Sink
    from spark_jobs.testing.batches import Change

COLUMNS = (
    key_column("id", IntegerType()),
    key_column("region", StringType()),
    Column("name", StringType()),
    Column("score", DoubleType()),
    Column("at", TimestampType()),
)
WEEK_MS = 7 * 24 * 3_600_000


class Rig:
    """A sink over a Redis, and a table of the test's own."""

    def __init__(self, server: Redis, spark: SparkSession, options: dict[str, str]) -> None:
        self.client: Any = redis_library.Redis(
            port=server.port or 0, password=server.password or None, decode_responses=True
        )
        self.spark = spark
        self.table = TableSchema(f"shop.t{secrets.token_hex(4)}", COLUMNS)
        self.feed = BatchFeed(f"topic-{secrets.token_hex(4)}")
        self.properties = {
            "name": "redis",
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "source.topics": self.feed.topic,
            "source.format": "plain",
            "sink.type": "redis",
            "sink.redis.url": f"redis://{server.address}",
            "sink.redis.retry.backoff.ms": "10",
            "sink.redis.timeout.ms": "2000",
            **({"sink.redis.password": server.password} if server.password else {}),
            **{f"sink.redis.{name}": value for name, value in options.items()},
        }
        self.sink: Sink = make_sink(parse_config(self.properties), spark)

    def write(self, *changes: Change) -> int:
        return self.sink.write(self.feed.next([(self.table, changes)]).frames(self.spark))

    def key(self, rest: str = "") -> str:
        return f"{self.table.namespace}{rest}"


@pytest.fixture
def rig(redis: Redis, spark: SparkSession) -> Callable[..., Rig]:
    def make(server: Redis = redis, **options: str) -> Rig:
        return Rig(server, spark, {name.replace("_", "."): value for name, value in options.items()})

    return make


def test_strings(rig: Callable[..., Rig]) -> None:
    strings = rig(form="string", value="${column:name}/${ums_op_}", ttl_ms="100000")
    strings.write(
        change("i", 5, id=1, region="e:u", name="a"),
        change("i", 6, id=2, region="eu", name="b"),
        change("i", 7, id=3, region="eu"),
    )
    strings.write(change("u", 4, id=1, region="e:u", name="old"), change("d", 8, id=2, region="eu"))
    first, second = strings.key(":1:e%3Au"), strings.key(":2:eu")
    assert strings.client.get(first) == "a/i"
    assert 0 < strings.client.pttl(first) <= 100_000
    assert strings.client.exists(second, strings.key(":3:eu")) == 0
    # The delete is remembered for a week, and an older change does not bring the row back.
    assert WEEK_MS - 100_000 < strings.client.pttl(f"{{{second}}}:ums_id_") <= WEEK_MS
    strings.write(change("u", 7, id=2, region="eu", name="late"))
    assert strings.client.exists(second) == 0
    metrics = strings.sink.context.metrics
    assert (metrics["redis_stale_total"], metrics["redis_written_total"]) == (2, 4)


def test_sorted_sets(rig: Callable[..., Rig]) -> None:
    ranks = rig(**{"form": "sorted-set", "score.column": "score", "member": "${column:name}", "key": "rank:${table}"})
    ranks.write(
        change("i", 1, id=1, region="eu", name="ann", score=1.5),
        change("i", 2, id=2, region="eu", name="bob", score=-2.0),
        change("i", 3, id=3, region="eu", name="cyd", score=9.0),
    )
    key = "rank:" + ranks.key().partition(".")[2]
    assert ranks.client.zrange(key, 0, -1, withscores=True) == [("bob", -2.0), ("ann", 1.5), ("cyd", 9.0)]
    ranks.write(
        change("u", 4, id=1, region="eu", name="anna", score=3.0),
        change("u", 1, id=2, region="eu", name="old", score=0.0),
    )
    ranks.write(change("d", 5, id=3, region="eu", name="cyd"), change("d", 6, id=9, region="eu", name="nobody"))
    assert ranks.client.zrange(key, 0, -1, withscores=True) == [("bob", -2.0), ("anna", 3.0)]
    with pytest.raises(Fatal, match=r"offset \d+ with id=7, region='eu' is refused: the column score is the score"):
        ranks.write(change("i", 9, id=7, region="eu", name="none"))


def test_deletes_of_which_only_the_key_is_known(rig: Callable[..., Rig]) -> None:
    ranks = rig(**{"form": "sorted-set", "score.column": "at", "member": "${column:name}"})
    moment = datetime.fromisoformat("2026-01-01T00:00:01+00:00")
    ranks.write(change("i", 1, id=1, region="eu", name="ann", at=moment))
    assert ranks.client.zscore(ranks.key(), "ann") == moment.timestamp()
    ranks.write(change("d", 2, id=1, region="eu"))
    assert ranks.client.exists(ranks.key()) == 0


def test_soft_deletes_and_fields_of_others(rig: Callable[..., Rig]) -> None:
    soft = rig(**{"delete.mode": "soft"})
    soft.write(change("i", 1, id=1, region="eu", name="a", score=1.0))
    soft.client.hset(soft.key(":1:eu"), "note", "of another program")
    soft.write(change("d", 2, id=1, region="eu"))
    row = soft.client.hgetall(soft.key(":1:eu"))
    assert row.pop("ums_ts_")
    columns = {"id": "1", "region": "eu", "name": "a", "score": "1.0", "note": "of another program"}
    assert row == columns | {"ums_id_": "2", "ums_op_": "d", "ums_active_": "0"}
    documents = rig(**{"delete.mode": "soft", "form": "json"})
    documents.write(change("i", 1, id=1, region="eu", name="a"), change("d", 2, id=1, region="eu"))
    assert json.loads(documents.client.get(documents.key(":1:eu")))["ums_active_"] == 0


def test_a_row_that_the_server_refuses_does_not_stop_its_neighbours(rig: Callable[..., Rig]) -> None:
    hashes = rig()
    hashes.client.set(hashes.key(":1:eu"), "a string of another program")
    with pytest.raises(Fatal, match=r"with id=1, region='eu' is refused: Redis .*WRONGTYPE"):
        hashes.write(change("i", 1, id=1, region="eu", name="a"), change("i", 2, id=2, region="eu", name="b"))
    assert hashes.client.hget(hashes.key(":2:eu"), "name") == "b"


@pytest.mark.parametrize("form", ["hash", "stream"])
def test_a_batch_of_several_calls_leaves_out_single_rows(redis: Redis, form: str) -> None:
    count, table = 2500, RowTable(f"shop.t{secrets.token_hex(4)}", ("id",), ("id",))
    key = f"{table.namespace}:${{key}}" if form == "hash" else table.namespace
    options = {"url": f"redis://{redis.address}", "password": redis.password, "form": form, "key": key}
    options |= {"mode": "insert"} if form == "stream" else {}
    chosen = parse_settings(CONFIG_DEF.parse({f"sink.redis.{name}": value for name, value in options.items()}))
    server: Any = redis_library.Redis(port=redis.port or 0, password=redis.password, decode_responses=True)
    if form == "hash":
        server.set(f"{table.namespace}:5", "a string")
        server.set(f"{table.namespace}:1501", "another one")
    values = {
        "id": pa.array([None if number == 700 and form == "hash" else number for number in range(count)]),
        "ums_id_": pa.array(range(count)),
        "ums_ts_": pa.array([0] * count, pa.timestamp("us", "UTC")),
        "ums_op_": pa.array(["i"] * count),
        "ums_uid_": pa.array([""] * count),
        "kafka_topic_": pa.array(["t"] * count),
        "kafka_partition_": pa.array([0] * count, pa.int32()),
        "kafka_offset_": pa.array(range(count)),
        NUMBER: pa.array([0] * count, pa.int32()),
    }
    rows = pa.table(values)
    refused: list[tuple[SinkRow, str]] = []
    client = RedisSinkClient(chosen, table)
    written = client.write(rows if form == "hash" else rows_of(rows, table.columns), refused.extend)
    replayed = client.write(rows if form == "hash" else rows_of(rows, table.columns), lambda _: None)
    client.close()
    if form == "hash":
        assert sorted(row.offset for row, _ in refused) == [5, 700, 1501]
        assert written.rows == count - 3
        assert server.hget(f"{table.namespace}:{count - 1}", "ums_id_") == str(count - 1)
    else:
        assert (written.rows, replayed.rows, replayed.stale) == (count, 0, count)
        entries = server.xrange(table.namespace)
        assert [fields["id"] for _, fields in entries] == [str(number) for number in range(count)]


def test_streams_have_bounds(rig: Callable[..., Rig]) -> None:
    entries = rig(form="stream", stream_length="200")
    data = entries.feed.next([(entries.table, [change("i", n, id=n, region="eu", name=str(n)) for n in range(1000)])])
    for _ in range(2):
        entries.sink.write(data.frames(entries.spark))
    assert 200 <= entries.client.xlen(entries.key()) <= 500
    metrics = entries.sink.context.metrics
    assert (metrics["redis_written_total"], metrics["redis_stale_total"]) == (1000, 1000)


def test_tables_that_share_a_stream_have_positions_of_their_own(rig: Callable[..., Rig]) -> None:
    name = f"changes-{secrets.token_hex(4)}"
    entries = rig(form="stream", key=name)
    returns = TableSchema(f"shop.r{secrets.token_hex(4)}", COLUMNS)
    orders = [change("i", n, id=n, region="eu", name="order") for n in range(6)]
    later = [change("i", n, id=n, region="eu", name="return") for n in range(6)]
    data = entries.feed.next([(returns, later), (entries.table, orders)])
    data.tables.reverse()  # the rows with the larger offsets are written first
    for _ in range(2):
        entries.sink.write(data.frames(entries.spark))
    names = [fields["name"] for _, fields in entries.client.xrange(name)]
    assert sorted(names) == ["order"] * 6 + ["return"] * 6


def test_rows_of_one_position_keep_their_order_whichever_way_a_step_has_shuffled_them(rig: Callable[..., Rig]) -> None:
    """As closed windows have it: their rows have the position of the batch's last record."""
    steps = {"transform.steps": "w", "transform.step.w.type": "filter", "transform.step.w.condition": "true"}
    position = {"kafka_topic_": "t", "kafka_partition_": 0, "kafka_offset_": 7}
    changes = [change("i", 1, id=n, region="eu", name=str(n)) for n in range(30)]
    orders = []
    for turn in (1, -1):
        entries = rig(form="stream")
        entries.sink = make_sink(parse_config(entries.properties | steps), entries.spark)
        data = entries.feed.next([(entries.table, changes)])
        ((schema, rows),) = data.tables
        data.tables[0] = (
            schema,
            [{**row, **position, "ums_uid_": f"u{number}"} for number, row in enumerate(rows)][::turn],
        )
        assert entries.sink.write(data.frames(entries.spark)) == 30
        orders.append([fields["id"] for _, fields in entries.client.xrange(entries.key())])
    assert orders[0] == orders[1]


def test_documents_without_the_module(rig: Callable[..., Rig]) -> None:
    documents = rig(form="json", json_command="JSON.SET")
    with pytest.raises(Fatal, match=r"json\.command=JSON\.SET needs the module RedisJSON"):
        documents.write(change("i", 1, id=1, region="eu", name="a"))


def test_keys_must_be_made_of_the_key(rig: Callable[..., Rig]) -> None:
    wrong = rig(key="${table}:${column:name}")
    assert "sink.redis.key names the column name, which is not in the row's key (id, region)" in wrong.sink.refusal(
        wrong.table
    )
    part = rig(key="${table}:${column:id}")
    assert "lacks region" in part.sink.refusal(part.table)
    chosen = rig(**{"key": "${table}:${column:id}", "key.columns": "id"})
    assert not chosen.sink.refusal(chosen.table)


def test_large_order_numbers(rig: Callable[..., Rig]) -> None:
    hashes = rig()
    newest = 2**55 + 1  # a double has 53 bits
    hashes.write(change("i", newest, id=1, region="eu", name="new"), change("i", -5, id=2, region="eu", name="old"))
    hashes.write(change("i", newest - 1, id=1, region="eu", name="old"), change("i", -4, id=2, region="eu", name="new"))
    names = [hashes.client.hget(hashes.key(f":{number}:eu"), "name") for number in (1, 2)]
    assert names == ["new", "new"]


@pytest.mark.proves("into redis stream", "exactly-once", killed=["server"])
def test_a_server_that_is_killed(rig: Callable[..., Rig], tmp_path: Path) -> None:
    # It writes each command to its file before it answers.
    durable = ["--appendonly", "yes", "--appendfsync", "always"]
    with Redis(tmp_path, port=None, arguments=durable) as server:
        entries = rig(server, form="stream", retries="0")
        changes = [change("i", n, id=n, region="eu", name=str(n)) for n in range(20)]
        data = entries.feed.next([(entries.table, changes)])
        entries.sink.write(data.frames(entries.spark))
        later = entries.feed.next(
            [(entries.table, [change("u", 100 + n, id=n, region="eu", name="new") for n in range(20)])]
        )
        server.service.kill()
        with pytest.raises(Retriable):
            entries.sink.write(later.frames(entries.spark))
        server.service.start()
        for batch in (data, later, later):
            entries.sink.write(batch.frames(entries.spark))
        orders = sorted(int(fields["ums_id_"]) for _, fields in entries.client.xrange(entries.key()))
        assert orders == [*range(20), *range(100, 120)]


@pytest.mark.parametrize("form", ["hash", "stream"])
def test_clusters(cluster: Redis, form: str, rig: Callable[..., Rig]) -> None:
    rows = rig(cluster, form=form, cluster="true", key="{${table}}:${key}")
    data = rows.feed.next([(rows.table, [change("i", n, id=n, region="eu", name=str(n)) for n in range(50)])])
    for _ in range(2):
        assert rows.sink.write(data.frames(rows.spark)) in (50, 0)
    rows.write(change("d", 100, id=1, region="eu"), change("u", 3, id=4, region="eu", name="late"))
    names: Any = list(rows.client.scan_iter(match="{*}:*:eu"))
    assert len(names) == (49 if form == "hash" else 50)
    braces = rig(cluster, cluster="true", key="a}${key}{")
    with pytest.raises(Fatal, match="braces that are no hash tag"):
        braces.write(change("i", 1, id=1, region="eu"))
    assert not type(rows.sink).check(rows.sink.context.config)


def test_tls_is_verified(rig: Callable[..., Rig], redis: Redis, tmp_path: Path) -> None:
    with tls_door(redis.port or 0, tmp_path) as (port, authority):
        trusting = rig(**{"url": f"rediss://127.0.0.1:{port}", "ssl.root.cert": str(authority)})
        assert not type(trusting.sink).check(trusting.sink.context.config)
        assert trusting.write(change("i", 1, id=1, region="eu", name="a")) == 1
        stranger = rig(url=f"rediss://127.0.0.1:{port}", retries="0")
        (complaint,) = type(stranger.sink).check(stranger.sink.context.config)
        assert complaint.startswith("sink.redis.ssl.root.cert: ")


def test_a_wrong_address_is_said(rig: Callable[..., Rig]) -> None:
    away = rig(url="redis://127.0.0.1:1")
    (complaint,) = type(away.sink).check(away.sink.context.config)
    assert complaint.startswith("sink.redis.url: Redis 127.0.0.1:1: ")
    with pytest.raises(Retriable):
        away.write(change("i", 1, id=1, region="eu"))
