"""The connector's options as plain values for its parts, and the checks that need no server. Pure functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from connectors.cassandra import config_keys as keys
from connectors.cassandra.backfill.model import BackfillSettings
from connectors.cassandra.config_keys import CONFIG
from connectors.cassandra.config_rules import Node, contact_points, directories, shard_of, split_regexes, text_of
from connectors.cassandra.events.contract import EventSettings
from connectors.cassandra.model import CLUSTER, NODE, LogSettings
from connectors.errors import ConfigInvalid
from connectors.formats import masking
from connectors.new_tables import NEW_TABLES
from connectors.number_keys import DECIMALS, VARINTS
from connectors.options import ConfigProblem, invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.api import Position
    from connectors.cql.session import SessionSettings
    from connectors.options import Config

__all__ = [
    "CONFIG",
    "Node",
    "TaskSettings",
    "backfill_settings",
    "event_settings",
    "log_partition",
    "log_settings",
    "nodes",
    "problems",
    "session_settings",
    "shard",
    "table_lists",
    "task_count",
    "task_node",
    "task_settings",
    "warnings",
]

#: Rows and bytes above which a partition update is divided.
MAX_ROWS: Final = 500
MAX_BYTES: Final = 512 * 1024
#: Options that count for the debezium form only.
_DEBEZIUM_ONLY: Final = (keys.CLUSTER, keys.TOMBSTONES, keys.EXTENDED, keys.LOGICAL, DECIMALS, VARINTS)


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of the options for a task itself.

    Attributes:
        prefix: ``topic.prefix``.
        max_batch: records of a batch, about.
        max_bytes: bytes of the log per batch, about.
        heartbeat_s: how often a position is saved while there is nothing to deliver.
        refresh_s: how often the schema's version is asked for.
    """

    prefix: str
    max_batch: int
    max_bytes: int
    heartbeat_s: float
    refresh_s: float


def _word(config: Mapping[str, Any], name: str) -> str:
    return str(config[name]).strip().lower()


def nodes(config: Mapping[str, Any]) -> tuple[Node, ...]:
    """The nodes whose logs are read, in order: node i is read by task i.

    Raises:
        ConfigInvalid: ``cdc.raw.directories`` can't be understood.
    """
    return directories(config[keys.DIRECTORIES])


def task_node(config: Mapping[str, Any]) -> Node | None:
    """The node whose log this task reads; None: it reads backfills only.

    Raises:
        ConfigInvalid: the task's configuration names a node that is not there.
    """
    name = config[keys.TASK_NODE]
    if not name:
        return None
    found = next((each for each in nodes(config) if each.name == name), None)
    if found is None:
        raise ConfigInvalid(f"The task is for node {name}, which {keys.DIRECTORIES} does not have (any more)")
    return found


def shard(config: Mapping[str, Any]) -> tuple[int, int]:
    """The task's share of backfills: (index, count)."""
    return shard_of(config[keys.TASK_SHARD])


def log_partition(prefix: str, node: str) -> Position:
    """The source partition of a node's log."""
    return {CLUSTER: prefix, NODE: node}


def task_settings(config: Mapping[str, Any]) -> TaskSettings:
    """What a task needs for itself."""
    return TaskSettings(
        prefix=config[keys.PREFIX],
        max_batch=config[keys.BATCH],
        max_bytes=config[keys.BATCH_BYTES],
        heartbeat_s=config[keys.HEARTBEAT] / 1000,
        refresh_s=config[keys.REFRESH] / 1000,
    )


def log_settings(config: Mapping[str, Any], node: Node) -> LogSettings:
    """How a node's log is read."""
    aside = config[keys.ERROR_DIRECTORY]
    return LogSettings(
        node=node.name,
        directory=Path(node.directory),
        mode=cast('Literal["idx", "marker"]', _word(config, keys.READ_MODE)),
        poll_ms=config[keys.POLL],
        max_bytes=config[keys.BATCH_BYTES],
        policy=cast('Literal["stop", "skip"]', _word(config, keys.ERROR_POLICY)),
        aside=Path(aside) / node.name if aside else None,
        delete=config[keys.DELETE],
    )


def session_settings(config: Mapping[str, Any]) -> SessionSettings:
    """How to connect; equal for all connectors and tasks that connect alike, which then share a session.

    Raises:
        ConfigInvalid: ``cassandra.hosts`` is not a list of hosts.
    """
    return keys.CLUSTER_KEYS.session(config, contact_points(config[keys.HOSTS], config[keys.PORT]), "LOCAL_ONE")


def event_settings(config: Config) -> EventSettings:
    """What shapes events.

    Raises:
        ConfigInvalid: a masking rule can't be used.
    """
    return EventSettings(
        topic_prefix=config[keys.PREFIX],
        cluster=config[keys.CLUSTER] or "",
        output_format=cast(
            'Literal["partition-update", "partition-update-raw", "debezium"]', _word(config, keys.OUTPUT)
        ),
        tombstones=config[keys.TOMBSTONES],
        extended=config[keys.EXTENDED],
        decimals=cast('Literal["double", "precise", "string"]', _word(config, DECIMALS)),
        varints=cast('Literal["long", "precise", "string"]', _word(config, VARINTS)),
        logical=_word(config, keys.LOGICAL) == "named",
        excluded=frozenset(str(each).strip() for each in config[keys.EXCLUDED] or () if str(each).strip()),
        max_rows=MAX_ROWS,
        max_bytes=MAX_BYTES,
        masks=masking.parse_rules(config.raw, debezium=False),
    )


def backfill_settings(config: Mapping[str, Any]) -> BackfillSettings:
    """How tables are read beside the log."""
    return BackfillSettings(
        prefix=config[keys.PREFIX],
        mode=cast('Literal["initial", "never", "always"]', _word(config, keys.SNAPSHOT)),
        tables=tuple(split_regexes(text_of(config[keys.TABLES]))) or (".*",),
        new_tables=config[NEW_TABLES],
        consistency=str(config[keys.SNAPSHOT_CONSISTENCY]).strip().upper(),
        chunk_rows=config[keys.SNAPSHOT_ROWS],
        rows_per_s=config[keys.SNAPSHOT_RATE],
        threads=config[keys.SNAPSHOT_THREADS],
        timeout_s=config[keys.QUERY_TIMEOUT] / 1000,
    )


def table_lists(config: Mapping[str, Any]) -> tuple[str, str]:
    """The include and the exclude list as texts; for ``catalog.TableFilter``."""
    return text_of(config[keys.TABLES]), text_of(config[keys.NOT_TABLES])


def problems(config: Config) -> list[ConfigProblem]:
    """What makes the configuration one that can't work."""
    found = masking.problems(config.raw, debezium=False)
    if masking.rule_names(config.raw) and _word(config, keys.OUTPUT) == "partition-update-raw":
        found.append(
            ConfigProblem(
                keys.OUTPUT,
                f"{keys.OUTPUT}=partition-update-raw holds the database's own bytes, which "
                f"{masking.RULES} can't mask: set {keys.OUTPUT}=partition-update, or mask the "
                f"rows that come out of the materializer ({masking.RULES} of the job)",
            )
        )

    def complain(name: str, why: str) -> None:
        found.append(ConfigProblem(name, invalid(name, text_of(config[name]), why)))

    wanted = len(nodes(config))
    tasks = _tasks_max(config)
    if tasks is not None and tasks < wanted:
        found.append(ConfigProblem("tasks.max", too_few_tasks(tasks, wanted)))
    if text_of(config[keys.TABLES]) and text_of(config[keys.NOT_TABLES]):
        complain(keys.NOT_TABLES, f"must not be given together with {keys.TABLES}: what that does not name is left out")
    for one, other in ((keys.USER, keys.PASSWORD), (keys.CERTIFICATE, keys.PRIVATE_KEY)):
        if (config[one] is None) != (config[other] is None):
            missing, given = (one, other) if config[one] is None else (other, one)
            found.append(ConfigProblem(missing, f"{given} is given, {missing} is not: give both or neither"))
    if config[keys.KEYSTORE] is not None and config[keys.CERTIFICATE] is not None:
        complain(
            keys.KEYSTORE, f"must not be given together with {keys.CERTIFICATE}: both name the worker's certificate"
        )
    excluded = [str(each) for each in config[keys.EXCLUDED] or () if str(each).strip()]
    wrong = next((each for each in excluded if each.count(".") < 2), None)
    if wrong is not None:
        complain(keys.EXCLUDED, f"{wrong} is not of the form keyspace.table.column")
    if excluded and _word(config, keys.OUTPUT) != "debezium":
        complain(keys.EXCLUDED, f"is for {keys.OUTPUT}=debezium; the other forms have all columns")
    return found


def too_few_tasks(tasks: int, wanted: int) -> str:
    """The complaint about ``tasks.max``."""
    return (
        f"tasks.max={tasks} is too few: each of the {wanted} directories of {keys.DIRECTORIES} needs a task of its own, on "
        f"a worker that sees it. Set tasks.max to {wanted} or more (more only share backfills)"
    )


def _tasks_max(config: Config) -> int | None:
    text = str(config.raw.get("tasks.max", "1")).strip() or "1"
    return int(text) if text.isdigit() else None  # the runtime complains


def task_count(config: Mapping[str, Any], max_tasks: int, most: int) -> int:
    """How many tasks there shall be: one per node, and as many more for backfills as are allowed, up to ``most`` in all.

    Raises:
        ConfigInvalid: fewer are allowed than there are nodes.
    """
    wanted = len(nodes(config))
    if max_tasks < wanted:
        raise ConfigInvalid(too_few_tasks(max_tasks, wanted))
    return max(wanted, min(max_tasks, most))


def warnings(config: Config) -> list[ConfigProblem]:
    """Options that have no effect here, or a risk: each by its name."""
    found: list[ConfigProblem] = []

    def warn(name: str, why: str) -> None:
        found.append(ConfigProblem(name, why, warning=True))

    for name, (_, default, why) in keys.ACCEPTED.items():
        if name in config.raw and not _same(config[name], default):
            warn(name, f"{name} has no effect: {why}")
    if _word(config, keys.OUTPUT) != "debezium":
        for name in _DEBEZIUM_ONLY:
            if name in config.raw and not _same(config[name], CONFIG.keys[name].default):
                warn(name, f"{name} has no effect with {keys.OUTPUT}={_word(config, keys.OUTPUT)}: it is for debezium")
    if not config[keys.SSL]:
        for name in (keys.TRUSTSTORE, keys.KEYSTORE, keys.CERTIFICATE, keys.CIPHERS):
            if config[name]:
                warn(name, f"{name} has no effect without {keys.SSL}=true")
    if not config[keys.DELETE]:
        warn(
            keys.DELETE,
            f"{keys.DELETE}=false: somebody else has to delete segments that were delivered, or the nodes refuse "
            "writes to tables with cdc once cdc_total_space is used up",
        )
    if _word(config, keys.ERROR_POLICY) == "skip":
        warn(
            keys.ERROR_POLICY,
            f"{keys.ERROR_POLICY}=skip: changes in damaged places of the log are lost; watch "
            "cassandra_damaged_segments_total",
        )
    for name in config.raw:
        family = next((each for each in keys.FAMILIES if name.startswith(each)), None)
        if name in CONFIG.keys:
            continue
        if family is not None:
            warn(name, f"{name} has no effect: {keys.FAMILIES[family]}")
        elif name.startswith(keys.COMPLETE):
            warn(name, f"{name} is no option of this connector and has no effect; is it spelled right?")
    return found


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, str) and isinstance(default, str):
        return value.strip().lower() == default.lower()
    return bool(value == default)
