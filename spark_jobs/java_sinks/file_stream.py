"""Kafka's FileStreamSink: a line for each value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.java_sinks.translation.model import AS_IS, JavaOption, JavaSink

if TYPE_CHECKING:
    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

OPTIONS: Final = (JavaOption(name="file", doc="The file that gets the lines.", to=("sink.lines.path", "sink.type")),)


def _translate_file(request: TranslationRequest, answer: TranslatedJob) -> None:
    if request.has("file"):
        answer.put("sink.lines.path", request.text("file"), "file")
    else:
        answer.put("sink.type", "console", "file")
        answer.put("sink.console.content", "records", "file")
        answer.put("sink.console.format", "json", "file")
        answer.note("file", "without a file, records are shown in the log of the job, the first 20 of each batch")
    if "Json" in request.text("value.converter"):
        answer.note(
            "value.converter",
            "a line is the JSON text as it is in Kafka, not the text that Java makes of the value (Struct{...})",
        )


SINK: Final = JavaSink(
    title="Kafka FileStreamSink",
    class_names=("org.apache.kafka.connect.file.FileStreamSinkConnector",),
    sink_type="lines",
    form=AS_IS,
    options=OPTIONS,
    translate=_translate_file,
)
