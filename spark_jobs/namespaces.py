"""Namespaces of tables, and the names in targets that are made of them."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_PART: Final = re.compile(r"\$\{(?P<name>[^}]*)\}")
#: What a template may name; see ``split_namespace``.
PARTS: Final = ("table", "database", "schema", "namespace", "instance", "type")
_UMS_PARTS: Final = 7


def split_namespace(namespace: str) -> dict[str, str]:
    """Return the parts that templates may name: of UMS's seven, else ``[...].<database>.<table>``, else a bare name. Pure."""
    parts = namespace.split(".")
    if len(parts) == _UMS_PARTS:
        kind, instance, database, table = parts[:4]
    else:
        kind, instance = "", ""
        table = parts[-1]
        database = parts[-2] if len(parts) > 1 else ""
    return {
        "table": table,
        "database": database,
        "schema": database,
        "namespace": find_identity(namespace).replace(".", "_"),
        "instance": instance,
        "type": kind,
    }


def find_identity(namespace: str) -> str:
    """The namespace without what changes over a table's life or splits it (UMS: version and the two partition parts). Pure."""
    parts = namespace.split(".")
    return ".".join(parts[:4]) if len(parts) == _UMS_PARTS else namespace


def check_template(template: str) -> str | None:
    """Return the problem of a template, or None. Pure."""
    unknown = [part_match["name"] for part_match in _PART.finditer(template) if part_match["name"] not in PARTS]
    if unknown:
        return f"${{{unknown[0]}}} is not known; there are: " + ", ".join(f"${{{name}}}" for name in PARTS)
    return None


def render_template(template: str, namespace: str) -> str:
    """The template with a namespace's parts put in. Pure."""
    values = split_namespace(namespace)
    return _PART.sub(lambda match: values[match["name"]], template)


def shorten_name(name: str, limit: int, *, octets: bool) -> str:
    """A name that the database can hold: one that is too long is cut and ends with a hash of the whole. Pure.

    Args:
        name: as wanted.
        limit: of the database.
        octets: whether the limit counts bytes of UTF-8 (PostgreSQL) or characters (MariaDB).
    """

    def size(name_part: str) -> int:
        return len(name_part.encode()) if octets else len(name_part)

    if size(name) <= limit:
        return name
    suffix = "_" + hashlib.sha256(name.encode()).hexdigest()[:8]
    kept = name[:limit]
    while size(kept) + len(suffix) > limit:
        kept = kept[:-1]
    return kept + suffix
