"""Compare ``validate_config`` on some 500 configurations with the recorded answers of Kafka Connect 4.1.2's worker.

``record.py`` asks that worker; in the slow suite it is asked again. All of an answer is compared but
documentation: status, groups and options in their order, definitions, values, recommendations, visibility, errors. Differences
are those that ``tests.conformance.rest.differences.VALIDATION`` names.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from typing import TYPE_CHECKING, Any, Final

import orjson
import pytest

from connectors.errors import ConfigInvalid
from tests.conformance.rest.answers import Answer
from tests.conformance.rest.differences import VALIDATION, with_our_options
from tests.conformance.validation.cases import Case, cases
from tests.conformance.validation.record import ANSWERS, lengthened, normalised, record, worker_key
from worker.config.validation.answers import validate_config
from worker.control.herder.base import with_problems
from worker.plugins import PluginRegistry
from worker.plugins.catalog import PluginCatalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CASES: Final = cases()
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
#: Errors that Kafka Connect has only when a connector or task starts, or at a record.
_LATER: Final = re.compile(
    "Unknown predicate|No group|No value specified for static field|must have the same number of elements"
    "|requires format option|Neither schema name nor version configured"
    "|An empty path names no field|Illegal pattern character|there is no such encoding"
    "|errors.retry.delay.max.ms: Value must be at least 1|for configuration (compression.type|acks): String must be one of"
)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(gzip.decompress(ANSWERS.read_bytes()))
    return answers


@pytest.fixture(scope="module")
def ours() -> Mapping[str, dict[str, Any]]:
    """Millrace's answers, as the control process and a task host make them."""
    registry = PluginRegistry()
    catalog = PluginCatalog(registry.infos())

    async def validate_case(case: Case) -> dict[str, Any]:
        worker = {"key.converter": _JSON, "value.converter": _JSON, **case.worker}
        try:
            body = await validate_config(registry, case.config, "FileStreamSource", worker)
        except ConfigInvalid as error:
            return _normalised(case, 400, {"error_code": 400, "message": str(error)})
        return _normalised(case, 200, with_problems(body, catalog.select(case.config, worker).problems))

    async def everything() -> dict[str, dict[str, Any]]:
        return {case.name: await validate_case(case) for case in CASES}

    return asyncio.run(everything())


def _normalised(case: Case, status: int, body: dict[str, Any]) -> dict[str, Any]:
    return normalised(case, Answer(status, {"Content-Type": "application/json"}, orjson.dumps(body)))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_answer(case: Case, recorded: dict[str, Any], ours: Mapping[str, dict[str, Any]]) -> None:
    theirs = recorded[worker_key(case.worker)]
    java = lengthened(theirs["answers"][case.name], theirs["plain"])
    complaints = list(_compared(case, with_our_options(java), ours[case.name]))
    assert not complaints, "\n".join((json.dumps(dict(case.config)), *complaints))


def test_there_is_an_answer_to_each(recorded: dict[str, Any]) -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert {(key, name) for key, recording in recorded.items() for name in recording["answers"]} == {
        (worker_key(case.worker), case.name) for case in CASES
    }


@pytest.mark.parametrize(
    ("option", "value", "difference"),
    [
        ("value.converter", f" {_JSON} ", "blanks"),
        ("value.converter", "java.lang.String", "other classes"),
        ("header.converter", "org.apache.kafka.connect.storage.HeaderConverter", "other classes"),
    ],
)
async def test_class_names(option: str, value: str, difference: str) -> None:
    assert difference in VALIDATION
    body = await validate_config(PluginRegistry(), {**CASES[0].config, option: value}, None, {"key.converter": _JSON})
    (errors,) = [item["value"]["errors"] for item in body["configs"] if item["value"]["name"] == option]
    assert errors == (
        []
        if difference == "blanks"
        else [f"Invalid value {value} for configuration {option}: Class {value} could not be found."]
    )


@pytest.mark.slow
def test_kafka_connect_still_answers_so(java_connect: Callable[..., Any], recorded: dict[str, Any]) -> None:
    for number, (key, answers) in enumerate(recorded.items()):
        worker = java_connect(group=f"validate-{number}", properties=json.loads(key))
        assert record(worker.url, [case for case in CASES if worker_key(case.worker) == key]) == answers
        worker.stop()


# Comparing.


def _compared(case: Case, java: dict[str, Any], answer: dict[str, Any]) -> Iterator[str]:
    """Yield the differences that are not deliberate."""
    if java["status"] == 500:
        yield from _refused(java["message"], answer)
        return
    if java["status"] != answer["status"]:
        yield f"status {java['status']}, here {answer['status']}: {answer.get('message')}"
        return
    theirs, mine = _entries(java), _entries(answer)
    for option in list(mine):
        if option.startswith("topic.creation.") and option != "topic.creation.groups":
            del mine[option]  # topic creation groups
        elif option not in theirs and mine[option]["definition"] is None and not mine[option]["value"]["errors"]:
            del mine[option]  # it was there for an error of what fails later
        elif (
            option not in theirs
            and option.startswith("admin.override.")
            and "policy does not" in str(mine[option]["value"])
        ):
            del mine[option]  # unused clients
    for name, value in (("error_count", _errors), ("order of options", list), ("options", dict)):
        if value(theirs) != value(mine):
            yield f"{name}: {_shown(value(theirs), value(mine))}, here {_shown(value(mine), value(theirs))}"
    groups = [group for group in answer["groups"] if group != "default" and not group.startswith("Topic Creation: ")]
    if java["groups"] != groups:
        yield f"groups: {java['groups']}, here {groups}"
    if java["name"] != answer["name"]:
        yield f"name: {java['name']}, here {answer['name']}"
    if answer["error_count"] != sum(len(item["value"]["errors"]) for item in answer["configs"]) and (
        not any(".converter." in option for option in case.config)
    ):
        yield f"error_count is {answer['error_count']}"


def _refused(message: str, answer: dict[str, Any]) -> Iterator[str]:
    """Where Kafka Connect answers 500 with the text of an exception."""
    kind, _, text = message.partition(": ")
    if kind.endswith(".BadRequestException"):  # connector version, or no class
        if (answer["status"], answer.get("message")) != (400, text):
            yield f"{message}, here {answer}"
        return
    # Client properties: one that the policy refuses is not looked at any further.
    option = text.rpartition(" for configuration ")[2].partition(":")[0]
    errors = [
        error
        for item in answer.get("configs", ())
        if item["value"]["name"].endswith(f".override.{option}")
        for error in item["value"]["errors"]
    ]
    if not any(error == text or f"policy does not allow '{option}'" in error for error in errors):
        yield f"{message}, here {answer['status']} {errors}"


def _entries(answer: dict[str, Any]) -> dict[str, Any]:
    """Options by name, errors without what is meant to differ."""
    entries = {item["value"]["name"]: {**item, "value": dict(item["value"])} for item in answer["configs"]}
    for entry in entries.values():
        errors = [_text(error) for error in entry["value"]["errors"] if not _LATER.search(error)]  # what fails later
        if len(errors) == 2 and errors[0].startswith("Missing required") and errors[1].startswith("Invalid value null"):
            del errors[1]  # missing and checked
        if entry["value"]["name"] == "exactly.once.support":
            errors = [error for error in errors if not error.startswith("An unexpected error occurred")]  # exactly once
        entry["value"]["errors"] = errors
    return entries


def _text(error: str) -> str:
    cast = re.search(r"Invalid type found in casting spec: [^;]*", error)
    return (
        cast[0]
        if cast
        else re.sub(r"(Invalid regex|Syntax error in regular expression): .*", r"\1", error, flags=re.DOTALL)
    )


def _errors(entries: Mapping[str, Any]) -> int:
    return sum(len(entry["value"]["errors"]) for entry in entries.values())


def _shown(value: Any, other: Any) -> Any:
    """The part of it that the other one has not."""
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if other.get(name) != item}
    return value
