"""Validators of the options: servers, names of topics and tables, columns of keys. Pure functions."""

from __future__ import annotations

import re
from typing import Any, Final

from connectors.errors import ConfigInvalid
from connectors.java_regex import regex_list
from connectors.options import invalid

DEFAULT_PORT: Final = 3306

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+\Z", re.ASCII)
_HOST: Final = re.compile(r"[a-zA-Z0-9_.-]+\Z", re.ASCII)
_ADDRESS: Final = re.compile(r"[0-9a-fA-F:.%a-zA-Z]+\Z", re.ASCII)
_KEY_COLUMNS: Final = re.compile(r"\s*([^\s:]+):([^:\s]+)\s*\Z")
_TABLE: Final = re.compile(r"[^.\s`]+\.[^.\s`]+\Z")
_BINLOG_FILE: Final = re.compile(r".+\.\d{1,10}\Z")


def topic_name(name: str, value: Any) -> str | None:
    """A part of a topic's name."""
    if value is not None and not _TOPIC.match(value):
        return invalid(
            name,
            value,
            f"{value} has invalid format (only the underscore, hyphen, dot and alphanumeric characters are allowed)",
        )
    return None


def parse_hosts(source: str | None, default_port: int = DEFAULT_PORT) -> tuple[tuple[str, int], ...]:
    """Servers of a comma-separated list: ``host``, ``host:port``, ``[v6 address]:port`` or a bare v6 address.

    Raises:
        ConfigInvalid: an item has another form, or the list is empty.
    """
    servers: dict[tuple[str, int], None] = {}
    for item in (part.strip() for part in (source or "").split(",")):
        if not item:
            continue
        port = str(default_port)
        if item.startswith("["):
            host, closed, remainder = item[1:].partition("]")
            if not closed or (remainder and not remainder.startswith(":")):
                raise ConfigInvalid(f"'{item}' is not of the form [address]:port")
            port = remainder[1:] or port
        elif item.count(":") == 1:
            host, _, port = item.partition(":")
        else:
            host = item
        if not (_ADDRESS if ":" in host else _HOST).match(host):
            raise ConfigInvalid(
                f"{host} has invalid format (only the underscore, hyphen, dot and alphanumeric characters are allowed)"
            )
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise ConfigInvalid(f"'{port}' in '{item}' is not a port (1 to 65535)")
        servers[host, int(port)] = None
    if not servers:
        raise ConfigInvalid("at least one host must be given")
    return tuple(servers)


def host_list(name: str, value: Any) -> str | None:
    """One server or several, for failover."""
    try:
        parse_hosts(value)
    except ConfigInvalid as error:
        return invalid(name, value, str(error))
    return None


def host_or_none(name: str, value: Any) -> str | None:
    """One server, or none."""
    if value is None or value == "":
        return None
    return host_list(name, value) or (None if "," not in value else invalid(name, value, "one host is expected"))


def check_positive(name: str, value: Any) -> str | None:
    """A number above 0."""
    return invalid(name, value, "A positive integer is expected") if value is None or value <= 0 else None


def not_negative(name: str, value: Any) -> str | None:
    """A number that is 0 or above."""
    return invalid(name, value, "A non-negative integer is expected") if value is None or value < 0 else None


def check_operations(name: str, value: Any) -> str | None:
    """Operations to leave out: of c, u, d, t, r, or only none."""
    items = [str(item).strip() for item in value or () if str(item).strip()]
    wrong = next((item for item in items if item not in {"c", "u", "d", "t", "r", "none"}), None)
    if wrong is not None:
        return invalid(name, wrong, "Invalid operation")
    if "none" in items and len(items) > 1:
        return invalid(name, "none", "'none' cannot be specified with other skipped operation types")
    return None


def key_columns(name: str, value: Any) -> str | None:
    """``table:column,column;...`` with regular expressions for tables."""
    if value is None:
        return None
    if not value.strip():
        return invalid(name, value, "Must not be empty")
    for item in value.split(";"):
        if not item.strip():
            continue
        match = _KEY_COLUMNS.match(item)
        if match is None:
            return invalid(
                name, item, f"{item.strip()} has an invalid format (expecting database.table:column1,column2)"
            )
        complaint = regex_list(name, match[1])
        if complaint is not None:
            return complaint
    return None


def split_columns(name: str, value: Any) -> str | None:
    """``table:column;...`` with regular expressions for tables."""
    wrong = key_columns(name, value)
    item = next((item.strip() for item in (value or "").split(";") if "," in item.rpartition(":")[2]), None)
    if wrong is None and item is not None:
        return invalid(
            name, item, f"{item} names several columns; a table is divided by one (expecting database.table:column)"
        )
    return wrong


def table_or_none(name: str, value: Any) -> str | None:
    """``database.table``, or nothing."""
    if value is None or value == "" or _TABLE.match(value):
        return None
    return invalid(name, value, "must be of the form database.table")


def is_binlog_file(name: str) -> bool:
    """Whether it looks like the name of a binlog file: anything, a dot and a number."""
    return _BINLOG_FILE.match(name) is not None
