"""JSON Schema, Protobuf, single numbers and CloudEvents compared with the Java classes that users have.

The recorded vectors are always compared. Kafka's and Debezium's classes are asked again where a JDK and their jars are at hand;
Confluent's where ``MILLRACE_CONFLUENT_CLASSPATH`` names theirs, which no public repository has. Deliberate differences are
listed here, each with its reason.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import Skippable
from connectors.schema import DATE, TIMESTAMP
from tests.conformance.converters.java_runner import JavaConverters
from tests.conformance.converters.spelling import schema_of, value_of
from tests.conformance.converters.test_converters_against_java import (
    AVRO_JARS,
    NEWEST_ALGORITHM,
    Case,
    all_same,
    comparable,
    decoded,
    described,
    encoded,
    jdk,
    load,
    shown,
)
from tests.selection import scaled
from worker.converters.base import create_converter, create_header_converter
from worker.converters.json_form.compile import compile_encoder
from worker.converters.json_form.schema_read import json_schema_reader
from worker.converters.json_form.schema_text import JsonSchemaSettings, json_schema_text
from worker.converters.json_form.text import JsonSettings, value_text
from worker.converters.protobuf import index_bytes
from worker.converters.protobuf_form.compile import compile_protobuf
from worker.converters.protobuf_form.read import protobuf_reader
from worker.converters.protobuf_form.schema import META, ProtobufSettings, proto_file, proto_text
from worker.converters.protobuf_form.write import message_bytes
from worker.fetch.artifacts import Artifact, load_manifest
from worker.fetch.errors import StackError
from worker.fetch.resolver import ArtifactResolver

if TYPE_CHECKING:
    from pathlib import Path

#: Java's calendar is the Julian one before this day.
GREGORIAN_MS = -12_219_292_800_000
MYSQL = Artifact(
    "io.debezium:debezium-connector-mysql:3.5.0.Final",
    "7948107f1efb5105e1fb56cd7b50a4077aaeb9724cf75f816b03e6d1d0a5ca15",
    155295,
    frozenset(),
)


def on(case: Case, option: str, *, default: bool = False) -> bool:
    return bool(case["config"].get(option, str(default).lower()) == "true")


# Single numbers.


def test_single_numbers_are_written_and_refused_as_in_java() -> None:
    pairs = []
    for case in load("primitives"):
        if case["op"] == "primitive":
            schema = schema_of(case["schema"])
            value = value_of(schema, case["value"])
            try:
                data = create_converter(case["name"], {}, True).from_connect("topic", schema, value)
                assert (
                    create_header_converter(case["name"], {}).from_connect_header("topic", "h", schema, value) == data
                )
                ours = encoded(data)
            except Skippable as error:
                ours = {"error": str(error)}
        else:
            try:
                read, value = create_converter(case["name"], {}, False).to_connect("topic", decoded(case["data"]))
                ours = encoded(described(read, value))
            except Skippable as error:
                ours = {"error": str(error)}
        if "error" in ours and "message" in case["java"]:
            # Beyond Java's text, ours says what to do. Java names its own classes.
            start = re.split(r" \(was| of type|: ", case["java"]["message"])[0]
            assert ours["error"].startswith(start), (ours, case["java"])
        pairs.append((case, ours))
    all_same(pairs)


# JSON Schema.


def json_settings(case: Case) -> JsonSchemaSettings:
    values = JsonSettings(
        numeric_decimals=case["config"].get("decimal.format") == "NUMERIC",
        entries=True,
        replace_null=not on(case, "ignore.default.for.nullables"),
    )
    return JsonSchemaSettings(
        values,
        additional=on(case, "object.additional.properties", default=True),
        optional=on(case, "use.optional.for.nonrequired"),
    )


def test_json_schemas_and_values() -> None:
    different = []
    refused = 0
    for case in load("jsonschema"):
        settings = json_settings(case)
        schema = schema_of(case["schema"])
        assert schema is not None
        value = value_of(schema, case["value"])
        # The text is the same to the byte: a registry takes another order of members for another schema.
        assert json_schema_text(schema, settings) == case["java"]["text"], shown(case, {})
        try:
            data = compile_encoder(schema, settings.values, envelope=False)(value)
            assert data == value_text(schema, value, settings.values).encode(), case
        except Skippable as error:
            # Java leaves out what is required, absent and without a default.
            refused += 1 if "null value" in str(error) else 1000
            continue
        java = decoded(case["java"]["bytes"])
        if data != java and json.loads(data or b"") != json.loads(
            java or b""
        ):  # the order of a map's entries is Java's
            different.append(shown(case, encoded(data)))
    assert refused < 9
    assert not different, "\n".join(different[:5])


def test_json_schemas_and_values_are_read_as_java_reads_them() -> None:
    different = []
    for case in load("jsonschema_read"):
        if '"$ref"' in case["text"]:
            continue  # Java marks the second use of a definition with a parameter of its own
        try:
            ours = encoded(
                described(*json_schema_reader(case["text"], {}, json_settings(case))(decoded(case["data"]) or b""))
            )
        except Skippable as error:
            ours = {"error": str(error)}
        java = case["java"]
        if "error" in java and "Decimal" in case["text"]:
            continue  # a numeric default of a Decimal, which Java's own JsonConverter can't describe
        if ("error" in ours) != ("error" in java) or (
            "bytes" in ours and comparable(decoded(ours["bytes"])) != comparable(decoded(java["bytes"]))
        ):
            different.append(shown(case, ours))
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:5])


# Protobuf.


def protobuf_settings(case: Case) -> ProtobufSettings:
    return ProtobufSettings(
        optional=on(case, "optional.for.nullables"),
        wrapper=on(case, "wrapper.for.nullables"),
        scrub=on(case, "scrub.invalid.names"),
        replace_null=not on(case, "ignore.default.for.nullables"),
        enhanced=on(case, "enhanced.protobuf.schema.support"),
        int_enums=on(case, "int.for.enums"),
        index_unions=on(case, "generate.index.for.unions", default=True),
        flatten=on(case, "flatten.unions"),
        nulls=on(case, "generate.struct.for.nulls"),
    )


def has_old_date(spec: Any, value: Any) -> bool:
    if isinstance(spec, dict) and value is not None:
        if spec.get("name") in (DATE, TIMESTAMP):
            return bool(value * (86_400_000 if spec["name"] == DATE else 1) < GREGORIAN_MS)
        if spec["type"] == "struct":
            return any(has_old_date(member, value.get(name, member.get("default"))) for name, member in spec["fields"])
        if spec["type"] in ("array", "map"):
            return any(has_old_date(spec["values"], item[1] if spec["type"] == "map" else item) for item in value)
    return False


def test_protobuf_schemas_and_messages() -> None:
    different = []
    refused = compared = 0
    for case in load("protobuf"):
        settings = protobuf_settings(case)
        schema = schema_of(case["schema"])
        value = value_of(schema, case["value"])
        java = case["java"]
        assert schema is not None
        try:
            file = proto_file(schema, settings)
            head = index_bytes([file.index])
            data = compile_protobuf(file, schema, head, replace_null=settings.replace_null)(value)
            if file.message is not None and value is not None:
                assert data == head + message_bytes(file.message, value, replace_null=settings.replace_null), case
        except Skippable as error:
            # Java writes single logical values into wrappers of another type, which no reader accepts; arrays of maps fail
            # when they are written; and a required null is left out, that is: becomes 0.
            if "error" not in java:
                refused += "null value" in str(error)
                if not re.search("single org|arrays of maps|null value", str(error)):
                    different.append(shown(case, {"error": str(error)}))
            continue
        if "error" in java:
            assert '"default"' in json.dumps(
                case["schema"]
            )  # Java fails for defaults inside of arrays, which Protobuf has not
            continue
        compared += 1
        text = proto_text(file)
        assert text.replace(f'import "{META}";\n', "").replace("\n\n\n", "\n\n") == java["text"], shown(case, {})
        if data != decoded(java["bytes"]) and not has_old_date(case["schema"], case["value"]):
            read = protobuf_reader(text, {}, settings)  # the order of a map's entries is Java's HashMap's
            if read(data or b"") != read(decoded(java["bytes"]) or b""):
                different.append(shown(case, encoded(data)))
    assert compared > 600
    assert refused < 5
    assert not different, "\n".join(different[:5])


@pytest.mark.scaled
def test_protobuf_messages_are_read_as_java_reads_them() -> None:
    different = []
    cases = load("protobuf_read")
    # Parsing a string takes long: the slow run reads all of them, this one reads one of each kind.
    chosen = scaled([*cases[-48:], *cases[:-48:9]], cases)
    for case in chosen:
        if case["text"].count("Point ") > 1:
            continue  # Java's array elements carry the parameter of the message's first use
        try:
            schema, value = protobuf_reader(case["text"], {}, protobuf_settings(case))(decoded(case["data"]) or b"")
            ours = encoded(described(schema, value))
        except Skippable as error:
            ours = {"error": str(error)}
        java = case["java"]
        if "error" in java or re.search(r"Entry \{\s+\w+ key = 1;\s+[\w.]*[A-Z]\w* value = 2;", case["text"]):
            continue  # null messages as a map's values: Java fails, or reads them as 0
        if comparable(decoded(ours.get("bytes"))) != comparable(decoded(java["bytes"])) and "Date" not in case["text"]:
            different.append(shown(case, ours))
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:5])


# CloudEvents.


def test_cloud_events_are_debeziums() -> None:
    pairs = []
    for case in load("cloudevents"):
        converter = create_converter("io.debezium.converters.CloudEventsConverter", case["config"], False)
        schema = schema_of(case["schema"])
        value = value_of(schema, case["value"])
        encode = converter.header_encoder("topic", schema)
        try:
            data = (
                encode(value, [(name, text.encode()) for name, text in case["headers"]])
                if encode is not None
                else converter.encoder("topic", schema)(value)
            )
        except Skippable as error:
            pairs.append((case, {"error": str(error)}))
            continue
        pairs.append((case, encoded(data)))
    all_same(pairs)


# The recordings.


def asked_again(name: str, java: JavaConverters) -> None:
    cases = load(name)
    answers = java.ask(
        [{part: content for part, content in case.items() if part not in ("java", "older")} for case in cases]
    )
    for case, answer in zip(cases, answers, strict=True):
        assert answer == case["java"], case


def jars(*sets: str, more: tuple[Artifact, ...]) -> list[str]:
    manifest = load_manifest()
    try:
        return [
            str(path)
            for path in ArtifactResolver().fetch(
                [*(artifact for name in sets for artifact in manifest.members(name)), *more], "the Java converters"
            )
        ]
    except StackError as error:
        pytest.skip(f"the Java converters' jars can't be had: {error}")


def test_the_recorded_events_are_what_debezium_answers_now(tmp_path: Path) -> None:
    home, _ = jdk()
    classpath = ":".join(jars("connect", "debezium", more=(*AVRO_JARS, MYSQL)))
    asked_again(
        "cloudevents",
        JavaConverters.compiled(
            home, classpath, tmp_path, release=17, more="java_debezium", program="CloudEventsVectors"
        ),
    )


@pytest.mark.parametrize("name", ["jsonschema", "jsonschema_read", "protobuf", "protobuf_read"])
def test_the_recording_is_what_confluent_answers_now(name: str, tmp_path: Path) -> None:
    confluent_jars = os.environ.get("MILLRACE_CONFLUENT_CLASSPATH")
    if not confluent_jars:
        pytest.skip(
            "MILLRACE_CONFLUENT_CLASSPATH names no class path with Confluent's converters, which are in no public "
            "Maven repository; the recorded vectors are compared all the same"
        )
    home, version = jdk()
    if version < NEWEST_ALGORITHM:
        pytest.skip(f"the vectors were recorded with a newer JDK, which prints some numbers otherwise than {version}")
    classpath = ":".join([confluent_jars, *jars("connect", more=AVRO_JARS)])
    asked_again(
        name,
        JavaConverters.compiled(
            home, classpath, tmp_path, release=17, more="java_confluent", program="ConfluentVectors"
        ),
    )
