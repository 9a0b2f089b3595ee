"""Documents in lines that no one expected: they are refused with a reason, and end no task."""

import json
from typing import Any

import pytest

from connectors.logs.rules.built import build_any
from connectors.logs.rules.compiled import CompiledRules, compile_rules
from connectors.logs.rules.records import LineOrigin


def rules_of(*steps: dict[str, Any]) -> CompiledRules:
    save = {"saveAs": {"columns": [{"name": "a", "optional": True}]}}
    return compile_rules(build_any({"tables": [{"name": "t", "groups": [{"name": "g", "steps": [*steps, save]}]}]}))


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize("name", [5, None, True, 1.5, [1], {"b": 1}])
def test_a_ums_document_whose_field_has_no_string_as_its_name_is_refused(name: Any) -> None:
    fields = [{"name": name, "type": "string"}, {"name": "a", "type": "string"}]
    line = json.dumps({"schema": {"namespace": "n", "fields": fields}, "payload": [{"tuple": ["1", "2"]}]})
    rules = rules_of({"flattenUms": {}})
    assert rules.apply(line, LineOrigin()) == []
    (failure,) = rules.explain(line, LineOrigin())
    assert (failure.operator, failure.reason) == (
        "flattenUms",
        "a field of the UMS document has a name that is no string",
    )


@pytest.mark.parametrize(
    "steps",
    [
        [{"flattenJsonArray": {}}, {"deduplicate": {}}],
        [{"flattenJsonArray": {}}, {"convert": {"field": "a", "type": "int"}}],
        [{"flattenJsonArray": {}}, {"set": {"fields": {"a": "{a}"}}}],
        [{"flattenJsonArray": {}}, {"set": {"fields": {"a": "{a}"}}, "ignoreFailure": True}],
        [{"flattenJsonArray": {}}, {"drop": {"reason": "r"}, "when": {"field": "a", "contains": "7"}}],
    ],
)
def test_a_document_that_is_nested_too_deep_for_a_step_ends_no_task(steps: list[dict[str, Any]]) -> None:
    rules = rules_of(*steps)
    refused = 0
    for depth in (*range(50, 900, 50), *range(900, 1000)):
        line = f"[{nested(depth)},{nested(depth)}]"
        accepted = rules.apply(line, LineOrigin())
        failures = rules.explain(line, LineOrigin())
        # Close to the limit the number of calls around a step decides.
        refused += not accepted
        assert all(failure.reason for failure in failures)
    assert refused > 0
