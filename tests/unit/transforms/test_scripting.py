"""Debezium's Filter and ContentBasedRouter: options, modes and errors around the expressions."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.api import SourceRecord
from connectors.errors import ConfigInvalid
from connectors.schema import STRING, struct
from worker.transforms.options import transform_problems
from worker.transforms.pipeline import TransformError, build_pipeline

EVENT = struct("srv.t.Envelope", {"op": STRING, "table": STRING})


def record(op: str = "u", topic: str = "srv.t", value: Any = ...) -> SourceRecord:
    event = {"op": op, "table": "users"} if value is ... else value
    return SourceRecord({}, {}, topic, event, EVENT if event is not None else None, timestamp=5, partition=3)


def config(kind: str, **options: str) -> dict[str, str]:
    option = "condition" if kind == "Filter" else "topic.expression"
    properties = {
        "language": "cel",
        option: options.pop("expression", "value.op == 'u'"),
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    return {
        "transforms": "f",
        "transforms.f.type": f"io.debezium.transforms.{kind}",
        **{f"transforms.f.{name}": value for name, value in properties.items()},
    }


def test_a_filter_keeps_what_the_condition_is_true_for() -> None:
    apply = build_pipeline(config("Filter")).apply
    kept = record()
    assert apply(kept) is kept
    assert apply(record("d")) is None


def test_a_router_changes_the_topic_and_nothing_else() -> None:
    apply = build_pipeline(
        config("ContentBasedRouter", expression="value.op == 'u' ? 'updates.' + value.table : null")
    ).apply
    update, deletion = record(), record("d")
    routed = apply(update)
    assert routed is not None
    assert (routed.topic, routed.partition, routed.timestamp, routed.value) == ("updates.users", 3, 5, update.value)
    assert update.topic == "srv.t"
    assert apply(deletion) is deletion


@pytest.mark.parametrize(("mode", "kept"), [(None, True), ("keep", True), ("DROP", False), ("evaluate", True)])
def test_null_values(mode: str | None, kept: bool) -> None:
    options = {} if mode is None else {"null_handling_mode": mode}
    apply = build_pipeline(config("Filter", expression="value == null", **options)).apply
    tombstone = record(value=None)
    assert (apply(tombstone) is tombstone) is kept


def test_only_topics_that_match_are_evaluated() -> None:
    apply = build_pipeline(config("Filter", topic_regex=r"srv\..*")).apply
    assert apply(record("d", "srv.t")) is None
    for topic in ("other", "a.srv.t"):
        deletion = record("d", topic)
        assert apply(deletion) is deletion


@pytest.mark.parametrize(
    ("kind", "expression", "text"),
    [
        ("Filter", "value.op", "not a Boolean but a str"),
        ("Filter", "value.op == 'u' ? null : true", "not a Boolean but null"),
        ("ContentBasedRouter", "value.op == 'u'|| true", "must give a string"),
        ("Filter", "'text'", "must give true or false"),
        ("Filter", "null", "must give true or false"),
        ("Filter", "size(topic)", "must give true or false"),
        ("ContentBasedRouter", "value", "not a String but a dict"),
    ],
)
def test_the_result_must_be_of_the_right_kind(kind: str, expression: str, text: str) -> None:
    with pytest.raises((TransformError, ConfigInvalid), match=text):
        build_pipeline(config(kind, expression=expression)).apply(record())


@pytest.mark.parametrize(
    ("language", "expression", "text"),
    [
        ("jsr223.graal.js", "value.op == 'u'", "valid CEL as it is"),
        ("jsr223.graal.js", "value.op === 'u'", "column 10"),
        ("groovy", "value.op == 'u'", "language: 'groovy' can't be run here"),
        ("wasm.chicory", "filter.wasm", "language=cel"),
        ("jsr223.groovy", "value.op ==~ /u/", "write .matches"),
        ("cel", "value.op == ", "condition: line 1, column 12"),
        ("cel", "", "column 1"),
    ],
)
def test_what_can_not_be_run_is_refused_at_validation(language: str, expression: str, text: str) -> None:
    problems = transform_problems(config("Filter", language=language, expression=expression))
    assert len(problems) == 1
    assert text in problems[0].message


def test_groovy_is_taken_where_it_means_the_same() -> None:
    expression = "value.op == 'u' && topic.startsWith('s')"
    assert not transform_problems(config("Filter", language="jsr223.groovy", expression=expression))


def test_a_record_that_can_not_be_evaluated_is_refused_as_others_are() -> None:
    pipeline = build_pipeline(config("Filter", expression="value.nowhere == 1"))
    results, errors = pipeline.apply_many([record(), record(value=None), record("d")])
    assert [index for index, _ in errors] == [0, 2]
    assert results[1] is not None
    assert errors[0][1].stage == "TRANSFORMATION"
    assert "no field 'nowhere'" in str(errors[0][1])
