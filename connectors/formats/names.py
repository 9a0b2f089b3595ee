"""Names of columns as names of fields that every converter takes."""

from __future__ import annotations

import re
from typing import Final

#: Avro's rule, the strictest.
_LEGAL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_UNSTRUCTURED: Final = re.compile(r'["\\\x00-\x1f]')
_ESCAPE: Final = "_x"
_ESCAPED: Final = re.compile(r"_x((?:[0-9a-f]{2})+)\Z")


def field_name(column: str) -> str:
    """The field that stands for ``column``: its name if Avro allows it, else ``_x`` and its UTF-8 bytes in hex.

    Two columns never share a field: a column whose own name looks escaped is escaped too.
    """
    if _LEGAL.match(column) and not _ESCAPED.match(column):
        return column
    return _ESCAPE + column.encode().hex()


def column_name(field: str) -> str:
    """The column that ``field`` stands for; the inverse of ``field_name``."""
    match = _ESCAPED.match(field)
    return bytes.fromhex(match[1]).decode() if match else field


def fits_struct(name: str) -> bool:
    """Whether msgspec takes a name as that of a struct's member; others need a dict."""
    return _UNSTRUCTURED.search(name) is None


def schema_part(name: str) -> str:
    """``name`` as one part of a dotted schema name; not reversible, equal strings give equal parts."""
    cleaned = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return cleaned if cleaned[:1].isalpha() or cleaned[:1] == "_" else f"_{cleaned}"
