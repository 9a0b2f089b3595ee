"""``key.converter`` and ``value.converter`` of a sink connector: how a job reads keys and values. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.java_sinks.translation.model import AS_IS

if TYPE_CHECKING:
    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

JSON: Final = "json"
AVRO: Final = "avro"
BYTES: Final = "bytes"
_TEXT: Final = "text"
#: Simple names of converters, without Converter -> what they read.
_READS: Final = {
    "Json": JSON,
    "Avro": AVRO,
    "String": _TEXT,
    "ByteArray": BYTES,
    "Boolean": _TEXT,
    "Short": BYTES,
    "Integer": BYTES,
    "Long": BYTES,
    "Float": BYTES,
    "Double": BYTES,
}
_REGISTRY: Final = "schema.registry."


def encoding_of(class_name: str) -> str:
    """The encoding that the converter of that class reads: ``json``, ``avro``, ``text`` or ``bytes``; empty for any other."""
    return _READS.get(class_name.rpartition(".")[2].removesuffix("Converter"), "")


def translate_converters(request: TranslationRequest, answer: TranslatedJob) -> None:
    """Set ``source.value.encoding``, ``source.key.encoding`` and the schema registry."""
    value_class = request.text("value.converter")
    value = encoding_of(value_class)
    if request.form == AS_IS:
        if value == AVRO or not value:
            answer.refuse(
                "value.converter",
                f"{value_class or 'no converter'}: values are written as they are in Kafka, which are not lines with this "
                "converter. Read text: org.apache.kafka.connect.storage.StringConverter",
            )
        # Nothing is decoded; the frame asks for a format all the same.
        answer.put("source.format", "plain")
        answer.put("source.key.encoding", BYTES)
        return
    if request.sink.json_as_text and value in (_TEXT, BYTES):
        value = JSON
        answer.note("value.converter", "values are read as JSON objects: any other value is a bad record")
    if value not in (JSON, AVRO):
        answer.refuse(
            "value.converter",
            f"{value_class or 'no converter'} is not what a job reads: rows come from JSON "
            "(org.apache.kafka.connect.json.JsonConverter, with or without schemas) or from Avro "
            "(io.confluent.connect.avro.AvroConverter)",
        )
        return
    answer.put("source.format", request.form)
    answer.put("source.value.encoding", value, "value.converter")
    key = encoding_of(request.text("key.converter"))
    # Keys in another encoding than the values have to stay bytes: key columns are then taken from the rows.
    answer.put("source.key.encoding", key if key == value else BYTES, "key.converter")
    if value == AVRO:
        _translate_registry(request, answer)


def _translate_registry(request: TranslationRequest, answer: TranslatedJob) -> None:
    prefix = "value.converter."
    for name, option_value in request.config.items():
        if name.startswith(prefix):
            answer.put(f"source.{_REGISTRY}{name.removeprefix(prefix).removeprefix(_REGISTRY)}", option_value, name)
