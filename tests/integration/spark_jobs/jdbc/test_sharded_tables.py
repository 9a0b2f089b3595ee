"""Two databases with two tables each are one logical table: equal keys, on their way from MariaDB to PostgreSQL."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Fatal
from spark_jobs.spark.causes import cause_of
from tests.integration.spark_jobs.jdbc.mysql_pipeline import Pipeline, sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from compose.local.mariadb import MariaDb
    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig

SHARDS = list(itertools.product((1, 2), (3, 4)))


@pytest.fixture
def pipeline(mariadb: MariaDb, spark: SparkSession, bootstrap: str) -> Iterator[Pipeline]:
    # The mark is in the first database: a snapshot reads it last of all tables.
    pipeline = Pipeline(mariadb, spark, bootstrap, ["shop_2", "shop_1"])
    pipeline.config["logical.tables"] = rf"{pipeline.prefix}_shop_(\d+)\.orders_(\d+):shop.orders"
    try:
        for shard in SHARDS:
            pipeline.sql(f"CREATE TABLE {physical(pipeline, shard)} (id INT PRIMARY KEY, v INT)")
        yield pipeline
    finally:
        pipeline.close()


def physical(pipeline: Pipeline, shard: tuple[int, int]) -> str:
    return f"{pipeline.prefix}_shop_{shard[0]}.orders_{shard[1]}"


@pytest.mark.parametrize("form", ["debezium", pytest.param("ums", marks=pytest.mark.slow)])
async def test_shards_are_separated_merged_or_refused(
    pipeline: Pipeline, rig: Callable[..., Rig], postgresql: Database, spark: SparkSession, form: str
) -> None:
    chance = random.Random(form)
    merged: dict[int, int | None] = {}
    statements = []
    for number in range(80):
        shard, key = chance.choice(SHARDS), chance.randrange(1, 9)
        if chance.random() < 0.25:
            # A delete of a row that is not there is no change.
            statements += [
                f"REPLACE INTO {physical(pipeline, shard)} VALUES ({key}, -1)",
                f"DELETE FROM {physical(pipeline, shard)} WHERE id = {key}",
            ]
            merged[key] = None
        else:
            statements.append(f"REPLACE INTO {physical(pipeline, shard)} VALUES ({key}, {number})")
            merged[key] = number
    # A snapshot's rows are as new as the reading of them: the tables are empty until it is over.
    records = [*await pipeline.capture(form), *await pipeline.capture(form, *statements)]

    def written(mode: str) -> list[tuple[Any, ...]]:
        table = f"{pipeline.prefix}_{mode}_${{table}}"
        into = sink(rig, postgresql, spark, pipeline, **{"sink.jdbc.table": table})
        into.sink.write(into.batch(*pipeline.changes(form, records, **{"sink.shards": mode})))
        columns = "database_partition, table_partition, id, v" if mode == "separate" else "id, v"
        return sorted(postgresql.query(f"SELECT {columns} FROM {pipeline.prefix}_{mode}_orders WHERE ums_active_ = 1"))

    separate = sorted(
        (*shard, *row) for shard in SHARDS for row in pipeline.sql(f"SELECT id, v FROM {physical(pipeline, shard)}")
    )
    assert len({row[2] for row in separate}) < len(separate), "keys are equal over shards"
    assert written("separate") == separate
    assert written("merge") == sorted((key, value) for key, value in merged.items() if value is not None)
    with pytest.raises(Exception, match=r"several shards: .*sink\.shards=separate") as refused:
        written("refuse")
    assert isinstance(cause_of(refused.value), Fatal), "as the frame sees it"
