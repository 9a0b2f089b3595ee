"""Creates the indices of tables and adds fields to them, on the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from spark_jobs.contract import SchemaRefused
from spark_jobs.sinks.opensearch.client import make_refusal
from spark_jobs.sinks.opensearch.config import PREFIX
from spark_jobs.sinks.opensearch.mapping import fields_of, find_conflicts, find_missing_fields
from spark_jobs.sinks.shared.writing import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.contract import TableSchema
    from spark_jobs.sinks.opensearch.config import OpenSearchSettings
    from spark_jobs.sinks.shared.http_requests import HttpAnswer, HttpRequests

_JSON: Final = {"Content-Type": "application/json"}
_EXISTS: Final = "resource_already_exists_exception"


def fit_index(settings: OpenSearchSettings, name: str, schema: TableSchema) -> None:
    """Create the index of a table, or add the fields that it lacks. Blocks.

    Args:
        settings: the sink's.
        name: the index, or an alias of indices.
        schema: the table's.

    Raises:
        Retriable: the server is unavailable.
        Fatal: it refuses the login.
        SchemaRefused: the index has another mapping, or can't be given this one.
    """
    fields = fields_of(schema, key_of(schema, settings.rows), active=settings.soft and not settings.append)
    requests = settings.requests()
    try:
        path = f"/{quote(name, safe='')}"
        answer = requests.exchange("GET", f"{path}/_mapping")
        if answer.status == 404:
            content: dict[str, Any] = {"mappings": {"properties": fields}}
            if not settings.append:
                content["settings"] = {"index.gc_deletes": f"{settings.retention_ms}ms"}
            created = requests.exchange("PUT", path, orjson.dumps(content), _JSON)
            if _is_right(created):
                return
            if _EXISTS.encode() not in created.content:  # else another job was faster
                raise _make_index_error(created, requests, name, schema)
            answer = requests.exchange("GET", f"{path}/_mapping")
        if not _is_right(answer):
            raise _make_index_error(answer, requests, name, schema)
        # An alias may have several indices, which are written through one of them; all are given the fields.
        for index, definition in orjson.loads(answer.content).items():
            present = definition.get("mappings", {}).get("properties", {})
            _add_fields(requests, index, schema, fields, present)
    finally:
        requests.close()


def _add_fields(
    requests: HttpRequests,
    index: str,
    schema: TableSchema,
    fields: Mapping[str, Mapping[str, Any]],
    present: Mapping[str, Any],
) -> None:
    wrong = list(find_conflicts(fields, present))
    if wrong:
        raise SchemaRefused(
            f"table {schema.namespace}: the index {index} has a mapping that does not fit: {'; '.join(wrong)}. Give "
            f"{PREFIX}index another name, or recreate the index (the mapping of a field can't be changed)",
            schema.namespace,
        )
    missing = find_missing_fields(fields, present)
    if missing:
        body = orjson.dumps({"properties": missing})
        added = requests.exchange("PUT", f"/{quote(index, safe='')}/_mapping", body, _JSON)
        if not _is_right(added):
            raise _make_index_error(added, requests, index, schema)


def _make_index_error(answer: HttpAnswer, requests: HttpRequests, name: str, schema: TableSchema) -> Exception:
    if answer.status == 400:
        error_details = orjson.loads(answer.content).get("error", {})
        reason = error_details.get("reason", error_details) if isinstance(error_details, dict) else error_details
        return SchemaRefused(
            f"table {schema.namespace}: {requests.where} refuses the mapping of the index {name}: {reason}. Leave columns out, "
            "or create the index yourself",
            schema.namespace,
        )
    return make_refusal(answer, f"{requests.where}, index {name},")


def _is_right(answer: HttpAnswer) -> bool:
    return 200 <= answer.status < 300
