"""A preview in the driver: the newest records, or given rows, through decoding, masks and every step of a flow.

Uses a session of its own. It reads the tables that the flow has seen from its checkpoint, and writes nothing: bad records are
collected, the sink is never made, offsets of records are chosen here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from connectors.errors import ConfigInvalid, Fatal, MillraceError
from spark_jobs.config.keys import KAFKA, SOURCE_TYPE, TABLES
from spark_jobs.contract import KAFKA_COLUMNS, SYSTEM_COLUMNS, Batch, JobContext, TableChanges
from spark_jobs.flows.planning import columns_of, find_unmatched
from spark_jobs.preview.caller_rows import by_table, check_columns, infer_schema, to_changes
from spark_jobs.preview.letters import CollectedLetters
from spark_jobs.preview.limits import Cancelled
from spark_jobs.preview.records import read_newest, to_frame
from spark_jobs.preview.trace import Line, compare_rows, hide_values, json_value, reason_of
from spark_jobs.rows.masked_frames import mask_changes
from spark_jobs.rows.masks import rules_of
from spark_jobs.sources.table_filter import is_selected
from spark_jobs.sources.tables import SchemaFiles, from_json
from spark_jobs.spark.causes import cause_of, describe_error
from spark_jobs.spark.frames import number_columns
from spark_jobs.steps.contract import StepRun, StepTable
from spark_jobs.steps.derive import try_expression
from spark_jobs.steps.failures import REASON
from spark_jobs.steps.flow import HIDDEN_REASON, empty_changes, reason_for
from spark_jobs.steps.mask import MaskStep
from spark_jobs.steps.options import build_functions, build_steps
from spark_jobs.steps.planning.lineage import LineageStage, hidden_columns
from spark_jobs.steps.planning.model import OutputTable
from spark_jobs.steps.planning.names import check_names
from spark_jobs.steps.python.functions import register_functions, with_functions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from spark_jobs.contract import Source, TableSchema
    from spark_jobs.job import Job
    from spark_jobs.preview.limits import Limit
    from spark_jobs.preview.records import PreviewRecord
    from spark_jobs.preview.request import CallerRow, FlowPreviewRequest
    from spark_jobs.steps.contract import BadRows, Step

#: Rows of a table after a step, at most: a step may make several of one.
_MOST_ROWS: Final = 10_000
#: Rows of which the failing expression is looked for, of each step and table; the others get no reason of their own.
_MOST_REASONS: Final = 5
#: Bytes of values in an answer, about.
_MOST_ANSWER: Final = 2 << 20
#: The part of the time that reading Kafka may take.
_READING: Final = 0.5
_EXPRESSION: Final = "an expression of the step fails for the row"
#: Of the session.
_SETTINGS: Final = {
    # Some rows only: one partition is enough, and to compile code for them takes longer than to compute them.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    # Spark takes what two expressions share out of both, and out of the guard around each: a failing row would end the step.
    "spark.sql.subexpressionElimination.enabled": "false",
}
_FAILURES: Final = (MillraceError, PySparkException, Py4JError)


@dataclass(slots=True)
class _PreviewTable:
    """A table at one point of the flow, with its rows on the driver."""

    step_table: StepTable
    lines: tuple[Line, ...]

    @property
    def schema(self) -> TableSchema:
        return self.step_table.changes.schema


@dataclass(slots=True)
class _Passed:
    """A step that was computed."""

    stage: LineageStage
    before: list[_PreviewTable]
    after: list[_PreviewTable]
    dropped: list[tuple[_PreviewTable, Line, str]] = field(default_factory=list)
    changed: list[tuple[_PreviewTable, Line, str]] = field(default_factory=list)
    #: Table, row, reason.
    errors: list[tuple[str, Line, str]] = field(default_factory=list)


def run_preview(job: Job, request: FlowPreviewRequest, spark: SparkSession, limit: Limit) -> dict[str, Any]:
    """Rows through the steps of a job, as ``FlowPreview`` of the REST API without what the application adds. Blocks.

    Args:
        job: the flow.
        request: what to send through it.
        spark: a session that only this preview uses.
        limit: ends the preview.

    Raises:
        ConfigInvalid: a given row does not fit.
    """
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    return _Preview(job, request, spark, limit).run()


class _Preview:
    """One preview."""

    def __init__(self, job: Job, request: FlowPreviewRequest, spark: SparkSession, limit: Limit) -> None:
        self._job = job
        self._request = request
        self._spark = spark
        self._limit = limit
        self._steps = build_steps(job.config)
        #: Names of users' functions, in lower case.
        self._functions: frozenset[str] = frozenset()
        self._masks = rules_of(job.config)
        #: Whether reasons that may quote values are kept back.
        self._secretive = bool(self._masks) or any(isinstance(step, MaskStep) for step in self._steps)
        self._letters = CollectedLetters(job.name, spark.sparkContext, masked=self._secretive)
        log = logging.LoggerAdapter(logging.getLogger(f"spark_jobs.preview.{job.name}"), {})
        self._context = JobContext(job.name, job.config, spark, log, dead_letters=self._letters)
        self._records: dict[str, PreviewRecord] = {}
        self._notes: list[str] = []
        self._answer_bytes = 0

    def run(self) -> dict[str, Any]:
        """All of it; see ``run_preview``."""
        answer: dict[str, Any] = {
            "name": self._job.flow_name,
            "source": "newest" if self._request.rows is None else "given",
            "records": 0,
        }
        inputs: list[_PreviewTable] = []
        absent: list[StepTable] = []
        passed: list[_Passed] = []
        error, failed = "", None
        source = self._job.source_class()(self._context)
        try:
            self._register_functions()
            inputs, absent = self._find_inputs(source, answer)
            before = inputs
            for step in self._steps:
                failed = step
                self._limit.check()
                passed.append(self._apply_step(step, before, absent))
                before, absent = passed[-1].after, []
                failed = None
        except Cancelled as cancelled:
            error = str(cancelled)
        except _FAILURES as trouble:
            if failed is None and isinstance(trouble, ConfigInvalid):
                raise
            error = self._limit.reason or self._explain_error(trouble)
        finally:
            source.close()
            for step in self._steps:
                step.close()
        if error and failed is None:
            answer["error"] = error
        return answer | self._build_answer(inputs, passed, failed, error)

    def _register_functions(self) -> None:
        functions = build_functions(self._job.config)
        register_functions(self._spark, functions)
        self._functions = frozenset(function.name.lower() for function in functions)

    # Rows.

    def _find_inputs(self, source: Source, answer: dict[str, Any]) -> tuple[list[_PreviewTable], list[StepTable]]:
        """The tables before the first step, and those that have no row, if a step needs them."""
        rows = self._request.rows
        if rows is None:
            changes = source.changes(self._read_records())
            answer["records"], known_tables = len(self._records), source.schemas()
        else:
            known_tables = self._known_tables(source, rows)
            changes = self._caller_rows(rows, known_tables)
            answer["records"] = len(rows)
        self._limit.check()
        tables = [self._collect_rows(StepTable(table)) for table in mask_changes(changes, self._masks)]
        tables.sort(key=lambda table: table.schema.namespace)
        present = {table.schema.namespace for table in tables}
        absent = []
        if any(step.combines for step in self._steps):
            schemas = [schema for schema in known_tables if schema.namespace not in present]
            empty = mask_changes(empty_changes(self._spark, schemas), self._masks)
            absent = [StepTable(table, present=False) for table in empty]
        return tables, absent

    def _read_records(self) -> Batch:
        """The newest records of the topics."""
        records, notes = read_newest(self._job.config, self._request.limit, self._limit.left_s() * _READING)
        self._notes += notes
        if not records:
            self._notes.append("the topics have no records: give rows in the request")
        self._records = {_format_position(record.topic, record.partition, record.offset): record for record in records}
        return self._make_batch(records)

    def _make_batch(self, records: Sequence[PreviewRecord]) -> Batch:
        ranges: dict[tuple[str, int], tuple[int, int]] = {}
        for record in records:
            first, _ = ranges.get((record.topic, record.partition), (record.offset, 0))
            ranges[record.topic, record.partition] = (first, record.offset + 1)
        return Batch(0, to_frame(self._spark, records), ranges, list)

    def _known_tables(self, source: Source, rows: Sequence[CallerRow]) -> list[TableSchema]:
        """The tables that the flow has seen; of topics also those of the newest records, if ``rows`` have others."""
        if self._job.config[SOURCE_TYPE] != KAFKA:
            tables_json = SchemaFiles(self._spark, self._job.checkpoint).load()
            return [] if tables_json is None else list(from_json(tables_json)[0].values())
        source.changes(self._make_batch([]))  # loads the tables seen so far
        tables = source.schemas()
        if {schema.namespace for schema in tables}.issuperset(by_table(rows, tables)):
            return tables
        self._learn_tables(source)
        return source.schemas()

    def _caller_rows(self, rows: Sequence[CallerRow], known_tables: Sequence[TableSchema]) -> list[TableChanges]:
        """The rows of the request as changes of the tables that are known, or of new ones."""
        schemas = {schema.namespace: schema for schema in known_tables}
        chosen = self._job.config[TABLES] or ()
        result = []
        for namespace, numbered in by_table(rows, known_tables).items():
            if not is_selected(chosen, namespace):
                raise ConfigInvalid(
                    f"row {numbered[0][0]}: the flow does not read table {namespace}: {TABLES} is {', '.join(chosen)}"
                )
            schema = schemas.get(namespace)
            if schema is None:
                schema = infer_schema(self._spark, namespace, [row for _, row in numbered], self._job.config)
                self._notes.append(
                    f"table {namespace} has not been seen: its types are those of the given values, its key is "
                    f"({', '.join(column.name for column in schema.key)}), by source.key.columns"
                )
            check_columns(schema, numbered)
            changes = to_changes(self._spark, schema, numbered)
            try:
                changes.frame.collect()
            except (PySparkException, Py4JJavaError) as error:
                raise self._find_misfit(schema, numbered) from error
            result.append(changes)
        return result

    def _learn_tables(self, source: Source) -> None:
        """Let the source find tables in the newest records."""
        try:
            source.changes(self._read_records())
        except _FAILURES as error:
            self._notes.append(f"tables were not looked for in the newest records: {self._explain_error(error)}")
        self._records = {}

    def _find_misfit(self, schema: TableSchema, rows: Sequence[tuple[int, CallerRow]]) -> Exception:
        """The error for the first row that does not fit its table."""
        for number, row in rows:
            self._limit.check()
            try:
                to_changes(self._spark, schema, [(number, row)]).frame.collect()
            except (PySparkException, Py4JJavaError):
                listed = ", ".join(f"{column.name} {column.type.simpleString()}" for column in schema.columns)
                return ConfigInvalid(f"row {number} does not fit table {schema.namespace} ({listed})")
        return Fatal(f"the given rows of table {schema.namespace} can't be read")

    def _collect_rows(self, table: StepTable) -> _PreviewTable:
        """The rows of a table on the driver; the table reads them from there from now on. Runs a Spark job."""
        frame, schema = table.changes.frame, table.changes.schema
        self._limit.check()
        rows = frame.limit(_MOST_ROWS + 1).toArrow()
        if rows.num_rows > _MOST_ROWS:
            raise Fatal(f"table {schema.namespace} has more than {_MOST_ROWS} rows: ask for fewer records")
        local = self._spark.createDataFrame(rows, frame.schema)
        lines = to_lines(rows, len(schema.columns), [column.name for column in schema.columns])
        return _PreviewTable(StepTable(TableChanges(schema, local), table.present), tuple(lines))

    # Steps.

    def _apply_step(self, step: Step, before: list[_PreviewTable], absent: list[StepTable]) -> _Passed:
        run = StepRun(self._spark, guarded=True, functions=self._functions)
        tables = sorted(
            [*(table.step_table for table in before), *absent], key=lambda table: table.changes.schema.namespace
        )
        schemas = [table.changes.schema for table in tables]
        try:
            result = step.apply(tables, run)
            check_names(step.name, [table.changes.schema for table in result])
            after = [self._collect_rows(table) for table in result if table.present]
            planned = tuple(step.plan(schemas))
            stage = LineageStage(step, tuple(schemas), planned, tuple(table.schema for table in after))
            passed = _Passed(stage, before, after)
            for bad in run.bad:
                schema = next(schema for schema in schemas if schema.namespace == bad.table)
                lines = {line.uid: line for table in before if table.schema == schema for line in table.lines}
                passed.errors += [
                    (name, lines.get(line.uid, line), reason)
                    for name, line, reason in self._list_row_errors(bad, schema)
                ]
            self._note_differences(passed, run)
        finally:
            for frame in run.persisted:
                frame.unpersist()
        return passed

    def _list_row_errors(self, bad: BadRows, schema: TableSchema) -> list[tuple[str, Line, str]]:
        """The rows that a step can't compute, each with its reason."""
        self._limit.check()
        with_reasons = REASON in bad.rows.columns
        columns = [f"c{number}" for number in range(len(schema.columns))]
        frame = bad.rows.select(*columns, *SYSTEM_COLUMNS, *([REASON] if with_reasons else [])).limit(_MOST_ROWS)
        rows = frame.toArrow()
        if not rows.num_rows:
            return []
        lines = to_lines(rows, len(columns), [column.name for column in schema.columns])
        reasons = rows.column(REASON).to_pylist() if with_reasons else []
        result = []
        for number, line in enumerate(lines):
            reason = _EXPRESSION
            if self._secretive:
                reason = HIDDEN_REASON
            elif with_reasons:
                reason = reasons[number]
            elif number < _MOST_REASONS:
                self._limit.check()
                reason = reason_for(bad, self._spark.createDataFrame(rows.slice(number, 1), frame.schema))
            result.append((bad.table, line, reason))
        return result

    def _note_differences(self, passed: _Passed, run: StepRun) -> None:
        """Note rows that the step leaves out or changes, with the reason."""
        operations: dict[str, set[str]] = {}
        for table in passed.after:
            for line in table.lines:
                operations.setdefault(line.uid, set()).add(line.op)
        records = {line.record for table in passed.after for line in table.lines}
        failed = {line.uid for _, line, _ in passed.errors}
        for table in passed.before:
            difference = compare_rows(table.lines, operations, records, failed)
            if not difference.dropped and not difference.changed:
                continue
            results = self._condition_results(passed.stage, table, run)
            otherwise = passed.stage.step.left_out()
            has_conditions = any(isinstance(item, OutputTable) for item in passed.stage.planned)
            moved = "the key or its conditions change" if has_conditions else otherwise
            passed.dropped += [
                (table, line, reason_of(results.get(line.uid), otherwise)) for line in difference.dropped
            ]
            passed.changed += [
                (table, line, f"becomes {op}: {reason_of(results.get(line.uid), moved)}")
                for line, op in difference.changed
            ]

    def _condition_results(self, stage: LineageStage, table: _PreviewTable, run: StepRun) -> dict[str, dict[str, Any]]:
        """The values of the step's conditions for each row of a table, by its uid and the text of the condition."""
        conditions = {
            part.text: part.sql
            for item in stage.planned
            if isinstance(item, OutputTable)
            for branch in with_functions(item, run.functions).branches
            if branch.source.namespace == table.schema.namespace
            for part in branch.conditions
        }
        if not conditions:
            return {}
        self._limit.check()
        frame = number_columns(table.step_table.changes.frame, len(table.schema.columns))
        columns = [
            try_expression(run, f"struct(({sql}) AS value)").getField("value").alias(f"v{number}")
            for number, sql in enumerate(conditions.values())
        ]
        rows = frame.select("ums_uid_", *KAFKA_COLUMNS, *columns).collect()
        return {to_uid(*row[:4]): dict(zip(conditions, row[4:], strict=True)) for row in rows}

    # The answer.

    def _explain_error(self, error: BaseException) -> str:
        """The error in words; what Spark says may quote values."""
        cause = cause_of(error)
        if self._secretive and not isinstance(cause, MillraceError):
            return HIDDEN_REASON
        return describe_error(cause)

    def _build_answer(
        self, inputs: list[_PreviewTable], passed: list[_Passed], failed: Step | None, error: str
    ) -> dict[str, Any]:
        stages = [step.stage for step in passed]
        hidden = hidden_columns(stages)
        if any(isinstance(step, MaskStep) for step in self._steps[len(passed) :]):
            # Which columns that one would mask is not known for sure.
            hidden = [_all_columns(inputs), *(_all_columns(step.after) for step in passed)]
        steps = [self._describe_step(step, hidden[number], hidden[number + 1]) for number, step in enumerate(passed)]
        if failed is not None:
            steps.append(_failed_step(failed, error, passed[-1].after if passed else inputs))
        shown_inputs = [self._describe_table(table, hidden[0]) for table in inputs]
        # Given rows are not decoded; records in which tables were looked for are not part of the preview.
        letters = self._letters.bad() if self._request.rows is None else []
        bad = [self._bad_record(*record) for record in letters]
        warnings = [*self._notes, *(find_unmatched(stages) if len(stages) == len(self._steps) else [])]
        if self._answer_bytes > _MOST_ANSWER:
            warnings.append(f"rows were cut off: an answer has {_MOST_ANSWER >> 20} MiB at most")
        return {"inputs": shown_inputs, "errors": bad, "steps": steps, "warnings": warnings}

    def _describe_step(
        self, passed: _Passed, hidden_before: frozenset[tuple[str, str]], hidden_after: frozenset[tuple[str, str]]
    ) -> dict[str, Any]:
        step = passed.stage.step

        def row(table: str, line: Line, reason: str) -> dict[str, Any]:
            return {
                "record": line.record,
                "table": table,
                "op": line.op,
                "reason": reason,
                "values": self._hide_masked_values(table, line, hidden_before),
            }

        max_rows = self._request.limit
        errors = [row(table, line, reason) for table, line, reason in passed.errors[:max_rows]]
        return {
            "name": step.name,
            "type": step.context.raw.get("type", ""),
            "rows_in": sum(len(table.lines) for table in passed.before),
            "rows_out": sum(len(table.lines) for table in passed.after),
            "tables": [self._describe_table(table, hidden_after) for table in passed.after],
            "dropped": [row(table.schema.namespace, line, reason) for table, line, reason in passed.dropped[:max_rows]],
            "changed": [row(table.schema.namespace, line, reason) for table, line, reason in passed.changed[:max_rows]],
            "errors": [{name: value for name, value in error.items() if name != "op"} for error in errors],
            "dropped_count": len(passed.dropped),
            "changed_count": len(passed.changed),
            "error_count": len(passed.errors),
        }

    def _describe_table(self, table: _PreviewTable, hidden: frozenset[tuple[str, str]]) -> dict[str, Any]:
        rows = []
        for line in table.lines:
            if self._answer_bytes > _MOST_ANSWER:
                break
            values = self._hide_masked_values(table.schema.namespace, line, hidden)
            rows.append({"record": line.record, "op": line.op, "values": values})
        return {
            "table": table.schema.namespace,
            "key": [column.name for column in table.schema.key],
            "columns": columns_of(table.schema),
            "rows": rows,
            "count": len(table.lines),
        }

    def _hide_masked_values(self, namespace: str, line: Line, hidden: frozenset[tuple[str, str]]) -> dict[str, Any]:
        if self._answer_bytes > _MOST_ANSWER:
            return {}
        values = hide_values(line.values, {name for table, name in hidden if table == namespace})
        self._answer_bytes += len(str(values))
        return values

    def _bad_record(self, topic: str, partition: int, offset: int, reason: str) -> dict[str, Any]:
        where = _format_position(topic, partition, offset)
        shown: dict[str, Any] = {"record": where, "reason": reason}
        record = self._records.get(where)
        if record is not None and not self._secretive:
            fields = {"key": record.key, "value": record.value}
            shown["values"] = {
                name: None if data is None else json_value(data.decode("utf-8", "replace"))
                for name, data in fields.items()
            }
        return shown


def _all_columns(tables: Sequence[_PreviewTable]) -> frozenset[tuple[str, str]]:
    return frozenset((table.schema.namespace, column.name) for table in tables for column in table.schema.columns)


def _failed_step(step: Step, error: str, before: Sequence[_PreviewTable]) -> dict[str, Any]:
    counts = dict.fromkeys(("dropped_count", "changed_count", "error_count"), 0)
    lists: Mapping[str, list[Any]] = {"tables": [], "dropped": [], "changed": [], "errors": []}
    return {
        "name": step.name,
        "type": step.context.raw.get("type", ""),
        "rows_in": sum(len(table.lines) for table in before),
        "rows_out": 0,
        **lists,
        **counts,
        "error": error,
    }


def to_lines(rows: Any, columns: int, names: Sequence[str]) -> list[Line]:
    """The rows of an Arrow table whose first columns are a table's own, and which has the system columns."""
    positions = {name: rows.schema.names.index(name, columns) for name in SYSTEM_COLUMNS}
    system = {name: rows.column(position).to_pylist() for name, position in positions.items()}
    values = [rows.column(number).to_pylist() for number in range(columns)]
    records = [tuple(system[name][number] for name in KAFKA_COLUMNS) for number in range(rows.num_rows)]
    return [
        Line(
            to_uid(system["ums_uid_"][number], *records[number]),
            _format_position(*records[number]),
            system["ums_op_"][number],
            {name: json_value(column[number]) for name, column in zip(names, values, strict=True)},
        )
        for number in range(rows.num_rows)
    ]


def to_uid(uid: str, topic: str, partition: int, offset: int) -> str:
    """The identity of a row in a preview: sources may send a row twice, with the same ``ums_uid_``."""
    return f"{uid} {_format_position(topic, partition, offset)}"


def _format_position(topic: str, partition: int, offset: int) -> str:
    return f"{topic}-{partition} offset {offset}"
