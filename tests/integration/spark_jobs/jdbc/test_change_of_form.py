"""A connector's form changes in the middle of a stream into one table: nothing is dropped, nothing comes back."""

# ruff: noqa: S608 - names of the test's own
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.spark_jobs.jdbc.mysql_pipeline import Pipeline, sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from compose.local.mariadb import MariaDb
    from tests.integration.spark_jobs.jdbc.conftest import Database, Rig


@pytest.fixture
def pipeline(mariadb: MariaDb, spark: SparkSession, bootstrap: str) -> Iterator[Pipeline]:
    pipeline = Pipeline(mariadb, spark, bootstrap, ["shop"])
    try:
        yield pipeline
    finally:
        pipeline.close()


@pytest.mark.slow
async def test_debezium_and_ums_in_turn_into_one_table(
    pipeline: Pipeline, rig: Callable[..., Rig], postgresql: Database, spark: SparkSession
) -> None:
    table = f"{pipeline.databases[0]}.orders"
    pipeline.sql(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {table} SELECT seq, 0 FROM {pipeline.databases[0]}.seq_1_to_40",
    )
    into = sink(rig, postgresql, spark, pipeline)
    written = []
    for number, form in enumerate(("debezium", "ums", "debezium"), 1):
        records = await pipeline.capture(
            form,
            f"UPDATE {table} SET v = v + 1 WHERE id <= 20",
            f"UPDATE {table} SET v = {number * 1000} WHERE id = {number}",
            f"DELETE FROM {table} WHERE id = {20 + number}",
            f"UPDATE {table} SET id = {100 + number} WHERE id = {30 + number}",
            f"INSERT INTO {table} VALUES ({20 + number - 1}, -{number}) ON DUPLICATE KEY UPDATE v = -{number}",
        )
        written.append((form, records))
        into.restart()  # a job with another source.format
        assert into.sink.write(into.batch(*pipeline.changes(form, records))) > 0
    expected = sorted((int(key), int(value)) for key, value in pipeline.sql(f"SELECT id, v FROM {table}"))

    def read_target() -> list[tuple[int, int]]:
        return sorted(postgresql.query(f"SELECT id, v FROM {pipeline.prefix}_orders WHERE ums_active_ = 1"))

    assert read_target() == expected
    # What came first once more, in either form: it is older and changes nothing.
    for form, records in written[:2]:
        into.restart()
        into.sink.write(into.batch(*pipeline.changes(form, records)))
    assert read_target() == expected
    file, position = divmod(postgresql.query(f"SELECT max(ums_id_) FROM {pipeline.prefix}_orders")[0][0], 10**12)
    master_status = pipeline.sql("SHOW MASTER STATUS")[0]
    assert (file, position <= int(master_status[1])) == (int(master_status[0].rpartition(".")[2]), True)
