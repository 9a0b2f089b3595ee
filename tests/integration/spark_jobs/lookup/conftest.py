"""A server over HTTP that answers keys with rows, and lookups as tasks get them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

from connectors.options import ConfigDef
from spark_jobs.steps.lookup.options import CONFIG_DEF, find_problems, spec_of
from tests.support.http_services import HttpService

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spark_jobs.steps.lookup.model import Spec


class RowServer(HttpService):
    """Rows by key: ``GET /rows/<key>`` gives one, ``POST /rows`` those of a JSON array of keys.

    Attributes:
        rows: key -> the row's fields.
        failures: statuses that the next requests get.
        asked: what was asked for.
        headers: of the last request.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, dict[str, Any]] = {}
        self.failures: list[int] = []
        self.asked: list[Any] = []
        self.headers: dict[str, str] = {}

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        self.headers = dict(headers)
        if self.failures:
            return self.failures.pop(0), {"error": "for the test"}
        if method == "POST":
            keys = json.loads(body)
            self.asked.append(keys)
            return 200, [{**key, **self.rows[str(key["id"])]} for key in keys if str(key["id"]) in self.rows]
        key = unquote(urlsplit(path).path.rpartition("/")[2])
        self.asked.append(key)
        return (200, self.rows[key]) if key in self.rows else (404, {})


@pytest.fixture
def row_server() -> Iterator[RowServer]:
    with RowServer() as server:
        yield server


def spec(client: Mapping[str, Any] | None = None, /, **options: str) -> Spec:
    """A lookup of these options (underscores for dots), with short pauses; ``client`` is the consumer of a topic."""
    raw = {"retry.backoff.ms": "20", "timeout.ms": "5000"}
    raw |= {name.replace("_", "."): value for name, value in options.items()}
    parsed = ConfigDef(list(CONFIG_DEF.keys.values())).parse(raw)
    values = {name: parsed[name] for name in CONFIG_DEF.keys}
    assert find_problems(values) == []
    return spec_of("s", values, raw, client or {})
