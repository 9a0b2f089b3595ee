"""A configuration of Apache Iceberg's Kafka sink, posted as it is but for its catalog."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from spark_jobs.sinks.iceberg.table import catalog_of
from tests.integration.spark_jobs.connector.test_java_sinks import (
    JOB,
    LIMIT_S,
    create,
    create_topics,
    flat,
    send,
    wait_until_running,
)
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.worker import MillraceWorker

JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.mark.slow
def test_rows_are_appended(
    millrace: Callable[..., MillraceWorker], bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    worker = millrace()
    topic = f"orders-{secrets.token_hex(4)}"
    create_topics(bootstrap, topic)
    send(bootstrap, topic, flat(1, {"name": "one"}), flat(1, {"name": "two"}), (b'{"id": 1}', None))
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}",
        "name": "lake",
    }
    lake = catalog_of(catalog)  # makes the tables of the catalog
    config = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": topic,
        "iceberg.tables": "shop.orders",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.catalog": "lake",
        "iceberg.catalog.type": "jdbc",
        "iceberg.catalog.warehouse": catalog["warehouse"],
        "sink.iceberg.catalog.type": "sql",
        "sink.iceberg.catalog.uri": catalog["uri"],
        "key.converter": JSON,
        "value.converter": JSON,
        **JOB,
    }
    create(worker, topic, config)
    wait_until_running(worker, topic)

    def rows() -> list[tuple[Any, Any]]:
        try:
            table = lake.load_table("shop.orders")
        except NoSuchTableError:
            return []
        return sorted((row["id"], row["name"]) for row in table.scan().to_arrow().to_pylist())

    eventually(
        lambda: rows() == [(1, "one"), (1, "two")],
        "a row for each record with a value",
        LIMIT_S,
        detail=lambda: f"{rows()}\n{worker.service.log_tail()}",
    )
