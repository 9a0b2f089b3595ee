"""Reads expressions: the grammar of CEL, and of Groovy's the part that looks the same.

The tree is what validation, the choice of the fields that are touched, and Groovy's evaluation work on. CEL itself is evaluated
by a library, which reads the text once more.

Source: the language definition of CEL (github.com/google/cel-spec).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NamedTuple

from worker.transforms.expressions.syntax import (
    MAX_DEPTH,
    MAX_HEIGHT,
    MAX_LENGTH,
    Binary,
    CallNode,
    ChoiceNode,
    ExpressionInvalid,
    ItemNode,
    ItemsNode,
    Literal,
    MemberNode,
    NameNode,
    SyntaxNode,
    Unary,
    list_children,
)

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>[ \t\r\n\f]+|//[^\n]*)
  | (?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)|\d+[uUlLgGdDfF]?)
  | (?P<string>(?:[bB][rR]?|[rR][bB]?)?(?:\"\"\"|'''|\"|'))
  | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
  | (?P<operator>===|!==|==~|<=>|\?\.|\?:|=~|->|\*\*|\+\+|--|&&|\|\||==|!=|<=|>=|[<>!?:.,()\[\]{}+\-*/%=&|;^~@\#`])
""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2}))", re.ASCII
)
_CONTROL: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_RELATIONS: Final = ("==", "!=", "<", "<=", ">", ">=", "in")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_RESERVED: Final = frozenset(
    (
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    )
)
_INT64: Final = 1 << 63

#: What to write for an operator that CEL doesn't have.
_HINTS: Final = {
    "=": "write == to compare",
    "=~": "write .matches('...')",
    "==~": "write .matches('^(?:...)$')",
    "?.": "CEL has no ?. : write value.before != null && value.before.id == 2",
    "?:": "write a != null ? a : b",
    "===": "write ==",
    "!==": "write !=",
    "&": "write && between conditions",
    "|": "write || between conditions",
    "->": "closures can't be used: write .exists(x, condition)",
    "`": "write x['name'] for names that are no identifiers",
    ";": "one expression is all there may be",
    "{": "a map can't stand here",
}


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def parse_expression(source: str, *, groovy: bool = False) -> SyntaxNode:
    """Return the tree of an expression.

    Args:
        source: the expression.
        groovy: whether to read Groovy's ``?.`` and Groovy's string literals.

    Raises:
        ExpressionInvalid: it can't be read, or is longer or deeper than allowed.
    """
    if len(source) > MAX_LENGTH:
        raise ExpressionInvalid(
            source, MAX_LENGTH, f"the expression has {len(source)} characters, more than {MAX_LENGTH}"
        )
    tree = _ExpressionParser(source, groovy=groovy).whole()
    waiting = [(tree, 1)]
    while waiting:
        node, height = waiting.pop()
        if height > MAX_HEIGHT:
            raise ExpressionInvalid(
                source,
                node.end,
                f"there are more than {MAX_HEIGHT} operators in a row here; in with a list "
                "takes the place of many comparisons",
            )
        waiting += [(child, height + 1) for child in list_children(node)]
    return tree


class _ExpressionParser:
    """Recursive descent; ``depth`` bounds the recursion."""

    def __init__(self, source: str, *, groovy: bool) -> None:
        self.text = source
        self.groovy = groovy
        self.depth = 0
        self.position = 0
        self.previous_end = 0
        self.token = _Token("end", "", 0, 0)
        self._next_token()

    def whole(self) -> SyntaxNode:
        node = self._parse_expression()
        if self.token.kind != "end":
            raise self._make_unexpected("an operator or the end")
        return node

    def _next_token(self) -> _Token:
        """Go to the next token; the one that was current."""
        done = self.token
        self.previous_end = done.end
        while self.position < len(self.text):
            match = _TOKEN.match(self.text, self.position)
            if match is None:
                raise self._make_invalid(self.position, f"unexpected character {self.text[self.position]!r}")
            self.position = match.end()
            kind = match.lastgroup or ""
            if kind == "blank":
                continue
            if kind == "string":
                self.position = self._string_end(match.group(), match.end(), match.start())
            self.token = _Token(kind, self.text[match.start() : self.position], match.start(), self.position)
            return done
        self.token = _Token("end", "", len(self.text), len(self.text))
        return done

    def _string_end(self, opening: str, start: int, at: int) -> int:
        quote = opening.lstrip("bBrR")
        raw = "r" in opening.lower().rstrip("\"'")
        position = start
        while position < len(self.text):
            if self.text.startswith(quote, position):
                return position + len(quote)
            if self.text[position] == "\\" and not raw:
                position += 1
            elif self.text[position] == "\n" and len(quote) == 1:
                break
            position += 1
        raise self._make_invalid(at, "this text has no end: its quote is not closed")

    def _make_invalid(self, at: int, reason: str) -> ExpressionInvalid:
        return ExpressionInvalid(self.text, at, reason)

    def _make_unexpected(self, expected: str) -> ExpressionInvalid:
        token = self.token
        description = f"unexpected {token.text!r}" if token.kind != "end" else "the expression ends too early"
        hint = _HINTS.get(token.text, "")
        if token.kind == "name" and token.text in ("and", "or", "not", "instanceof"):
            hint = {"and": "write &&", "or": "write ||", "not": "write !"}.get(token.text, "types can't be asked for")
        return self._make_invalid(token.start, f"{description}, expected {expected}{f'; {hint}' if hint else ''}")

    def _is_operator(self, *operators: str) -> bool:
        return self.token.text in operators and self.token.kind in ("operator", "name")

    def _expect_operator(self, operator: str) -> _Token:
        if not self._is_operator(operator):
            raise self._make_unexpected(repr(operator))
        return self._next_token()

    def _enter_level(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._make_invalid(self.token.start, f"the expression is nested deeper than {MAX_DEPTH} levels")

    def _parse_expression(self) -> SyntaxNode:
        self._enter_level()
        condition = self._parse_chain("||")
        if self._is_operator("?"):
            self._next_token()
            branch = self._parse_chain("||") if not self.groovy else self._parse_expression()
            self._expect_operator(":")
            otherwise = self._parse_expression()
            condition = ChoiceNode(condition.start, otherwise.end, condition, branch, otherwise)
        self.depth -= 1
        return condition

    def _parse_chain(self, operator: str) -> SyntaxNode:
        node = self._parse_chain("&&") if operator == "||" else self._parse_relation()
        while self._is_operator(operator):
            at = self._next_token().start
            right = self._parse_chain("&&") if operator == "||" else self._parse_relation()
            node = Binary(node.start, right.end, operator, node, right, at)
        return node

    def _parse_relation(self) -> SyntaxNode:
        node = self._parse_sum()
        while self._is_operator(*_RELATIONS):
            token = self._next_token()
            right = self._parse_sum()
            node = Binary(node.start, right.end, token.text, node, right, token.start)
        return node

    def _parse_sum(self) -> SyntaxNode:
        node = self._parse_product()
        while self._is_operator("+", "-"):
            token = self._next_token()
            right = self._parse_product()
            node = Binary(node.start, right.end, token.text, node, right, token.start)
        return node

    def _parse_product(self) -> SyntaxNode:
        node = self._parse_unary()
        while self._is_operator("*", "/", "%"):
            token = self._next_token()
            right = self._parse_unary()
            node = Binary(node.start, right.end, token.text, node, right, token.start)
        return node

    def _parse_unary(self) -> SyntaxNode:
        if not self._is_operator("!", "-"):
            return self._parse_postfix()
        token = self._next_token()
        if token.text == "-" and self.token.kind == "number" and token.end == self.token.start:
            number = self._parse_number(token.start)
            return self._parse_after(number)
        self._enter_level()
        operand = self._parse_unary()
        self.depth -= 1
        return Unary(token.start, operand.end, token.text, operand)

    def _parse_postfix(self) -> SyntaxNode:
        return self._parse_after(self._parse_primary())

    def _parse_after(self, node: SyntaxNode) -> SyntaxNode:
        while True:
            if self._is_operator(".") or (self.groovy and self._is_operator("?.")):
                safe = self._next_token().text == "?."
                name = self.token
                if name.kind != "name":
                    raise self._make_unexpected("a name")
                self._next_token()
                if self._is_operator("("):
                    arguments = self._parse_arguments(")")
                    node = CallNode(node.start, self.previous_end, node, name.text, arguments, safe, name.start)
                else:
                    node = MemberNode(node.start, name.end, node, name.text, safe)
            elif self._is_operator("["):
                self._next_token()
                index = self._parse_expression()
                node = ItemNode(node.start, self._expect_operator("]").end, node, index)
            else:
                return node

    def _parse_arguments(self, closing: str) -> tuple[SyntaxNode, ...]:
        """From the opening bracket, which is current, to behind the closing one."""
        self._next_token()
        items: list[SyntaxNode] = []
        while not self._is_operator(closing):
            items.append(self._parse_expression())
            if not self._is_operator(","):
                break
            self._next_token()
        self._expect_operator(closing)
        return tuple(items)

    def _parse_primary(self) -> SyntaxNode:
        token = self.token
        if token.kind == "number":
            return self._parse_number(token.start)
        if token.kind == "string":
            self._next_token()
            return Literal(token.start, token.end, self._parse_string(token))
        if token.kind == "name":
            return self._parse_named(token)
        if self._is_operator("("):
            self._next_token()
            inner = self._parse_expression()
            return replace(inner, start=token.start, end=self._expect_operator(")").end)
        if self._is_operator("["):
            items = self._parse_arguments("]")
            return ItemsNode(token.start, self.previous_end, items, is_map=False)
        if self._is_operator("{") and not self.groovy:
            return self._parse_map(token)
        raise self._make_unexpected("a value")

    def _parse_named(self, token: _Token) -> SyntaxNode:
        if token.text in _CONSTANTS:
            self._next_token()
            return Literal(token.start, token.end, _CONSTANTS[token.text])
        if token.text in _RESERVED or token.text == "in":
            raise self._make_unexpected("a value")
        self._next_token()
        if self._is_operator("("):
            arguments = self._parse_arguments(")")
            return CallNode(token.start, self.previous_end, None, token.text, arguments, safe=False, at=token.start)
        return NameNode(token.start, token.end, token.text)

    def _parse_map(self, token: _Token) -> SyntaxNode:
        self._next_token()
        items: list[SyntaxNode] = []
        while not self._is_operator("}"):
            items.append(self._parse_expression())
            self._expect_operator(":")
            items.append(self._parse_expression())
            if not self._is_operator(","):
                break
            self._next_token()
        end = self._expect_operator("}").end
        return ItemsNode(token.start, end, tuple(items), is_map=True)

    def _parse_number(self, start: int) -> Literal:
        token = self._next_token()
        number_text = self.text[start : token.end]
        body = number_text.lower()
        if self.groovy and body.lstrip("-").startswith("."):
            raise self._make_invalid(token.start, "write a 0 before the point")
        if body[-1] in "lgdf" and not body.lstrip("-").startswith("0x"):
            raise self._make_invalid(token.start, f"a number can't end with {number_text[-1]!r}: leave it away")
        if body.endswith("u"):
            value: int | float = int(body[:-1], 0)
            if self.groovy or value >= 2 * _INT64 or value < 0:
                raise self._make_invalid(token.start, "this number can't be used")
            return Literal(start, token.end, value, number_text)
        if "." in body or ("e" in body and "x" not in body):
            return Literal(start, token.end, float(body), number_text)
        if (
            body.lstrip("-").startswith("0")
            and body.lstrip("-").isdigit()
            and len(body.lstrip("-")) > 1
            and self.groovy
        ):
            raise self._make_invalid(token.start, "a number with a 0 before it is octal in Groovy: leave the 0 away")
        value = int(body, 16) if "x" in body else int(body)
        if not -_INT64 <= value < _INT64:
            raise self._make_invalid(token.start, "this number does not fit into 64 bits")
        return Literal(start, token.end, value, number_text)

    def _parse_string(self, token: _Token) -> str | bytes:
        prefix = token.text[: len(token.text) - len(token.text.lstrip("bBrR"))].lower()
        quoted = token.text[len(prefix) :]
        quote = quoted[:3] if quoted[:3] in ("'''", '"""') and len(quoted) > 5 else quoted[:1]
        inside = quoted[len(quote) : -len(quote)]
        if self.groovy and (prefix or len(quote) > 1):
            raise self._make_invalid(token.start, "write a plain text in single quotes")
        if self.groovy and quote == '"' and "$" in inside:
            raise self._make_invalid(
                token.start, "strings with $ inside are not put together: write + between the parts"
            )
        content = inside if "r" in prefix else self._unescape_string(inside, token.start + len(prefix) + len(quote))
        return content.encode("latin-1" if "\\x" in inside else "utf-8", "replace") if "b" in prefix else content

    def _unescape_string(self, inside: str, start: int) -> str:
        parts: list[str] = []
        position = 0
        while (backslash := inside.find("\\", position)) >= 0:
            parts.append(inside[position:backslash])
            escape = _ESCAPE.match(inside, backslash)
            if escape is None or (self.groovy and escape[1] not in tuple("bfnrt\\\"'")):
                raise self._make_invalid(start + backslash, "this escape can't be used; write \\\\ for a backslash")
            plain, *numbers, octal = escape.groups()
            number = next((code_point for code_point in numbers if code_point), None)
            parts.append(
                _CONTROL.get(plain, plain) if plain else chr(int(number, 16)) if number else chr(int(octal, 8))
            )
            position = escape.end()
        return "".join([*parts, inside[position:]])
