"""Millrace's own messages must not look like secrets: logs and answers would show them as [hidden]."""

from __future__ import annotations

import ast
from pathlib import Path

from worker.secrets.masking import mask_patterns

ROOT = Path(__file__).resolve().parents[3]


def said(tree: ast.AST) -> list[tuple[int, str]]:
    """All string literals of a module but its docstrings; values that are formatted into them are left out."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = []
    for node in ast.walk(tree):
        if id(node) in documentation:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.append((node.lineno, node.value))
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "x" for part in node.values]
            strings.append((node.lineno, "".join(map(str, parts))))
    return strings


def test_no_message_looks_like_a_secret() -> None:
    masked = []
    for folder in ("worker", "connectors", "offsets"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            if not any(hint in text for hint in ("password", "secret", "token", "credential", "key")):
                continue
            masked += [
                f"{path.relative_to(ROOT)}:{line}: {mask_patterns(string)}"
                for line, string in said(ast.parse(text))
                if mask_patterns(string) != string
            ]
    # `hash-token` prints its token on standard error, which is not masked.
    assert [message for message in masked if not message.startswith("worker/rest/commands.py:")] == []
