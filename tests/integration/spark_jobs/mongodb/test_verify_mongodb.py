"""``millrace verify`` of a flow into MongoDB: documents that the sink has written, with what the topic says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.verified_target import (
    VerifiedFlow,
    check_further_types,
    check_parts_are_read,
    check_rows_are_compared,
    make_change,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.spark_jobs.mongodb.conftest import Server


@pytest.fixture
def flow(
    mongodb: Server, spark: SparkSession, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., VerifiedFlow]:
    def make(**options: str) -> VerifiedFlow:
        properties = {
            "sink.type": "mongodb",
            "sink.mongodb.url": f"mongodb://{mongodb.host}:{mongodb.port}/?directConnection=true",
            "sink.mongodb.database": "${database}",
            **mongodb.login,
            **{f"sink.mongodb.{name.replace('_', '.')}": value for name, value in options.items()},
        }
        return VerifiedFlow(spark, bootstrap, tmp_path, capsys, properties)

    return make


@pytest.mark.parametrize("options", [{}, {"delete_mode": "soft", "decimals": "string"}])
def test_documents_are_compared_with_the_topic(flow: Callable[..., VerifiedFlow], options: dict[str, str]) -> None:
    documents = flow(**options)
    check_rows_are_compared(documents, documents.table.namespace)


def test_documents_of_other_tables_in_the_collection_are_left_out(flow: Callable[..., VerifiedFlow]) -> None:
    shared = {"collection": "all_tables", "id": "${table}:${key}"}
    flow(**shared).write(make_change("i", 1, 1, "of another table"))
    check_rows_are_compared(flow(**shared), "shop.all_tables")


def test_more_documents_than_a_part_has(flow: Callable[..., VerifiedFlow]) -> None:
    check_parts_are_read(flow())


def test_servers_that_can_not_be_read(flow: Callable[..., VerifiedFlow]) -> None:
    documents = flow()
    documents.send(("c", 1, "one"))
    assert "sink.mongodb.mode=insert keeps every change" in documents.refusal(**{"sink.mongodb.mode": "insert"})
    assert "Correct sink.mongodb.user and sink.mongodb.password" in documents.refusal(
        **{"sink.mongodb.password": "another"}
    )
    absent = {"sink.mongodb.url": "mongodb://127.0.0.1:1/", "sink.mongodb.timeout.ms": "500"}
    assert "does not answer" in documents.refusal(**absent)


def test_further_types_are_compared(flow: Callable[..., VerifiedFlow]) -> None:
    check_further_types(flow())


def test_a_field_that_a_document_lacks_is_null(flow: Callable[..., VerifiedFlow], mongodb: Server) -> None:
    documents = flow()
    documents.write(make_change("i", 1, 1, "one"), make_change("i", 2, 2, "two"))
    documents.send(("c", 1, "one"), ("c", 2, "two"))
    database, _, collection = documents.table.namespace.partition(".")
    mongodb.client[database][collection].update_one({"id": 1}, {"$unset": {"nothing": ""}})
    assert documents.verify()[0] == 0
    mongodb.client[database][collection].update_one({"id": 2}, {"$unset": {"name": ""}})
    code, report = documents.verify()
    assert (code, report["examples"]) == (1, {"different": ['{"id":"2"}']})
    assert report["differences"][0]["topic"] == {"name": "null"}
