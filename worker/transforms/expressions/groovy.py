"""The part of Groovy that Debezium's users write most, with Groovy's meaning.

Comparisons, ``&&``, ``||``, ``!``, ``?:`` with a condition, paths with ``.`` and ``?.``, ``startsWith``, ``endsWith`` and
``contains``, ``in`` with a list of texts, ``+`` between texts. All else is refused at validation with the place. Where Groovy
and CEL differ (order of evaluation, null in comparisons, a character compared with a number) Groovy is followed.

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
from worker.transforms.expressions.parser import parse
from worker.transforms.expressions.paths import Found, Path, Unresolved, path_of, resolver
from worker.transforms.expressions.syntax import (
    Binary,
    Call,
    Choice,
    ExpressionInvalid,
    Items,
    Literal,
    Name,
    Node,
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
    """What Groovy would refuse too, or what can't be done as Groovy does it."""


def compile_groovy(text: str, tree: Node | None = None) -> Callable[[SourceRecord], Any]:
    """A function that gives an expression's value for a record, as Groovy would.

    Args:
        text: the expression.
        tree: what ``parse`` made of it with ``groovy``, if that is there already.

    Raises:
        ExpressionInvalid: it is none of those that have the same meaning here; with the place. The function raises
            ``Skippable`` for records for which Groovy fails, and for those whose values it compares in a way of its own.
    """
    end_of_line = text.rstrip().find("\n", len(text) - len(text.lstrip()))
    if end_of_line >= 0:
        raise ExpressionInvalid(
            text, end_of_line, f"Groovy may end the expression with the line: write one line; or {_CEL}"
        )
    evaluate = _Compiler(text).value(tree or parse(text, groovy=True))

    def run(record: SourceRecord) -> Any:
        try:
            return evaluate(record)
        except (Unresolved, _Refused) as error:
            raise Skippable(f"Error while evaluating expression '{text}': {error}") from None

    return run


@dataclass(frozen=True, slots=True)
class _Compiler:
    """Makes a function of each part."""

    text: str

    def invalid(self, at: int, why: str) -> ExpressionInvalid:
        return ExpressionInvalid(self.text, at, f"{why}; or {_CEL}")

    def value(self, node: Node) -> _Value:
        path = path_of(node)
        if path is not None:
            return self._path(node, path)
        match node:
            case Name(name=name):
                raise self.invalid(node.start, f"there is no variable {name!r}; there are {', '.join(_VARIABLES)}")
            case Literal(value=value, exact=exact):
                constant = Decimal(exact) if isinstance(value, float) else value
                return lambda _record: constant
            case Unary(operator="!", operand=operand):
                inner = self._condition(operand)
                return lambda record: not inner(record)
            case Choice(condition=condition, then=then, otherwise=otherwise):
                test, yes, no = self._condition(condition), self.value(then), self.value(otherwise)
                return lambda record: yes(record) if test(record) else no(record)
            case Binary():
                return self._binary(node)
            case Call():
                return self._call(node)
        raise self.invalid(node.start, "this can't be taken over from Groovy")

    def _path(self, node: Node, path: Path) -> _Value:
        if path.root not in _VARIABLES:
            raise self.invalid(node.start, f"{path.root} can't be taken over from Groovy")
        names = [step.name for step in (path.steps[2:] if path.root == "header" else path.steps)]
        for name in names:
            if name in _JAVA_NAMES:
                raise self.invalid(node.start, f".{name} means Java's object in Groovy, not the field of that name")
        if path.root == "header" and (len(path.steps) < 2 or path.steps[1].name != "value"):
            raise self.invalid(node.start, "of headers only header.NAME.value can be taken over")
        find = resolver(path, lenient=True)
        return lambda record: _plain(find(record), path)

    def _condition(self, node: Node) -> _Value:
        """A part that is true or false; Groovy's other truths are refused, since CEL and Groovy differ there."""
        if not _is_condition(node):
            raise self.invalid(
                node.start,
                "what stands here must be a comparison or another condition: write ... == true, "
                "... != null or ... != ''",
            )
        return self.value(node)

    def _binary(self, node: Binary) -> _Value:
        match node.operator:
            case "&&":
                left, right = self._condition(node.left), self._condition(node.right)
                return lambda record: left(record) and right(record)
            case "||":
                left, right = self._condition(node.left), self._condition(node.right)
                return lambda record: left(record) or right(record)
            case "in":
                return self._membership(node)
            case "+":
                return self._joined(node)
            case "==" | "!=":
                one, other = self._operands(node)
                wanted = node.operator == "=="
                return lambda record: equal(one(record), other(record)) is wanted
            case "<" | "<=" | ">" | ">=":
                one, other = self._operands(node)
                test = _ORDER[node.operator]
                return lambda record: test(compare(one(record), other(record)), 0)
        raise self.invalid(node.at, f"{node.operator} can't be taken over from Groovy")

    def _operands(self, node: Binary) -> tuple[_Value, _Value]:
        for operand in (node.left, node.right):
            # With parentheses around it, it begins before its left operand. Without, Java groups differently from CEL.
            if isinstance(operand, Binary) and operand.operator in _RELATIONS and operand.start == operand.left.start:
                raise self.invalid(node.at, "comparisons of comparisons need parentheses")
        return self.value(node.left), self.value(node.right)

    def _membership(self, node: Binary) -> _Value:
        items = node.right
        if (
            not isinstance(items, Items)
            or items.is_map
            or not all(isinstance(item, Literal) and isinstance(item.value, str) for item in items.items)
        ):
            raise self.invalid(
                node.right.start,
                "in can be taken over with a list of texts only: Java tells numbers of different sizes apart there",
            )
        value = self.value(node.left)
        allowed = frozenset(item.value for item in items.items if isinstance(item, Literal))
        return lambda record: isinstance(found := value(record), str) and found in allowed

    def _joined(self, node: Binary) -> _Value:
        if not _is_text(node.left):
            raise self.invalid(node.at, "+ can be taken over only behind a text that is written out, or topic")
        if isinstance(node.right, Literal) and isinstance(node.right.value, float):
            raise self.invalid(node.right.start, "write the number as a text")
        left, right = self.value(node.left), self.value(node.right)
        return lambda record: left(record) + _shown(right(record))

    def _call(self, node: Call) -> _Value:
        test = _TESTS.get(node.name)
        if test is None or node.of is None or len(node.arguments) != 1 or node.safe:
            raise self.invalid(
                node.at,
                f"{node.name}(...) can't be taken over from Groovy like that; "
                f"there are {', '.join(f'.{name}(text)' for name in _TESTS)}",
            )
        of, argument, name = self.value(node.of), self.value(node.arguments[0]), node.name

        def run(record: SourceRecord) -> bool:
            subject, wanted = of(record), argument(record)
            if not isinstance(subject, str) or not isinstance(wanted, str):
                raise _Refused(f"{name} needs texts, and there is {_noun(subject)} and {_noun(wanted)}")
            return test(subject, wanted)

        return run


def _is_condition(node: Node) -> bool:
    match node:
        case Literal(value=bool()) | Unary(operator="!"):
            return True
        case Binary(operator=name):
            return name != "+"
        case Call(name=name):
            return name in _TESTS
        case Choice(then=then, otherwise=otherwise):
            return _is_condition(then) and _is_condition(otherwise)
    return False


def _is_text(node: Node) -> bool:
    match node:
        case Literal(value=str()) | Name(name="topic"):
            return True
        case Binary(operator="+", left=left):
            return _is_text(left)
    return False


def _plain(found: Found, path: Path) -> Any:
    """The value, if comparing it is the same in Groovy."""
    value, schema = found
    if (
        value is None
        or isinstance(value, str | bool | float | Decimal)
        or (isinstance(value, int) and (schema is None or schema.name not in _DATES))
    ):
        return value
    return _Opaque(path)


class _Opaque:
    """A struct, a list, bytes or a date: it is not null, and no text, number or boolean."""

    def __init__(self, path: Path) -> None:
        self.path = path


def _noun(value: Any) -> str:
    if isinstance(value, _Opaque):
        return f"{value.path}, which is no text, number or boolean"
    return {"NoneType": "null", "str": "a text", "bool": "a boolean"}.get(type(value).__name__, "a number")


def _shown(value: Any) -> str:
    """What Groovy writes for a value behind a text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | int):
        return str(value)
    raise _Refused(f"there is {_noun(value)} behind a +: only texts, integers and booleans are written as Groovy does")


def equal(one: Any, other: Any) -> bool:
    """Groovy's ``==``.

    Raises:
        _Refused: the values are compared in a way of Groovy's own.
    """
    if one is None or other is None:
        return one is other
    if isinstance(one, _Opaque) and isinstance(other, _Opaque):
        raise _Refused(f"{_noun(one)} and {_noun(other)} can't be compared as Groovy does; {_CEL}")
    if isinstance(one, _Opaque | bool) or isinstance(other, _Opaque | bool):
        return one is other
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    one, other = _as_numbers(one, other)
    return not isinstance(one, str) and not isinstance(other, str) and _order(one, other) == 0


def compare(one: Any, other: Any) -> int:
    """Groovy's ``<=>``: null stands before all else.

    Raises:
        _Refused: Groovy can't compare them, or does it in a way of its own.
    """
    if one is None or other is None:
        return (one is not None) - (other is not None)
    if isinstance(one, str) and isinstance(other, str):
        left, right = one.encode("utf-16-be", "surrogatepass"), other.encode("utf-16-be", "surrogatepass")
        return (left > right) - (left < right)
    if not isinstance(one, _Opaque | bool) and not isinstance(other, _Opaque | bool):
        one, other = _as_numbers(one, other)
        if not isinstance(one, str) and not isinstance(other, str):
            return _order(one, other)
    raise _Refused(f"{_noun(one)} and {_noun(other)} can't be compared")


def _as_numbers(one: Any, other: Any) -> tuple[Any, Any]:
    """Beside a number Groovy takes a text of one character for the character's number."""
    if isinstance(one, str) and not isinstance(other, str):
        return _character(one), other
    if isinstance(other, str) and not isinstance(one, str):
        return one, _character(other)
    return one, other


def _character(text: str) -> Any:
    return ord(text) if len(text) == 1 and ord(text) < 0x10000 else text


def _order(one: float | Decimal, other: float | Decimal) -> int:
    """Numbers as Groovy compares them: as doubles if one is a double, else exactly; NaN is above all."""
    if isinstance(one, float) or isinstance(other, float):
        left, right = float(one), float(other)
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) - math.isnan(right)
        return (left > right) - (left < right)
    return (one > other) - (one < other)
