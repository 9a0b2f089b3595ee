"""Records of one line without repetitions, also of very many records."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from connectors.logs.rules.built import build_any
from connectors.logs.rules.compiled import compile_rules
from connectors.logs.rules.plans import UniqueRecords
from connectors.logs.rules.records import Dropped, LineOrigin, Record

VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 1.5, "", "1", "a"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


def test_very_many_records_of_a_line_are_compared_in_time() -> None:
    steps: list[Any] = [{"flattenJsonArray": {}}, {"deduplicate": {}}, {"saveAs": {"columns": [{"name": "line"}]}}]
    tables = [{"name": "numbers", "groups": [{"name": "all", "steps": steps}]}]
    rules = compile_rules(build_any({"mostCharacters": 1_048_576, "tables": tables}))
    ((_, rows),) = rules.apply(json.dumps([*range(60_000), *range(60_000)]), LineOrigin())
    assert len(rows) == 60_000


@given(st.lists(st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2), max_size=6))
@example([{"a": [1]}, {"a": [True]}, {"a": {"0": 1}}, {"a": {"0": 1.0}}])
def test_the_first_of_equal_records_stays(records: list[Record]) -> None:
    expected: list[Record] = []
    for record in records:
        if record not in expected:
            expected.append(record)
    given_records: list[Record | Dropped] = [*records]
    assert UniqueRecords(()).apply_all(given_records, LineOrigin()) == expected
