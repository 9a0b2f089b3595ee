"""The MySQL connector: checks its configuration, divides a source among tasks, and answers for them."""

from __future__ import annotations

import logging
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from connectors.api import SourceConnector
from connectors.errors import ConfigInvalid, MillraceError
from connectors.mysql.config import options_events as event_keys
from connectors.mysql.config import options_reading as reading_keys
from connectors.mysql.config import options_source as source_keys
from connectors.mysql.config.checks import captured_tables, check_server, server_tables
from connectors.mysql.config.problems import find_problems, find_warnings
from connectors.mysql.config.settings import CONFIG
from connectors.mysql.metrics import METRICS
from connectors.mysql.model import MARIADB, MYSQL, Shard, TableName
from connectors.mysql.position import positions, shards, start
from connectors.mysql.schema import versions
from connectors.mysql.snapshot.state import list_snapshots
from connectors.mysql.source import gtid
from connectors.mysql.source.statements import is_condition
from connectors.mysql.stream import lag, logical
from connectors.mysql.task import MySqlTask
from connectors.snapshot.requests import check_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Instruction, Position
    from connectors.options import Config, ConfigProblem

_log = logging.getLogger(__name__)
#: More tasks than that would only read the same binlog once more each.
MOST_TASKS: Final = 64


class MySqlConnector(SourceConnector):
    """Reads the binlog of MySQL and MariaDB servers, and takes snapshots of their tables at the same time."""

    version = version("millrace")
    config_def = CONFIG
    task_class = MySqlTask
    aliases = (
        "io.debezium.connector.mysql.MySqlConnector",
        "io.debezium.connector.mariadb.MariaDbConnector",
        "connectors.mysql.MySqlConnector",
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
        """One shard of the source per task. Does not ask the server: the tasks find their tables themselves."""
        count = 1 if one_task(self.context.config) else max(1, min(max_tasks, MOST_TASKS))
        return [{reading_keys.TASK_SHARD: shards.format_shard(Shard(index, count))} for index in range(count)]

    @classmethod
    async def validate(cls, config: Config) -> list[ConfigProblem]:
        """Options against each other, then the server: reachable, credentials, rights, settings of the binlog, tables.

        What has no effect or only a risk is a warning.
        """
        complaints = find_problems(config)
        noted = find_warnings(config)
        if not complaints:
            asked = await check_server(config)
            complaints, noted = asked.errors, [*noted, *asked.warnings]
        return [*complaints, *(replace(warning, warning=True) for warning in noted)]

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        """True: positions are exact to the row, and snapshots resume after the last chunk."""
        del config
        return True

    @classmethod
    def can_define_transaction_boundaries(cls, config: Config) -> bool:
        """True with one task: then a transaction of the source is one of Kafka."""
        return one_task(config) or str(config.raw.get("tasks.max", "1")).strip() in ("", "1")

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        """Check positions, this connector's and Debezium's.

        Raises:
            ConfigInvalid: one that can't be resumed from; the message says why.
        """
        prefix = config[event_keys.PREFIX]
        for partition, offset in offsets:
            try:
                _check_partition(prefix, partition)
                if offset is not None and start.is_stream(prefix, partition) and not _has_own_form(partition):
                    _check_place(offset)
            except ValueError as error:
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
        return check_request(request, condition=is_condition)

    @classmethod
    def snapshots(
        cls, config: Config, instructions: Sequence[Instruction], offsets: Sequence[tuple[Position, Position]]
    ) -> list[dict[str, Any]]:
        """See ``SourceConnector.snapshots``."""
        return list_snapshots(config[event_keys.PREFIX], instructions, offsets)

    @classmethod
    async def capturable(cls, properties: Mapping[str, str]) -> dict[str, Any]:
        """See ``SourceConnector.capturable``."""
        config = CONFIG.parse({event_keys.PREFIX: "none", **properties, source_keys.TABLES: ""})
        return {
            "option": source_keys.TABLES,
            "patterns": True,
            "tables": [str(name) for name in await server_tables(config)],
        }

    @classmethod
    async def lag(cls, config: Config, offsets: Sequence[tuple[Position, Position]]) -> dict[str, Any]:
        """See ``SourceConnector.lag``.

        Raises:
            Retriable: the source can't be asked now.
            ConfigInvalid: it refuses the account.
        """
        return await lag.read_lag(config, offsets)

    @classmethod
    async def tables(cls, config: Config, offsets: Sequence[tuple[Position, Position]]) -> list[dict[str, Any]]:
        """See ``SourceConnector.tables``: what is saved, and the captured tables of which nothing is saved yet.

        While the server can't be asked they are left out.
        """
        shown = versions.list_tables(config[event_keys.PREFIX], offsets)
        saved = {table["table"] for table in shown}
        try:
            captured = await captured_tables(config)
        except MillraceError as error:
            _log.warning("The tables are shown as they are saved: %s", error)
            captured = []
        unread = [{"table": str(name), "version": 1, "versions": []} for name in captured if str(name) not in saved]
        mapping = logical.parse_mapping(config[event_keys.LOGICAL] or "")
        return [
            {**table, **mapping.of(TableName(*table["table"].split(".", 1))).members}
            for table in sorted([*shown, *unread], key=lambda table: str(table["table"]))
        ]


def one_task(config: Config) -> bool:
    """Whether one task has to read all changes: they must be in one order, or keys of events are not what tasks divide by."""
    # A truncation is about the rows of all tasks.
    ordered = bool(config[event_keys.TRANSACTIONS]) or "t" not in [
        str(operation).strip() for operation in config[event_keys.SKIPPED] or ()
    ]
    return bool(config[event_keys.KEY_COLUMNS]) or (ordered and str(config[event_keys.OUTPUT]).lower() == "debezium")


def _has_own_form(partition: Position) -> bool:
    """Whether the partition is one of the connector's other notes, not of a position in the stream."""
    return bool(set(partition) - {start.SERVER, start.SHARD})


def _check_partition(prefix: str, partition: Position) -> None:
    server = partition.get(start.SERVER)
    if server != prefix:
        raise ValueError(f'a partition of this connector is {{"server": "{prefix}"}}, by its topic.prefix')
    shard = partition.get(start.SHARD)
    if shard is not None:
        shards.parse_shard(str(shard))


def _check_place(offset: Position) -> None:
    position = positions.from_offset(offset)
    if positions.file_number(position.file) == 0:
        raise ValueError(f"file must be the name of a binlog file such as mysql-bin.000042, not {position.file!r}")
    if position.gtids:
        try:
            gtid.parse_gtids(MYSQL if ":" in position.gtids else MARIADB, position.gtids)
        except ConfigInvalid as error:
            raise ValueError(f"gtids: {error}") from error
    for name in (start.LAYOUT, start.SOURCE_SERVER, start.TX_ROWS):
        value = offset.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ValueError(f"{name} must be a whole number, not {value!r}")
