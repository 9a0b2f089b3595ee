"""The plan of a step: which output tables it produces from which input tables. Pure, no Spark session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from spark_jobs.contract import TableSchema


class StepRefused(ConfigInvalid):
    """A step can't do what its options say; the message names the step, the construct or column, and the fix."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A Spark SQL expression over the numbered columns of one input table (``c0``, ``c1`` ...) and its system columns.

    Attributes:
        sql: the expression.
        columns: names of the table's own columns that it reads, in order of appearance.
        system: whether it reads a system column (``ums_ts_`` ...).
        direct: the name of the column, where the expression is one column and nothing else.
        unstable: the first function in it whose result differs from call to call; empty for none.
        text: the expression as the user would write it, for messages and the plan.
    """

    sql: str
    columns: tuple[str, ...] = ()
    system: bool = False
    direct: str = ""
    unstable: str = ""
    text: str = ""

    def reads_only(self, names: frozenset[str]) -> bool:
        """Whether it reads these columns of the table at most, and no system column."""
        return not self.system and names.issuperset(self.columns)


@dataclass(frozen=True, slots=True)
class Branch:
    """The rows of an output table that come from one input table.

    Attributes:
        source: the input table as it is before the step.
        columns: an expression per output column.
        conditions: all must hold for a row to pass.
    """

    source: TableSchema
    columns: tuple[Expression, ...]
    conditions: tuple[Expression, ...] = ()

    @property
    def key_conditions(self) -> tuple[Expression, ...]:
        """Conditions that read only the key: they hold for every image of a row, or for none."""
        names = self._key_names()
        return tuple(part for part in self.conditions if names and part.reads_only(names))

    @property
    def row_conditions(self) -> tuple[Expression, ...]:
        """The other conditions: an update may change whether they hold."""
        names = self._key_names()
        return tuple(part for part in self.conditions if not names or not part.reads_only(names))

    def is_volatile(self, part: Expression) -> bool:
        """Whether an expression reads a volatile column (``contract.Column``)."""
        return any(column.volatile and column.name in part.columns for column in self.source.columns)

    def _key_names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.source.key)


@dataclass(frozen=True, slots=True)
class OutputTable:
    """One output table of a step.

    Attributes:
        namespace: its name.
        names: of its columns, key columns first.
        key: how many of them are the key.
        branches: where its rows come from; one per input table.
        movable: whether a row may change its key, so that updates need the image before (``source.before.rows``).
    """

    namespace: str
    names: tuple[str, ...]
    key: int
    branches: tuple[Branch, ...]
    movable: bool = False
