"""Expressions mean the same to Spark after sqlglot has read and written them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f
from pyspark.sql import types as t

from spark_jobs.contract import Column, TableSchema
from spark_jobs.steps.contract import StepContext
from spark_jobs.steps.planning.model import OutputTable
from spark_jobs.steps.planning.unknown_functions import spark_functions
from spark_jobs.steps.projection import SelectStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "id bigint, i int, s string, d date, ts timestamp, n decimal(12,3), x double, b boolean, tags array<string>, "
    "m map<string,int>, p struct<city:string,no:int>, bytes binary"
)
EXPRESSIONS = (
    "i + 1 * 2 - -i",
    "(i + 1) * 2",
    "i / 3",
    "i div 3",
    "i % 3",
    "i & 3 | 4 ^ 5",
    "s || 'x'",
    "'it''s'",
    r"'a\'b\n\\d'",
    '"double"',
    r"r'\d+'",
    r"s RLIKE '^\\d+$'",
    "s LIKE 'a!_%' ESCAPE '!'",
    "s ILIKE 'A%'",
    "NOT b AND i IS NULL OR s IS NOT NULL",
    "i <=> 3",
    "i != 3",
    "i == 3",
    "i BETWEEN 1 AND 3",
    "i NOT IN (1, 2)",
    "b IS TRUE",
    "CASE WHEN i > 1 THEN 'a' WHEN b THEN 'b' ELSE s END",
    "CASE i WHEN 1 THEN 'a' END",
    "if(b, 1, 2)",
    "nvl(s, 'none')",
    "nvl2(s, 1, 2)",
    "coalesce(s, 'none')",
    "ifnull(s, 'none')",
    "CAST(s AS decimal(10,2))",
    "TRY_CAST(s AS int)",
    "s::date",
    "int(s)",
    "string(d)",
    "date '2026-01-02'",
    "timestamp '2026-01-02 03:04:05'",
    "d + interval 3 days",
    "ts - interval '1' hour",
    "ts + interval '1 2:03:04' day to second",
    "date_add(d, 3)",
    "dateadd(DAY, 3, d)",
    "datediff(d, date '2026-01-01')",
    "timestampadd(minute, i, ts)",
    "timestampdiff(HOUR, ts, timestamp '2026-01-02 03:04:05')",
    "date_format(ts, 'yyyy-MM-dd')",
    "to_date(s, 'yyyy-MM-dd')",
    "to_timestamp(s)",
    "date_trunc('month', ts)",
    "trunc(d, 'MM')",
    "year(d)",
    "extract(year FROM d)",
    "unix_timestamp(ts)",
    "from_unixtime(i)",
    "add_months(d, 1)",
    "last_day(d)",
    "substring(s, 2, 3)",
    "substring(s FROM 2 FOR 3)",
    "substr(s, 2)",
    "left(s, 2)",
    "position('a' IN s)",
    "locate('a', s)",
    "instr(s, 'a')",
    "trim(s)",
    "trim(BOTH 'x' FROM s)",
    "ltrim(s)",
    "lpad(s, 5, '0')",
    "upper(s)",
    "initcap(s)",
    "length(s)",
    "char(65)",
    "split(s, ',')[0]",
    "split_part(s, ',', 1)",
    "regexp_replace(s, 'a', 'b')",
    "regexp_extract(s, '(a)', 1)",
    "concat(s, i)",
    "concat_ws('-', s, i)",
    "md5(s)",
    "sha2(s, 256)",
    "hash(s, i)",
    "base64(bytes)",
    "hex(bytes)",
    "X'1F'",
    "get_json_object(s, '$.a')",
    "from_json(s, 'a int').a",
    "to_json(p)",
    "p.city",
    "p.no + 1",
    "m['k']",
    "tags[0]",
    "element_at(tags, 1)",
    "size(tags)",
    "array_contains(tags, 'a')",
    "array_join(tags, ',')",
    "transform(tags, t -> upper(t))",
    "filter(tags, t -> t <> s)",
    "exists(tags, t -> t = 'a')",
    "aggregate(tags, 0, (acc, t) -> acc + length(t))",
    "array(1, 2)",
    "map('a', 1)",
    "struct(i, s, p.city)",
    "to_json(struct(i, upper(s) AS u))",
    "named_struct('a', i)",
    "round(n, 1)",
    "ceil(x)",
    "floor(x)",
    "abs(i)",
    "pow(x, 2)",
    "log(2, x)",
    "ln(x)",
    "greatest(i, 3)",
    "mod(i, 3)",
    "1.5",
    "1.5BD",
    "10L",
    "1e3",
    "1.5D",
    "2S",
    "true",
    "CAST(NULL AS string)",
    "try_divide(i, 0)",
    "try_add(i, 1)",
    "overlay(s PLACING 'x' FROM 1)",
    "translate(s, 'a', 'b')",
    "s COLLATE UTF8_LCASE = 'a'",
    "startswith(s, 'a')",
    "bit_count(i)",
    "shiftleft(i, 2)",
    "make_date(2026, 1, 2)",
    "current_timezone()",
)


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> TableSchema:
    fields = spark.createDataFrame([], COLUMNS).schema.fields
    return TableSchema("shop.t", tuple(Column(field.name, field.dataType, key=field.name == "id") for field in fields))


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_stays_what_it_is(spark: SparkSession, table: TableSchema, text: str) -> None:
    options = {"columns": f"id, {text} AS result", "tables": None, "key": None}
    (output,) = SelectStep(StepContext("s", options, {})).plan([table])
    assert isinstance(output, OutputTable)
    fields = [t.StructField(f"c{number}", column.type) for number, column in enumerate(table.columns)]
    empty = spark.sparkContext.emptyRDD()
    numbered = spark.createDataFrame(empty, t.StructType(fields))
    named = numbered.toDF(*(column.name for column in table.columns))
    written = numbered.select(f.expr(output.branches[0].columns[1].sql).alias("result"))
    read = named.select(f.expr(text).alias("result"))
    # Optimized, so that literals are the same whichever way they are written.
    plans = [result._jdf.queryExecution().optimizedPlan() for result in (written, read)]
    assert plans[0].sameResult(plans[1]), output.branches[0].columns[1].sql
    assert written.schema["result"].dataType == read.schema["result"].dataType


def test_every_function_of_spark_is_known(spark: SparkSession) -> None:
    """Else the plan would warn of it."""
    names = {row[0].lower() for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    keywords = {"and", "or", "case"}
    of_tables = {
        "range",
        "collations",
        "sql_keywords",
        "python_worker_logs",
        "variant_explode",
        "variant_explode_outer",
    }
    assert {name for name in names if name.isidentifier()} - spark_functions() <= keywords | of_tables
