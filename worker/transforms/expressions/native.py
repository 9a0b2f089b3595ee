"""CEL conditions that Python can evaluate as well as the library: comparisons of strings and whole numbers with constants.

Handing values over to the library costs more than most conditions do. So for each schema a function is generated that returns
the result where it is certain: each value that it reads exists and has the type of the constant it is compared with.
For all else it calls the library, which also writes the errors. As in CEL, the right operand of ``&&`` and ``||`` does not
count once the left operand has decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.codegen import CodeBuilder
from worker.transforms.base import SchemaCache
from worker.transforms.expressions.paths import Path, path_of, walk_of
from worker.transforms.expressions.syntax import Binary, CallNode, ChoiceNode, ItemsNode, Literal, SyntaxNode, Unary

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceRecord
    from connectors.schema import Schema

    _Evaluate = Callable[[SourceRecord], Any]

_INT64: Final = 1 << 63
_TEXT_TESTS: Final = {"startsWith": "{}.startswith({})", "endsWith": "{}.endswith({})", "contains": "{1} in {0}"}
_SAME: Final = ("==", "!=")
_ORDER: Final = ("<", "<=", ">", ">=")
#: The highest number of comparisons in a condition: it bounds the cost of generating the function.
_MOST_VALUES: Final = 40


class _NotNative(Exception):
    """The expression has a part that is left to the library."""


class _Doubt(Exception):
    """This record is left to the library."""


def _raise_doubt() -> Any:
    raise _Doubt


def _is_unicode(string: str) -> bool:
    string.encode()  # a UnicodeError for halves of characters: the library refuses them
    return True


class _NativeGenerator:
    """One walk over the tree, for one schema of values."""

    def __init__(self, expression: str, schema: Schema | None, searches: dict[str, Callable[[str], object]]) -> None:
        self.text = expression
        self.schema = schema
        self.searches = searches
        self.code = CodeBuilder(doubt=_raise_doubt, is_unicode=_is_unicode)
        self.count = 0

    def bind(self, value: Any) -> str:
        """A name in the generated function for something of this one."""
        return self.code.bind("given", value)

    def condition(self, node: SyntaxNode) -> str:
        """An expression that gives True, False, or calls ``doubt``."""
        match node:
            case Binary(operator="&&" | "||" as operator, left=left, right=right):
                return f"({self.condition(left)} {'and' if operator == '&&' else 'or'} {self.condition(right)})"
            case Unary(operator="!", operand=operand):
                return f"(not {self.condition(operand)})"
            case Binary(operator=operator, left=left, right=right) if operator in _SAME:
                if not isinstance(left, Literal):
                    return self.comparison(left, operator, right)
                return self.comparison(right, operator, left)
            case Binary(operator=operator, left=left, right=Literal(value=int()) as right) if operator in _ORDER:
                return self.comparison(left, operator, right)
            case Binary(operator="in", left=left, right=ItemsNode(items=items, is_map=False)) if items:
                return self.membership(left, items)
            case CallNode(of=SyntaxNode() as of, name=name, arguments=(Literal(value=str()) as literal,)) if (
                name in _TEXT_TESTS
            ):
                test = _TEXT_TESTS[name].format("{}", self.constant(literal))
                return self.checked(of, str, test.format)
            case CallNode(of=SyntaxNode() as of, name="matches", arguments=(Literal(value=str() as pattern),)):
                search = self.bind(self.searches[pattern])
                return self.checked(of, str, lambda expression: f"{search}({expression}) is not None")
        return self.checked(node, bool, lambda expression: expression)

    def result(self, node: SyntaxNode) -> str:
        """Generate the whole expression: a condition, or a choice between two strings or nulls."""
        if isinstance(node, ChoiceNode):
            when_true, condition = self.result_of(node.when_true), self.condition(node.condition)
            return f"({when_true} if {condition} else {self.result_of(node.otherwise)})"
        return self.condition(node)

    def result_of(self, node: SyntaxNode) -> str:
        return self.constant(node) if isinstance(node, Literal) else self.result(node)

    def comparison(self, node: SyntaxNode, operator: str, operand: SyntaxNode) -> str:
        if not isinstance(operand, Literal):
            raise _NotNative
        constant = self.constant(operand)
        if operand.value is None:
            return f"({self.value(node)} is {'None' if operator == '==' else 'not None'})"
        return self.checked(node, type(operand.value), lambda expression: f"{expression} {operator} {constant}")

    def membership(self, node: SyntaxNode, items: tuple[SyntaxNode, ...]) -> str:
        kinds = {type(item.value) if isinstance(item, Literal) else None for item in items}
        if kinds not in ({str}, {int}):
            raise _NotNative
        constants = ", ".join(map(self.constant, items))
        return self.checked(node, kinds.pop() or str, lambda expression: f"{expression} in ({constants},)")

    def constant(self, node: SyntaxNode) -> str:
        """Generate a constant whose meaning is certain: a string without escapes, a decimal number, true, false or null."""
        if not isinstance(node, Literal):
            raise _NotNative
        value, written = node.value, self.text[node.start : node.end]
        if isinstance(value, str):
            plain = written in (f"'{value}'", f'"{value}"') and "\\" not in value and value.isprintable()
        elif isinstance(value, bool) or value is None:
            plain = True
        else:
            plain = type(value) is int and node.exact == str(value) and -_INT64 <= value < _INT64
        if not plain:
            raise _NotNative
        return self.bind(value)

    def checked(self, node: SyntaxNode, kind: type, next_step: Callable[[str], str]) -> str:
        """An expression that does something with a value once it has turned out to be of a type."""
        local = f"found{self.count}"
        value = self.value(node)
        test = {
            str: f"type({local} := {value}) is str and ({local}.isascii() or is_unicode({local}))",
            int: f"type({local} := {value}) is int and -{_INT64} <= {local} < {_INT64}",
            bool: f"type({local} := {value}) is bool",
        }.get(kind)
        if test is None:
            raise _NotNative
        return f"({next_step(local)} if {test} else doubt())"

    def value(self, node: SyntaxNode) -> str:
        """Generate the access to the value at a path; the code raises an exception where there is no value."""
        self.count += 1
        path = None if isinstance(node, CallNode) else path_of(node)
        if path is None or self.count > _MOST_VALUES:
            raise _NotNative
        if path == Path("topic", ()):
            return "record.topic"
        if path.root != "value" or any(step.safe for step in path.steps):
            raise _NotNative
        walk = walk_of(self.schema, steps=path.steps)
        if self.schema is None:
            expression = "value"
            for number, step in enumerate(path.steps):
                name = f"map{self.count}_{number}"
                expression = f"({name}[{step.name!r}] if type({name} := {expression}) is dict else doubt())"
            return expression
        if walk.rest:
            raise _NotNative
        expression = "value"
        for number, (name, default, _) in enumerate(walk.steps):
            expression = f"{expression}[{name!r}]"
            if default is not None:
                part = f"part{self.count}_{number}"
                expression = f"({self.bind(default)} if ({part} := {expression}) is None else {part})"
        return expression


def with_shortcut(
    expression: str, tree: SyntaxNode, evaluate: _Evaluate, searches: dict[str, Callable[[str], object]]
) -> _Evaluate:
    """A function that gives what ``evaluate`` gives, sooner where it can.

    Args:
        expression: the expression.
        tree: what it consists of.
        evaluate: asks the library.
        searches: what looks for the expressions of ``matches``.
    """

    def make(schema: Schema | None) -> _Evaluate:
        generator = _NativeGenerator(expression, schema, searches)
        try:
            generator.code.names["evaluate"] = evaluate
            generator.code.define(
                "made(record)",
                [
                    "try:",
                    "    value = record.value",
                    f"    return {generator.result(tree)}",
                    "except Exception:",
                    "    pass",
                    "return evaluate(record)",
                ],
            )
            return generator.code.function("made", "condition")
        except (_NotNative, SyntaxError, MemoryError, RecursionError):  # the others: too deep for Python's compiler
            return evaluate

    cache: SchemaCache[_Evaluate] = SchemaCache(make)
    find, add = cache.by_id.get, cache.add
    last: object = cache
    evaluators: _Evaluate

    def run(record: SourceRecord) -> Any:
        nonlocal last, evaluators
        schema = record.value_schema
        if schema is not last:
            evaluators = (find(id(schema)) or add(schema))[1]
            last = schema
        return evaluators(record)

    return run
