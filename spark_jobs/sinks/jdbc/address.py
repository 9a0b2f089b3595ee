"""Reads JDBC URLs, and makes table names out of namespaces."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote

from connectors.errors import ConfigInvalid

#: JDBC's subprotocol -> (dialect, usual port).
SUBPROTOCOLS: Final = {"postgresql": ("postgresql", 5432), "mariadb": ("mariadb", 3306), "mysql": ("mysql", 3306)}
_SECRET: Final = re.compile(r"passw|pwd|secret", re.IGNORECASE)
_URL: Final = re.compile(r"jdbc:(?P<kind>[a-z0-9]+)://(?P<hosts>[^/?]*)(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?\Z")
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::(?P<port>\d+))?\Z")
_PART: Final = re.compile(r"\$\{(?P<name>[^}]*)\}")
#: What a template may name; see ``parts``.
PARTS: Final = ("table", "database", "schema", "namespace", "instance", "type")
_UMS_PARTS: Final = 7


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is.

    Attributes:
        dialect: postgresql, mariadb or mysql.
        hosts: (host, port), tried in order.
        database: its name.
        query: parameters after ``?``.
    """

    dialect: str
    hosts: tuple[tuple[str, int], ...]
    database: str
    query: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """For messages: dialect, hosts and database, never a secret."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{self.dialect} at {hosts}/{self.database}"


def parse_url(url: str) -> Address:
    """The parts of ``jdbc:<postgresql|mariadb|mysql>://host[:port][,host[:port]]/database[?name=value&...]``. Pure.

    Raises:
        ConfigInvalid: it is none; the text names what is wrong and never repeats a password.
    """
    shape = "it must be jdbc:postgresql://host:port/database, jdbc:mariadb://... or jdbc:mysql://..."
    found = _URL.match(url.strip())
    if found is None:
        raise ConfigInvalid(f"not a JDBC URL; {shape}")
    kind = found["kind"]
    if kind not in SUBPROTOCOLS:
        raise ConfigInvalid(
            f"jdbc:{kind} has no dialect here; there are: {', '.join(SUBPROTOCOLS)} "
            "(docs/jobs/jdbc.md says how one is added)"
        )
    dialect, usual = SUBPROTOCOLS[kind]
    if "@" in found["hosts"]:
        raise ConfigInvalid("the URL must not hold a login: use sink.jdbc.user and sink.jdbc.password")
    hosts: list[tuple[str, int]] = []
    for each in found["hosts"].split(","):
        host = _HOST.match(each)
        if host is None or not 0 < int(host["port"] or usual) < 1 << 16:
            raise ConfigInvalid(f"'{each}' is no host:port; {shape}")
        hosts.append((host["host"].strip("[]"), int(host["port"] or usual)))
    database = unquote(found["database"] or "")
    if not database:
        raise ConfigInvalid(f"the URL names no database; {shape}")
    query = tuple(parse_qsl(found["query"] or "", keep_blank_values=True))
    for name, _ in query:
        if _SECRET.search(name) or name == "user":
            raise ConfigInvalid(f"the URL must not hold '{name}': use sink.jdbc.user and sink.jdbc.password")
    return Address(dialect, tuple(hosts), database, query)


def parts(namespace: str) -> dict[str, str]:
    """What templates may name, from UMS's seven parts, else ``[...].<database>.<table>``, else a bare name. Pure."""
    pieces = namespace.split(".")
    if len(pieces) == _UMS_PARTS:
        kind, instance, database, table = pieces[:4]
    else:
        kind, instance = "", ""
        table = pieces[-1]
        database = pieces[-2] if len(pieces) > 1 else ""
    return {
        "table": table,
        "database": database,
        "schema": database,
        "namespace": namespace.replace(".", "_"),
        "instance": instance,
        "type": kind,
    }


def identity(namespace: str) -> str:
    """The namespace without what changes over a table's life or splits it (UMS: version and the two partition parts). Pure."""
    pieces = namespace.split(".")
    return ".".join(pieces[:4]) if len(pieces) == _UMS_PARTS else namespace


def check_template(template: str) -> str | None:
    """What is wrong with a template, or None. Pure."""
    unknown = [found["name"] for found in _PART.finditer(template) if found["name"] not in PARTS]
    if unknown:
        return f"${{{unknown[0]}}} is not known; there are: " + ", ".join(f"${{{name}}}" for name in PARTS)
    return None


def render(template: str, namespace: str) -> str:
    """The template with a namespace's parts put in. Pure."""
    values = parts(namespace)
    return _PART.sub(lambda found: values[found["name"]], template)


def shorten(name: str, limit: int, *, octets: bool) -> str:
    """A name that the database can hold: one that is too long is cut and ends with a hash of the whole. Pure.

    Args:
        name: as wanted.
        limit: of the database.
        octets: whether the limit counts bytes of UTF-8 (PostgreSQL) or characters (MariaDB).
    """

    def size(text: str) -> int:
        return len(text.encode()) if octets else len(text)

    if size(name) <= limit:
        return name
    mark = "_" + hashlib.sha256(name.encode()).hexdigest()[:8]
    kept = name[:limit]
    while size(kept) + len(mark) > limit:
        kept = kept[:-1]
    return kept + mark
