"""MongoDB's own sink (mongo-kafka). Source of the options: its documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from spark_jobs.java_sinks.documents import demand_key, topic_names, translate_deletes
from spark_jobs.java_sinks.model import FLAT, JavaOption, JavaSink
from spark_jobs.java_sinks.table_names import TOPIC, translate_names

if TYPE_CHECKING:
    from spark_jobs.java_sinks.model import Answer, Request

_PREFIX: Final = "sink.mongodb."
_URI: Final = "connection.uri"
_MODEL: Final = "writemodel.strategy"
_IDS: Final = "document.id.strategy"
_CDC: Final = "change.data.capture.handler"
_DELETES: Final = "delete.on.null.values"
_TOLERANCE: Final = "mongo.errors.tolerance"
_KEPT: Final = "columns are chosen and renamed by a step of type select"
_TIMES: Final = "time series collections are not written: their documents can't be replaced"
_PACKAGE: Final = "com.mongodb.kafka.connect.sink."
#: Strategies by the end of the class name, in lower case: those that replace a document, and those whose id is the key.
_REPLACING: Final = frozenset(
    {
        "defaultwritemodelstrategy",
        "replaceonedefaultstrategy",
        "replaceonebusinesskeystrategy",
        "insertonedefaultstrategy",
    }
)
_BY_KEY: Final = frozenset({"fullkeystrategy", "providedinkeystrategy", "partialkeystrategy"})
_BY_POSITION: Final = frozenset({"kafkametadatastrategy", "bsonoidstrategy", "uuidstrategy"})

OPTIONS: Final = (
    JavaOption(
        name=_URI,
        doc="Where MongoDB is.",
        default="mongodb://localhost:27017/",
        to=(f"{_PREFIX}url", f"{_PREFIX}user", f"{_PREFIX}password"),
    ),
    JavaOption(name="database", doc="The database.", to=(f"{_PREFIX}database",), copied=True),
    JavaOption(name="collection", doc="The collection; without it the topic.", to=(f"{_PREFIX}collection",)),
    JavaOption(
        name=_DELETES, doc="Whether a record without a value deletes.", default="false", to=("source.tombstones",)
    ),
    JavaOption(name=_MODEL, doc="How documents are written.", to=(f"{_PREFIX}mode",)),
    JavaOption(name=_IDS, doc="What names documents.", to=(f"{_PREFIX}mode",)),
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
    JavaOption(name="post.processor.chain", doc="What is done to documents.", refused=_KEPT),
    JavaOption(name="key.projection.type", doc="Which fields of keys are kept.", default="none", refused=_KEPT),
    JavaOption(name="key.projection.list", doc="Fields of keys.", refused=_KEPT),
    JavaOption(name="value.projection.type", doc="Which fields are kept.", default="none", refused=_KEPT),
    JavaOption(name="value.projection.list", doc="Fields.", refused=_KEPT),
    JavaOption(name="field.renamer.mapping", doc="New names of fields.", default="[]", refused=_KEPT),
    JavaOption(name="field.renamer.regexp", doc="New names by pattern.", default="[]", refused=_KEPT),
    JavaOption(
        name="namespace.mapper",
        doc="What chooses the collection.",
        default="com.mongodb.kafka.connect.sink.namespace.mapping.defaultnamespacemapper",
        refused="the topic names the collection; rows are divided by a step of type route",
    ),
    JavaOption(name="timeseries.timefield", doc="The field with the time.", refused=_TIMES),
    JavaOption(
        name="mongo.errors.log.enable",
        doc="Whether errors are logged.",
        default="false",
        without="the first ones are logged",
    ),
    JavaOption(name="server.api.version", doc="The version of the API.", refused="the driver's own is used. Remove it"),
)


def _end_of(request: Request, option: str) -> str:
    return request.text(option).rpartition(".")[2].lower()


def _translate(request: Request, answer: Answer) -> None:
    _translate_address(request, answer)
    handler = _end_of(request, _CDC)
    if handler:
        if "debezium" not in request.text(_CDC).lower():
            answer.refuse(
                _CDC, f"{request.text(_CDC)} has no counterpart: a job reads envelopes of Debezium, and flat rows"
            )
            return
        if "source.format" not in request.config:
            answer.refuse(
                _CDC, "records are envelopes: set source.format=debezium in this configuration, and remove it"
            )
            return
    by_position = _writes_by_position(request, answer)
    answer.put(f"{_PREFIX}mode", "insert" if by_position else "upsert", _IDS)
    if not by_position:
        demand_key(request, answer, "a document is named by its key")
    translate_deletes(request, answer, _DELETES, deletes=request.flag(_DELETES) and not by_position)
    size = request.text("max.batch.size")
    if size not in ("", "0"):
        answer.put(f"{_PREFIX}batch.rows", size, "max.batch.size")
    if request.text(_TOLERANCE).lower() in ("all", "data"):
        answer.put("errors.tolerance", "all", _TOLERANCE)
    pattern = request.text("collection") or TOPIC
    translate_names(request, topic_names("collection", f"{_PREFIX}collection", {}, pattern), answer)


def _writes_by_position(request: Request, answer: Answer) -> bool:
    """Whether each record is a document of its own."""
    model, ids = _end_of(request, _MODEL), _end_of(request, _IDS)
    if model and model not in _REPLACING:
        answer.refuse(
            _MODEL,
            f"{request.text(_MODEL)} has no counterpart: a document is replaced by a newer one of its key "
            "(ReplaceOneDefaultStrategy), or each record is a document (InsertOneDefaultStrategy)",
        )
    if ids and ids not in _BY_KEY | _BY_POSITION:
        answer.refuse(
            _IDS,
            f"{request.text(_IDS)} has no counterpart: name the columns of the key in source.key.columns, and remove it",
        )
    by_position = ids in _BY_POSITION or not ids or model == "insertonedefaultstrategy"
    if by_position and ids != "kafkametadatastrategy":
        answer.note(
            _IDS,
            "each record becomes a document, whose _id is its position in Kafka, so that a repeated one is not added twice",
        )
    return by_position


def _translate_address(request: Request, answer: Answer) -> None:
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
    translate=_translate,
    prefixes={
        "topic.override.": "all topics of a job are written in one way: make a connector for each",
        "timeseries.": _TIMES,
        "namespace.mapper.": "the topic names the collection",
        "document.id.strategy.": "name the columns of the key in source.key.columns",
    },
)
