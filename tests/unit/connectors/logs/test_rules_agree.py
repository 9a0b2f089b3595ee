"""The preview and the compiled functions make the same rows of the same lines, whatever rules and lines there are."""

from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from connectors.logs.rules.built import BuiltRules, build_rules
from connectors.logs.rules.compiled import compile_rules
from connectors.logs.rules.model import read_rules
from connectors.logs.rules.records import Dropped, LineOrigin, Record
from connectors.logs.rules.tools.interpreted import explain_line
from connectors.logs.rules.tools.preview import preview_rules

ORIGIN = LineOrigin("web-1", "/var/log/app.log", 120, 1_795_712_405_000)
#: Names that steps use, so that they often meet.
NAMES = st.sampled_from(["line", "a", "b", "c", "0", "@host"])
FIELDS = st.one_of(NAMES, st.integers(-3, 3))
STRINGS = st.text(alphabet=' ab,=01-:{}[]"%\n\v\u0661', max_size=6)
NON_EMPTY = st.text(alphabet=" ab,=01", min_size=1, max_size=2)
PATTERNS = st.sampled_from(
    [
        r"^(?P<a>\S+) (?P<b>.*)$",
        r"(?P<a>[a-z]+)=(?P<b>\d+)?",
        r"(\w+)\s(\w*)",
        r"(?P<c>(?:a|ab)+)b",
        r"^(?P<a>.*?),(?P<b>.*?),(?P<c>.*)$",
        r"(a+)+$",
    ]
)
CONDITIONS = st.one_of(
    st.fixed_dictionaries({"field": FIELDS, "contains": STRINGS}, optional={"not": st.booleans()}),
    st.fixed_dictionaries({"field": FIELDS, "matches": PATTERNS}, optional={"not": st.booleans()}),
    st.fixed_dictionaries({"field": FIELDS, "equals": STRINGS}),
)


def _operator(name: str, **options: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(options).map(lambda values: {name: values})


STEPS = st.one_of(
    CONDITIONS.map(lambda condition: {"filter": condition}),
    _operator("keyFilter", field=FIELDS, key=st.sampled_from(["$.a", "b[0]", "$.*"]), equals=STRINGS),
    _operator("flattenJsonArray", field=FIELDS, path=st.sampled_from(["$", "$.a"])),
    _operator("flattenUms", field=FIELDS),
    _operator("jsonPath", field=FIELDS, paths=st.just({"a": "$.a", "b": "$.b[0]"}), keep=st.booleans()),
    _operator("regexExtract", field=FIELDS, pattern=PATTERNS, keep=st.booleans()),
    _operator("split", field=FIELDS, by=NON_EMPTY, keep=st.booleans()),
    _operator("split", field=FIELDS, pattern=st.sampled_from(["[ ,]+", "=", "b*"]), names=st.just(["a", "b"])),
    _operator("subString", field=FIELDS, start=st.one_of(st.integers(-3, 5), NON_EMPTY), end=st.none() | NON_EMPTY),
    _operator("trim", field=FIELDS, side=st.sampled_from(["both", "left", "right", "all"])),
    _operator("replace", field=FIELDS, pattern=PATTERNS, by=st.sampled_from(["x", "<$1>"])),
    _operator("replace", field=FIELDS, string=NON_EMPTY, by=STRINGS, target=st.sampled_from(["", "c"])),
    _operator("concat", fields=st.lists(FIELDS, min_size=1, max_size=3), target=st.just("c"), separator=STRINGS),
    _operator("select", fields=st.lists(FIELDS, min_size=1, max_size=3)),
    _operator("excludeField", fields=st.lists(FIELDS, min_size=1, max_size=2)),
    _operator("prefixOrAppend", field=FIELDS, before=NON_EMPTY),
    _operator("toIndex", fields=st.lists(FIELDS, max_size=2)),
    _operator(
        "grok", field=FIELDS, pattern=st.sampled_from(["%{WORD:a} %{NUMBER:b:int}", "%{IP:c}", "%{DATA:a},%{DATA:b}"])
    ),
    _operator("dissect", field=FIELDS, pattern=st.sampled_from(["%{a} %{b}", "%{a->}=%{}", "a%{c}"])),
    _operator("date", field=FIELDS, formats=st.sampled_from([["HH:mm"], ["UNIX", "ISO8601"]])),
    _operator("json", field=FIELDS, flatten=st.booleans(), keep=st.booleans()),
    _operator("logfmt", field=FIELDS),
    _operator("keyValue", field=FIELDS, pair=st.sampled_from([",", " "])),
    _operator("csv", field=FIELDS, names=st.just(["a", "b"])),
    _operator("url", field=NAMES),
    _operator("convert", field=FIELDS, type=st.sampled_from(["int", "double", "boolean", "string"])),
    _operator("rename", fields=st.just({"a": "c"})),
    _operator("set", fields=st.just({"c": "{a}-{@file}", "d": "{{x}}"})),
    _operator("deduplicate", fields=st.lists(NAMES, max_size=1)),
    _operator("drop", reason=st.just("not needed")),
    _operator("mask", field=FIELDS, type=st.just("chars"), length=st.just(3)),
)
WRAPPED = st.tuples(
    STEPS, st.fixed_dictionaries({}, optional={"when": CONDITIONS, "ignoreFailure": st.booleans()})
).map(lambda parts: {**parts[0], **parts[1]})
COLUMN = st.fixed_dictionaries(
    {"name": st.sampled_from(["x", "y"])},
    optional={
        "field": FIELDS,
        "type": st.sampled_from(["string", "int", "double", "decimal", "datetime"]),
        "optional": st.just(True),
    },
)
COLUMNS = st.lists(COLUMN, min_size=1, max_size=2, unique_by=lambda column: column["name"])
JSON_LINES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), STRINGS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "c", "@host"]), inner, max_size=3)
    ),
    max_leaves=6,
).map(lambda value: msgspec.json.encode(value).decode())
LINES = st.one_of(STRINGS, JSON_LINES, st.sampled_from(["a=1 b=2", "ab 12", "a,b,c", "12:30", "aaaaaaaab", "a b\v"]))


def _usable(steps: list[list[dict[str, Any]]], columns: list[dict[str, Any]], when_optional: bool) -> BuiltRules | None:
    """A rule set of those groups that the check accepts; the others can't be run."""
    groups = []
    for number, group in enumerate(steps):
        chosen = columns if not when_optional else [{**column, "optional": True} for column in columns]
        document = {"name": f"g{number}", "steps": [*group, {"saveAs": {"columns": chosen}}]}
        try:
            build_rules(read_rules({"tables": [{"name": "t", "groups": [document]}]}))
        except ConfigInvalid:
            continue
        groups.append(document)
    if not groups:
        return None
    tables = [{"name": "t", "groups": groups}, {"name": "u", "groups": groups[::-1]}]
    return build_rules(read_rules({"tables": tables}))


def _normal(rows: list[tuple[str, list[Record | Dropped]]]) -> list[tuple[str, list[Record], int]]:
    """Rows in order, and how many records were dropped: compiled code may drop one earlier."""
    return [
        (
            table,
            [row for row in rows_of_table if not isinstance(row, Dropped)],
            sum(isinstance(row, Dropped) for row in rows_of_table),
        )
        for table, rows_of_table in rows
    ]


@given(
    st.lists(st.lists(WRAPPED, max_size=5), min_size=1, max_size=4),
    COLUMNS,
    st.booleans(),
    st.lists(LINES, min_size=1, max_size=6),
)
@example(
    [[{"flattenJsonArray": {}}, {"filter": {"field": "a", "contains": "1"}}, {"deduplicate": {}}]],
    [{"name": "x", "field": "a"}],
    False,
    ['[{"a": "1"}, {"a": "1"}, {"a": "2"}]'],
)
@example(
    [[{"filter": {"field": "a", "contains": ""}, "ignoreFailure": True}, {"deduplicate": {"fields": ["a"]}}]],
    [{"name": "x", "field": "line"}],
    False,
    [""],
)
def test_interpreted_and_compiled_rules_agree(
    steps: list[list[dict[str, Any]]], columns: list[dict[str, Any]], optional: bool, lines: list[str]
) -> None:
    rules = _usable(steps, columns, optional)
    if rules is None:
        return
    compiled = compile_rules(rules)
    preview = preview_rules(rules, lines, [ORIGIN] * len(lines))
    for line, shown in zip(lines, preview.lines, strict=True):
        interpreted = _normal(explain_line(rules, line, ORIGIN)[0])
        assert _normal(compiled.apply(line, ORIGIN)) == interpreted
        assert shown.rows == {table: rows_of_table for table, rows_of_table, _ in interpreted}
        assert shown.unknown is not bool(interpreted)
