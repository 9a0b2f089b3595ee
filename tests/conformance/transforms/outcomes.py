"""The results of transforms on a record that JSON describes, in the form in which Java's answers are recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from connectors.errors import Skippable
from tests.conformance.transforms.plugin.case_source import CONVERTER, read, record_of
from worker.transforms.pipeline import TransformError

if TYPE_CHECKING:
    from worker.transforms.pipeline import TransformPipeline

Json = dict[str, Any]


def _write(schema: Any, value: Any) -> Any:
    data = CONVERTER.from_connect("t", schema, value)
    return None if data is None else json.loads(data)


def outcome(pipeline: TransformPipeline, case: Json) -> Json | None:
    """The record that comes out, None for none, or the error; checks that the record that went in is as it was."""
    record = record_of(case)
    try:
        result = pipeline.apply(record)
    except TransformError as error:
        return {"error": str(error.__cause__)}
    finally:
        assert _write(record.value_schema, record.value) == _write(*read(case["value"])), (
            "the record that came in was changed"
        )
    if result is None:
        return None
    try:
        return {
            "topic": result.topic,
            "partition": result.partition,
            "timestamp": result.timestamp,
            "key": _write(result.key_schema, result.key),
            "value": _write(result.value_schema, result.value),
            "headers": [{"key": header.key, "value": _write(header.schema, header.value)} for header in result.headers],
        }
    except Skippable as error:
        return {"unserializable": str(error)}
