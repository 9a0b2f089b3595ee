"""One installation for all tests of dashboards: a worker with connectors of each kind and state, under load, scraped."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from compose.local.monitoring.prometheus import Prometheus, find_prometheus
from compose.local.ports import free_port
from compose.local.worker import MillraceWorker
from worker.fetch.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compose.local.mariadb import MariaDb

PLUGIN = "mariadb"
#: Of the lines, which are times: some make rows, others are dropped or unknown.
_RULES = """
tables:
  - name: times
    groups:
      - name: times
        steps:
          - drop: {reason: uninteresting}
            when: {matches: '1$'}
          - regexExtract: {pattern: '^(?P<time>[0-9.]*[35])$'}
          - saveAs: {columns: [{name: time}]}
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """The servers that the tests query.

    Attributes:
        prefix: ``topic.prefix`` of the connector of a database.
        public: Prometheus as public dashboards expect it.
        shipped: Prometheus as ``compose/prometheus`` has it.
    """

    worker: MillraceWorker
    prefix: str
    public: Prometheus
    shipped: Prometheus


@pytest.fixture(scope="module")
def installation(bootstrap: str, mariadb: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Started once; the servers end with the module."""
    try:
        find_prometheus()
    except Unavailable as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("dashboards")
    name = f"metrics_{secrets.token_hex(4)}"
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).with_name("plugin")))
        worker = stack.enter_context(
            MillraceWorker(
                folder / "worker",
                bootstrap,
                group=name,
                port=None,
                processes=1,
                properties={
                    "offset.flush.interval.ms": "500",
                    "metrics.families": "A,B,C,D",
                    "plugin.path": "paced_job:PacedJob,paced_job:BrokenConnector",
                },
            )
        )
        public = stack.enter_context(Prometheus(folder / "public", port=None, config=_public(worker.worker_id)))
        shipped = stack.enter_context(Prometheus(folder / "own", port=None, targets=[worker.worker_id], interval=1))
        _connectors(worker, name, folder, mariadb)
        stack.enter_context(_changes(name, folder / "lines.txt", mariadb))
        yield Installation(worker, name, public, shipped)


def _public(worker_id: str) -> dict[str, Any]:
    labels = {
        "namespace": "my-namespace",
        "strimzi_io_kind": "KafkaConnect",
        "strimzi_io_cluster": "my-connect",
        "kubernetes_pod_name": "my-connect-connect-0",
        "pod": "my-connect-connect-0",
        "container": "my-connect-connect",
        "env": "my-env",
        "kafka_connect_cluster_id": "my-cluster",
    }
    targets = [{"targets": [worker_id], "labels": labels}]
    return {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {"job_name": "kafka-connect", "static_configs": targets},
            # Debezium's dashboard of MySQL asks for this job.
            {
                "job_name": "prometheus",
                "static_configs": [{"targets": [worker_id]}],
                "metric_relabel_configs": [{"source_labels": ["__name__"], "regex": "debezium_.*", "action": "keep"}],
            },
        ],
    }


def _connectors(worker: MillraceWorker, name: str, folder: Path, mariadb: MariaDb) -> None:
    """Connectors of each kind, and in each state that a connector can be in for long."""
    datagen = {"connector.class": "datagen", "topic": name, "rate": "50", "tasks.max": 1}
    (folder / "lines.txt").write_text("first\n", encoding="utf-8")
    with closing(_connect(mariadb)) as connection, connection.cursor() as cursor:
        for statement in (
            f"CREATE DATABASE {name}",
            f"USE {name}",
            "CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, a INT)",
            "INSERT INTO t (a) SELECT seq FROM seq_1_to_500",
        ):
            cursor.execute(statement)
    worker.create(
        f"{name}-db",
        {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "topic.prefix": name,
            "database.hostname": "127.0.0.1",
            "database.port": str(mariadb.port),
            "database.user": mariadb.user,
            "database.password": mariadb.password,
            "database.include.list": name,
        },
    )
    worker.create(
        f"{name}-file",
        {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(folder / "lines.txt"),
            "topic": name,
        },
    )
    worker.create(
        f"{name}-logs",
        {
            "connector.class": "logs",
            "topic.prefix": f"{name}-logs",
            "file": str(folder / "lines.txt"),
            "heartbeat.line": "[02468]$",
            "rules": _RULES,
        },
    )
    worker.create(
        f"{name}-syslog",
        {
            "connector.class": "logs",
            "topic.prefix": f"{name}-syslog",
            "input": "syslog",
            "listen": f"tcp://127.0.0.1:{free_port()}",
            "rules": _RULES,
        },
    )
    worker.create(
        f"{name}-made",
        {
            **datagen,
            "tasks.max": 2,
            "partitions": 2,
            "transforms": "t",
            "transforms.t.static.field": "x",
            "transforms.t.static.value": "y",
            "transforms.t.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        },
    )
    worker.create(f"{name}-job", {"connector.class": "paced_job.PacedJob", "reads": name})
    worker.create(f"{name}-thousand", {**datagen, "rate": "1000000", "records": 1000})
    worker.create(f"{name}-failed", {**datagen, "fault.fail.at": 10})
    worker.create(f"{name}-broken", {"connector.class": "paced_job.BrokenConnector"})
    for state in ("pause", "stop"):
        worker.create(f"{name}-{state}", datagen)
        worker.wait_running(f"{name}-{state}", 1)
        assert worker.request("PUT", f"/connectors/{name}-{state}/{state}")[0] in {202, 204}
    for suffix, tasks in (("db", 1), ("file", 1), ("logs", 1), ("syslog", 1), ("made", 2), ("job", 1)):
        worker.wait_running(f"{name}-{suffix}", tasks)


def _connect(mariadb: MariaDb) -> pymysql.Connection[Any]:
    return pymysql.connect(
        host="127.0.0.1", port=int(mariadb.port or 0), user=mariadb.user, password=mariadb.password, autocommit=True
    )


@contextmanager
def _changes(name: str, lines: Path, mariadb: MariaDb) -> Iterator[None]:
    """Changes of rows and new lines, several a second, and one of a table's structure."""
    over = threading.Event()

    def change() -> None:
        with closing(_connect(mariadb)) as connection, connection.cursor() as cursor, lines.open("a") as file:
            cursor.execute(f"USE {name}")
            cursor.execute("ALTER TABLE t ADD COLUMN b INT")
            while not over.wait(0.1):
                for statement in (
                    "INSERT INTO t (a) VALUES (1)",
                    "UPDATE t SET b = 2 ORDER BY id DESC LIMIT 1",
                    "DELETE FROM t ORDER BY id LIMIT 1",
                ):
                    cursor.execute(statement)
                file.write(f"{time.time()}\n")
                file.flush()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
