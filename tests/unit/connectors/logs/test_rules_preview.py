"""The preview: each step of each line with its status; differences between two rule sets; golden lines."""

from decimal import Decimal
from typing import Any

from connectors.logs.rules.built import BuiltRules, StepStatus, build_rules
from connectors.logs.rules.compiled import compile_rules
from connectors.logs.rules.model import read_rules
from connectors.logs.rules.records import Dropped, LineOrigin
from connectors.logs.rules.tools.preview import check_golden, check_versions, diff_rules, preview_rules


def rules_of(*groups: list[dict[str, Any]], golden: Any = (), **options: Any) -> BuiltRules:
    table = {"name": "t", "groups": [{"name": f"g{number}", "steps": steps} for number, steps in enumerate(groups)]}
    return build_rules(read_rules({"tables": [table], "golden": list(golden), **options}))


def save(**types: str) -> dict[str, Any]:
    return {"saveAs": {"columns": [{"name": name, "type": kind} for name, kind in types.items()]}}


def test_every_step_has_one_of_five_statuses() -> None:
    rules = rules_of(
        [
            {"filter": {"contains": "user"}},
            {"drop": {"reason": "health"}, "when": {"contains": "health"}},
            {"regexExtract": {"pattern": "user=(?P<user>[a-z]+)", "keep": True}, "ignoreFailure": True},
            {"trim": {"field": "user"}},
            {"saveAs": {"columns": [{"name": "user"}]}},
        ]
    )
    lines = ["user=ann", "user health", "user=7", "nothing"]
    (group,) = preview_rules(rules, lines).groups
    statuses = [[(shown.line, shown.status.value) for shown in step.lines] for step in group.steps]
    assert statuses == [
        [(0, "success"), (1, "success"), (2, "success"), (3, "dropped")],
        [(0, "skipped"), (1, "dropped"), (2, "skipped")],
        [(0, "success"), (1, "skipped"), (2, "ignored")],
        [(0, "success"), (1, "skipped"), (2, "error")],
        [(0, "success"), (1, "skipped")],
    ]
    assert group.steps[2].lines[0].records_in == [{"line": "user=ann"}]
    assert group.steps[2].lines[0].records_out == [{"line": "user=ann", "user": "ann"}]
    assert group.steps[2].lines[2].reason == "the expression does not match"
    assert group.steps[1].lines[1].reason == "health"
    assert group.steps[3].counts == {StepStatus.SUCCESS: 1, StepStatus.SKIPPED: 1, StepStatus.ERROR: 1}
    assert (group.tried, group.accepted, group.percent) == (4, 2, 50.0)


def test_a_group_is_given_what_no_earlier_one_accepts() -> None:
    rules = rules_of([{"filter": {"contains": "a"}}, save(line="string")], [save(line="string")])
    preview = preview_rules(rules, ["a", "b"])
    assert [(group.tried, group.accepted) for group in preview.groups] == [(2, 1), (1, 1)]
    assert [line.rows for line in preview.lines] == [{"t": [{"line": "a"}]}, {"t": [{"line": "b"}]}]


def test_the_time_of_a_step_comes_from_the_clock() -> None:
    ticks = iter(range(100))
    (group,) = preview_rules(rules_of([save(line="string")]), ["a", "b"], clock=lambda: next(ticks)).groups
    assert group.steps[0].microseconds == 2_000_000


def test_long_lines_are_unknown() -> None:
    rules = rules_of([save(line="string")], mostCharacters=3)
    assert [line.unknown for line in preview_rules(rules, ["abc", "abcd"]).lines] == [False, True]
    compiled = compile_rules(rules)
    assert compiled.apply("abcd", LineOrigin()) == []
    (failure,) = compiled.explain("abcd", LineOrigin())
    assert failure.reason == "the line has 4 characters; rules are given at most 3 (mostCharacters)"


def test_a_difference_says_what_differs() -> None:
    before = rules_of([{"filter": {"contains": "a"}}, save(line="string")])
    after = rules_of(
        [
            {"filter": {"contains": "b"}},
            {"trim": {"field": "line"}},
            {"set": {"fields": {"x": "1"}}},
            save(line="string"),
        ]
    )
    changes = diff_rules(before, after, ["a", "ab", "b", " ab", "c"])
    assert [(change.number, change.changes) for change in changes] == [(0, ["table"]), (2, ["table"]), (3, ["values"])]
    assert (changes[2].before, changes[2].after) == ({"t": [{"line": " ab"}]}, {"t": [{"line": "ab"}]})


def test_a_difference_in_columns_types_and_rows() -> None:
    text, number = rules_of([save(line="string")]), rules_of([save(line="int")])
    wider = rules_of([{"set": {"fields": {"x": "1"}}}, save(line="string", x="int")])
    several = rules_of([{"flattenJsonArray": {}}, save(line="string")])
    assert diff_rules(text, number, ["7"])[0].changes == ["values"]
    assert diff_rules(text, wider, ["7"])[0].changes == ["columns"]
    assert diff_rules(text, several, ["[7, 8]"])[0].changes == ["rows", "values"]
    assert diff_rules(text, text, ["7"]) == []


def test_changed_columns_need_a_higher_version() -> None:
    def version_of(number: int, kind: str) -> BuiltRules:
        table = {"name": "t", "version": number, "groups": [{"name": "g", "steps": [save(line=kind)]}]}
        return build_rules(read_rules({"tables": [table]}))

    first = version_of(2, "string")
    assert check_versions(first, version_of(2, "string")) == []
    assert check_versions(first, version_of(3, "int")) == []
    (changed,) = check_versions(first, version_of(2, "int"))
    assert (changed.table, changed.option) == ("t", "version")
    assert changed.message.endswith("give the table version 3")
    (lower,) = check_versions(first, version_of(1, "string"))
    assert lower.message == "version 1 follows version 2; versions only rise"


def test_golden_lines() -> None:
    golden = [
        {"line": "1.50", "rows": {"t": [{"line": "1.50"}]}},
        {"line": "x", "rows": {}},
        {"line": "2", "rows": {"t": [{"line": "2"}]}},
    ]
    columns = {"saveAs": {"columns": [{"name": "line", "type": "decimal", "scale": 2}]}}
    (failure,) = check_golden(rules_of([columns], golden=golden))
    assert (failure.line, failure.expected, failure.actual) == (
        "2",
        {"t": [{"line": "2"}]},
        {"t": [{"line": "2.00"}]},
    )


def test_rows_have_the_values_of_their_types() -> None:
    steps = [{"split": {"by": ";", "names": list("abcde")}}]
    rules = rules_of([*steps, save(a="int", b="double", c="boolean", d="decimal", e="datetime")])
    ((_, rows),) = compile_rules(rules).apply("7;1e3;no;-3;2026-11-26T17:29:00Z", LineOrigin())
    assert rows == [{"a": 7, "b": 1000.0, "c": False, "d": Decimal(-3), "e": 1795714140000}]


def test_values_that_do_not_fit_make_the_group_fail() -> None:
    compiled = compile_rules(rules_of([save(line="int")]))
    for line in ("x", "1.5", "2147483648", "", "1_000", "\u0661"):
        assert compiled.apply(line, LineOrigin()) == []
        (failure,) = compiled.explain(line, LineOrigin())
        assert (failure.step, failure.operator) == (1, "saveAs")


def test_any_number_of_conditional_steps() -> None:
    steps: list[dict[str, Any]] = [{"trim": {"field": "line"}, "ignoreFailure": True, "when": {"contains": "a"}}] * 60
    assert compile_rules(rules_of([*steps, save(line="string")])).apply(" a ", LineOrigin()) == [("t", [{"line": "a"}])]


def test_a_dropped_line_is_accepted_and_makes_no_row() -> None:
    rules = rules_of([{"drop": {"reason": "noise"}}, save(line="string")])
    assert compile_rules(rules).apply("x", LineOrigin()) == [("t", [Dropped("noise")])]


def test_expressions_see_the_whole_string() -> None:
    steps: list[dict[str, Any]] = [
        {"replace": {"field": "line", "pattern": "^a", "by": "x"}},
        {"split": {"pattern": "^x| +", "names": ["empty", "first", "rest"]}},
    ]
    ((_, rows),) = compile_rules(rules_of([*steps, save(empty="string", first="string", rest="string")])).apply(
        "aa  x b", LineOrigin()
    )
    assert rows == [{"empty": "", "first": "a", "rest": "x b"}]
