"""Options: what events look like, which of them are sent, and to which topics."""

from __future__ import annotations

from typing import Final

from connectors.java_regex import java_expression
from connectors.mysql import logical
from connectors.mysql.config_keys_rules import complaint, key_columns, operations, regex_list, topic_name
from connectors.number_keys import decimals_key
from connectors.options import (
    REQUIRED,
    ConfigKey,
    ConfigType,
    Importance,
    Width,
    all_of,
    at_least,
    between,
    non_empty,
    words,
)

PREFIX: Final = "topic.prefix"
OUTPUT: Final = "output.format"
TOMBSTONES: Final = "tombstones.on.delete"
SKIPPED: Final = "skipped.operations"
SKIP_UNCHANGED: Final = "skip.messages.without.change"
KEY_COLUMNS: Final = "message.key.columns"
COLUMNS: Final = "column.include.list"
NOT_COLUMNS: Final = "column.exclude.list"
SCHEMA_CHANGES: Final = "include.schema.changes"
SCHEMA_COMMENTS: Final = "include.schema.comments"
TRANSACTIONS: Final = "provide.transaction.metadata"
QUERY: Final = "include.query"
EXTENDED_HEADERS: Final = "extended.headers.enabled"

TIMES: Final = "time.precision.mode"
UNSIGNED: Final = "bigint.unsigned.handling.mode"
BINARIES: Final = "binary.handling.mode"
TIME_ADJUSTER: Final = "enable.time.adjuster"
CHARSET_ERRORS: Final = "charset.errors"
SOURCE_TYPES: Final = "column.propagate.source.type"
DATA_TYPES: Final = "datatype.propagate.source.type"
SCHEMA_NAMES: Final = "schema.name.adjustment.mode"
FIELD_NAMES: Final = "field.name.adjustment.mode"

STRATEGY: Final = "topic.naming.strategy"
DELIMITER: Final = "topic.delimiter"
TRANSACTION_TOPIC: Final = "topic.transaction"
HEARTBEAT_PREFIX: Final = "topic.heartbeat.prefix"
TOPIC_REGEX: Final = "topic.regex"
TOPIC_REPLACEMENT: Final = "topic.replacement"
TOPIC_KEY_ENABLE: Final = "topic.key.enforce.uniqueness"
TOPIC_KEY_FIELD: Final = "topic.key.field.name"
TOPIC_KEY_REGEX: Final = "topic.key.field.regex"
TOPIC_KEY_REPLACEMENT: Final = "topic.key.field.replacement"
VERSION_TOPIC: Final = "table.version.topic"

LOGICAL: Final = logical.OPTION
UMS_TOPICS: Final = "ums.topic.per"
UMS_BEFORE: Final = "ums.before.images"
UMS_ROWS: Final = "ums.message.rows"
UMS_BYTES: Final = "ums.message.bytes"
UMS_INSTANCE: Final = "ums.instance"

#: Debezium's naming strategies: class name (without its package) -> (kind, whether odd characters become _uXXXX, with a regex).
STRATEGIES: Final = {
    "DefaultTopicNamingStrategy": ("default", False, False),
    "SchemaTopicNamingStrategy": ("schema", False, False),
    "DefaultUnicodeTopicNamingStrategy": ("default", True, False),
    "SchemaUnicodeTopicNamingStrategy": ("schema", True, False),
    "DefaultRegexTopicNamingStrategy": ("default", False, True),
    "SchemaRegexTopicNamingStrategy": ("schema", False, True),
}

_EVENTS: Final = "Events"
_VALUES: Final = "Values"
_TOPICS: Final = "Topics"
_UMS: Final = "UMS"

KEYS: Final = (
    ConfigKey(
        name=PREFIX,
        type=ConfigType.STRING,
        default=REQUIRED,
        validator=all_of(non_empty, topic_name),
        importance=Importance.HIGH,
        group=_EVENTS,
        width=Width.MEDIUM,
        display_name="Topic prefix",
        example="shop",
        doc="Name of the source in topics, schemas, events and saved positions. A table's events go to the topic "
        "prefix.database.table. With another prefix the connector begins anew.",
    ),
    ConfigKey(
        name=OUTPUT,
        type=ConfigType.STRING,
        default="debezium",
        validator=words("debezium", "ums"),
        importance=Importance.HIGH,
        group=_EVENTS,
        display_name="Output format",
        doc="What events look like: debezium, as Debezium's connectors write them; or ums, messages with a schema of "
        "their own and many rows.",
    ),
    ConfigKey(
        name=TOMBSTONES,
        type=ConfigType.BOOLEAN,
        default=True,
        group=_EVENTS,
        display_name="Tombstones",
        doc="Whether a delete is followed by a record without a value, which lets a compacted topic forget the key.",
    ),
    ConfigKey(
        name=SKIPPED,
        type=ConfigType.LIST,
        default=["t"],
        validator=operations,
        importance=Importance.LOW,
        group=_EVENTS,
        display_name="Operations left out",
        example="t,d",
        doc="Operations whose events are not sent: c (insert), u (update), d (delete), t (truncate), r (rows of a full "
        "pull); none: all are sent.",
    ),
    ConfigKey(
        name=SKIP_UNCHANGED,
        type=ConfigType.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        group=_EVENTS,
        display_name="Leave out updates without a change",
        doc="Whether an update that changes none of the columns that are sent is left out.",
    ),
    ConfigKey(
        name=KEY_COLUMNS,
        type=ConfigType.STRING,
        default=None,
        validator=key_columns,
        group=_EVENTS,
        width=Width.LONG,
        display_name="Key columns",
        example="shop.visits:customer,day;(.*)\\.audit:id",
        doc="Columns that make the key of records instead of the primary key: database.table:column,column for tables "
        "that match a regular expression, several separated by semicolons.",
    ),
    ConfigKey(
        name=COLUMNS,
        type=ConfigType.LIST,
        default=None,
        validator=regex_list,
        group=_EVENTS,
        width=Width.LONG,
        display_name="Columns",
        example=r"shop\.orders\.(id|total)",
        doc="Columns that are sent, as regular expressions that match whole names of the form database.table.column. Not "
        "set: all. A key's columns are always in the key. Not together with column.exclude.list.",
    ),
    ConfigKey(
        name=NOT_COLUMNS,
        type=ConfigType.LIST,
        default=None,
        validator=regex_list,
        group=_EVENTS,
        width=Width.LONG,
        display_name="Columns left out",
        doc="Columns that are not sent, in the same form.",
    ),
    ConfigKey(
        name=SCHEMA_CHANGES,
        type=ConfigType.BOOLEAN,
        default=True,
        group=_EVENTS,
        display_name="Schema changes",
        doc="Whether each DDL statement that concerns the tables makes a record in the topic that is named as the "
        "prefix.",
    ),
    ConfigKey(
        name=SCHEMA_COMMENTS,
        type=ConfigType.BOOLEAN,
        default=False,
        group=_EVENTS,
        importance=Importance.LOW,
        display_name="Comments",
        doc="Whether comments of tables and columns are part of schemas.",
    ),
    ConfigKey(
        name=TRANSACTIONS,
        type=ConfigType.BOOLEAN,
        default=False,
        group=_EVENTS,
        importance=Importance.LOW,
        display_name="Transaction metadata",
        doc="Whether the begin and the end of each transaction are sent to a topic of their own, and events carry their "
        "place in the transaction. The connector then has one task, whatever tasks.max says.",
    ),
    ConfigKey(
        name=QUERY,
        type=ConfigType.BOOLEAN,
        default=False,
        group=_EVENTS,
        display_name="Statements",
        doc="Whether source.query holds the statement that made the change. The server must log it: "
        "binlog_annotate_row_events=ON with MariaDB, binlog_rows_query_log_events=ON with MySQL.",
    ),
    ConfigKey(
        name=EXTENDED_HEADERS,
        type=ConfigType.BOOLEAN,
        default=True,
        group=_EVENTS,
        importance=Importance.LOW,
        display_name="Context headers",
        doc="Whether records carry headers with the prefix, the task's number and the connector's name, where the output "
        "form has them.",
    ),
    decimals_key("precise", _VALUES),
    ConfigKey(
        name=TIMES,
        type=ConfigType.STRING,
        default="adaptive_time_microseconds",
        validator=words("adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
        group=_VALUES,
        width=Width.MEDIUM,
        display_name="Times",
        doc="Dates and times: adaptive_time_microseconds (as exact as the column, TIME always in microseconds), connect "
        "(Connect's types, milliseconds), microseconds, nanoseconds, or isostring.",
    ),
    ConfigKey(
        name=UNSIGNED,
        type=ConfigType.STRING,
        default="long",
        validator=words("long", "precise"),
        group=_VALUES,
        display_name="Unsigned BIGINT",
        doc="BIGINT UNSIGNED as long (numbers above 2^63-1 become negative) or precise (Connect's Decimal).",
    ),
    ConfigKey(
        name=BINARIES,
        type=ConfigType.STRING,
        default="bytes",
        importance=Importance.LOW,
        group=_VALUES,
        validator=words("bytes", "base64", "base64-url-safe", "hex"),
        display_name="Binary columns",
        doc="BINARY, VARBINARY and BLOB as bytes, or as text in base64, base64-url-safe or hex.",
    ),
    ConfigKey(
        name=TIME_ADJUSTER,
        type=ConfigType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        group=_VALUES,
        display_name="Adjust years",
        doc="Whether years of two digits in dates mean those from 1970 to 2069.",
    ),
    ConfigKey(
        name=CHARSET_ERRORS,
        type=ConfigType.STRING,
        default="replace",
        importance=Importance.LOW,
        group=_VALUES,
        validator=words("strict", "replace"),
        display_name="Bytes that are no text",
        doc="What becomes of bytes that are no text in the column's character set: strict, the row counts as bad (see "
        "errors.tolerance); or replace, the Unicode replacement character stands for them.",
    ),
    ConfigKey(
        name=SOURCE_TYPES,
        type=ConfigType.LIST,
        default=None,
        validator=regex_list,
        importance=Importance.LOW,
        group=_VALUES,
        width=Width.LONG,
        display_name="Columns with their source types",
        doc="Columns whose schemas name the type in the database as parameters: regular expressions that match whole "
        "names of the form database.table.column.",
    ),
    ConfigKey(
        name=DATA_TYPES,
        type=ConfigType.LIST,
        default=None,
        validator=regex_list,
        importance=Importance.LOW,
        group=_VALUES,
        width=Width.LONG,
        display_name="Types with their source types",
        doc="The same by types: regular expressions that match whole names of the form database.table.TYPE.",
    ),
    ConfigKey(
        name=SCHEMA_NAMES,
        type=ConfigType.STRING,
        default="none",
        validator=words("none", "avro", "avro_unicode"),
        group=_VALUES,
        display_name="Schema names",
        doc="What is done to characters that Avro does not allow in names of schemas: none (nothing), avro (_ stands for "
        "each) or avro_unicode (_uXXXX).",
    ),
    ConfigKey(
        name=FIELD_NAMES,
        type=ConfigType.STRING,
        default="none",
        validator=words("none", "avro", "avro_unicode"),
        group=_VALUES,
        display_name="Field names",
        doc="The same for names of fields.",
    ),
    ConfigKey(
        name=LOGICAL,
        type=ConfigType.STRING,
        default=None,
        group=_TOPICS,
        width=Width.LONG,
        validator=complaint(lambda value: logical.parse(value or "")),
        display_name="Logical tables",
        example=r"shop_(\d+)\.orders_(\d+):shop.orders",
        doc="Sharded tables: maps physical tables to one logical table. The form is expression:database.table, several "
        "separated by semicolons. An expression (Java's) matches the whole name database.table in any case; a "
        "group in the database's part is the number of the database partition, a group in the table's part that of "
        "the table partition, 0 without a group. expression:database.table:3.17 gives fixed numbers. The "
        "partitions share the topic of the logical table. UMS namespaces have its name and the numbers; source of "
        "Debezium's events keeps the physical names and gets logical_db, logical_table, database_partition and "
        "table_partition, and the key gets the field of topic.key.field.name. All other options match physical "
        "names.",
    ),
    ConfigKey(
        name=STRATEGY,
        type=ConfigType.CLASS,
        default="io.debezium.schema.DefaultTopicNamingStrategy",
        group=_TOPICS,
        width=Width.LONG,
        display_name="Topic names",
        doc="One of Debezium's classes, which is done here by name: " + ", ".join(STRATEGIES) + ".",
    ),
    ConfigKey(
        name=DELIMITER,
        type=ConfigType.STRING,
        default=".",
        validator=topic_name,
        group=_TOPICS,
        display_name="Delimiter",
        doc="What stands between the parts of a topic's name.",
    ),
    ConfigKey(
        name=TRANSACTION_TOPIC,
        type=ConfigType.STRING,
        default="transaction",
        validator=topic_name,
        group=_TOPICS,
        importance=Importance.LOW,
        display_name="Transaction topic",
        doc="Second part of the name of the topic for transaction metadata; the prefix is the first.",
    ),
    ConfigKey(
        name=HEARTBEAT_PREFIX,
        type=ConfigType.STRING,
        default="__debezium-heartbeat",
        validator=topic_name,
        group=_TOPICS,
        importance=Importance.LOW,
        aliases=("heartbeat.topics.prefix",),
        display_name="Heartbeat topic",
        doc="First part of the name of the topic for heartbeats; the prefix is the second.",
    ),
    ConfigKey(
        name=TOPIC_REGEX,
        type=ConfigType.STRING,
        default=None,
        validator=java_expression,
        group=_TOPICS,
        importance=Importance.LOW,
        display_name="Topic expression",
        doc="With a strategy with a regular expression: what a table's topic must match to be renamed.",
    ),
    ConfigKey(
        name=TOPIC_REPLACEMENT,
        type=ConfigType.STRING,
        default=None,
        group=_TOPICS,
        importance=Importance.LOW,
        display_name="Topic replacement",
        doc="The new name; $1 stands for what the first group has matched.",
    ),
    ConfigKey(
        name=TOPIC_KEY_ENABLE,
        type=ConfigType.BOOLEAN,
        default=True,
        group=_TOPICS,
        importance=Importance.LOW,
        display_name="Table in the key",
        doc="Whether keys of renamed topics get a field that tells the tables apart.",
    ),
    ConfigKey(
        name=TOPIC_KEY_FIELD,
        type=ConfigType.STRING,
        default="__dbz__physicalTableIdentifier",
        group=_TOPICS,
        importance=Importance.LOW,
        validator=non_empty,
        display_name="That field's name",
        doc="See topic.key.enforce.uniqueness.",
    ),
    ConfigKey(
        name=TOPIC_KEY_REGEX,
        type=ConfigType.STRING,
        default=None,
        validator=java_expression,
        group=_TOPICS,
        importance=Importance.LOW,
        display_name="Expression of that field",
        doc="What of the table's own topic name the field holds: this is matched, and topic.key.field.replacement put in "
        "its place.",
    ),
    ConfigKey(
        name=TOPIC_KEY_REPLACEMENT,
        type=ConfigType.STRING,
        default=None,
        group=_TOPICS,
        importance=Importance.LOW,
        display_name="Replacement of that field",
        doc="See topic.key.field.regex.",
    ),
    ConfigKey(
        name=VERSION_TOPIC,
        type=ConfigType.STRING,
        default=None,
        validator=topic_name,
        group=_TOPICS,
        importance=Importance.LOW,
        width=Width.MEDIUM,
        display_name="Topic of table versions",
        example="shop.table-versions",
        doc="Topic that gets a record whenever a table's structure changes: version, time, position, statement, and the "
        "columns that came, went or changed. none: no such records. Not set: PREFIX.table-versions with "
        "output.format=ums, and none with debezium.",
    ),
    ConfigKey(
        name=UMS_TOPICS,
        type=ConfigType.STRING,
        default="table",
        validator=words("table", "schema", "all"),
        group=_UMS,
        importance=Importance.LOW,
        display_name="UMS topics",
        doc="Which tables share a topic: table, none; schema, those of a database (prefix.database); all (prefix).",
    ),
    ConfigKey(
        name=UMS_BEFORE,
        type=ConfigType.BOOLEAN,
        default=True,
        group=_UMS,
        importance=Importance.LOW,
        display_name="UMS rows before an update",
        doc="Whether an update also sends the row before it (ums_op_ b).",
    ),
    ConfigKey(
        name=UMS_ROWS,
        type=ConfigType.INT,
        default=500,
        unit="rows",
        validator=between(1, 10_000),
        group=_UMS,
        importance=Importance.LOW,
        display_name="Rows per UMS message",
        doc="Rows that one message holds at the most. Rows are never held back to fill a message.",
    ),
    ConfigKey(
        name=UMS_BYTES,
        type=ConfigType.INT,
        default=512 * 1024,
        unit="bytes",
        validator=at_least(1024),
        group=_UMS,
        importance=Importance.LOW,
        display_name="Bytes per UMS message",
        doc="Text that the rows of one message hold at the most; a larger single row still makes a message.",
    ),
    ConfigKey(
        name=UMS_INSTANCE,
        type=ConfigType.STRING,
        default=None,
        group=_UMS,
        importance=Importance.LOW,
        display_name="UMS instance",
        doc="Second part of the namespace of messages. Not set: the topic prefix.",
    ),
)
