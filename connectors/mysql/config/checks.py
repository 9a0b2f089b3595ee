"""Checks of a configuration that need the server. Every error message names the statement that fixes the problem."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable
from connectors.mysql.config import options_events as event_keys
from connectors.mysql.config import options_reading as reading_keys
from connectors.mysql.config import options_source as source_keys
from connectors.mysql.config.filters import MySqlTableFilter
from connectors.mysql.config.settings import (
    connection_settings,
    event_settings,
    heartbeat_settings,
    replica_settings,
    snapshot_plan,
    stream_settings,
)
from connectors.mysql.schema import catalog, columns
from connectors.mysql.snapshot.reading import lookup, split
from connectors.mysql.source import connection
from connectors.mysql.stream import logical
from connectors.mysql.stream.heartbeat import setup_text
from connectors.options import ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from connectors.mysql.model import StreamSettings, TableName
    from connectors.mysql.source.connection import ServerInfo
    from connectors.options import Config

#: Seconds that all questions may take together: a REST client waits for the answer.
DEADLINE_S: Final = 20.0
#: The same for a list of tables, of which most are shown without an answer, too.
_LISTED_S: Final = 5.0
#: Tables that are tried to be read.
_TRIED: Final = 100
_GRANT: Final = re.compile(
    r"GRANT\s+(?P<rights>.+?)\s+ON\s+(?:TABLE\s+)?(?P<object>(?:`(?:[^`]|``)*`|\*|[^\s.]+)\."
    r"(?:`(?:[^`]|``)*`|\*|[^\s]+))\s+TO\s",
    re.IGNORECASE | re.DOTALL,
)
_COLUMN_LIST: Final = re.compile(r"\([^)]*\)")
_SIGNAL_COLUMNS: Final = "(id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT)"


class Grants(NamedTuple):
    """The result of ``SHOW GRANTS``.

    Attributes:
        everywhere: privileges ON *.*, in upper case.
        objects: (object as SQL writes it without quotes, privileges).
        roles: whether there are roles, whose privileges may not be shown.
    """

    everywhere: frozenset[str]
    objects: tuple[tuple[str, frozenset[str]], ...]
    roles: bool

    def may(self, right: str, table: TableName | None = None) -> bool:
        """Whether a privilege is there: everywhere, or on a table; True where roles may give it."""
        sufficient = {right, "ALL PRIVILEGES", "ALL"}
        if self.roles or sufficient & self.everywhere:
            return True
        return table is not None and any(
            sufficient & rights and _covers_table(pattern, table) for pattern, rights in self.objects
        )


def _covers_table(pattern_name: str, table: TableName) -> bool:
    database, _, name = pattern_name.partition(".")
    pattern = "".join(
        ".*" if char == "%" else "." if char == "_" else re.escape(char)
        for char in database.replace("\\_", "\0").replace("\\%", "\1")
    )
    pattern = pattern.replace(re.escape("\0"), "_").replace(re.escape("\1"), "%")
    return re.fullmatch(pattern, table.database, re.IGNORECASE) is not None and name in ("*", table.table)


def parse_grants(rows: Collection[str]) -> Grants:
    """Parse the rows of ``SHOW GRANTS``. Pure."""
    everywhere: set[str] = set()
    objects = []
    roles = False
    for row in rows:
        match = _GRANT.match(row)
        if match is None:
            roles = roles or row.upper().startswith("GRANT ")
            continue
        rights = frozenset(right.strip().upper() for right in _COLUMN_LIST.sub("", match["rights"]).split(","))
        if match["object"] == "*.*":
            everywhere |= rights
        else:
            objects.append((match["object"].replace("`", ""), rights))
    return Grants(frozenset(everywhere), tuple(objects), roles)


class Findings:
    """Complaints of a check: errors make the configuration unusable, warnings don't."""

    def __init__(self) -> None:
        self.errors: list[ConfigProblem] = []
        self.warnings: list[ConfigProblem] = []

    def error(self, name: str, message: str) -> None:
        """The configuration can't work."""
        self.errors.append(ConfigProblem(name, message))

    def warn(self, name: str, message: str) -> None:
        """It works; the user should know."""
        self.warnings.append(ConfigProblem(name, message))


async def check_server(config: Config) -> Findings:
    """Ask the server whether it can be captured as the configuration says. Opens connections and closes them; never raises."""
    findings = Findings()
    opened: Any = None
    try:
        async with asyncio.timeout(DEADLINE_S):
            opened = await connection.connect_first(connection_settings(config))
            await _check_opened(opened, config, findings)
    except TimeoutError:
        findings.error(
            source_keys.HOST,
            f"The server did not answer all questions within {DEADLINE_S:.0f} s; check {source_keys.HOST} and the way to it",
        )
    except ConfigInvalid as error:
        findings.error(_option_of_refusal(config, str(error)), str(error))
    except MillraceError as error:
        findings.error(source_keys.HOST, f"The server can't be asked: {error}")
    finally:
        if opened is not None:
            opened.close()
    return findings


async def server_tables(config: Config) -> list[TableName]:
    """The tables that the account sees, without those of the server itself. Opens a connection and closes it.

    Raises:
        ConfigInvalid: the server refuses the account.
        Retriable: it can't be asked now.
    """
    return await _query_tables(config, DEADLINE_S, captured=False)


async def captured_tables(config: Config) -> list[TableName]:
    """Those of them that the configuration chooses. Raises as ``server_tables`` does."""
    return await _query_tables(config, _LISTED_S, captured=True)


async def _query_tables(config: Config, deadline_s: float, *, captured: bool) -> list[TableName]:
    opened: Any = None
    try:
        async with asyncio.timeout(deadline_s):
            opened = await connection.connect_first(connection_settings(config))
            if not captured:
                return sorted(await catalog.captured_tables(opened, lambda _: True))
            info = await connection.server_info(opened)
            table_filter = MySqlTableFilter(event_settings(config, info.flavor))
            return await catalog.captured_tables(opened, table_filter.matches, table_filter.database)
    except TimeoutError:
        raise Retriable(
            f"The server did not answer within {deadline_s:.0f} s; check {source_keys.HOST} and the way to it"
        ) from None
    finally:
        if opened is not None:
            opened.close()


def _option_of_refusal(config: Config, message: str) -> str:
    if "database.password" in message:
        return source_keys.PASSWORD if config[source_keys.PASSWORD] is not None else source_keys.USER
    if "ssl" in message or "TLS" in message:
        return source_keys.SSL_MODE
    return source_keys.USER if "account" in message else source_keys.HOST


async def _check_opened(opened: Any, config: Config, findings: Findings) -> None:
    info = await connection.server_info(opened)
    settings = stream_settings(config)
    grants = parse_grants([str(row[0]) for row in await connection.query_rows(opened, "SHOW GRANTS")])
    binlog_variables(info, config, findings)
    _check_gtids(info, config, findings)
    account = f"'{config[source_keys.USER]}'@'%'"
    if not grants.may("REPLICATION SLAVE"):
        findings.error(
            source_keys.USER, f"The account may not read the binlog: GRANT REPLICATION SLAVE ON *.* TO {account}"
        )
    if info.is_on("log_bin"):
        await _check_positions(opened, info, account, config, settings, findings)
    await _check_tables(opened, info, grants, config, settings, findings)
    await _check_replica(info, config, findings)


def binlog_variables(info: ServerInfo, config: Config, findings: Findings) -> None:
    """Complaints about the server's settings of the binlog. Pure."""
    variables = info.variables
    if not info.is_on("log_bin"):
        findings.error(
            source_keys.HOST,
            f"{info.address} writes no binlog: set log_bin and server_id in its configuration and restart it",
        )
        return
    if (form := variables.get("binlog_format", "ROW").upper()) != "ROW":
        findings.error(
            source_keys.HOST,
            f"binlog_format is {form}, which does not tell which rows have changed: SET GLOBAL binlog_format "
            "= ROW, the same in the server's configuration, and reconnect its clients",
        )
    if (image := variables.get("binlog_row_image", "FULL").upper()) != "FULL":
        findings.warn(
            source_keys.HOST,
            f"binlog_row_image is {image}: columns that it leaves out are null in events. For whole rows: SET "
            "GLOBAL binlog_row_image = FULL",
        )
    metadata = variables.get("binlog_row_metadata")
    if metadata is None:
        findings.warn(
            source_keys.HOST,
            f"{info.version_text} does not write the names of columns into the binlog: they are taken from "
            "information_schema, and changes made before an ALTER TABLE and read after it can stop the "
            "connector",
        )
    elif metadata.upper() != "FULL":
        findings.warn(
            source_keys.HOST,
            f"binlog_row_metadata is {metadata}: names of columns are taken from information_schema, and "
            "changes made before an ALTER TABLE and read after it can stop the connector. Better: SET GLOBAL "
            "binlog_row_metadata = FULL, the same in the server's configuration",
        )
    if info.server_id and info.server_id == config[source_keys.SERVER_ID]:
        findings.error(
            source_keys.SERVER_ID,
            f"{source_keys.SERVER_ID}={info.server_id} is the server's own number (SELECT @@server_id): choose "
            "another one, or 0",
        )
    if config[event_keys.QUERY]:
        name = "binlog_annotate_row_events" if info.mariadb else "binlog_rows_query_log_events"
        if not info.is_on(name):
            findings.warn(
                event_keys.QUERY,
                f"{event_keys.QUERY}=true, but the server does not log statements: SET GLOBAL {name} = ON",
            )


def _check_gtids(info: ServerInfo, config: Config, findings: Findings) -> None:
    if info.has_gtids:
        return
    fix = "SET GLOBAL enforce_gtid_consistency = ON, then SET GLOBAL gtid_mode step by step to ON"
    if "," in config[source_keys.HOST]:
        findings.warn(source_keys.HOST, f"Without GTIDs the stream can't continue at another server: {fix}")
    for name in (source_keys.GTID_INCLUDES, source_keys.GTID_EXCLUDES):
        if config[name]:
            findings.warn(name, f"{name} has no effect: the server has no GTIDs ({fix})")


async def _check_positions(
    opened: Any, info: ServerInfo, account: str, config: Config, settings: StreamSettings, findings: Findings
) -> None:
    """Check that the server reports its position, and that its binlog has the databases that the connector needs."""
    statement = "SHOW BINARY LOG STATUS" if not info.mariadb and info.version >= (8, 2, 0) else "SHOW MASTER STATUS"
    right = "BINLOG MONITOR" if info.mariadb and info.version >= (10, 5, 2) else "REPLICATION CLIENT"
    try:
        rows = await connection.query_rows(opened, statement)
        await connection.binary_logs(opened)
    except Fatal as error:
        findings.error(
            source_keys.USER,
            f"The account may not ask for the position in the binlog: GRANT {right} ON *.* TO {account} ({error})",
        )
        return
    included, ignored = (_split_names(rows[0][index] if rows and len(rows[0]) > index else None) for index in (2, 3))
    if not included and not ignored:
        return

    def is_left_out(database: str) -> bool:
        return bool(included and database not in included) or database in ignored

    table_filter = MySqlTableFilter(event_settings(config, info.flavor))
    databases = [
        str(row[0])
        for row in await connection.query_rows(opened, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
    ]
    missing = sorted(name for name in databases if table_filter.database(name) and is_left_out(name))
    named = [
        str(table)
        for table in (settings.signal_table, settings.heartbeat_table)
        if table is not None and is_left_out(table.database)
    ]
    if missing or named:
        findings.warn(
            source_keys.DATABASES,
            f"The server does not write changes of {', '.join([*missing, *named])} into its binlog "
            "(binlog_do_db, binlog_ignore_db): take these out of its configuration",
        )


def _split_names(listed: Any) -> set[str]:
    """The names of a list with commas, as the server shows it."""
    return {name.strip() for name in str(listed or "").split(",") if name.strip()}


async def _check_tables(
    opened: Any, info: ServerInfo, grants: Grants, config: Config, settings: StreamSettings, findings: Findings
) -> None:
    account = f"'{config[source_keys.USER]}'@'%'"
    table_filter = MySqlTableFilter(event_settings(config, info.flavor))
    names = await catalog.captured_tables(opened, table_filter.matches, table_filter.database)
    option = source_keys.TABLES if config[source_keys.TABLES] else source_keys.DATABASES
    if not names:
        findings.warn(
            option, f"There is no table to capture yet, or the account can't see it: GRANT SELECT ON *.* TO {account}"
        )
    if settings.guardrail and len(names) > settings.guardrail:
        complain = findings.error if settings.guardrail_fails else findings.warn
        complain(
            source_keys.GUARDRAIL,
            f"{len(names)} tables are to be captured, more than {source_keys.GUARDRAIL}={settings.guardrail}: name "
            f"fewer in {source_keys.TABLES}, or raise it",
        )
    if config[event_keys.LOGICAL]:
        await _check_logical(opened, names, config, info, findings)
    refused: list[TableName] = []
    for name in names[:_TRIED]:
        try:
            await connection.query_rows(opened, f"SELECT 1 FROM {catalog.quote_name(name)} LIMIT 0")  # noqa: S608 - quoted
        except Fatal as error:
            if not connection.is_missing_table(error):  # else it was dropped or renamed since
                refused.append(name)
    if refused:
        complain = findings.warn if snapshot_plan(config).snapshot == "never" else findings.error
        shown = ", ".join(str(name) for name in refused[:5]) + (" ..." if len(refused) > 5 else "")
        complain(option, f"{shown} can't be read: GRANT SELECT ON {catalog.quote_name(refused[0])} TO {account}")
    await _split_columns(opened, names, config, findings)
    await _own_tables(opened, info, grants, config, settings, findings)


async def _check_logical(
    opened: Any, names: Sequence[TableName], config: Config, info: ServerInfo, findings: Findings
) -> None:
    """Check that ``logical.tables`` matches tables, and that the partitions of a logical table are distinct and fit."""
    settings = event_settings(config, info.flavor)
    mapping = logical.parse_mapping(settings.logical)
    for expression in mapping.unused(names):
        findings.warn(
            event_keys.LOGICAL,
            f"{event_keys.LOGICAL}: {expression} matches no captured table yet: expressions match whole names of the form "
            f"database.table (a dot is written \\.); check it, {source_keys.TABLES} and {source_keys.DATABASES}",
        )
    try:
        tables = await catalog.read_definitions(opened, [name for name in names if mapping.concerns(name)])
        partitions = logical.Partitions(mapping)
        complaints = [partitions.add(name, columns.key_columns(table, settings)) for name, table in tables.items()]
    except ConfigInvalid as error:
        findings.error(event_keys.LOGICAL, str(error))
        return
    differences = logical.compare_columns(tables.values(), mapping)
    for complaint in [*filter(None, complaints), *differences.types]:
        findings.error(event_keys.LOGICAL, complaint)
    for complaint in differences.missing:
        findings.warn(event_keys.LOGICAL, complaint)
    keyed = any(columns.key_columns(table, settings) for table in tables.values())
    if keyed and not settings.topics.key_enabled and settings.output_format == "debezium":
        findings.warn(
            event_keys.TOPIC_KEY_ENABLE,
            f"{event_keys.TOPIC_KEY_ENABLE}=false with {event_keys.LOGICAL}: rows of two partitions may have the "
            "same key, and a compacted topic keeps only one of them. Remove the option",
        )


async def _split_columns(opened: Any, names: Collection[TableName], config: Config, findings: Findings) -> None:
    """``snapshot.split.columns``: the columns are there and can be divided, and the tables have no key."""
    option = config[reading_keys.SNAPSHOT_SPLIT] or ""
    chosen = {name: column for name in names if (column := split.chosen_column(option, name)) is not None}
    if option and not chosen:
        findings.warn(reading_keys.SNAPSHOT_SPLIT, f"{reading_keys.SNAPSHOT_SPLIT} names no table that is captured")
    if option and config[reading_keys.SNAPSHOT_THREADS] < 2:
        findings.warn(
            reading_keys.SNAPSHOT_SPLIT,
            f"{reading_keys.SNAPSHOT_SPLIT} has no effect with one connection: raise {reading_keys.SNAPSHOT_THREADS}",
        )
    looked_up = list(chosen)[:_TRIED]
    tables = await catalog.read_definitions(opened, looked_up) if looked_up else {}
    for name in looked_up:
        if name in tables and tables[name].key:
            findings.warn(
                reading_keys.SNAPSHOT_SPLIT,
                f"{name} has a key and is divided by that: {reading_keys.SNAPSHOT_SPLIT} has no effect on it",
            )
        elif columns := await lookup.read_shape(opened, name):
            complaint = split.split_column(name, chosen[name], columns)
            if isinstance(complaint, str):
                findings.error(reading_keys.SNAPSHOT_SPLIT, complaint)


async def _own_tables(
    opened: Any, info: ServerInfo, grants: Grants, config: Config, settings: StreamSettings, findings: Findings
) -> None:
    """The signal table and the heartbeat table."""
    signal, beat = (name and info.stored_name(name) for name in (settings.signal_table, settings.heartbeat_table))
    special = [name for name in (signal, beat) if name is not None]
    if not special:
        return
    there = await catalog.read_definitions(opened, special)
    if signal is not None and signal not in there:
        findings.warn(
            reading_keys.SIGNALS,
            f"The signal table {signal} is not there: CREATE TABLE {catalog.quote_name(signal)} {_SIGNAL_COLUMNS}",
        )
    elif signal is not None and len(there[signal].columns) != 3:
        findings.warn(reading_keys.SIGNALS, f"The signal table {signal} must have three columns: {_SIGNAL_COLUMNS}")
    if beat is None:
        return
    heartbeats = heartbeat_settings(config)
    needed = ("INSERT", "UPDATE") if beat in there else ("CREATE", "INSERT", "UPDATE")
    if beat not in there and not heartbeats.create:
        findings.warn(
            reading_keys.HEARTBEAT_TABLE, f"The heartbeat table {beat} is not there: {setup_text(heartbeats)}"
        )
    elif not all(grants.may(right, beat) for right in needed):
        findings.warn(
            reading_keys.HEARTBEAT_TABLE,
            f"The account may not write the heartbeat table {beat}: {setup_text(heartbeats)}",
        )


async def _check_replica(info: ServerInfo, config: Config, findings: Findings) -> None:
    """``snapshot.hostname``: it can be reached, is of the same kind, and both have GTIDs."""
    settings = replica_settings(config)
    if settings is None:
        return
    opened: Any = None
    try:
        opened = await connection.connect_first(settings, server_name="the replica of snapshot.hostname")
        replica_info = await connection.server_info(opened)
    except MillraceError as error:
        findings.error(reading_keys.SNAPSHOT_HOST, str(error))
        return
    finally:
        if opened is not None:
            opened.close()
    if replica_info.flavor != info.flavor:
        findings.error(
            reading_keys.SNAPSHOT_HOST,
            f"{replica_info.address} is {replica_info.flavor}, the source is {info.flavor}: it is no replica",
        )
    elif not (info.has_gtids and replica_info.has_gtids):
        findings.error(
            reading_keys.SNAPSHOT_HOST,
            "Without GTIDs there is no way to tell how far the replica is: SET GLOBAL gtid_mode step by step "
            f"to ON on both servers, or leave {reading_keys.SNAPSHOT_HOST} out",
        )
