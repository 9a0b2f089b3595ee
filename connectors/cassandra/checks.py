"""What only this worker's disks and the cluster can tell of a configuration. Decisions are pure; ``check_*`` ask."""
from __future__ import annotations

import os
from collections import Counter
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
from connectors.cassandra.log.directory import scan
from connectors.cql.asking import Names, asked
from connectors.cql.types import quote
from connectors.errors import ConfigInvalid, Fatal, MillraceError, Retriable
from connectors.formats.masking import RULES
from connectors.java_regex import compile_java
from connectors.options import ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.cassandra.config import Node
    from connectors.cassandra.server import Cluster, NodeSettings
    from connectors.cql.mutations.definition import TableDefinition
    from connectors.cql.session import CqlSession
    from connectors.options import Config

_CONNECTING: Final = Names(keys.HOSTS, keys.USER, keys.PASSWORD, keys.SSL)
#: The first release whose change log can be read.
OLDEST: Final = (4, 0)
#: Tables whose SELECT right is tried, and how long one may take.
_TRIED: Final = 20
_TRY_S: Final = 3.0
_SHOWN: Final = 5
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
                found.append(_warning(keys.DIRECTORIES, f"{directory} (node {node.name}) has no segments: it should be the "
                                      "node's cdc_raw_directory, with cdc_enabled: true in its cassandra.yaml"))
        except MillraceError as error:
            found.append(complain(keys.DIRECTORIES, str(error)))
    aside = config[keys.ERROR_DIRECTORY]
    if aside and Path(aside).is_dir() and not os.access(aside, os.W_OK | os.X_OK):
        found.append(_warning(keys.ERROR_DIRECTORY, f"User {os.getuid()}, under which this worker runs, can't write into "
                                                    f"{aside}"))
    return found


def unseen(node: Node) -> str:
    """What to do where this worker does not see a directory. Pure."""
    if not node.placed:
        return (f"{node.directory} is not there on this worker. Without a label its task runs on any worker: write "
                f"LABEL={node.directory}, and give the worker that sees it node.labels=LABEL=yes")
    return (f"This worker does not see {node.directory}: the task of node {node.name} has to run on a worker that does, one "
            f"whose host is {node.name} or which has node.labels={node.name}=yes (GET /connectors/NAME/explain tells whether "
            "there is one)")


# The cluster.


async def check_cluster(config: Config) -> list[ConfigProblem]:
    """Complaints and warnings from asking the cluster. Opens a session and gives it back.

    It can be reached and logged in to, is 4.0 or later, keeps a change log that can be read, and has tables to capture.
    """
    return await asked(config, _CONNECTING, lambda: session_settings(config), lambda session: _ask(session, config))


async def _ask(session: CqlSession, config: Config) -> list[ConfigProblem]:
    cluster = await server.cluster(session)
    found = version_problems(cluster)
    if found:
        return found
    try:
        found += settings_problems(await server.node_settings(session, cluster.nodes), nodes(config))
    except Fatal as error:
        found.append(_warning(keys.USER, "The nodes' settings can't be checked (cdc_enabled, cdc_block_writes, ...): "
                                         f"{error}; GRANT SELECT ON KEYSPACE system_views TO {_role(config)}"))
    catalog = Catalog(TableFilter(*table_lists(config)), None, session=session)
    await catalog.refresh()
    rows = await session.query("SELECT keyspace_name, replication FROM system_schema.keyspaces", consistency="ONE")
    copies = {str(row["keyspace_name"]): server.replicas(row["replication"]) for row in rows}
    captured = catalog.tables()
    found += table_problems(config, catalog.known(), captured, catalog.refused())
    found += mask_problems(config, captured)
    found += replica_problems(config, captured, copies, cluster.nodes)
    if str(config[keys.SNAPSHOT]).strip().lower() != "never":
        found += await _rights(session, config, captured)
    return found


def _role(config: Mapping[str, Any]) -> str:
    return quote(str(config[keys.USER] or "anonymous"))


def version_problems(cluster: Cluster) -> list[ConfigProblem]:
    """Whether the nodes' change logs are of a kind that can be read. Pure."""
    old = sorted({version for version in cluster.versions if server.version_of(version) < OLDEST})
    if not old:
        return []
    return [_error(keys.HOSTS, f"The cluster has nodes of version {', '.join(old)}: change logs can be read from Cassandra 4.0 "
                               "on (for Scylla there is the connector scylla)")]


def settings_problems(known: Sequence[NodeSettings], wanted: Sequence[Node]) -> list[ConfigProblem]:
    """What the nodes' settings say against reading their change logs. Pure."""
    found = []

    def of(nodes_: Iterable[NodeSettings]) -> str:
        return _some(each.address or "?" for each in nodes_)

    without = [each for each in known if each.cdc_enabled is False]
    if without:
        found.append(_error(keys.DIRECTORIES, f"CDC is off on {of(without)}: set cdc_enabled: true in cassandra.yaml and "
                                              "restart the node"))
    encrypted = [each for each in known if each.encrypted]
    if encrypted:
        found.append(_error(keys.DIRECTORIES, f"Segments of {of(encrypted)} are encrypted, which can't be read: set "
                                              "transparent_data_encryption_options: {enabled: false} in cassandra.yaml and "
                                              "restart the node"))
    losing = [each for each in known if each.cdc_enabled and each.cdc_block_writes is False]
    if losing:
        found.append(_warning(keys.DIRECTORIES, f"{of(losing)} deletes the oldest segments when cdc_raw is full, read or not: "
                                                "changes are lost silently. Set cdc_block_writes: true in cassandra.yaml"))
    tight = [each for each in known if each.total_space and each.segment_size and each.total_space < 4 * each.segment_size]
    if tight:
        found.append(_warning(keys.DIRECTORIES, f"cdc_total_space of {of(tight)} holds fewer than four segments: writes to "
                                                "tables with cdc are refused after a short halt of the connector; make it "
                                                "larger in cassandra.yaml"))
    wrong = [node for node in wanted if node.directory in {each.commitlog for each in known}]
    if wrong:
        right = _some(sorted({each.cdc_raw for each in known if each.cdc_raw}))
        found.append(_error(keys.DIRECTORIES, f"{_some(node.directory for node in wrong)} is the commit log itself, which only "
                                              f"the node may touch: name its cdc_raw_directory, {right}"))
    return found


def table_problems(config: Mapping[str, Any], known: Sequence[TableDefinition], captured: Sequence[TableDefinition],
                   refused: Sequence[TableDefinition]) -> list[ConfigProblem]:
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
        idle = [item for item in split_regexes(text)
                if not any(compile_java(f"(?i){item}").fullmatch(str(table)) for table in own)]
        if idle:
            found.append(_warning(name, f"No table matches {_some(idle)}: names have the form keyspace.table, and a dot in an "
                                        r"expression is written \."))
    filter_ = TableFilter(include, exclude)
    off = [table for table in own if not table.cdc and not table.has_counters and filter_.matches(table.keyspace, table.table)]
    if off and (include or not captured):
        found.append(_warning(keys.TABLES, f"Without cdc, and so not captured: {_some(sorted(map(str, off)))}; ALTER TABLE "
                                           f"{_qualified(min(off, key=str))} WITH cdc = true"))
    elif not captured:
        found.append(_warning(keys.TABLES, "There is no table to capture yet: create one WITH cdc = true"))
    if refused:
        found.append(_warning(keys.TABLES, f"{_some(refused)}: changes of counters can't be captured; ALTER TABLE "
                                           f"{_qualified(refused[0])} WITH cdc = false saves their room in cdc_raw"))
    topics = Counter(topic_name(config[keys.PREFIX], table.keyspace, table.table) for table in captured)
    shared = [topic for topic, count in topics.items() if count > 1]
    if shared:
        found.append(_error(keys.TABLES, f"Several tables would share the topic {_some(shared)}, since a topic's name can't "
                                         f"hold all characters of theirs: take one of them out with {keys.NOT_TABLES}"))
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


def replica_problems(config: Mapping[str, Any], captured: Sequence[TableDefinition], copies: Mapping[str, int],
                     count: int) -> list[ConfigProblem]:
    """What follows from the number of replicas, nodes and directories. Pure.

    Args:
        config: the configuration.
        captured: the tables.
        copies: replicas of each keyspace.
        count: nodes of the cluster.
    """
    found = []
    keyspaces = sorted({table.keyspace for table in captured})
    several = [name for name in keyspaces if copies.get(name, 1) > 1]
    if several and str(config[keys.OUTPUT]).strip().lower() == "debezium":
        found.append(_warning(keys.OUTPUT, f"{keys.OUTPUT}=debezium with {_some(several)}, of which there is more than one "
                                           "replica: every replica gives each event. Take partition-update with the "
                                           "materializer, which removes duplicates"))
    # A partition is missed if all its replicas are among the nodes that are not read.
    unread = count - len(nodes(config))
    missed = [name for name in keyspaces if unread >= max(1, copies.get(name, 1))]
    if missed:
        found.append(_warning(keys.DIRECTORIES, f"The cluster has {count} nodes, {keys.DIRECTORIES} names "
                                                f"{len(nodes(config))}: changes of partitions of {_some(missed)} that have no "
                                                "replica on those are missed. Name the directories of all nodes"))
    return found


async def _rights(session: CqlSession, config: Mapping[str, Any], captured: Sequence[TableDefinition]) -> list[ConfigProblem]:
    """Whether the tables may be read by backfills."""
    refused = []
    for table in captured[:_TRIED]:
        try:
            await session.query(f"SELECT {quote(table.key[0].name)} FROM {_qualified(table)} LIMIT 1",  # noqa: S608 - quoted
                                timeout_s=_TRY_S)
        except Fatal:
            refused.append(table)
        except Retriable:
            break  # replicas are away or slow: that is no matter of rights
    if not refused:
        return []
    return [_error(keys.USER, f"{_some(refused)} can't be read for the backfill: GRANT SELECT ON {_qualified(refused[0])} TO "
                              f"{_role(config)}, or {keys.SNAPSHOT}=never")]


def _qualified(table: TableDefinition) -> str:
    return f"{quote(table.keyspace)}.{quote(table.table)}"
