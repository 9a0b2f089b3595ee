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


def contact_point(address: str) -> tuple[str, int]:
    """``host:port``, ``host``, ``[v6 address]:port`` or ``[v6 address]`` as (host, port).

    Raises:
        ConfigInvalid: it has another form.
    """
    address = address.strip()
    if address.startswith("["):
        host, closed, port_part = address[1:].partition("]")
        if not closed or (port_part and not port_part.startswith(":")):
            raise ConfigInvalid(f"'{address}' is not of the form [address]:port")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ConfigInvalid(f"'{host}' in '{address}' is not an IPv6 address") from None
        port = port_part[1:] if port_part else str(DEFAULT_PORT)
    elif address.count(":") > 1:
        raise ConfigInvalid(
            f"'{address}' is not of the form host:port; an IPv6 address must stand in brackets, [address]:port"
        )
    else:
        host, colon, port = address.partition(":")
        if not colon:
            port = str(DEFAULT_PORT)
        if not _HOST.match(host):
            raise ConfigInvalid(
                f"'{address}' is not of the form host:port: '{host}' is not the name or address of a host"
            )
        if re.fullmatch(r"[\d.]+", host):
            try:
                ipaddress.IPv4Address(host)
            except ValueError:
                raise ConfigInvalid(f"'{host}' in '{address}' is not an IPv4 address") from None
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ConfigInvalid(f"'{port}' in '{address}' is not a port (1 to 65535)")
    return host, int(port)


def contact_points(items: Iterable[str] | None) -> tuple[tuple[str, int], ...]:
    """The nodes of a list, in order and without repetitions.

    Raises:
        ConfigInvalid: it is empty or an item is not a node.
    """
    points = dict.fromkeys(contact_point(item) for item in items or () if item.strip())
    if not points:
        raise ConfigInvalid("at least one host:port must be given")
    return tuple(points)


def _parse_identifier(identifier: str, whole: str) -> str:
    if identifier.startswith('"'):
        name = identifier[1:-1].replace('""', '"')
    elif not _UNQUOTED.match(identifier) and identifier:
        hint = (
            f'; a name that is not a CQL identifier must stand in double quotes: "{identifier}"'
            if _NAME.match(identifier)
            else ""
        )
        raise ConfigInvalid(f"'{identifier}' in '{whole}' is not a name{hint}")
    else:
        name = identifier.lower()
    if not _NAME.match(name):
        raise ConfigInvalid(
            f"'{identifier}' in '{whole}' is not a name of a keyspace or table: letters, digits and _ are allowed"
        )
    return name


def table_name(qualified_name: str) -> TableId:
    """``keyspace.table``, each as in CQL: without quotes folded to lower case, in double quotes unchanged.

    Raises:
        ConfigInvalid: it is not of that form.
    """
    first = _PART.match(qualified_name)
    second = (
        _PART.match(qualified_name, first.end() + 1)
        if first and qualified_name[first.end() : first.end() + 1] == "."
        else None
    )
    if first is None or second is None or second.end() != len(qualified_name):
        raise ConfigInvalid(f"'{qualified_name}' is not of the form keyspace.table")
    return TableId(_parse_identifier(first[1], qualified_name), _parse_identifier(second[1], qualified_name))


def table_names(items: Iterable[str] | None) -> tuple[TableId, ...]:
    """The tables of a list, in order and without repetitions.

    Raises:
        ConfigInvalid: it is empty, or an item is not a table.
    """
    names = dict.fromkeys(table_name(item) for item in items or () if item.strip())
    if not names:
        raise ConfigInvalid("at least one keyspace.table must be given")
    for table in names:
        if table.table.endswith("_scylla_cdc_log"):
            raise ConfigInvalid(f"{table} is a log table; name the table it is the log of")
    return tuple(names)


def topic_prefix_problem(value: str) -> str | None:
    """Why ``value`` can't begin the names of topics, or None."""
    if not _PREFIX.match(value):
        return "only letters, digits, '.', '_' and '-' may be in the name of a topic"
    return None


def quote_name(name: str) -> str:
    """``name`` in double quotes, as CQL takes any name."""
    return '"' + name.replace('"', '""') + '"'


def qualify_table(table: TableId) -> str:
    """Keyspace and table, quoted."""
    return f"{quote_name(table.keyspace)}.{quote_name(table.table)}"
