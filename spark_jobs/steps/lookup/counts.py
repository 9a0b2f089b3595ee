"""The numbers of a lookup's tasks, added up on the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = 5


class _Sums(AccumulatorParam[list[float]]):
    """Lists of numbers, added place by place."""

    def zero(self, value: list[float]) -> list[float]:
        return [0.0] * len(value)

    def addInPlace(self, value1: list[float], value2: list[float]) -> list[float]:  # noqa: N802 - Spark's name
        return [left + right for left, right in zip(value1, value2, strict=True)]


def make_accumulator(spark: SparkSession) -> Any:
    """An accumulator of ``LookupCounts``; its value is a list of numbers in their order."""
    return spark.sparkContext.accumulator([0.0] * _NUMBERS, _Sums())
