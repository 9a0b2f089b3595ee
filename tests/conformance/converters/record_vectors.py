"""Writes the vectors: asks the real Java converters for every case. Needs a JDK and the jars; run it when cases change.

``python -m tests.conformance.converters.record_vectors JAVA_HOME CLASSPATH [JAVA_HOME_OLD]``: the first JDK must be 19 or newer
(Double.toString); what the older one prints differently is kept next to it. A fourth argument is a class path with Confluent's
JsonSchemaData and ProtobufData (``confluentinc/schema-registry``, 8.1.5), made from their source; the vectors for them are
written only then. ``CLASSPATH`` must hold Debezium's connectors too.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conformance.converters import cases, cases_avro, cases_cloudevents, cases_registry, cases_text
from tests.conformance.converters.java_runner import JavaConverters

VECTORS = Path(__file__).parent / "vectors"


def main() -> None:
    home, classpath = Path(sys.argv[1]), sys.argv[2]
    older_home = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory() as folder:
        java = JavaConverters.compiled(home, classpath, Path(folder), release=17)
        older = JavaConverters(older_home, java.classpath) if older_home else None

        def answered(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
            answers = java.ask(requests)
            old = older.ask(requests) if older else answers
            return [
                {**request, "java": answer, **({"older": before} if before != answer else {})}
                for request, answer, before in zip(requests, answers, old, strict=True)
            ]

        written = answered(cases.json_cases())
        sets = {
            "json": written,
            "json_read": answered(cases.json_read_cases(written)),
            "numbers": answered(cases.number_cases()),
            "murmur2": answered(cases.murmur_cases()),
            "text": answered(cases_text.text_cases()),
            "header_read": answered(cases_text.header_read_cases()),
            "avro": answered(cases_avro.avro_cases()),
            "primitives": answered(cases_registry.primitive_cases()),
        }
    with tempfile.TemporaryDirectory() as folder:
        debezium = JavaConverters.compiled(
            home, classpath, Path(folder), release=17, more="java_debezium", program="CloudEventsVectors"
        )
        requests = cases_cloudevents.cloudevents_cases()
        sets["cloudevents"] = [
            {**request, "java": answer} for request, answer in zip(requests, debezium.ask(requests), strict=True)
        ]
    if len(sys.argv) > 4:
        sets |= _confluent(home, f"{sys.argv[4]}:{classpath}")
    VECTORS.mkdir(exist_ok=True)
    for name, vectors in sets.items():
        text = "\n".join(json.dumps(vector, separators=(",", ":")) for vector in vectors) + "\n"
        (VECTORS / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        print(
            f"{name}: {len(vectors)} cases, {sum('error' in vector['java'] for vector in vectors)} refused, "
            f"{sum('older' in vector for vector in vectors)} different in the older Java"
        )


def _confluent(home: Path, classpath: str) -> dict[str, list[dict[str, Any]]]:
    sets: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        java = JavaConverters.compiled(
            home, classpath, Path(folder), release=17, more="java_confluent", program="ConfluentVectors"
        )
        for op in ("jsonschema", "protobuf"):
            requests = cases_registry.registry_cases(op)
            sets[op] = [
                {**request, "java": answer} for request, answer in zip(requests, java.ask(requests), strict=True)
            ]
            requests = cases_registry.registry_read_cases(op, sets[op])
            sets[f"{op}_read"] = [
                {**request, "java": answer} for request, answer in zip(requests, java.ask(requests), strict=True)
            ]
    return sets


if __name__ == "__main__":
    main()
