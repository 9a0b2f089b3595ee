"""Configurations of connectors in files, as the command line takes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid
from worker.launch import read_connector

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {"connector.class": "FileStreamSource", "tasks.max": 1, "topic": "lines"}
READ = {"name": "lines", "connector.class": "FileStreamSource", "tasks.max": "1", "topic": "lines"}


def written(path: Path, body: Any) -> Path:
    path.write_text(json.dumps(body) if not isinstance(body, str) else body, "utf-8")
    return path


@pytest.mark.parametrize(
    "body",
    [
        {"name": "lines", "config": CONFIG},
        {"name": "lines", "config": CONFIG, "initial_state": "running"},
        {"config": {**CONFIG, "name": "lines"}},
        {**CONFIG, "name": "lines"},
    ],
)
def test_json_is_a_body_of_post_connectors_or_properties(tmp_path: Path, body: Any) -> None:
    assert read_connector(written(tmp_path / "lines.json", body)) == READ


def test_numbers_keep_their_digits(tmp_path: Path) -> None:
    path = written(
        tmp_path / "lines.json", '{"name": "lines", "x": 1.50, "y": 123456789012345678901234567890, "z": true}'
    )
    assert read_connector(path) == {"name": "lines", "x": "1.50", "y": "123456789012345678901234567890", "z": "true"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "lines", "config": {**CONFIG, "topic": None}}, "Null value"),
        ({**CONFIG, "name": "lines", "topic": None}, "Null value"),
        ({"name": "lines", "config": CONFIG, "initial_state": "STOPPED"}, "initial_state"),
        ({"name": "lines", "config": CONFIG, "states": "STOPPED"}, "Unknown field 'states'"),
        ({"config": CONFIG}, "'name' is missing"),
        ({"name": "lines", "topic": ["a"]}, "'topic'"),
        ("[]", "The file must be a JSON object"),
        ("{", "The file is not valid JSON"),
        ("", "The file is empty"),
        ('{"name": "\\ud800"}', "The file is not valid JSON"),
    ],
)
def test_a_file_that_would_do_something_else_is_refused(tmp_path: Path, body: Any, message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message) as caught:
        read_connector(written(tmp_path / "lines.json", body))
    assert str(caught.value).startswith(str(tmp_path / "lines.json"))
    assert "request" not in str(caught.value)
