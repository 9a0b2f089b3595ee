"""Our converters compared with Kafka's and AvroData.

Every vector holds what the real Java classes made of the same schema and value.

The recorded vectors are always compared. Where a JDK and the jars are at hand, Java is asked again, so that a stale recording
shows. Deliberate differences are listed here, each with its reason.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Skippable
from tests.conformance.converters.java_runner import JavaConverters
from tests.conformance.converters.spelling import double_of, float_of, schema_of, value_of
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.read import avro_reader
from worker.converters.avro_form.schema import AvroSettings, avro_text
from worker.converters.avro_form.write import value_bytes
from worker.converters.base import create_converter, create_header_converter
from worker.converters.javatext import double_text, float_text
from worker.converters.json import JsonConverter
from worker.converters.json_form.text import JsonSettings, schema_text, value_text
from worker.converters.partitioner import hash_murmur2, positive_hashes
from worker.fetch.artifacts import Artifact, load_manifest
from worker.fetch.errors import StackError
from worker.fetch.resolver import ArtifactResolver

if TYPE_CHECKING:
    from connectors.schema import Schema

Case = dict[str, Any]
VECTORS = Path(__file__).parent / "vectors"
#: Java prints what these values hold only in part: a time of day for a date before 1970-01-02 (a bug of Values.append), the
#: Julian calendar before 1582 (java.util.Date).
OLD_DATES = re.compile(r'"name": "org\.apache\.kafka\.connect\.data\.(Date|Timestamp)"')
DESCRIBE = JsonConverter({"replace.null.with.default": "false"})
HEADERS = create_header_converter("SimpleHeaderConverter", {})
NEWEST_ALGORITHM = 19  # the JDK whose Double.toString prints the shortest digits
AVRO_JARS = (
    Artifact(
        "io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",
        "95392390745e31941e3f8e3565f883a2c31b9fd1d38eb0e22aac7721dd73508a",
        74377,
        frozenset(),
    ),
    Artifact(
        "io.apicurio:apicurio-registry-serdes-avro-serde:2.6.13.Final",
        "71e2a474b6ef82b94d161eed801bc6570a31b324e6872e7c19e09c3b10bc3ad1",
        30798,
        frozenset(),
    ),
    Artifact(
        "org.apache.avro:avro:1.12.0",
        "1f5fbfff9b7427d6832cc3031a3c81413d3e21d9e2551847d9231c28493f9492",
        713436,
        frozenset(),
    ),
)


def load(name: str) -> list[Case]:
    text = gzip.decompress((VECTORS / f"{name}.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.rstrip("\n").split("\n")]


def encoded(data: bytes | None) -> Case:
    return {"bytes": None if data is None else base64.b64encode(data).decode()}


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def written(case: Case) -> Case:
    schema = schema_of(case["schema"])
    value = value_of(schema, case["value"])
    name = {"json": "JsonConverter", "string": "StringConverter", "bytearray": "ByteArrayConverter"}.get(case["op"])
    try:
        if name is None:
            return encoded(HEADERS.from_connect_header("topic", "h", schema, value))
        return encoded(create_converter(name, case.get("config", {}), False).from_connect("topic", schema, value))
    except Skippable:
        return {"error": "Skippable"}


def same(case: Case, ours: Case) -> bool:
    return ("error" in ours and "error" in case["java"]) or ours == case["java"]


def shown(case: Case, ours: Case) -> str:
    def readable(answer: Case) -> Any:
        return decoded(answer["bytes"]) if answer.get("bytes") else answer

    request = {name: part for name, part in case.items() if name not in ("java", "older")}
    return f"{request}\n  java {readable(case['java'])}\n  ours {readable(ours)}"


def all_same(pairs: list[tuple[Case, Case]]) -> None:
    different = [shown(case, ours) for case, ours in pairs if not same(case, ours)]
    assert not different, f"{len(different)} of {len(pairs)} differ:\n" + "\n".join(different[:5])


def test_json_is_written_byte_for_byte() -> None:
    cases = load("json")
    assert len(cases) > 1500
    all_same([(case, written(case)) for case in cases])


def test_json_fast_and_slow_ways_agree() -> None:
    for case in load("json"):
        if "error" in case["java"]:
            continue
        config = case["config"]
        settings = JsonSettings(
            numeric_decimals=config.get("decimal.format", "").upper() == "NUMERIC",
            replace_null=config.get("replace.null.with.default", "true") == "true",
        )
        schema = schema_of(case["schema"])
        value = value_of(schema, case["value"])
        if schema is None and value is None:
            continue
        text = value_text(schema, value, settings)
        if config["schemas.enable"] == "true":
            text = f'{{"schema":{schema_text(schema, settings)},"payload":{text}}}'
        assert text.encode() == decoded(case["java"]["bytes"]), case


def comparable(data: bytes | None) -> Any:
    """A described value; the order of a map is Java's HashMap's, so it does not count."""
    if data is None:
        return None

    def unordered(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: unordered(item) for key, item in part.items()}
        if isinstance(part, list):
            return sorted((unordered(item) for item in part), key=lambda item: json.dumps(item, sort_keys=True))
        return part + 0.0 if isinstance(part, float) else part  # Java reads -0.0 as 0.0

    return unordered(json.loads(data))


def described(schema: Schema | None, value: Any) -> bytes | None:
    return DESCRIBE.from_connect("topic", schema, value)


def is_lenient_in_java(case: Case) -> bool:
    """Java reads 0 for the strings it writes for NaN and infinity, and ignores what follows the first JSON value."""
    text = decoded(case["data"]) or b""
    return any(part in text for part in (b'"NaN"', b"Infinity")) or text == b"1 2"


def test_json_is_read_as_java_reads_it() -> None:
    different = []
    for case in load("json_read"):
        try:
            schema, value = create_converter("JsonConverter", case["config"], False).to_connect(
                "topic", decoded(case["data"])
            )
            ours = encoded(described(schema, value))
        except Skippable as error:
            ours = {"error": str(error)}
        java = case["java"]
        equal = ("error" in ours and "error" in java) or (
            "bytes" in ours
            and "bytes" in java
            and comparable(decoded(ours["bytes"])) == comparable(decoded(java["bytes"]))
        )
        if not equal and not is_lenient_in_java(case):
            different.append(shown(case, ours))
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:8])


def test_string_bytearray_and_header_texts() -> None:
    pairs = [(case, written(case)) for case in load("text")]
    old = [(case, ours) for case, ours in pairs if not same(case, ours) and OLD_DATES.search(json.dumps(case))]
    assert len(old) < 9, "more than the known dates before 1970 and 1582 differ"
    all_same([(case, ours) for case, ours in pairs if (case, ours) not in old])


def test_header_texts_are_parsed_as_java_parses_them() -> None:
    different = []
    for case in load("header_read"):
        if decoded(case["data"]) in (b"null", b"{}"):
            continue  # Java's answer holds no schema to describe it with
        schema, value = HEADERS.to_connect_header("topic", "h", decoded(case["data"]))
        ours = encoded(described(schema, value))
        if comparable(decoded(ours["bytes"])) != comparable(decoded(case["java"].get("bytes"))):
            different.append(shown(case, ours))
    assert not different, "\n".join(different[:8])


def test_floating_point_prints_as_in_java_19_and_later() -> None:
    for case in load("numbers"):
        ours = double_text(double_of(case["bits"])) if case["op"] == "double" else float_text(float_of(case["bits"]))
        assert ours == case["java"]["text"], case


def test_keys_go_to_the_partitions_java_sends_them_to() -> None:
    cases = load("murmur2")
    keys = [base64.b64decode(case["data"]) for case in cases]
    expected = [case["java"]["number"] for case in cases]
    assert [hash_murmur2(key) & 0x7FFFFFFF for key in keys] == expected
    assert list(positive_hashes(keys * 7)) == expected * 7


def test_avro_schemas_and_bytes() -> None:
    different = []
    for case in load("avro"):
        settings = AvroSettings(metadata=case["config"].get("connect.meta.data", "true") == "true")
        schema = schema_of(case["schema"])
        value = value_of(schema, case["value"])
        java = case["java"]
        try:
            ours = {"text": avro_text(schema, settings)}
            slow = value_bytes(schema, value, settings)
        except Skippable as error:
            if "error" not in java:
                different.append(shown(case, {"error": str(error)}))
            continue
        assert ours["text"] == java.get("text"), shown(case, ours)
        fast = compile_avro(schema, settings, b"")(value)
        assert fast == (slow if value is not None else None), case
        if slow != decoded(java["bytes"]):  # the order of a map's entries is Java's HashMap's
            read = avro_reader(ours["text"], settings).decode
            if read(slow) != read(decoded(java["bytes"]) or b""):
                different.append(shown(case, encoded(slow)))
    assert not different, "\n".join(different[:5])


def jdk() -> tuple[Path, int]:
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("no JDK on this machine: the recorded vectors can't be checked against Java itself")
    text = subprocess.run([compiler, "-version"], check=True, capture_output=True, text=True).stdout
    match = re.search(r"javac (\d+)", text)
    assert match is not None
    if int(match[1]) < 17:
        pytest.skip(f"Kafka Connect 4.1 needs Java 17; the JDK here is {match[1]}")
    return Path(compiler).resolve().parent.parent, int(match[1])


@pytest.mark.parametrize(
    "name", ["json", "json_read", "numbers", "murmur2", "text", "header_read", "avro", "primitives"]
)
def test_the_recording_is_what_java_answers_now(name: str, java: JavaConverters, java_version: int) -> None:
    cases = load(name)
    requests = [{part: content for part, content in case.items() if part not in ("java", "older")} for case in cases]
    answers = java.ask(requests)
    for case, answer in zip(cases, answers, strict=True):
        expected = case.get("older", case["java"]) if java_version < NEWEST_ALGORITHM else case["java"]
        assert answer == expected, case


@pytest.fixture(scope="module")
def java_version() -> int:
    return jdk()[1]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> JavaConverters:
    home, _ = jdk()
    try:
        jars = ArtifactResolver().fetch([*load_manifest().members("connect"), *AVRO_JARS], "the Java converters")
    except StackError as error:
        pytest.skip(f"the Java converters' jars can't be had: {error}")
    return JavaConverters.compiled(home, ":".join(map(str, jars)), tmp_path_factory.mktemp("converters"), release=17)
