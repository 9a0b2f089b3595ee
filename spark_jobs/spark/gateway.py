"""The one place that reaches into PySpark: the objects of Spark's JVM behind its own, which its public interface lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


def jvm_of(spark: SparkSession) -> Any:
    """The JVM's packages, such as ``jvm_of(spark).org.apache.hadoop.fs.Path``."""
    return spark._jvm


def gateway_of(spark: SparkSession) -> Any:
    """The connection to the JVM: it knows its process, port and secret."""
    return spark.sparkContext._gateway


def is_gateway_open() -> bool:
    """Whether this process has a JVM already."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def java_session(spark: SparkSession) -> Any:
    """The session in the JVM."""
    session: Any = spark
    return session._jsparkSession


def java_context(context: SparkContext) -> Any:
    """The context in the JVM."""
    return context._jsc.sc()


def hadoop_configuration(spark: SparkSession) -> Any:
    """The settings of Hadoop's file systems."""
    return spark.sparkContext._jsc.hadoopConfiguration()


def java_frame(frame: DataFrame) -> Any:
    """The frame in the JVM."""
    classic: Any = frame
    return classic._jdf


def java_column(column: Column) -> Any:
    """The column in the JVM."""
    classic: Any = column
    return classic._jc


def java_columns(frame: DataFrame, *columns: str | Column) -> Any:
    """The columns in the JVM, as ``select`` takes them."""
    classic: Any = frame
    return classic._jcols(*columns)


def count_partitions(frame: DataFrame) -> int:
    """How many partitions the frame has. Plans it, but runs nothing."""
    return int(java_frame(frame).queryExecution().toRdd().getNumPartitions())


def parse_type(type_text: str) -> DataType:
    """A type or schema as DDL says it."""
    from pyspark.sql import types

    return types._parse_datatype_string(type_text)
