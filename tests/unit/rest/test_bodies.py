"""Request bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from worker.rest.facade import RestError
from worker.rest.shapes.bodies import (
    CreateRequest,
    read_config,
    read_create,
    read_level,
    read_offsets,
    read_savepoint,
    read_task_configs,
)


def test_values_become_strings_with_their_digits() -> None:
    body = b'{"a": 1, "b": 1.50, "c": 1e3, "d": true, "e": false, "f": null, "g": "x", "h": 123456789012345678901234567890}'
    assert read_config(body) == {
        "a": "1",
        "b": "1.50",
        "c": "1e3",
        "d": "true",
        "e": "false",
        "f": None,
        "g": "x",
        "h": "123456789012345678901234567890",
    }
    assert all(type(value) in {str, type(None)} for value in read_config(body).values())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"null",
        b"[]",
        b'"x"',
        b"5",
        b"{",
        b"{}x",
        b'{"a": {}}',
        b'{"a": []}',
        b'{"a": NaN}',
        b"\xff\xfe\x00",
        b'{"a": "\xed\xa0\x80"}',
        '{"a": "\\ud800"}'.encode("utf-16"),
        '{"a": "\ud800"}'.encode("utf-32-le", "surrogatepass"),
        b"[" * 100_000,
        b"{'a': 1}",
    ],
)
def test_bodies_that_are_no_configuration(body: bytes) -> None:
    with pytest.raises(RestError) as caught:
        read_config(body)
    assert caught.value.status == 400


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_bodies_may_be_in_each_encoding_of_json(encoding: str) -> None:
    assert read_config('{"a": "\\ud83d\\ude00 ä"}'.encode(encoding)) == {"a": "\U0001f600 ä"}


def test_an_error_quotes_nothing_of_the_body() -> None:
    with pytest.raises(RestError) as caught:
        read_config(b'{"password": "hunter2" x')
    assert "hunter2" not in str(caught.value)
    with pytest.raises(RestError) as caught:
        read_config(b'{"password": ["hunter2"]}')
    assert "hunter2" not in str(caught.value)
    assert "'password'" in str(caught.value)


def test_create() -> None:
    body = json.dumps({"name": "  a ", "config": {"x": 1}, "initial_state": "paused"}).encode()
    assert read_create(body) == CreateRequest("a", {"x": "1"}, "PAUSED")
    assert read_create(b'{"config": {}}') == CreateRequest("", {}, None)
    assert read_create(b'{"config": {}, "name": null, "initial_state": null}') == CreateRequest("", {}, None)
    assert read_create(b'{"config": {}, "name": 5}').name == "5"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "The field 'config' is missing"),
        ({"name": "a"}, "The field 'config' is missing"),
        ({"name": "a", "config": None}, "The field 'config' is missing"),
        ({"name": "a", "config": []}, "The field 'config' must be a JSON object"),
        ({"name": ["a"], "config": {}}, "The field 'name' must be a string"),
        ({"name": "a", "config": {}, "zzz": 1}, "Unknown field 'zzz'"),
        (
            {"name": "a", "config": {}, "initial_state": "x"},
            "Invalid initial_state 'x'; it must be one of RUNNING, PAUSED, STOPPED",
        ),
        ({"name": "a", "config": {}, "initial_state": 1}, "Invalid initial_state '1'"),
        ({"name": "a", "config": {}, "initial_state": {}}, "Invalid initial_state"),
    ],
)
def test_create_requests_that_are_refused(body: Any, text: str) -> None:
    with pytest.raises(RestError, match="^" + text.replace("(", r"\(")) as caught:
        read_create(json.dumps(body).encode())
    assert caught.value.status == 400


def test_offsets_keep_their_types() -> None:
    body = json.dumps(
        {
            "offsets": [
                {"partition": {"a": 1, "b": "x"}, "offset": {"n": 12345678901234567890123, "f": 1.5, "t": True}},
                {"partition": {"a": 2}, "offset": None},
                {"partition": {}},
            ]
        }
    ).encode()
    assert read_offsets(body) == [
        ({"a": 1, "b": "x"}, {"n": 12345678901234567890123, "f": 1.5, "t": True}),
        ({"a": 2}, None),
        ({}, None),
    ]


def test_a_number_that_would_be_saved_as_null_is_refused() -> None:
    with pytest.raises(RestError, match="The number 1e400 is too large") as caught:
        read_offsets(b'{"offsets": [{"partition": {}, "offset": {"n": 1e400}}]}')
    assert caught.value.status == 400


@pytest.mark.parametrize("body", [{}, {"offsets": None}, {"offsets": []}])
def test_no_offsets(body: Any) -> None:
    with pytest.raises(RestError) as caught:
        read_offsets(json.dumps(body).encode())
    assert str(caught.value) == "Partitions / offsets need to be provided for an alter offsets request"


@pytest.mark.parametrize(
    "body",
    [
        {"offsets": "x"},
        {"offsets": {}},
        {"offsets": ["x"]},
        {"offsets": [{"partition": "x"}]},
        {"offsets": [{"partition": None}]},
        {"offsets": [{"partition": {}, "offset": 5}]},
        {"offsets": [{"partition": {}, "x": 5}]},
        {"offsets": [{}], "x": 1},
        [],
        None,
    ],
)
def test_offsets_that_are_refused(body: Any) -> None:
    with pytest.raises(RestError) as caught:
        read_offsets(json.dumps(body).encode())
    assert caught.value.status == 400


def test_level_and_task_configs() -> None:
    assert read_level(b'{"level": "DEBUG"}') == "DEBUG"
    assert read_level(b"{}") is None
    assert read_task_configs(b'[{"a": 1}, {"b": null}]') == [{"a": "1"}, {}]
    with pytest.raises(RestError):
        read_task_configs(b"{}")


def test_savepoints() -> None:
    assert read_savepoint(b'{"name": "one", "stop": true}')["stop"] is True
    assert not read_savepoint(b'{"name": "one"}').get("stop")
    with pytest.raises(RestError, match=r"^The field 'stop' must be true or false$"):
        read_savepoint(b'{"name": "one", "stop": "true"}')
    with pytest.raises(RestError, match=r"^The field 'name' must be 1 to 200 letters"):
        read_savepoint(b'{"name": "../one"}')
