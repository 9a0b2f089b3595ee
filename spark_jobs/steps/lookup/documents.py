"""Fields of JSON documents. Pure."""

from __future__ import annotations

from typing import Any


def field_of(document: Any, path: str) -> Any:
    """The value of a field; ``a.b`` is the field ``b`` in ``a`` unless a field has this very name. None if it is missing."""
    if not isinstance(document, dict):
        return None
    if path in document:
        return document[path]
    head, dot, inner_path = path.partition(".")
    return field_of(document.get(head), inner_path) if dot else None
