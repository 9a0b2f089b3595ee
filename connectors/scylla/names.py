"""Names as users write them: nodes, tables, prefixes of topics; and as CQL wants them. Pure functions."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.scylla.model import TableId

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_PORT: Final = 9042
_UNQUOTED: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*\Z", re.ASCII)
_NAME: Final = re.compile(r"\w{1,222}\Z", re.ASCII)
_PART: Final = re.compile(r'\s*("(?:[^"]|"")*"|[^".\s]*)\s*', re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?\Z", re.ASCII)
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]+\Z", re.ASCII)


def contact_point(text: str) -> tuple[str, int]:
    """``host:port``, ``host``, ``[v6 address]:port`` or ``[v6 address]`` as (host, port).

    Raises:
        ConfigInvalid: it is none of these.
    """
    text = text.strip()
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ConfigInvalid(f"'{text}' is not of the form [address]:port")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ConfigInvalid(f"'{host}' in '{text}' is not an IPv6 address") from None
        port = rest[1:] if rest else str(DEFAULT_PORT)
    elif text.count(":") > 1:
        raise ConfigInvalid(
            f"'{text}' is not of the form host:port; an IPv6 address must stand in brackets, [address]:port"
        )
    else:
        host, colon, port = text.partition(":")
        if not colon:
            port = str(DEFAULT_PORT)
        if not _HOST.match(host):
            raise ConfigInvalid(f"'{text}' is not of the form host:port: '{host}' is not the name or address of a host")
        if re.fullmatch(r"[\d.]+", host):
            try:
                ipaddress.IPv4Address(host)
            except ValueError:
                raise ConfigInvalid(f"'{host}' in '{text}' is not an IPv4 address") from None
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ConfigInvalid(f"'{port}' in '{text}' is not a port (1 to 65535)")
    return host, int(port)


def contact_points(items: Iterable[str] | None) -> tuple[tuple[str, int], ...]:
    """The nodes of a list, in order and without repetitions.

    Raises:
        ConfigInvalid: it is empty or an item is not a node.
    """
    found = dict.fromkeys(contact_point(item) for item in items or () if item.strip())
    if not found:
        raise ConfigInvalid("at least one host:port must be given")
    return tuple(found)


def _identifier(text: str, whole: str) -> str:
    if text.startswith('"'):
        name = text[1:-1].replace('""', '"')
    elif not _UNQUOTED.match(text) and text:
        hint = (
            f'; a name that is not a CQL identifier must stand in double quotes: "{text}"' if _NAME.match(text) else ""
        )
        raise ConfigInvalid(f"'{text}' in '{whole}' is not a name{hint}")
    else:
        name = text.lower()
    if not _NAME.match(name):
        raise ConfigInvalid(
            f"'{text}' in '{whole}' is not a name of a keyspace or table: letters, digits and _ are allowed"
        )
    return name


def table_name(text: str) -> TableId:
    """``keyspace.table``, each as in CQL: without quotes folded to lower case, in double quotes as it stands.

    Raises:
        ConfigInvalid: it is not of that form.
    """
    first = _PART.match(text)
    second = _PART.match(text, first.end() + 1) if first and text[first.end() : first.end() + 1] == "." else None
    if first is None or second is None or second.end() != len(text):
        raise ConfigInvalid(f"'{text}' is not of the form keyspace.table")
    return TableId(_identifier(first[1], text), _identifier(second[1], text))


def table_names(items: Iterable[str] | None) -> tuple[TableId, ...]:
    """The tables of a list, in order and without repetitions.

    Raises:
        ConfigInvalid: it is empty, or an item is not a table.
    """
    found = dict.fromkeys(table_name(item) for item in items or () if item.strip())
    if not found:
        raise ConfigInvalid("at least one keyspace.table must be given")
    for table in found:
        if table.table.endswith("_scylla_cdc_log"):
            raise ConfigInvalid(f"{table} is a log table; name the table it is the log of")
    return tuple(found)


def topic_prefix_problem(value: str) -> str | None:
    """Why ``value`` can't begin the names of topics, or None."""
    if not _PREFIX.match(value):
        return "only letters, digits, '.', '_' and '-' may be in the name of a topic"
    return None


def quoted(name: str) -> str:
    """``name`` in double quotes, as CQL takes any name."""
    return '"' + name.replace('"', '""') + '"'


def qualified(table: TableId) -> str:
    """Keyspace and table, quoted."""
    return f"{quoted(table.keyspace)}.{quoted(table.table)}"
