"""Reads the documents of the OpenSearch sink back, for ``millrace verify``. Blocks: call it in a thread."""

from __future__ import annotations

from contextlib import closing, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from connectors.errors import MillraceError, Retriable
from connectors.verify.values import SparseRow
from spark_jobs.sinks.opensearch.client import make_refusal
from spark_jobs.sinks.opensearch.config import CONFIG_DEF, parse_settings
from spark_jobs.sinks.opensearch.mapping import index_name
from spark_jobs.sinks.shared.read_back import ROWS_AT_ONCE, demand_row_settings, parse_own_options, select_present

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spark_jobs.sinks.shared.http_requests import HttpAnswer, HttpRequests

_JSON: Final = {"Content-Type": "application/json"}
#: How long the server keeps the state of a search between two requests.
_KEPT: Final = "5m"
_SCROLL: Final = "/_search/scroll"
_SEARCH: Final = msgspec.json.encode(
    {"size": ROWS_AT_ONCE, "sort": ["_doc"], "track_total_hits": True, "query": {"match_all": {}}}
)
# A decimal in a document has all of its digits.
_decode: Final = msgspec.json.Decoder(float_hook=Decimal).decode


class OpenSearchDocuments:
    """The documents of one job.

    Args:
        properties: of the job, references resolved.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._settings = parse_settings(parse_own_options(CONFIG_DEF, properties))
        demand_row_settings(self._settings.rows)

    def name(self, namespace: str) -> str:
        """The index that a source table is written to."""
        return index_name(self._settings.index.of_table(namespace))

    def rows(self, namespace: str) -> Iterator[list[dict[str, Any]]]:
        """The documents of that table, some at a time, without those that are deleted. Reads one state of each shard.

        Raises:
            Retriable: the server is unavailable, or did not give all documents.
            Fatal: it refuses.
        """
        index = quote(self.name(namespace), safe="")
        # Of an index with several tables, the ids of each begin with its name.
        prefix = self._settings.id.of_table(namespace).partition("${")[0]
        with closing(self._settings.requests()) as requests:
            # Documents are seen by a search only from the next refresh on. A login may lack the right to ask for one.
            requests.exchange("POST", f"/{index}/_refresh")
            answer = requests.exchange("POST", f"/{index}/_search?scroll={_KEPT}", _SEARCH, _JSON)
            if answer.status == 404:
                return
            scroll, count = "", 0
            try:
                while True:
                    content = self._read_page(answer, requests, index)
                    scroll, hits = content["_scroll_id"], content["hits"]["hits"]
                    count += len(hits)
                    if not hits:
                        break
                    yield select_present(SparseRow(hit["_source"]) for hit in hits if hit["_id"].startswith(prefix))
                    body = msgspec.json.encode({"scroll": _KEPT, "scroll_id": scroll})
                    answer = requests.exchange("POST", _SCROLL, body, _JSON)
            finally:
                if scroll:
                    with suppress(MillraceError):
                        requests.exchange("DELETE", _SCROLL, msgspec.json.encode({"scroll_id": [scroll]}), _JSON)
            # A request that was sent twice, since its connection broke, skips the documents of the first answer.
            if count != content["hits"]["total"]["value"]:
                raise Retriable(
                    f"{requests.where} gave {count} of {content['hits']['total']['value']} documents of the index {index}"
                )

    def _read_page(self, answer: HttpAnswer, requests: HttpRequests, index: str) -> Any:
        where = f"{requests.where}, index {index},"
        if answer.status != 200:
            raise make_refusal(answer, where)
        content = _decode(answer.content)
        if content["_shards"]["failed"]:
            raise Retriable(f"{where} can't be read: {content['_shards']['failed']} of its shards do not answer")
        return content
