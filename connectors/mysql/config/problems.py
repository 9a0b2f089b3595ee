"""Contradictions between options: configurations that can't work, and options without effect. Asks no server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.formats.masks import masking
from connectors.formats.masks.options import RULES
from connectors.java_regex import regex_list
from connectors.mysql.config import options_accepted as accepted_keys
from connectors.mysql.config import options_events as event_keys
from connectors.mysql.config import options_reading as reading_keys
from connectors.mysql.config import options_source as source_keys
from connectors.mysql.config.settings import (
    CONFIG,
    connection_settings,
    lower_option,
    replica_settings,
    signal_channels,
    snapshot_overrides,
    snapshot_plan,
    ssl_mode,
    text_of,
)
from connectors.options import ConfigProblem, invalid, java_string
from connectors.source_options.table_heartbeats import HEARTBEAT_TO_TABLES, find_compacted_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.options import Config

_CHANNELS: Final = {
    "file": "use the signal table, a topic, or POST /connectors/NAME/snapshots",
    "jmx": "use the signal table, a topic, or POST /connectors/NAME/snapshots",
    "in-process": "use the signal table, a topic, or POST /connectors/NAME/snapshots",
}


def find_problems(config: Config) -> list[ConfigProblem]:
    """Return the problems of a configuration that can't work, or that would give other data than it says."""
    complaints: list[ConfigProblem] = []

    def complain(name: str, reason: str) -> None:
        complaints.append(
            ConfigProblem(name, invalid(name, config[name] if name in config else config.raw.get(name), reason))
        )

    for include_option, exclude_option in (
        (source_keys.DATABASES, source_keys.NOT_DATABASES),
        (source_keys.TABLES, source_keys.NOT_TABLES),
        (event_keys.COLUMNS, event_keys.NOT_COLUMNS),
    ):
        if text_of(config, include_option) and text_of(config, exclude_option):
            complain(exclude_option, f'"{include_option}" is already specified')
    if text_of(config, source_keys.GTID_INCLUDES) and text_of(config, source_keys.GTID_EXCLUDES):
        complain(source_keys.GTID_EXCLUDES, "Cannot specify GTID excludes when includes are provided.")
    if config[reading_keys.QUEUE] <= config[reading_keys.BATCH]:
        complain(reading_keys.QUEUE, f"Must be larger than the maximum batch size ({config[reading_keys.BATCH]})")
    # Lists are split at commas when they are parsed; what counts is the text.
    for name in (
        source_keys.DATABASES,
        source_keys.NOT_DATABASES,
        source_keys.TABLES,
        source_keys.NOT_TABLES,
        event_keys.COLUMNS,
        event_keys.NOT_COLUMNS,
        reading_keys.SNAPSHOT_TABLES,
        source_keys.GTID_INCLUDES,
        source_keys.GTID_EXCLUDES,
        event_keys.SOURCE_TYPES,
        event_keys.DATA_TYPES,
    ):
        complaint = regex_list(name, text_of(config, name))
        if complaint is not None:
            complaints.append(ConfigProblem(name, complaint))
    for name, reason in accepted_keys.REFUSED.items():
        if text_of(config, name):
            complaints.append(
                ConfigProblem(name, f"{name}={config.raw[name]} would give other data than here: {reason}")
            )
    if lower_option(config, reading_keys.SNAPSHOT_QUERIES) == "custom":
        complain(
            reading_keys.SNAPSHOT_QUERIES,
            f"custom queries are Java classes, which can't run here; use {reading_keys.SNAPSHOT_SELECTS}",
        )
    complaints += _catch_problems(config, reading_keys.SNAPSHOT, snapshot_plan)
    complaints += _catch_problems(config, reading_keys.SNAPSHOT_SELECTS, snapshot_overrides)
    complaints += _catch_problems(config, source_keys.HOST, connection_settings)
    complaints += _topic_problems(config)
    complaints += masking.find_problems(config.raw)
    if config[event_keys.QUERY] and masking.rule_names(config.raw):
        complain(
            event_keys.QUERY,
            f"must be false with {RULES}: the text of a statement holds the values that are to be masked",
        )
    if config[source_keys.SSL_KEYSTORE_PASSWORD] is not None and not config[source_keys.SSL_KEYSTORE]:
        complain(source_keys.SSL_KEYSTORE, f"{source_keys.SSL_KEYSTORE_PASSWORD} is given, the file is not")
    if "kafka" in signal_channels(config) and not config[reading_keys.SIGNAL_BROKERS]:
        complain(
            reading_keys.SIGNAL_BROKERS,
            f"the channel kafka of {reading_keys.CHANNELS} needs the addresses of the cluster with the signal topic",
        )
    if config[reading_keys.HEARTBEAT] and lower_option(config, event_keys.OUTPUT) != "ums":
        complaints += find_compacted_topics(config)
    return complaints


def _catch_problems(config: Config, name: str, parse: Callable[[Config], object]) -> list[ConfigProblem]:
    try:
        parse(config)
    except ConfigInvalid as error:
        return [ConfigProblem(name, str(error))]
    return []


def _topic_problems(config: Config) -> list[ConfigProblem]:
    strategy = str(config[event_keys.STRATEGY] or "").rpartition(".")[2]
    if strategy not in event_keys.STRATEGIES:
        return [
            ConfigProblem(
                event_keys.STRATEGY,
                invalid(
                    event_keys.STRATEGY,
                    config[event_keys.STRATEGY],
                    "this class can't run here, and records would go to other topics; known are "
                    + ", ".join(event_keys.STRATEGIES),
                ),
            )
        ]
    if event_keys.STRATEGIES[strategy][2]:
        return [
            ConfigProblem(name, f"{event_keys.STRATEGY}={strategy} needs {name}")
            for name in (event_keys.TOPIC_REGEX, event_keys.TOPIC_REPLACEMENT)
            if not config[name]
        ]
    return []


def find_warnings(config: Config) -> list[ConfigProblem]:
    """Options that have no effect here, or another one than their author may think: each by its name."""
    complaints: list[ConfigProblem] = []

    def warn(name: str, reason: str) -> None:
        complaints.append(ConfigProblem(name, reason))

    for name, reason in accepted_keys.NOTES.items():
        value = config.raw.get(name)
        if value is not None and not _is_default(config, name):
            warn(name, f"{name} has no effect: {reason}")
    complaints += _unknown_options(config)
    for channel in signal_channels(config):
        if channel not in ("source", "kafka"):
            warn(
                reading_keys.CHANNELS,
                f"{reading_keys.CHANNELS}: there is no channel {channel} here; "
                f"{_CHANNELS.get(channel, 'channels are source and kafka')}",
            )
    mode = lower_option(config, reading_keys.SNAPSHOT)
    if mode in reading_keys.OLD_MODES:
        warn(reading_keys.SNAPSHOT, f"{reading_keys.SNAPSHOT}={mode} is an old word for {reading_keys.OLD_MODES[mode]}")
    complaints += _order_warnings(config)
    if config[reading_keys.HEARTBEAT_QUERY] and not config[reading_keys.HEARTBEAT]:
        warn(
            reading_keys.HEARTBEAT_QUERY,
            f"{reading_keys.HEARTBEAT_QUERY} is never run, since {reading_keys.HEARTBEAT} is 0",
        )
    if config[HEARTBEAT_TO_TABLES] and not config[reading_keys.HEARTBEAT]:
        warn(HEARTBEAT_TO_TABLES, f"{HEARTBEAT_TO_TABLES} has no effect, since {reading_keys.HEARTBEAT} is 0")
    for name in (reading_keys.SNAPSHOT_PORT, reading_keys.SNAPSHOT_USER, reading_keys.SNAPSHOT_PASSWORD):
        if config[name] is not None and not config[reading_keys.SNAPSHOT_HOST]:
            warn(name, f"{name} has no effect without {reading_keys.SNAPSHOT_HOST}")
    if ssl_mode(config) in ("disabled", "preferred", "required"):
        for name in (source_keys.SSL_TRUSTSTORE, source_keys.SSL_TRUSTSTORE_PASSWORD):
            if config[name] is not None:
                warn(
                    name,
                    f"{name} has no effect with {source_keys.SSL_MODE}={ssl_mode(config)}, which does not look at the server's "
                    "certificate; set verify_ca or verify_identity",
                )
    if replica_settings(config) is not None and mode in ("no_data", "never", "schema_only"):
        warn(
            reading_keys.SNAPSHOT_HOST,
            f"{reading_keys.SNAPSHOT_HOST} is used only by snapshots on demand: {reading_keys.SNAPSHOT}={mode} makes none",
        )
    return complaints


def _order_warnings(config: Config) -> list[ConfigProblem]:
    """Options that need all changes in one order, and what statements show of masked columns."""
    complaints: list[ConfigProblem] = []

    def warn(name: str, reason: str) -> None:
        complaints.append(ConfigProblem(name, reason))

    tasks = str(config.raw.get("tasks.max", "1")).strip()
    if config[event_keys.QUERY] and any(masking.is_debezium_option(name) for name in config.raw):
        warn(
            event_keys.QUERY,
            f"{event_keys.QUERY}=true shows values of masked columns in the text of statements (source.query)",
        )
    if config[event_keys.TRANSACTIONS] and tasks not in ("", "1"):
        warn(
            event_keys.TRANSACTIONS,
            f"{event_keys.TRANSACTIONS}=true needs all changes in one order: the connector has one task, not {tasks}",
        )
    if (
        "t" not in [str(operation).strip() for operation in config[event_keys.SKIPPED] or ()]
        and tasks not in ("", "1")
        and lower_option(config, event_keys.OUTPUT) != "ums"
    ):
        warn(
            event_keys.SKIPPED,
            f"{event_keys.SKIPPED} without t: a truncation needs all changes in one order, so the connector has one task, "
            f"not {tasks}",
        )
    if config[event_keys.TRANSACTIONS] and lower_option(config, event_keys.OUTPUT) == "ums":
        warn(event_keys.TRANSACTIONS, f"{event_keys.TRANSACTIONS} has no effect with {event_keys.OUTPUT}=ums")
    return complaints


def _is_default(config: Config, name: str) -> bool:
    return java_string(config[name]) == java_string(CONFIG.keys[name].default)


def _unknown_options(config: Config) -> list[ConfigProblem]:
    """Properties of our own families that no option has."""
    complaints = []
    aliases = {alias for key in CONFIG.keys.values() for alias in key.aliases}
    for name in config.raw:
        if (
            name in CONFIG.keys
            or name in aliases
            or masking.is_debezium_option(name)
            or name.startswith(("mask.", f"{reading_keys.SNAPSHOT_SELECTS}.", "topic.creation."))
        ):
            continue
        family = next((prefix for prefix in accepted_keys.FAMILIES if name.startswith(prefix)), None)
        if family is not None:
            complaints.append(ConfigProblem(name, f"{name} has no effect: {accepted_keys.FAMILIES[family]}"))
        elif name.startswith(accepted_keys.COMPLETE):
            complaints.append(
                ConfigProblem(name, f"{name} is no option of this connector and has no effect; is it spelled right?")
            )
    return complaints
