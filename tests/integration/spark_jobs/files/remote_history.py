"""Read a history on a remote file system, in a session with its client: ``python -m ... ADDRESS SETS OPTIONS``; prints JSON.

What it does: rows of all tables before and after a compaction, files that listings see, and sixteen writers of one name.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spark_jobs import history
from spark_jobs.history.commands import compact_table
from spark_jobs.history.rolling import Rolling
from spark_jobs.history.storage import HadoopStorage
from spark_jobs.spark.session import build_session
from worker.fetch.java import FAST_START


def main() -> None:
    """Print what was seen."""
    address, sets, options = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    spark = build_session(
        "look",
        master="local[2]",
        extra_jars=sets,
        conf={"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": " ".join(FAST_START), **options},
    )

    def rows() -> list[list[Any]]:
        columns = ("id", "kafka_partition_", "kafka_offset_")
        return sorted([list(row) for row in history.read(spark, address).select(*columns).collect()])

    (table,) = history.find_tables(spark, address)
    before = rows()
    done = compact_table(spark, table, Rolling(size=2**20, retention=0))
    storage = HadoopStorage(spark, f"{address}/race")
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda number: storage.put_if_absent("one", str(number).encode()), range(16)))
    content = storage.read("one")
    print(
        json.dumps(
            {
                "before": before,
                "after": rows(),
                "listed": spark.read.parquet(table.path).count(),
                "files": len(history.current_files(table.path, spark=spark)),
                "merged": done["merged"],
                "winners": [number for number, success in enumerate(won) if success],
                "content": (content or b"").decode(),
            }
        )
    )


if __name__ == "__main__":
    main()
