"""Keys of maps in JSON: as values are written, and not as Spark's memory has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from spark_jobs.json_options import WHOLE
from spark_jobs.spark.map_keys import with_text_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("map(X'ff00', 'a', X'61', null)", {"/wA=": "a", "YQ==": None}),
        ("map(date'2026-01-02', 1, date'1500-01-02', 2)", {"2026-01-02": 1, "1500-01-02": 2}),
        ("map(timestamp'2026-01-02 03:04:05.000006 UTC', 1)", {"2026-01-02T03:04:05.000006Z": 1}),
        ("map(timestamp_ntz'2026-01-02 03:04:05.000006', 1)", {"2026-01-02T03:04:05.000006": 1}),
        ("map(named_struct('a', 1, 'b', X'ff'), 'v')", {'{"a":1,"b":"/w=="}': "v"}),
        ("map(array(1, null), 'v')", {"[1,null]": "v"}),
        ("map(1.50, 'a', 2.25, 'b')", {"1.50": "a", "2.25": "b"}),
        (
            "named_struct('x', array(map(X'ff', map(date'2026-01-02', null)), null), 'y.z', 1)",
            {"x": [{"/w==": {"2026-01-02": None}}, None], "y.z": 1},
        ),
        ("cast(null as struct<m: map<binary, int>>)", None),
        ("cast(null as map<binary, int>)", None),
    ],
)
def test_keys_are_written_as_values_are(spark: SparkSession, expression: str, expected: Any) -> None:
    frame = spark.sql(f"SELECT {expression} AS c")
    written = frame.select(f.to_json(with_text_keys(f.col("c"), frame.schema["c"].dataType), WHOLE)).collect()[0][0]
    assert (None if written is None else json.loads(written)) == expected
