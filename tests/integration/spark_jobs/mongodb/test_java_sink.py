"""A configuration of MongoDB's Kafka sink, posted as it is."""

from __future__ import annotations

import json
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

    from compose.local.worker import MillraceWorker
    from tests.integration.spark_jobs.mongodb.conftest import Server

CLASS = "com.mongodb.kafka.connect.MongoSinkConnector"
JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.mark.slow
def test_documents_by_key(
    millrace: Callable[..., MillraceWorker],
    bootstrap: str,
    mongodb: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    worker = millrace()
    topic = f"orders-{secrets.token_hex(4)}"
    create_topics(bootstrap, topic)
    collection = mongodb.client["shop"][topic]
    # Java has written a document, which has no order number.
    collection.insert_one({"_id": {"id": 1}, "id": 1, "name": "by Java"})
    send(bootstrap, topic, flat(1, {"name": "one"}), flat(2, {"name": "two"}), flat(3, {"name": "three"}))
    send(bootstrap, topic, (b'{"id": 2}', None))
    login = f"{mongodb.user}:{mongodb.password}"
    config = {
        "connector.class": CLASS,
        "topics": topic,
        "connection.uri": f"mongodb://{login}@{mongodb.host}:{mongodb.port}/?directConnection=true",
        "database": "shop",
        "document.id.strategy": "com.mongodb.kafka.connect.sink.processor.id.strategy.FullKeyStrategy",
        "delete.on.null.values": "true",
        "key.converter": JSON,
        "value.converter": JSON,
        **JOB,
    }
    create(worker, topic, config)
    wait_until_running(worker, topic)

    def names() -> list[tuple[Any, Any]]:
        return sorted((document["_id"]["id"], document["name"]) for document in collection.find())

    eventually(
        lambda: names() == [(1, "one"), (3, "three")],
        "a document for each key, none for the deleted one",
        LIMIT_S,
        detail=lambda: f"{names()}\n{worker.service.log_tail()}",
    )
    answer = worker.request("PUT", f"/connector-plugins/{CLASS}/config/validate", {**config, "name": topic})[1]
    assert login not in json.dumps(answer)
