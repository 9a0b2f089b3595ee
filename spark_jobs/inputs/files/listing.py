"""Spark's file stream source as what starts batches: it lists files, remembers them in the checkpoint, and reads none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

#: What Spark's source of whole files gives; the content is not read unless it is selected.
_SCHEMA: Final = "path string, modificationTime timestamp, length long, content binary"
#: The type of the column ``headers`` of records.
HEADERS: Final = "array<struct<key:string,value:binary>>"


def list_files(spark: SparkSession, path: str, options: Mapping[str, str]) -> DataFrame:
    """A stream of the paths of files that appear at ``path``.

    Args:
        spark: the session.
        path: a folder, a file or a pattern.
        options: of Spark's file stream source.
    """
    reader = spark.readStream.format("binaryFile").schema(_SCHEMA).options(**options)
    # Without this Spark leaves out files that are a week older than the newest one.
    return reader.option("maxFileAge", "36500d").load(path).select("path")
