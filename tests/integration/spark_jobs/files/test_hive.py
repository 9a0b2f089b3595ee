"""Registration in a Hive metastore (Derby, embedded in Spark): tables, partitions, new and wider columns, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_tables_are_found_by_the_metastore(kind: str, tmp_path: Path) -> None:
    module = "tests.integration.spark_jobs.files.hive_history"
    done = subprocess.run(
        [sys.executable, "-m", module, str(tmp_path), kind], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["no_database"].endswith("Hive has no database lake; run: CREATE DATABASE lake")
    assert seen["first"] == [[n, n, f"it's {n % 2}/x"] for n in range(4)]
    days = [f"ums_date_=2026-11-20/by=it%27s {n}%2Fx" for n in range(2)]
    assert seen["partitions"] == days
    wide = [[n, f"{n}.00", None] for n in range(4)]
    assert seen["second"] == [*wide, [4, None, "z4"], [5, None, "z5"]], "old and new rows, also in one partition"
    assert seen["partitions_later"] == sorted([*days, "ums_date_=2026-11-20/by=__HIVE_DEFAULT_PARTITION__"])
    assert seen["type"] == "decimal(12,2)"
    assert "Hive has a table lake.shop_other at " in seen["elsewhere"]
    assert "column at of type timestamp_ntz, which Hive does not know" in seen["refused"]
