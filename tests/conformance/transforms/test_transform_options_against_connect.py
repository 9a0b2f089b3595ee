"""The options that transforms add to a connector, compared with what Kafka Connect 4.1.2 answers to ``validate``.

``validate_answers.json`` holds the answers of a real worker: definition and errors of each ``transforms.*`` and
``predicates.*`` option, without the documentation, which is our own. ``record_validate_answers.py`` records them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.options import ConfigDef, ConfigKey, java_string
from worker.transforms.options import transform_config_keys

ANSWERS = json.loads(Path(__file__).with_name("validate_answers.json").read_text(encoding="utf-8"))


def described(key: ConfigKey) -> dict[str, Any]:
    default = (
        None
        if key.required or key.default is None
        else ",".join(key.default)
        if isinstance(key.default, list)
        else java_string(key.default)
    )
    return {
        "name": key.name,
        "type": str(key.type),
        "required": key.required,
        "default_value": default,
        "importance": str(key.importance),
        "group": key.group,
        "width": str(key.width),
        "display_name": key.display_name,
        "order": key.order,
    }


def expected_errors(answer: dict[str, Any]) -> list[str]:
    errors: list[str] = answer["errors"]
    # Connect also validates the null of an option that is missing; one complaint about it is enough.
    return errors[:1]


@pytest.mark.parametrize("answer", ANSWERS, ids=[answer["name"] for answer in ANSWERS])
def test_options_are_those_of_connect(answer: dict[str, Any]) -> None:
    keys = transform_config_keys(answer["config"])
    ours = {key.name: described(key) for key in keys}
    theirs = {
        option["name"]: {name: value for name, value in option.items() if name not in ("value", "errors")}
        for option in answer["configs"]
    }
    assert ours == theirs
    assert [key.name for key in keys] == [option["name"] for option in answer["configs"]]
    assert ConfigDef(keys).groups == answer["groups"]


@pytest.mark.parametrize("answer", ANSWERS, ids=[answer["name"] for answer in ANSWERS])
def test_errors_are_those_of_connect(answer: dict[str, Any]) -> None:
    values = ConfigDef(transform_config_keys(answer["config"])).values(answer["config"])
    for option in answer["configs"]:
        errors = expected_errors(option)
        ours = values[option["name"]].errors
        assert len(ours) == len(errors), (option["name"], ours, errors)
        for mine, text in zip(ours, errors, strict=True):
            theirs = text
            if theirs.startswith("Invalid value java.lang."):
                theirs = theirs.rpartition(" for configuration ")[2]  # Cast gives the parser's error for the value
            # Millrace's message starts with Connect's words; an expression's error and the possible values follow.
            assert mine.startswith(theirs.split(": Unclosed group")[0].removesuffix(".")), (mine, theirs)
