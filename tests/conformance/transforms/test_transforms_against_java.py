"""Millrace's transforms compared with Kafka Connect's and Debezium's own.

The same records and configurations give the same results.

The recorded vectors are always compared. In the slow suite Java is asked again, so that a stale recording shows.
"""

from __future__ import annotations

import json

import pytest

from connectors.errors import ConfigInvalid
from tests.conformance.transforms import generate_vectors
from tests.conformance.transforms.outcomes import Json, outcome
from worker.fetch.errors import StackError
from worker.properties import parse_properties
from worker.transforms.java.regex import compile_java, java_replacement
from worker.transforms.pipeline import build_pipeline

CASES, EXPECTED = generate_vectors.recorded()

_ANY_FIELD = (("Cannot mask value of type",), ("Cast transformation does not support casting from", "Value ("))


def agrees(ours: Json | None, java: Json | None) -> bool:
    if java is None or ours is None:
        return ours == java
    if java.get("class") == "java.lang.NullPointerException" and "error" in ours:
        # HeaderFrom, for a field that isn't there; TimestampConverter, for a string without a pattern.
        return str(ours["error"]).startswith(("Unknown field: ", "TimestampConverter requires format option"))
    if java.get("class") == "java.lang.NullPointerException":
        # Debezium fails on a tombstone without schema when it drops fields; Millrace does not (see the transform's docstring).
        return "error" not in ours and ours["value"] is None
    if "error" in java:
        # Of several fields that can't be masked, or cast, Connect names one by the order of a hash table.
        choice = next((prefixes for prefixes in _ANY_FIELD if java["error"].startswith(prefixes)), None)
        # What follows SourceRecord is how Java prints a record.
        return "error" in ours and ours["error"].startswith(choice or java["error"].split("SourceRecord{")[0])
    if "unserializable" in java:
        # A date without a schema is refused by the converter there, and by TimestampConverter here.
        return "unserializable" in ours or ours.get("error") == java["unserializable"]
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
            {"config": case["config"], "record": record, "ours": ours, "java": java}, ensure_ascii=False, indent=1
        )


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
                parse_properties(text)
        else:
            assert parse_properties(text) == java, repr(text)


@pytest.mark.slow
def test_recording_is_what_java_says_today() -> None:
    try:
        answer = generate_vectors.run_java(CASES)
    except StackError as error:
        pytest.skip(f"no Java or no jars: {error}")
    assert answer == EXPECTED


def test_cases_are_those_of_the_generator() -> None:
    assert generate_vectors.cases() == CASES
