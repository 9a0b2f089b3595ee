"""Names of tables; creates tables and families, and looks whether those that exist can be written, on the driver."""

from __future__ import annotations

import hashlib
import re
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.contract import SchemaRefused
from spark_jobs.sinks.hbase.client import system_columns, translate_errors
from spark_jobs.sinks.hbase.config import PREFIX
from spark_jobs.sinks.hbase.protocol import SECOND, HbaseConnection, load_interface

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spark_jobs.contract import TableSchema
    from spark_jobs.sinks.hbase.config import HbaseSettings

_NO_LETTER: Final = re.compile(r"[^A-Za-z0-9_.-]")
_NO_START: Final = re.compile(r"[.-]")
_LONGEST_NAME: Final = 200
#: What a family has whose cells live forever.
_FOREVER_S: Final = (1 << 31) - 1
#: A family keeps marks of deletes whose version is at most this much (in ms) before now: all of them.
_KEEP: Final = {"hbase.hstore.time.to.purge.deletes": str((1 << 63) - 1)}


def usable_name(name: str) -> str:
    """A name that a table can have: with a hash of the whole name where it had to be changed. Pure."""
    usable = _NO_LETTER.sub("_", name)
    if _NO_START.match(usable):
        usable = "_" + usable[1:]
    if usable == name and len(name) <= _LONGEST_NAME:
        return name
    suffix = "_" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return usable[: _LONGEST_NAME - len(suffix)] + suffix


def name_of(settings: HbaseSettings, namespace: str) -> str:
    """The table of a source table, with HBase's namespace where the option has one. Pure."""
    space, colon, _ = settings.table.text.partition(":")
    name = settings.table.of_table(namespace)
    if not colon or "${" in space:
        return usable_name(name)
    return f"{space}:{usable_name(name.removeprefix(f'{space}:'))}"


def families_of(settings: HbaseSettings, schema: TableSchema) -> list[str]:
    """The families that rows of a source table are in. Pure."""
    names = [*(column.name for column in schema.columns), *system_columns(settings)]
    return sorted({settings.family_of(name, schema.namespace) for name in names})


def table_problem(name: str, ttls: Mapping[str, int], families: Iterable[str], settings: HbaseSettings) -> str:
    """Why a table can't be written as it is, and what to do; empty where it can. Pure.

    Args:
        name: of the table.
        ttls: its families and the seconds that their cells live.
        families: those that rows are in.
        settings: the sink's.
    """
    lacking = [family for family in families if family not in ttls]
    if lacking and not settings.auto_create:
        return (
            f"the table {name} lacks the column family {', '.join(lacking)}; it has {', '.join(sorted(ttls))}. Add it (alter), "
            f"correct {PREFIX}family and {PREFIX}column.families, or set {PREFIX}auto.create=true"
        )
    mortal = [family for family in families if ttls.get(family, _FOREVER_S) != _FOREVER_S]
    if mortal:
        return (
            f"the table {name} has a TTL on the family {', '.join(mortal)}: HBase counts it from a cell's version, which is "
            "an order number here and no time, so rows would be gone at once or never. Remove the TTL (FOREVER)"
        )
    return ""


def fit_table(settings: HbaseSettings, name: str, schema: TableSchema) -> None:
    """Create the table of a source table, or add the families that it lacks. Blocks.

    Args:
        settings: the sink's.
        name: the table.
        schema: the source table's.

    Raises:
        Retriable: the server is unavailable.
        Fatal: it refuses.
        SchemaRefused: the table can't be written as it is.
    """
    families = families_of(settings, schema)
    with translate_errors(settings), closing(HbaseConnection(settings)) as connection:
        ttls = ttls_of(connection, name)
        if ttls is None and not settings.auto_create:
            raise SchemaRefused(
                f"table {schema.namespace}: there is no table {name} in HBase: create '{name}', "
                f"{', '.join(repr(family) for family in families)}, or set {PREFIX}auto.create=true",
                schema.namespace,
            )
        if ttls is None and _create_table(connection, settings, name, families):
            return
        ttls = ttls or ttls_of(connection, name) or {}
        problem = table_problem(name, ttls, families, settings)
        if problem:
            raise SchemaRefused(f"table {schema.namespace}: {problem}", schema.namespace)
        for family in families:
            if family not in ttls:
                connection.ask("addColumnFamily", _make_table_name(name), _make_family(settings, family))


def check_server(settings: HbaseSettings) -> list[str]:
    """Complaints of a server about the options, as ``<option>: <text>``. Blocks.

    Raises:
        Retriable, Fatal: it can't be asked.
    """
    with translate_errors(settings), closing(HbaseConnection(settings)) as connection:
        version = connection.ask("getThriftServerType")
        if version != SECOND:
            version_problem = (
                f"{settings.access.address} is a Thrift server of version {version}; name one of version 2"
            )
            return [f"{PREFIX}address: {version_problem} (hbase thrift2 start), which has a version per row"]
        if "${" in settings.table.text:
            return []
        name = name_of(settings, "")
        ttls = ttls_of(connection, name)
    if ttls is None:
        return [] if settings.auto_create else [f"{PREFIX}table: there is no table {name}"]
    families = set(settings.families.values())
    if "${" not in settings.family.text:
        families.add(settings.family.text)
    problem = table_problem(name, ttls, sorted(families), settings)
    return [f"{PREFIX}table: {problem}"] if problem else []


def ttls_of(connection: HbaseConnection, name: str) -> dict[str, int] | None:
    """The families of a table, with the seconds that their cells live; None where there is no table. Blocks."""
    if not connection.ask("tableExists", _make_table_name(name)):
        return None
    described = connection.ask("getTableDescriptor", _make_table_name(name))
    return {family.name.decode(): family.ttl_s for family in described.families or []}


def _create_table(connection: HbaseConnection, settings: HbaseSettings, name: str, families: Iterable[str]) -> bool:
    """Whether the table was created; else another job was faster."""
    table = load_interface().Table(
        name=_make_table_name(name), families=[_make_family(settings, family) for family in families]
    )
    try:
        connection.ask("createTable", table, None)
    except load_interface().ServerError as error:
        if "TableExists" in str(error.message):
            return False
        raise
    return True


def _make_table_name(name: str) -> Any:
    space, _, qualifier = name.rpartition(":")
    return load_interface().TableName(space=space.encode() or None, qualifier=qualifier.encode())


def _make_family(settings: HbaseSettings, name: str) -> Any:
    return load_interface().Family(
        name=name.encode(),
        versions=settings.versions,
        configuration=_KEEP if settings.keep_deletes else None,
    )
