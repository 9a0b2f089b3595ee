"""Find banned names and phrases in Python and Markdown files."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.wording.glossary import Glossary

_CODE_SPANS = re.compile(r"(`+)(?!`)[^`\n]*(?:\n[^`\n]+)?\1(?!`)")
_LINK_TARGETS = re.compile(r"\]\([^)\n]*\)|<!--.*?-->|https?://\S+", re.DOTALL)
_FENCES = re.compile(r"^([ \t]*)(```+|~~~+)[^\n]*\n.*?^[ \t]*\2[ \t]*$", re.DOTALL | re.MULTILINE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, order=True)
class Finding:
    """One use of a banned word."""

    path: str
    line: int
    kind: str
    """``name``, ``prose`` or ``docstring`` (its first word)."""
    word: str
    advice: str

    def __str__(self) -> str:
        """Show the finding as ``file:line: ...``."""
        use = {"name": "the name", "prose": "the phrase", "docstring": "a docstring opens with"}[self.kind]
        return f"{self.path}:{self.line}: {use} {self.word!r}; write instead: {self.advice}"


def check_markdown(path: str, text: str, glossary: Glossary) -> list[Finding]:
    """Return the banned phrases in a Markdown text, without code and link targets."""
    plain = _FENCES.sub(_blank, text)
    return sorted(_prose(path, plain, 1, glossary))


def check_python(path: str, source: str, glossary: Glossary, *, messages: bool) -> list[Finding]:
    """Return the banned names and phrases in a Python file.

    Args:
        path: The file's path in the checkout; its name is checked too.
        source: Its content.
        glossary: The banned words.
        messages: Check strings with a blank in them too: they are messages and help of the product.

    Raises:
        SyntaxError: The source is no Python.
    """
    tree = ast.parse(source, path)
    lines = source.split("\n")
    nodes = list(ast.walk(tree))
    findings = list(_names(path, nodes, glossary))
    docstrings: set[int] = set()
    strings: list[ast.Constant | ast.JoinedStr] = []
    inner: set[int] = set()
    for node in nodes:
        if isinstance(node, _DOCUMENTED) and node.body and (opening := _docstring(node.body[0])) is not None:
            docstrings.add(id(opening))
            if match := glossary.opener_finding(str(opening.value)):
                findings.append(Finding(path, opening.lineno, "docstring", *match))
        elif isinstance(node, ast.JoinedStr):
            strings.append(node)
            inner.update(id(part) for part in ast.walk(node) if part is not node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.append(node)
        if isinstance(node, ast.Expr) and (opening := _docstring(node)) is not None:
            docstrings.add(id(opening))
    outer = [node for node in strings if id(node) not in inner]
    for node in outer:
        value = _string_value(node)
        if id(node) in docstrings or (messages and " " in value):
            findings += _string(path, node, value, lines, glossary)
    for line, text in _comments(lines, outer):
        findings += _prose(path, text, line, glossary)
    return sorted(findings)


def _names(path: str, nodes: list[ast.AST], glossary: Glossary) -> Iterator[Finding]:
    """Yield the banned names that a module binds, and its own."""
    for line, name in [(1, PurePosixPath(path).stem.removeprefix("test_")), *_bound_names(nodes)]:
        if match := glossary.name_finding(name):
            yield Finding(path, line, "name", name, match[1])


def _bound_names(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str() as name):
                yield node.lineno, name
            case (
                ast.ExceptHandler(name=str() as name)
                | ast.MatchAs(name=str() as name)
                | ast.MatchStar(name=str() as name)
            ):
                yield node.lineno, name
            case _:
                pass


def _docstring(statement: ast.stmt) -> ast.Constant | None:
    """Return the string of a statement that is nothing else: a docstring of a module, class, function or attribute."""
    if (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    ):
        return statement.value
    return None


def _string_value(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "·" for part in node.values)


def _string(
    path: str, node: ast.Constant | ast.JoinedStr, value: str, lines: list[str], glossary: Glossary
) -> Iterator[Finding]:
    """Yield the phrases in a string, each with the line of the source that it begins in."""
    last = node.end_lineno or node.lineno
    if value.count("\n") == last - node.lineno:
        yield from _prose(path, value, node.lineno, glossary)
        return
    # A string of several literals, or with escaped line breaks: look the first word up in its lines.
    for finding in _prose(path, value, node.lineno, glossary):
        first = finding.word.split()[0]
        line = next((number for number in range(node.lineno, last + 1) if first in lines[number - 1]), node.lineno)
        yield Finding(path, line, finding.kind, finding.word, finding.advice)


def _comments(lines: list[str], strings: list[ast.Constant | ast.JoinedStr]) -> Iterator[tuple[int, str]]:
    """Yield the comments with their first lines; comments on lines of their own that follow each other are one.

    Faster than tokenize by a factor of ten: a comment begins at the first ``#`` of a line that no string covers.
    """
    spans = sorted(
        (node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0) for node in strings
    )
    starts = [span[:2] for span in spans]
    block: list[str] = []
    for number, line in enumerate([*lines, ""], 1):
        text = _comment(number, line, spans, starts) if "#" in line else None
        alone = text is not None and line.lstrip().startswith("#")
        if block and not alone:
            yield number - len(block), "\n".join(block)
            block = []
        if text is not None and alone:
            block.append(text)
        elif text is not None:
            yield number, text


def _comment(
    number: int, line: str, spans: list[tuple[int, int, int, int]], starts: list[tuple[int, int]]
) -> str | None:
    """Return the comment of a line without its mark, or None."""
    raw = line.encode()  # columns of the syntax tree count bytes
    column = raw.find(b"#")
    while column >= 0:
        index = bisect_right(starts, (number, column)) - 1
        if index < 0 or (number, column) >= (spans[index][2], spans[index][3]):
            return raw[column:].decode().lstrip("#: ")
        end_line, end_column = spans[index][2:]
        if end_line > number:
            return None
        column = raw.find(b"#", end_column)
    return None


def _prose(path: str, text: str, first_line: int, glossary: Glossary) -> Iterator[Finding]:
    plain = _LINK_TARGETS.sub(_blank, _CODE_SPANS.sub(_blank, text))
    for position, phrase, advice in glossary.prose_findings(plain):
        yield Finding(path, first_line + plain.count("\n", 0, position), "prose", phrase, advice)


def _blank(match: re.Match[str]) -> str:
    """Replace all but line breaks, so that positions and lines stay."""
    return re.sub(r"[^\n]", "·", match.group())
