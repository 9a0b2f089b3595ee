"""Complaints about rules: which table, group, step and option, and how to fix it."""

from __future__ import annotations

from typing import NamedTuple

from connectors.errors import ConfigInvalid


class OperatorOptionInvalid(Exception):
    """An option of an operator is wrong; whoever knows the step adds where it is.

    Attributes:
        option: its name, or "" if it is not about a single one.
        message: what is wrong and how to fix it.
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option
        self.message = message


class RuleProblem(NamedTuple):
    """One complaint about a rule set.

    Attributes:
        table: the table's name, or "" if it is about the whole rule set.
        group: the group's name, or "".
        step: the step's number in its group from 1, or 0.
        operator: its operator, or "".
        option: the option, or "".
        message: what is wrong and how to fix it.
    """

    table: str
    group: str
    step: int
    operator: str
    option: str
    message: str

    def __str__(self) -> str:
        parts = [
            f"table {self.table}" if self.table else "",
            f"group {self.group}" if self.group else "",
            f"step {self.step}" if self.step else "",
            self.operator,
            f"option {self.option}" if self.option else "",
        ]
        where = ", ".join(part for part in parts if part)
        return f"{where}: {self.message}" if where else self.message


class RulesInvalid(ConfigInvalid):
    """A rule set can't be used.

    Attributes:
        problems: every complaint.
    """

    def __init__(self, rule_set: str, problems: list[RuleProblem]) -> None:
        super().__init__("\n".join(f"rule set {rule_set}: {problem}" for problem in problems))
        self.problems = problems
