"""Expressions in CEL, the Common Expression Language.

The library ``common-expression-language`` evaluates them. It takes plain values, and converting a whole event to them costs
about 50 times as much as the evaluation (see docs/expressions.md). So each path of the expression (``value.before.id``) is
replaced by a variable, and only the values at those paths are handed over.

Source: the language definition of CEL (github.com/google/cel-spec).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import re2

from connectors.errors import Skippable
from connectors.schema import Schema, Type
from worker.transforms.expressions.native import with_shortcut
from worker.transforms.expressions.parser import parse_expression
from worker.transforms.expressions.paths import VARIABLES, Path, PathMatch, Unresolved, make_resolver, path_of
from worker.transforms.expressions.syntax import (
    Binary,
    CallNode,
    ExpressionInvalid,
    Literal,
    MemberNode,
    NameNode,
    SyntaxNode,
    list_children,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceRecord

_INT64: Final = 1 << 63
#: Digits that a double keeps.
_EXACT_DIGITS: Final = 15
_PLAIN: Final = (str, bool, float, bytes, type(None))
_MACROS: Final = ("exists", "all", "exists_one")
_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=", "in")
_PREFIX: Final = "mr_"
_UNDEFINED: Final = re.compile(rf"'({_PREFIX}\d+)'")
#: How deep lists, maps and structs may stand in one another in what is handed over.
_MAX_DATA_DEPTH: Final = 64
#: The longest list or map that is handed over.
MAX_ITEMS: Final = 10_000
#: How many + there may be: each copies the text or list before it.
MAX_SUMS: Final = 16

_CONVERSIONS: Final = ("string", "int", "uint", "double", "bytes", "type", "timestamp", "duration")
_TIMES: Final = (
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
)
_NO_LISTS: Final = "lists can't be made from lists: write exists, all or exists_one"
#: Name -> numbers of arguments it takes as a function, and as a method.
_FUNCTIONS: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "size": ((1,), (0,)),
    "startsWith": ((), (1,)),
    "endsWith": ((), (1,)),
    "contains": ((), (1,)),
    "matches": ((2,), (1,)),
    "lowerAscii": ((), (0,)),
    "upperAscii": ((), (0,)),
    **dict.fromkeys(_CONVERSIONS, ((1,), ())),
    **dict.fromkeys(_TIMES, ((), (0, 1))),
}
#: What to write for methods that other languages have.
_METHOD_HINTS: Final = {
    "equals": "write ==",
    "get": "write value.name, or value['name']",
    "toString": "write string(x)",
    "length": "write x.size()",
    "toLowerCase": "write x.lowerAscii()",
    "toUpperCase": "write x.upperAscii()",
    "isEmpty": "write x.size() == 0",
    "any": "write x.exists(item, condition)",
    "every": "write x.all(item, condition)",
    "find": "write x.exists(item, condition)",
    "map": _NO_LISTS,
    "filter": _NO_LISTS,
    "toInteger": "write int(x)",
    "toLong": "write int(x)",
    "equalsIgnoreCase": "write x.lowerAscii() == '...'",
    "has": "write has(value.name)",
}


@dataclass(slots=True)
class _CelCompiler:
    """One walk over the tree: checks it, and puts together the text that the library gets."""

    text: str
    paths: dict[str, tuple[str, Path]] = field(default_factory=dict)
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    #: What looks for the expressions of ``matches``.
    searches: dict[str, Callable[[str], object]] = field(default_factory=dict)
    sums: int = 0
    _names: dict[tuple[str, Path], str] = field(default_factory=dict)

    def invalid(self, at: int, reason: str) -> ExpressionInvalid:
        return ExpressionInvalid(self.text, at, reason)

    def emit(self, node: SyntaxNode, bound: frozenset[str] = frozenset(), *, compared: bool = False) -> str:
        """The text for a part.

        Args:
            node: the part.
            bound: the names that macros around it gave to items.
            compared: whether it is an operand of a comparison.
        """
        path = path_of(node, bound) if not isinstance(node, CallNode) else None
        if path is not None:
            if bound and not compared:
                raise self.invalid(
                    node.start,
                    f"inside exists, all and exists_one {path} may only be compared: write it "
                    "besides ==, !=, <, <=, >, >= or in",
                )
            return self._name_variable("value", path)
        match node:
            case NameNode(name=name) if name not in bound:
                raise self.invalid(node.start, f"there is no variable {name!r}; there are {', '.join(VARIABLES)}")
            case Binary(operator="==" | "!=" as operator, left=left, right=right):
                path = self._compared_with_null(left, right, bound)
                if path is not None:
                    return self._name_variable("null" if operator == "==" else "present", path)
            case CallNode(of=None, name="has", arguments=arguments):
                return self._compile_has(node, arguments, bound)
            case CallNode(name=name) if name in _MACROS and isinstance(node, CallNode):
                return self._compile_macro(node, bound)
            case CallNode():
                return self._compile_call(node, bound)
        compares = isinstance(node, Binary) and node.operator in _COMPARISONS
        if (
            bound
            and isinstance(node, Binary)
            and path_of(node.right, bound) is not None
            and (node.operator == "in" or path_of(node.left, bound) is not None)
        ):
            raise self.invalid(
                node.at,
                "inside exists, all and exists_one a list of the record can't be searched, nor two "
                "of its parts compared: it would cost the product of both",
            )
        if isinstance(node, Binary) and node.operator == "+":
            self.sums += 1
            if self.sums > MAX_SUMS:
                raise self.invalid(node.at, f"there are more than {MAX_SUMS} + in the expression")
        return self._replace_parts(
            node, {child.start: self.emit(child, bound, compared=compares) for child in list_children(node)}
        )

    def _replace_parts(self, node: SyntaxNode, parts: dict[int, str]) -> str:
        """The text of a part, with those of its children exchanged."""
        result, position = [], node.start
        for child in list_children(node):
            result += [self.text[position : child.start], parts[child.start]]
            position = child.end
        return "".join([*result, self.text[position : node.end]])

    def _name_variable(self, kind: str, path: Path) -> str:
        variable = self._names.get((kind, path))
        if variable is None:
            variable = self._names[kind, path] = f"{_PREFIX}{len(self._names)}"
            self.paths[variable] = kind, path
        return variable

    def _compared_with_null(self, left: SyntaxNode, right: SyntaxNode, bound: frozenset[str]) -> Path | None:
        for first, second in ((left, right), (right, left)):
            if isinstance(second, Literal) and second.value is None and not isinstance(first, CallNode):
                return path_of(first, bound)
        return None

    def _compile_has(self, node: CallNode, arguments: tuple[SyntaxNode, ...], bound: frozenset[str]) -> str:
        if len(arguments) != 1 or not isinstance(arguments[0], MemberNode):
            raise self.invalid(node.at, "has takes one field: has(value.name)")
        path = path_of(arguments[0], bound)
        if path is not None:
            return self._name_variable("has", path)
        return self._replace_parts(
            node,
            {
                arguments[0].start: self._replace_parts(
                    arguments[0], {child.start: self.emit(child, bound) for child in list_children(arguments[0])}
                )
            },
        )

    def _compile_macro(self, node: CallNode, bound: frozenset[str]) -> str:
        if node.of is None or len(node.arguments) != 2 or not isinstance(node.arguments[0], NameNode):
            raise self.invalid(node.at, f"{node.name} is written list.{node.name}(item, condition)")
        item, condition = node.arguments
        assert isinstance(item, NameNode)  # noqa: S101 - see above
        if bound:
            raise self.invalid(
                node.at,
                f"{node.name} can't stand inside another exists, all or exists_one: it would cost "
                "the product of both lists",
            )
        if item.name in VARIABLES or item.name.startswith(_PREFIX):
            raise self.invalid(item.start, f"{item.name!r} can't name an item")
        return self._replace_parts(
            node,
            {
                node.of.start: self.emit(node.of, bound),
                item.start: item.name,
                condition.start: self.emit(condition, bound | {item.name}),
            },
        )

    def _compile_call(self, node: CallNode, bound: frozenset[str]) -> str:
        as_function, as_method = _FUNCTIONS.get(node.name, ((), ()))
        allowed = as_method if node.of is not None else as_function
        if len(node.arguments) not in allowed:
            hint = _METHOD_HINTS.get(node.name)
            if hint is None and as_method:
                hint = f"{node.name} is written x.{node.name}({', '.join('y' * as_method[0])})"
            elif hint is None and as_function:
                hint = f"{node.name} is written {node.name}(x)"
            raise self.invalid(
                node.at,
                f"there is no function {node.name!r} like that; "
                + (hint or f"there are {', '.join(sorted((*_FUNCTIONS, *_MACROS, 'has')))}"),
            )
        if node.name == "matches":
            return self._compile_matches(node, bound)
        if node.name == "size":
            # The library counts the bytes of a string; CEL's definition says code points.
            self.functions[f"{_PREFIX}sized"] = _to_sized
            return f"size({_PREFIX}sized({self.emit(node.of or node.arguments[0], bound)}))"
        if node.name in ("lowerAscii", "upperAscii"):
            self.functions[node.name] = _lower_ascii if node.name == "lowerAscii" else _upper_ascii
        return self._replace_parts(node, {child.start: self.emit(child, bound) for child in list_children(node)})

    def _compile_matches(self, node: CallNode, bound: frozenset[str]) -> str:
        subject, pattern = node.arguments if node.of is None else (node.of, node.arguments[0])
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            raise self.invalid(pattern.start, "the expression of matches must be a string that is written out")
        name = f"{_PREFIX}re{len(self.functions)}"
        options = re2.Options()
        options.log_errors = False
        try:
            search = re2.compile(pattern.value, options).search
        except re2.error as error:
            reason = error.args[0] if error.args else b""
            shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
            raise self.invalid(pattern.start, f"this is no regular expression as RE2 knows them: {shown}") from None

        def matches(subject_text: object) -> bool:
            if not isinstance(subject_text, str):
                raise TypeError("matches needs a string")
            return search(subject_text) is not None

        self.functions[name] = matches
        self.searches[pattern.value] = search
        return f"{name}({self.emit(subject, bound)})"


def _to_sized(value: object) -> object:
    """Return bytes with as many bytes as a string has characters (code points); anything else unchanged."""
    return bytes(len(value)) if isinstance(value, str) else value


def _lower_ascii(string: object) -> str:
    if not isinstance(string, str):
        raise TypeError("lowerAscii needs a string")
    return "".join(char.lower() if char.isascii() else char for char in string)


def _upper_ascii(string: object) -> str:
    if not isinstance(string, str):
        raise TypeError("upperAscii needs a string")
    return "".join(char.upper() if char.isascii() else char for char in string)


def compile_cel(expression: str, tree: SyntaxNode | None = None) -> Callable[[SourceRecord], Any]:
    """A function that gives an expression's value for a record. It doesn't block and has no effect on anything else.

    Its cost is bounded by the length of the expression times the size of what it touches: ``exists``, ``all`` and
    ``exists_one`` don't nest, regular expressions are RE2's, which run in linear time.

    Args:
        expression: the expression.
        tree: what ``parse_expression`` made of it, if that is there already.

    Raises:
        ExpressionInvalid: it is wrong, or uses what there is not; with the place. The function raises ``Skippable`` for
            records that it can't be evaluated for.
    """
    import cel  # here, because it brings its command line along: 0.1 s, which workers without expressions don't spend

    tree = tree or parse_expression(expression)
    compiler = _CelCompiler(expression)
    emitted = compiler.emit(tree)
    try:
        program = cel.compile(emitted)
    except ValueError as error:
        raise ExpressionInvalid(expression, 0, f"the expression can't be used: {str(error).splitlines()[0]}") from None
    execute = program.execute
    functions = compiler.functions
    variables = [(name, kind, path, make_resolver(path)) for name, (kind, path) in compiler.paths.items()]

    def evaluate(record: SourceRecord) -> Any:
        context: dict[str, Any] = {}
        missing: dict[str, str] = {}
        for name, kind, _, find in variables:
            try:
                match = find(record)
                context[name] = (
                    _to_cel(match.value, match.schema)
                    if kind == "value"
                    else (kind == "has" or (match.value is None) is (kind == "null"))
                )
            except Unresolved as error:
                if kind == "has" and _parent_is_there(record, compiler.paths[name][1]):
                    context[name] = False
                else:
                    missing[name] = str(error)
        try:
            return execute(cel.Context(context, functions) if functions else context)
        except BaseException as error:
            # A panic of the library is no Exception.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            reason = _describe_error(error, missing, compiler, context)
            raise Skippable(f"Error while evaluating expression '{expression}': {reason}") from None

    return with_shortcut(expression, tree, evaluate, compiler.searches)


def _parent_is_there(record: SourceRecord, path: Path) -> bool:
    """Whether ``has`` may say no: the map or struct that could have the field is there."""
    try:
        return bool(path.steps) and make_resolver(Path(path.root, path.steps[:-1]))(record).value is not None
    except Unresolved:
        return False


def _describe_error(
    error: BaseException, missing: dict[str, str], compiler: _CelCompiler, context: dict[str, Any]
) -> str:
    """Return an error message that helps the user. It shows no values: they may be secret."""
    undefined = _UNDEFINED.search(str(error))
    if undefined is not None and undefined[1] in missing:
        return missing[undefined[1]]
    message = str(error).split(". ")[0].splitlines()[0] if str(error) else type(error).__name__
    kinds = ", ".join(
        f"{path} is {_kind_of(context[name])}"
        for name, (kind, path) in compiler.paths.items()
        if kind == "value" and name in context
    )
    return f"{message}{f' ({kinds})' if kinds else ''}"


def _kind_of(value: Any) -> str:
    return {
        "NoneType": "null",
        "str": "a string",
        "bool": "a bool",
        "int": "an int",
        "float": "a double",
        "bytes": "bytes",
        "list": "a list",
        "dict": "a map",
    }.get(type(value).__name__, type(value).__name__)


def _to_cel(value: Any, schema: Schema | None, depth: int = 0) -> Any:
    """A record's value as the library takes it.

    Raises:
        Unresolved: it has no exact counterpart.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, int):
        if not -_INT64 <= value < _INT64:
            raise Unresolved("a number does not fit into 64 bits")
        return value
    if isinstance(value, Decimal):
        return _to_number(value)
    if depth > _MAX_DATA_DEPTH:
        raise Unresolved(f"the value is nested deeper than {_MAX_DATA_DEPTH} levels")
    if isinstance(value, PathMatch):
        return _to_cel(value.value, value.schema, depth + 1)
    if isinstance(value, dict | list | tuple) and len(value) > MAX_ITEMS:
        raise Unresolved(f"a list or map has {len(value)} items, at most {MAX_ITEMS} can be used")
    if isinstance(value, dict):
        if schema is not None and schema.type is Type.STRUCT:
            return {
                member.name: _to_cel(
                    member.schema.default if value.get(member.name) is None else value[member.name],
                    member.schema,
                    depth + 1,
                )
                for member in schema.fields
            }
        of = schema.value_schema if schema is not None else None
        return {key: _to_cel(member, of, depth + 1) for key, member in value.items()}
    if isinstance(value, list | tuple):
        of = schema.value_schema if schema is not None else None
        return [_to_cel(member, of, depth + 1) for member in value]
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise Unresolved(f"a {type(value).__name__} can't be used in an expression")


def _to_number(value: Decimal) -> float:
    """A Decimal as an int, or as a double if it has a fraction.

    Raises:
        Unresolved: neither keeps all its digits.
    """
    if not value.is_finite():
        return float(value)
    if value == value.to_integral_value() and -_INT64 <= value < _INT64:
        return int(value)
    if len("".join(map(str, value.as_tuple().digits)).rstrip("0")) > _EXACT_DIGITS:
        raise Unresolved(f"a decimal has more than {_EXACT_DIGITS} digits, which a double can't hold")
    return float(value)
