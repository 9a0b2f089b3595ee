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
    Call,
    Choice,
    ExpressionInvalid,
    Item,
    Items,
    Literal,
    Member,
    Name,
    Node,
    Unary,
    children,
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


def parse(text: str, *, groovy: bool = False) -> Node:
    """The tree of an expression.

    Args:
        text: the expression.
        groovy: whether Groovy's ``?.`` is read, and texts as Groovy has them.

    Raises:
        ExpressionInvalid: it can't be read, or is longer or deeper than allowed.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionInvalid(text, MAX_LENGTH, f"the expression has {len(text)} characters, more than {MAX_LENGTH}")
    tree = _Parser(text, groovy=groovy).whole()
    waiting = [(tree, 1)]
    while waiting:
        node, height = waiting.pop()
        if height > MAX_HEIGHT:
            raise ExpressionInvalid(
                text,
                node.end,
                f"there are more than {MAX_HEIGHT} operators in a row here; in with a list "
                "takes the place of many comparisons",
            )
        waiting += [(child, height + 1) for child in children(node)]
    return tree


class _Parser:
    """Recursive descent; ``depth`` bounds the recursion."""

    def __init__(self, text: str, *, groovy: bool) -> None:
        self.text = text
        self.groovy = groovy
        self.depth = 0
        self.position = 0
        self.previous_end = 0
        self.token = _Token("end", "", 0, 0)
        self._advance()

    def whole(self) -> Node:
        node = self._expression()
        if self.token.kind != "end":
            raise self._unexpected("an operator or the end")
        return node

    def _advance(self) -> _Token:
        """Go to the next token; the one that was current."""
        done = self.token
        self.previous_end = done.end
        while self.position < len(self.text):
            found = _TOKEN.match(self.text, self.position)
            if found is None:
                raise self._invalid(self.position, f"unexpected character {self.text[self.position]!r}")
            self.position = found.end()
            kind = found.lastgroup or ""
            if kind == "blank":
                continue
            if kind == "string":
                self.position = self._string_end(found.group(), found.end(), found.start())
            self.token = _Token(kind, self.text[found.start() : self.position], found.start(), self.position)
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
        raise self._invalid(at, "this text has no end: its quote is not closed")

    def _invalid(self, at: int, why: str) -> ExpressionInvalid:
        return ExpressionInvalid(self.text, at, why)

    def _unexpected(self, wanted: str) -> ExpressionInvalid:
        token = self.token
        found = f"unexpected {token.text!r}" if token.kind != "end" else "the expression ends too early"
        hint = _HINTS.get(token.text, "")
        if token.kind == "name" and token.text in ("and", "or", "not", "instanceof"):
            hint = {"and": "write &&", "or": "write ||", "not": "write !"}.get(token.text, "types can't be asked for")
        return self._invalid(token.start, f"{found}, expected {wanted}{f'; {hint}' if hint else ''}")

    def _is(self, *operators: str) -> bool:
        return self.token.text in operators and self.token.kind in ("operator", "name")

    def _expect(self, operator: str) -> _Token:
        if not self._is(operator):
            raise self._unexpected(repr(operator))
        return self._advance()

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._invalid(self.token.start, f"the expression is nested deeper than {MAX_DEPTH} levels")

    def _expression(self) -> Node:
        self._deeper()
        condition = self._chain("||")
        if self._is("?"):
            self._advance()
            then = self._chain("||") if not self.groovy else self._expression()
            self._expect(":")
            otherwise = self._expression()
            condition = Choice(condition.start, otherwise.end, condition, then, otherwise)
        self.depth -= 1
        return condition

    def _chain(self, operator: str) -> Node:
        node = self._chain("&&") if operator == "||" else self._relation()
        while self._is(operator):
            at = self._advance().start
            right = self._chain("&&") if operator == "||" else self._relation()
            node = Binary(node.start, right.end, operator, node, right, at)
        return node

    def _relation(self) -> Node:
        node = self._sum()
        while self._is(*_RELATIONS):
            token = self._advance()
            right = self._sum()
            node = Binary(node.start, right.end, token.text, node, right, token.start)
        return node

    def _sum(self) -> Node:
        node = self._product()
        while self._is("+", "-"):
            token = self._advance()
            right = self._product()
            node = Binary(node.start, right.end, token.text, node, right, token.start)
        return node

    def _product(self) -> Node:
        node = self._unary()
        while self._is("*", "/", "%"):
            token = self._advance()
            right = self._unary()
            node = Binary(node.start, right.end, token.text, node, right, token.start)
        return node

    def _unary(self) -> Node:
        if not self._is("!", "-"):
            return self._postfix()
        token = self._advance()
        if token.text == "-" and self.token.kind == "number" and token.end == self.token.start:
            number = self._number(token.start)
            return self._after(number)
        self._deeper()
        operand = self._unary()
        self.depth -= 1
        return Unary(token.start, operand.end, token.text, operand)

    def _postfix(self) -> Node:
        return self._after(self._primary())

    def _after(self, node: Node) -> Node:
        while True:
            if self._is(".") or (self.groovy and self._is("?.")):
                safe = self._advance().text == "?."
                name = self.token
                if name.kind != "name":
                    raise self._unexpected("a name")
                self._advance()
                if self._is("("):
                    arguments = self._arguments(")")
                    node = Call(node.start, self.previous_end, node, name.text, arguments, safe, name.start)
                else:
                    node = Member(node.start, name.end, node, name.text, safe)
            elif self._is("["):
                self._advance()
                index = self._expression()
                node = Item(node.start, self._expect("]").end, node, index)
            else:
                return node

    def _arguments(self, closing: str) -> tuple[Node, ...]:
        """From the opening bracket, which is current, to behind the closing one."""
        self._advance()
        items: list[Node] = []
        while not self._is(closing):
            items.append(self._expression())
            if not self._is(","):
                break
            self._advance()
        self._expect(closing)
        return tuple(items)

    def _primary(self) -> Node:
        token = self.token
        if token.kind == "number":
            return self._number(token.start)
        if token.kind == "string":
            self._advance()
            return Literal(token.start, token.end, self._string(token))
        if token.kind == "name":
            return self._named(token)
        if self._is("("):
            self._advance()
            inner = self._expression()
            return replace(inner, start=token.start, end=self._expect(")").end)
        if self._is("["):
            items = self._arguments("]")
            return Items(token.start, self.previous_end, items, is_map=False)
        if self._is("{") and not self.groovy:
            return self._map(token)
        raise self._unexpected("a value")

    def _named(self, token: _Token) -> Node:
        if token.text in _CONSTANTS:
            self._advance()
            return Literal(token.start, token.end, _CONSTANTS[token.text])
        if token.text in _RESERVED or token.text == "in":
            raise self._unexpected("a value")
        self._advance()
        if self._is("("):
            arguments = self._arguments(")")
            return Call(token.start, self.previous_end, None, token.text, arguments, safe=False, at=token.start)
        return Name(token.start, token.end, token.text)

    def _map(self, token: _Token) -> Node:
        self._advance()
        items: list[Node] = []
        while not self._is("}"):
            items.append(self._expression())
            self._expect(":")
            items.append(self._expression())
            if not self._is(","):
                break
            self._advance()
        end = self._expect("}").end
        return Items(token.start, end, tuple(items), is_map=True)

    def _number(self, start: int) -> Literal:
        token = self._advance()
        text = self.text[start : token.end]
        body = text.lower()
        if self.groovy and body.lstrip("-").startswith("."):
            raise self._invalid(token.start, "write a 0 before the point")
        if body[-1] in "lgdf" and not body.lstrip("-").startswith("0x"):
            raise self._invalid(token.start, f"a number can't end with {text[-1]!r}: leave it away")
        if body.endswith("u"):
            value: int | float = int(body[:-1], 0)
            if self.groovy or value >= 2 * _INT64 or value < 0:
                raise self._invalid(token.start, "this number can't be used")
            return Literal(start, token.end, value, text)
        if "." in body or ("e" in body and "x" not in body):
            return Literal(start, token.end, float(body), text)
        if (
            body.lstrip("-").startswith("0")
            and body.lstrip("-").isdigit()
            and len(body.lstrip("-")) > 1
            and self.groovy
        ):
            raise self._invalid(token.start, "a number with a 0 before it is octal in Groovy: leave the 0 away")
        value = int(body, 16) if "x" in body else int(body)
        if not -_INT64 <= value < _INT64:
            raise self._invalid(token.start, "this number does not fit into 64 bits")
        return Literal(start, token.end, value, text)

    def _string(self, token: _Token) -> str | bytes:
        prefix = token.text[: len(token.text) - len(token.text.lstrip("bBrR"))].lower()
        quoted = token.text[len(prefix) :]
        quote = quoted[:3] if quoted[:3] in ("'''", '"""') and len(quoted) > 5 else quoted[:1]
        inside = quoted[len(quote) : -len(quote)]
        if self.groovy and (prefix or len(quote) > 1):
            raise self._invalid(token.start, "write a plain text in single quotes")
        if self.groovy and quote == '"' and "$" in inside:
            raise self._invalid(token.start, "texts with $ inside are not put together: write + between the parts")
        content = inside if "r" in prefix else self._unescaped(inside, token.start + len(prefix) + len(quote))
        return content.encode("latin-1" if "\\x" in inside else "utf-8", "replace") if "b" in prefix else content

    def _unescaped(self, inside: str, start: int) -> str:
        parts: list[str] = []
        position = 0
        while (found := inside.find("\\", position)) >= 0:
            parts.append(inside[position:found])
            escape = _ESCAPE.match(inside, found)
            if escape is None or (self.groovy and escape[1] not in tuple("bfnrt\\\"'")):
                raise self._invalid(start + found, "this escape can't be used; write \\\\ for a backslash")
            plain, *numbers, octal = escape.groups()
            number = next((each for each in numbers if each), None)
            parts.append(
                _CONTROL.get(plain, plain) if plain else chr(int(number, 16)) if number else chr(int(octal, 8))
            )
            position = escape.end()
        return "".join([*parts, inside[position:]])
