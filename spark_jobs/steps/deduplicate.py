"""``type=deduplicate``: fewer changes of the same row within a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, one_of
from spark_jobs.contract import SYSTEM_COLUMNS, TableChanges
from spark_jobs.steps.contract import TABLES, Step, StepRun, StepTable
from spark_jobs.steps.planning.model import StepRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from spark_jobs.contract import TableSchema
    from spark_jobs.steps.planning.model import OutputTable

_LAST: Final = "last"
_RANK: Final = "millrace_rank_"
_IS_LAST: Final = "millrace_is_last_"
_BARE: Final = "millrace_bare_"


class DeduplicateStep(Step):
    """See docs/jobs/steps.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="keep",
                type=ConfigType.STRING,
                default=_LAST,
                validator=one_of(_LAST, "changes"),
                doc="`last`: of the changes of one key in a batch, the one with the largest order number, without images "
                "before updates. Before an insert the last other change stays, too, and a delete behind other changes holds "
                "only the key: later steps see what has to go. `changes`: every change once, if it was delivered "
                "repeatedly within the batch (same key, order number and operation).",
            ),
            TABLES,
        ]
    )

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        for table in tables:
            if self.selects(table) and not table.key:
                raise StepRefused(
                    f"step {self.name}: table {table.namespace} has no key, so no two changes are known to be of one row: "
                    f"name its key (source.key.columns), or the tables that have one in transform.step.{self.name}.tables"
                )
        return list(tables)

    def apply(self, tables: Sequence[StepTable], run: StepRun) -> list[StepTable]:
        """See ``Step.apply``."""
        del run
        self.plan([table.changes.schema for table in tables])
        return [self._deduplicate_table(table) if self.selects(table.changes.schema) else table for table in tables]

    def left_out(self) -> str:
        """See ``Step.left_out``."""
        if self.context.options["keep"] == _LAST:
            return "a later change of the same key is in the batch, or it is an image before an update (keep=last)"
        return "the same change is in the batch more than once (keep=changes)"

    def _deduplicate_table(self, table: StepTable) -> StepTable:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        from spark_jobs.spark.frames import number_columns

        schema = table.changes.schema
        frame = number_columns(table.changes.frame, len(schema.columns))
        key = [f"c{number}" for number, column in enumerate(schema.columns) if column.key]
        position = [f.col("kafka_offset_"), f.col("ums_uid_")]
        if self.context.options["keep"] == _LAST:
            frame = _keep_last(frame.where("ums_op_ <> 'b'"), schema, key, position)
        else:
            window = Window.partitionBy(*key, "ums_id_", "ums_op_").orderBy(*position)
            frame = frame.withColumn(_RANK, f.row_number().over(window)).where(f"{_RANK} = 1").drop(_RANK)
            # The image before an update has its order number and comes first.
            frame = frame.repartition(*key).sortWithinPartitions(*key, "ums_id_", f.expr("ums_op_ <> 'b'"), *position)
        names = [column.name for column in schema.columns]
        return replace(table, changes=TableChanges(schema, frame.toDF(*names, *SYSTEM_COLUMNS)))


def _keep_last(frame: DataFrame, schema: TableSchema, key: Sequence[str], position: Sequence[SparkColumn]) -> DataFrame:
    """The last change of each key. Lazy.

    A later step leaves out an insert that does not pass, and a delete of a row that did not. But the target may have a row
    from before the batch. So before an insert the last other change is kept, and a delete that is not the first change holds
    only the key.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    rows = Window.partitionBy(*key)
    newest = rows.orderBy(f.col("ums_id_").desc(), *(column.desc() for column in position))
    others = f.count_if(f.expr("ums_op_ <> 'i'")).over(newest)
    last = (f.row_number().over(newest) == 1) | (
        (f.first("ums_op_").over(newest) == "i") & (f.col("ums_op_") != "i") & (others == 1)
    )
    bare = (f.col("ums_op_") == "d") & (f.min("ums_id_").over(rows) < f.col("ums_id_"))
    kept = frame.withColumns({_IS_LAST: last, _BARE: bare}).where(_IS_LAST)
    images = {
        f"c{number}": f.when(~f.col(_BARE), f.col(f"c{number}"))
        for number, column in enumerate(schema.columns)
        if not column.key
    }
    return kept.withColumns(images).drop(_IS_LAST, _BARE).sortWithinPartitions(*key, "ums_id_", *position)
