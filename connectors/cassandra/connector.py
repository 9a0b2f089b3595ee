"""The Cassandra connector: checks its configuration, gives every node's log a task, and answers for them."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from connectors.api import NODE_KEY, SourceConnector
from connectors.cassandra import lag
from connectors.cassandra.config import keys
from connectors.cassandra.config.checks import check_cluster, check_directories
from connectors.cassandra.config.rules import shard_of, shard_text
from connectors.cassandra.config.settings import (
    CONFIG,
    find_problems,
    find_warnings,
    parse_nodes,
    session_settings,
    task_count,
)
from connectors.cassandra.metrics import METRICS
from connectors.cassandra.model import CLUSTER, NODE, SHARD, SNAPSHOT, TABLE_ID, LogPosition
from connectors.cassandra.schema import saved
from connectors.cassandra.snapshot import views
from connectors.cassandra.task import CassandraTask
from connectors.cql.cluster.asking import cluster_tables
from connectors.cql.mutations import definition
from connectors.errors import ConfigInvalid, MillraceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Instruction, Position
    from connectors.options import Config, ConfigProblem

#: Tasks beyond one per node only read shares of snapshots; more of them would only load the cluster.
MOST_TASKS: Final = 64


class CassandraConnector(SourceConnector):
    """Reads the commit logs of Cassandra nodes from their ``cdc_raw`` directories, and snapshots of tables."""

    version = version("millrace")
    config_def = CONFIG
    task_class = CassandraTask
    aliases = (
        "io.debezium.connector.cassandra.Cassandra4Connector",
        "io.debezium.connector.cassandra.Cassandra5Connector",
        "connectors.cassandra.CassandraConnector",
    )
    metrics = METRICS

    async def start(self) -> None:
        """Check what options say against each other.

        Raises:
            ConfigInvalid: they can't be used together.
        """
        config = self.context.config
        complaints = find_problems(config)
        if complaints:
            raise ConfigInvalid("\n".join(problem.message for problem in complaints))
        for warning in find_warnings(config):
            self.context.log.warning("%s", warning.message)

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """A task per node, on a worker that sees its directory; tasks beyond those read shares of snapshots, on any worker.

        Raises:
            ConfigInvalid: ``tasks.max`` is less than the number of directories.
        """
        log_nodes = parse_nodes(self.context.config)
        count = task_count(self.context.config, max_tasks, MOST_TASKS)
        configs = []
        for index in range(count):
            task_options = {keys.TASK_SHARD: shard_text(index, count)}
            if index < len(log_nodes):
                task_options[keys.TASK_NODE] = log_nodes[index].name
                if log_nodes[index].placed:
                    task_options[NODE_KEY] = log_nodes[index].name
            configs.append(task_options)
        return configs

    @classmethod
    async def validate(cls, config: Config) -> list[ConfigProblem]:
        """Options against each other, then the directories that are visible here, then the cluster.

        What has no effect or only a risk is a warning.
        """
        complaints = find_problems(config)
        if not complaints:
            complaints = [*await asyncio.to_thread(check_directories, config), *await check_cluster(config)]
        return [*complaints, *find_warnings(config)]

    @classmethod
    async def capturable(cls, properties: Mapping[str, str]) -> dict[str, Any]:
        """See ``SourceConnector.capturable``."""
        config = CONFIG.parse({keys.PREFIX: "none", **properties, keys.TABLES: ""})
        names = await cluster_tables(session_settings(config))
        return {"option": keys.TABLES, "patterns": True, "tables": names}

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        """True: positions are exact to the record, and what is before a sync marker does not change."""
        del config
        return True

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        """Check positions of logs, definitions of tables, and shares of snapshots.

        Raises:
            ConfigInvalid: one that can't be resumed from; the message says why.
        """
        names = {node.name for node in parse_nodes(config)}
        for partition, offset in offsets:
            try:
                _check_offset(config[keys.PREFIX], names, partition, offset)
            except MillraceError as error:
                raise ConfigInvalid(
                    f"The offset {offset} of partition {partition} can't be resumed from: {error}"
                ) from error
        return True

    # What REST asks.

    @classmethod
    def check_snapshot(cls, config: Config, request: Mapping[str, Any]) -> dict[str, Any]:
        """See ``SourceConnector.check_snapshot``.

        Raises:
            ConfigInvalid: the request can't be carried out.
        """
        del config
        return views.check_request(request)

    @classmethod
    def snapshots(
        cls, config: Config, instructions: Sequence[Instruction], offsets: Sequence[tuple[Position, Position]]
    ) -> list[dict[str, Any]]:
        """See ``SourceConnector.snapshots``."""
        return views.list_snapshots(config[keys.PREFIX], instructions, offsets)

    @classmethod
    async def lag(cls, config: Config, offsets: Sequence[tuple[Position, Position]]) -> dict[str, Any]:
        """See ``SourceConnector.lag``: asks the directories that are visible on this worker."""
        return await lag.measure_lag(config, offsets)

    @classmethod
    def tables(cls, config: Config, offsets: Sequence[tuple[Position, Position]]) -> list[dict[str, Any]]:
        """See ``SourceConnector.tables``."""
        return saved.show_tables(config[keys.PREFIX], offsets)


def _check_offset(prefix: str, names: set[str], partition: Position, offset: Position | None) -> None:
    # What was saved under an earlier topic.prefix may be taken away.
    if partition.get(CLUSTER) != prefix and (offset is not None or CLUSTER not in partition):
        raise ConfigInvalid(f'a partition of this connector has {{"{CLUSTER}": "{prefix}"}}, its topic.prefix')
    members = set(partition) - {CLUSTER}
    if members == {NODE}:
        # What is saved for a node that has left may always be taken away.
        if offset is not None:
            if partition[NODE] not in names:
                raise ConfigInvalid(
                    f"{keys.DIRECTORIES} has no node {partition[NODE]}; it has {', '.join(sorted(names))}"
                )
            LogPosition.of(offset)
    elif members == {NODE, TABLE_ID}:
        if offset is not None:
            definition_json = offset.get(saved.DEFINITION)
            table = definition.parse_definition(definition_json if isinstance(definition_json, str) else "null")
            if table.table_id != partition[TABLE_ID]:
                raise ConfigInvalid(f"it is the definition of the table with the id {table.table_id}")
    elif members == {SNAPSHOT, SHARD}:
        shard_of(str(partition[SHARD]))
        if offset is not None and not isinstance(offset.get("state"), str):
            raise ConfigInvalid('what is saved of a snapshot has a "state", such as "completed"')
    else:
        raise ConfigInvalid(
            f'a partition of this connector has, besides "{CLUSTER}", "{NODE}" (a log), "{NODE}" and '
            f'"{TABLE_ID}" (a definition), or "{SNAPSHOT}" and "{SHARD}" (a snapshot)'
        )
