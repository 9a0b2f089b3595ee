"""The short way from lines to records makes the same records, and the same counts, as the long one."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.api import Position, SourceRecord
from connectors.logs.config import CONFIG
from connectors.logs.connector import LogsConnector
from connectors.logs.direct_rows import FileLines
from connectors.logs.rows import RowMaker
from connectors.logs.rules.built import build_any
from connectors.logs.rules.compiled import compile_group, compile_rows, compile_rules
from connectors.logs.rules.records import LineOrigin
from connectors.testing.contexts import RecordedMetrics
from connectors.text_files.reader import FINGERPRINT, POSITION

PARTITION: Position = {"filename": "/var/log/app.log"}
HEAD = r"^(?P<day>\d+) \[(?P<thread>[^\]]*)\] "


def _group(name: str, pattern: str, *steps: Any) -> dict[str, Any]:
    columns = [
        {"name": "day", "type": "int"},
        {"name": "thread", "optional": True},
        {"name": "user"},
        {"name": "host", "field": "@host"},
        {"name": "at", "field": "@position", "type": "long"},
        {"name": "moment", "field": "day", "type": "datetime", "formats": ["UNIX"], "optional": True},
    ]
    return {"name": name, "steps": [{"regexExtract": {"pattern": pattern}}, *steps, {"saveAs": {"columns": columns}}]}


RULES = {
    "mostCharacters": 60,
    "tables": [
        {
            "name": "logins",
            "groups": [
                _group("in", HEAD + r"login (?P<user>\w+)$"),
                _group("out", HEAD + r"logout (?P<user>\w+)$", {"trim": {"field": "user"}}),
                _group("guest", HEAD + r"guest(?: (?P<user>\w+))?$"),
                _group("dropped", HEAD + r"ping (?P<user>\w+)$", {"drop": {"reason": "ping"}}),
            ],
        },
        {"name": "twice", "groups": [_group("out", HEAD + r"logout (?P<user>a\w*)$")]},
    ],
}
LINES = [
    "1 [main] login ann",
    "2 [main] logout bob",
    "3 [] logout ann",  # accepted by two tables
    "4 [main] guest",  # the user is null: no group accepts it
    "5 [main] guest eve",
    "6 [main] ping x",
    "99999999999 [main] login ann",  # no int
    "7 [main] login \u00fcte",
    "8 [main] login ann\v",
    "9 [main] login ann\n",
    "10 [main] login " + "a" * 60,
    "",
    "nothing",
]


def make_maker(rules: Any, options: dict[str, str]) -> tuple[RowMaker, RecordedMetrics]:
    metrics = RecordedMetrics(LogsConnector.metrics)
    named = {name.replace("_", "."): value for name, value in options.items()}
    config = CONFIG.parse({"topic.prefix": "logs", "rules": "-", **named})
    return RowMaker(compile_rules(build_any(rules)), config, metrics), metrics


def offsets_of(lines: list[str]) -> list[Position]:
    position, offsets = 0, []
    for line in lines:
        position += len(line.encode()) + 1
        offsets.append({POSITION: position, FINGERPRINT: f"{min(position, 40):08x}"})
    return offsets


def both_ways(
    rules: Any, lines: list[str], options: dict[str, str] | None = None, delivered: int = 0
) -> list[tuple[list[SourceRecord], dict[Any, float]]]:
    """Records and metrics: made of all lines at once, and of each line alone by the long way."""
    results = []
    for at_once in (True, False):
        maker, metrics = make_maker(rules, options or {})
        records: list[SourceRecord] = []
        before: Position = {POSITION: 0, FINGERPRINT: "00000000"}
        source = FileLines("web-1", "/var/log/app.log", PARTITION, 1_795_712_405_000)
        offsets = offsets_of(lines)
        if at_once:
            maker.add_file_lines(records, source, before, lines, offsets, delivered)
        else:
            for line, after in zip(lines, offsets, strict=True):
                origin = LineOrigin(source.host, source.path, before[POSITION], source.now)
                name, number = source.name(before, after), before[POSITION]
                maker.add_line(records, PARTITION, before, after, line, origin, name, number, delivered)
                delivered, before = 0, after
        maker.counts.report(lambda: None)
        results.append((records, dict(metrics.series)))
    return results


def assert_same(results: list[tuple[list[SourceRecord], dict[Any, float]]]) -> None:
    (direct, direct_metrics), (long, long_metrics) = results
    assert direct == long
    assert [[*record.value] if type(record.value) is dict else None for record in direct] == [
        [*record.value] if type(record.value) is dict else None for record in long
    ], "the columns are in the same order"
    assert direct_metrics == long_metrics


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_timestamp_column": "moment"},
        {"output": "debezium"},
        {"output": "ums"},
        {"row_key_template": "{user}"},
        {"row_id_column": "identity"},
        {"heartbeat_line": "^nothing"},
    ],
)
def test_all_kinds_of_lines(options: dict[str, str]) -> None:
    results = both_ways(RULES, LINES, options)
    assert_same(results)
    assert len(results[0][0]) > len(LINES) / 2


def test_a_line_that_was_delivered_in_part() -> None:
    results = both_ways(RULES, LINES[2:], delivered=1)
    assert_same(results)
    assert results[0][0][0].topic == "logs.twice"


@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=12))
@example(LINES)
def test_any_order_of_lines(lines: list[str]) -> None:
    assert_same(both_ways(RULES, lines))


def test_groups_that_differ_in_their_expressions_share_a_function() -> None:
    functions = compile_rows(build_any(RULES).groups, "log_id")
    assert functions[3] is None, "a group that drops lines makes no row of them"
    makers = [function.make for function in functions if function is not None]
    assert makers[0] is makers[3], "the same steps"
    assert makers[0] is not makers[1], "one more step"
    assert makers[0] is not makers[2], "its user may be null"


@pytest.mark.parametrize(
    ("pattern", "line", "rows"),
    [
        (r"^(?P<a>x)?(?P<b>y)", "y", None),
        (r"^(?:(?P<a>x)|z)(?P<b>y)", "zy", None),
        (r"^(?:(?P<a>x){0,1})(?P<b>y)", "y", None),
        (r"^(?P<a>x*)(?P<b>y)", "y", {"a": "", "b": "y"}),
        (r"^(?P<a>(?P<b>x)+)", "xx", {"a": "xx", "b": "x"}),
        (r"^(?P<b>(?P<a>x)?)+y", "y", None),
    ],
)
def test_groups_of_an_expression_that_take_no_part(pattern: str, line: str, rows: dict[str, str] | None) -> None:
    rules = {
        "tables": [
            {
                "name": "t",
                "groups": [
                    {
                        "name": "g",
                        "steps": [
                            {"regexExtract": {"pattern": pattern}},
                            {"saveAs": {"columns": [{"name": "a"}, {"name": "b"}]}},
                        ],
                    }
                ],
            }
        ]
    }
    (group,) = build_any(rules).groups
    assert compile_group(group)(line, LineOrigin()) == (None if rows is None else [rows])
    (function,) = compile_rows([group], "id")
    assert function is not None
    assert function.make(line, LineOrigin(), "1", function.matches) == (None if rows is None else {**rows, "id": "1"})
