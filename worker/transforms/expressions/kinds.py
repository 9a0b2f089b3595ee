"""The kind of value that an expression has, as far as it follows from its text."""

from __future__ import annotations

from typing import Final

from worker.transforms.expressions.syntax import Binary, CallNode, ChoiceNode, ItemsNode, Literal, SyntaxNode, Unary

_ARITHMETIC: Final = ("+", "-", "*", "/", "%")
_TESTS: Final = ("has", "startsWith", "endsWith", "contains", "matches", "exists", "all", "exists_one")
_STRING_FUNCTIONS: Final = ("string", "type", "lowerAscii", "upperAscii")
_VALUES: Final = ("size", "int", "uint", "double", "bytes", "timestamp", "duration")


def kind_of(node: SyntaxNode) -> str | None:
    """``condition``, ``text``, ``other`` (a number, a list ...) or ``null``; None where the record decides."""
    match node:
        case Literal(value=value):
            return (
                "null"
                if value is None
                else "condition"
                if isinstance(value, bool)
                else ("text" if isinstance(value, str) else "other")
            )
        case ItemsNode():
            return "other"
        case Unary(operator=operator):
            return "condition" if operator == "!" else "other"
        case Binary(operator="+", left=left, right=right):
            kinds = {kind_of(left), kind_of(right)}
            return "text" if "text" in kinds else "other" if "other" in kinds else None
        case Binary(operator=operator):
            return "other" if operator in _ARITHMETIC else "condition"
        case CallNode(name=name):
            return (
                "condition"
                if name in _TESTS
                else "text"
                if name in _STRING_FUNCTIONS
                else "other"
                if name in _VALUES
                else None
            )
        case ChoiceNode(when_true=when_true, otherwise=otherwise):
            kinds = {kind_of(when_true), kind_of(otherwise)}
            return kinds.pop() if len(kinds) == 1 else None
    return None
