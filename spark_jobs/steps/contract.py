"""The contract of every type of step: its options, a check, a plan from schemas, frames of changes from frames of changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.options import ConfigKey, ConfigType, Importance
from spark_jobs.steps.planning.model import Expression, OutputTable, StepRefused
from spark_jobs.steps.planning.names import is_match
from spark_jobs.steps.state.tables import StepState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from connectors.options import ConfigDef
    from spark_jobs.contract import TableChanges, TableSchema
    from spark_jobs.metrics import JobMetric

#: An option of most types: which tables the step transforms.
TABLES: Final = ConfigKey(
    name="tables",
    type=ConfigType.LIST,
    default=None,
    importance=Importance.HIGH,
    example="shop.orders, shop.lines_*",
    doc="The tables that the step transforms: namespaces, `database.table` or the table alone, with `*` and `?` as in file "
    "names. The other tables pass unchanged. Not set: all tables.",
)
#: An option of types that may change the key.
KEY: Final = ConfigKey(
    name="key",
    type=ConfigType.LIST,
    default=None,
    example="region,id",
    doc="The columns of the output that tell its rows apart. Not set: the columns that are the key of the input table, which "
    "must be in the output. Columns that are computed from columns outside of the input's key need `source.before.rows=true`.",
)


@dataclass(frozen=True, slots=True)
class StepContext:
    """The options of a step and its surroundings.

    Attributes:
        name: of the step.
        options: parsed values by the names in its ``config_def``.
        raw: all its properties as strings, without ``transform.step.<name>.``.
        before_rows: whether the source gives the row before an update (``source.before.rows``).
        job: the configuration of the job (``Config``), for those that need its Kafka clients.
    """

    name: str
    options: Mapping[str, Any]
    raw: Mapping[str, str]
    before_rows: bool = False
    job: Any = None


@dataclass(frozen=True, slots=True)
class StepTable:
    """A table between two steps.

    Attributes:
        changes: its schema and its changes in the batch.
        present: whether the batch may have changes of it; else the frame is empty and only the schema counts.
    """

    changes: TableChanges
    present: bool = True


@dataclass(frozen=True, slots=True)
class BadRows:
    """Rows for which an expression of a step fails.

    Attributes:
        step: the name of the step.
        table: the namespace of the input table.
        rows: of the input table, as the step got them.
        expressions: Spark SQL by what it is called in messages, over the columns of ``rows``.
    """

    step: str
    table: str
    rows: DataFrame
    expressions: Mapping[str, str]


@dataclass(slots=True)
class StepRun:
    """One pass of a batch through the steps.

    Attributes:
        spark: the session.
        guarded: whether rows for which an expression fails are left out and noted in ``bad``; else they fail the batch.
        bad: such rows, lazy.
        persisted: frames to unpersist when the batch is written.
        functions: names of the users' functions that SQL may call, in lower case.
        states: the states of the steps that keep one, by the step's name; none in a preview.
    """

    spark: SparkSession
    guarded: bool = False
    bad: list[BadRows] = field(default_factory=list)
    persisted: list[DataFrame] = field(default_factory=list)
    functions: frozenset[str] = frozenset()
    states: Mapping[str, StepState] = field(default_factory=dict)

    def state(self, step: str) -> StepState:
        """The state of a step as of the end of the batch before; in a preview an empty one that keeps nothing."""
        state = self.states.get(step)
        if state is None:
            state = StepState("", step)
            state.begin(self.spark, -1)
        return state


class Step(ABC):
    """A type of step. One instance per step and run of a job, on the driver."""

    #: Its options, without the prefix ``transform.step.<name>.``.
    config_def: ClassVar[ConfigDef]
    #: Prefixes of properties that are accepted without a declaration each, without the prefix of the step.
    pass_through: ClassVar[tuple[str, ...]] = ()
    #: What ``measure`` gives, for the reference (names without ``millrace_job_``).
    metrics: ClassVar[tuple[JobMetric, ...]] = ()
    #: Sets of pinned jars that it needs, without Kafka's (``delta``); given to ``session.build_session``.
    extra_jars: ClassVar[tuple[str, ...]] = ()
    #: Whether it keeps a state from batch to batch (``StepRun.state``): then ``apply`` gets every batch in order, and gives to
    #: the state what the end of the batch shall add; that is written once the sink has written the batch.
    stateful: ClassVar[bool] = False

    def __init__(self, context: StepContext) -> None:
        self.context = context
        self.name = context.name

    @property
    def combines(self) -> bool:
        """Whether rows of several tables make one table."""
        return False

    def check(self) -> list[str]:
        """Complaints about the options, each as ``<option>: <text>``. Pure; needs no schema and no Spark."""
        return []

    def selects(self, table: TableSchema) -> bool:
        """Whether the step transforms a table (option ``tables``)."""
        return is_match(self.context.options.get("tables") or (), table.namespace)

    def state(self) -> str:
        """The state that the step keeps from batch to batch, for the plan; empty: nothing. Pure."""
        return ""

    def definition(self) -> dict[str, Any]:
        """The type and the options (JSON) that the state depends on: with other ones the state can't be used. Pure."""
        return {"type": self.context.raw.get("type", "")}

    def remarks(self) -> list[str]:
        """Options that are allowed, but may not be what was meant, for the plan (a lookup without a cache ...). Pure."""
        return []

    def computed(self, table: TableSchema) -> Mapping[str, Expression]:
        """The columns of a table after the step that it computes outside of SQL, for the lineage: by name, without ``sql``.

        The table may have further columns of the same name as before, which the step passes on.
        """
        del table
        return {}

    def masked(self, table: TableSchema) -> frozenset[str]:
        """The columns of a table that the step masks: previews hide them also before the step. Pure."""
        del table
        return frozenset()

    def left_out(self) -> str:
        """Why a row is left out for which no condition is to blame, for previews. Pure."""
        return f"the step {self.name} leaves it out"

    def unmatched(self, tables: Sequence[TableSchema]) -> list[str]:
        """The names of tables in the options that none of ``tables`` has. Pure."""
        names = self.context.options.get("tables") or ()
        return [name for name in names if not any(is_match([name], table.namespace) for table in tables)]

    def reads(self) -> list[str]:
        """The names of tables in the options. Pure."""
        return self.unmatched(())

    def makes(self) -> list[str]:
        """The names of the tables that the step makes, as far as its options say them. Pure."""
        return []

    @abstractmethod
    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """The tables after the step: outputs, and schemas of tables that need no expressions. Pure.

        Raises:
            StepRefused: a table can't go through the step; names step, column and fix.
        """

    def apply(self, tables: Sequence[StepTable], run: StepRun) -> list[StepTable]:
        """The tables after the step; lazy.

        Raises:
            StepRefused: as ``plan``, or Spark can't analyse an expression.
        """
        from spark_jobs.steps.derive import derive_table

        schemas = {table.changes.schema.namespace: table for table in tables}
        result = []
        for output in self.plan([table.changes.schema for table in tables]):
            if isinstance(output, OutputTable):
                result.append(derive_table(self.name, output, schemas, run, pairs=self.context.before_rows))
            else:
                result.append(schemas[output.namespace])
        return result

    def measure(self) -> dict[str, float]:
        """The step's metrics in this run of the job: name without ``millrace_job_`` -> value."""
        return {}

    def measure_state(self) -> dict[str, float]:
        """The numbers of the step's state: a name in ``metrics.STEP_METRICS`` without ``step_`` -> value."""
        return {}

    def close(self) -> None:
        """Called once at the end of a run, also after a failure."""

    def refused(self, option: str, text: str) -> StepRefused:
        """The error for an option."""
        return StepRefused(f"step {self.name}: {option}: {text}")
