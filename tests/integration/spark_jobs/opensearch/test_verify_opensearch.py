"""``millrace verify`` of a flow into OpenSearch: documents that the sink has written, with what the topic says."""

from __future__ import annotations

import secrets
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

    from compose.local.targets.opensearch import OpenSearch


@pytest.fixture
def flow(
    opensearch: OpenSearch, spark: SparkSession, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., VerifiedFlow]:
    def make(**options: str) -> VerifiedFlow:
        named = {f"sink.opensearch.{name.replace('_', '.')}": value for name, value in options.items()}
        properties = {"sink.type": "opensearch", "sink.opensearch.url": opensearch.url, **named}
        return VerifiedFlow(spark, bootstrap, tmp_path, capsys, properties)

    return make


@pytest.mark.parametrize("deletes", ["real", "soft"])
def test_documents_are_compared_with_the_topic(flow: Callable[..., VerifiedFlow], deletes: str) -> None:
    search = flow(delete_mode=deletes)
    check_rows_are_compared(search, search.table.namespace)


def test_documents_of_other_tables_in_the_index_are_left_out(flow: Callable[..., VerifiedFlow]) -> None:
    index = f"all-{secrets.token_hex(4)}"
    other = flow(index=index)
    other.write(make_change("i", 1, 1, "of another table"))
    check_rows_are_compared(flow(index=index), index)


def test_more_documents_than_a_page_has(flow: Callable[..., VerifiedFlow]) -> None:
    check_parts_are_read(flow())


def test_further_types_are_compared(flow: Callable[..., VerifiedFlow]) -> None:
    check_further_types(flow())


def test_flows_whose_target_can_not_be_read(flow: Callable[..., VerifiedFlow]) -> None:
    search = flow()
    assert "sink.opensearch.mode=insert keeps every change as a row" in search.refusal(
        **{"sink.opensearch.mode": "insert"}
    )
    assert "a topic keeps every change" in search.refusal(**{"sink.type": "kafka"})
    search.send(("c", 1, "one"))
    assert "does not answer" in search.refusal(**{"sink.opensearch.url": "http://127.0.0.1:1"})
