"""Names of schemas and topics, as the Java connector makes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from connectors import topic_names

if TYPE_CHECKING:
    from connectors.scylla.model import TableId

_NOT_IN_AVRO: Final = re.compile(r"[^A-Za-z0-9_.]")
_NOT_IN_TOPIC: Final = re.compile(r"[^A-Za-z0-9_.\-]")


def _replace_units(pattern: re.Pattern[str], name: str) -> str:
    """Each UTF-16 unit that the pattern matches as one underscore: Java looks at units, not at characters."""
    return pattern.sub(lambda match: "_" * (len(match.group().encode("utf-16-le")) // 2), name)


def avro_name(name: str) -> str:
    """``name`` as a full name that Avro takes: underscores for other characters, and one before a leading digit."""
    if not name:
        return name
    first = name[0]
    if first.isascii() and (first.isalpha() or first == "_"):
        return _replace_units(_NOT_IN_AVRO, name)
    if first.isdigit():
        return "_" + _replace_units(_NOT_IN_AVRO, name)
    return _replace_units(_NOT_IN_AVRO, "_" * (len(first.encode("utf-16-le")) // 2) + name[1:])


def topic_name(prefix: str, table: TableId) -> str:
    """``<prefix>.<keyspace>.<table>``, with underscores for what a topic's name may not have."""
    return _replace_units(_NOT_IN_TOPIC, ".".join(part for part in (prefix.strip(), *table) if part))[
        : topic_names.LONGEST
    ]


def table_name(prefix: str, table: TableId) -> str:
    """The start of the names of all schemas of a table; not yet valid in Avro."""
    return f"{prefix}.{table.keyspace}.{table.table}"
