"""Change events through Kafka Connect's worker with Debezium's transforms, and through Millrace's: the same bytes in Kafka.

Hypothesis chooses the configurations and the events. The slow suite takes more of them.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

from tests.conformance.transforms import debezium_cases as cases
from tests.conformance.transforms import debezium_events
from tests.conformance.transforms.debezium_expressions import CEL
from tests.conformance.transforms.strategies import collect
from tests.conformance.transforms.worker_pair import Outcome, compare, run_java, run_millrace
from tests.selection import scaled
from worker.fetch.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.conftest import HasBootstrap

Json = dict[str, Any]
pytestmark = pytest.mark.scaled
_COUNT = scaled(2, 25)
_KINDS: dict[str, Callable[[random.Random], list[Json]]] = {
    "changed": lambda source: cases.changed_cases(debezium_events.Events(source)),
    "headers": lambda source: cases.header_cases(debezium_events.Events(source)),
    "routers": lambda source: cases.router_cases(debezium_events.Events(source)),
    "partitions": lambda source: cases.partition_cases(debezium_events.Events(source)),
    "times": lambda source: cases.timezone_cases(
        debezium_events.Events(source, (*debezium_events.TIMES, *debezium_events.COLUMNS[:3]))
    ),
    "small": lambda source: cases.small_cases(debezium_events.Events(source)),
    "outbox": lambda source: cases.outbox_cases(debezium_events.Events(source)),
    "chains": lambda source: cases.unwrapped_cases(debezium_events.Events(source)),
    "expressions": lambda _source: cases.expression_cases(),
}
_FAILING = "failing"


def _case(kind: str) -> st.SearchStrategy[Json]:
    def choose(seed: int) -> Json:
        source = random.Random(seed)
        candidates = [case for case in _KINDS[kind](source) if _compared(case["config"]) and case["records"]]
        return source.choice(candidates)

    return st.integers(0, 1 << 32).map(choose)


def _compared(config: Json) -> bool:
    """Whether both give the same for such a configuration; the others are in docs/connect-compatibility.md."""
    return (
        config.get("transforms.t.field.name.adjustment.mode", "none") == "none"
        and config.get("transforms.t.converted.timezone") != "+19:00"
        and config.get("transforms.t.table.fields.additional.placement") != "type:nowhere"
    )


def _in_cel(case: Json) -> Json:
    """The same with the expression in CEL, where there is one."""
    cel_by_groovy = dict(CEL)
    config = dict(case["config"])
    for option in ("transforms.t.condition", "transforms.t.topic.expression"):
        if config.get(option) in cel_by_groovy:
            config |= {option: cel_by_groovy[config[option]], "transforms.t.language": "cel"}
    # Of data without schema, a name that is not there is null in Groovy, and an error in CEL.
    return (
        {"config": config, "records": case["records"]}
        if all(record["value"] is None or record["value"]["schema"] for record in case["records"])
        else case
    )


def _refused_records() -> list[Json]:
    """Records that end a task which tolerates no errors."""
    events = debezium_events.Events(5)
    row, columns = events.row("srv.db.users.Value")
    deletions = [events.record(events.event(row, columns, "users", "d"), key=False) for _ in range(2)]
    refused = [
        debezium_events.case(
            debezium_events.DEBEZIUM + "Filter",
            {"language": "jsr223.groovy", "condition": "value.after.id == 1"},
            deletions,
        ),
        debezium_events.case(
            debezium_events.DEBEZIUM + "Filter", {"language": "jsr223.groovy", "condition": "value.op"}, deletions
        ),
        debezium_events.case(
            debezium_events.DEBEZIUM + "partitions.PartitionRouting",
            {"partition.payload.fields": "after.id", "partition.topic.num": "3"},
            deletions,
        ),
        debezium_events.case(
            debezium_events.DEBEZIUM + "HeaderToValue",
            {"headers": "h", "fields": "op", "operation": "copy"},
            [
                {**record, "headers": [{"key": "h", "value": {"schema": debezium_events.STRING, "payload": "x"}}]}
                for record in deletions
            ],
        ),
    ]
    return [{**case, "config": {**case["config"], "errors.tolerance": "none"}} for case in refused]


@pytest.fixture(scope="module")
def outcomes(
    kafka: HasBootstrap, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[tuple[Json, Outcome, Outcome]]]:
    """By kind: each case, and what became of it in both workers."""
    asked = [(kind, case) for number, kind in enumerate(_KINDS) for case in collect(_case(kind), _COUNT, 50 + number)]
    asked += [(_FAILING, case) for case in _refused_records()]
    folder: Path = tmp_path_factory.mktemp("workers")
    with ThreadPoolExecutor(1) as pool:
        ours = pool.submit(run_millrace, [_in_cel(case) for _, case in asked], kafka.bootstrap, folder)
        try:
            java = run_java(
                [case for _, case in asked], kafka.bootstrap, folder, plugins=("debezium", "debezium-scripting")
            )
        except StackError as error:
            ours.result()
            pytest.skip(f"no Java or no jars: {error}")
        by_kind: dict[str, list[tuple[Json, Outcome, Outcome]]] = {kind: [] for kind in (*_KINDS, _FAILING)}
        for (kind, case), theirs, mine in zip(asked, java, ours.result(), strict=True):
            by_kind[kind].append((case, theirs, mine))
    return by_kind


def _differences(results: Sequence[tuple[Json, Outcome, Outcome]]) -> list[str]:
    return [
        f"{case['config']}\n{text}" for case, java, ours in results for text in compare(java, ours, case["records"])
    ]


@pytest.mark.parametrize("kind", _KINDS)
def test_the_same_bytes_come_to_kafka(outcomes: dict[str, list[tuple[Json, Outcome, Outcome]]], kind: str) -> None:
    assert len(outcomes[kind]) == _COUNT
    assert not _differences(outcomes[kind])


def test_a_refused_record_fails_both_tasks(outcomes: dict[str, list[tuple[Json, Outcome, Outcome]]]) -> None:
    verdicts = [(java.verdict, ours.verdict) for _, java, ours in outcomes[_FAILING]]
    assert verdicts == [("failed", "failed")] * len(_refused_records())
    assert all("transformation 't'" in (ours.failed or "") for _, _, ours in outcomes[_FAILING])


def test_records_get_through(outcomes: dict[str, list[tuple[Json, Outcome, Outcome]]]) -> None:
    # A comparison of nothing with nothing would prove nothing.
    sent = sum(record is not None for results in outcomes.values() for _, java, _ in results for record in java.records)
    assert sent > 2 * len(_KINDS) * _COUNT
