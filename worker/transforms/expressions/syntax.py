"""The syntax tree of expressions, as the parser returns it. Positions are offsets in the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from connectors.errors import ConfigInvalid

#: Longest expression, in characters.
MAX_LENGTH: Final = 4096
#: How deep parentheses, operands, lists and calls may stand in one another.
MAX_DEPTH: Final = 24
#: How high the tree may be: operators in a row stand in one another too.
MAX_HEIGHT: Final = 100


class ExpressionInvalid(ConfigInvalid):
    """The expression can't be used.

    Args:
        expression: the expression.
        offset: where it is wrong.
        reason: what is wrong there, and what to write.
    """

    def __init__(self, expression: str, offset: int, reason: str) -> None:
        line = expression.count("\n", 0, offset) + 1
        column = offset - (expression.rfind("\n", 0, offset) + 1) + 1
        shown = expression.split("\n")[line - 1]
        start = max(0, column - 41)
        part = shown[start : start + 80]
        super().__init__(f"line {line}, column {column}: {reason}\n  {part}\n  {' ' * (column - 1 - start)}^")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """A part of an expression: where it begins and where it ends."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Literal(SyntaxNode):
    """A constant. ``exact`` is the text of a number as it was written."""

    value: Any
    exact: str = ""


@dataclass(frozen=True, slots=True)
class NameNode(SyntaxNode):
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class MemberNode(SyntaxNode):
    """``of.name``, or with Groovy's ``?.`` null where ``of`` is null."""

    of: SyntaxNode
    name: str
    safe: bool


@dataclass(frozen=True, slots=True)
class ItemNode(SyntaxNode):
    """``of[index]``."""

    of: SyntaxNode
    index: SyntaxNode


@dataclass(frozen=True, slots=True)
class CallNode(SyntaxNode):
    """``name(arguments)``, or ``of.name(arguments)``."""

    of: SyntaxNode | None
    name: str
    arguments: tuple[SyntaxNode, ...]
    safe: bool
    #: The position of the name.
    at: int


@dataclass(frozen=True, slots=True)
class ItemsNode(SyntaxNode):
    """A list, or the keys and values of a map in turn."""

    items: tuple[SyntaxNode, ...]
    is_map: bool


@dataclass(frozen=True, slots=True)
class Unary(SyntaxNode):
    """``!`` or ``-`` and its operand."""

    operator: str
    operand: SyntaxNode


@dataclass(frozen=True, slots=True)
class Binary(SyntaxNode):
    """Two operands with an operator between them, at position ``at``."""

    operator: str
    left: SyntaxNode
    right: SyntaxNode
    at: int


@dataclass(frozen=True, slots=True)
class ChoiceNode(SyntaxNode):
    """``condition ? then : otherwise``."""

    condition: SyntaxNode
    when_true: SyntaxNode
    otherwise: SyntaxNode


def list_children(node: SyntaxNode) -> tuple[SyntaxNode, ...]:
    """The parts that a part consists of."""
    match node:
        case MemberNode(of=of):
            return (of,)
        case ItemNode(of=of, index=index):
            return of, index
        case CallNode(of=None, arguments=arguments):
            return arguments
        case CallNode(of=target, arguments=arguments) if target is not None:
            return target, *arguments
        case ItemsNode(items=items):
            return items
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return left, right
        case ChoiceNode(condition=condition, when_true=when_true, otherwise=otherwise):
            return condition, when_true, otherwise
    return ()
