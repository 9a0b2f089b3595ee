"""Checks of a configuration that need the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.cql.cluster.asking import OptionNames, ask_cluster
from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.formats.masks.options import RULES
from connectors.options import ConfigProblem
from connectors.scylla.config import keys
from connectors.scylla.config.names import qualify_table, quote_name
from connectors.scylla.config.settings import event_settings, parse_tables, session_settings
from connectors.scylla.events import build_events
from connectors.scylla.schema.log_table import log_name
from connectors.scylla.schema.tables import TableUnavailable, disabled_text, load_history
from connectors.scylla.source import discovery

if TYPE_CHECKING:
    from connectors.cql.cluster.session import CqlSession
    from connectors.options import Config
    from connectors.scylla.model import CdcOptions, TableId, TableVersion

_WAITS: Final = "the connector reads it as soon as it can, without a restart"
_CONNECTING: Final = OptionNames(keys.HOSTS, keys.USER, keys.PASSWORD, keys.SSL)


async def check_cluster(config: Config) -> list[ConfigProblem]:
    """Complaints about a configuration, from asking the cluster. Opens a session and gives it back.

    The cluster can be reached and logged in to, the tables' CDC gives the images that are wanted, and their logs may be read. A
    table that can't be read yet (it is not there, has no CDC or no streams) is a warning: the connector waits for it.
    """

    async def ask(session: CqlSession) -> list[ConfigProblem]:
        problems, readable = [], 0
        for table in parse_tables(config):
            try:
                version = await _load_newest(session, table)
            except TableUnavailable as error:
                problems.append(_warn_later(f"{error}; {_WAITS}"))
                continue
            readable += 1
            problems += await _check_table(session, config, table, version)
        if not readable:
            problems.append(
                _warn_later(
                    f"There is no table to capture yet: none of {keys.TABLES} can be read. The connector starts "
                    "and waits"
                )
            )
        return problems

    return await ask_cluster(config, _CONNECTING, lambda: session_settings(config), ask)


async def _load_newest(session: CqlSession, table: TableId) -> TableVersion:
    """The table's newest definition.

    Raises:
        TableUnavailable: it can't be read now, or its CDC is off.
        Retriable: nodes are unavailable, busy or too slow.
        Fatal: its definition is not understood.
    """
    newest = (await load_history(session, table)).newest
    if not newest.options.enabled:
        raise TableUnavailable(table, "disabled", disabled_text(table))
    return newest


async def _check_table(
    session: CqlSession, config: Config, table: TableId, version: TableVersion
) -> list[ConfigProblem]:
    problems = [*check_images(config, table, version.options), *form_problems(config, version)]
    log = f"{quote_name(table.keyspace)}.{quote_name(log_name(table))}"
    try:
        await session.query(f'SELECT "cdc$stream_id" FROM {log} LIMIT 1', consistency="ONE")  # noqa: S608 - quoted
        source = await discovery.table_source(session, table)
        if not await discovery.load_generations(session, table, source):
            problems.append(_warn_later(f"The cluster lists no streams for {table} yet; {_WAITS}"))
    except Fatal as error:
        problems.append(ConfigProblem(keys.TABLES, f"{table}: {error}; if it is about rights: GRANT SELECT ON {log}"))
    except Retriable as error:
        problems.append(ConfigProblem(keys.TABLES, f"{table}: {error}"))
    return problems


def _warn_later(message: str) -> ConfigProblem:
    return ConfigProblem(keys.TABLES, message, warning=True)


def check_images(config: Config, table: TableId, options: CdcOptions) -> list[ConfigProblem]:
    """Whether the table's log has what the output form takes values from; partition updates refuse a log without values."""
    shaping = event_settings(config)
    form = shaping.output_format
    if options.delta == "keys" and (form == "legacy" or (form == "ums" and not options.postimage)):
        return [
            ConfigProblem(
                keys.TABLES,
                f"The log of {table} has keys and no values (cdc option 'delta': 'keys'), so its events have none: ALTER "
                f"TABLE {qualify_table(table)} WITH cdc = {{'enabled': true, 'delta': 'full'}} (with the table's other "
                "cdc options next to them)",
                warning=True,
            )
        ]
    if form != "advanced":
        return []
    problems = []
    if shaping.include_before != "none" and options.preimage == "false":
        problems.append(_without_image(keys.BEFORE, shaping.include_before, table, "preimage"))
    if shaping.include_after != "none" and not options.postimage:
        problems.append(_without_image(keys.AFTER, shaping.include_after, table, "postimage"))
    return problems


def form_problems(config: Config, version: TableVersion) -> list[ConfigProblem]:
    """Whether the output form can have the table, with ``mask.rules``."""
    try:
        build_events(version, event_settings(config))
    except ConfigInvalid as error:
        return [ConfigProblem(RULES, str(error))]
    except Fatal as error:
        return [ConfigProblem(keys.OUTPUT, str(error))]
    return []


def _without_image(option: str, value: str, table: TableId, image: str) -> ConfigProblem:
    return ConfigProblem(
        option,
        f"{option}={value} needs the {image} of {table}, which is off; turn it on with: ALTER TABLE "
        f"{qualify_table(table)} WITH cdc = {{'enabled': true, '{image}': true}} (with the table's other "
        "cdc options next to them)",
    )
