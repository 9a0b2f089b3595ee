"""The connector's options as plain values for its parts, and the checks that need no server. Pure functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from connectors.cassandra.config import keys
from connectors.cassandra.config.keys import CONFIG
from connectors.cassandra.config.rules import (
    LogNode,
    contact_points,
    parse_directories,
    shard_of,
    split_regexes,
    text_of,
)
from connectors.cassandra.events.contract import CassandraEventSettings
from connectors.cassandra.model import CLUSTER, NODE, LogSettings
from connectors.cassandra.snapshot.model import CassandraSnapshotSettings
from connectors.errors import ConfigInvalid
from connectors.formats.masks import masking
from connectors.formats.masks.options import RULES
from connectors.options import ConfigProblem, invalid
from connectors.source_options.new_tables import NEW_TABLES
from connectors.source_options.number_keys import DECIMALS, VARINTS
from connectors.source_options.table_heartbeats import HEARTBEAT_TO_TABLES, find_compacted_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.api import Position
    from connectors.cql.cluster.session import SessionSettings
    from connectors.options import Config

__all__ = [
    "CONFIG",
    "LogNode",
    "TaskSettings",
    "event_settings",
    "find_problems",
    "find_warnings",
    "log_part",
    "log_partition",
    "log_settings",
    "parse_nodes",
    "parse_shard",
    "session_settings",
    "snapshot_settings",
    "table_lists",
    "task_count",
    "task_node",
    "task_settings",
]

#: Rows and bytes above which a partition update is divided.
MAX_ROWS: Final = 500
MAX_BYTES: Final = 512 * 1024
#: Options that count for the debezium form only.
_DEBEZIUM_ONLY: Final = (keys.CLUSTER, keys.TOMBSTONES, keys.EXTENDED, keys.LOGICAL, DECIMALS, VARINTS)


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options that the task itself uses.

    Attributes:
        prefix: ``topic.prefix``.
        max_batch: records of a batch, about.
        max_bytes: bytes of the log per batch, about.
        heartbeat_s: how often a position is saved while there is nothing to deliver.
        refresh_s: how often the schema's version is asked for.
        heartbeat_to_tables: whether the tables' topics get heartbeats.
    """

    prefix: str
    max_batch: int
    max_bytes: int
    heartbeat_s: float
    refresh_s: float
    heartbeat_to_tables: bool


def _read_word(config: Mapping[str, Any], name: str) -> str:
    return str(config[name]).strip().lower()


def parse_nodes(config: Mapping[str, Any]) -> tuple[LogNode, ...]:
    """The nodes whose logs are read, in order: node i is read by task i.

    Raises:
        ConfigInvalid: ``cdc.raw.directories`` can't be understood.
    """
    return parse_directories(config[keys.DIRECTORIES])


def task_node(config: Mapping[str, Any]) -> LogNode | None:
    """The node whose log this task reads; None: it reads snapshots only.

    Raises:
        ConfigInvalid: the task's configuration names a node that is not there.
    """
    name = config[keys.TASK_NODE]
    if not name:
        return None
    match = next((node for node in parse_nodes(config) if node.name == name), None)
    if match is None:
        raise ConfigInvalid(f"The task is for node {name}, which {keys.DIRECTORIES} does not have (any more)")
    return match


def log_part(config: Mapping[str, Any], node: LogNode) -> str:
    """``INDEX/COUNT`` of a node among those whose logs are read; "": it is the only one."""
    nodes = parse_nodes(config)
    return f"{nodes.index(node)}/{len(nodes)}" if len(nodes) > 1 else ""


def parse_shard(config: Mapping[str, Any]) -> tuple[int, int]:
    """The task's share of snapshots: (index, count)."""
    return shard_of(config[keys.TASK_SHARD])


def log_partition(prefix: str, node: str) -> Position:
    """The source partition of a node's log."""
    return {CLUSTER: prefix, NODE: node}


def task_settings(config: Mapping[str, Any]) -> TaskSettings:
    """Return the options that the task itself uses."""
    return TaskSettings(
        prefix=config[keys.PREFIX],
        max_batch=config[keys.BATCH],
        max_bytes=config[keys.BATCH_BYTES],
        heartbeat_s=config[keys.HEARTBEAT] / 1000,
        refresh_s=config[keys.REFRESH] / 1000,
        heartbeat_to_tables=config[HEARTBEAT_TO_TABLES],
    )


def log_settings(config: Mapping[str, Any], node: LogNode) -> LogSettings:
    """How a node's log is read."""
    aside = config[keys.ERROR_DIRECTORY]
    return LogSettings(
        node=node.name,
        directory=Path(node.directory),
        mode=cast('Literal["idx", "marker"]', _read_word(config, keys.READ_MODE)),
        poll_ms=config[keys.POLL],
        max_bytes=config[keys.BATCH_BYTES],
        policy=cast('Literal["stop", "skip"]', _read_word(config, keys.ERROR_POLICY)),
        aside=Path(aside) / node.name if aside else None,
        delete=config[keys.DELETE],
    )


def session_settings(config: Mapping[str, Any]) -> SessionSettings:
    """How to connect; equal for all connectors and tasks that connect alike, which then share a session.

    Raises:
        ConfigInvalid: ``cassandra.hosts`` is not a list of hosts.
    """
    return keys.CLUSTER_KEYS.session(config, contact_points(config[keys.HOSTS], config[keys.PORT]), "LOCAL_ONE")


def event_settings(config: Config) -> CassandraEventSettings:
    """Return the options that determine the form of events.

    Raises:
        ConfigInvalid: a masking rule can't be used.
    """
    return CassandraEventSettings(
        topic_prefix=config[keys.PREFIX],
        cluster=config[keys.CLUSTER] or "",
        output_format=cast(
            'Literal["partition-update", "partition-update-raw", "debezium"]', _read_word(config, keys.OUTPUT)
        ),
        tombstones=config[keys.TOMBSTONES],
        extended=config[keys.EXTENDED],
        decimals=cast('Literal["double", "precise", "string"]', _read_word(config, DECIMALS)),
        varints=cast('Literal["long", "precise", "string"]', _read_word(config, VARINTS)),
        logical=_read_word(config, keys.LOGICAL) == "named",
        excluded=frozenset(
            str(column_name).strip() for column_name in config[keys.EXCLUDED] or () if str(column_name).strip()
        ),
        max_rows=MAX_ROWS,
        max_bytes=MAX_BYTES,
        masks=masking.parse_rules(config.raw, debezium=False),
    )


def snapshot_settings(config: Mapping[str, Any]) -> CassandraSnapshotSettings:
    """Return the options for snapshots, which are read at the same time as the log."""
    return CassandraSnapshotSettings(
        prefix=config[keys.PREFIX],
        mode=cast('Literal["initial", "never", "always"]', _read_word(config, keys.SNAPSHOT)),
        tables=tuple(split_regexes(text_of(config[keys.TABLES]))) or (".*",),
        new_tables=config[NEW_TABLES],
        consistency=str(config[keys.SNAPSHOT_CONSISTENCY]).strip().upper(),
        chunk_rows=config[keys.SNAPSHOT_ROWS],
        rows_per_s=config[keys.SNAPSHOT_RATE],
        threads=config[keys.SNAPSHOT_THREADS],
        timeout_s=config[keys.QUERY_TIMEOUT] / 1000,
    )


def table_lists(config: Mapping[str, Any]) -> tuple[str, str]:
    """The include and the exclude list as strings; for ``catalog.CassandraTableFilter``."""
    return text_of(config[keys.TABLES]), text_of(config[keys.NOT_TABLES])


def find_problems(config: Config) -> list[ConfigProblem]:
    """Return the problems for which the configuration can't work."""
    complaints = [*masking.find_problems(config.raw, debezium=False), *find_compacted_topics(config)]
    if masking.rule_names(config.raw) and _read_word(config, keys.OUTPUT) == "partition-update-raw":
        complaints.append(
            ConfigProblem(
                keys.OUTPUT,
                f"{keys.OUTPUT}=partition-update-raw holds the database's own bytes, which "
                f"{RULES} can't mask: set {keys.OUTPUT}=partition-update, or mask the "
                f"rows that come out of the materializer ({RULES} of the job)",
            )
        )

    def complain(name: str, reason: str) -> None:
        complaints.append(ConfigProblem(name, invalid(name, text_of(config[name]), reason)))

    node_count = len(parse_nodes(config))
    tasks = _tasks_max(config)
    if tasks is not None and tasks < node_count:
        complaints.append(ConfigProblem("tasks.max", too_few_tasks(tasks, node_count)))
    if text_of(config[keys.TABLES]) and text_of(config[keys.NOT_TABLES]):
        complain(keys.NOT_TABLES, f"must not be given together with {keys.TABLES}: what that does not name is left out")
    for first, second in ((keys.USER, keys.PASSWORD), (keys.CERTIFICATE, keys.PRIVATE_KEY)):
        if (config[first] is None) != (config[second] is None):
            missing, present = (first, second) if config[first] is None else (second, first)
            complaints.append(ConfigProblem(missing, f"{present} is given, {missing} is not: give both or neither"))
    if config[keys.KEYSTORE] is not None and config[keys.CERTIFICATE] is not None:
        complain(
            keys.KEYSTORE, f"must not be given together with {keys.CERTIFICATE}: both name the worker's certificate"
        )
    excluded = [str(column_name) for column_name in config[keys.EXCLUDED] or () if str(column_name).strip()]
    wrong = next((column_name for column_name in excluded if column_name.count(".") < 2), None)
    if wrong is not None:
        complain(keys.EXCLUDED, f"{wrong} is not of the form keyspace.table.column")
    if excluded and _read_word(config, keys.OUTPUT) != "debezium":
        complain(keys.EXCLUDED, f"is for {keys.OUTPUT}=debezium; the other forms have all columns")
    return complaints


def too_few_tasks(tasks: int, node_count: int) -> str:
    """The complaint about ``tasks.max``."""
    return (
        f"tasks.max={tasks} is too few: each of the {node_count} directories of {keys.DIRECTORIES} needs a task of its own, on "
        f"a worker that sees it. Set tasks.max to {node_count} or more (more only share snapshots)"
    )


def _tasks_max(config: Config) -> int | None:
    tasks_max = str(config.raw.get("tasks.max", "1")).strip() or "1"
    return int(tasks_max) if tasks_max.isdigit() else None  # the runtime complains


def task_count(config: Mapping[str, Any], max_tasks: int, limit: int) -> int:
    """Return the number of tasks: one per node, and as many more for snapshots as are allowed, up to ``limit`` in all.

    Raises:
        ConfigInvalid: fewer are allowed than there are nodes.
    """
    node_count = len(parse_nodes(config))
    if max_tasks < node_count:
        raise ConfigInvalid(too_few_tasks(max_tasks, node_count))
    return max(node_count, min(max_tasks, limit))


def find_warnings(config: Config) -> list[ConfigProblem]:
    """Options that have no effect here, or a risk: each by its name."""
    problems: list[ConfigProblem] = []

    def warn(name: str, reason: str) -> None:
        problems.append(ConfigProblem(name, reason, warning=True))

    for name, (_, default, reason) in keys.ACCEPTED.items():
        if name in config.raw and not _is_same_value(config[name], default):
            warn(name, f"{name} has no effect: {reason}")
    if _read_word(config, keys.OUTPUT) != "debezium":
        for name in _DEBEZIUM_ONLY:
            if name in config.raw and not _is_same_value(config[name], CONFIG.keys[name].default):
                warn(
                    name,
                    f"{name} has no effect with {keys.OUTPUT}={_read_word(config, keys.OUTPUT)}: it is for debezium",
                )
    if not config[keys.SSL]:
        for name in (keys.TRUSTSTORE, keys.KEYSTORE, keys.CERTIFICATE, keys.CIPHERS):
            if config[name]:
                warn(name, f"{name} has no effect without {keys.SSL}=true")
    if not config[keys.DELETE]:
        warn(
            keys.DELETE,
            f"{keys.DELETE}=false: another program has to delete segments that were delivered, or the nodes refuse "
            "writes to tables with cdc once cdc_total_space is used up",
        )
    if _read_word(config, keys.ERROR_POLICY) == "skip":
        warn(
            keys.ERROR_POLICY,
            f"{keys.ERROR_POLICY}=skip: changes in damaged places of the log are lost; watch "
            "cassandra_damaged_segments_total",
        )
    return [*problems, *_unknown_options(config)]


def _unknown_options(config: Config) -> list[ConfigProblem]:
    """Properties of this connector's families that no option has."""
    problems: list[ConfigProblem] = []
    for name in config.raw:
        if name in CONFIG.keys:
            continue
        family = next((prefix for prefix in keys.FAMILIES if name.startswith(prefix)), None)
        if family is not None:
            reason = f"{name} has no effect: {keys.FAMILIES[family]}"
        elif name.startswith(keys.COMPLETE):
            reason = f"{name} is no option of this connector and has no effect; is it spelled right?"
        else:
            continue
        problems.append(ConfigProblem(name, reason, warning=True))
    return problems


def _is_same_value(value: Any, default: Any) -> bool:
    if isinstance(value, str) and isinstance(default, str):
        return value.strip().lower() == default.lower()
    return bool(value == default)
