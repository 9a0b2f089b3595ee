"""What expressions consist of, as the parser gives it. Positions are offsets in the text."""

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
        text: the expression.
        offset: where it is wrong.
        why: what is wrong there, and what to write.
    """

    def __init__(self, text: str, offset: int, why: str) -> None:
        line = text.count("\n", 0, offset) + 1
        column = offset - (text.rfind("\n", 0, offset) + 1) + 1
        shown = text.split("\n")[line - 1]
        start = max(0, column - 41)
        part = shown[start : start + 80]
        super().__init__(f"line {line}, column {column}: {why}\n  {part}\n  {' ' * (column - 1 - start)}^")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression: where it begins and where it ends."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A constant. ``exact`` is the text of a number as it was written."""

    value: Any
    exact: str = ""


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Member(Node):
    """``of.name``, or with Groovy's ``?.`` null where ``of`` is null."""

    of: Node
    name: str
    safe: bool


@dataclass(frozen=True, slots=True)
class Item(Node):
    """``of[index]``."""

    of: Node
    index: Node


@dataclass(frozen=True, slots=True)
class Call(Node):
    """``name(arguments)``, or ``of.name(arguments)``."""

    of: Node | None
    name: str
    arguments: tuple[Node, ...]
    safe: bool
    #: Where the name stands.
    at: int


@dataclass(frozen=True, slots=True)
class Items(Node):
    """A list, or the keys and values of a map in turn."""

    items: tuple[Node, ...]
    is_map: bool


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """``!`` or ``-`` and what stands behind it."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """Two operands with an operator between them, which stands at ``at``."""

    operator: str
    left: Node
    right: Node
    at: int


@dataclass(frozen=True, slots=True)
class Choice(Node):
    """``condition ? then : otherwise``."""

    condition: Node
    then: Node
    otherwise: Node


def children(node: Node) -> tuple[Node, ...]:
    """The parts that a part consists of."""
    match node:
        case Member(of=of):
            return (of,)
        case Item(of=of, index=index):
            return of, index
        case Call(of=None, arguments=arguments):
            return arguments
        case Call(of=target, arguments=arguments) if target is not None:
            return target, *arguments
        case Items(items=items):
            return items
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return left, right
        case Choice(condition=condition, then=then, otherwise=otherwise):
            return condition, then, otherwise
    return ()
