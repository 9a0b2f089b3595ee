"""The JDBC sinks of Confluent and Aiven, which share their ancestor. Source of the options: their configuration classes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_jobs.java_sinks.translation.jdbc import (
    JavaOptionNames,
    translate_columns,
    translate_parameter,
    translate_rows,
    translate_url,
)
from spark_jobs.java_sinks.translation.model import FLAT, JavaOption, JavaSink
from spark_jobs.java_sinks.translation.table_names import SCHEMA, TABLE, Naming, translate_names

if TYPE_CHECKING:
    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

_NAMES: Final = JavaOptionNames("pk.mode", "pk.fields")
_CONNECTION: Final = "connection."
_MAPPING: Final = "topics.to.tables.mapping"

_SHARED: Final = (
    JavaOption(
        name="connection.url", doc="Where the database is.", to=("sink.jdbc.url", "sink.jdbc.ssl.*", "sink.jdbc.schema")
    ),
    JavaOption(name="connection.user", doc="The login.", to=("sink.jdbc.user",), copied=True),
    JavaOption(
        name="connection.password", doc="The login's password.", secret=True, to=("sink.jdbc.password",), copied=True
    ),
    JavaOption(name="dialect.name", doc="The dialect of SQL.", without="the URL says which dialect is used"),
    JavaOption(
        name="insert.mode",
        doc="How rows are written.",
        default="insert",
        to=("sink.jdbc.mode", "sink.jdbc.delete.mode", "sink.jdbc.kafka.columns"),
    ),
    JavaOption(
        name="batch.size",
        doc="Rows per statement.",
        default="3000",
        without="sink.jdbc.batch.rows bounds a transaction (50,000 rows), and a value for single statements would slow it down",
    ),
    JavaOption(
        name="delete.enabled",
        doc="Whether a record without a value deletes its key's row.",
        default="false",
        to=("source.tombstones", "transform.steps"),
    ),
    JavaOption(
        name="table.name.format",
        doc="The tables' names.",
        default="${topic}",
        to=(TABLE, SCHEMA, "transform.steps"),
    ),
    JavaOption(
        name="pk.mode",
        doc="What the key is made of.",
        default="none",
        to=("source.key.columns", "source.key.encoding"),
    ),
    JavaOption(name="pk.fields", doc="Columns of the key.", to=("source.key.columns",)),
    JavaOption(name="fields.whitelist", doc="The columns to write.", to=("transform.steps",)),
    JavaOption(
        name="db.timezone",
        doc="The zone in which times are written.",
        default="UTC",
        same=("z", "gmt", "etc/utc", "+00:00"),
        refused="times are written in UTC. Convert columns by a step of type select with from_utc_timestamp, or remove it",
    ),
    JavaOption(
        name="auto.create",
        doc="Whether missing tables are made.",
        default="false",
        to=("sink.jdbc.auto.create",),
    ),
    JavaOption(
        name="auto.evolve",
        doc="Whether tables get new columns.",
        default="false",
        to=("sink.jdbc.auto.evolve",),
    ),
    JavaOption(
        name="max.retries", doc="How often a batch is repeated.", default="10", to=("sink.jdbc.retries",), copied=True
    ),
    JavaOption(
        name="retry.backoff.ms",
        doc="The pause before that, in milliseconds.",
        default="3000",
        to=("sink.jdbc.retry.backoff.ms",),
        copied=True,
    ),
)
CONFLUENT_OPTIONS: Final = (
    *_SHARED,
    JavaOption(
        name="connection.attempts",
        doc="How often a connection is tried.",
        default="3",
        without="the job waits for the database for errors.retry.timeout.ms, without a limit by default",
    ),
    JavaOption(
        name="connection.backoff.ms",
        doc="The pause between these tries, in milliseconds.",
        default="10000",
        without="pauses grow from errors.retry.delay.ms to errors.retry.delay.max.ms",
    ),
    JavaOption(
        name="db.timezone.date",
        doc="Whether dates are converted to the zone.",
        default="none",
        refused="dates are written as they are. Remove it",
    ),
    JavaOption(
        name="table.types",
        doc="Kinds of tables that may be written.",
        default="TABLE",
        without="any table that can be inserted into is written",
    ),
    JavaOption(
        name="quote.sql.identifiers",
        doc="Whether names are quoted.",
        default="always",
        refused="names are always quoted. Remove it where names have no capital letters; else rename columns by a step of type "
        "select",
    ),
    JavaOption(
        name="mssql.use.merge.holdlock",
        doc="A lock of SQL Server's.",
        default="true",
        without="there is no SQL Server here",
    ),
    JavaOption(
        name="trim.sensitive.log",
        doc="Whether values are left out of the log.",
        default="false",
        without="errors show the value that a column refused; masks (mask.rules) hide it",
    ),
)
AIVEN_OPTIONS: Final = (
    *_SHARED,
    JavaOption(
        name="sql.quote.identifiers",
        doc="Whether names are quoted.",
        default="true",
        refused="names are always quoted. Remove it where names have no capital letters; else rename columns by a step of type "
        "select",
    ),
    JavaOption(
        name="table.name.normalize",
        doc="Whether characters beyond letters, digits and underscores become underscores in tables' names.",
        default="false",
        to=(TABLE, "transform.steps"),
    ),
    JavaOption(
        name=_MAPPING,
        doc="Tables of single topics.",
        to=(TABLE, "transform.steps"),
    ),
    JavaOption(
        name="handle.tombstone",
        doc="Whether records without a value are left out.",
        default="false",
        to=("source.tombstones",),
    ),
)


def _translate_jdbc(request: TranslationRequest, answer: TranslatedJob) -> None:
    translate_url(request, answer)
    declared_options = request.sink.by_name
    for name, value in request.config.items():
        if name.startswith(_CONNECTION) and name not in declared_options:
            translate_parameter(name, name.removeprefix(_CONNECTION), value, answer)
    translate_rows(request, _NAMES, answer)
    for option in ("auto.create", "auto.evolve"):
        answer.put(f"sink.jdbc.{option}", "true" if request.flag(option) else "false", option)
    translate_columns("fields.whitelist", request, _NAMES, answer)
    if request.flag("handle.tombstone"):
        answer.put("source.tombstones", "ignore", "handle.tombstone")
    translate_names(request, _make_naming(request), answer)


def _make_naming(request: TranslationRequest) -> Naming:
    fixed = {
        topic.strip(): table.strip() for topic, _, table in (item.partition(":") for item in request.items(_MAPPING))
    }
    normalized = request.flag("table.name.normalize")
    # A dot in a name separates the schema from the table, as in Java.
    return Naming(
        option="table.name.format",
        clean=_normalize_topic if normalized else _keep_topic,
        flat="${namespace}" if normalized else "${database}.${table}",
        inside="${namespace}" if normalized else "${table}",
        source={},
        fixed=fixed,
    )


def _keep_topic(topic: str) -> str:
    return topic


def _normalize_topic(topic: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in topic)


CONFLUENT: Final = JavaSink(
    title="Confluent JDBC sink",
    class_names=("io.confluent.connect.jdbc.JdbcSinkConnector",),
    sink_type="jdbc",
    form=FLAT,
    options=CONFLUENT_OPTIONS,
    translate=_translate_jdbc,
    prefixes={_CONNECTION: ""},
)
AIVEN: Final = replace(
    CONFLUENT,
    title="Aiven JDBC sink",
    class_names=("io.aiven.connect.jdbc.JdbcSinkConnector",),
    options=AIVEN_OPTIONS,
)
