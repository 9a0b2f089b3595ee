"""Functions of users over Arrow batches: which rows they get, what they may give, and rows for which they fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs.contract import SYSTEM_COLUMNS
from spark_jobs.steps.failures import REASON, RowFailure
from spark_jobs.steps.python.code import UserCode, columns_of, make_instance, return_annotation, user_code
from spark_jobs.steps.python.functions import make_row_caller, rewrite_calls
from spark_jobs.steps.python.task import PythonTask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SOURCE = """
from __future__ import annotations
from datetime import date
from decimal import Decimal
from typing import TypedDict
import pyarrow as pa

class Scores(TypedDict):
    score: float
    label: str | None
    day: date
    price: Decimal

def score(rows: pa.RecordBatch) -> Scores:
    return {}

def bare(rows):
    return rows

class Scorer:
    def __init__(self, options={}):
        self.factor = float(options.get("factor", 1))

    def __call__(self, rows) -> Scores:
        return self.factor

number = 7
"""


def rows_of(ops: str, amounts: Sequence[int | None]) -> pa.RecordBatch:
    count = len(ops)
    columns = {"c0": pa.array(range(count), pa.int64()), "c1": pa.array(amounts, pa.int64())}
    columns |= {name: pa.nulls(count, pa.string()) for name in SYSTEM_COLUMNS}
    return pa.RecordBatch.from_pydict(columns | {"ums_op_": pa.array(list(ops), pa.string())})


def task(
    *, guarded: bool = False, outputs: Any = (("twice", "bigint"),), positions: tuple[int, ...] = (2,)
) -> PythonTask:
    return PythonTask("p", UserCode("f", path="x.py"), {}, ("id", "amount"), outputs, positions, guarded)


def answered(chosen: PythonTask, rows: pa.RecordBatch, function: Callable[[Any], Any]) -> dict[str, list[Any]]:
    return {
        name: values for name, values in chosen.answer(rows, function).to_pydict().items() if name not in SYSTEM_COLUMNS
    }


def twice(rows: pa.RecordBatch) -> dict[str, Any]:
    return {"twice": pc.multiply(rows["amount"], 2)}


def test_inserts_and_updates_are_given_under_their_names() -> None:
    passed: list[Any] = []

    def function(rows: pa.RecordBatch) -> pa.RecordBatch:
        passed.append(rows.to_pydict())
        return pa.RecordBatch.from_pydict(twice(rows))

    rows = rows_of("ibud", [1, 2, 3, 4])
    assert answered(task(), rows, function) == {
        "c0": [0, 1, 2, 3],
        "c1": [1, 2, 3, 4],
        "c2": [2, None, 6, None],
    }
    (batch,) = passed
    assert (batch["id"], batch["amount"], batch["ums_op_"]) == ([0, 2], [1, 3], ["i", "u"])


def test_columns_are_replaced_and_cast() -> None:
    chosen = task(outputs=(("more", "string"), ("amount", "double")), positions=(2, 1))
    result = answered(chosen, rows_of("id", [1, 2]), lambda rows: {"more": ["a"], "amount": rows["amount"]})
    assert result == {"c0": [0, 1], "c1": [1.0, None], "c2": ["a", None]}


def test_batches_without_rows_for_the_function() -> None:
    def never(rows: Any) -> Any:
        raise AssertionError(rows)

    assert answered(task(), rows_of("db", [1, 2]), never)["c2"] == [None, None]
    assert answered(task(), rows_of("", []), never)["c2"] == []


def test_rows_that_fail_are_found_one_by_one() -> None:
    def function(rows: pa.RecordBatch) -> dict[str, Any]:
        if 13 in rows["amount"].to_pylist():
            raise ValueError("13 is bad")
        return twice(rows)

    amounts = [1, 13, 3, 4, 13, 6, 13]
    result = answered(task(guarded=True), rows_of("iiuiidi", amounts), function)
    bad = "f of x.py: ValueError: 13 is bad"
    assert result["c2"] == [2, None, 6, 8, None, None, None]
    assert result[REASON] == [None, bad, None, None, bad, None, bad]
    with pytest.raises(RowFailure, match="13 is bad"):
        answered(task(), rows_of("iiuiidi", amounts), function)
    assert answered(task(guarded=True), rows_of("i", [1]), function)[REASON] == [None]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: {"other": rows["amount"]}, "gives no column twice"),
        (lambda _: None, "gives no column twice"),
        (lambda _: {"twice": [1]}, "gives 1 values in the column twice for 2 rows"),
    ],
)
def test_results_that_fit_no_rows_stop_the_job(function: Callable[[Any], Any], message: str) -> None:
    for guarded in (False, True):
        with pytest.raises(Fatal, match=message):
            answered(task(guarded=guarded), rows_of("ii", [1, 2]), function)


def test_code_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "scores.py"
    file.write_text(SOURCE)
    code = user_code(str(file), "score")
    assert columns_of(return_annotation(code.load())) == [
        ("score", "double"),
        ("label", "string"),
        ("day", "date"),
        ("price", "decimal(38,18)"),
    ]
    assert columns_of(return_annotation(user_code(str(file), "bare").load())) is None
    scorer = user_code(str(file), "Scorer").load()
    assert [make_instance(scorer, options)(None) for options in ({}, {"factor": "2"})] == [1.0, 2.0]
    assert columns_of(return_annotation(scorer)) == columns_of(return_annotation(code.load()))
    file.write_text(SOURCE.replace("number = 7", "number = 8"))
    changed = user_code(str(file), "score")
    assert changed.load() is not code.load()
    with pytest.raises(Fatal, match=r"number of .* is no function"):
        user_code(str(file), "number").load()


@pytest.mark.parametrize(
    ("text", "function", "message"),
    [
        ("def f(x:\n", "f", r"scores.py:1: "),
        ("def g(): pass", "f", "defines no f; it defines g"),
        (None, "f", "can't be read"),
    ],
)
def test_files_that_are_refused_before_the_start(tmp_path: Path, text: str | None, function: str, message: str) -> None:
    file = tmp_path / "scores.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigInvalid, match=message):
        user_code(str(file), function)


def test_modules_and_entry_points() -> None:
    assert user_code(None, "os.path:join").load()("a", "b") == "a/b"
    with pytest.raises(ConfigInvalid, match=r"no entry point nothing in the group millrace\.functions"):
        user_code(None, "nothing")
    with pytest.raises(Fatal, match="has no nothing"):
        user_code(None, "os:nothing").load()
    with pytest.raises(Fatal, match="can't be loaded: ModuleNotFoundError"):
        user_code(None, "no_such_module:f").load()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("upper(c1)", "upper(c1)"),
        (
            "Initials(c1, 'x')",
            (
                "IF(millrace_udf_initials(c1, 'x').error IS NULL, millrace_udf_initials(c1, 'x').value, "
                "raise_error(millrace_udf_initials(c1, 'x').error))"
            ),
        ),
        ("concat(c1, 'initials(c1)')", "concat(c1, 'initials(c1)')"),
    ],
)
def test_calls_of_functions_in_sql(sql: str, expected: str) -> None:
    assert rewrite_calls(sql, frozenset({"initials"})) == expected


def test_nested_calls_of_functions_in_sql() -> None:
    result = rewrite_calls("1 + f(g(c1))", frozenset({"f", "g"}))
    assert "millrace_udf_f(IF(millrace_udf_g(c1).error IS NULL" in result
    assert " g(" not in result


def test_a_failing_function_gives_its_error() -> None:
    call = make_row_caller(UserCode("loads", module="json"), "bigint")
    assert call("7") == (7, None)
    assert call("null") == (None, None)
    assert call("[1]") == (
        None,
        (
            "loads of json: Unsuited: the value '[1]' is no bigint (int() argument must be a string, a "
            "bytes-like object or a real number, not 'list')"
        ),
    )
    value, error = call("{")
    assert value is None
    assert (error or "").startswith("loads of json: JSONDecodeError: ")
