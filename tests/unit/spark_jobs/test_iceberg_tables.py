"""Iceberg tables that another program has made, and those that the sink finds again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField
from pyspark.sql import types as spark_types

from connectors.errors import Fatal
from spark_jobs.contract import Column, SchemaRefused, TableSchema
from spark_jobs.sinks.iceberg.config import CONFIG, NAMESPACE, PREFIX
from spark_jobs.sinks.iceberg.table import LEVELS, IcebergLake, catalog_of
from spark_jobs.sinks.lake.options import lake_settings
from spark_jobs.sinks.lake.rows import describe_difference, grow_columns, make_definition

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


def test_a_key_whose_columns_are_named_in_another_order_is_the_same(tmp_path: Path) -> None:
    columns = (Column("a", spark_types.LongType()), Column("b", spark_types.LongType()))
    settings = lake_settings(CONFIG.parse({f"{PREFIX}key.columns": "b,a", NAMESPACE: "shop"}), PREFIX)
    asked = make_definition(settings, TableSchema("shop.t", columns))
    lake = IcebergLake(
        catalog_of({"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"})
    )
    lake.create(f"shop{LEVELS}t", asked)
    present = lake.find(f"shop{LEVELS}t")
    assert present is not None
    assert describe_difference(present.definition, asked) == ""


def test_a_column_whose_name_changes_only_its_case_is_refused() -> None:
    """Iceberg would take it as one more column, and Spark could not read the table; Delta would end the job."""
    settings = lake_settings(CONFIG.parse({NAMESPACE: "shop", f"{PREFIX}mode": "insert"}), PREFIX)
    present, asked = (
        make_definition(settings, TableSchema("shop.t", (Column(name, spark_types.StringType()),)))
        for name in ("Name", "name")
    )
    with pytest.raises(SchemaRefused, match="columns Name and name differ only in upper and lower case"):
        grow_columns("file:///t", "shop.t", present, asked)
