"""Reads JDBC URLs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote

from connectors.errors import ConfigInvalid
from spark_jobs.sinks.jdbc.dialect.dialects import list_dialects, load_dialect

_SECRET: Final = re.compile(r"passw|pwd|secret", re.IGNORECASE)
_URL: Final = re.compile(r"jdbc:(?P<kind>[a-z0-9_]+):(?P<rest>.*)\Z")
_SERVER: Final = re.compile(r"//(?P<hosts>[^/?]*)(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?\Z")
_FILE: Final = re.compile(r"(?P<path>/[^/?][^?]*)(?:\?(?P<query>.*))?\Z")
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::(?P<port>\d+))?\Z")


@dataclass(frozen=True, slots=True)
class JdbcAddress:
    """Where a database is.

    Attributes:
        dialect: the name of its dialect (``dialects``), as in the URL.
        hosts: (host, port), tried in order; empty for a database that is a file.
        database: its name, or the path of its file.
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
        return f"{self.dialect} at {hosts}/{self.database}" if hosts else f"{self.dialect} at {self.database}"


def parse_url(url: str) -> JdbcAddress:
    """The parts of ``jdbc:<dialect>://host[:port][,host[:port]]/database[?name=value&...]`` or ``jdbc:<dialect>:/path``.

    Imports the dialect, with its driver.

    Raises:
        ConfigInvalid: it is not a valid address; the message names what is wrong and never repeats a password.
    """
    match = _URL.match(url.strip())
    if match is None:
        raise ConfigInvalid(
            "not a JDBC URL; it must be jdbc:postgresql://host:port/database, jdbc:mariadb://..., jdbc:mysql://... or "
            "jdbc:sqlite:/path/of/file"
        )
    kind, remainder = match["kind"], match["rest"]
    usual = _usual_port(kind)
    shape = f"it must be jdbc:{kind}://host:port/database" if usual else f"it must be jdbc:{kind}:/path/of/file"
    part = (_SERVER if usual else _FILE).match(remainder)
    if part is None:
        raise ConfigInvalid(f"not a JDBC URL; {shape}")
    query = tuple(parse_qsl(part["query"] or "", keep_blank_values=True))
    for name, _ in query:
        if _SECRET.search(name) or name == "user":
            raise ConfigInvalid(f"the URL must not hold '{name}': use sink.jdbc.user and sink.jdbc.password")
    if not usual:
        return JdbcAddress(kind, (), part["path"], query)
    if "@" in part["hosts"]:
        raise ConfigInvalid("the URL must not hold a login: use sink.jdbc.user and sink.jdbc.password")
    hosts: list[tuple[str, int]] = []
    for host_port in part["hosts"].split(","):
        host = _HOST.match(host_port)
        if host is None or not 0 < int(host["port"] or usual) < 1 << 16:
            raise ConfigInvalid(f"'{host_port}' is no host:port; {shape}")
        hosts.append((host["host"].strip("[]"), int(host["port"] or usual)))
    database = unquote(part["database"] or "")
    if not database:
        raise ConfigInvalid(f"the URL names no database; {shape}")
    return JdbcAddress(kind, tuple(hosts), database, query)


def _usual_port(kind: str) -> int:
    """The usual port of a dialect's servers; 0 where a database is a file.

    Raises:
        ConfigInvalid: there is no such dialect, or it can't be imported.
    """
    try:
        return load_dialect(kind).port
    except KeyError:
        raise ConfigInvalid(
            f"jdbc:{kind} has no dialect here; there are: {', '.join(list_dialects())} (docs/jobs/jdbc.md says how one is "
            "added)"
        ) from None
    except (ImportError, AttributeError) as error:
        raise ConfigInvalid(f"the dialect {kind} can't be used: {error}; install what it needs") from error
