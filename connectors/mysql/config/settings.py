"""The connector's options as the settings of its parts, and what options say against each other. Asks no server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from connectors.errors import ConfigInvalid
from connectors.formats.masks import masking
from connectors.formats.masks.options import SOURCE_KEYS as MASK_KEYS
from connectors.java_regex import compile_java, split_regexes
from connectors.mysql.config import options_accepted as accepted_keys
from connectors.mysql.config import options_events as event_keys
from connectors.mysql.config import options_reading as reading_keys
from connectors.mysql.config import options_source as source_keys
from connectors.mysql.events.contract import MySqlEventSettings, TopicSettings, UmsSettings
from connectors.mysql.model import (
    MARIADB,
    MYSQL,
    ConnectionSettings,
    Failures,
    MySqlTlsSettings,
    Overrides,
    Shard,
    SnapshotPlan,
    StreamSettings,
    TableName,
)
from connectors.mysql.position import shards
from connectors.mysql.schema.types import ValueOptions
from connectors.mysql.snapshot.model import SnapshotSettings
from connectors.mysql.source.statements import select_condition
from connectors.mysql.stream.heartbeat import HeartbeatSettings
from connectors.options import ConfigDef, invalid
from connectors.source_options.new_tables import NEW_TABLES
from connectors.source_options.number_keys import DECIMALS
from connectors.source_options.table_heartbeats import HEARTBEAT_TO_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.options import Config

#: The options of the connector, one declaration each. Debezium's names, defaults and words keep their meaning.
CONFIG: Final = ConfigDef(
    [
        *source_keys.CONNECTION_KEYS,
        *event_keys.EVENT_KEYS,
        *MASK_KEYS,
        *reading_keys.READING_KEYS,
        *accepted_keys.ACCEPTED_KEYS,
        *accepted_keys.REFUSED_KEYS,
    ]
)


def _make_plan(
    snapshot: Literal["never", "initial", "always"],
    *,
    stream: bool = True,
    on_purged: bool = False,
    begin: Literal["now", "oldest"] = "now",
) -> SnapshotPlan:
    return SnapshotPlan(snapshot=snapshot, stream=stream, on_purged=on_purged, begin=begin)


#: ``snapshot.mode`` -> when tables are read, whether the stream is, and where it begins.
_PLANS: Final = {
    "initial": _make_plan("initial"),
    "always": _make_plan("always"),
    "initial_only": _make_plan("initial", stream=False),
    "when_needed": _make_plan("initial", on_purged=True),
    "no_data": _make_plan("never"),
    "recovery": _make_plan("never"),
    "never": _make_plan("never", begin="oldest"),
}
#: Seconds between two rows of the heartbeat table where ``heartbeat.interval.ms`` is 0.
HEARTBEAT_S: Final = 10.0
#: How long one heartbeat may take, in seconds.
HEARTBEAT_TIMEOUT_S: Final = 10.0


def text_of(config: Config, name: str) -> str:
    """An option's unparsed value, since expressions may hold commas; "" if it is not set."""
    return str(config.raw.get(name) or "").strip()


def lower_option(config: Config, name: str) -> str:
    """A word in lower case; "" if it is not set."""
    return str(config[name] or "").strip().lower()


def connector_class(config: Config) -> str:
    """The last part of ``connector.class`` as the user wrote it, in lower case; "" if it is not there."""
    return str(config.raw.get("connector.class") or "").rpartition(".")[2].lower()


def flavor_of(config: Config, server: str) -> Literal["mysql", "mariadb"]:
    """Return the connector's name in events: of Debezium's class where one is configured, else of the server."""
    name = str(config.raw.get("connector.class") or "")
    if name.startswith("io.debezium.connector.mariadb.") or connector_class(config) == "mariadbconnector":
        return MARIADB
    if name.startswith("io.debezium.connector.mysql."):
        return MYSQL
    return MARIADB if server == MARIADB else MYSQL


def task_shard(config: Config) -> Shard:
    """The part of the source that the task owns.

    Raises:
        ConfigInvalid: ``task.shard`` is not a shard.
    """
    shard_source = config[reading_keys.TASK_SHARD]
    if not shard_source:
        return Shard()
    try:
        return shards.parse_shard(shard_source)
    except ValueError as error:
        raise ConfigInvalid(invalid(reading_keys.TASK_SHARD, shard_source, str(error))) from None


def _read_failures(mode: str) -> Failures:
    return cast("Failures", "skip" if mode == "ignore" else mode)


def table_name(full_name: str | None) -> TableName | None:
    """``database.table``, or None for nothing."""
    if not full_name:
        return None
    database, _, name = full_name.partition(".")
    return TableName(database.strip().strip("`"), name.strip().strip("`"))


def snapshot_plan(config: Config) -> SnapshotPlan:
    """Return the plan that ``snapshot.mode`` names.

    Raises:
        ConfigInvalid: it names a Java class.
    """
    mode = lower_option(config, reading_keys.SNAPSHOT)
    mode = reading_keys.OLD_MODES.get(mode, mode)
    if mode == "configuration_based":
        return SnapshotPlan(
            snapshot="initial" if config[reading_keys.BASED_DATA] else "never",
            stream=config[reading_keys.BASED_STREAM],
            on_purged=config[reading_keys.BASED_DATA_ERROR],
            begin="now",
        )
    plan = _PLANS.get(mode)
    if plan is None:
        raise ConfigInvalid(
            invalid(
                reading_keys.SNAPSHOT, mode, "custom modes are Java classes, which can't run here; choose another mode"
            )
        )
    return plan


def snapshot_overrides(config: Config) -> Overrides:
    """``snapshot.select.statement.overrides``: what can be read in chunks as conditions, the rest as statements.

    Raises:
        ConfigInvalid: a statement is missing, or no SELECT.
    """
    overrides = Overrides({}, {})
    for item in (part.strip() for part in str(config[reading_keys.SNAPSHOT_SELECTS] or "").split(",")):
        if not item:
            continue
        option = f"{reading_keys.SNAPSHOT_SELECTS}.{item}"
        statement = (config.raw.get(option) or "").strip().rstrip(";")
        if not re.match(r"\(*\s*(SELECT|WITH)\b", statement, re.IGNORECASE):
            raise ConfigInvalid(
                invalid(
                    option,
                    config.raw.get(option),
                    f"a SELECT of the columns of {item} is expected, since {reading_keys.SNAPSHOT_SELECTS} names the table",
                )
            )
        condition = select_condition(item, statement)
        if condition is None:
            overrides.selects[item] = statement
        elif condition:
            overrides.conditions[item] = condition
    return overrides


def version_topic(config: Config) -> str:
    """The topic of table versions; "" if none is configured."""
    topic = config[event_keys.VERSION_TOPIC]
    if topic is None:
        return (
            f"{config[event_keys.PREFIX]}{config[event_keys.DELIMITER]}table-versions"
            if lower_option(config, event_keys.OUTPUT) == "ums"
            else ""
        )
    return "" if topic.lower() == "none" else topic


def stream_settings(config: Config) -> StreamSettings:
    """How a task reads.

    Raises:
        ConfigInvalid: ``snapshot.mode``, ``snapshot.select.statement.overrides`` or ``task.shard`` can't be used.
    """
    channels = frozenset(str(item).strip().lower() for item in config[reading_keys.CHANNELS] or ())
    plan = snapshot_plan(config)
    return StreamSettings(
        prefix=config[event_keys.PREFIX],
        shard=task_shard(config),
        max_batch=config[reading_keys.BATCH],
        max_queue=max(config[reading_keys.QUEUE], config[reading_keys.BATCH]),
        poll_s=config[reading_keys.POLL] / 1000,
        rollback_rows=config[reading_keys.BUFFER],
        failures=_read_failures(lower_option(config, reading_keys.FAILURES)),
        inconsistent=_read_failures(lower_option(config, reading_keys.INCONSISTENT)),
        plan=plan,
        snapshot_tables=tuple(split_regexes(text_of(config, reading_keys.SNAPSHOT_TABLES))),
        new_tables=config[NEW_TABLES] and plan.snapshot != "never",
        overrides=snapshot_overrides(config),
        gtid_includes=tuple(split_regexes(text_of(config, source_keys.GTID_INCLUDES))),
        gtid_excludes=tuple(split_regexes(text_of(config, source_keys.GTID_EXCLUDES))),
        gtid_filter=config[source_keys.GTID_FILTER_DML],
        query=config[event_keys.QUERY],
        channels=channels & {"source", "kafka"},
        signal_table=table_name(config[reading_keys.SIGNALS]) if "source" in channels else None,
        signal_topic=config[reading_keys.SIGNAL_TOPIC] or f"{config[event_keys.PREFIX]}-signal",
        signal_brokers=config[reading_keys.SIGNAL_BROKERS] or "",
        signal_group=config[reading_keys.SIGNAL_GROUP],
        heartbeat_s=config[reading_keys.HEARTBEAT] / 1000,
        heartbeat_to_tables=config[HEARTBEAT_TO_TABLES],
        heartbeat_table=table_name(config[reading_keys.HEARTBEAT_TABLE]),
        version_topic=version_topic(config),
        progress_topic=config[reading_keys.PROGRESS_TOPIC] or "",
        progress_s=config[reading_keys.PROGRESS_INTERVAL] / 1000,
        guardrail=config[source_keys.GUARDRAIL],
        guardrail_fails=lower_option(config, source_keys.GUARDRAIL_ACTION) == "fail",
    )


def gtid_source(settings: StreamSettings) -> Callable[[str], bool] | None:
    """Whether transactions of a source (a UUID, or ``domain-server``) are read; None: all are.

    Raises:
        ConfigInvalid: an expression has no equivalent here.
    """
    includes = bool(settings.gtid_includes)
    expressions = settings.gtid_includes or settings.gtid_excludes
    if not expressions:
        return None
    patterns = [
        re.compile(compiled.pattern, compiled.flags | re.IGNORECASE) for compiled in map(compile_java, expressions)
    ]
    return lambda source: any(pattern.fullmatch(source) for pattern in patterns) is includes


def split_statements(statements: str | None) -> tuple[str, ...]:
    """SQL statements of a list with semicolons; two of them stand for one within a statement."""
    parts = [part.replace("\0", ";").strip() for part in (statements or "").replace(";;", "\0").split(";")]
    return tuple(part for part in parts if part)


def ssl_mode(config: Config) -> str:
    """The mode in our words; see ``SSL_MODES``."""
    mode = lower_option(config, source_keys.SSL_MODE)
    if mode:
        return source_keys.SSL_MODES[mode]
    return "disabled" if connector_class(config) == "mariadbconnector" else "preferred"


def _tls_settings(config: Config) -> MySqlTlsSettings | None:
    mode = ssl_mode(config)
    if mode == "disabled":
        return None
    return MySqlTlsSettings(
        mode=cast("Any", mode),
        truststore=config[source_keys.SSL_TRUSTSTORE] or None,
        truststore_password=config[source_keys.SSL_TRUSTSTORE_PASSWORD],
        keystore=config[source_keys.SSL_KEYSTORE] or None,
        keystore_password=config[source_keys.SSL_KEYSTORE_PASSWORD],
    )


def connection_settings(config: Config) -> ConnectionSettings:
    """How to connect to the source; a task of several has a server id of its own.

    Raises:
        ConfigInvalid: ``task.shard`` is not a shard.
    """
    owned_shard = task_shard(config)
    server_id = config[source_keys.SERVER_ID]
    if server_id:
        server_id = (server_id + owned_shard.index * config[source_keys.SERVER_ID_OFFSET] - 1) % 0xFFFFFFFF + 1
    interval_s = config[source_keys.KEEP_ALIVE_INTERVAL] / 1000
    return ConnectionSettings(
        host=config[source_keys.HOST],
        port=config[source_keys.PORT],
        user=config[source_keys.USER],
        password=config[source_keys.PASSWORD],
        server_id=server_id,
        tls=_tls_settings(config),
        connect_timeout_s=config[source_keys.CONNECT_TIMEOUT] / 1000,
        keepalive=config[source_keys.KEEP_ALIVE],
        keepalive_s=interval_s,
        heartbeat_s=min(10.0, interval_s / 3),
        silence_s=interval_s if config[source_keys.KEEP_ALIVE] else 3600.0,
        net_write_timeout_s=config[source_keys.NET_WRITE_TIMEOUT] or 3600,
        net_read_timeout_s=config[source_keys.NET_READ_TIMEOUT] or None,
        statements=split_statements(config[source_keys.STATEMENTS]),
        time_zone="+00:00",
        verify_checksums=True,
        name=f"millrace {config[event_keys.PREFIX]}",
    )


def replica_settings(config: Config) -> ConnectionSettings | None:
    """How to connect to the replica that snapshots read; None if none is configured."""
    host = config[reading_keys.SNAPSHOT_HOST]
    if not host:
        return None
    source = connection_settings(config)
    return msgspec.structs.replace(
        source,
        host=host,
        port=config[reading_keys.SNAPSHOT_PORT] or source.port,
        user=config[reading_keys.SNAPSHOT_USER] or source.user,
        password=config[reading_keys.SNAPSHOT_PASSWORD] or source.password,
        server_id=0,
    )


def value_options(config: Config, server: str) -> ValueOptions:
    """How values look.

    Args:
        config: the parsed configuration.
        server: ``mysql`` or ``mariadb``: what the server is.
    """
    return ValueOptions(
        decimal_mode=cast("Any", lower_option(config, DECIMALS)),
        time_mode=cast("Any", lower_option(config, event_keys.TIMES)),
        bigint_unsigned_mode=cast("Any", lower_option(config, event_keys.UNSIGNED)),
        binary_mode=cast("Any", lower_option(config, event_keys.BINARIES)),
        enable_time_adjuster=config[event_keys.TIME_ADJUSTER],
        charset_errors=lower_option(config, event_keys.CHARSET_ERRORS),
        flavor=server,
        comments=config[event_keys.SCHEMA_COMMENTS],
        failures=cast("Any", lower_option(config, reading_keys.CONVERTING_FAILURES)),
        invalid_dates="fail" if lower_option(config, reading_keys.FAILURES) == "fail" else "epoch",
    )


def event_settings(config: Config, server: str) -> MySqlEventSettings:
    """Return the form of events, which of them are sent, and their topics.

    Args:
        config: the parsed configuration.
        server: ``mysql`` or ``mariadb``: the kind of server; ``connector.class`` may say otherwise for events.

    Raises:
        ConfigInvalid: a masking rule can't be used.
    """
    skipped = frozenset(str(item).strip() for item in config[event_keys.SKIPPED] or ())
    signals = config[reading_keys.SIGNALS]
    return MySqlEventSettings(
        topics=_topic_settings(config),
        connector=flavor_of(config, server),
        output_format=cast("Any", lower_option(config, event_keys.OUTPUT)),
        tombstones=config[event_keys.TOMBSTONES],
        schema_changes=config[event_keys.SCHEMA_CHANGES],
        transactions=config[event_keys.TRANSACTIONS] and lower_option(config, event_keys.OUTPUT) == "debezium",
        skipped=skipped & frozenset("cudtr"),
        skip_unchanged=config[event_keys.SKIP_UNCHANGED],
        key_columns=config[event_keys.KEY_COLUMNS] or "",
        databases=text_of(config, source_keys.DATABASES),
        not_databases=text_of(config, source_keys.NOT_DATABASES),
        tables=text_of(config, source_keys.TABLES),
        not_tables=text_of(config, source_keys.NOT_TABLES),
        columns=text_of(config, event_keys.COLUMNS),
        not_columns=text_of(config, event_keys.NOT_COLUMNS),
        builtin_tables=not config[source_keys.IGNORE_BUILTIN],
        logical=config[event_keys.LOGICAL] or "",
        signal_tables=(signals,)
        if signals and "source" in (str(item).strip().lower() for item in config[reading_keys.CHANNELS] or ())
        else (),
        masks=masking.parse_rules(config.raw),
        source_types=text_of(config, event_keys.SOURCE_TYPES),
        source_data_types=text_of(config, event_keys.DATA_TYPES),
        schema_names=cast("Any", lower_option(config, event_keys.SCHEMA_NAMES)),
        field_names=cast("Any", lower_option(config, event_keys.FIELD_NAMES)),
        comments=config[event_keys.SCHEMA_COMMENTS],
        context_headers=config[event_keys.EXTENDED_HEADERS],
        ums=UmsSettings(
            topic_per=cast("Any", lower_option(config, event_keys.UMS_TOPICS)),
            before=config[event_keys.UMS_BEFORE],
            max_rows=config[event_keys.UMS_ROWS],
            max_bytes=config[event_keys.UMS_BYTES],
            instance=config[event_keys.UMS_INSTANCE] or "",
        ),
    )


def _topic_settings(config: Config) -> TopicSettings:
    kind, unicode_names, routed = event_keys.STRATEGIES.get(
        str(config[event_keys.STRATEGY] or "").rpartition(".")[2], ("default", False, False)
    )
    return TopicSettings(
        prefix=config[event_keys.PREFIX],
        strategy=cast("Any", kind),
        unicode=unicode_names,
        delimiter=config[event_keys.DELIMITER],
        heartbeat_prefix=config[event_keys.HEARTBEAT_PREFIX],
        transaction=config[event_keys.TRANSACTION_TOPIC],
        versions=version_topic(config),
        regex=(config[event_keys.TOPIC_REGEX] or "") if routed else "",
        replacement=config[event_keys.TOPIC_REPLACEMENT] or "",
        key_enabled=config[event_keys.TOPIC_KEY_ENABLE],
        key_field=config[event_keys.TOPIC_KEY_FIELD],
        key_regex=config[event_keys.TOPIC_KEY_REGEX] or "",
        key_replacement=config[event_keys.TOPIC_KEY_REPLACEMENT] or "",
    )


def snapshot_settings(config: Config) -> SnapshotSettings:
    """How snapshots are read."""
    return SnapshotSettings(
        threads=config[reading_keys.SNAPSHOT_THREADS],
        split_columns=config[reading_keys.SNAPSHOT_SPLIT] or "",
        chunk_rows=config[reading_keys.SNAPSHOT_ROWS],
        rows_per_s=config[reading_keys.SNAPSHOT_RATE],
        adaptive=config[reading_keys.SNAPSHOT_ADAPTIVE],
        replica=bool(config[reading_keys.SNAPSHOT_HOST]),
        locks=lower_option(config, reading_keys.SNAPSHOT_LOCKS) != "none",
        lock_timeout_s=max(1, -(-config[reading_keys.SNAPSHOT_LOCK_TIMEOUT] // 1000)),
        order=cast("Any", lower_option(config, reading_keys.SNAPSHOT_ORDER)),
        delay_s=config[reading_keys.SNAPSHOT_DELAY] / 1000,
    )


def heartbeat_settings(config: Config) -> HeartbeatSettings:
    """Return the settings of the heartbeats that are written into the source."""
    table = config[reading_keys.HEARTBEAT_TABLE] or ""
    interval_s = config[reading_keys.HEARTBEAT] / 1000
    return HeartbeatSettings(
        interval_s=interval_s or (HEARTBEAT_S if table else 0.0),
        table=table,
        source=config[event_keys.PREFIX],
        action_query=(config[reading_keys.HEARTBEAT_QUERY] or "").strip() if interval_s else "",
        create=config[reading_keys.HEARTBEAT_TABLE_CREATE],
        user=config[source_keys.USER],
        timeout_s=HEARTBEAT_TIMEOUT_S,
        late_s=config[reading_keys.HEARTBEAT_LATE] / 1000,
    )


def signal_channels(config: Config) -> list[str]:
    """The signal channels that are asked for, in lower case."""
    return [str(item).strip().lower() for item in config[reading_keys.CHANNELS] or () if str(item).strip()]
