"""Files on a remote file system, read by jobs in a session with its client: ``python -m ... ROOT SETS OPTIONS FOLDER KAFKA``.

Prints JSON: for each format the rows that the files sink has after a first run and after one with a later file, and the dead
letters of a damaged file and of a bad row. Leaves twelve files for another job in ``ROOT/many``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spark_jobs import history
from spark_jobs.history.storage import HadoopStorage
from spark_jobs.spark.session import build_session
from tests.integration.spark_jobs.inputs.test_file_flows import ROWS, encode
from tests.support.job_runs import run_job
from worker.fetch.java import FAST_START

KINDS = ("csv", "json", "avro", "parquet", "orc", "text")


def main() -> None:
    """Print what the jobs made of the files."""
    root, sets, options, folder, bootstrap = (
        sys.argv[1],
        json.loads(sys.argv[2]),
        json.loads(sys.argv[3]),
        Path(sys.argv[4]),
        sys.argv[5],
    )
    spark = build_session(
        "remote-files",
        master="local[2]",
        extra_jars=sets,
        conf={"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": " ".join(FAST_START), **options},
    )
    storage = HadoopStorage(spark, root)
    for number in range(12):
        lines = "".join(f"{number * 50 + row},{number}-{row}\n" for row in range(100))
        assert storage.put_if_absent(f"many/{number:03d}.csv", f"id,name\n{lines}".encode())

    def run(kind: str, **more: str) -> str:
        properties = {
            "name": f"remote-{kind}",
            "source.type": "files",
            "source.files.path": f"{root}/{kind}",
            "source.files.format": kind,
            "source.files.namespace": f"drop.{kind}",
            "sink.type": "files",
            "sink.files.path": str(folder / kind),
            "state.dir": str(folder / "state"),
            # The position is on the remote file system, too.
            "checkpoint.location": f"{root}/checkpoint-{kind}",
            "trigger.mode": "available-now",
            "errors.retry.timeout.ms": "0",
            **more,
        }
        return run_job(spark, properties)

    typed = {"source.key.columns": "id", "source.table.columns": "id bigint, name string, price decimal(10,2)"}
    seen: dict[str, Any] = {}
    for kind in KINDS:
        seen[kind] = []
        for number, rows in enumerate(ROWS):
            content = (
                "".join(f"{row[0]} {row[1]}\n" for row in rows).encode()
                if kind == "text"
                else encode(kind, spark, folder / f"made-{kind}{number}", rows)
            )
            assert storage.put_if_absent(f"{kind}/a folder/{number} [x].{kind}", content)
            assert run(kind, **({} if kind == "text" else typed)) == ""
            columns = ["value"] if kind == "text" else ["id", "name", "CAST(price AS string) AS price"]
            frame = history.read(spark, str(folder / kind)).orderBy("ums_id_").selectExpr(*columns, "ums_op_")
            seen[kind].append([list(row) for row in frame.collect()])
    letters = {
        "kafka.bootstrap.servers": bootstrap,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{folder.name}-dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    assert storage.put_if_absent("csv/bad.csv", b"id,name,price\n7,seven,7\n8,eight,many\n")
    assert storage.put_if_absent("csv/cut.csv.gz", b"\x1f\x8b\x08\0nonsense")
    seen["error"] = run("csv", **typed)
    assert run("csv", **typed, **letters) == ""
    seen["good"] = [row.id for row in history.read(spark, str(folder / "csv")).orderBy("ums_id_").collect()]
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
