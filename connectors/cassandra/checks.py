"""What only this worker's disks and the cluster can tell of a configuration. Decisions are pure; ``check_*`` ask."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.cassandra import config_keys as keys
from connectors.cassandra import server
from connectors.cassandra.catalog import SYSTEM, Catalog, TableFilter
from connectors.cassandra.config import event_settings, nodes, session_settings, table_lists
from connectors.cassandra.config_rules import split_regexes
from connectors.cassandra.events import builder
from connectors.cassandra.events.contract import topic_name
from connectors.cassandra.log.directory import check as check_directory
from connectors.cassandra.log.directory import scan, usage
from connectors.cql.asking import Names, asked
from connectors.cql.types import quote
from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable
from connectors.formats.masking import RULES
from connectors.java_regex import compile_java
from connectors.options import ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.cassandra.config import Node
    from connectors.cassandra.server import Cluster, Copies, NodeSettings
    from connectors.cql.mutations.definition import TableDefinition
    from connectors.cql.session import CqlSession
    from connectors.options import Config

_CONNECTING: Final = Names(keys.HOSTS, keys.USER, keys.PASSWORD, keys.SSL)
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


def _error(name: str, message: str) -> ConfigProblem:
    return ConfigProblem(name, message)


def _warning(name: str, message: str) -> ConfigProblem:
    return ConfigProblem(name, message, warning=True)


def _some(found: Iterable[object]) -> str:
    texts = [str(each) for each in found]
    return ", ".join(texts[:_SHOWN]) + (f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")


# The directories.


def check_directories(config: Config) -> list[ConfigProblem]:
    """Whether the directories can be used, as far as this worker sees them. Blocks: call it in a thread.

    A task need not run on this worker: what is found here counts as an error only for a directory without a label.
    """
    found = []
    elsewhere = bool(config.raw.get(keys.WORKER_NODE) or config.raw.get(keys.WORKER_LABELS))
    for node in nodes(config):
        complain = _warning if node.placed or elsewhere else _error
        directory = Path(node.directory)
        if not directory.exists():
            found.append(complain(keys.DIRECTORIES, unseen(node)))
            continue
        try:
            check_directory(directory, node.name, delete=config[keys.DELETE])
            if not scan(directory, node.name):
                found.append(
                    _warning(
                        keys.DIRECTORIES,
                        f"{directory} (node {node.name}) has no segments: it should be the "
                        "node's cdc_raw_directory, with cdc_enabled: true in its cassandra.yaml",
                    )
                )
        except MillraceError as error:
            found.append(complain(keys.DIRECTORIES, str(error)))
    aside = config[keys.ERROR_DIRECTORY]
    if aside and Path(aside).is_dir() and not os.access(aside, os.W_OK | os.X_OK):
        found.append(
            _warning(
                keys.ERROR_DIRECTORY, f"User {os.getuid()}, under which this worker runs, can't write into {aside}"
            )
        )
    return found


def unseen(node: Node) -> str:
    """What to do where this worker does not see a directory. Pure."""
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
    return await asked(config, _CONNECTING, lambda: session_settings(config), lambda session: _ask(session, config))


async def _ask(session: CqlSession, config: Config) -> list[ConfigProblem]:
    cluster = await server.cluster(session)
    found = version_problems(cluster)
    if found:
        return found
    try:
        known = await server.node_settings(session, cluster.nodes)
        found += settings_problems(known, nodes(config))
        found += space_problems(known, await asyncio.to_thread(_used, nodes(config)))
    except Fatal as error:
        found.append(
            _warning(
                keys.USER,
                "The nodes' settings can't be checked (cdc_enabled, cdc_block_writes, ...): "
                f"{error}; GRANT SELECT ON system_views.settings TO {_role(config)}",
            )
        )
    catalog = Catalog(TableFilter(*table_lists(config)), None, session=session)
    await catalog.refresh()
    rows = await session.query("SELECT keyspace_name, replication FROM system_schema.keyspaces", consistency="ONE")
    copies = {str(row["keyspace_name"]): server.replicas(row["replication"]) for row in rows}
    captured = catalog.tables()
    found += table_problems(config, catalog.known(), captured, catalog.refused())
    found += mask_problems(config, captured)
    found += replica_problems(config, captured, copies, cluster)
    if str(config[keys.SNAPSHOT]).strip().lower() != "never":
        found += await _rights(session, config, captured)
    return found


def _role(config: Mapping[str, Any]) -> str:
    return quote(str(config[keys.USER] or "anonymous"))


def version_problems(cluster: Cluster) -> list[ConfigProblem]:
    """Whether the nodes' commit logs are of a kind that can be read. Pure."""
    old = sorted({version for version in cluster.versions if server.version_of(version) < OLDEST})
    if not old:
        return []
    return [
        _error(
            keys.HOSTS,
            f"The cluster has nodes of version {', '.join(old)}: commit logs can be read from Cassandra 4.0 "
            "on (for Scylla there is the connector scylla)",
        )
    ]


def settings_problems(known: Sequence[NodeSettings], wanted: Sequence[Node]) -> list[ConfigProblem]:
    """What the nodes' settings say against reading their commit logs. Pure."""
    found = []

    def of(nodes_: Iterable[NodeSettings]) -> str:
        return _some(each.address or "?" for each in nodes_)

    without = [each for each in known if each.cdc_enabled is False]
    if without:
        found.append(
            _error(
                keys.DIRECTORIES,
                f"CDC is off on {of(without)}: set cdc_enabled: true in cassandra.yaml and restart the node",
            )
        )
    encrypted = [each for each in known if each.encrypted]
    if encrypted:
        found.append(
            _error(
                keys.DIRECTORIES,
                f"Segments of {of(encrypted)} are encrypted, which can't be read: set "
                "transparent_data_encryption_options: {enabled: false} in cassandra.yaml and "
                "restart the node",
            )
        )
    losing = [each for each in known if each.cdc_enabled and each.cdc_block_writes is False]
    if losing:
        found.append(
            _warning(
                keys.DIRECTORIES,
                f"{of(losing)} deletes the oldest segments when cdc_raw is full, read or not: "
                "changes are lost silently. Set cdc_block_writes: true in cassandra.yaml",
            )
        )
    tight = [
        each for each in known if each.total_space and each.segment_size and each.total_space < 4 * each.segment_size
    ]
    if tight:
        found.append(
            _warning(
                keys.DIRECTORIES,
                f"cdc_total_space of {of(tight)} holds fewer than four segments: writes to "
                "tables with cdc are refused after a short halt of the connector; make it "
                "larger in cassandra.yaml",
            )
        )
    wrong = [node for node in wanted if node.directory in {each.commitlog for each in known}]
    if wrong:
        right = _some(sorted({each.cdc_raw for each in known if each.cdc_raw}))
        found.append(
            _error(
                keys.DIRECTORIES,
                f"{_some(node.directory for node in wrong)} is the commit log itself, which only "
                f"the node may touch: name its cdc_raw_directory, {right}",
            )
        )
    return found


def _used(wanted: Sequence[Node]) -> dict[Node, int]:
    """Bytes in the directories that are visible here. Blocks."""
    found = {}
    for node in wanted:
        if Path(node.directory).is_dir():
            with suppress(Retriable):
                found[node] = usage(Path(node.directory), node.name, None, 0).total_bytes
    return found


def space_problems(known: Sequence[NodeSettings], used: Mapping[Node, int]) -> list[ConfigProblem]:
    """Directories that are (nearly) full. Pure.

    Args:
        known: the nodes' settings.
        used: bytes in each directory that this worker sees.
    """
    found = []
    for node, size in used.items():
        same = [each for each in known if each.cdc_raw == node.directory] or known
        limit = server.smallest_space(same)
        if limit and size >= limit * _FULL:
            found.append(
                _warning(
                    keys.DIRECTORIES,
                    f"{node.directory} (node {node.name}) has {size >> 20} of {limit >> 20} "
                    "MiB (cdc_total_space): once it is full, the node refuses writes to tables with cdc, until "
                    "the connector has read and deleted segments. Start it, or raise cdc_total_space in "
                    "cassandra.yaml",
                )
            )
    return found


def table_problems(
    config: Mapping[str, Any],
    known: Sequence[TableDefinition],
    captured: Sequence[TableDefinition],
    refused: Sequence[TableDefinition],
) -> list[ConfigProblem]:
    """What is to be said of the tables. Pure.

    Args:
        config: the configuration.
        known: all tables of the cluster.
        captured: those that are captured.
        refused: those with cdc that can't be.
    """
    found = []
    include, exclude = table_lists(config)
    own = [table for table in known if table.keyspace not in SYSTEM]
    for name, text in ((keys.TABLES, include), (keys.NOT_TABLES, exclude)):
        idle = [
            item
            for item in split_regexes(text)
            if not any(compile_java(f"(?i){item}").fullmatch(str(table)) for table in own)
        ]
        if idle:
            found.append(
                _warning(
                    name,
                    f"No table matches {_some(idle)}: names have the form keyspace.table, and a dot in an "
                    r"expression is written \.",
                )
            )
    filter_ = TableFilter(include, exclude)
    off = [
        table
        for table in own
        if not table.cdc and not table.has_counters and filter_.matches(table.keyspace, table.table)
    ]
    if off and (include or not captured):
        found.append(
            _warning(
                keys.TABLES,
                f"Without cdc, and so not captured: {_some(sorted(map(str, off)))}; ALTER TABLE "
                f"{_qualified(min(off, key=str))} WITH cdc = true",
            )
        )
    elif not captured:
        found.append(_warning(keys.TABLES, "There is no table to capture yet: create one WITH cdc = true"))
    if refused:
        found.append(
            _warning(
                keys.TABLES,
                f"{_some(refused)}: changes of counters can't be captured; ALTER TABLE "
                f"{_qualified(refused[0])} WITH cdc = false saves their room in cdc_raw",
            )
        )
    counters = [
        table
        for table in own
        if include and table.has_counters and not table.cdc and filter_.matches(table.keyspace, table.table)
    ]
    if counters:
        found.append(
            _warning(
                keys.TABLES,
                f"{_some(sorted(map(str, counters)))}: changes of counters can't be captured; take "
                f"them out of {keys.TABLES}",
            )
        )
    topics = Counter(topic_name(config[keys.PREFIX], table.keyspace, table.table) for table in captured)
    shared = [topic for topic, count in topics.items() if count > 1]
    if shared:
        found.append(
            _error(
                keys.TABLES,
                f"Several tables would share the topic {_some(shared)}, since a topic's name can't "
                f"hold all characters of theirs: take one of them out with {keys.NOT_TABLES}",
            )
        )
    return found


def mask_problems(config: Config, captured: Sequence[TableDefinition]) -> list[ConfigProblem]:
    """Whether ``mask.rules`` can be applied to the tables in the output form. Pure."""
    found = []
    settings = event_settings(config)
    for table in captured if settings.masks else ():
        try:
            builder(table, _LOG_VERSION, settings)
        except ConfigInvalid as error:
            found.append(_error(RULES, str(error)))
        except Fatal:
            pass  # the form can't have this table at all; the task says why
    return found


def replica_problems(
    config: Mapping[str, Any], captured: Sequence[TableDefinition], copies: Mapping[str, Copies], cluster: Cluster
) -> list[ConfigProblem]:
    """What follows from the number of replicas, nodes and directories, in the data centre that is read. Pure.

    Args:
        config: the configuration.
        captured: the tables.
        copies: replicas of each keyspace.
        cluster: its nodes, and the data centre that is read.
    """
    found = []
    read = len(nodes(config))
    keyspaces = sorted({table.keyspace for table in captured})
    known = {name: copies[name] for name in keyspaces if name in copies}
    several = [name for name, each in known.items() if each.anywhere + each.by_centre.get(cluster.centre, 0) > 1]
    if several and str(config[keys.OUTPUT]).strip().lower() == "debezium":
        found.append(
            _warning(
                keys.OUTPUT,
                f"{keys.OUTPUT}=debezium with {_some(several)}, of which there is more than one "
                "replica: every replica gives each event. Take partition-update with the "
                "materializer, which removes duplicates",
            )
        )
    away = [name for name, each in known.items() if each.by_centre and not each.by_centre.get(cluster.centre)]
    if away:
        found.append(
            _warning(
                keys.LOCAL_DC,
                f"{_some(away)} has no replica in the data centre that is read, {cluster.centre}: "
                f"its changes are not there. Read one of {_centres(known, away)}, with "
                f"{keys.LOCAL_DC} and {keys.DIRECTORIES} of its nodes",
            )
        )
    # A partition is missed if all its replicas are among the nodes that are not read.
    missed = [name for name in keyspaces if name not in away and _misses(known.get(name), cluster, read)]
    if missed:
        where = f"data centre {cluster.centre}" if cluster.centre_nodes else "cluster"
        found.append(
            _warning(
                keys.DIRECTORIES,
                f"The {where} has {cluster.centre_nodes or cluster.nodes} nodes, "
                f"{keys.DIRECTORIES} names {read}: changes of partitions of {_some(missed)} "
                "that have no replica on those are missed. Name the directories of all its "
                "nodes",
            )
        )
    return found


def _misses(copies: Copies | None, cluster: Cluster, read: int) -> bool:
    if copies is not None and copies.by_centre:
        return (cluster.centre_nodes or cluster.nodes) - read >= copies.by_centre.get(cluster.centre, 1)
    return cluster.nodes - read >= max(1, copies.anywhere if copies is not None else 1)


def _centres(known: Mapping[str, Copies], keyspaces: Sequence[str]) -> str:
    return ", ".join(sorted({centre for name in keyspaces for centre, count in known[name].by_centre.items() if count}))


async def _rights(
    session: CqlSession, config: Mapping[str, Any], captured: Sequence[TableDefinition]
) -> list[ConfigProblem]:
    """Whether the tables may be read by backfills."""
    refused = []
    for table in captured[:_TRIED]:
        try:
            await session.query(
                f"SELECT {quote(table.key[0].name)} FROM {_qualified(table)} LIMIT 1",  # noqa: S608 - quoted
                timeout_s=_TRY_S,
            )
        except Fatal:
            refused.append(table)
        except Retriable:
            break  # replicas are away or slow: that is no matter of rights
    if not refused:
        return []
    return [
        _error(
            keys.USER,
            f"{_some(refused)} can't be read for the backfill: GRANT SELECT ON {_qualified(refused[0])} TO "
            f"{_role(config)}, or {keys.SNAPSHOT}=never",
        )
    ]


def _qualified(table: TableDefinition) -> str:
    return f"{quote(table.keyspace)}.{quote(table.table)}"
