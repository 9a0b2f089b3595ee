"""Millrace's transforms beside Kafka Connect's and Debezium's own: the same records, the same configurations, the same results.

The recorded vectors are always compared. Where a JDK and the jars are at hand, Java is asked again, so that a stale recording
shows.
"""
from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.artifacts import load_manifest
from compose.local.errors import StackError
from compose.local.java import find_java
from compose.local.resolver import Resolver
from connectors.api import Header, SourceRecord
from connectors.errors import ConfigInvalid, Skippable
from worker.converters.json import JsonConverter
from worker.properties import parse
from worker.transforms.java_regex import compile_java, java_replacement
from worker.transforms.pipeline import Pipeline, TransformError, build_pipeline

if TYPE_CHECKING:
    from types import ModuleType

Json = dict[str, Any]
CONVERTER = JsonConverter({"schemas.enable": "true", "replace.null.with.default": "false"})



def _generator() -> ModuleType:
    path = Path(__file__).with_name("generate_vectors.py")
    spec = importlib.util.spec_from_file_location("transform_vectors", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


VECTORS = _generator()
CASES, EXPECTED = VECTORS.recorded()


def read(data: Json | None) -> tuple[Any, Any]:
    return (None, None) if data is None else CONVERTER.to_connect("t", json.dumps(data).encode())


def write(schema: Any, value: Any) -> Any:
    data = CONVERTER.from_connect("t", schema, value)
    return None if data is None else json.loads(data)


def record_of(case: Json) -> SourceRecord:
    key_schema, key = read(case["key"])
    value_schema, value = read(case["value"])
    headers = []
    for header in case["headers"]:
        schema, content = read(header["value"])
        headers.append(Header(header["key"], content, schema))
    return SourceRecord({"p": 1}, {"o": 1}, case["topic"], value, value_schema, key, key_schema, case["partition"],
                        tuple(headers), case["timestamp"])


def outcome(pipeline: Pipeline, case: Json) -> Json | None:
    record = record_of(case)
    try:
        result = pipeline.apply(record)
    except TransformError as error:
        return {"error": str(error.__cause__)}
    finally:
        assert write(record.value_schema, record.value) == write(*read(case["value"])), "the record that came in was changed"
    if result is None:
        return None
    try:
        return describe(result)
    except Skippable as error:
        return {"unserializable": str(error)}


def describe(result: SourceRecord) -> Json:
    return {"topic": result.topic, "partition": result.partition, "timestamp": result.timestamp,
            "key": write(result.key_schema, result.key), "value": write(result.value_schema, result.value),
            "headers": [{"key": header.key, "value": write(header.schema, header.value)} for header in result.headers]}


def agrees(ours: Json | None, java: Json | None) -> bool:
    if java is None or ours is None:
        return ours == java
    if java.get("class") == "java.lang.NullPointerException":
        # Debezium trips over a tombstone without schema when it drops fields; Millrace goes on (see the transform's docstring).
        return "error" not in ours and ours["value"] is None
    if "error" in java:
        # Of several fields that can't be masked, Connect names one by the order of a hash table.
        text = "Cannot mask value of type" if java["error"].startswith("Cannot mask value of type") else java["error"]
        return "error" in ours and ours["error"].startswith(text)
    if "unserializable" in java:
        return "unserializable" in ours
    return ours == java


@pytest.mark.parametrize("number", range(len(CASES["transforms"])))
def test_transform_gives_what_java_gives(number: int) -> None:
    case, expected = CASES["transforms"][number], EXPECTED["transforms"][number]
    if isinstance(expected, dict):
        with pytest.raises(ConfigInvalid):
            build_pipeline(case["config"])
        return
    pipeline = build_pipeline(case["config"])
    for record, java in zip(case["records"], expected, strict=True):
        ours = outcome(pipeline, record)
        assert agrees(ours, java), json.dumps(
            {"config": case["config"], "record": record, "ours": ours, "java": java}, ensure_ascii=False, indent=1)


@pytest.mark.parametrize("number", range(len(CASES["expressions"])))
def test_expression_matches_what_java_matches(number: int) -> None:
    case, java = CASES["expressions"][number], EXPECTED["expressions"][number]
    if isinstance(java, dict):
        with pytest.raises(ConfigInvalid):
            java_replacement(case["replacement"], compile_java(case["regex"]))
        return
    pattern = compile_java(case["regex"])
    replacement = java_replacement(case["replacement"], pattern)
    ours = [pattern.sub(replacement, text, count=1) if pattern.fullmatch(text) else None for text in case["inputs"]]
    assert dict(zip(case["inputs"], ours, strict=True)) == dict(zip(case["inputs"], java, strict=True))


def test_properties_are_read_as_java_reads_them() -> None:
    for text, java in zip(CASES["properties"], EXPECTED["properties"], strict=True):
        if "class" in java:
            with pytest.raises(ConfigInvalid, match="Malformed"):
                parse(text)
        else:
            assert parse(text) == java, repr(text)


def test_recording_is_what_java_says_today() -> None:
    try:
        java = find_java(17)
        modules = subprocess.run([java.executable, "--list-modules"], capture_output=True, text=True, check=True,
                                 timeout=60).stdout
        jars = Resolver().fetch(load_manifest().members("connect"), "Kafka Connect (the Java reference)")
    except StackError as error:
        pytest.skip(f"no Java or no jars: {error}")
    if "jdk.compiler" not in modules:
        pytest.skip(f"{java.executable} has no compiler, which the driver needs: install a JDK")
    # The jars of Kafka Connect are at hand; Debezium's are not, so its part of the recording is left as it is.
    numbers = [number for number, case in enumerate(CASES["transforms"])
               if case["config"]["transforms.t.type"].startswith("org.apache")]
    assert len(numbers) > 100
    asked = {**CASES, "transforms": [CASES["transforms"][number] for number in numbers]}
    answer = VECTORS.run_java(java.executable, ":".join(map(str, jars)), asked)
    assert answer == {**EXPECTED, "transforms": [EXPECTED["transforms"][number] for number in numbers]}


def test_cases_are_those_of_the_generator() -> None:
    assert VECTORS.cases() == CASES
