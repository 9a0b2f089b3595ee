"""Java's regular expressions, for transforms; connectors use the same ones."""

from __future__ import annotations

from connectors.java_regex import compile_java, java_expression, java_replacement

__all__ = ["compile_java", "java_expression", "java_replacement"]
