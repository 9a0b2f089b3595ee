"""Validators of the options: hosts, directories of nodes, lists of regular expressions. Pure functions."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java
from connectors.options import invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from connectors.options import Validator

#: Name of the node whose directory is given without a label.
LOCAL: Final = "local"

_HOST: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?\Z", re.ASCII)
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]+\Z", re.ASCII)
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*\Z", re.ASCII)
#: Commas that separate regular expressions: a backslash keeps a comma in the expression.
_COMMA: Final = re.compile(r"(?<!\\),")


class LogNode(NamedTuple):
    """A Cassandra node whose log is read.

    Attributes:
        name: in offsets, events, metrics and messages; also the label that its worker needs, if ``placed``.
        directory: its ``cdc_raw``, as the worker sees it.
        placed: whether the task must run on a worker that has the label; else it may run anywhere.
    """

    name: str
    directory: str
    placed: bool = True


def parse_directories(items: Iterable[str] | None) -> tuple[LogNode, ...]:
    """The nodes of a list of ``LABEL=PATH`` (or one ``PATH``), in order.

    Raises:
        ConfigInvalid: an item is not of that form, a label is there twice, or the list is empty.
    """
    nodes: dict[str, LogNode] = {}
    for item in (entry.strip() for entry in items or ()):
        if not item:
            continue
        label, equals, path = item.partition("=")
        label, path = label.strip(), path.strip()
        if not equals or "/" in label:
            node = LogNode(LOCAL, item, placed=False)
        elif not _LABEL.match(label):
            raise ConfigInvalid(f"'{label}' in '{item}' is not a label: letters, digits and . _ : - are allowed")
        else:
            node = LogNode(label, path)
        if not node.directory.startswith("/"):
            raise ConfigInvalid(
                f"'{item}' is not of the form LABEL=PATH with an absolute path, such as "
                "cass-1=/var/lib/cassandra/cdc_raw"
            )
        if node.name in nodes:
            raise ConfigInvalid(
                f"the node {node.name} is there twice"
                if node.placed
                else "only one directory may stand without a label: write LABEL=PATH for each node"
            )
        nodes[node.name] = node._replace(directory=node.directory.rstrip("/") or "/")
    if not nodes:
        raise ConfigInvalid("at least one LABEL=PATH must be given, such as cass-1=/var/lib/cassandra/cdc_raw")
    return tuple(nodes.values())


def contact_points(items: Iterable[str] | None, default_port: int) -> tuple[tuple[str, int], ...]:
    """Nodes of a list of ``host``, ``host:port``, ``[v6 address]:port`` or a bare v6 address, in order, without repetitions.

    Raises:
        ConfigInvalid: an item has another form, or the list is empty.
    """
    points = dict.fromkeys(_contact_point(item.strip(), default_port) for item in items or () if item.strip())
    if not points:
        raise ConfigInvalid("at least one host must be given")
    return tuple(points)


def _contact_point(address: str, default_port: int) -> tuple[str, int]:
    port = str(default_port)
    if address.startswith("["):
        host, closed, port_part = address[1:].partition("]")
        if not closed or (port_part and not port_part.startswith(":")):
            raise ConfigInvalid(f"'{address}' is not of the form [address]:port")
        port = port_part[1:] or port
    elif address.count(":") == 1:
        host, _, port = address.partition(":")
    else:
        host = address
    if ":" in host or re.fullmatch(r"[\d.]+", host):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ConfigInvalid(f"'{host}' in '{address}' is not an address") from None
    elif not _HOST.match(host):
        raise ConfigInvalid(f"'{host}' in '{address}' is not the name or address of a host")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ConfigInvalid(f"'{port}' in '{address}' is not a port (1 to 65535)")
    return host, int(port)


def split_regexes(regexes: str | None) -> list[str]:
    r"""A comma-separated list of regular expressions; ``\,`` is a comma within one. Blanks around them don't count."""
    return [item.replace("\\,", ",").strip() for item in _COMMA.split(regexes or "") if item.strip()]


def text_of(value: Any) -> str:
    """An option of type list as it was written: such lists are split at commas, regular expressions may hold some."""
    return ",".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value or "")


def regex_list(name: str, value: Any) -> str | None:
    """A comma-separated list of Java's regular expressions."""
    regexes = text_of(value)
    for item in split_regexes(regexes):
        try:
            compile_java(item)
        except ConfigInvalid as error:
            return invalid(
                name, regexes, f"A comma-separated list of valid regular expressions is expected, but {error}"
            )
    return None


def topic_prefix(name: str, value: Any) -> str | None:
    """Check a prefix for the names of topics."""
    if not value:
        return invalid(name, value, "String must be non-empty")
    if not _PREFIX.match(value):
        return invalid(name, value, "only letters, digits, '.', '_' and '-' may be in the name of a topic")
    return None


def absolute_path(name: str, value: Any) -> str | None:
    """An absolute path, or nothing."""
    return None if not value or str(value).startswith("/") else invalid(name, value, "an absolute path is expected")


def validate_with(parse: Callable[[Any], object]) -> Validator:
    """A validator that passes on what ``parse`` raises as ``ConfigInvalid``."""

    def check(name: str, value: Any) -> str | None:
        try:
            parse(value)
        except ConfigInvalid as error:
            return invalid(name, text_of(value), str(error))
        return None

    return check


def shard_text(index: int, count: int) -> str:
    """A share of snapshots as task configurations and source partitions write it: ``index/count``, counted from 0."""
    return f"{index}/{count}"


def shard_of(shard: str) -> tuple[int, int]:
    """The inverse of ``shard_text``.

    Raises:
        ConfigInvalid: it is no share.
    """
    index, _, count = shard.partition("/")
    if not (index.isdigit() and count.isdigit() and int(index) < int(count)):
        raise ConfigInvalid(f"'{shard}' is not of the form INDEX/COUNT, counted from 0")
    return int(index), int(count)
