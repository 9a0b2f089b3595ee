"""Options: which servers to connect to and how, and which databases and tables to read."""

from __future__ import annotations

from typing import Final

from connectors.mysql.config_keys_rules import (
    host_list,
    not_negative,
    positive,
    regex_list,
    unless_none,
)
from connectors.options import REQUIRED, ConfigKey, ConfigType, Importance, Width, between, words

HOST: Final = "database.hostname"
PORT: Final = "database.port"
USER: Final = "database.user"
PASSWORD: Final = "database.password"  # noqa: S105 - the name of an option
SERVER_ID: Final = "database.server.id"
SERVER_ID_OFFSET: Final = "database.server.id.offset"
STATEMENTS: Final = "database.initial.statements"
CONNECT_TIMEOUT: Final = "connect.timeout.ms"
KEEP_ALIVE: Final = "connect.keep.alive"
KEEP_ALIVE_INTERVAL: Final = "connect.keep.alive.interval.ms"
NET_WRITE_TIMEOUT: Final = "binlog.net.write.timeout"
NET_READ_TIMEOUT: Final = "binlog.net.read.timeout"
SSL_MODE: Final = "database.ssl.mode"
SSL_KEYSTORE: Final = "database.ssl.keystore"
SSL_KEYSTORE_PASSWORD: Final = "database.ssl.keystore.password"  # noqa: S105
SSL_TRUSTSTORE: Final = "database.ssl.truststore"
SSL_TRUSTSTORE_PASSWORD: Final = "database.ssl.truststore.password"  # noqa: S105

DATABASES: Final = "database.include.list"
NOT_DATABASES: Final = "database.exclude.list"
TABLES: Final = "table.include.list"
NOT_TABLES: Final = "table.exclude.list"
IGNORE_BUILTIN: Final = "table.ignore.builtin"
GTID_INCLUDES: Final = "gtid.source.includes"
GTID_EXCLUDES: Final = "gtid.source.excludes"
GTID_FILTER_DML: Final = "gtid.source.filter.dml.events"
GUARDRAIL: Final = "guardrail.collections.max"
GUARDRAIL_ACTION: Final = "guardrail.collections.limit.action"

#: Words of Debezium's MySQL and MariaDB connectors, and what they mean.
SSL_MODES: Final = {
    "disabled": "disabled",
    "disable": "disabled",
    "preferred": "preferred",
    "required": "required",
    "trust": "required",
    "verify_ca": "verify_ca",
    "verify-ca": "verify_ca",
    "verify_identity": "verify_identity",
    "verify-full": "verify_identity",
}

_CONNECTION: Final = "Connection"
_TLS: Final = "TLS"
_TABLES: Final = "Tables"

KEYS: Final = (
    ConfigKey(
        name=HOST,
        type=ConfigType.STRING,
        default=REQUIRED,
        validator=host_list,
        importance=Importance.HIGH,
        group=_CONNECTION,
        width=Width.MEDIUM,
        display_name="Hostname",
        example="db1.example.com,db2.example.com:3307",
        doc="The server to read from, or several of one replication group as a comma-separated list: they are tried in "
        "order, and with GTIDs the stream goes on at the next one where it ended. Each may have its own port.",
    ),
    ConfigKey(
        name=PORT,
        type=ConfigType.INT,
        default=3306,
        unit="port",
        validator=between(1, 65_535),
        importance=Importance.HIGH,
        group=_CONNECTION,
        width=Width.SHORT,
        display_name="Port",
        doc="Port of servers that are named without one.",
    ),
    ConfigKey(
        name=USER,
        type=ConfigType.STRING,
        default=REQUIRED,
        importance=Importance.HIGH,
        group=_CONNECTION,
        width=Width.SHORT,
        display_name="User",
        example="millrace",
        doc="Account to log in as. It needs the right to read the binlog and SELECT on the tables.",
    ),
    ConfigKey(
        name=PASSWORD,
        type=ConfigType.PASSWORD,
        default=None,
        importance=Importance.HIGH,
        group=_CONNECTION,
        width=Width.SHORT,
        display_name="Password",
        doc="The account's password.",
    ),
    ConfigKey(
        name=SERVER_ID,
        type=ConfigType.LONG,
        default=0,
        unit="id",
        validator=between(0, 4_294_967_295),
        importance=Importance.HIGH,
        group=_CONNECTION,
        width=Width.SHORT,
        display_name="Server id",
        example="184054",
        doc="The number under which the connector reads the binlog, as a replica would. No other replica or reader of "
        "the same source may have it: the server would end the older connection. 0: chosen at random from 5400 to "
        "6400 at each connection.",
    ),
    ConfigKey(
        name=SERVER_ID_OFFSET,
        type=ConfigType.LONG,
        default=10_000,
        unit="ids",
        validator=positive,
        importance=Importance.LOW,
        group=_CONNECTION,
        display_name="Server id offset",
        doc="With several tasks each reads under a number of its own: database.server.id plus the task's number times "
        "this.",
    ),
    ConfigKey(
        name=STATEMENTS,
        type=ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group=_CONNECTION,
        width=Width.LONG,
        display_name="Initial statements",
        example="SET SESSION wait_timeout=2000",
        doc="SQL statements, separated by semicolons, for each connection that reads metadata or tables (not for the one "
        "that reads the binlog). Two semicolons stand for one that is part of a statement.",
    ),
    ConfigKey(
        name=CONNECT_TIMEOUT,
        type=ConfigType.INT,
        default=30_000,
        unit="ms",
        validator=positive,
        group=_CONNECTION,
        display_name="Connection timeout",
        doc="How long to wait for a connection to a server.",
    ),
    ConfigKey(
        name=KEEP_ALIVE,
        type=ConfigType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        group=_CONNECTION,
        display_name="Keep alive",
        doc="Whether to notice a server that has silently gone away: one that gives no sign of life for "
        "connect.keep.alive.interval.ms is taken as lost, and connected to anew.",
    ),
    ConfigKey(
        name=KEEP_ALIVE_INTERVAL,
        type=ConfigType.LONG,
        default=60_000,
        unit="ms",
        validator=positive,
        importance=Importance.LOW,
        group=_CONNECTION,
        display_name="Keep alive interval",
        doc="See connect.keep.alive.",
    ),
    ConfigKey(
        name=NET_WRITE_TIMEOUT,
        type=ConfigType.LONG,
        default=0,
        unit="s",
        validator=not_negative,
        importance=Importance.LOW,
        group=_CONNECTION,
        display_name="Server's write timeout",
        doc="net_write_timeout of the connection that reads the binlog: how long the server waits for a reader that is "
        "held up by Kafka. 0: an hour.",
    ),
    ConfigKey(
        name=NET_READ_TIMEOUT,
        type=ConfigType.LONG,
        default=0,
        unit="s",
        validator=not_negative,
        importance=Importance.LOW,
        group=_CONNECTION,
        display_name="Server's read timeout",
        doc="net_read_timeout of that connection. 0: the server's own setting.",
    ),
    ConfigKey(
        name=SSL_MODE,
        type=ConfigType.STRING,
        default=None,
        validator=unless_none(words(*SSL_MODES)),
        group=_TLS,
        width=Width.MEDIUM,
        display_name="TLS mode",
        example="verify_identity",
        doc="disabled (or disable): no TLS. preferred: TLS if the server has it. required (or trust): TLS, without "
        "looking at the certificate. verify_ca (or verify-ca): the certificate must come from an authority that is "
        "trusted. verify_identity (or verify-full): and it must name the host. Not set: preferred, and disabled "
        "where connector.class is Debezium's MariaDB connector.",
    ),
    ConfigKey(
        name=SSL_KEYSTORE,
        type=ConfigType.STRING,
        default=None,
        group=_TLS,
        width=Width.LONG,
        display_name="Key store",
        example="/etc/millrace/keystore.p12",
        doc="File with the connector's own certificate and key, where the server demands one: PEM or PKCS12. A JKS store "
        "must be converted with keytool.",
    ),
    ConfigKey(
        name=SSL_KEYSTORE_PASSWORD,
        type=ConfigType.PASSWORD,
        default=None,
        group=_TLS,
        display_name="Key store password",
        doc="Password of the key store and of the key in it.",
    ),
    ConfigKey(
        name=SSL_TRUSTSTORE,
        type=ConfigType.STRING,
        default=None,
        group=_TLS,
        width=Width.LONG,
        display_name="Trust store",
        example="/etc/millrace/ca.pem",
        doc="File with the certificates that are trusted: PEM or PKCS12. Not set: the system's.",
    ),
    ConfigKey(
        name=SSL_TRUSTSTORE_PASSWORD,
        type=ConfigType.PASSWORD,
        default=None,
        group=_TLS,
        display_name="Trust store password",
        doc="Password of the trust store.",
    ),
    ConfigKey(
        name=DATABASES,
        type=ConfigType.LIST,
        default=None,
        validator=regex_list,
        importance=Importance.HIGH,
        group=_TABLES,
        width=Width.LONG,
        display_name="Databases",
        example="shop,crm_.*",
        doc="Databases to read, as a comma-separated list of regular expressions (Java's syntax) that match whole names "
        "in any case. Not set: all but the server's own. Not together with database.exclude.list.",
    ),
    ConfigKey(
        name=NOT_DATABASES,
        type=ConfigType.LIST,
        default=None,
        validator=regex_list,
        group=_TABLES,
        width=Width.LONG,
        display_name="Databases left out",
        doc="Databases not to read, in the same form.",
    ),
    ConfigKey(
        name=TABLES,
        type=ConfigType.LIST,
        default=None,
        validator=regex_list,
        importance=Importance.HIGH,
        group=_TABLES,
        width=Width.LONG,
        display_name="Tables",
        example=r"shop\.orders,shop\.customer.*",
        doc="Tables to read, as a comma-separated list of regular expressions that match whole names of the form "
        "database.table in any case. Not set: all of the databases. Not together with table.exclude.list.",
    ),
    ConfigKey(
        name=NOT_TABLES,
        type=ConfigType.LIST,
        default=None,
        validator=regex_list,
        group=_TABLES,
        width=Width.LONG,
        display_name="Tables left out",
        doc="Tables not to read, in the same form.",
    ),
    ConfigKey(
        name=IGNORE_BUILTIN,
        type=ConfigType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        group=_TABLES,
        display_name="Ignore the server's own tables",
        doc="Whether mysql, sys, performance_schema and information_schema are left out.",
    ),
    ConfigKey(
        name=GTID_INCLUDES,
        type=ConfigType.LIST,
        default=None,
        validator=regex_list,
        importance=Importance.HIGH,
        group=_TABLES,
        width=Width.LONG,
        display_name="GTID sources",
        doc="Sources of transactions to read, as regular expressions: of server UUIDs with MySQL, of domain-server pairs "
        "with MariaDB. Not set: all. Not together with gtid.source.excludes.",
    ),
    ConfigKey(
        name=GTID_EXCLUDES,
        type=ConfigType.LIST,
        default=None,
        validator=regex_list,
        group=_TABLES,
        width=Width.LONG,
        display_name="GTID sources left out",
        doc="Sources of transactions not to read, in the same form.",
    ),
    ConfigKey(
        name=GTID_FILTER_DML,
        type=ConfigType.BOOLEAN,
        default=True,
        group=_TABLES,
        display_name="Filter changes by GTID",
        doc="Whether changes in transactions of other sources are left out. With false the two options above only say "
        "which part of a saved GTID set counts when the stream is started.",
    ),
    ConfigKey(
        name=GUARDRAIL,
        type=ConfigType.INT,
        default=0,
        unit="tables",
        validator=not_negative,
        group=_TABLES,
        importance=Importance.LOW,
        display_name="Most tables",
        doc="How many tables the connector may be given; 0: no limit.",
    ),
    ConfigKey(
        name=GUARDRAIL_ACTION,
        type=ConfigType.STRING,
        default="warn",
        validator=words("warn", "fail"),
        group=_TABLES,
        importance=Importance.LOW,
        display_name="More tables than that",
        doc="warn: a warning; fail: the configuration is refused.",
    ),
)
