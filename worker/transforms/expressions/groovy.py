"""The part of Groovy that Debezium's users write most, with Groovy's meaning.

Comparisons, ``&&``, ``||``, ``!``, ``?:`` with a condition, paths with ``.`` and ``?.``, ``startsWith``, ``endsWith`` and
``contains``, ``in`` with a list of strings, ``+`` between strings. All else is refused at validation, with its position. Where
Groovy and CEL differ (order of evaluation, null in comparisons, a character compared with a number) Groovy is followed.

Source: the behaviour of Groovy 4.0 with Debezium 3.5, compared in ``tests/conformance/transforms``.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from connectors.schema import DATE, TIME, TIMESTAMP
from worker.transforms.expressions.parser import parse_expression
from worker.transforms.expressions.paths import Path, PathMatch, Unresolved, make_resolver, path_of
from worker.transforms.expressions.syntax import (
    Binary,
    CallNode,
    ChoiceNode,
    ExpressionInvalid,
    ItemsNode,
    Literal,
    NameNode,
    SyntaxNode,
    Unary,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceRecord

    _Value = Callable[[SourceRecord], Any]

_VARIABLES: Final = ("value", "key", "topic", "header")
_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": operator.contains,
}
_ORDER: Final[dict[str, Callable[[int, int], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_RELATIONS: Final = (*_ORDER, "==", "!=", "in")
_DATES: Final = (DATE, TIME, TIMESTAMP)
#: Names that mean something of Java's own object and not the field.
_JAVA_NAMES: Final = frozenset(("class", "metaClass", "schema", "values"))
_CEL: Final = "write the condition in CEL and set language=cel"


class _Refused(Exception):
    """An operation that Groovy would refuse too, or that can't be done as Groovy does it."""


def compile_groovy(expression: str, tree: SyntaxNode | None = None) -> Callable[[SourceRecord], Any]:
    """Return a function that evaluates an expression for a record, as Groovy would.

    Args:
        expression: the expression.
        tree: the result of ``parse_expression`` with ``groovy``, if it was already parsed.

    Raises:
        ExpressionInvalid: the expression does not have the same meaning here; with the position. The function raises
            ``Skippable`` for records for which Groovy fails, and for those whose values it compares in its own way.
    """
    end_of_line = expression.rstrip().find("\n", len(expression) - len(expression.lstrip()))
    if end_of_line >= 0:
        raise ExpressionInvalid(
            expression, end_of_line, f"Groovy may end the expression with the line: write one line; or {_CEL}"
        )
    evaluate = _GroovyCompiler(expression).value(tree or parse_expression(expression, groovy=True))

    def run(record: SourceRecord) -> Any:
        try:
            return evaluate(record)
        except (Unresolved, _Refused) as error:
            raise Skippable(f"Error while evaluating expression '{expression}': {error}") from None

    return run


@dataclass(frozen=True, slots=True)
class _GroovyCompiler:
    """Makes a function of each part."""

    text: str

    def invalid(self, at: int, reason: str) -> ExpressionInvalid:
        return ExpressionInvalid(self.text, at, f"{reason}; or {_CEL}")

    def value(self, node: SyntaxNode) -> _Value:
        path = path_of(node)
        if path is not None:
            return self._compile_path(node, path)
        match node:
            case NameNode(name=name):
                raise self.invalid(node.start, f"there is no variable {name!r}; there are {', '.join(_VARIABLES)}")
            case Literal(value=value, exact=exact):
                constant = Decimal(exact) if isinstance(value, float) else value
                return lambda _record: constant
            case Unary(operator="!", operand=operand):
                inner = self._compile_condition(operand)
                return lambda record: not inner(record)
            case ChoiceNode(condition=condition, when_true=when_true, otherwise=otherwise):
                test, yes, no = self._compile_condition(condition), self.value(when_true), self.value(otherwise)
                return lambda record: yes(record) if test(record) else no(record)
            case Binary():
                return self._compile_binary(node)
            case CallNode():
                return self._compile_call(node)
        raise self.invalid(node.start, "this can't be taken over from Groovy")

    def _compile_path(self, node: SyntaxNode, path: Path) -> _Value:
        if path.root not in _VARIABLES:
            raise self.invalid(node.start, f"{path.root} can't be taken over from Groovy")
        names = [step.name for step in (path.steps[2:] if path.root == "header" else path.steps)]
        for name in names:
            if name in _JAVA_NAMES:
                raise self.invalid(node.start, f".{name} means Java's object in Groovy, not the field of that name")
        if path.root == "header" and (len(path.steps) < 2 or path.steps[1].name != "value"):
            raise self.invalid(node.start, "of headers only header.NAME.value can be taken over")
        find = make_resolver(path, lenient=True)
        return lambda record: _plain_value(find(record), path)

    def _compile_condition(self, node: SyntaxNode) -> _Value:
        """A part that is true or false; Groovy's other truths are refused, since CEL and Groovy differ there."""
        if not _is_condition(node):
            raise self.invalid(
                node.start,
                "what is here must be a comparison or another condition: write ... == true, ... != null or ... != ''",
            )
        return self.value(node)

    def _compile_binary(self, node: Binary) -> _Value:
        match node.operator:
            case "&&":
                left, right = self._compile_condition(node.left), self._compile_condition(node.right)
                return lambda record: left(record) and right(record)
            case "||":
                left, right = self._compile_condition(node.left), self._compile_condition(node.right)
                return lambda record: left(record) or right(record)
            case "in":
                return self._compile_membership(node)
            case "+":
                return self._compile_join(node)
            case "==" | "!=":
                first, second = self._compile_operands(node)
                is_equality = node.operator == "=="
                return lambda record: is_equal(first(record), second(record)) is is_equality
            case "<" | "<=" | ">" | ">=":
                first, second = self._compile_operands(node)
                test = _ORDER[node.operator]
                return lambda record: test(compare_values(first(record), second(record)), 0)
        raise self.invalid(node.at, f"{node.operator} can't be taken over from Groovy")

    def _compile_operands(self, node: Binary) -> tuple[_Value, _Value]:
        for operand in (node.left, node.right):
            # With parentheses around it, it begins before its left operand. Without, Java groups differently from CEL.
            if isinstance(operand, Binary) and operand.operator in _RELATIONS and operand.start == operand.left.start:
                raise self.invalid(node.at, "comparisons of comparisons need parentheses")
        return self.value(node.left), self.value(node.right)

    def _compile_membership(self, node: Binary) -> _Value:
        items = node.right
        if (
            not isinstance(items, ItemsNode)
            or items.is_map
            or not all(isinstance(item, Literal) and isinstance(item.value, str) for item in items.items)
        ):
            raise self.invalid(
                node.right.start,
                "in can be taken over with a list of strings only: Java tells numbers of different sizes apart there",
            )
        value = self.value(node.left)
        allowed = frozenset(item.value for item in items.items if isinstance(item, Literal))
        return lambda record: isinstance(operand := value(record), str) and operand in allowed

    def _compile_join(self, node: Binary) -> _Value:
        if not _is_text(node.left):
            raise self.invalid(node.at, "+ can be taken over only behind a string that is written out, or topic")
        if isinstance(node.right, Literal) and isinstance(node.right.value, float):
            raise self.invalid(node.right.start, "write the number as a string")
        left, right = self.value(node.left), self.value(node.right)
        return lambda record: left(record) + _format_value(right(record))

    def _compile_call(self, node: CallNode) -> _Value:
        test = _TESTS.get(node.name)
        if test is None or node.of is None or len(node.arguments) != 1 or node.safe:
            raise self.invalid(
                node.at,
                f"{node.name}(...) can't be taken over from Groovy like that; "
                f"there are {', '.join(f'.{name}(text)' for name in _TESTS)}",
            )
        of, argument, name = self.value(node.of), self.value(node.arguments[0]), node.name

        def run(record: SourceRecord) -> bool:
            subject, operand = of(record), argument(record)
            if not isinstance(subject, str) or not isinstance(operand, str):
                raise _Refused(
                    f"{name} needs strings, and there is {_describe_value(subject)} and {_describe_value(operand)}"
                )
            return test(subject, operand)

        return run


def _is_condition(node: SyntaxNode) -> bool:
    match node:
        case Literal(value=bool()) | Unary(operator="!"):
            return True
        case Binary(operator=name):
            return name != "+"
        case CallNode(name=name):
            return name in _TESTS
        case ChoiceNode(when_true=when_true, otherwise=otherwise):
            return _is_condition(when_true) and _is_condition(otherwise)
    return False


def _is_text(node: SyntaxNode) -> bool:
    match node:
        case Literal(value=str()) | NameNode(name="topic"):
            return True
        case Binary(operator="+", left=left):
            return _is_text(left)
    return False


def _plain_value(match: PathMatch, path: Path) -> Any:
    """The value, if comparing it is the same in Groovy."""
    value, schema = match
    if (
        value is None
        or isinstance(value, str | bool | float | Decimal)
        or (isinstance(value, int) and (schema is None or schema.name not in _DATES))
    ):
        return value
    return _Opaque(path)


class _Opaque:
    """A struct, a list, bytes or a date: it is not null, and not a string, number or boolean."""

    def __init__(self, path: Path) -> None:
        self.path = path


def _describe_value(value: Any) -> str:
    if isinstance(value, _Opaque):
        return f"{value.path}, which is no string, number or boolean"
    return {"NoneType": "null", "str": "a string", "bool": "a boolean"}.get(type(value).__name__, "a number")


def _format_value(value: Any) -> str:
    """Return the string that Groovy appends for a value after a string and ``+``."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | int):
        return str(value)
    raise _Refused(
        f"there is {_describe_value(value)} behind a +: only strings, integers and booleans are written as Groovy does"
    )


def is_equal(left: Any, right: Any) -> bool:
    """Groovy's ``==``.

    Raises:
        _Refused: the values are compared in a way of Groovy's own.
    """
    if left is None or right is None:
        return left is right
    if isinstance(left, _Opaque) and isinstance(right, _Opaque):
        raise _Refused(f"{_describe_value(left)} and {_describe_value(right)} can't be compared as Groovy does; {_CEL}")
    if isinstance(left, _Opaque | bool) or isinstance(right, _Opaque | bool):
        return left is right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    left, right = _as_numbers(left, right)
    return not isinstance(left, str) and not isinstance(right, str) and _order_numbers(left, right) == 0


def compare_values(first: Any, second: Any) -> int:
    """Compare as Groovy's ``<=>``: null is before all else.

    Raises:
        _Refused: Groovy can't compare them, or does it in its own way.
    """
    if first is None or second is None:
        return (first is not None) - (second is not None)
    if isinstance(first, str) and isinstance(second, str):
        left, right = first.encode("utf-16-be", "surrogatepass"), second.encode("utf-16-be", "surrogatepass")
        return (left > right) - (left < right)
    if not isinstance(first, _Opaque | bool) and not isinstance(second, _Opaque | bool):
        first, second = _as_numbers(first, second)
        if not isinstance(first, str) and not isinstance(second, str):
            return _order_numbers(first, second)
    raise _Refused(f"{_describe_value(first)} and {_describe_value(second)} can't be compared")


def _as_numbers(left: Any, right: Any) -> tuple[Any, Any]:
    """Convert a string of one character to the character's number where the other operand is a number, as Groovy does."""
    if isinstance(left, str) and not isinstance(right, str):
        return _to_character(left), right
    if isinstance(right, str) and not isinstance(left, str):
        return left, _to_character(right)
    return left, right


def _to_character(string: str) -> Any:
    return ord(string) if len(string) == 1 and ord(string) < 0x10000 else string


def _order_numbers(first: float | Decimal, second: float | Decimal) -> int:
    """Numbers as Groovy compares them: as doubles if one is a double, else exactly; NaN is above all."""
    if isinstance(first, float) or isinstance(second, float):
        left, right = float(first), float(second)
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) - math.isnan(right)
        return (left > right) - (left < right)
    return (first > second) - (first < second)
