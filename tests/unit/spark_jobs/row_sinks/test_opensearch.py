"""The OpenSearch sink without a server: names of indices, mappings, and the meaning of the items of answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from pyspark.sql import types

from connectors.errors import Fatal
from spark_jobs.contract import Column, TableSchema
from spark_jobs.sinks.opensearch.client import OpenSearchClient
from spark_jobs.sinks.opensearch.config import CONFIG_DEF, check_options, parse_settings
from spark_jobs.sinks.opensearch.mapping import fields_of, find_conflicts, find_missing_fields, index_name
from spark_jobs.sinks.shared.http_requests import HttpAnswer
from spark_jobs.sinks.shared.model import RowTable, SinkRow, Unfinished

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLE = RowTable("shop.orders", ("id", "name"), ("id",))
TIME = datetime(2026, 1, 2, tzinfo=UTC)
URL = {"sink.opensearch.url": "http://127.0.0.1:9200"}


def row(number: int, op: str = "u", key: Any = 1) -> SinkRow:
    return SinkRow({"id": key, "name": "a"}, number, TIME, op, "uid", "topic", 0, number, 0)


class Answers:
    """In place of a connection: gives answers, and keeps requests."""

    where = "OpenSearch node"

    def __init__(self, *answers: HttpAnswer) -> None:
        self.answers = list(answers)
        self.contents: list[bytes] = []

    def exchange(self, _method: str, _path: str, content: bytes, _headers: Any) -> HttpAnswer:
        self.contents.append(content)
        return self.answers.pop(0)


def items(*statuses: int, **error: Any) -> HttpAnswer:
    outcomes = [{"index": {"status": status, **({"error": error} if status > 299 else {})}} for status in statuses]
    return HttpAnswer(200, orjson.dumps({"errors": bool(error), "items": outcomes}), 0.0, {})


def client(*answers: HttpAnswer, **options: str) -> tuple[OpenSearchClient, Answers]:
    chosen = parse_settings(
        CONFIG_DEF.parse({**URL, **{f"sink.opensearch.{name}": text for name, text in options.items()}})
    )
    bulk = OpenSearchClient(chosen, TABLE)
    requests = Answers(*answers)
    bulk._requests = requests  # type: ignore[assignment]
    return bulk, requests


def refusals() -> tuple[list[tuple[SinkRow, str]], Any]:
    refused: list[tuple[SinkRow, str]] = []

    def refuse(rows: Sequence[tuple[SinkRow, str]]) -> None:
        refused.extend(rows)

    return refused, refuse


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("shop.Orders", "shop.orders"),
        ("a b/c?*", "a_b_c__"),
        ("-_+x", "x"),
        ("Täble 表", "täble_表"),
        ("---", "_"),
    ],
)
def test_names_of_indices(name: str, index: str) -> None:
    assert index_name(name) == index


def test_long_names_of_indices() -> None:
    names = {index_name("é" * 200 + str(number)) for number in range(2)}
    assert len(names) == 2
    assert max(len(name.encode()) for name in names) <= 255


def test_bulk_requests() -> None:
    refused, refuse = refusals()
    plain, requests = client(items(200, 200, 409))
    done = plain.write([row(5), row(6, "d", 2), row(4, key=3)], refuse)
    assert (done.rows, done.stale, done.requests, refused) == (2, 1, 1, [])
    lines = [orjson.loads(line) for line in requests.contents[0].splitlines()]
    assert lines[0] == {"index": {"_id": "1", "version": 5, "version_type": "external_gte"}}
    assert lines[1] == {"id": 1, "name": "a", "ums_id_": 5, "ums_ts_": "2026-01-02T00:00:00Z", "ums_op_": "u"}
    assert lines[2] == {"delete": {"_id": "2", "version": 6, "version_type": "external_gte"}}
    soft, requests = client(items(200), **{"delete.mode": "soft"})
    soft.write([row(6, "d")], refuse)
    assert orjson.loads(requests.contents[0].splitlines()[1])["ums_active_"] == 0
    added, requests = client(items(201, 409), mode="insert")
    assert added.write([row(6, "b"), row(6, "d")], refuse).stale == 1
    assert orjson.loads(requests.contents[0].splitlines()[0]) == {"create": {"_id": "shop.orders/topic-0-6-0"}}


def test_one_bad_document_does_not_stop_the_others() -> None:
    refused, refuse = refusals()
    bulk, _ = client(items(200, 400, 200, type="mapper_parsing_exception", reason="no number"))
    rows = [row(number, key=number) for number in range(1, 4)]
    assert bulk.write(rows, refuse).rows == 2
    assert refused == [(rows[1], "OpenSearch node: mapper_parsing_exception: no number")]


def test_rows_that_can_have_no_document_are_not_sent() -> None:
    refused, refuse = refusals()
    bulk, requests = client()
    bulk.write([row(1, key=None), row(-1), row(1, key="x" * 513), row(1, key="")], refuse)
    assert [text.partition(",")[0] for _, text in refused] == [
        "the column id is null",
        "its order number -1 is negative",
        "its _id has 513 bytes",
        "its _id has 0 bytes",
    ]
    assert not requests.contents


def test_a_busy_server_is_asked_again_for_what_is_left() -> None:
    refused, refuse = refusals()
    busy, _ = client(items(200, 429, 200, type="es_rejected_execution_exception", reason="queue is full"))
    rows = [row(number, key=number) for number in range(1, 4)]
    with pytest.raises(Unfinished, match="queue is full") as partly:
        busy.write(rows, refuse)
    assert (partly.value.left, partly.value.done.rows, refused) == ([rows[1]], 2, [])
    whole, _ = client(HttpAnswer(503, b"no", 7.0, {}))
    with pytest.raises(Unfinished, match="answers 503: no") as every:
        whole.write(rows, refuse)
    assert (list(every.value.left), every.value.after_s) == (rows, 7.0)


def test_requests_that_are_too_large_are_cut() -> None:
    refused, refuse = refusals()
    large = HttpAnswer(413, b"", 0.0, {})
    bulk, requests = client(large, large, items(200, 200))
    rows = [row(number, key=number) for number in range(1, 4)]
    done = bulk.write(rows, refuse)
    # Three rows, then the first alone, which is too large, then the two others.
    assert [len(content.splitlines()) // 2 for content in requests.contents] == [3, 1, 2]
    assert (done.rows, [entry[0] for entry in refused]) == (2, [rows[0]])


def test_a_login_without_the_right_stops_the_job() -> None:
    _, refuse = refusals()
    bulk, _ = client(items(403, type="security_exception", reason="no permissions"))
    with pytest.raises(Fatal, match="right to write"):
        bulk.write([row(1)], refuse)
    refused_login, _ = client(HttpAnswer(401, b"Unauthorized", 0.0, {}))
    with pytest.raises(Fatal, match=r"sink\.opensearch\.password"):
        refused_login.write([row(1)], refuse)


COLUMNS = (
    Column("id", types.StringType(), nullable=False, key=True),
    Column("name", types.StringType()),
    Column("count", types.IntegerType()),
    Column("a.b", types.BooleanType()),
    Column("tags", types.ArrayType(types.DateType())),
    Column("more", types.MapType(types.StringType(), types.StringType())),
    Column("inner", types.StructType([types.StructField("x", types.DecimalType(9, 2))])),
)


def test_mappings() -> None:
    fields = fields_of(TableSchema("shop.orders", COLUMNS), ["id"], active=True)
    assert {name: field.get("type", "object") for name, field in fields.items()} == {
        "id": "keyword", "name": "text", "count": "long", "a.b": "boolean", "tags": "date", "more": "object",
        "inner": "object", "ums_id_": "long", "ums_ts_": "date", "ums_op_": "keyword", "ums_active_": "long",
    }  # fmt: skip
    present = {
        "id": {"type": "text"},
        "count": {"type": "integer"},
        "a": {"properties": {"b": {"type": "long"}}},
        "more": {"type": "keyword"},
    }
    assert list(find_conflicts(fields, present)) == [
        "a.b is long there, and its values need boolean",
        "more is keyword there, and its values need object",
    ]
    assert list(find_missing_fields(fields, present)) == [
        "name",
        "tags",
        "inner",
        "ums_id_",
        "ums_ts_",
        "ums_op_",
        "ums_active_",
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"api.key": "k", "user": "u", "password": "p"}, "api.key: a request has one login"),
        ({"id": "${namespace}"}, "id: all rows of a table would be one document"),
        ({"password": "p"}, "password: a password needs its login"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str], complaint: str) -> None:
    config = CONFIG_DEF.parse({**URL, **{f"sink.opensearch.{name}": text for name, text in options.items()}})
    (problem,) = check_options(config)
    assert problem.startswith(f"sink.opensearch.{complaint}")


def test_ids_of_an_index_for_all_tables() -> None:
    assert parse_settings(CONFIG_DEF.parse({**URL, "sink.opensearch.index": "all"})).id.text == "${namespace}:${key}"
    assert parse_settings(CONFIG_DEF.parse(URL)).id.text == "${key}"
