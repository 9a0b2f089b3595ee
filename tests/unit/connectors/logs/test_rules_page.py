"""docs/rules.md: every operator has its options and an example there, and the examples are right."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from connectors.logs.rules.built import BuiltRules, build_rules
from connectors.logs.rules.compiled import compile_rules
from connectors.logs.rules.model import read_rules
from connectors.logs.rules.operators import OPERATORS
from connectors.logs.rules.operators.conditions import Condition
from connectors.logs.rules.operators.saving import Column
from connectors.logs.rules.options import describe_options
from connectors.logs.rules.records import LineOrigin
from connectors.logs.rules.tools.preview import check_golden

PAGE = (Path(__file__).parents[4] / "docs" / "rules.md").read_text()
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def options_table(form: type[msgspec.Struct]) -> str:
    """The table of an operator's options as the page has it."""
    rows = [
        f"| `{option.name}` | {option.type} | {f'`{option.default}`' if option.default else 'required'} | {option.text} |"
        for option in describe_options(form)
    ]
    return "\n".join(["| option | type | default | what it does |", "| -- | -- | -- | -- |", *rows])


def example_of(operator: str) -> dict[str, Any]:
    (block,) = re.findall(r"```yaml\n(.*?)```", SECTIONS[operator], re.DOTALL)
    example: dict[str, Any] = yaml.safe_load(block)
    return example


def rules_of(example: dict[str, Any]) -> BuiltRules:
    table = {"name": "example", "groups": [{"name": "example", "steps": example["steps"]}]}
    golden = [{"line": example["line"], "rows": {"example": example["rows"]}}]
    return build_rules(read_rules({"tables": [table], "golden": golden}))


def test_every_operator_has_a_section() -> None:
    assert list(SECTIONS) == list(OPERATORS)


@pytest.mark.parametrize("operator", OPERATORS)
def test_options_are_listed(operator: str) -> None:
    assert f"{options_table(OPERATORS[operator])}\n" in SECTIONS[operator]


@pytest.mark.parametrize("form", [Condition, Column])
def test_shared_options_are_listed(form: type[msgspec.Struct]) -> None:
    assert options_table(form) in PAGE


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_example_is_right(operator: str) -> None:
    example = example_of(operator)
    assert any(operator in step for step in example["steps"])
    rules = rules_of(example)
    assert check_golden(rules) == []
    accepted = compile_rules(rules).apply(example["line"], LineOrigin())
    assert [table for table, _ in accepted] == ["example"]
