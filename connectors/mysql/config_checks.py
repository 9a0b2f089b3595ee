"""What options say against each other, and which of them have no effect here. Nothing asks a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.formats import masking
from connectors.mysql import config_keys_accepted as ak
from connectors.mysql import config_keys_connection as ck
from connectors.mysql import config_keys_events as ek
from connectors.mysql import config_keys_reading as rk
from connectors.mysql.config import connection_settings, replica_settings, ssl_mode
from connectors.mysql.config_keys import CONFIG, NOTES
from connectors.mysql.config_keys_rules import regex_list
from connectors.mysql.config_stream import snapshot_overrides, snapshot_plan, text_of, word
from connectors.options import ConfigProblem, invalid, java_string

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.options import Config

_CHANNELS: Final = {
    "file": "use the signal table, a topic, or POST /connectors/NAME/snapshots",
    "jmx": "use the signal table, a topic, or POST /connectors/NAME/snapshots",
    "in-process": "use the signal table, a topic, or POST /connectors/NAME/snapshots",
}


def problems(config: Config) -> list[ConfigProblem]:
    """What makes the configuration one that can't work, or that would give other data than it says."""
    found: list[ConfigProblem] = []

    def complain(name: str, why: str) -> None:
        found.append(ConfigProblem(name, invalid(name, config[name] if name in config else config.raw.get(name), why)))

    for one, other in ((ck.DATABASES, ck.NOT_DATABASES), (ck.TABLES, ck.NOT_TABLES), (ek.COLUMNS, ek.NOT_COLUMNS)):
        if text_of(config, one) and text_of(config, other):
            complain(other, f'"{one}" is already specified')
    if text_of(config, ck.GTID_INCLUDES) and text_of(config, ck.GTID_EXCLUDES):
        complain(ck.GTID_EXCLUDES, "Cannot specify GTID excludes when includes are provided.")
    if config[rk.QUEUE] <= config[rk.BATCH]:
        complain(rk.QUEUE, f"Must be larger than the maximum batch size ({config[rk.BATCH]})")
    # Lists are split at commas when they are parsed; what counts is the text.
    for name in (
        ck.DATABASES,
        ck.NOT_DATABASES,
        ck.TABLES,
        ck.NOT_TABLES,
        ek.COLUMNS,
        ek.NOT_COLUMNS,
        rk.SNAPSHOT_TABLES,
        ck.GTID_INCLUDES,
        ck.GTID_EXCLUDES,
        ek.SOURCE_TYPES,
        ek.DATA_TYPES,
    ):
        complaint = regex_list(name, text_of(config, name))
        if complaint is not None:
            found.append(ConfigProblem(name, complaint))
    for name, why in ak.REFUSED.items():
        if text_of(config, name):
            found.append(ConfigProblem(name, f"{name}={config.raw[name]} would give other data than here: {why}"))
    if word(config, rk.SNAPSHOT_QUERIES) == "custom":
        complain(
            rk.SNAPSHOT_QUERIES, f"custom queries are Java classes, which can't run here; use {rk.SNAPSHOT_SELECTS}"
        )
    found += _caught(config, rk.SNAPSHOT, snapshot_plan)
    found += _caught(config, rk.SNAPSHOT_SELECTS, snapshot_overrides)
    found += _caught(config, ck.HOST, connection_settings)
    found += _topics(config)
    found += masking.problems(config.raw)
    if config[ek.QUERY] and masking.rule_names(config.raw):
        complain(
            ek.QUERY,
            f"must be false with {masking.RULES}: the text of a statement holds the values that are to be masked",
        )
    if config[ck.SSL_KEYSTORE_PASSWORD] is not None and not config[ck.SSL_KEYSTORE]:
        complain(ck.SSL_KEYSTORE, f"{ck.SSL_KEYSTORE_PASSWORD} is given, the file is not")
    if "kafka" in channels(config) and not config[rk.SIGNAL_BROKERS]:
        complain(
            rk.SIGNAL_BROKERS,
            f"the channel kafka of {rk.CHANNELS} needs the addresses of the cluster with the signal topic",
        )
    return found


def _caught(config: Config, name: str, parse: Callable[[Config], object]) -> list[ConfigProblem]:
    try:
        parse(config)
    except ConfigInvalid as error:
        return [ConfigProblem(name, str(error))]
    return []


def channels(config: Config) -> list[str]:
    """The signal channels that are asked for, in lower case."""
    return [str(item).strip().lower() for item in config[rk.CHANNELS] or () if str(item).strip()]


def _topics(config: Config) -> list[ConfigProblem]:
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


def warnings(config: Config) -> list[ConfigProblem]:
    """Options that have no effect here, or another one than their author may think: each by its name."""
    found: list[ConfigProblem] = []

    def warn(name: str, why: str) -> None:
        found.append(ConfigProblem(name, why))

    for name, why in NOTES.items():
        given = config.raw.get(name)
        if given is not None and not _is_default(config, name):
            warn(name, f"{name} has no effect: {why}")
    found += _unknown(config)
    for channel in channels(config):
        if channel not in ("source", "kafka"):
            warn(
                rk.CHANNELS,
                f"{rk.CHANNELS}: there is no channel {channel} here; "
                f"{_CHANNELS.get(channel, 'channels are source and kafka')}",
            )
    mode = word(config, rk.SNAPSHOT)
    if mode in rk.OLD_MODES:
        warn(rk.SNAPSHOT, f"{rk.SNAPSHOT}={mode} is an old word for {rk.OLD_MODES[mode]}")
    tasks = str(config.raw.get("tasks.max", "1")).strip()
    if config[ek.QUERY] and any(masking.is_debezium_option(name) for name in config.raw):
        warn(ek.QUERY, f"{ek.QUERY}=true shows values of masked columns in the text of statements (source.query)")
    if config[ek.TRANSACTIONS] and tasks not in ("", "1"):
        warn(
            ek.TRANSACTIONS,
            f"{ek.TRANSACTIONS}=true needs all changes in one order: the connector has one task, not {tasks}",
        )
    if (
        "t" not in [str(each).strip() for each in config[ek.SKIPPED] or ()]
        and tasks not in ("", "1")
        and word(config, ek.OUTPUT) != "ums"
    ):
        warn(
            ek.SKIPPED,
            f"{ek.SKIPPED} without t: a truncation needs all changes in one order, so the connector has one task, "
            f"not {tasks}",
        )
    if config[ek.TRANSACTIONS] and word(config, ek.OUTPUT) == "ums":
        warn(ek.TRANSACTIONS, f"{ek.TRANSACTIONS} has no effect with {ek.OUTPUT}=ums")
    if config[rk.HEARTBEAT_QUERY] and not config[rk.HEARTBEAT]:
        warn(rk.HEARTBEAT_QUERY, f"{rk.HEARTBEAT_QUERY} is never run, since {rk.HEARTBEAT} is 0")
    for name in (rk.SNAPSHOT_PORT, rk.SNAPSHOT_USER, rk.SNAPSHOT_PASSWORD):
        if config[name] is not None and not config[rk.SNAPSHOT_HOST]:
            warn(name, f"{name} has no effect without {rk.SNAPSHOT_HOST}")
    if ssl_mode(config) in ("disabled", "preferred", "required"):
        for name in (ck.SSL_TRUSTSTORE, ck.SSL_TRUSTSTORE_PASSWORD):
            if config[name] is not None:
                warn(
                    name,
                    f"{name} has no effect with {ck.SSL_MODE}={ssl_mode(config)}, which does not look at the server's "
                    "certificate; set verify_ca or verify_identity",
                )
    if replica_settings(config) is not None and mode in ("no_data", "never", "schema_only"):
        warn(
            rk.SNAPSHOT_HOST,
            f"{rk.SNAPSHOT_HOST} is used only by full pulls on demand: {rk.SNAPSHOT}={mode} makes none",
        )
    return found


def _is_default(config: Config, name: str) -> bool:
    return java_string(config[name]) == java_string(CONFIG.keys[name].default)


def _unknown(config: Config) -> list[ConfigProblem]:
    """Properties of our own families that no option has."""
    found = []
    aliases = {alias for key in CONFIG.keys.values() for alias in key.aliases}
    for name in config.raw:
        if (
            name in CONFIG.keys
            or name in aliases
            or masking.is_debezium_option(name)
            or name.startswith(("mask.", f"{rk.SNAPSHOT_SELECTS}.", "topic.creation."))
        ):
            continue
        family = next((prefix for prefix in ak.FAMILIES if name.startswith(prefix)), None)
        if family is not None:
            found.append(ConfigProblem(name, f"{name} has no effect: {ak.FAMILIES[family]}"))
        elif name.startswith(ak.COMPLETE):
            found.append(
                ConfigProblem(name, f"{name} is no option of this connector and has no effect; is it spelled right?")
            )
    return found
