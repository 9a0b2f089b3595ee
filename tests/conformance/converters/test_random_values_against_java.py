"""Random schemas, values and headers, next to Java's converters: seeded, and asked of Java at each run.

The slow suite takes more of them. Where there is no JDK the recorded vectors remain.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Skippable
from tests.conformance.converters.random_cases import draw_schema, draw_text, draw_value
from tests.conformance.converters.spelling import schema_of, value_of
from tests.conformance.converters.test_converters_against_java import (
    HEADERS,
    all_same,
    comparable,
    decoded,
    described,
    encoded,
    java,
    shown,
    written,
)
from tests.selection import scaled
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.read import avro_reader
from worker.converters.avro_form.schema import AvroSettings, avro_text

if TYPE_CHECKING:
    from tests.conformance.converters.java_runner import JavaConverters

__all__ = ["java"]

Case = dict[str, Any]

pytestmark = pytest.mark.scaled
COUNT, SEED = scaled((400, 80_000), (8000, 81_000))
_JSON_CONFIGS: tuple[dict[str, str], ...] = (
    {"schemas.enable": "true"},
    {"schemas.enable": "false"},
    {"schemas.enable": "true", "decimal.format": "NUMERIC"},
    {"schemas.enable": "true", "replace.null.with.default": "false"},
)
_AVRO_CONFIGS: tuple[dict[str, str], ...] = (
    {},
    {"connect.meta.data": "false"},
    {"enhanced.avro.schema.support": "true"},
)


def draw_cases(op: str, configs: tuple[dict[str, str], ...]) -> list[Case]:
    rng = random.Random(SEED)
    cases: list[Case] = []
    for _ in range(COUNT):
        spec = draw_schema(rng, 3)
        cases.append({"op": op, "config": rng.choice(configs), "schema": spec, "value": draw_value(rng, spec)})
    return cases


def asked(java: JavaConverters, cases: list[Case]) -> list[Case]:
    return [{**case, "java": answer} for case, answer in zip(cases, java.ask(cases), strict=True)]


def test_random_values_are_written_as_java_writes_them_in_json(java: JavaConverters) -> None:
    all_same([(case, written(case)) for case in asked(java, draw_cases("json", _JSON_CONFIGS))])


def avro_difference(case: Case) -> str:
    """How a case differs from Java's answer; empty if it does not."""
    config, answer = case["config"], case["java"]
    settings = AvroSettings(
        metadata=config.get("connect.meta.data") != "false", enhanced="enhanced.avro.schema.support" in config
    )
    schema = schema_of(case["schema"])
    try:
        text = avro_text(schema, settings)
        data = compile_avro(schema, settings, b"")(value_of(schema, case["value"]))
    except Skippable as error:
        # Java takes the first of two different types of one name for both.
        return "" if "error" in answer or "Two different types" in str(error) else shown(case, {"error": str(error)})
    if "error" in answer or text != answer["text"]:
        return shown(case, {"text": text})
    expected = decoded(answer["bytes"])
    if data is None or data == expected:
        return ""
    read = avro_reader(text, settings).decode  # the order of a map's entries is Java's HashMap's
    return "" if read(data) == read(expected or b"") else shown(case, encoded(data))


def test_random_values_are_written_as_java_writes_them_in_avro(java: JavaConverters) -> None:
    different = [text for case in asked(java, draw_cases("avro", _AVRO_CONFIGS)) if (text := avro_difference(case))]
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:5])


def test_random_header_texts_are_parsed_as_java_parses_them(java: JavaConverters) -> None:
    rng = random.Random(SEED)
    strings = dict.fromkeys(text for text in (draw_text(rng) for _ in range(COUNT)) if text.strip()[:1] == text[:1])
    different = []
    for case in asked(java, [{"op": "header_read", "data": encoded(text.encode())["bytes"]} for text in strings]):
        answer = decoded(case["java"].get("bytes"))
        if answer is None or (b'"items":null' in answer and b"{" in (decoded(case["data"]) or b"")):
            continue  # without the schema of its elements Java describes a value in another way, or not at all
        schema, value = HEADERS.to_connect_header("topic", "h", decoded(case["data"]))
        ours = described(schema, value)
        if comparable(ours) != comparable(answer):
            different.append(shown(case, encoded(ours)))
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:5])
