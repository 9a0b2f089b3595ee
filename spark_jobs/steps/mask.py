"""``type=mask``: masked columns, by the rules of jobs (docs/masking.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from connectors.errors import ConfigInvalid, Fatal
from connectors.formats.masks import masking
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance
from spark_jobs.steps.contract import Step, StepRun, StepTable
from spark_jobs.steps.planning.model import StepRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import TableSchema
    from spark_jobs.steps.planning.model import OutputTable

_PREFIX = "mask."


class MaskStep(Step):
    """See docs/jobs/steps.md."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="rules",
                type=ConfigType.LIST,
                importance=Importance.HIGH,
                example="card",
                doc="Names of masking rules. The options of a rule are those of `mask.rules`, with the prefix of the step: "
                "`transform.step.<step>.<rule>.columns`, `transform.step.<step>.<rule>.type` ...",
            )
        ]
    )
    pass_through: ClassVar[tuple[str, ...]] = ("",)

    def check(self) -> list[str]:
        """See ``Step.check``."""
        return [
            f"{problem.name.removeprefix(_PREFIX)}: {problem.message}"
            for problem in masking.find_problems(self._mask_options(), debezium=False)
        ]

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        from spark_jobs.rows.masked_frames import masked_columns  # imports types of Spark

        try:
            masks = masking.parse_rules(self._mask_options(), debezium=False)
            return [replace(table, columns=masked_columns(table, masks)) for table in tables]
        except (ConfigInvalid, Fatal) as error:
            raise StepRefused(f"step {self.name}: {error}") from error

    def apply(self, tables: Sequence[StepTable], run: StepRun) -> list[StepTable]:
        """See ``Step.apply``."""
        from spark_jobs.rows.masked_frames import mask_changes

        del run
        masks = masking.parse_rules(self._mask_options(), debezium=False)
        masked = mask_changes([table.changes for table in tables], masks)
        return [replace(table, changes=changes) for table, changes in zip(tables, masked, strict=True)]

    def masked(self, table: TableSchema) -> frozenset[str]:
        """See ``Step.masked``."""
        from spark_jobs.rows.masked_frames import masks_of

        return frozenset(masks_of(table, masking.parse_rules(self._mask_options(), debezium=False)))

    def _mask_options(self) -> dict[str, str]:
        return {f"{_PREFIX}{name}": value for name, value in self.context.raw.items() if name != "type"}
