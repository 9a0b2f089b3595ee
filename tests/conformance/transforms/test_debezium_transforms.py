"""Debezium's transforms compared with Debezium's own classes: the same records and configurations, the same results.

The recorded answers are always compared. In the slow suite Java is asked again, so that a stale
recording shows. Expressions are compared as Groovy in Debezium, as Groovy here, and as CEL.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from connectors.errors import ConfigInvalid
from tests.conformance.transforms import debezium_cases
from tests.conformance.transforms.debezium_expressions import CEL, GROOVY, ROUTES
from tests.conformance.transforms.outcomes import Json, outcome
from worker.fetch.errors import StackError
from worker.transforms.pipeline import build_pipeline

CASES, EXPECTED = debezium_cases.recorded()
ALL = [(version, number) for version in CASES for number in range(len(CASES[version]))]
EXPRESSIONS = [number for number, case in enumerate(CASES["3.5"]) if "transforms.t.language" in case["config"]]
CEL_BY_GROOVY = dict(CEL)


#: Errors of Java whose text is ours too; the others (a NullPointerException ...) only happen.
SAME_TEXTS = ("org.apache.kafka.connect.errors.DataException",)


def without_values(result: Json) -> Json:
    return {**result, "value": result["value"]["schema"]} if result.get("value") else result


def agrees(ours: Json | None, java: Json | None) -> bool:
    if java is None or ours is None:
        return ours == java
    if "error" in java:
        return "error" in ours and (
            java["class"] not in SAME_TEXTS or ours["error"].startswith(java["error"].rstrip("."))
        )
    if "unserializable" in java:
        return "unserializable" in ours
    return ours == java


#: What Debezium takes and fails on later, or takes for something else: refused at validation here.
REFUSED_EARLIER = ({"converted.timezone": "+19:00"}, {"table.fields.additional.placement": "type:nowhere"})


def differences(config: Json, records: list[Json], expected: Any) -> list[str]:
    if isinstance(expected, dict):
        with pytest.raises(ConfigInvalid):
            build_pipeline(config)
        return []
    options = {name.removeprefix("transforms.t."): value for name, value in config.items()}
    if any(refused.items() <= options.items() for refused in REFUSED_EARLIER):
        with pytest.raises(ConfigInvalid):
            build_pipeline(config)
        return []
    pipeline = build_pipeline(config)
    differing = []
    for record, java in zip(records, expected, strict=True):
        ours = outcome(pipeline, record)
        if options.get("field.name.adjustment.mode", "none") != "none" and ours and java and java.get("value"):
            # Debezium fits the names of the schema alone, and loses the values of fields whose name it changed.
            agreed = agrees(without_values(ours), without_values(java))
        else:
            agreed = agrees(ours, java)
        if not agreed:
            differing.append(
                json.dumps(
                    {"config": config, "record": record, "ours": ours, "java": java}, ensure_ascii=False, indent=1
                )
            )
    return differing


@pytest.mark.parametrize(("version", "number"), ALL)
def test_transform_gives_what_debezium_gives(version: str, number: int) -> None:
    case = CASES[version][number]
    assert not differences(case["config"], case["records"], EXPECTED[version][number])


@pytest.mark.parametrize("number", EXPRESSIONS)
def test_cel_gives_what_groovy_gives(number: int) -> None:
    case, expected = CASES["3.5"][number], EXPECTED["3.5"][number]
    option = next(
        name for name in ("transforms.t.condition", "transforms.t.topic.expression") if name in case["config"]
    )
    cel = CEL_BY_GROOVY.get(case["config"][option])
    if cel is None:
        assert case["config"][option] in {forms[0] for forms in (*GROOVY, *ROUTES) if len(forms) == 1}
        return
    config = {**case["config"], "transforms.t.language": "cel", option: cel}
    if isinstance(expected, dict):
        assert not differences(config, case["records"], expected)
        return
    # Of data without schema, a name that is not there is null in Groovy, and an error in CEL.
    kept = [
        (record, java)
        for record, java in zip(case["records"], expected, strict=True)
        if record["value"] is None or record["value"]["schema"] is not None
    ]
    assert not differences(config, [record for record, _ in kept], [java for _, java in kept])


def test_cases_are_those_of_the_generator() -> None:
    assert debezium_cases.cases() == CASES


@pytest.mark.slow
def test_recording_is_what_debezium_says_today() -> None:
    try:
        answer = debezium_cases.ask_java(CASES)
    except StackError as error:
        pytest.skip(f"no Java or no jars: {error}")
    assert answer == EXPECTED
