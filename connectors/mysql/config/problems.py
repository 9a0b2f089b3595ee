"""Contradictions between options: configurations that can't work, and options without effect. Asks no server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.formats.masks import masking
from connectors.formats.masks.options import RULES
from connectors.java_regex import regex_list
from connectors.mysql.config import options_events as ek
from connectors.mysql.config import options_source as sk
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
        (sk.DATABASES, sk.NOT_DATABASES),
        (sk.TABLES, sk.NOT_TABLES),
        (ek.COLUMNS, ek.NOT_COLUMNS),
    ):
        if text_of(config, include_option) and text_of(config, exclude_option):
            complain(exclude_option, f'"{include_option}" is already specified')
    if text_of(config, sk.GTID_INCLUDES) and text_of(config, sk.GTID_EXCLUDES):
        complain(sk.GTID_EXCLUDES, "Cannot specify GTID excludes when includes are provided.")
    if config[sk.QUEUE] <= config[sk.BATCH]:
        complain(sk.QUEUE, f"Must be larger than the maximum batch size ({config[sk.BATCH]})")
    # Lists are split at commas when they are parsed; what counts is the text.
    for name in (
        sk.DATABASES,
        sk.NOT_DATABASES,
        sk.TABLES,
        sk.NOT_TABLES,
        ek.COLUMNS,
        ek.NOT_COLUMNS,
        sk.SNAPSHOT_TABLES,
        sk.GTID_INCLUDES,
        sk.GTID_EXCLUDES,
        ek.SOURCE_TYPES,
        ek.DATA_TYPES,
    ):
        complaint = regex_list(name, text_of(config, name))
        if complaint is not None:
            complaints.append(ConfigProblem(name, complaint))
    for name, reason in ek.REFUSED.items():
        if text_of(config, name):
            complaints.append(
                ConfigProblem(name, f"{name}={config.raw[name]} would give other data than here: {reason}")
            )
    if lower_option(config, sk.SNAPSHOT_QUERIES) == "custom":
        complain(
            sk.SNAPSHOT_QUERIES, f"custom queries are Java classes, which can't run here; use {sk.SNAPSHOT_SELECTS}"
        )
    complaints += _catch_problems(config, sk.SNAPSHOT, snapshot_plan)
    complaints += _catch_problems(config, sk.SNAPSHOT_SELECTS, snapshot_overrides)
    complaints += _catch_problems(config, sk.HOST, connection_settings)
    complaints += _topic_problems(config)
    complaints += masking.find_problems(config.raw)
    if config[ek.QUERY] and masking.rule_names(config.raw):
        complain(
            ek.QUERY,
            f"must be false with {RULES}: the text of a statement holds the values that are to be masked",
        )
    if config[sk.SSL_KEYSTORE_PASSWORD] is not None and not config[sk.SSL_KEYSTORE]:
        complain(sk.SSL_KEYSTORE, f"{sk.SSL_KEYSTORE_PASSWORD} is given, the file is not")
    if "kafka" in signal_channels(config) and not config[sk.SIGNAL_BROKERS]:
        complain(
            sk.SIGNAL_BROKERS,
            f"the channel kafka of {sk.CHANNELS} needs the addresses of the cluster with the signal topic",
        )
    if config[sk.HEARTBEAT] and lower_option(config, ek.OUTPUT) != "ums":
        complaints += find_compacted_topics(config)
    return complaints


def _catch_problems(config: Config, name: str, parse: Callable[[Config], object]) -> list[ConfigProblem]:
    try:
        parse(config)
    except ConfigInvalid as error:
        return [ConfigProblem(name, str(error))]
    return []


def _topic_problems(config: Config) -> list[ConfigProblem]:
    strategy = str(config[ek.STRATEGY] or "").rpartition(".")[2]
    if strategy not in ek.STRATEGIES:
        return [
            ConfigProblem(
                ek.STRATEGY,
                invalid(
                    ek.STRATEGY,
                    config[ek.STRATEGY],
                    "this class can't run here, and records would go to other topics; known are "
                    + ", ".join(ek.STRATEGIES),
                ),
            )
        ]
    if ek.STRATEGIES[strategy][2]:
        return [
            ConfigProblem(name, f"{ek.STRATEGY}={strategy} needs {name}")
            for name in (ek.TOPIC_REGEX, ek.TOPIC_REPLACEMENT)
            if not config[name]
        ]
    return []


def find_warnings(config: Config) -> list[ConfigProblem]:
    """Options that have no effect here, or another one than their author may think: each by its name."""
    complaints: list[ConfigProblem] = []

    def warn(name: str, reason: str) -> None:
        complaints.append(ConfigProblem(name, reason))

    for name, reason in ek.NOTES.items():
        value = config.raw.get(name)
        if value is not None and not _is_default(config, name):
            warn(name, f"{name} has no effect: {reason}")
    complaints += _unknown_options(config)
    for channel in signal_channels(config):
        if channel not in ("source", "kafka"):
            warn(
                sk.CHANNELS,
                f"{sk.CHANNELS}: there is no channel {channel} here; "
                f"{_CHANNELS.get(channel, 'channels are source and kafka')}",
            )
    mode = lower_option(config, sk.SNAPSHOT)
    if mode in sk.OLD_MODES:
        warn(sk.SNAPSHOT, f"{sk.SNAPSHOT}={mode} is an old word for {sk.OLD_MODES[mode]}")
    complaints += _order_warnings(config)
    if config[sk.HEARTBEAT_QUERY] and not config[sk.HEARTBEAT]:
        warn(sk.HEARTBEAT_QUERY, f"{sk.HEARTBEAT_QUERY} is never run, since {sk.HEARTBEAT} is 0")
    if config[HEARTBEAT_TO_TABLES] and not config[sk.HEARTBEAT]:
        warn(HEARTBEAT_TO_TABLES, f"{HEARTBEAT_TO_TABLES} has no effect, since {sk.HEARTBEAT} is 0")
    for name in (sk.SNAPSHOT_PORT, sk.SNAPSHOT_USER, sk.SNAPSHOT_PASSWORD):
        if config[name] is not None and not config[sk.SNAPSHOT_HOST]:
            warn(name, f"{name} has no effect without {sk.SNAPSHOT_HOST}")
    if ssl_mode(config) in ("disabled", "preferred", "required"):
        for name in (sk.SSL_TRUSTSTORE, sk.SSL_TRUSTSTORE_PASSWORD):
            if config[name] is not None:
                warn(
                    name,
                    f"{name} has no effect with {sk.SSL_MODE}={ssl_mode(config)}, which does not look at the server's "
                    "certificate; set verify_ca or verify_identity",
                )
    if replica_settings(config) is not None and mode in ("no_data", "never", "schema_only"):
        warn(
            sk.SNAPSHOT_HOST,
            f"{sk.SNAPSHOT_HOST} is used only by snapshots on demand: {sk.SNAPSHOT}={mode} makes none",
        )
    return complaints


def _order_warnings(config: Config) -> list[ConfigProblem]:
    """Options that need all changes in one order, and what statements show of masked columns."""
    complaints: list[ConfigProblem] = []

    def warn(name: str, reason: str) -> None:
        complaints.append(ConfigProblem(name, reason))

    tasks = str(config.raw.get("tasks.max", "1")).strip()
    if config[ek.QUERY] and any(masking.is_debezium_option(name) for name in config.raw):
        warn(ek.QUERY, f"{ek.QUERY}=true shows values of masked columns in the text of statements (source.query)")
    if config[ek.TRANSACTIONS] and tasks not in ("", "1"):
        warn(
            ek.TRANSACTIONS,
            f"{ek.TRANSACTIONS}=true needs all changes in one order: the connector has one task, not {tasks}",
        )
    if (
        "t" not in [str(operation).strip() for operation in config[ek.SKIPPED] or ()]
        and tasks not in ("", "1")
        and lower_option(config, ek.OUTPUT) != "ums"
    ):
        warn(
            ek.SKIPPED,
            f"{ek.SKIPPED} without t: a truncation needs all changes in one order, so the connector has one task, "
            f"not {tasks}",
        )
    if config[ek.TRANSACTIONS] and lower_option(config, ek.OUTPUT) == "ums":
        warn(ek.TRANSACTIONS, f"{ek.TRANSACTIONS} has no effect with {ek.OUTPUT}=ums")
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
            or name.startswith(("mask.", f"{sk.SNAPSHOT_SELECTS}.", "topic.creation."))
        ):
            continue
        family = next((prefix for prefix in ek.FAMILIES if name.startswith(prefix)), None)
        if family is not None:
            complaints.append(ConfigProblem(name, f"{name} has no effect: {ek.FAMILIES[family]}"))
        elif name.startswith(ek.COMPLETE):
            complaints.append(
                ConfigProblem(name, f"{name} is no option of this connector and has no effect; is it spelled right?")
            )
    return complaints
