"""Configurations of Kafka sinks for Elasticsearch and OpenSearch, posted as they are."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest

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

    from compose.local.targets.opensearch import OpenSearch
    from compose.local.worker import MillraceWorker
    from tests.integration.spark_jobs.opensearch.conftest import Reader

JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",
        "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector",
    ],
)
def test_documents_by_key(
    name: str,
    millrace: Callable[..., MillraceWorker],
    bootstrap: str,
    opensearch: OpenSearch,
    reader: Reader,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    worker = millrace()
    topic = f"orders-{secrets.token_hex(4)}"
    create_topics(bootstrap, topic)
    send(bootstrap, topic, flat(1, {"name": "one"}), flat(2, {"name": "two"}), flat(1, {"name": "first"}))
    send(bootstrap, topic, (b'{"id": 2}', None))
    config = {
        "connector.class": name,
        "topics": topic,
        "connection.url": opensearch.url,
        "key.ignore": "false",
        "schema.ignore": "true",
        "behavior.on.null.values": "delete",
        "key.converter": JSON,
        "value.converter": JSON,
        **JOB,
    }
    create(worker, topic, config)
    wait_until_running(worker, topic)

    def names() -> list[tuple[Any, Any]]:
        return sorted((document["id"], document["name"]) for document in reader.documents(topic).values())

    eventually(
        lambda: names() == [(1, "first")],
        "a document for each key, none for the deleted one",
        LIMIT_S,
        detail=lambda: f"{names()}\n{worker.service.log_tail()}",
    )
