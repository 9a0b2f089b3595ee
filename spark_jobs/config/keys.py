"""The frame's options: what every job has, whatever its source, its transformation and its sink."""

from __future__ import annotations

import re
from typing import Any, Final

from connectors.errors import ConfigInvalid
from connectors.formats.masks.options import SOURCE_KEYS as MASK_KEYS
from connectors.options import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    between,
    invalid,
    non_empty,
    one_of,
    unless_null,
)
from spark_jobs.config.schema_options import SCHEMA_KEYS
from spark_jobs.flows.address import APPLICATION

_B, _S, _I, _L, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
_HIGH, _LOW = Importance.HIGH, Importance.LOW

_JOB: Final = "Job"
_KAFKA: Final = "Kafka"
_SOURCE: Final = "Source"
_OUT: Final = "Transformation and sink"
_RUN: Final = "Trigger and state"
_ERRORS: Final = "Errors"
_SPARK: Final = "Spark"
_METRICS: Final = "Metrics"

GUARANTEES: Final = ("exactly-once", "at-least-once", "none")
CONTINUOUS: Final = "continuous"
AVAILABLE_NOW: Final = "available-now"
MATERIALIZE: Final = "materialize"
SHARDS: Final = "sink.shards"
SOURCE_TYPE: Final = "source.type"
STARTING_GROUP: Final = "source.starting.group"
KAFKA: Final = "kafka"
FILES: Final = "files"
HISTORY: Final = "history"
TABLES: Final = "source.tables"
STEPS: Final = "transform.steps"
#: Prefix of the options of a step: ``transform.step.<name>.<option>``.
STEP_PREFIX: Final = "transform.step."
#: Names of the sinks of a flow that has several.
SINKS: Final = "sinks"
SINKS_ONLY: Final = "sinks.only"
SINKS_MAX_LAG: Final = "sinks.max.lag.records"
#: Prefix of the options of one of several sinks: ``sink.<name>.<option>``.
SINK_PREFIX: Final = "sink."
#: Lists whose items may be mappings in a job file: option -> prefix of an item's options, what an item is.
NAMED_LISTS: Final = {STEPS: (STEP_PREFIX, "step"), SINKS: (SINK_PREFIX, "sink")}
#: Names of the functions of users that the SQL of steps may call; their options begin with ``FUNCTION_PREFIX``.
FUNCTIONS: Final = "transform.functions"
FUNCTION_PREFIX: Final = "transform.function."
REFUSE: Final = "refuse"
SEPARATE: Final = "separate"
MERGE: Final = "merge"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")

#: Properties that begin so are handed on to the part they name, without a declaration each.
PASS_THROUGH: Final = ("kafka.", "spark.", "source.schema.registry.", "mask.")


def job_name(name: str, value: Any) -> str | None:
    """A name that can be a folder, a consumer group and a transactional id."""
    if value is not None and _NAME.match(value) is None:
        return invalid(
            name,
            value,
            "1 to 200 letters, digits, '.', '_' and '-', beginning with a letter or a digit: it names "
            "folders, the consumer group and transactions",
        )
    return None


def application_name(name: str, value: Any) -> str | None:
    """A name that people and Spark can show."""
    if _NAME.match(value) is None:
        return invalid(
            name, value, "1 to 200 letters, digits, '.', '_' and '-', beginning with a letter or a digit; or own"
        )
    return None


def _java_pattern(name: str, value: Any) -> str | None:
    from worker.transforms.java.regex import compile_java

    try:
        compile_java(value or "")
    except ConfigInvalid as error:
        return invalid(name, value, str(error).partition("\n")[0])
    return None


FRAME: Final = ConfigDef(
    [
        ConfigKey(
            name="name",
            type=_S,
            importance=_HIGH,
            group=_JOB,
            validator=job_name,
            example="orders-history",
            doc="The job's name. It names the consumer group, the folders of its state and its transactions: two jobs never "
            "share one, and a job that is given another name starts from nothing.",
        ),
        ConfigKey(
            name="kafka.bootstrap.servers",
            type=_S,
            default=None,
            importance=_HIGH,
            group=_KAFKA,
            validator=unless_null(non_empty),
            example="broker-1:9092,broker-2:9092",
            doc="Where Kafka is; a job that reads files, writes no topic and has no dead letter topic needs none. Every other "
            "property that begins with `kafka.` goes to all of the job's Kafka "
            "clients: names are the Java client's (`kafka.security.protocol`, `kafka.sasl.jaas.config`, "
            "`kafka.ssl.truststore.location` ...), and are translated for clients that are not Java.",
        ),
        ConfigKey(
            name="kafka.group.id",
            type=_S,
            default=None,
            group=_KAFKA,
            validator=unless_null(non_empty),
            doc="The consumer group to which the job commits what it has consumed, so that Kafka's tools show its "
            "lag. The job never reads these offsets back: its checkpoint holds its position. Not set: "
            "`millrace-<name>`.",
        ),
        ConfigKey(
            name=SOURCE_TYPE,
            type=_S,
            default=KAFKA,
            importance=_HIGH,
            group=_SOURCE,
            validator=one_of(KAFKA, FILES, HISTORY),
            doc="What the job reads: topics of Kafka (`kafka`), files (`files`), or the history that a files sink has written "
            "(`history`). See [sources.md](../jobs/sources.md).",
        ),
        ConfigKey(
            name="source.topics",
            type=_LIST,
            default=None,
            importance=_HIGH,
            group=_SOURCE,
            example="shop.orders,shop.lines",
            doc="The topics to read. Give these or `source.topics.pattern`.",
        ),
        ConfigKey(
            name="source.topics.pattern",
            type=_S,
            default=None,
            group=_SOURCE,
            validator=_java_pattern,
            example=r"shop\..*",
            doc="A Java regular expression: every topic whose whole name it matches is read, also those that appear later "
            "(from their beginning).",
        ),
        ConfigKey(
            name="source.format",
            type=_S,
            default=None,
            importance=_HIGH,
            group=_SOURCE,
            example="debezium",
            doc="The form of the events: `debezium`, `ums`, `partition-update` or `plain`. Needed for topics; files of JSON "
            "are `plain` unless it says otherwise.",
        ),
        ConfigKey(
            name=TABLES,
            type=_LIST,
            default=None,
            group=_SOURCE,
            example="mysql.crm.shop.*, orders",
            doc="The tables to read out of topics that many tables share: namespaces, `database.table` or the table alone, "
            "with `*` and `?` as in file names; of UMS namespaces the version and the partitions may be left out. Records of "
            "other tables are not decoded. Not set: all tables.",
        ),
        ConfigKey(
            name="source.value.encoding",
            type=_S,
            default="json",
            group=_SOURCE,
            validator=one_of("json", "avro"),
            doc="How values are written: `json` (with or without Connect's schema envelope) or `avro` (Confluent's "
            "wire format with a schema registry).",
        ),
        ConfigKey(
            name="source.key.encoding",
            type=_S,
            default="json",
            group=_SOURCE,
            validator=one_of("json", "avro", "bytes"),
            doc="How keys are written: `json`, `avro`, or `bytes` for keys that are not to be decoded.",
        ),
        ConfigKey(
            name="source.schema.registry.url",
            type=_S,
            default=None,
            group=_SOURCE,
            example="http://localhost:8081/apis/ccompat/v7",
            doc="The schema registry, for `avro`. Other properties that begin with `source.schema.registry.` are the Avro "
            "converter's (`source.schema.registry.basic.auth.user.info` ...).",
        ),
        ConfigKey(
            name="source.starting.offsets",
            type=_S,
            default="earliest",
            group=_SOURCE,
            validator=one_of("earliest", "latest"),
            doc="Where to begin when there is no checkpoint yet; with one it has no effect. Partitions that are "
            "added later are always read from their beginning.",
        ),
        ConfigKey(
            name=STARTING_GROUP,
            type=_S,
            default=None,
            group=_SOURCE,
            validator=unless_null(non_empty),
            example="connect-orders",
            doc="A consumer group, such as that of a Java sink connector: a job whose checkpoint is empty begins at the "
            "offsets that this group has committed, and at `source.starting.offsets` in partitions without one. The group must "
            "have no running members. With a checkpoint it has no effect.",
        ),
        ConfigKey(
            name="source.savepoint",
            type=_S,
            default=None,
            group=_SOURCE,
            example="hdfs://namenode/millrace/savepoints/orders-1",
            doc="A folder with a savepoint (`millrace job savepoint`): a job whose checkpoint is empty begins with its "
            "position and its state. With batches in the checkpoint it has no effect. See "
            "[savepoints.md](../jobs/savepoints.md).",
        ),
        ConfigKey(
            name="source.max.offsets.per.trigger",
            type=_L,
            default=500_000,
            unit="records",
            group=_SOURCE,
            validator=at_least(1),
            doc="The most that one batch reads, over all partitions. It bounds memory and the time that a batch "
            "takes, and with it how much is repeated after a crash.",
        ),
        ConfigKey(
            name="source.fail.on.data.loss",
            type=_B,
            default=True,
            group=_SOURCE,
            doc="Stop when records that were not read yet are gone: deleted by retention, or with their topic. "
            "`false` continues with what exists, and says in the log what is missing.",
        ),
        ConfigKey(
            name="source.isolation.level",
            type=_S,
            default="read_committed",
            importance=_LOW,
            group=_SOURCE,
            validator=one_of("read_committed", "read_uncommitted"),
            doc="Whether records of open and aborted transactions are read.",
        ),
        ConfigKey(
            name="source.min.partitions",
            type=_I,
            default=None,
            importance=_LOW,
            group=_SOURCE,
            validator=unless_null(at_least(1)),
            doc="Split the topics' partitions into at least this number of Spark tasks. Then the changes of one key may "
            "be in two tasks of a batch: only for sinks and transformations that need no order, so refused "
            "with `materialize`.",
        ),
        *MASK_KEYS,
        ConfigKey(
            name="transform.type",
            type=_S,
            default="none",
            importance=_HIGH,
            group=_OUT,
            validator=one_of("none", MATERIALIZE),
            doc="`materialize` merges changes into row images (options `materializer.*`) and writes them to Kafka; "
            "`none` hands the changes to the sink as they are.",
        ),
        ConfigKey(
            name=STEPS,
            type=_LIST,
            default=None,
            importance=_HIGH,
            group=_OUT,
            example="paid,columns",
            doc="Names of steps, in order: each one transforms the changes before the next step and the sink get them. "
            "`transform.step.<name>.type` says what a step does (`filter`, `select`, `sql`, `mask`, `union`, `route`, "
            "`deduplicate`, `lookup`, `python`), its other options begin with `transform.step.<name>.`. In a job file, a list "
            "of mappings with `name`, `type` and options says the same. See [steps.md](../jobs/steps.md).",
        ),
        ConfigKey(
            name=FUNCTIONS,
            type=_LIST,
            default=None,
            group=_OUT,
            example="initials",
            doc="Names of Python functions that the expressions of steps may call. `transform.function.<name>.python.file` and "
            "`.python.function` say where a function is, `.type` the type of its result; see "
            "[python-steps.md](../jobs/python-steps.md).",
        ),
        ConfigKey(
            name=SINKS,
            type=_LIST,
            default=None,
            importance=_HIGH,
            group=_OUT,
            example="database,history",
            doc="Names of the sinks of a flow that has several: each gets all changes, with its own guarantee, progress and "
            "retries. What a single sink has below `sink.` is below `sink.<name>.` (`sink.database.type=jdbc`, "
            "`sink.database.jdbc.url=...`). In a job file, a list of mappings with `name`, `type` and options says the same. "
            "See [sinks.md](../jobs/sinks.md).",
        ),
        ConfigKey(
            name=SINKS_ONLY,
            type=_LIST,
            default=None,
            importance=_LOW,
            group=_OUT,
            doc="Run only these of `sinks`. Not set: all. A connector's tasks set it: each runs one sink.",
        ),
        ConfigKey(
            name=SINKS_MAX_LAG,
            type=_L,
            default=-1,
            unit="records",
            group=_OUT,
            validator=at_least(-1),
            doc="How many records the slowest of `sinks` may be behind another one, before that one waits for it (it may be "
            "ahead by this number and one batch). -1: any number; no sink waits for another, and the retention of the topics "
            "is the bound. For topics only.",
        ),
        ConfigKey(
            name="sink.type",
            type=_S,
            importance=_HIGH,
            group=_OUT,
            example="jdbc",
            doc="Where the changes go: `console`, `files`, `jdbc` or `kafka`, or `module:Class` of a sink of your "
            "own. Its options begin with `sink.<type>.`.",
        ),
        *SCHEMA_KEYS,
        ConfigKey(
            name=SHARDS,
            type=_S,
            default=REFUSE,
            importance=_HIGH,
            group=_OUT,
            validator=one_of(REFUSE, SEPARATE, MERGE),
            doc="How shards of one logical table are written (UMS: the last two parts of the namespace; Debezium: "
            "`database_partition` and `table_partition` in `source`). `refuse` stops the job at the second shard of a "
            "table; `separate` adds both numbers as BIGINT columns, first in the key; `merge` takes rows of one key for "
            "one row, whichever shard they come from: the one with the largest order number stays. The materializer "
            "refuses every number but 0.",
        ),
        ConfigKey(
            name="guarantee",
            type=_S,
            default=None,
            importance=_HIGH,
            group=_OUT,
            validator=one_of(*GUARANTEES),
            doc="What must hold when the job, Spark or Kafka dies at any moment: every change once, at least once, "
            "or neither. A sink that can't promise it is refused. Not set: the strongest that the sink offers.",
        ),
        ConfigKey(
            name="trigger.mode",
            type=_S,
            default=CONTINUOUS,
            group=_RUN,
            validator=one_of(CONTINUOUS, AVAILABLE_NOW),
            doc="`continuous` runs until it is stopped; `available-now` processes what is there when it starts, then ends.",
        ),
        ConfigKey(
            name="trigger.interval.ms",
            type=_L,
            default=1000,
            unit="ms",
            group=_RUN,
            validator=between(0, 86_400_000),
            doc="Time from the start of a batch to the start of the next one. 0: at once. Larger batches cost less "
            "per record; smaller ones are sooner.",
        ),
        ConfigKey(
            name="checkpoint.location",
            type=_S,
            default=None,
            importance=_HIGH,
            group=_RUN,
            example="hdfs://namenode/millrace/orders",
            doc="A folder on any file system that Hadoop knows: how far the job has come. Losing it means to begin "
            "again at `source.starting.offsets`. Not set: `checkpoint` in `state.dir` if that is given, else a "
            "folder of this machine's state (`millrace job plan` prints it), which is enough as long as the "
            "job always runs here.",
        ),
        ConfigKey(
            name="savepoint.location",
            type=_S,
            default=None,
            group=_RUN,
            example="hdfs://namenode/millrace/savepoints/orders",
            doc="The folder for savepoints that are asked for over REST, each in a folder by its name. Not set: a folder of "
            "this machine's state.",
        ),
        ConfigKey(
            name="state.dir",
            type=_S,
            default=None,
            group=_RUN,
            doc="A local folder for caches that can be rebuilt (on every machine that runs tasks). Not set: "
            "`jobs/<name>` in the cache folder.",
        ),
        ConfigKey(
            name="stop.timeout.ms",
            type=_L,
            default=120_000,
            unit="ms",
            importance=_LOW,
            group=_RUN,
            validator=at_least(0),
            doc="How long a job that is asked to stop may take to finish its batch. After that the batch is given "
            "up; it is repeated at the next start.",
        ),
        ConfigKey(
            name="errors.tolerance",
            type=_S,
            default="none",
            group=_ERRORS,
            validator=one_of("none", "all"),
            doc="What becomes of a record that can't be decoded: `none` stops the job and names its position; "
            "`all` puts it aside (see `errors.deadletterqueue.topic.name`) and continues.",
        ),
        ConfigKey(
            name="errors.deadletterqueue.topic.name",
            type=_S,
            default=None,
            group=_ERRORS,
            example="orders-dead",
            doc="The topic for records that can't be decoded, unchanged, with headers that say where they stood "
            "and what is wrong (Connect's names, `__connect.errors.*`). With `errors.tolerance=all` and no "
            "topic they are only counted and logged.",
        ),
        ConfigKey(
            name="errors.deadletterqueue.topic.replication.factor",
            type=_I,
            default=-1,
            importance=_LOW,
            group=_ERRORS,
            doc="For the dead letter topic when the job has to make it; -1: the broker's default.",
        ),
        ConfigKey(
            name="errors.deadletterqueue.context.headers.enable",
            type=_B,
            default=True,
            importance=_LOW,
            group=_ERRORS,
            doc="Whether dead letters carry the headers with position and cause.",
        ),
        ConfigKey(
            name="errors.retry.timeout.ms",
            type=_L,
            default=-1,
            unit="ms",
            group=_ERRORS,
            validator=at_least(-1),
            doc="How long the same batch is retried while the sink is unavailable, before the job fails. -1: without end.",
        ),
        ConfigKey(
            name="errors.retry.delay.ms",
            type=_L,
            default=500,
            unit="ms",
            importance=_LOW,
            group=_ERRORS,
            validator=at_least(1),
            doc="Pause before the first further try; it doubles with each.",
        ),
        ConfigKey(
            name="errors.retry.delay.max.ms",
            type=_L,
            default=60_000,
            unit="ms",
            importance=_LOW,
            group=_ERRORS,
            validator=at_least(1),
            doc="The longest pause between tries.",
        ),
        ConfigKey(
            name="errors.worker.crashes.max",
            type=_I,
            default=5,
            importance=_LOW,
            group=_ERRORS,
            validator=at_least(1),
            doc="How often in a row a batch may crash Python workers of Spark (killed, out of memory, a fault in C code) "
            "before the job fails. Until then the batch is repeated. Workers that end because Kafka's client hung "
            "don't count.",
        ),
        ConfigKey(
            name="spark.master",
            type=_S,
            default="local[*]",
            importance=_HIGH,
            group=_SPARK,
            validator=non_empty,
            example="spark://master:7077",
            doc="Where the tasks run: `local[N]` (this process, N cores; `*`: all), `spark://host:port`, `yarn`, "
            "`k8s://...`. All properties that begin with `spark.` are Spark's own and are passed to it.",
        ),
        ConfigKey(
            name=APPLICATION,
            type=_S,
            default=None,
            group=_SPARK,
            validator=unless_null(application_name),
            example="orders",
            doc="The Spark application (one driver process) in which a connector's job runs. Jobs of one name share it, on one "
            "worker, and must have the same `spark.*` settings. `own`: a process of its own. Not set: jobs on one machine "
            "whose `spark.*` settings are the same share one. `millrace job run` always uses a process of "
            "its own.",
        ),
        ConfigKey(
            name="preview.idle.ms",
            type=_L,
            default=300_000,
            unit="ms",
            importance=_LOW,
            group=_SPARK,
            validator=between(1000, 86_400_000),
            doc="How long the Spark application that a preview of this job starts waits for the next preview before it ends. "
            "The first preview waits for its start; the next ones take a second or two.",
        ),
        ConfigKey(
            name="metrics.port",
            type=_I,
            default=0,
            group=_METRICS,
            validator=between(0, 65535),
            doc="Serve the job's metrics to Prometheus on this port of `metrics.host` (`GET /metrics`). 0: off. A "
            "job that a worker runs shows them on the worker's `/metrics` anyway.",
        ),
        ConfigKey(
            name="metrics.host",
            type=_S,
            default="127.0.0.1",
            importance=_LOW,
            group=_METRICS,
            validator=non_empty,
            doc="The address that `metrics.port` listens on.",
        ),
    ]
)
