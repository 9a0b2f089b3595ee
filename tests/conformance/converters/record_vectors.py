"""Writes the vectors: asks the real Java converters for every case. Needs a JDK and the jars; run it when cases change.

``python -m tests.conformance.converters.record_vectors JAVA_HOME CLASSPATH [JAVA_HOME_OLD]``: the first JDK must be 19 or newer
(Double.toString); what the older one prints differently is kept beside it.
"""
from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conformance.converters import cases, cases_avro, cases_text
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
            return [{**request, "java": answer, **({"older": before} if before != answer else {})}
                    for request, answer, before in zip(requests, answers, old, strict=True)]

        written = answered(cases.json_cases())
        sets = {
            "json": written,
            "json_read": answered(cases.json_read_cases(written)),
            "numbers": answered(cases.number_cases()),
            "murmur2": answered(cases.murmur_cases()),
            "text": answered(cases_text.text_cases()),
            "header_read": answered(cases_text.header_read_cases()),
            "avro": answered(cases_avro.avro_cases()),
        }
    VECTORS.mkdir(exist_ok=True)
    for name, vectors in sets.items():
        text = "\n".join(json.dumps(vector, separators=(",", ":")) for vector in vectors) + "\n"
        (VECTORS / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"{name}: {len(vectors)} cases, {sum('error' in vector['java'] for vector in vectors)} refused, "
              f"{sum('older' in vector for vector in vectors)} different in the older Java")


if __name__ == "__main__":
    main()
