"""The builder of generated functions."""

from __future__ import annotations

import gc
import re
import traceback
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.codegen import DUMP_FOLDER, CodeBuilder, dict_display, indent_lines, unpack_names

ROOT = Path(__file__).parents[3]


def test_values_are_bound_to_new_names() -> None:
    code = CodeBuilder(start=40)
    first, second = code.bind("step", 1), code.bind("step", 1)
    code.define("total()", [f"return start + {first} + {second}"])
    assert first != second
    assert code.function("total", "a sum")() == 42


def test_tracebacks_show_generated_lines() -> None:
    code = CodeBuilder()
    code.define("divide(value)", ["quotient = 1 / value", "return quotient"])
    divide = code.function("divide", "rows of a\nb/`c`")
    with pytest.raises(ZeroDivisionError) as error:
        divide(0)
    shown = "".join(traceback.format_exception(error.value))
    assert "    quotient = 1 / value" in shown
    assert "rows_of_a_b_c" in shown


def test_a_traceback_finds_the_note_of_its_line() -> None:
    code = CodeBuilder()
    code.add(0, "def first(row):")
    code.add(1, "a = row[0]", "column a")
    code.add(1, "b = row[1]", "column b")
    code.add(1, "return a, b")
    first = code.function("first", "rows")
    with pytest.raises(IndexError) as error:
        first(["only one"])
    assert code.find_note(error.value.__traceback__) == "column b"
    assert code.find_note(None) == ""


def test_the_same_source_is_compiled_once_for_other_values() -> None:
    def scale(by: int, title: str = "scale") -> Any:
        code = CodeBuilder(by=by)
        code.define("scale(value)", ["return by * value"])
        return code.function("scale", title)

    two, three = scale(2), scale(3)
    assert (two(5), three(5)) == (10, 15)
    assert two.__code__ is three.__code__
    assert "generated/other-" in scale(2, "other").__code__.co_filename, "tracebacks show the title"


def test_source_is_written_to_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DUMP_FOLDER, str(tmp_path / "generated"))
    code = CodeBuilder()
    code.define("one()", ["return 1"])
    code.function("one", "rows of shop.orders")
    (file,) = (tmp_path / "generated").iterdir()
    assert file.name.startswith("rows_of_shop.orders-")
    assert file.read_text() == "def one():\n    return 1\n"


def test_functions_are_not_kept_alive() -> None:
    code = CodeBuilder()
    code.define("one()", ["return 1"])
    function = weakref.ref(code.function("one", "rows"))
    del code
    gc.collect()
    assert function() is None


@given(st.dictionaries(st.text(), st.integers()))
def test_any_name_can_be_a_key(members: dict[str, int]) -> None:
    code = CodeBuilder()
    code.define(
        "made()", [f"return {dict_display((name, code.bind('value', value)) for name, value in members.items())}"]
    )
    assert code.function("made", "any names")() == members


@pytest.mark.parametrize("count", [0, 1, 3])
def test_names_are_unpacked(count: int) -> None:
    code = CodeBuilder()
    names = unpack_names("v", count)
    code.define("copy(values)", [f"{names} = values", f"return {names}"])
    values: tuple[Any, ...] = tuple(range(count))
    assert code.function("copy", "values")(values) == values


def test_lines_are_indented() -> None:
    assert indent_lines(["a", "    b"], 2) == ["        a", "            b"]


def test_generated_code_is_compiled_in_one_place_only() -> None:
    code_of_users = "spark_jobs/steps/python/code.py"  # what a step of type python names; it is not generated
    calls = re.compile(r"(?<![\w.])exec\(")
    users = [
        path.relative_to(ROOT).as_posix()
        for folder in ("connectors", "worker", "spark_jobs", "offsets", "compose")
        for path in (ROOT / folder).rglob("*.py")
        if calls.search(path.read_text(encoding="utf-8"))
    ]
    assert sorted(users) == ["connectors/codegen.py", code_of_users]
