"""Redis's own sink (redis-kafka-connect). Source of the options: its configuration classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from spark_jobs.java_sinks.translation.converters import BYTES
from spark_jobs.java_sinks.translation.model import FLAT, JavaOption, JavaSink
from spark_jobs.java_sinks.translation.table_names import Naming, translate_names

if TYPE_CHECKING:
    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

_URL: Final = "sink.redis.url"
_FORM: Final = "sink.redis.form"
_KEY: Final = "sink.redis.key"
_COMMAND: Final = "redis.command"
_FORMS: Final = {"HSET": "hash", "JSONSET": "json", "XADD": "stream"}
_MERGE: Final = "it is for JSONMERGE, which has no counterpart. Remove it"

OPTIONS: Final = (
    JavaOption(name="redis.uri", doc="Where Redis is.", to=(_URL, "sink.redis.user", "sink.redis.password")),
    JavaOption(name="redis.host", doc="The host.", default="localhost", to=(_URL,)),
    JavaOption(name="redis.port", doc="The port.", default="6379", to=(_URL,)),
    JavaOption(name="redis.tls", doc="Whether TLS is used.", default="false", to=(_URL,)),
    JavaOption(
        name="redis.insecure",
        doc="Whether the server is not verified.",
        default="false",
        to=("sink.redis.ssl.mode",),
    ),
    JavaOption(
        name="redis.cluster", doc="Whether it is a cluster.", default="false", to=("sink.redis.cluster",), copied=True
    ),
    JavaOption(name="redis.username", doc="The login.", to=("sink.redis.user",), copied=True),
    JavaOption(
        name="redis.password", doc="The login's password.", secret=True, to=("sink.redis.password",), copied=True
    ),
    JavaOption(
        name="redis.timeout", doc="The timeout of a command, in seconds.", default="60", to=("sink.redis.timeout.ms",)
    ),
    JavaOption(
        name="redis.pool",
        doc="Connections of the pool.",
        without="each table is written by sink.redis.connections connections",
    ),
    JavaOption(name="redis.key.file", doc="The client's key.", to=("sink.redis.ssl.key",), copied=True),
    JavaOption(name="redis.key.cert", doc="The client's certificate.", to=("sink.redis.ssl.cert",), copied=True),
    JavaOption(
        name="redis.key.password",
        doc="The password of the client's key.",
        secret=True,
        refused="a key must have no password",
    ),
    JavaOption(
        name="redis.cacert",
        doc="The authorities that verify the server.",
        to=("sink.redis.ssl.root.cert",),
        copied=True,
    ),
    JavaOption(
        name="redis.charset",
        doc="How strings are encoded.",
        default="UTF-8",
        same=("utf8",),
        refused="keys and values are written in UTF-8. Remove it",
    ),
    JavaOption(
        name=_COMMAND,
        doc="What is written.",
        default="XADD",
        to=(_FORM, "sink.redis.json.command"),
    ),
    JavaOption(
        name="redis.key",
        doc="The space of keys.",
        default="${topic}",
        to=(_KEY, "transform.steps"),
    ),
    JavaOption(name="redis.separator", doc="What is between that and the key.", default=":", to=(_KEY,)),
    JavaOption(
        name="redis.multiexec",
        doc="Whether commands are in transactions.",
        default="false",
        same=("true",),
        without="a row and its order number are written by one script",
    ),
    JavaOption(
        name="redis.wait.replicas",
        doc="How many replicas must have the data.",
        default="0",
        without="nothing waits for replicas: set min-replicas-to-write in Redis",
    ),
    JavaOption(
        name="redis.wait.timeout",
        doc="How long that may take.",
        default="1000",
        without="nothing waits for replicas",
    ),
    JavaOption(name="redis.json.path", doc="The header with the path in a document.", default="$", refused=_MERGE),
    JavaOption(name="redis.json.path.fixed", doc="The path in a document.", default="$", refused=_MERGE),
)


def _translate_redis(request: TranslationRequest, answer: TranslatedJob) -> None:
    _translate_address(request, answer)
    if request.has("redis.timeout"):
        answer.put("sink.redis.timeout.ms", f"{request.text('redis.timeout')}000", "redis.timeout")
    if request.flag("redis.insecure"):
        answer.put("sink.redis.ssl.mode", "require", "redis.insecure")
    command = request.text(_COMMAND).upper()
    form = request.config.get(_FORM, "") or _FORMS.get(command, "")
    if not form:
        answer.refuse(
            _COMMAND,
            f"{command} has no counterpart: rows become hashes (HSET), documents (JSONSET) or entries of a stream (XADD). "
            f"Other forms are options of the job: set {_FORM} in this configuration",
        )
        return
    answer.put(_FORM, form, _COMMAND)
    if form == "json":
        answer.put("sink.redis.json.command", "JSON.SET", _COMMAND)
    in_row = form != "stream"
    if in_row and answer.properties.get("source.key.encoding") == BYTES and "source.key.columns" not in request.config:
        answer.refuse(
            "key.converter",
            "keys are made of columns, and this converter reads none: name the columns of the key, which must be in the row, "
            "in source.key.columns",
        )
    translate_names(request, _make_naming(request.text("redis.separator") if in_row else ""), answer)


def _make_naming(separator: str) -> Naming:
    return Naming(
        option="redis.key",
        clean=str,
        flat="${namespace}",
        inside="${namespace}",
        source={},
        fixed={},
        table=_KEY,
        schema="",
        shared="",
        suffix=f"{separator}${{key}}" if separator else "",
    )


def _translate_address(request: TranslationRequest, answer: TranslatedJob) -> None:
    uri = request.text("redis.uri")
    if not uri:
        scheme = "rediss" if request.flag("redis.tls") else "redis"
        answer.put(_URL, f"{scheme}://{request.text('redis.host')}:{request.text('redis.port')}", "redis.host")
        return
    parts = urlsplit(uri)
    login, _, host = parts.netloc.rpartition("@")
    user, separator, password = login.partition(":")
    if not separator and login:
        user, password = "", login  # redis://password@host
    answer.put(_URL, f"{parts.scheme}://{host}{parts.path}", "redis.uri")
    for option, value in (("user", user), ("password", password)):
        if value:
            answer.put(f"sink.redis.{option}", unquote(value), "redis.uri")
    if parts.query:
        answer.note("redis.uri", "the parameters of the URI have no effect")


SINK: Final = JavaSink(
    title="Redis sink",
    class_names=("com.redis.kafka.connect.RedisSinkConnector",),
    sink_type="redis",
    form=FLAT,
    options=OPTIONS,
    translate=_translate_redis,
    json_as_text=True,
)
