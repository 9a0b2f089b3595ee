"""Options: the server and its tables."""

from __future__ import annotations

from typing import Final

from connectors.java_regex import regex_list
from connectors.mysql.config.validators import (
    check_positive,
    host_list,
    not_negative,
)
from connectors.options import KeyGroup, Width, between, unless_null, words
from connectors.tls import keystore_key, keystore_password_key, truststore_key, truststore_password_key

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

_CONNECTION: Final = KeyGroup("Connection")
_TLS: Final = KeyGroup("TLS")
_TABLES: Final = KeyGroup("Tables")

CONNECTION_KEYS: Final = (
    _CONNECTION.high.string(
        HOST,
        "The server to read from, or several of one replication group as a comma-separated list: they are tried in "
        "order, and with GTIDs the stream continues at the next one where it ended. Each may have its own port.",
        validator=host_list,
        width=Width.MEDIUM,
        display_name="Hostname",
        example="db1.example.com,db2.example.com:3307",
    ),
    _CONNECTION.high.integer(
        PORT,
        "Port of servers that are named without one.",
        default=3306,
        unit="port",
        validator=between(1, 65_535),
        width=Width.SHORT,
        display_name="Port",
    ),
    _CONNECTION.high.string(
        USER,
        "Account to log in as. It needs the right to read the binlog and SELECT on the tables.",
        width=Width.SHORT,
        display_name="User",
        example="millrace",
    ),
    _CONNECTION.high.password(
        PASSWORD, "The account's password.", default=None, width=Width.SHORT, display_name="Password"
    ),
    _CONNECTION.high.long(
        SERVER_ID,
        "The number under which the connector reads the binlog, as a replica would. No other replica or reader of "
        "the same source may have it: the server would end the older connection. 0: chosen at random from 5400 to "
        "6400 at each connection.",
        default=0,
        unit="id",
        validator=between(0, 4_294_967_295),
        width=Width.SHORT,
        display_name="Server id",
        example="184054",
    ),
    _CONNECTION.low.long(
        SERVER_ID_OFFSET,
        "With several tasks each reads under a number of its own: database.server.id plus the task's number times "
        "this.",
        default=10_000,
        unit="ids",
        validator=check_positive,
        display_name="Server id offset",
    ),
    _CONNECTION.low.string(
        STATEMENTS,
        "SQL statements, separated by semicolons, for each connection that reads metadata or tables (not for the one "
        "that reads the binlog). Two semicolons stand for one that is part of a statement.",
        default=None,
        width=Width.LONG,
        display_name="Initial statements",
        example="SET SESSION wait_timeout=2000",
    ),
    _CONNECTION.integer(
        CONNECT_TIMEOUT,
        "How long to wait for a connection to a server.",
        default=30_000,
        unit="ms",
        validator=check_positive,
        display_name="Connection timeout",
    ),
    _CONNECTION.low.boolean(
        KEEP_ALIVE,
        "Whether to notice a server that has silently gone away: one that gives no sign of life for "
        "connect.keep.alive.interval.ms is taken as lost, and connected to again.",
        default=True,
        display_name="Keep alive",
    ),
    _CONNECTION.low.long(
        KEEP_ALIVE_INTERVAL,
        "With connect.keep.alive, how long a server may give no sign of life before it is taken as lost.",
        default=60_000,
        unit="ms",
        validator=check_positive,
        display_name="Keep alive interval",
    ),
    _CONNECTION.low.long(
        NET_WRITE_TIMEOUT,
        "net_write_timeout of the connection that reads the binlog: how long the server waits for a reader that is "
        "held up by Kafka. 0: an hour.",
        default=0,
        unit="s",
        validator=not_negative,
        display_name="Server's write timeout",
    ),
    _CONNECTION.low.long(
        NET_READ_TIMEOUT,
        "net_read_timeout of that connection. 0: the server's own setting.",
        default=0,
        unit="s",
        validator=not_negative,
        display_name="Server's read timeout",
    ),
    _TLS.string(
        SSL_MODE,
        "disabled (or disable): no TLS. preferred: TLS if the server has it. required (or trust): TLS, without "
        "looking at the certificate. verify_ca (or verify-ca): the certificate must come from an authority that is "
        "trusted. verify_identity (or verify-full): and it must name the host. Not set: preferred, and disabled "
        "where connector.class is Debezium's MariaDB connector.",
        default=None,
        validator=unless_null(words(*SSL_MODES)),
        width=Width.MEDIUM,
        display_name="TLS mode",
        example="verify_identity",
    ),
    keystore_key(_TLS, SSL_KEYSTORE, "connector", "the server demands", Width.LONG),
    keystore_password_key(_TLS, SSL_KEYSTORE_PASSWORD),
    truststore_key(_TLS, SSL_TRUSTSTORE, "/etc/millrace/ca.pem", Width.LONG),
    truststore_password_key(_TLS, SSL_TRUSTSTORE_PASSWORD),
    _TABLES.high.strings(
        DATABASES,
        "Databases to read, as a comma-separated list of regular expressions (Java's syntax) that match whole names "
        "in any case. Not set: all but the server's own. Not together with database.exclude.list.",
        default=None,
        validator=regex_list,
        width=Width.LONG,
        display_name="Databases",
        example="shop,crm_.*",
    ),
    _TABLES.strings(
        NOT_DATABASES,
        "Databases not to read, as regular expressions in the form of database.include.list.",
        default=None,
        validator=regex_list,
        width=Width.LONG,
        display_name="Databases left out",
    ),
    _TABLES.high.strings(
        TABLES,
        "Tables to read, as a comma-separated list of regular expressions that match whole names of the form "
        "database.table in any case. Not set: all of the databases. Not together with table.exclude.list.",
        default=None,
        validator=regex_list,
        width=Width.LONG,
        display_name="Tables",
        example=r"shop\.orders,shop\.customer.*",
    ),
    _TABLES.strings(
        NOT_TABLES,
        "Tables not to read, as regular expressions in the form of table.include.list.",
        default=None,
        validator=regex_list,
        width=Width.LONG,
        display_name="Tables left out",
    ),
    _TABLES.low.boolean(
        IGNORE_BUILTIN,
        "Whether mysql, sys, performance_schema and information_schema are left out.",
        default=True,
        display_name="Ignore the server's own tables",
    ),
    _TABLES.high.strings(
        GTID_INCLUDES,
        "Sources of transactions to read, as regular expressions: of server UUIDs with MySQL, of domain-server pairs "
        "with MariaDB. Not set: all. Not together with gtid.source.excludes.",
        default=None,
        validator=regex_list,
        width=Width.LONG,
        display_name="GTID sources",
    ),
    _TABLES.strings(
        GTID_EXCLUDES,
        "Sources of transactions not to read, in the form of gtid.source.includes.",
        default=None,
        validator=regex_list,
        width=Width.LONG,
        display_name="GTID sources left out",
    ),
    _TABLES.boolean(
        GTID_FILTER_DML,
        "Whether changes in transactions of other sources are left out. With false "
        "gtid.source.includes and gtid.source.excludes only say which part of a saved GTID set counts when the stream is "
        "started.",
        default=True,
        display_name="Filter changes by GTID",
    ),
    _TABLES.low.integer(
        GUARDRAIL,
        "How many tables the connector may be given; 0: no limit.",
        default=0,
        unit="tables",
        validator=not_negative,
        display_name="Most tables",
    ),
    _TABLES.low.string(
        GUARDRAIL_ACTION,
        "warn: a warning; fail: the configuration is refused.",
        default="warn",
        validator=words("warn", "fail"),
        display_name="More tables than that",
    ),
)
