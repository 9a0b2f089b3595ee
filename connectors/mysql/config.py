"""The connector's options as the settings of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from connectors.formats import masking
from connectors.mysql import config_keys_connection as ck
from connectors.mysql import config_keys_events as ek
from connectors.mysql import config_keys_reading as rk
from connectors.mysql.config_keys import CONFIG
from connectors.mysql.config_stream import (
    StreamSettings,
    connector_class,
    flavor,
    gtid_source,
    shard,
    snapshot_overrides,
    snapshot_plan,
    stream_settings,
    text_of,
    version_topic,
    word,
)
from connectors.mysql.events.contract import EventSettings, TopicSettings, UmsSettings
from connectors.mysql.heartbeat import HeartbeatSettings
from connectors.mysql.settings import ConnectionSettings, TlsSettings
from connectors.mysql.snapshot.model import SnapshotSettings
from connectors.mysql.types import ValueOptions
from connectors.number_keys import DECIMALS

if TYPE_CHECKING:
    from connectors.options import Config

__all__ = [
    "CONFIG",
    "StreamSettings",
    "connection_settings",
    "event_settings",
    "flavor",
    "gtid_source",
    "heartbeat_settings",
    "replica_settings",
    "shard",
    "snapshot_overrides",
    "snapshot_plan",
    "snapshot_settings",
    "stream_settings",
    "value_options",
]

#: Seconds between two rows of the heartbeat table where ``heartbeat.interval.ms`` is 0.
HEARTBEAT_S = 10.0


def split_statements(text: str | None) -> tuple[str, ...]:
    """SQL statements of a list with semicolons; two of them stand for one within a statement."""
    parts = [part.replace("\0", ";").strip() for part in (text or "").replace(";;", "\0").split(";")]
    return tuple(part for part in parts if part)


def ssl_mode(config: Config) -> str:
    """The mode in our words; see ``SSL_MODES``."""
    given = word(config, ck.SSL_MODE)
    if given:
        return ck.SSL_MODES[given]
    return "disabled" if connector_class(config) == "mariadbconnector" else "preferred"


def _tls(config: Config) -> TlsSettings | None:
    mode = ssl_mode(config)
    if mode == "disabled":
        return None
    return TlsSettings(
        mode=cast("Any", mode),
        truststore=config[ck.SSL_TRUSTSTORE] or None,
        truststore_password=config[ck.SSL_TRUSTSTORE_PASSWORD],
        keystore=config[ck.SSL_KEYSTORE] or None,
        keystore_password=config[ck.SSL_KEYSTORE_PASSWORD],
    )


def connection_settings(config: Config) -> ConnectionSettings:
    """How to connect to the source; a task of several has a server id of its own.

    Raises:
        ConfigInvalid: ``task.shard`` is none.
    """
    own = shard(config)
    server_id = config[ck.SERVER_ID]
    if server_id:
        server_id = (server_id + own.index * config[ck.SERVER_ID_OFFSET] - 1) % 0xFFFFFFFF + 1
    interval_s = config[ck.KEEP_ALIVE_INTERVAL] / 1000
    return ConnectionSettings(
        host=config[ck.HOST],
        port=config[ck.PORT],
        user=config[ck.USER],
        password=config[ck.PASSWORD],
        server_id=server_id,
        tls=_tls(config),
        connect_timeout_s=config[ck.CONNECT_TIMEOUT] / 1000,
        keepalive=config[ck.KEEP_ALIVE],
        keepalive_s=interval_s,
        heartbeat_s=min(10.0, interval_s / 3),
        silence_s=interval_s if config[ck.KEEP_ALIVE] else 3600.0,
        net_write_timeout_s=config[ck.NET_WRITE_TIMEOUT] or 3600,
        net_read_timeout_s=config[ck.NET_READ_TIMEOUT] or None,
        statements=split_statements(config[ck.STATEMENTS]),
        name=f"millrace {config[ek.PREFIX]}",
    )


def replica_settings(config: Config) -> ConnectionSettings | None:
    """How to connect to the replica that full pulls read, or None: there is none."""
    host = config[rk.SNAPSHOT_HOST]
    if not host:
        return None
    source = connection_settings(config)
    return msgspec.structs.replace(
        source,
        host=host,
        port=config[rk.SNAPSHOT_PORT] or source.port,
        user=config[rk.SNAPSHOT_USER] or source.user,
        password=config[rk.SNAPSHOT_PASSWORD] or source.password,
        server_id=0,
    )


def value_options(config: Config, server: str) -> ValueOptions:
    """How values look.

    Args:
        config: the parsed configuration.
        server: ``mysql`` or ``mariadb``: what the server is.
    """
    return ValueOptions(
        decimal_mode=cast("Any", word(config, DECIMALS)),
        time_mode=cast("Any", word(config, ek.TIMES)),
        bigint_unsigned_mode=cast("Any", word(config, ek.UNSIGNED)),
        binary_mode=cast("Any", word(config, ek.BINARIES)),
        enable_time_adjuster=config[ek.TIME_ADJUSTER],
        charset_errors=word(config, ek.CHARSET_ERRORS),
        flavor=server,
        comments=config[ek.SCHEMA_COMMENTS],
        failures=cast("Any", word(config, rk.CONVERTING_FAILURES)),
        invalid_dates="fail" if word(config, rk.FAILURES) == "fail" else "epoch",
    )


def event_settings(config: Config, server: str) -> EventSettings:
    """What events look like, which are sent, and where to.

    Args:
        config: the parsed configuration.
        server: ``mysql`` or ``mariadb``: what the server is; ``connector.class`` may say otherwise for events.

    Raises:
        ConfigInvalid: a masking rule can't be used.
    """
    skipped = frozenset(str(item).strip() for item in config[ek.SKIPPED] or ())
    signals = config[rk.SIGNALS]
    return EventSettings(
        topics=_topics(config),
        connector=flavor(config, server),
        output_format=cast("Any", word(config, ek.OUTPUT)),
        tombstones=config[ek.TOMBSTONES],
        schema_changes=config[ek.SCHEMA_CHANGES],
        transactions=config[ek.TRANSACTIONS] and word(config, ek.OUTPUT) == "debezium",
        skipped=skipped & frozenset("cudtr"),
        skip_unchanged=config[ek.SKIP_UNCHANGED],
        key_columns=config[ek.KEY_COLUMNS] or "",
        databases=text_of(config, ck.DATABASES),
        not_databases=text_of(config, ck.NOT_DATABASES),
        tables=text_of(config, ck.TABLES),
        not_tables=text_of(config, ck.NOT_TABLES),
        columns=text_of(config, ek.COLUMNS),
        not_columns=text_of(config, ek.NOT_COLUMNS),
        builtin_tables=not config[ck.IGNORE_BUILTIN],
        logical=config[ek.LOGICAL] or "",
        signal_tables=(signals,)
        if signals and "source" in (str(item).strip().lower() for item in config[rk.CHANNELS] or ())
        else (),
        masks=masking.parse_rules(config.raw),
        source_types=text_of(config, ek.SOURCE_TYPES),
        source_data_types=text_of(config, ek.DATA_TYPES),
        schema_names=cast("Any", word(config, ek.SCHEMA_NAMES)),
        field_names=cast("Any", word(config, ek.FIELD_NAMES)),
        comments=config[ek.SCHEMA_COMMENTS],
        context_headers=config[ek.EXTENDED_HEADERS],
        ums=UmsSettings(
            topic_per=cast("Any", word(config, ek.UMS_TOPICS)),
            before=config[ek.UMS_BEFORE],
            max_rows=config[ek.UMS_ROWS],
            max_bytes=config[ek.UMS_BYTES],
            instance=config[ek.UMS_INSTANCE] or "",
        ),
    )


def _topics(config: Config) -> TopicSettings:
    kind, odd, routed = ek.STRATEGIES.get(str(config[ek.STRATEGY] or "").rpartition(".")[2], ("default", False, False))
    return TopicSettings(
        prefix=config[ek.PREFIX],
        strategy=cast("Any", kind),
        unicode=odd,
        delimiter=config[ek.DELIMITER],
        heartbeat_prefix=config[ek.HEARTBEAT_PREFIX],
        transaction=config[ek.TRANSACTION_TOPIC],
        versions=version_topic(config),
        regex=(config[ek.TOPIC_REGEX] or "") if routed else "",
        replacement=config[ek.TOPIC_REPLACEMENT] or "",
        key_enabled=config[ek.TOPIC_KEY_ENABLE],
        key_field=config[ek.TOPIC_KEY_FIELD],
        key_regex=config[ek.TOPIC_KEY_REGEX] or "",
        key_replacement=config[ek.TOPIC_KEY_REPLACEMENT] or "",
    )


def snapshot_settings(config: Config) -> SnapshotSettings:
    """How full pulls are read."""
    return SnapshotSettings(
        threads=config[rk.SNAPSHOT_THREADS],
        split_columns=config[rk.SNAPSHOT_SPLIT] or "",
        chunk_rows=config[rk.SNAPSHOT_ROWS],
        rows_per_s=config[rk.SNAPSHOT_RATE],
        adaptive=config[rk.SNAPSHOT_ADAPTIVE],
        replica=bool(config[rk.SNAPSHOT_HOST]),
        locks=word(config, rk.SNAPSHOT_LOCKS) != "none",
        lock_timeout_s=max(1, -(-config[rk.SNAPSHOT_LOCK_TIMEOUT] // 1000)),
        order=cast("Any", word(config, rk.SNAPSHOT_ORDER)),
        delay_s=config[rk.SNAPSHOT_DELAY] / 1000,
    )


def heartbeat_settings(config: Config) -> HeartbeatSettings:
    """What is written into the source."""
    table = config[rk.HEARTBEAT_TABLE] or ""
    interval_s = config[rk.HEARTBEAT] / 1000
    return HeartbeatSettings(
        interval_s=interval_s or (HEARTBEAT_S if table else 0.0),
        table=table,
        source=config[ek.PREFIX],
        action_query=(config[rk.HEARTBEAT_QUERY] or "").strip() if interval_s else "",
        create=config[rk.HEARTBEAT_TABLE_CREATE],
        user=config[ck.USER],
        late_s=config[rk.HEARTBEAT_LATE] / 1000,
    )
