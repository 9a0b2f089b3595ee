"""Asks Kafka Connect's worker about all cases and writes ``answers.json.gz``.

``python -m tests.conformance.validation.record [BOOTSTRAP]``; the default is 127.0.0.1:9092. Of each answer only what differs
from the one for the plain configuration is kept, normalised as in ``tests.conformance.rest``.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from compose.local.connect import JavaConnect
from tests.conformance.rest.answers import Answer, Names, ask, normalise
from tests.conformance.rest.scenario import Step
from tests.conformance.validation.cases import BASE, Case, cases
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWERS: Final = Path(__file__).with_name("answers.json.gz")
PATH: Final = "/connector-plugins/FileStreamSource/config/validate"
_NAMES: Final = Names("topic-of-no-case", "/file/of/no/case")


def worker_key(worker: Mapping[str, str]) -> str:
    """A name for the worker's properties."""
    return json.dumps(dict(worker), sort_keys=True)


def normalised(case: Case, answer: Answer) -> dict[str, Any]:
    """An answer without what differs from run to run: status with message, or with the whole body."""
    outcome = normalise(Step(case.name, "PUT", PATH, dict(case.config)), answer, {}, _NAMES)
    body = outcome["body"]
    if outcome["status"] != 200:
        return {"status": outcome["status"], "message": body["message"]}
    return {"status": 200, **body}


def shortened(answer: dict[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """``answer`` without the entries that are as in ``plain``, whose names are kept in ``order``."""
    if answer["status"] != 200:
        return answer
    plain_items = {item["value"]["name"]: item for item in plain["configs"]}
    order = [item["value"]["name"] for item in answer["configs"]]
    changed = [item for item in answer["configs"] if plain_items.get(item["value"]["name"]) != item]
    return {**answer, "order": order, "configs": changed}


def lengthened(answer: dict[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of ``shortened``: its inverse."""
    if answer["status"] != 200:
        return answer
    entries = {item["value"]["name"]: item for item in (*plain["configs"], *answer["configs"])}
    return {
        **{key: value for key, value in answer.items() if key != "order"},
        "configs": [entries[name] for name in answer["order"]],
    }


def record(url: str, asked: list[Case]) -> dict[str, Any]:
    """A worker's answers: the plain one whole, the others shortened."""

    def ask_case(case: Case) -> dict[str, Any]:
        return normalised(case, ask(url, Step(case.name, "PUT", PATH, dict(case.config)), _NAMES))

    plain = ask_case(Case("plain", BASE))
    return {"plain": plain, "answers": {case.name: shortened(ask_case(case), plain) for case in asked}}


def main(bootstrap: str = "127.0.0.1:9092") -> None:
    """Ask and write. Blocks."""
    workers: dict[str, list[Case]] = {}
    for case in cases():
        workers.setdefault(worker_key(case.worker), []).append(case)
    result: dict[str, Any] = {}
    for number, (key, asked) in enumerate(workers.items()):
        with tempfile.TemporaryDirectory() as folder:
            worker = JavaConnect(
                Path(folder), bootstrap, group=f"validate-{number}", properties=asked[0].worker, jvm_options=FAST_START
            )
            worker.start()
            try:
                result[key] = record(worker.url, asked)
            finally:
                worker.kill()
    text = json.dumps(result, indent=1, ensure_ascii=False, sort_keys=True)
    ANSWERS.write_bytes(gzip.compress(text.encode(), mtime=0))
    sys.stdout.write(f"{ANSWERS}: {sum(map(len, workers.values()))} answers\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
