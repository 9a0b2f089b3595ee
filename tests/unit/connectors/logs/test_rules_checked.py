"""Rule sets that can't work are refused before the start, with table, group, step, option and how to fix it."""

from typing import Any

import pytest

from connectors.logs.rules.built import build_rules
from connectors.logs.rules.errors import RuleProblem, RulesInvalid
from connectors.logs.rules.model import parse_rules, read_rules

SAVE = {"saveAs": {"columns": [{"name": "line"}]}}


def problems_of(document: Any) -> list[RuleProblem]:
    with pytest.raises(RulesInvalid) as error:
        build_rules(read_rules(document, "shop"))
    return error.value.problems


def group(*steps: Any, name: str = "g") -> dict[str, Any]:
    return {"name": name, "steps": list(steps)}


def table(*groups: Any, name: str = "t", version: int = 1) -> dict[str, Any]:
    return {"name": name, "groups": list(groups), "version": version}


def problem_of(*steps: Any) -> RuleProblem:
    (problem,) = problems_of({"tables": [table(group(*steps, SAVE))]})
    return problem


@pytest.mark.parametrize(
    ("step", "option", "message"),
    [
        ({"trim": {"field": "user"}}, "field", "there is no field 'user'; the record has line"),
        ({"trim": {"field": 3}}, "field", "there is no field at index 3; the record has 1: line"),
        ({"trim": {"feild": "line"}}, "", "unknown field feild; the options are field, side, characters"),
        ({"trim": {"field": "line", "side": "middle"}}, "side", "Invalid enum value 'middle'"),
        ({"trim": {"field": ["line"]}}, "field", "Expected int | str, got array"),
        ({"regexExtract": {"pattern": "(a"}}, "pattern", "this is no regular expression"),
        ({"regexExtract": {"pattern": "a"}}, "pattern", "put what becomes a field into a group"),
        ({"regexExtract": {"pattern": "(?=a)(b)"}}, "pattern", "RE2 does not accept the expression"),
        ({"regexExtract": {"pattern": r"(a)\1"}}, "pattern", "a line could cost unbounded time"),
        ({"regexExtract": {"pattern": "([[:alpha:]])"}}, "pattern", "different meanings"),
        ({"regexExtract": {"pattern": "(a)(b)", "names": ["x"]}}, "names", "1 names for 2 groups"),
        ({"grok": {"pattern": "%{NOTHING:x}"}}, "pattern", "there is no pattern 'NOTHING'"),
        ({"grok": {"pattern": "%{A:x}", "patterns": {"A": "%{A}"}}}, "pattern", "in a circle"),
        ({"dissect": {"pattern": "%{a}%{b}"}}, "pattern", "two keys need a separator"),
        ({"jsonPath": {"paths": {"a": "$.a..b"}}}, "paths", "is no JSON path after '.a'"),
        ({"date": {"field": "line", "formats": ["yyyy-QQ"]}}, "formats", "the letter 'QQ'"),
        ({"date": {"field": "line", "formats": ["ISO8601"], "zone": "Mars"}}, "zone", "'Mars' is no time zone"),
        ({"convert": {"field": "line", "type": "number"}}, "type", "types are string, int, long"),
        ({"mask": {"field": "line", "type": "rot13"}}, "", "there is no type 'rot13'"),
        ({"set": {"fields": {"a": "{line"}}}, "fields", "single '{'"),
        ({"set": {"fields": {"@host": "x"}}}, "fields", "can't be set"),
        ({"replace": {"field": "line", "by": "x"}}, "string", "exactly one of string, pattern and whole"),
        ({"filter": {}}, "contains", "exactly one of contains, matches or equals"),
        ({"filter": {"contains": "x"}, "when": {"matches": "("}}, "when.matches", "no regular expression"),
        ({"deduplicate": {}, "when": {"contains": "x"}}, "when", "leave out when and ignoreFailure"),
    ],
)
def test_a_wrong_option_is_named(step: dict[str, Any], option: str, message: str) -> None:
    problem = problem_of(step)
    assert (problem.table, problem.group, problem.step) == ("t", "g", 1)
    assert problem.operator == next(iter(step))
    assert problem.option == option
    assert message in problem.message


def test_a_missing_field_is_found_behind_steps_that_say_which_fields_there_are() -> None:
    steps = [{"split": {"by": " ", "names": ["a", "b"]}}, {"rename": {"fields": {"a": "c"}}}, {"trim": {"field": "a"}}]
    saved = {"saveAs": {"columns": [{"name": "b"}]}}
    (problem,) = problems_of({"tables": [table(group(*steps, saved))]})
    assert (problem.step, problem.message) == (3, "there is no field 'a'; the record has c, b")


def test_behind_json_any_field_may_be_there() -> None:
    steps = [{"json": {}}, {"trim": {"field": "user"}}, {"saveAs": {"columns": [{"name": "user"}]}}]
    assert build_rules(read_rules({"tables": [table(group(*steps))]})).schemas["t"].fields[0].name == "user"


def test_the_message_says_where_everything_is_wrong_at_once() -> None:
    document = {
        "tables": [table(group({"trim": {"field": "a"}}, SAVE), group({"trim": {"field": "b"}}, SAVE, name="h"))]
    }
    with pytest.raises(RulesInvalid) as error:
        build_rules(read_rules(document, "shop"))
    assert str(error.value).splitlines() == [
        "rule set shop: table t, group g, step 1, trim, option field: there is no field 'a'; the record has line",
        "rule set shop: table t, group h, step 1, trim, option field: there is no field 'b'; the record has line",
    ]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"tables": []}, "there is no table"),
        ({"tables": [table()]}, "there is no group"),
        ({"tables": [table(group())]}, "the last step, and no other, must be saveAs"),
        ({"tables": [table(group(SAVE, SAVE))]}, "the last step, and no other, must be saveAs"),
        ({"tables": [table(group(SAVE)), table(group(SAVE))]}, "two tables with the name 't'"),
        ({"tables": [table(group(SAVE), group(SAVE))]}, "two groups with the name 'g'"),
        ({"tables": [table(group(SAVE), name="a-b")]}, "letters, digits and underscores"),
        ({"tables": [table(group(SAVE), name="unknown_table")]}, "choose another name"),
        ({"tables": [table(group({"trim": {}, "filter": {}}, SAVE))]}, "a step has one operator"),
        ({"tables": [table(group({"shout": {}}, SAVE))]}, "Operators are filter, keyFilter"),
        ({"tables": [table(group(*[{"flattenJsonArray": {}}] * 13, SAVE))]}, "more than 12 steps flatten"),
        ({"tables": [table(group("trim", SAVE))]}, "a step is an operator with its options"),
        ({"tables": [table(group(SAVE))], "most": 1}, "unknown field most"),
        ({"tables": [table(group(SAVE), version=0)]}, "Expected int >= 1"),
        ([], "Expected object, got array"),
    ],
)
def test_a_wrong_form_is_refused(document: Any, message: str) -> None:
    assert any(message in str(problem) for problem in problems_of(document))


def test_groups_of_a_table_agree_on_its_columns() -> None:
    other = {"saveAs": {"columns": [{"name": "line", "type": "int"}]}}
    (problem,) = problems_of({"tables": [table(group(SAVE), group(other, name="h"))]})
    assert problem.group == "h"
    assert "differ from those of group g in line" in problem.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tables: [", "line [0-9] is not YAML or JSON"),
        ("name: a\nname: b\ntables: []", "the key 'name' is there twice"),
        ("", "Expected object, got null"),
    ],
)
def test_text_that_is_no_document_is_refused(text: str, message: str) -> None:
    with pytest.raises(RulesInvalid, match=message):
        parse_rules(text)


def test_the_schema_has_the_version_of_the_table() -> None:
    schema = build_rules(read_rules({"tables": [table(group(SAVE), version=3)]})).schemas["t"]
    assert (schema.name, schema.version) == ("t", 3)
