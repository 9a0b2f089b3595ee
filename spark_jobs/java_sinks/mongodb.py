"""MongoDB's own sink (mongo-kafka). Source of the options: its documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from spark_jobs.java_sinks.translation.documents import demand_key, topic_names, translate_deletes
from spark_jobs.java_sinks.translation.model import ENVELOPE, FLAT, JavaOption, JavaSink
from spark_jobs.java_sinks.translation.table_names import TOPIC, translate_names

if TYPE_CHECKING:
    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

_PREFIX: Final = "sink.mongodb."
_URI: Final = "connection.uri"
_MODEL: Final = "writemodel.strategy"
_IDS: Final = "document.id.strategy"
_CDC: Final = "change.data.capture.handler"
_DELETES: Final = "delete.on.null.values"
_TOLERANCE: Final = "mongo.errors.tolerance"
_PACKAGE: Final = "com.mongodb.kafka.connect.sink.writemodel.strategy."
_PARTIAL: Final = "document.id.strategy.partial"
_KEPT: Final = "columns are chosen and renamed by a step of type select"
_TIMES: Final = "time series collections are not written: their documents can't be replaced"
_STORES: Final = f"a job reads PEM files: set {_PREFIX}ssl.mode, {_PREFIX}ssl.root.cert, ssl.cert and ssl.key"
_NO_API: Final = "commands are sent without a version of the API"
_KEY_COLUMNS: Final = f"{_PREFIX}key.columns"
_AS_DOCUMENT: Final = f"{_PREFIX}id.document"
#: Strategies by the end of the class name, in lower case: those that replace a document or add one.
_REPLACING: Final = frozenset({"defaultwritemodelstrategy", "replaceonedefaultstrategy", "insertonedefaultstrategy"})
#: The id is the key, or a part of key or value, as a document of its fields; or it is their field ``_id``.
_BY_KEY: Final = frozenset({"fullkeystrategy", "partialkeystrategy", "partialvaluestrategy"})
_PROVIDED: Final = frozenset({"providedinkeystrategy", "providedinvaluestrategy"})
_BY_POSITION: Final = frozenset({"kafkametadatastrategy", "bsonoidstrategy", "uuidstrategy"})
#: Handlers of Debezium's envelopes of rows.
_ENVELOPES: Final = frozenset({"rdbmshandler", "mysqlhandler", "postgreshandler"})

OPTIONS: Final = (
    JavaOption(
        name=_URI,
        doc="Where MongoDB is.",
        default="mongodb://localhost:27017",
        secret=True,
        to=(f"{_PREFIX}url", f"{_PREFIX}user", f"{_PREFIX}password"),
    ),
    JavaOption(name="database", doc="The database.", to=(f"{_PREFIX}database",), copied=True),
    JavaOption(name="collection", doc="The collection; without it the topic.", to=(f"{_PREFIX}collection",)),
    JavaOption(
        name=_DELETES, doc="Whether a record without a value deletes.", default="false", to=("source.tombstones",)
    ),
    JavaOption(name=_MODEL, doc="How documents are written.", to=(f"{_PREFIX}mode",)),
    JavaOption(
        name="delete.writemodel.strategy",
        doc="How documents are deleted.",
        default=f"{_PACKAGE}DeleteOneDefaultStrategy",
        same=("deleteonedefaultstrategy",),
        refused="the document of the key is removed. Remove it",
    ),
    JavaOption(name=_IDS, doc="What names documents.", to=(f"{_PREFIX}mode", _AS_DOCUMENT, _KEY_COLUMNS)),
    *(
        JavaOption(
            name=f"{_PARTIAL}.{part}.projection.{kind}",
            doc=f"{'Which' if kind == 'list' else 'Whether the listed'} fields of the {part} name documents.",
            to=(_KEY_COLUMNS,),
        )
        for part in ("key", "value")
        for kind in ("type", "list")
    ),
    JavaOption(name=_CDC, doc="How envelopes are read.", to=("source.format",)),
    JavaOption(name="max.batch.size", doc="Documents per request.", default="0", to=(f"{_PREFIX}batch.rows",)),
    JavaOption(name=_TOLERANCE, doc="What a refused document does.", default="none", to=("errors.tolerance",)),
    JavaOption(
        name="bulk.write.ordered",
        doc="Whether a request ends at its first error.",
        default="true",
        same=("false",),
        without="an error of one document does not stop the others",
    ),
    JavaOption(
        name="document.id.strategy.overwrite.existing",
        doc="Whether a field _id is replaced.",
        default="false",
        without="the key is the _id",
    ),
    JavaOption(
        name="document.id.strategy.uuid.format", doc="The form of a UUID.", default="string", without="no UUID is made"
    ),
    JavaOption(
        name="rate.limiting.timeout",
        doc="A pause between requests, in milliseconds.",
        default="0",
        without="requests are not paused",
    ),
    JavaOption(
        name="rate.limiting.every.n", doc="How often there is one.", default="0", without="requests are not paused"
    ),
    JavaOption(
        name="max.num.retries",
        doc="How often a request is repeated.",
        default="1",
        to=(f"{_PREFIX}retries",),
        copied=True,
    ),
    JavaOption(
        name="retries.defer.timeout",
        doc="The pause before that, in milliseconds.",
        default="5000",
        to=(f"{_PREFIX}retry.backoff.ms",),
        copied=True,
    ),
    JavaOption(
        name="post.processor.chain",
        doc="What is done to documents.",
        default="com.mongodb.kafka.connect.sink.processor.DocumentIdAdder",
        refused=_KEPT,
    ),
    JavaOption(name="key.projection.type", doc="Which fields of keys are kept.", default="none", refused=_KEPT),
    JavaOption(name="key.projection.list", doc="Fields of keys.", refused=_KEPT),
    JavaOption(name="value.projection.type", doc="Which fields are kept.", default="none", refused=_KEPT),
    JavaOption(name="value.projection.list", doc="Fields.", refused=_KEPT),
    JavaOption(name="field.renamer.mapping", doc="New names of fields.", default="[]", refused=_KEPT),
    JavaOption(name="field.renamer.regexp", doc="New names by pattern.", default="[]", refused=_KEPT),
    JavaOption(
        name="namespace.mapper",
        doc="What chooses the collection.",
        default="com.mongodb.kafka.connect.sink.namespace.mapping.DefaultNamespaceMapper",
        refused="the topic names the collection; rows are divided by a step of type route",
    ),
    JavaOption(name="timeseries.timefield", doc="The field with the time.", refused=_TIMES),
    JavaOption(
        name="mongo.errors.log.enable",
        doc="Whether errors are logged.",
        default="false",
        without="the first ones are logged",
    ),
    JavaOption(name="server.api.version", doc="The version of the API.", without=_NO_API),
    JavaOption(
        name="server.api.deprecation.errors",
        doc="Whether deprecated commands fail.",
        default="false",
        without=_NO_API,
    ),
    JavaOption(name="server.api.strict", doc="Whether other commands fail.", default="false", without=_NO_API),
    JavaOption(name="connection.ssl.truststore", doc="The trust store.", refused=_STORES),
    JavaOption(name="connection.ssl.truststorePassword", doc="The store's password.", secret=True, without=_STORES),
    JavaOption(name="connection.ssl.keystore", doc="The key store.", refused=_STORES),
    JavaOption(name="connection.ssl.keystorePassword", doc="The store's password.", secret=True, without=_STORES),
)


def _end_of(request: TranslationRequest, option: str) -> str:
    return request.text(option).rpartition(".")[2].lower()


def _translate_mongodb(request: TranslationRequest, answer: TranslatedJob) -> None:
    _translate_address(request, answer)
    by_handler = request.has(_CDC)
    if by_handler and not _read_envelopes(request, answer):
        return
    by_position = not by_handler and _is_by_position(request, answer)
    answer.put(f"{_PREFIX}mode", "insert" if by_position else "upsert", _IDS)
    if by_handler:
        answer.put(_AS_DOCUMENT, "true", _CDC)
    elif not by_position:
        _name_documents(request, answer)
    if not by_position:
        demand_key(request, answer, "a document is named by its key")
    deletes = by_handler or (request.flag(_DELETES) and not by_position)
    translate_deletes(request, answer, _DELETES, deletes=deletes)
    size = request.text("max.batch.size")
    if size not in ("", "0"):
        answer.put(f"{_PREFIX}batch.rows", size, "max.batch.size")
    if request.text(_TOLERANCE).lower() in ("all", "data"):
        answer.put("errors.tolerance", "all", _TOLERANCE)
    pattern = request.text("collection") or TOPIC
    translate_names(request, topic_names("collection", f"{_PREFIX}collection", {}, pattern), answer)


def _read_envelopes(request: TranslationRequest, answer: TranslatedJob) -> bool:
    """Whether a handler reads envelopes as a job does, which it then does."""
    if _end_of(request, _CDC) not in _ENVELOPES:
        answer.refuse(
            _CDC, f"{request.text(_CDC)} has no counterpart: a job reads envelopes of Debezium's tables, and flat rows"
        )
        return False
    if request.config.get("source.format", ENVELOPE) != ENVELOPE:
        answer.refuse(_CDC, f"it reads envelopes, and source.format={request.config['source.format']} says otherwise")
        return False
    request.form = ENVELOPE
    answer.put("source.format", ENVELOPE, _CDC)
    return True


def _is_by_position(request: TranslationRequest, answer: TranslatedJob) -> bool:
    """Whether each record is a document of its own."""
    model, ids = _end_of(request, _MODEL), _end_of(request, _IDS)
    if model and model not in _REPLACING:
        answer.refuse(
            _MODEL,
            f"{request.text(_MODEL)} has no counterpart: a document is replaced by a newer one of its key "
            "(ReplaceOneDefaultStrategy), or each record is a document (InsertOneDefaultStrategy)",
        )
    if ids and ids not in _BY_KEY | _PROVIDED | _BY_POSITION:
        answer.refuse(
            _IDS,
            f"{request.text(_IDS)} has no counterpart: name the columns of the key in source.key.columns, and remove it",
        )
    by_position = ids in _BY_POSITION or not ids or model == "insertonedefaultstrategy"
    if by_position:
        answer.note(
            _IDS,
            "each record becomes a document, whose _id is its position in Kafka (<topic>-<partition>-<offset>-<number>), so "
            "that a repeated one is not added twice. Records that Java has written after its last commit are added again",
        )
    return by_position


def _name_documents(request: TranslationRequest, answer: TranslatedJob) -> None:
    """The columns that name documents, and whether the name is a document."""
    ids = _end_of(request, _IDS)
    if ids in _PROVIDED:
        answer.put(_KEY_COLUMNS, "_id", _IDS)
        return
    answer.put(_AS_DOCUMENT, "true", _IDS)
    if ids == "fullkeystrategy":
        return
    option = f"{_PARTIAL}.{'key' if ids == 'partialkeystrategy' else 'value'}.projection"
    if request.text(f"{option}.type").lower() not in ("allowlist", "whitelist"):
        answer.refuse(f"{option}.type", f"only allowlist has a counterpart: set {_KEY_COLUMNS} in this configuration")
        return
    fields = request.items(f"{option}.list")
    if any("." in field or "*" in field for field in fields):
        answer.refuse(
            f"{option}.list", "fields inside of others and patterns have no counterpart: a key is made of columns"
        )
        return
    answer.put(_KEY_COLUMNS, ",".join(fields), f"{option}.list")


def _translate_address(request: TranslationRequest, answer: TranslatedJob) -> None:
    parts = urlsplit(request.text(_URI))
    login, _, hosts = parts.netloc.rpartition("@")
    query = f"?{parts.query}" if parts.query else ""
    answer.put(f"{_PREFIX}url", f"{parts.scheme}://{hosts}{parts.path}{query}", _URI)
    user, _, password = login.partition(":")
    for option, value in (("user", user), ("password", password)):
        if value:
            answer.put(f"{_PREFIX}{option}", unquote(value), _URI)


SINK: Final = JavaSink(
    title="MongoDB sink",
    class_names=("com.mongodb.kafka.connect.MongoSinkConnector",),
    sink_type="mongodb",
    form=FLAT,
    options=OPTIONS,
    translate=_translate_mongodb,
    prefixes={
        "topic.override.": "all topics of a job are written in one way: make a connector for each",
        "timeseries.": _TIMES,
        "namespace.mapper.": "the topic names the collection",
        "document.id.strategy.": "name the columns of the key in source.key.columns",
        "mongo.": "the driver of the job has options of its own, in the connection string",
    },
)
