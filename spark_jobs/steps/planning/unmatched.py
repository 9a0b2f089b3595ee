"""Names of tables in steps that match no table: what a mistyped name looks like. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs.steps.planning.model import OutputTable
from spark_jobs.steps.planning.names import unmatched_sentences
from spark_jobs.steps.planning.plans import planned_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.contract import TableSchema
    from spark_jobs.steps.contract import Step


def unmatched_names(steps: Sequence[Step], tables: Sequence[TableSchema]) -> list[str]:
    """A sentence per name in a step that no table has which reaches the step.

    Args:
        steps: of the job, in order.
        tables: that the source has seen. Without one nothing can be said.

    Returns:
        The sentences. After a step that refuses a table, no further step is looked at.
    """
    schemas = list(tables)
    sentences: list[str] = []
    for step in steps:
        sentences += unmatched_sentences(step.name, step.unmatched(schemas), schemas)
        try:
            planned = step.plan(schemas)
        except (ConfigInvalid, Fatal):
            break
        schemas = [planned_schema(item) if isinstance(item, OutputTable) else item for item in planned]
    return sentences
