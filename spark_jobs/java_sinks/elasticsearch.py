"""The Elasticsearch and OpenSearch sinks of Confluent and Aiven, of one ancestor. Source: their configuration classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.java_sinks.translation.converters import BYTES
from spark_jobs.java_sinks.translation.documents import demand_key, topic_names, translate_deletes
from spark_jobs.java_sinks.translation.model import FLAT, JavaOption, JavaSink
from spark_jobs.java_sinks.translation.table_names import translate_names

if TYPE_CHECKING:
    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

_PREFIX: Final = "sink.opensearch."
_INDEX: Final = f"{_PREFIX}index"
_MODE: Final = f"{_PREFIX}mode"
_NULLS: Final = "behavior.on.null.values"
_MALFORMED: Final = "behavior.on.malformed.documents"
_TOLERANCE: Final = "errors.tolerance"
_STREAMS: Final = "data streams are not written: create an index (an alias) and name it in sink.opensearch.index"
_STORES: Final = (
    "key stores of Java are not read: put certificates in PEM files and name them in sink.opensearch.ssl.root.cert, "
    "sink.opensearch.ssl.cert and sink.opensearch.ssl.key"
)
_PARTIAL: Final = "documents are replaced as a whole, for only so can the server keep the newest; send whole rows"
_BY_SCHEMA: Final = "indices are created with fields for the columns; one that exists keeps its mapping"

_SHARED: Final = (
    JavaOption(name="connection.url", doc="The nodes.", to=(f"{_PREFIX}url",), copied=True),
    JavaOption(name="connection.username", doc="The login.", to=(f"{_PREFIX}user",), copied=True),
    JavaOption(
        name="connection.password", doc="The login's password.", secret=True, to=(f"{_PREFIX}password",), copied=True
    ),
    JavaOption(
        name="max.retries", doc="How often a request is repeated.", default="5", to=(f"{_PREFIX}retries",), copied=True
    ),
    JavaOption(
        name="retry.backoff.ms",
        doc="The pause before that, in milliseconds.",
        default="100",
        to=(f"{_PREFIX}retry.backoff.ms",),
        copied=True,
    ),
    JavaOption(
        name="connection.timeout.ms",
        doc="How long a connection may take, in milliseconds.",
        default="1000",
        without="sink.opensearch.timeout.ms is for connections and answers",
    ),
    JavaOption(
        name="read.timeout.ms",
        doc="How long an answer may take, in milliseconds.",
        default="3000",
        to=(f"{_PREFIX}timeout.ms",),
        copied=True,
    ),
    JavaOption(
        name="key.ignore",
        doc="Whether the position in Kafka names documents in place of the key.",
        default="false",
        to=(_MODE,),
        values={"true": "insert", "false": "upsert"},
    ),
    JavaOption(
        name="topic.key.ignore",
        doc="Topics of which the position names documents.",
        refused="all topics of a job are written in one way: make two connectors",
    ),
    JavaOption(name="schema.ignore", doc="Whether mappings come from values.", default="false", without=_BY_SCHEMA),
    JavaOption(name="topic.schema.ignore", doc="Topics of which they do.", without=_BY_SCHEMA),
    JavaOption(
        name="compact.map.entries",
        doc="Whether a map is an object.",
        default="true",
        refused="maps are objects. Remove it, and change queries that expect lists of key and value",
    ),
    JavaOption(
        name="drop.invalid.message",
        doc="Whether records that can't be converted are dropped.",
        default="false",
        to=(_TOLERANCE,),
    ),
    JavaOption(name=_NULLS, doc="What a record without a value does.", to=("source.tombstones", "transform.steps")),
    JavaOption(name=_MALFORMED, doc="What a refused document does.", default="fail", to=(_TOLERANCE,)),
)
CONFLUENT_OPTIONS: Final = (
    *_SHARED,
    JavaOption(
        name="batch.size", doc="Documents per request.", default="2000", to=(f"{_PREFIX}batch.rows",), copied=True
    ),
    JavaOption(
        name="bulk.size.bytes", doc="Bytes per request.", default="5242880", to=(f"{_PREFIX}batch.bytes",), copied=True
    ),
    JavaOption(
        name="linger.ms",
        doc="How long a request waits for more, in milliseconds.",
        default="1",
        to=(f"{_PREFIX}batch.ms",),
        copied=True,
    ),
    JavaOption(
        name="max.in.flight.requests",
        doc="Requests at a time.",
        default="5",
        without="sink.opensearch.connections tasks have one each",
    ),
    JavaOption(
        name="max.buffered.records",
        doc="Records held by a task.",
        default="20000",
        without="a task holds one request of rows at a time",
    ),
    JavaOption(
        name="flush.timeout.ms",
        doc="How long a flush may take, in milliseconds.",
        default="180000",
        without="a batch is given back to the job when its requests fail",
    ),
    JavaOption(
        name="flush.synchronously",
        doc="Whether a flush waits for all requests.",
        default="false",
        same=("true",),
        without="a batch always waits for all of its requests",
    ),
    JavaOption(
        name="max.connection.idle.time.ms",
        doc="How long an idle connection is kept, in milliseconds.",
        default="60000",
        without="a connection lives as long as its task",
    ),
    JavaOption(
        name="connection.compression",
        doc="Whether requests are compressed.",
        default="false",
        without="requests are not compressed",
    ),
    JavaOption(
        name="auto.create.indices.at.start",
        doc="Whether indices are created at the start.",
        default="true",
        without="an index is created with the first rows of its table",
    ),
    JavaOption(
        name="type.name",
        doc="The type of documents.",
        default="_doc",
        same=("",),
        without="documents have no types any more",
    ),
    JavaOption(name="topic.index.map", doc="Indices of single topics.", to=(_INDEX, "transform.steps")),
    JavaOption(
        name="write.method",
        doc="Whether documents are replaced or updated.",
        default="insert",
        refused=_PARTIAL,
    ),
    JavaOption(
        name="use.autogenerated.ids",
        doc="Whether the server names documents.",
        default="false",
        refused="a repeated record would become a second document: use key.ignore=true, which names them by their position",
    ),
    JavaOption(
        name="external.version.header",
        doc="The header with the document's version.",
        refused="the version is the change's order number. Put the header's number into a column ums_id_ by a transform "
        "(HeaderToValue), and remove it",
    ),
    JavaOption(name="data.stream.type", doc="The type of a data stream.", default="none", refused=_STREAMS),
    JavaOption(name="data.stream.dataset", doc="The data set of a data stream.", refused=_STREAMS),
    JavaOption(
        name="data.stream.namespace", doc="The namespace of a data stream.", default="${topic}", refused=_STREAMS
    ),
    JavaOption(name="data.stream.timestamp.field", doc="The field with the time.", refused=_STREAMS),
    JavaOption(
        name="external.resource.usage",
        doc="What kind of target exists already.",
        default="disabled",
        same=("index", "alias_index"),
        refused=_STREAMS,
    ),
    JavaOption(
        name="topic.to.external.resource.mapping",
        doc="Targets of single topics.",
        to=(_INDEX, "transform.steps"),
    ),
    JavaOption(
        name="elastic.security.protocol",
        doc="Whether TLS is used.",
        default="plaintext",
        same=("ssl",),
        without="the URL says whether TLS is used",
    ),
    JavaOption(
        name="proxy.host", doc="A proxy.", refused="requests go to the nodes themselves: name the proxy's address"
    ),
    JavaOption(name="proxy.port", doc="Its port.", default="8080", without="there is no proxy"),
    JavaOption(name="proxy.username", doc="Its login.", without="there is no proxy"),
    JavaOption(name="proxy.password", doc="The proxy's password.", secret=True, without="there is no proxy"),
    JavaOption(
        name="kerberos.user.principal", doc="The name in Kerberos.", refused="a login is a user or a key of the API"
    ),
    JavaOption(name="kerberos.keytab.path", doc="Its key.", refused="a login is a user or a key of the API"),
    JavaOption(
        name="log.sensitive.data",
        doc="Whether the log has documents.",
        default="false",
        without="a job logs no documents",
    ),
)
AIVEN_OPTIONS: Final = (
    *_SHARED,
    JavaOption(
        name="bulk.max.operations.size",
        doc="Documents per request.",
        default="1000",
        to=(f"{_PREFIX}batch.rows",),
        copied=True,
        aliases=("batch.size",),
    ),
    JavaOption(
        name="bulk.max.size", doc="Bytes per request.", default="5242880", to=(f"{_PREFIX}batch.bytes",), copied=True
    ),
    JavaOption(
        name="bulk.max.concurrent.requests",
        doc="Requests at a time.",
        default="1",
        without="sink.opensearch.connections tasks have one each",
        aliases=("max.in.flight.requests",),
    ),
    JavaOption(
        name="key.ignore.id.strategy",
        doc="What names documents without their key.",
        default="topic.partition.offset",
        refused="documents are named by their position (topic.partition.offset) or their key",
    ),
    JavaOption(
        name="behavior.on.version.conflict",
        doc="What a document that the index has newer does.",
        default="fail",
        same=("ignore", "warn", "report", "error"),
        without="the newer one stays, and the older one is counted in opensearch_stale_total",
    ),
    JavaOption(
        name="index.write.method", doc="Whether documents are replaced or updated.", default="insert", refused=_PARTIAL
    ),
    JavaOption(name="data.stream.enabled", doc="Whether data streams are written.", default="false", refused=_STREAMS),
    JavaOption(name="data.stream.prefix", doc="What a data stream's name begins with.", refused=_STREAMS),
    JavaOption(
        name="data.stream.timestamp.field", doc="The field with the time.", default="@timestamp", refused=_STREAMS
    ),
    JavaOption(name="data.streams.existing.index.template.name", doc="The template of data streams.", refused=_STREAMS),
    JavaOption(
        name="routing.type",
        doc="What chooses the shard.",
        default="none",
        refused="the document's _id chooses the shard. Remove it, and write to a new index",
    ),
    JavaOption(
        name="routing.type.record.value.path", doc="The field that chooses it.", without="the _id chooses the shard"
    ),
    JavaOption(
        name="connection.trust.all.certificates",
        doc="Whether the server is not verified.",
        default="false",
        to=(f"{_PREFIX}ssl.mode",),
        values={"true": "require", "false": "prefer"},
    ),
    JavaOption(
        name="type.name", doc="The type of documents.", default="_doc", without="documents have no types any more"
    ),
    JavaOption(name="topic.index.map", doc="Indices of single topics.", to=(_INDEX, "transform.steps")),
    JavaOption(
        name="linger.ms",
        doc="How long a request waits for more, in milliseconds.",
        default="1",
        to=(f"{_PREFIX}batch.ms",),
        copied=True,
    ),
    JavaOption(
        name="max.buffered.records",
        doc="Records held by a task.",
        default="20000",
        without="a task holds one request of rows at a time",
    ),
    JavaOption(
        name="flush.timeout.ms",
        doc="How long a flush may take, in milliseconds.",
        default="10000",
        without="a batch is given back to the job when its requests fail",
    ),
)
_DROPPED: Final = "such records are put aside: name a dead letter topic to keep them"


def _translate_elasticsearch(request: TranslationRequest, answer: TranslatedJob) -> None:
    if request.flag("key.ignore"):
        answer.put("source.key.encoding", BYTES, "key.ignore")
    else:
        answer.put(_MODE, "upsert", "key.ignore")
        demand_key(request, answer, "a document is named by its key")
    nulls = request.text(_NULLS).lower()
    translate_deletes(request, answer, _NULLS, deletes=nulls == "delete")
    if nulls == "fail":
        answer.note(_NULLS, f"{_NULLS}=fail has no counterpart: records without a value are left out")
    dropping = request.flag("drop.invalid.message") or request.text(_MALFORMED).lower() in ("ignore", "warn", "report")
    if dropping and request.text(_TOLERANCE).lower() != "all":
        option = _MALFORMED if request.has(_MALFORMED) else "drop.invalid.message"
        answer.put(_TOLERANCE, "all", option)
        answer.note(option, _DROPPED)
    for name in request.config:
        if name.startswith(("elastic.https.", "connection.ssl.")):
            answer.refuse(name, f"{name} can't be translated: {_STORES}")
    mapping = (
        "topic.to.external.resource.mapping" if request.has("topic.to.external.resource.mapping") else "topic.index.map"
    )
    pairs = (item.partition(":") for item in request.items(mapping))
    translate_names(
        request, topic_names(mapping, _INDEX, {topic.strip(): name.strip() for topic, _, name in pairs}), answer
    )


CONFLUENT: Final = JavaSink(
    title="Confluent Elasticsearch sink",
    class_names=("io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",),
    sink_type="opensearch",
    form=FLAT,
    options=CONFLUENT_OPTIONS,
    translate=_translate_elasticsearch,
    prefixes={"elastic.https.": ""},
)
AIVEN: Final = JavaSink(
    title="Aiven OpenSearch sink",
    class_names=(
        "io.aiven.kafka.connect.opensearch.OpenSearchSinkConnector",
        "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector",
        "io.aiven.connect.elasticsearch.ElasticsearchSinkConnector",
    ),
    sink_type="opensearch",
    form=FLAT,
    options=AIVEN_OPTIONS,
    translate=_translate_elasticsearch,
    prefixes={"connection.ssl.": ""},
)
