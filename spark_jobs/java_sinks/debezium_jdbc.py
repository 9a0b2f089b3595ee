"""Debezium's JDBC sink. Source of the options: its configuration class, 3.x."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.java_sinks.translation.jdbc import JavaOptionNames, translate_rows, translate_url
from spark_jobs.java_sinks.translation.model import ENVELOPE, JavaOption, JavaSink
from spark_jobs.java_sinks.translation.table_names import SCHEMA, TABLE, Naming, translate_names

if TYPE_CHECKING:
    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

_POOL: Final = "each table is written by sink.jdbc.connections connections"
_NAMES: Final = JavaOptionNames("primary.key.mode", "primary.key.fields")
_NAMING: Final = Naming(
    option="collection.name.format",
    clean=lambda topic: topic.replace(".", "_"),
    flat="${namespace}",
    inside="${namespace}",
    source={"${source.table}": "${table}", "${source.db}": "${database}", "${source.schema}": "${database}"},
    fixed={},
)

OPTIONS: Final = (
    JavaOption(
        name="connection.url", doc="Where the database is.", to=("sink.jdbc.url", "sink.jdbc.ssl.*", "sink.jdbc.schema")
    ),
    JavaOption(name="connection.username", doc="The login.", to=("sink.jdbc.user",), copied=True),
    JavaOption(
        name="connection.password", doc="The login's password.", secret=True, to=("sink.jdbc.password",), copied=True
    ),
    JavaOption(
        name="connection.provider",
        doc="Java class of the connection pool.",
        without="there is no pool of Java's",
    ),
    JavaOption(name="connection.pool.min_size", doc="Fewest connections of the pool.", default="5", without=_POOL),
    JavaOption(name="connection.pool.max_size", doc="Most connections of the pool.", default="32", without=_POOL),
    JavaOption(
        name="connection.pool.acquire_increment",
        doc="How many connections the pool opens at once.",
        default="32",
        without=_POOL,
    ),
    JavaOption(
        name="connection.pool.timeout",
        doc="After how long an idle connection is closed.",
        default="1800",
        without="connections are opened for a batch and closed after it",
    ),
    JavaOption(
        name="connection.restart.on.errors",
        doc="Whether lost connections are opened again.",
        default="false",
        without="lost connections are always opened again, and the transaction is repeated",
    ),
    JavaOption(
        name="insert.mode",
        doc="How rows are written.",
        default="insert",
        to=("sink.jdbc.mode", "sink.jdbc.delete.mode", "sink.jdbc.kafka.columns"),
    ),
    JavaOption(
        name="delete.enabled",
        doc="Whether deletes are carried out.",
        default="false",
        to=("source.tombstones", "transform.steps"),
    ),
    JavaOption(name="truncate.enabled", doc="Whether tables are emptied.", default="false", to=("source.truncates",)),
    JavaOption(
        name="primary.key.mode",
        doc="What the key is made of.",
        default="none",
        to=("source.key.columns", "source.key.encoding"),
    ),
    JavaOption(name="primary.key.fields", doc="Columns of the key.", to=("source.key.columns",)),
    JavaOption(
        name="schema.evolution",
        doc="Whether tables are made and get new columns.",
        default="none",
        to=("sink.jdbc.auto.create", "sink.jdbc.auto.evolve"),
    ),
    JavaOption(
        name="collection.name.format",
        doc="The tables' names.",
        default="${topic}",
        aliases=("table.name.format",),
        to=(TABLE, SCHEMA, "transform.steps"),
    ),
    JavaOption(
        name="collection.table.format",
        doc="The tables' names by schema and table.",
        default="${table}",
        refused="set sink.jdbc.table with ${table} and ${database}",
    ),
    JavaOption(
        name="collection.naming.strategy",
        doc="Java class that names tables.",
        default="io.debezium.sink.naming.DefaultCollectionNamingStrategy",
        same=("io.debezium.connector.jdbc.naming.defaulttablenamingstrategy",),
        aliases=("table.naming.strategy",),
        refused="classes of Java don't run here. Name tables by sink.jdbc.table",
    ),
    JavaOption(
        name="column.naming.strategy",
        doc="Java class that names columns.",
        default="io.debezium.connector.jdbc.naming.DefaultColumnNamingStrategy",
        refused="classes of Java don't run here. Rename columns by a step of type select",
    ),
    JavaOption(
        name="quote.identifiers",
        doc="Whether names are quoted.",
        default="false",
        without="names are always quoted",
        same=("true",),
    ),
    JavaOption(
        name="use.time.zone",
        doc="The zone in which times are written.",
        default="UTC",
        same=("z", "gmt", "etc/utc", "+00:00"),
        aliases=("database.time_zone",),
        refused="times are written in UTC. Convert columns by a step of type select with from_utc_timestamp, or remove it",
    ),
    JavaOption(
        name="batch.size",
        doc="Rows per statement.",
        default="500",
        without="sink.jdbc.batch.rows bounds a transaction (50,000 rows), and a value for single statements would slow it down",
    ),
    JavaOption(
        name="use.reduction.buffer",
        doc="Whether only the last change of a row in a batch is written.",
        default="false",
        same=("true",),
        without="of the changes of a row in a transaction only the last is written",
    ),
    JavaOption(
        name="field.include.list",
        doc="The columns to write.",
        refused="list the columns by a step of type select (columns='id, name')",
    ),
    JavaOption(
        name="field.exclude.list",
        doc="The columns to leave out.",
        refused="leave them out by a step of type select (columns='* EXCEPT (a, b)')",
    ),
    JavaOption(
        name="flush.max.retries",
        doc="How often a batch is repeated.",
        default="5",
        to=("sink.jdbc.retries",),
        copied=True,
    ),
    JavaOption(
        name="flush.retry.delay.ms",
        doc="The pause before that, in milliseconds.",
        default="1000",
        to=("sink.jdbc.retry.backoff.ms",),
        copied=True,
    ),
    JavaOption(
        name="dialect.postgres.postgis.schema",
        doc="The schema of PostGIS.",
        default="public",
        without="geometries are written as JSON, not as types of PostGIS",
    ),
    JavaOption(
        name="dialect.postgres.unnest.insert.enabled",
        doc="Whether rows go to PostgreSQL as arrays.",
        default="false",
        without="rows go to PostgreSQL by COPY",
    ),
    JavaOption(
        name="dialect.sqlserver.identity.insert",
        doc="Whether identity columns of SQL Server are written.",
        default="false",
        without="there is no SQL Server here",
    ),
    JavaOption(
        name="cloud.events.schema.name.pattern",
        doc="Which records are CloudEvents.",
        default=r".*CloudEvents\.Envelope$",
        refused="a job does not read CloudEvents",
    ),
)


def _translate_jdbc(request: TranslationRequest, answer: TranslatedJob) -> None:
    translate_url(request, answer)
    translate_rows(request, _NAMES, answer)
    evolution = request.text("schema.evolution").lower()
    if evolution not in ("none", "basic"):
        answer.refuse(
            "schema.evolution", f"Invalid value {evolution} for configuration schema.evolution: must be none or basic"
        )
    changes = "true" if evolution == "basic" else "false"
    answer.put("sink.jdbc.auto.create", changes, "schema.evolution")
    answer.put("sink.jdbc.auto.evolve", changes, "schema.evolution")
    if request.form == ENVELOPE:
        if request.flag("truncate.enabled"):
            answer.note(
                "truncate.enabled",
                "a TRUNCATE is not carried out: it is a bad record, which stops the job or becomes a dead letter "
                "(errors.tolerance); source.truncates=ignore leaves it out",
            )
        else:
            answer.put("source.truncates", "ignore", "truncate.enabled")
    if not request.flag("quote.identifiers") and request.text("connection.url").startswith("jdbc:postgresql"):
        answer.note(
            "quote.identifiers",
            "names are quoted here: a table or column that Java has made from a name with capital letters is in lower case in "
            "PostgreSQL, and another one here. Rename such columns by a step of type select",
        )
    translate_names(request, _NAMING, answer)
    transforms = request.config.get("transforms", "").strip()
    if request.form == ENVELOPE and "source.format" not in request.config and not transforms:
        answer.note(
            "transforms",
            "records are read as Debezium's envelopes; flat rows are bad records then. If they are flat, set "
            "source.format=plain in this configuration",
        )


SINK: Final = JavaSink(
    title="Debezium JDBC sink",
    class_names=("io.debezium.connector.jdbc.JdbcSinkConnector",),
    sink_type="jdbc",
    form=ENVELOPE,
    options=OPTIONS,
    translate=_translate_jdbc,
    prefixes={"hibernate.": "there is no Hibernate here"},
)
