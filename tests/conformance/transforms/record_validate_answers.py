"""Records what Kafka Connect answers to ``validate`` about transforms.

``python -m tests.conformance.transforms.record_validate_answers [KAFKA]`` asks a worker of its own about each configuration in
``validate_answers.json`` and those named here, and rewrites the file.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from compose.local.connect import JavaConnect
from worker.fetch.java import FAST_START

ANSWERS: Final = Path(__file__).with_name("validate_answers.json")
_KAFKA: Final = "org.apache.kafka.connect.transforms."
#: Name -> transform, options.
_ADDED: Final[tuple[tuple[str, str, dict[str, str]], ...]] = (
    ("cast", "Cast$Value", {"spec": "a:int8,b:string"}),
    ("cast_none", "Cast$Key", {"spec": ""}),
    ("cast_type", "Cast$Key", {"spec": "a:int7"}),
    ("cast_bytes", "Cast$Key", {"spec": "bytes"}),
    ("cast_two", "Cast$Key", {"spec": "int8,a:int8"}),
    ("cast_parts", "Cast$Key", {"spec": "a:b:c"}),
    ("drop_headers", "DropHeaders", {}),
    ("drop_no_headers", "DropHeaders", {"headers": ""}),
    ("extract", "ExtractField$Key", {"field": "a"}),
    ("extract_v3", "ExtractField$Value", {"field.syntax.version": "V3"}),
    ("flatten", "Flatten$Value", {}),
    ("header_from", "HeaderFrom$Value", {"fields": "a", "headers": "b", "operation": "move"}),
    ("header_from_bad", "HeaderFrom$Value", {"fields": "", "operation": "steal", "replace.null.with.default": "x"}),
    ("hoist", "HoistField$Value", {"field": "a"}),
    ("insert_header", "InsertHeader", {"header": "a"}),
    ("schema", "SetSchemaMetadata$Key", {"schema.name": "n"}),
    ("schema_version", "SetSchemaMetadata$Key", {"schema.version": "x"}),
    ("timestamp", "TimestampConverter$Value", {"target.type": "unix"}),
    ("timestamp_bad", "TimestampConverter$Value", {"target.type": "date", "unix.precision": "hours"}),
    ("router", "TimestampRouter", {}),
    ("value_to_key", "ValueToKey", {"fields": "a"}),
    ("value_to_no_key", "ValueToKey", {}),
)
_SHOWN: Final = ("name", "type", "required", "default_value", "importance", "group", "width", "display_name", "order")


def _configs() -> dict[str, dict[str, str]]:
    recorded = {answer["name"]: answer["config"] for answer in json.loads(ANSWERS.read_text(encoding="utf-8"))}
    return recorded | {
        name: {
            "transforms": "a",
            "transforms.a.type": _KAFKA + kind,
            **{f"transforms.a.{option}": value for option, value in options.items()},
        }
        for name, kind, options in _ADDED
    }


def _answer(worker: JavaConnect, name: str, config: dict[str, str]) -> dict[str, Any]:
    common = {"name": "x", "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "topic": "t"}
    status, body = worker.request(
        "PUT", "/connector-plugins/FileStreamSourceConnector/config/validate", {**common, **config}
    )
    if status != 200:
        raise RuntimeError(f"{name}: {status} {body}")
    configs = []
    for option in body["configs"]:
        definition = option["definition"]
        if definition["name"].startswith(("transforms.", "predicates.")):
            shown = {key: definition[key] for key in _SHOWN}
            configs.append({**shown, "value": option["value"]["value"], "errors": option["value"]["errors"]})
    groups = [group for group in body["groups"] if group.startswith(("Transforms: ", "Predicates: "))]
    return {"name": name, "config": config, "groups": groups, "configs": configs}


def main(bootstrap: str = "127.0.0.1:9092") -> None:
    """Ask and write. Blocks."""
    with tempfile.TemporaryDirectory() as folder:
        worker = JavaConnect(Path(folder), bootstrap, group="validate", standalone=(), jvm_options=FAST_START)
        worker.start()
        try:
            answers = [_answer(worker, name, config) for name, config in _configs().items()]
        finally:
            worker.kill()
    ANSWERS.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{ANSWERS}: {len(answers)} answers")


if __name__ == "__main__":
    main(*sys.argv[1:])
