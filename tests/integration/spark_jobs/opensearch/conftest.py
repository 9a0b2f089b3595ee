"""One OpenSearch for the tests of this folder, and a door before it that asks for a login."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from compose.local.targets.opensearch import OpenSearch
from tests.support.login_door import login_door
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Iterator

USER, PASSWORD = "writer", "secret-of-the-writer"


@dataclass(frozen=True, slots=True)
class Reader:
    """Asks the server, past the door."""

    url: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - http
            self.url + quote(path, safe="/?=&,"), data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - http
            return json.loads(answer.read() or b"{}", parse_float=Decimal)

    def documents(self, index: str) -> dict[str, dict[str, Any]]:
        """All documents of an index by their ids; none where there is no index."""
        try:
            self.ask("POST", f"/{index}/_refresh")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return {}
            raise
        result = self.ask("POST", f"/{index}/_search", {"size": 10_000, "query": {"match_all": {}}})
        return {hit["_id"]: hit["_source"] for hit in result["hits"]["hits"]}

    def fields(self, index: str) -> dict[str, Any]:
        """The mapping of an index."""
        (definition,) = self.ask("GET", f"/{index}/_mapping").values()
        properties: dict[str, Any] = definition["mappings"]["properties"]
        return properties


@pytest.fixture(scope="module")
def opensearch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSearch]:
    # Nothing of it outlives the tests, so that it need not wait for the disk.
    settings = {"action.destructive_requires_name": "false", "cluster.max_shards_per_node": "5000"}
    folder = tmp_path_factory.mktemp("opensearch")
    with OpenSearch(folder, port=None, jvm_options=FAST_START, settings=settings) as server:
        reader = Reader(server.url)
        reader.ask(
            "PUT",
            "/_index_template/tests",
            {
                "index_patterns": ["*"],
                "template": {
                    "settings": {"number_of_shards": 1, "number_of_replicas": 0, "index.translog.durability": "async"}
                },
            },
        )
        yield server


@pytest.fixture(scope="module")
def reader(opensearch: OpenSearch) -> Reader:
    return Reader(opensearch.url)


@pytest.fixture(scope="module")
def door(opensearch: OpenSearch) -> Iterator[int]:
    """The port of a proxy that passes on requests with the right login."""
    with login_door(opensearch.port or 0, USER, PASSWORD) as port:
        yield port
