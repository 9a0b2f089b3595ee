"""ClickHouse's own sink (clickhouse-kafka-connect). Source of the options: its documentation and configuration class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.java_sinks.translation.converters import BYTES
from spark_jobs.java_sinks.translation.documents import topic_names
from spark_jobs.java_sinks.translation.model import FLAT, JavaOption, JavaSink
from spark_jobs.java_sinks.translation.table_names import translate_names

if TYPE_CHECKING:
    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

_PREFIX: Final = "sink.clickhouse."
_URL: Final = f"{_PREFIX}url"
_TABLES: Final = "topic2TableMap"
_NO_KEEPER: Final = (
    "positions are columns of the rows, and the engine of the table knows repeated ones: no Keeper is needed"
)
_FORMAT: Final = "rows are sent in Arrow, by the columns of the table"
_PROXY: Final = "requests go to the server itself: name the proxy's address in hostname"

OPTIONS: Final = (
    JavaOption(name="hostname", doc="The host.", to=(_URL,)),
    JavaOption(name="port", doc="The port for HTTP.", default="8443", to=(_URL,)),
    JavaOption(name="ssl", doc="Whether TLS is used.", default="true", to=(_URL,)),
    JavaOption(name="database", doc="The database.", default="default", to=(f"{_PREFIX}database",), copied=True),
    JavaOption(name="username", doc="The login.", default="default", to=(f"{_PREFIX}user",), copied=True),
    JavaOption(name="password", doc="The login's password.", secret=True, to=(f"{_PREFIX}password",), copied=True),
    JavaOption(name="timeoutSeconds", doc="The timeout, in seconds.", default="30", to=(f"{_PREFIX}timeout.ms",)),
    JavaOption(
        name="retryCount", doc="How often a request is repeated.", default="3", to=(f"{_PREFIX}retries",), copied=True
    ),
    JavaOption(name=_TABLES, doc="Tables of single topics.", to=(f"{_PREFIX}table", "transform.steps")),
    JavaOption(
        name="exactlyOnce",
        doc="Whether positions are kept in KeeperMap.",
        default="false",
        to=("guarantee",),
        values={"true": "exactly-once", "false": "at-least-once"},
    ),
    JavaOption(name="zkPath", doc="The path of positions in Keeper.", default="/kafka-connect", without=_NO_KEEPER),
    JavaOption(name="zkDatabase", doc="The table of positions.", default="connect_state", without=_NO_KEEPER),
    JavaOption(name="keeperOnCluster", doc="The cluster of that table.", without=_NO_KEEPER),
    JavaOption(
        name="tolerateStateMismatch", doc="Whether older records are left out.", default="false", without=_NO_KEEPER
    ),
    JavaOption(
        name="jdbcConnectionProperties", doc="Parameters of the driver.", without="the sink uses a client of its own"
    ),
    JavaOption(
        name="clickhouseSettings",
        doc="Settings of inserts.",
        without="set them for the login in ClickHouse (ALTER USER ... SETTINGS)",
    ),
    JavaOption(
        name="tableRefreshInterval",
        doc="How often tables are looked up, in seconds.",
        default="0",
        without="the job adds columns when the source does",
    ),
    JavaOption(
        name="customInsertFormat", doc="Whether the format of inserts is chosen.", default="false", without=_FORMAT
    ),
    JavaOption(name="insertFormat", doc="The format of inserts.", default="none", without=_FORMAT),
    JavaOption(name="bypassRowBinary", doc="Whether JSON is sent.", default="false", without=_FORMAT),
    JavaOption(
        name="bypassSchemaValidation", doc="Whether columns are not compared.", default="false", without=_FORMAT
    ),
    JavaOption(
        name="bypassFieldCleanup",
        doc="Whether unknown fields are sent.",
        default="false",
        without="the table gets the columns that it lacks",
    ),
    JavaOption(
        name="suppressTableExistenceException",
        doc="Whether topics without a table are left out.",
        default="false",
        without="a table that is missing is created",
    ),
    JavaOption(
        name="dateTimeFormats",
        doc="How strings become times.",
        refused="strings stay strings: convert them by a step of type select with to_timestamp",
    ),
    JavaOption(
        name="enableDbTopicSplit",
        doc="Whether the topic begins with the database.",
        default="false",
        refused="all tables are in one database: make a connector for each, or name tables ${database}_${table} in "
        "sink.clickhouse.table",
    ),
    JavaOption(
        name="dbTopicSplitChar", doc="What ends the database in a topic's name.", without="topics are not split"
    ),
    JavaOption(
        name="ignorePartitionsWhenBatching",
        doc="Whether rows of several partitions are inserted together.",
        default="false",
        same=("true",),
        without="they are",
    ),
    JavaOption(
        name="clientVersion",
        doc="The version of the driver.",
        default="V2",
        same=("v1",),
        without="the sink uses a client of its own",
    ),
    JavaOption(name="proxyType", doc="The kind of a proxy.", default="ignore", refused=_PROXY),
    JavaOption(name="proxyHost", doc="A proxy.", without=_PROXY),
    JavaOption(name="proxyPort", doc="Its port.", default="-1", without=_PROXY),
)


def _translate_clickhouse(request: TranslationRequest, answer: TranslatedJob) -> None:
    scheme = "https" if request.flag("ssl") else "http"
    if request.has("hostname"):
        answer.put(_URL, f"{scheme}://{request.text('hostname')}:{request.text('port')}", "hostname")
    answer.put(f"{_PREFIX}user", request.text("username"), "username")
    if request.has("timeoutSeconds"):
        answer.put(f"{_PREFIX}timeout.ms", f"{request.text('timeoutSeconds')}000", "timeoutSeconds")
    # Java inserts every record, whatever its key; a record without a value has nothing to insert.
    answer.put(f"{_PREFIX}mode", "insert", "connector.class")
    answer.put("source.key.encoding", BYTES, "connector.class")
    answer.put("source.tombstones", "ignore", "connector.class")
    answer.note(
        "connector.class",
        "rows are appended, each once; tables get the columns ums_id_, ums_ts_, ums_op_, ums_uid_, kafka_topic_, "
        "kafka_partition_, kafka_offset_ and kafka_number_",
    )
    pairs = (item.partition("=") for item in request.items(_TABLES))
    fixed = {topic.strip(): name.strip() for topic, _, name in pairs}
    translate_names(request, topic_names(_TABLES, f"{_PREFIX}table", fixed), answer)


SINK: Final = JavaSink(
    title="ClickHouse sink",
    class_names=("com.clickhouse.kafka.connect.ClickHouseSinkConnector",),
    sink_type="clickhouse",
    form=FLAT,
    options=OPTIONS,
    translate=_translate_clickhouse,
)
