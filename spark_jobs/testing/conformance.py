"""One call that runs a sink through all cases, and reports each by name."""

from __future__ import annotations

import time
import traceback
import unittest
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.testing import cases as data_cases
from spark_jobs.testing import declarations, faults, job_case
from spark_jobs.testing.kit import Kit, describe_error
from spark_jobs.testing.model import RuleBroken
from spark_jobs.testing.target import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from spark_jobs.testing.target import SinkTarget


@dataclass(frozen=True, slots=True)
class Case:
    """One promise of a sink.

    Attributes:
        name: for reports and ``only``.
        run: raises ``AssertionError`` where the sink breaks it; its docstring is the rule.
        needs: attributes of ``Supports`` that must hold.
        kafka: whether it needs Kafka.
    """

    name: str
    run: Callable[[Kit], None]
    needs: tuple[str, ...] = ()
    kafka: bool = False

    @property
    def rule(self) -> str:
        """The promise in one sentence."""
        return " ".join((self.run.__doc__ or "").split())


CASES: Final = {
    case.name: case
    for case in (
        Case("declarations", declarations.check_declarations),
        Case("replay", data_cases.replay_batch),
        Case("older_after_newer", data_cases.older_after_newer, ("upsert", "ordering")),
        Case("delete", data_cases.delete_rows, ("delete",)),
        Case("delete_of_an_unknown_key", data_cases.delete_of_an_unknown_key, ("delete",)),
        Case("delete_then_insert_in_one_batch", data_cases.delete_then_insert_in_one_batch, ("delete",)),
        Case(
            "older_after_delete", data_cases.older_after_delete, ("upsert", "delete", "ordering", "remembers_deletes")
        ),
        Case("nulls_and_absent_columns", data_cases.nulls_and_absent_columns),
        Case("absent_column", data_cases.absent_column, ("evolution",)),
        Case("several_tables_and_empty_batches", data_cases.several_tables_and_empty_batches),
        Case("every_type", data_cases.every_type),
        Case("every_type_of_key", data_cases.every_type_of_key),
        Case("schema_evolution", data_cases.schema_evolution, ("evolution",)),
        Case("type_widening", data_cases.type_widening, ("widening",)),
        Case("unicode_names", data_cases.unicode_names),
        Case("emoji_names", data_cases.emoji_names),
        Case("reserved_words", data_cases.reserved_words),
        Case("large_values", data_cases.large_values),
        Case("many_rows", data_cases.many_rows),
        Case("refused_login", faults.refused_login),
        Case("server_down", faults.server_down),
        Case("server_slow", faults.server_slow),
        Case("server_silent", faults.server_silent),
        Case("connection_breaks_at_every_step", faults.connection_breaks_at_every_step),
        Case("killed_at_every_step", faults.killed_at_every_step),
        Case("poison_record", job_case.poison_record, kafka=True),
    )
}


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The outcome of a case: ``passed``, ``failed``, ``waived`` (it fails, and that is known) or ``skipped``; and why."""

    case: str
    state: str
    text: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Report:
    """All outcomes of one run."""

    target: str
    outcomes: list[CaseOutcome] = field(default_factory=list)

    def of(self, state: str) -> list[str]:
        """Names of the cases with this outcome."""
        return [outcome.case for outcome in self.outcomes if outcome.state == state]

    def __str__(self) -> str:
        lines = [
            f"{outcome.state:8} {outcome.case} ({outcome.seconds:.1f} s)"
            + (f": {outcome.text}" if outcome.text else "")
            for outcome in self.outcomes
        ]
        return "\n".join([f"conformance of {self.target}:", *lines])


def cases() -> list[str]:
    """Names of all cases, for ``pytest.mark.parametrize``."""
    return list(CASES)


def check_sink(
    target: SinkTarget,
    *,
    spark: SparkSession | None = None,
    bootstrap: str = "",
    only: str | Iterable[str] | None = None,
) -> Report:
    """Run a sink through the cases; blocks for about half a minute with all of them.

    Every case runs, also after one has failed. The report is printed.

    Args:
        target: how to configure the sink, and how to read back what it wrote. Started and stopped here.
        spark: a local session; None: the active one, or a new one, which stays.
        bootstrap: Kafka's address, for the case of a poison record; without, that one is skipped.
        only: one case, or some.

    Raises:
        AssertionError: the sink breaks rules; the text has all of them, with expected and actual rows.
        unittest.SkipTest: all the cases that were asked for are skipped (for a test runner, with the reasons).
        ValueError: there is no such case.
    """
    names = cases() if only is None else [only] if isinstance(only, str) else list(only)
    unknown = [name for name in (*names, *target.waivers) if name not in CASES]
    if unknown:
        raise ValueError(f"no such cases: {', '.join(unknown)}; there are {', '.join(CASES)}")
    session = spark if spark is not None else _open_session(target)
    report = Report(f"{type(target).__name__} (sink.type={target.sink_type})")
    target.start()
    try:
        for name in names:
            report.outcomes.append(_run_case(CASES[name], target, session, bootstrap))
    finally:
        target.stop()
    print(report)  # noqa: T201 - test runners show it with a failure
    failed = [outcome for outcome in report.outcomes if outcome.state == "failed"]
    if failed:
        failures = "\n\n".join(f"{outcome.case}: {outcome.text}" for outcome in failed)
        raise AssertionError(f"{len(failed)} of {len(names)} cases failed\n{failures}")
    if all(outcome.state == "skipped" for outcome in report.outcomes):
        raise unittest.SkipTest("; ".join(outcome.text for outcome in report.outcomes))
    return report


def _open_session(target: SinkTarget) -> Any:
    from pyspark.sql import SparkSession

    from spark_jobs import registry
    from spark_jobs.spark.session import build_session

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    return build_session(
        "sink-conformance", master="local[2]", extra_jars=registry.sink_class(target.sink_type).extra_jars
    )


def _run_case(case: Case, target: SinkTarget, spark: SparkSession, bootstrap: str) -> CaseOutcome:
    reason = _skip_reason(case, target, bootstrap)
    if reason:
        return CaseOutcome(case.name, "skipped", reason)
    begin = time.monotonic()
    kit = Kit(target, spark, bootstrap)
    state, explanation = "passed", ""
    try:
        try:
            case.run(kit)
        finally:
            kit.close()
    except Unsupported as unsupported:
        return CaseOutcome(case.name, "skipped", str(unsupported), time.monotonic() - begin)
    except RuleBroken as error:
        state, explanation = "failed", f"broken rule: {case.rule}\n{error}"
    except Exception as error:  # noqa: BLE001 - whatever a sink raises where it must not
        trace = "".join(traceback.format_exception(error))
        state, explanation = (
            "failed",
            f"broken rule: {case.rule}\nexpected no error, actual {describe_error(error)}\n{trace}",
        )
    waived = target.waivers.get(case.name)
    if waived is not None:
        state, explanation = (
            ("waived", waived)
            if state == "failed"
            else ("failed", f"the case is waived ({waived}) and passes: remove the waiver")
        )
    return CaseOutcome(case.name, state, explanation, time.monotonic() - begin)


def _skip_reason(case: Case, target: SinkTarget, bootstrap: str) -> str:
    """Why a case can't run here; empty if it can."""
    lacking = [name for name in case.needs if not getattr(target.supports, name)]
    if lacking:
        return f"the sink does not support {', '.join(lacking)}"
    if case.kafka and not bootstrap:
        return "no Kafka was given (bootstrap)"
    return ""
