"""Checks of a configuration that need this worker's disks or the cluster. Decisions are pure; ``check_*`` ask."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.api import LABELS_KEY, NODE_KEY
from connectors.cassandra import server
from connectors.cassandra.config import keys
from connectors.cassandra.config.rules import split_regexes
from connectors.cassandra.config.settings import event_settings, parse_nodes, session_settings, table_lists
from connectors.cassandra.events import build_events
from connectors.cassandra.events.contract import topic_name
from connectors.cassandra.log.directory import check_directory, measure_usage, scan_directory
from connectors.cassandra.schema.catalog import SYSTEM, CassandraCatalog, CassandraTableFilter
from connectors.cassandra.snapshot.cluster import describe_masked, masked_columns
from connectors.cql.cluster.asking import OptionNames, ask_cluster
from connectors.cql.types import quote_name
from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable
from connectors.formats.masks.options import RULES
from connectors.java_regex import compile_java
from connectors.options import ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from connectors.cassandra.config.settings import LogNode
    from connectors.cassandra.server import ClusterNodes, Copies, NodeSettings
    from connectors.cql.cluster.session import CqlSession
    from connectors.cql.mutations.definition import CqlTableDefinition
    from connectors.options import Config

_CONNECTING: Final = OptionNames(keys.HOSTS, keys.USER, keys.PASSWORD, keys.SSL)
#: The first release whose commit log can be read.
OLDEST: Final = (4, 0)
#: Tables whose SELECT right is tried, and how long one may take.
_TRIED: Final = 20
_TRY_S: Final = 3.0
_SHOWN: Final = 5
#: Share of cdc_total_space from which on a directory counts as full.
_FULL: Final = 0.9
#: Any version of the log's format: output forms are the same for all.
_LOG_VERSION: Final = 8


def _make_error(name: str, message: str) -> ConfigProblem:
    return ConfigProblem(name, message)


def _make_warning(name: str, message: str) -> ConfigProblem:
    return ConfigProblem(name, message, warning=True)


def _list_some(items: Iterable[object]) -> str:
    names = [str(item) for item in items]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


# The directories.


def check_directories(config: Config) -> list[ConfigProblem]:
    """Whether the directories can be used, as far as this worker sees them. Blocks: call it in a thread.

    A task need not run on this worker: what is found here counts as an error only for a directory without a label.
    """
    problems = []
    elsewhere = bool(config.raw.get(NODE_KEY) or config.raw.get(LABELS_KEY))
    for node in parse_nodes(config):
        complain = _make_warning if node.placed or elsewhere else _make_error
        directory = Path(node.directory)
        if not directory.exists():
            problems.append(complain(keys.DIRECTORIES, describe_unseen(node)))
            continue
        try:
            check_directory(directory, node.name, delete=config[keys.DELETE])
            if not scan_directory(directory, node.name):
                problems.append(
                    _make_warning(
                        keys.DIRECTORIES,
                        f"{directory} (node {node.name}) has no segments: it should be the "
                        "node's cdc_raw_directory, with cdc_enabled: true in its cassandra.yaml",
                    )
                )
        except MillraceError as error:
            problems.append(complain(keys.DIRECTORIES, str(error)))
    aside = config[keys.ERROR_DIRECTORY]
    if aside and Path(aside).is_dir() and not os.access(aside, os.W_OK | os.X_OK):
        problems.append(
            _make_warning(
                keys.ERROR_DIRECTORY, f"User {os.getuid()}, under which this worker runs, can't write into {aside}"
            )
        )
    return problems


def describe_unseen(node: LogNode) -> str:
    """Return what to do where this worker does not see a directory. Pure."""
    if not node.placed:
        return (
            f"{node.directory} is not there on this worker. Without a label its task runs on any worker: write "
            f"LABEL={node.directory}, and give the worker that sees it node.labels=LABEL=yes"
        )
    return (
        f"This worker does not see {node.directory}: the task of node {node.name} has to run on a worker that does, one "
        f"whose host is {node.name} or which has node.labels={node.name}=yes (GET /connectors/NAME/explain tells whether "
        "there is one)"
    )


# The cluster.


async def check_cluster(config: Config) -> list[ConfigProblem]:
    """Complaints and warnings from asking the cluster. Opens a session and gives it back.

    It can be reached and logged in to, is 4.0 or later, keeps a commit log that can be read, and has tables to capture.
    """
    return await ask_cluster(
        config, _CONNECTING, lambda: session_settings(config), lambda session: _check_session(session, config)
    )


async def _check_session(session: CqlSession, config: Config) -> list[ConfigProblem]:
    cluster = await server.read_cluster(session)
    problems = version_problems(cluster)
    if problems:
        return problems
    try:
        settings = await server.node_settings(session, cluster.nodes)
        problems += settings_problems(settings, parse_nodes(config))
        problems += space_problems(settings, await asyncio.to_thread(_used_bytes, parse_nodes(config)))
    except Fatal as error:
        problems.append(
            _make_warning(
                keys.USER,
                "The nodes' settings can't be checked (cdc_enabled, cdc_block_writes, ...): "
                f"{error}; GRANT SELECT ON system_views.settings TO {_quote_role(config)}",
            )
        )
    catalog = CassandraCatalog(CassandraTableFilter(*table_lists(config)), None, session=session)
    await catalog.refresh()
    rows = await session.query(
        "SELECT keyspace_name, replication, durable_writes FROM system_schema.keyspaces", consistency="ONE"
    )
    copies = {str(row["keyspace_name"]): server.parse_replication(row["replication"]) for row in rows}
    captured = catalog.tables()
    problems += table_problems(config, catalog.list_known_tables(), captured, catalog.refused())
    problems += durability_problems(captured, {row["keyspace_name"] for row in rows if not row["durable_writes"]})
    problems += mask_problems(config, captured)
    problems += replica_problems(config, captured, copies, cluster)
    if str(config[keys.SNAPSHOT]).strip().lower() != "never":
        problems += await _check_rights(session, config, captured)
    return problems


def _quote_role(config: Mapping[str, Any]) -> str:
    return quote_name(str(config[keys.USER] or "anonymous"))


def version_problems(cluster: ClusterNodes) -> list[ConfigProblem]:
    """Whether the nodes' commit logs are of a kind that can be read. Pure."""
    old = sorted({version for version in cluster.versions if server.version_of(version) < OLDEST})
    if not old:
        return []
    return [
        _make_error(
            keys.HOSTS,
            f"The cluster has nodes of version {', '.join(old)}: commit logs can be read from Cassandra 4.0 "
            "on (for Scylla there is the connector scylla)",
        )
    ]


def settings_problems(settings: Sequence[NodeSettings], log_nodes: Sequence[LogNode]) -> list[ConfigProblem]:
    """Return the problems that the nodes' settings cause for reading their commit logs. Pure."""
    problems = []

    def of(nodes_: Iterable[NodeSettings]) -> str:
        return _list_some(node_settings_.address or "?" for node_settings_ in nodes_)

    without = [node_settings_ for node_settings_ in settings if node_settings_.cdc_enabled is False]
    if without:
        problems.append(
            _make_error(
                keys.DIRECTORIES,
                f"CDC is off on {of(without)}: set cdc_enabled: true in cassandra.yaml and restart the node",
            )
        )
    encrypted = [node_settings_ for node_settings_ in settings if node_settings_.encrypted]
    if encrypted:
        problems.append(
            _make_error(
                keys.DIRECTORIES,
                f"Segments of {of(encrypted)} are encrypted, which can't be read: set "
                "transparent_data_encryption_options: {enabled: false} in cassandra.yaml and "
                "restart the node",
            )
        )
    losing = [
        node_settings_
        for node_settings_ in settings
        if node_settings_.cdc_enabled and node_settings_.cdc_block_writes is False
    ]
    if losing:
        problems.append(
            _make_warning(
                keys.DIRECTORIES,
                f"{of(losing)} deletes the oldest segments when cdc_raw is full, read or not: "
                "changes are lost silently. Set cdc_block_writes: true in cassandra.yaml",
            )
        )
    tight = [
        node_settings_
        for node_settings_ in settings
        if node_settings_.total_space
        and node_settings_.segment_size
        and node_settings_.total_space < 4 * node_settings_.segment_size
    ]
    if tight:
        problems.append(
            _make_warning(
                keys.DIRECTORIES,
                f"cdc_total_space of {of(tight)} holds fewer than four segments: writes to "
                "tables with cdc are refused after a short halt of the connector; make it "
                "larger in cassandra.yaml",
            )
        )
    wrong = [node for node in log_nodes if node.directory in {node_settings_.commitlog for node_settings_ in settings}]
    if wrong:
        right = _list_some(sorted({node_settings_.cdc_raw for node_settings_ in settings if node_settings_.cdc_raw}))
        problems.append(
            _make_error(
                keys.DIRECTORIES,
                f"{_list_some(node.directory for node in wrong)} is the commit log itself, which only "
                f"the node may touch: name its cdc_raw_directory, {right}",
            )
        )
    return problems


def _used_bytes(log_nodes: Sequence[LogNode]) -> dict[LogNode, int]:
    """Bytes in the directories that are visible here. Blocks."""
    used_bytes = {}
    for node in log_nodes:
        if Path(node.directory).is_dir():
            with suppress(Retriable):
                used_bytes[node] = measure_usage(Path(node.directory), node.name, None, 0).total_bytes
    return used_bytes


def space_problems(settings: Sequence[NodeSettings], used: Mapping[LogNode, int]) -> list[ConfigProblem]:
    """Directories that are (nearly) full. Pure.

    Args:
        settings: the nodes' settings.
        used: bytes in each directory that this worker sees.
    """
    problems = []
    for node, size in used.items():
        same = [node_settings for node_settings in settings if node_settings.cdc_raw == node.directory] or settings
        limit = server.smallest_space(same)
        if limit and size >= limit * _FULL:
            problems.append(
                _make_warning(
                    keys.DIRECTORIES,
                    f"{node.directory} (node {node.name}) has {size >> 20} of {limit >> 20} "
                    "MiB (cdc_total_space): once it is full, the node refuses writes to tables with cdc, until "
                    "the connector has read and deleted segments. Start it, or raise cdc_total_space in "
                    "cassandra.yaml",
                )
            )
    return problems


def _group_refused(tables: Iterable[CqlTableDefinition]) -> list[tuple[str, list[CqlTableDefinition]]]:
    """Tables by why they can't be captured."""
    groups: dict[str, list[CqlTableDefinition]] = {}
    for table in sorted(tables, key=str):
        groups.setdefault(table.refusal, []).append(table)
    return list(groups.items())


def table_problems(
    config: Mapping[str, Any],
    tables: Sequence[CqlTableDefinition],
    captured: Sequence[CqlTableDefinition],
    refused: Sequence[CqlTableDefinition],
) -> list[ConfigProblem]:
    """Return the problems of the tables. Pure.

    Args:
        config: the configuration.
        tables: all tables of the cluster.
        captured: those that are captured.
        refused: those with cdc that can't be.
    """
    problems = []
    include, exclude = table_lists(config)
    user_tables = [table for table in tables if table.keyspace not in SYSTEM]
    for name, regexes in ((keys.TABLES, include), (keys.NOT_TABLES, exclude)):
        idle = [
            item
            for item in split_regexes(regexes)
            if not any(compile_java(f"(?i){item}").fullmatch(str(table)) for table in user_tables)
        ]
        if idle:
            problems.append(
                _make_warning(
                    name,
                    f"No table matches {_list_some(idle)}: names have the form keyspace.table, and a dot in an "
                    r"expression is written \.",
                )
            )
    filter_ = CassandraTableFilter(include, exclude)
    off = [
        table
        for table in user_tables
        if not table.cdc and not table.refusal and filter_.matches(table.keyspace, table.table)
    ]
    if off and (include or not captured):
        problems.append(
            _make_warning(
                keys.TABLES,
                f"Without cdc, and so not captured: {_list_some(sorted(map(str, off)))}; ALTER TABLE "
                f"{_qualify_name(min(off, key=str))} WITH cdc = true",
            )
        )
    elif not captured:
        problems.append(_make_warning(keys.TABLES, "There is no table to capture yet: create one WITH cdc = true"))
    problems += [
        _make_warning(
            keys.TABLES,
            f"{_list_some(group)} can't be captured: {refusal}; ALTER TABLE {_qualify_name(group[0])} WITH cdc = false "
            "saves the room of their changes in cdc_raw",
        )
        for refusal, group in _group_refused(refused)
    ]
    listed = [
        table
        for table in user_tables
        if include and table.refusal and not table.cdc and filter_.matches(table.keyspace, table.table)
    ]
    problems += [
        _make_warning(keys.TABLES, f"{_list_some(group)} can't be captured: {refusal}; take them out of {keys.TABLES}")
        for refusal, group in _group_refused(listed)
    ]
    topics = Counter(topic_name(config[keys.PREFIX], table.keyspace, table.table) for table in captured)
    shared = [topic for topic, count in topics.items() if count > 1]
    if shared:
        problems.append(
            _make_error(
                keys.TABLES,
                f"Several tables would share the topic {_list_some(shared)}, since a topic's name can't "
                f"hold all characters of theirs: take one of them out with {keys.NOT_TABLES}",
            )
        )
    return problems


def durability_problems(captured: Sequence[CqlTableDefinition], passing: Collection[str]) -> list[ConfigProblem]:
    """Tables whose changes are in no log. Pure.

    Args:
        captured: the captured tables.
        passing: keyspaces with ``durable_writes = false``.
    """
    tables = [table for table in captured if table.keyspace in passing]
    if not tables:
        return []
    return [
        _make_warning(
            keys.TABLES,
            f"{_list_some(tables)}: changes are in no commit log, so none come, for the keyspace has durable_writes = false: "
            f"ALTER KEYSPACE {quote_name(tables[0].keyspace)} WITH durable_writes = true",
        )
    ]


def mask_problems(config: Config, captured: Sequence[CqlTableDefinition]) -> list[ConfigProblem]:
    """Whether ``mask.rules`` can be applied to the tables in the output form. Pure."""
    problems = []
    settings = event_settings(config)
    for table in captured if settings.masks else ():
        try:
            build_events(table, _LOG_VERSION, settings)
        except ConfigInvalid as error:
            problems.append(_make_error(RULES, str(error)))
        except Fatal:
            pass  # the form can't have this table at all; the task says why
    return problems


def replica_problems(
    config: Mapping[str, Any],
    captured: Sequence[CqlTableDefinition],
    copies: Mapping[str, Copies],
    cluster: ClusterNodes,
) -> list[ConfigProblem]:
    """Return the problems of the numbers of replicas, nodes and directories, in the data centre that is read. Pure.

    Args:
        config: the configuration.
        captured: the tables.
        copies: replicas of each keyspace.
        cluster: its nodes, and the data centre that is read.
    """
    problems = []
    read = len(parse_nodes(config))
    keyspaces = sorted({table.keyspace for table in captured})
    known_copies = {name: copies[name] for name in keyspaces if name in copies}
    several = [
        name
        for name, keyspace_copies in known_copies.items()
        if keyspace_copies.anywhere + keyspace_copies.by_centre.get(cluster.centre, 0) > 1
    ]
    if several and str(config[keys.OUTPUT]).strip().lower() == "debezium":
        problems.append(
            _make_warning(
                keys.OUTPUT,
                f"{keys.OUTPUT}=debezium with {_list_some(several)}, of which there is more than one "
                "replica: every replica gives each event. Take partition-update with the "
                "materializer, which removes duplicates",
            )
        )
    away = [
        name
        for name, keyspace_copies in known_copies.items()
        if keyspace_copies.by_centre and not keyspace_copies.by_centre.get(cluster.centre)
    ]
    if away:
        problems.append(
            _make_warning(
                keys.LOCAL_DC,
                f"{_list_some(away)} has no replica in the data centre that is read, {cluster.centre}: "
                f"its changes are not there. Read one of {_list_centres(known_copies, away)}, with "
                f"{keys.LOCAL_DC} and {keys.DIRECTORIES} of its nodes",
            )
        )
    # A partition is missed if all its replicas are among the nodes that are not read.
    missed = [name for name in keyspaces if name not in away and _misses_rows(known_copies.get(name), cluster, read)]
    if missed:
        where = f"data centre {cluster.centre}" if cluster.centre_nodes else "cluster"
        problems.append(
            _make_warning(
                keys.DIRECTORIES,
                f"The {where} has {cluster.centre_nodes or cluster.nodes} nodes, "
                f"{keys.DIRECTORIES} names {read}: changes of partitions of {_list_some(missed)} "
                "that have no replica on those are missed. Name the directories of all its "
                "nodes",
            )
        )
    return problems


def _misses_rows(copies: Copies | None, cluster: ClusterNodes, read: int) -> bool:
    if copies is not None and copies.by_centre:
        return (cluster.centre_nodes or cluster.nodes) - read >= copies.by_centre.get(cluster.centre, 1)
    return cluster.nodes - read >= max(1, copies.anywhere if copies is not None else 1)


def _list_centres(copies: Mapping[str, Copies], keyspaces: Sequence[str]) -> str:
    return ", ".join(
        sorted({centre for name in keyspaces for centre, count in copies[name].by_centre.items() if count})
    )


async def _check_rights(
    session: CqlSession, config: Mapping[str, Any], captured: Sequence[CqlTableDefinition]
) -> list[ConfigProblem]:
    """Check that the account may read the tables for snapshots, and sees their values."""
    refused = []
    problems = []
    for table in captured[:_TRIED]:
        try:
            if masked := await masked_columns(session, table, _TRY_S):
                problems.append(_make_error(keys.USER, f"{describe_masked(table, masked)}, or {keys.SNAPSHOT}=never"))
            await session.query(
                f"SELECT {quote_name(table.key[0].name)} FROM {_qualify_name(table)} LIMIT 1",  # noqa: S608 - quoted
                timeout_s=_TRY_S,
            )
        except Fatal:
            refused.append(table)
        except Retriable:
            break  # replicas are unavailable or slow: not a problem of permissions
    if refused:
        problems.append(
            _make_error(
                keys.USER,
                f"{_list_some(refused)} can't be read for the snapshot: GRANT SELECT ON {_qualify_name(refused[0])} TO "
                f"{_quote_role(config)}, or {keys.SNAPSHOT}=never",
            )
        )
    return problems


def _qualify_name(table: CqlTableDefinition) -> str:
    return f"{quote_name(table.keyspace)}.{quote_name(table.table)}"
