"""``type=lookup``: columns from a database, Redis, HTTP or a compacted topic, by one or more keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from spark_jobs.contract import SYSTEM_COLUMNS, Column
from spark_jobs.metrics import JobMetric
from spark_jobs.steps.contract import Step
from spark_jobs.steps.lookup.model import DROP, RETRY, parse_columns, parse_on
from spark_jobs.steps.lookup.options import CONFIG_DEF, HEADER, find_problems, spec_of, system_of
from spark_jobs.steps.planning.model import Expression, StepRefused
from spark_jobs.steps.planning.names import find_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.options import ConfigDef
    from spark_jobs.contract import TableSchema
    from spark_jobs.steps.contract import StepContext, StepRun, StepTable
    from spark_jobs.steps.planning.model import OutputTable


class LookupStep(Step):
    """See docs/jobs/lookups.md."""

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    pass_through: ClassVar[tuple[str, ...]] = (HEADER,)
    metrics: ClassVar[tuple[JobMetric, ...]] = (
        JobMetric(
            "lookup_hits_total", "counter", "keys", "Keys of batches that the cache, or the table of a topic, answered."
        ),
        JobMetric("lookup_misses_total", "counter", "keys", "Keys that were asked for and not found."),
        JobMetric("lookup_requests_total", "counter", "", "Requests to the systems in which rows are looked up."),
        JobMetric("lookup_errors_total", "counter", "", "Requests that failed for a passing reason."),
        JobMetric(
            "lookup_seconds_total", "counter", "s", "How long tasks waited for the systems in which rows are looked up."
        ),
    )

    def __init__(self, context: StepContext) -> None:
        super().__init__(context)
        self._counts: Any = None
        self._consumer: Any = None
        #: A Python worker may outlive this run, and the topic be another one then.
        self._topic_id = ""

    def check(self) -> list[str]:
        """See ``Step.check``."""
        return find_problems(self.context.options)

    def remarks(self) -> list[str]:
        """See ``Step.remarks``."""
        if self.context.options["topic"]:
            return []
        for option in ("cache.rows", "cache.age.ms"):
            if not self.context.options[option]:
                where = self._system_and_table()
                cache_note = f"{option}=0: there is no cache, so every batch asks {where} for all of its keys. "
                return [f"{cache_note}Set {option} if changes there may be seen later"]
        return []

    def state(self) -> str:
        """See ``Step.state``."""
        options = self.context.options
        if options["topic"]:
            return f"the rows of the topic {options['topic']}, in the memory of Python workers, which read it again at a start"
        if not options["cache.rows"] or not options["cache.age.ms"]:
            return ""
        return f"a cache of at most {options['cache.rows']} keys, in the memory of each Python worker"

    def computed(self, table: TableSchema) -> Mapping[str, Expression]:
        """See ``Step.computed``: looked-up columns are made of the columns that are the key of the lookup."""
        if not self.selects(table):
            return {}
        pairs = parse_on(self.context.options["on"])
        key = tuple(table.columns[position].name for position in self._key_positions(table))
        where = " and ".join(f"{there} = {name}" for name, (_, there) in zip(key, pairs, strict=True))
        return {
            column.name: Expression("", key, text=f"{column.field} from {self._system_and_table()} where {where}")
            for column in parse_columns(self.context.options["columns"])
        }

    def left_out(self) -> str:
        """See ``Step.left_out``."""
        options = self.context.options
        miss = options["miss.retry.then"] if options["miss"] == RETRY else options["miss"]
        return (
            f"its key is not in {self._system_and_table()} (miss={options['miss']})"
            if miss == DROP
            else super().left_out()
        )

    def _system_and_table(self) -> str:
        """The system and its table or topic, for messages."""
        options = self.context.options
        return f"{system_of(options)} {options['topic'] or options['table'] or ''}".strip()

    def plan(self, tables: Sequence[TableSchema]) -> list[OutputTable | TableSchema]:
        """See ``Step.plan``."""
        return [self._plan_table(table) if self.selects(table) else table for table in tables]

    def apply(self, tables: Sequence[StepTable], run: StepRun) -> list[StepTable]:
        """See ``Step.apply``. Blocks for a topic: asks Kafka for its ends."""
        return [self._apply_lookup(table, run) if self.selects(table.changes.schema) else table for table in tables]

    def measure(self) -> dict[str, float]:
        """See ``Step.measure``."""
        if self._counts is None:
            return {}
        return {metric.name: value for metric, value in zip(self.metrics, self._counts.value, strict=True)}

    def close(self) -> None:
        """See ``Step.close``."""
        if self._consumer is not None:
            self._consumer.close()

    def _plan_table(self, table: TableSchema) -> TableSchema:
        from spark_jobs.steps.lookup.values import spark_type

        names = {column.name.lower() for column in table.columns} | set(SYSTEM_COLUMNS)
        added = []
        for column in parse_columns(self.context.options["columns"]):
            if column.name.lower() in names:
                raise StepRefused(
                    f"step {self.name}: table {table.namespace} has a column {column.name} already: name the looked-up one by "
                    "AS <name> in columns"
                )
            added.append(Column(column.name, spark_type(column.kind), volatile=True))
        self._key_positions(table)
        return replace(table, columns=(*table.columns, *added))

    def _key_positions(self, table: TableSchema) -> tuple[int, ...]:
        """The positions of the columns that hold the lookup's key."""
        from pyspark.sql import types as t

        positions = []
        for name, _ in parse_on(self.context.options["on"]):
            position = find_column(self.name, name, table)
            kind = table.columns[position].type
            if isinstance(kind, t.ArrayType | t.MapType | t.StructType):
                raise StepRefused(
                    f"step {self.name}: column {name} of table {table.namespace} is a {kind.simpleString()}, which is no key: "
                    "take a field of it in a step of type select"
                )
            if system_of(self.context.options) == "topic" and not isinstance(
                kind, t.StringType | t.IntegralType | t.BooleanType
            ):
                raise StepRefused(
                    f"step {self.name}: column {name} of table {table.namespace} is a {kind.simpleString()}: keys of topics "
                    "are strings, whole numbers or booleans; cast it in a step of type select"
                )
            positions.append(position)
        return tuple(positions)

    def _apply_lookup(self, table: StepTable, run: StepRun) -> StepTable:
        from spark_jobs.steps.failures import map_rows
        from spark_jobs.steps.lookup.counts import make_accumulator
        from spark_jobs.steps.lookup.task import LookupTask

        schema = table.changes.schema
        planned = self._plan_table(schema)
        count = len(schema.columns)
        if self._counts is None:
            self._counts = make_accumulator(run.spark)
        client, ends = self._topic_state()
        spec = spec_of(self.name, self.context.options, self.context.raw, client)
        task = LookupTask(
            replace(spec, topic_id=self._topic_id),
            schema.namespace,
            self._key_positions(schema),
            count,
            len(schema.key),
            run.guarded,
            ends,
            self._counts,
        )
        return map_rows(self.name, table, planned, task, run)

    def _topic_state(self) -> tuple[dict[str, Any], dict[int, int]]:
        """The configuration of the tasks' consumers, and what they have to read of the topic: everything that is there now."""
        topic = self.context.options["topic"]
        if not topic:
            return {}, {}
        from confluent_kafka import Consumer
        from confluent_kafka.admin import AdminClient

        from spark_jobs.kafka import clients
        from spark_jobs.steps.lookup.topic import topic_ends, topic_id

        client = clients.build_client_config(
            self.context.job,
            group_id="unused",
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        timeout_s = self.context.options["timeout.ms"] / 1000
        if self._consumer is None:
            self._consumer = Consumer(client)
        ends = topic_ends(self._consumer, topic, timeout_s)
        if not self._topic_id:
            self._topic_id = topic_id(AdminClient(clients.build_client_config(self.context.job)), topic, timeout_s)
        return client, ends
