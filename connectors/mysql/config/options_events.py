"""Options: what events look like, which are sent and to which topics."""

from __future__ import annotations

from typing import Final

from connectors.java_regex import java_expression, regex_list
from connectors.mysql.config.validators import check_operations, key_columns, topic_name
from connectors.mysql.stream import logical
from connectors.options import (
    KeyGroup,
    Width,
    all_of,
    at_least,
    between,
    complaint,
    non_empty,
    words,
)
from connectors.source_options.number_keys import decimals_key

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

_EVENTS: Final = KeyGroup("Events")
_VALUES: Final = KeyGroup("Values")
_TOPICS: Final = KeyGroup("Topics")
_UMS: Final = KeyGroup("UMS")

EVENT_KEYS: Final = (
    _EVENTS.high.string(
        PREFIX,
        "Name of the source in topics, schemas, events and saved positions. A table's events go to the topic "
        "prefix.database.table. With another prefix the connector begins from the start.",
        validator=all_of(non_empty, topic_name),
        width=Width.MEDIUM,
        display_name="Topic prefix",
        example="shop",
    ),
    _EVENTS.high.string(
        OUTPUT,
        "What events look like: debezium, as Debezium's connectors write them; or ums, messages with a schema of "
        "their own and many rows.",
        default="debezium",
        validator=words("debezium", "ums"),
        display_name="Output format",
    ),
    _EVENTS.boolean(
        TOMBSTONES,
        "Whether a delete is followed by a record without a value, which lets a compacted topic forget the key.",
        default=True,
        display_name="Tombstones",
    ),
    _EVENTS.low.strings(
        SKIPPED,
        "Operations whose events are not sent: c (insert), u (update), d (delete), t (truncate), r (rows of a "
        "snapshot); none: all are sent.",
        default=["t"],
        validator=check_operations,
        display_name="Operations left out",
        example="t,d",
    ),
    _EVENTS.low.boolean(
        SKIP_UNCHANGED,
        "Whether an update that changes none of the columns that are sent is left out.",
        default=False,
        display_name="Leave out updates without a change",
    ),
    _EVENTS.string(
        KEY_COLUMNS,
        "Columns that make the key of records instead of the primary key: database.table:column,column for tables "
        "that match a regular expression, several separated by semicolons.",
        default=None,
        validator=key_columns,
        width=Width.LONG,
        display_name="Key columns",
        example="shop.visits:customer,day;(.*)\\.audit:id",
    ),
    _EVENTS.strings(
        COLUMNS,
        "Columns that are sent, as regular expressions that match whole names of the form database.table.column. Not "
        "set: all. A key's columns are always in the key. Not together with column.exclude.list.",
        default=None,
        validator=regex_list,
        width=Width.LONG,
        display_name="Columns",
        example=r"shop\.orders\.(id|total)",
    ),
    _EVENTS.strings(
        NOT_COLUMNS,
        "Columns that are not sent, in the form of column.include.list.",
        default=None,
        validator=regex_list,
        width=Width.LONG,
        display_name="Columns left out",
    ),
    _EVENTS.boolean(
        SCHEMA_CHANGES,
        "Whether each DDL statement that concerns the tables makes a record in the topic that is named as the prefix.",
        default=True,
        display_name="Schema changes",
    ),
    _EVENTS.low.boolean(
        SCHEMA_COMMENTS,
        "Whether comments of tables and columns are part of schemas.",
        default=False,
        display_name="Comments",
    ),
    _EVENTS.low.boolean(
        TRANSACTIONS,
        "Whether the begin and the end of each transaction are sent to a topic of their own, and events carry their "
        "place in the transaction. The connector then has one task, whatever tasks.max says.",
        default=False,
        display_name="Transaction metadata",
    ),
    _EVENTS.boolean(
        QUERY,
        "Whether source.query holds the statement that made the change. The server must log it: "
        "binlog_annotate_row_events=ON with MariaDB, binlog_rows_query_log_events=ON with MySQL.",
        default=False,
        display_name="Statements",
    ),
    _EVENTS.low.boolean(
        EXTENDED_HEADERS,
        "Whether records carry headers with the prefix, the task's number and the connector's name, where the output "
        "form has them.",
        default=True,
        display_name="Context headers",
    ),
    decimals_key("precise", _VALUES.name),
    _VALUES.string(
        TIMES,
        "Dates and times: adaptive_time_microseconds (as exact as the column, TIME always in microseconds), connect "
        "(Connect's types, milliseconds), microseconds, nanoseconds, or isostring.",
        default="adaptive_time_microseconds",
        validator=words("adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
        width=Width.MEDIUM,
        display_name="Times",
    ),
    _VALUES.string(
        UNSIGNED,
        "BIGINT UNSIGNED as long (numbers above 2^63-1 become negative) or precise (Connect's Decimal).",
        default="long",
        validator=words("long", "precise"),
        display_name="Unsigned BIGINT",
    ),
    _VALUES.low.string(
        BINARIES,
        "BINARY, VARBINARY and BLOB as bytes, or as text in base64, base64-url-safe or hex.",
        default="bytes",
        validator=words("bytes", "base64", "base64-url-safe", "hex"),
        display_name="Binary columns",
    ),
    _VALUES.low.boolean(
        TIME_ADJUSTER,
        "Whether years of two digits in dates mean those from 1970 to 2069.",
        default=True,
        display_name="Adjust years",
    ),
    _VALUES.low.string(
        CHARSET_ERRORS,
        "What becomes of bytes that are not valid in the column's character set: strict, the row counts as bad (see "
        "errors.tolerance); or replace, the Unicode replacement character stands for them.",
        default="replace",
        validator=words("strict", "replace"),
        display_name="Bytes that are not valid",
    ),
    _VALUES.low.strings(
        SOURCE_TYPES,
        "Columns whose schemas name the type in the database as parameters: regular expressions that match whole "
        "names of the form database.table.column.",
        default=None,
        validator=regex_list,
        width=Width.LONG,
        display_name="Columns with their source types",
    ),
    _VALUES.low.strings(
        DATA_TYPES,
        "Types whose columns' schemas name the type in the database as parameters: regular expressions that match whole "
        "names of the form database.table.TYPE.",
        default=None,
        validator=regex_list,
        width=Width.LONG,
        display_name="Types with their source types",
    ),
    _VALUES.string(
        SCHEMA_NAMES,
        "What is done to characters that Avro does not allow in names of schemas: none (nothing), avro (_ stands for "
        "each) or avro_unicode (_uXXXX).",
        default="none",
        validator=words("none", "avro", "avro_unicode"),
        display_name="Schema names",
    ),
    _VALUES.string(
        FIELD_NAMES,
        "What schema.name.adjustment.mode says of names of schemas, for names of fields.",
        default="none",
        validator=words("none", "avro", "avro_unicode"),
        display_name="Field names",
    ),
    _TOPICS.string(
        LOGICAL,
        "Sharded tables: maps physical tables to one logical table. The form is expression:database.table, several "
        "separated by semicolons. An expression (Java's) matches the whole name database.table in any case; a "
        "group in the database's part is the number of the database partition, a group in the table's part that of "
        "the table partition, 0 without a group. expression:database.table:3.17 gives fixed numbers. The "
        "partitions share the topic of the logical table. UMS namespaces have its name and the numbers; source of "
        "Debezium's events keeps the physical names and gets logical_db, logical_table, database_partition and "
        "table_partition, and the key gets the field of topic.key.field.name. All other options match physical "
        "names.",
        default=None,
        width=Width.LONG,
        validator=complaint(lambda value: logical.parse_mapping(value or "")),
        display_name="Logical tables",
        example=r"shop_(\d+)\.orders_(\d+):shop.orders",
    ),
    _TOPICS.java_class(
        STRATEGY,
        "One of Debezium's classes, which is done here by name: " + ", ".join(STRATEGIES) + ".",
        default="io.debezium.schema.DefaultTopicNamingStrategy",
        width=Width.LONG,
        display_name="Topic names",
    ),
    _TOPICS.string(
        DELIMITER,
        "The characters between the parts of a topic's name.",
        default=".",
        validator=topic_name,
        display_name="Delimiter",
    ),
    _TOPICS.low.string(
        TRANSACTION_TOPIC,
        "Second part of the name of the topic for transaction metadata; the prefix is the first.",
        default="transaction",
        validator=topic_name,
        display_name="Transaction topic",
    ),
    _TOPICS.low.string(
        HEARTBEAT_PREFIX,
        "First part of the name of the topic for heartbeats; the prefix is the second.",
        default="__debezium-heartbeat",
        validator=topic_name,
        aliases=("heartbeat.topics.prefix",),
        display_name="Heartbeat topic",
    ),
    _TOPICS.low.string(
        TOPIC_REGEX,
        "With a strategy with a regular expression: what a table's topic must match to be renamed.",
        default=None,
        validator=java_expression,
        display_name="Topic expression",
    ),
    _TOPICS.low.string(
        TOPIC_REPLACEMENT,
        "The new name; $1 stands for what the first group has matched.",
        default=None,
        display_name="Topic replacement",
    ),
    _TOPICS.low.boolean(
        TOPIC_KEY_ENABLE,
        "Whether keys of renamed topics get a field that tells the tables apart.",
        default=True,
        display_name="Table in the key",
    ),
    _TOPICS.low.string(
        TOPIC_KEY_FIELD,
        "The name of the field that topic.key.enforce.uniqueness adds.",
        default="__dbz__physicalTableIdentifier",
        validator=non_empty,
        display_name="That field's name",
    ),
    _TOPICS.low.string(
        TOPIC_KEY_REGEX,
        "What of the table's own topic name the field holds: this is matched, and topic.key.field.replacement put in "
        "its place.",
        default=None,
        validator=java_expression,
        display_name="Expression of that field",
    ),
    _TOPICS.low.string(
        TOPIC_KEY_REPLACEMENT,
        "What takes the place of what topic.key.field.regex matches.",
        default=None,
        display_name="Replacement of that field",
    ),
    _TOPICS.low.string(
        VERSION_TOPIC,
        "Topic that gets a record whenever a table's structure changes: version, time, position, statement, and the "
        "columns that came, went or changed. none: no such records. Not set: PREFIX.table-versions with "
        "output.format=ums, and none with debezium.",
        default=None,
        validator=topic_name,
        width=Width.MEDIUM,
        display_name="Topic of table versions",
        example="shop.table-versions",
    ),
    _UMS.low.string(
        UMS_TOPICS,
        "Which tables share a topic: table, none; schema, those of a database (prefix.database); all (prefix).",
        default="table",
        validator=words("table", "schema", "all"),
        display_name="UMS topics",
    ),
    _UMS.low.boolean(
        UMS_BEFORE,
        "Whether an update also sends the row before it (ums_op_ b).",
        default=True,
        display_name="UMS rows before an update",
    ),
    _UMS.low.integer(
        UMS_ROWS,
        "Rows that one message holds at the most. Rows are never held back to fill a message.",
        default=500,
        unit="rows",
        validator=between(1, 10_000),
        display_name="Rows per UMS message",
    ),
    _UMS.low.integer(
        UMS_BYTES,
        "Text that the rows of one message hold at the most; a larger single row still makes a message.",
        default=512 * 1024,
        unit="bytes",
        validator=at_least(1024),
        display_name="Bytes per UMS message",
    ),
    _UMS.low.string(
        UMS_INSTANCE,
        "Second part of the namespace of messages. Not set: the topic prefix.",
        default=None,
        display_name="UMS instance",
    ),
)
