"""Iceberg tables that another program has made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from connectors.errors import Fatal
from spark_jobs.sinks.iceberg.table import LEVELS, IcebergLake, catalog_of

if TYPE_CHECKING:
    from pathlib import Path


def test_tables_with_partitions_of_others_are_refused(tmp_path: Path) -> None:
    where = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    catalog = catalog_of(where)
    catalog.create_namespace("shop")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "region", LongType()))
    catalog.create_table("shop.plain", schema)
    catalog.create_table(
        "shop.divided", schema, partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    )
    lake = IcebergLake(catalog)
    assert lake.find(f"shop{LEVELS}plain") is not None
    assert lake.find(f"shop{LEVELS}absent") is None
    with pytest.raises(Fatal, match=r"shop\.divided is partitioned by region"):
        lake.find(f"shop{LEVELS}divided")
