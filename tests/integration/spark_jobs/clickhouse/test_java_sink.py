"""A configuration of ClickHouse's Kafka sink, posted as it is."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

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
    from tests.integration.spark_jobs.clickhouse.conftest import Server

CLASS = "com.clickhouse.kafka.connect.ClickHouseSinkConnector"
JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.mark.slow
def test_a_row_for_each_record(
    millrace: Callable[..., MillraceWorker],
    bootstrap: str,
    clickhouse: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    worker = millrace()
    topic = f"orders-{secrets.token_hex(4)}"
    create_topics(bootstrap, topic)
    send(bootstrap, topic, flat(1, {"name": "one"}), flat(2, {"name": "two"}), flat(1, {"name": "first"}))
    config = {
        "connector.class": CLASS,
        "topics": topic,
        "hostname": clickhouse.host,
        "port": str(clickhouse.port),
        "ssl": "false",
        "username": clickhouse.user,
        "password": clickhouse.password,
        "exactlyOnce": "true",
        "key.converter": JSON,
        "value.converter": JSON,
        **JOB,
    }
    create(worker, topic, config)
    wait_until_running(worker, topic)

    def rows() -> list[tuple[Any, Any]]:
        try:
            stored = clickhouse.rows(f"SELECT id, name FROM `{topic}` FINAL")  # noqa: S608 - a name of the test's own
        except HTTPError:
            return []  # there is no table yet
        return sorted((row["id"], row["name"]) for row in stored)

    eventually(
        lambda: rows() == [(1, "first"), (1, "one"), (2, "two")],
        "a row for each record",
        LIMIT_S,
        detail=lambda: f"{rows()}\n{worker.service.log_tail()}",
    )
    answer = worker.request("PUT", f"/connector-plugins/{CLASS}/config/validate", {**config, "name": topic})[1]
    assert clickhouse.password not in json.dumps(answer)
