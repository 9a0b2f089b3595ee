"""Secrets are planted wherever users write them, and looked for in everything that leaves a worker."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compose.local.worker import MillraceWorker
    from tests.conftest import HasBootstrap

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
#: Whatever is planted begins like this, so that one search finds all of them.
SECRET_PREFIX: Final = "Planted7"


#: Answers that hold a connector's configuration as it was written.
ECHO: Final = re.compile(
    r"PUT /connectors/\w+/config\Z|POST /connectors\Z|GET /connectors\?expand|"
    r"GET /connectors/\w+(?:/config|/tasks|/tasks-config)?\Z"
)


class Planted:
    """Makes secrets and remembers where each was planted."""

    def __init__(self) -> None:
        self.where: dict[str, str] = {}

    def __call__(self, where: str) -> str:
        secret = f"{SECRET_PREFIX}x{len(self.where):03d}x"
        self.where[secret] = where
        return secret

    def found_in(self, text: str, but: tuple[str, ...] = ()) -> list[str]:
        """Where those secrets were planted that stand in ``text``."""
        return [
            where for secret, where in self.where.items() if secret in text and not where.startswith(but or ("\0",))
        ]


@pytest.fixture(scope="module")
def plant() -> Planted:
    return Planted()


def jaas(secret: str) -> str:
    return f'{MODULE} required username="u" password="{secret}";'


def worker_properties(plant: Planted, folder: Path) -> dict[str, str]:
    """Secrets of the worker: passwords, JAAS lines, URLs, and what a config provider gives."""
    (folder / "worker.properties").write_text(f"jaas={plant('worker: JAAS password of a provider')}\n")
    # Most have no effect on a plaintext Kafka, and are in the file all the same.
    return {
        "config.providers": "file",
        "config.providers.file.class": "FileConfigProvider",
        "config.providers.file.param.password": plant("worker: a provider's parameter"),
        "sasl.jaas.config": jaas(plant("worker: JAAS")),
        "ssl.key.password": plant("worker: ssl.key.password"),
        "ssl.keystore.password": plant("worker: ssl.keystore.password"),
        "producer.sasl.jaas.config": jaas(f"${{file:{folder}/worker.properties:jaas}}"),
        "admin.ssl.truststore.password": plant("worker: admin.ssl.truststore.password"),
        "listeners.https.ssl.keystore.password": plant("worker: https keystore"),
        "key.converter.schema.registry.url": f"http://u:{plant('worker: URL of the registry')}@127.0.0.1:1",
        "key.converter.basic.auth.user.info": f"u:{plant('worker: user info of the registry')}",
        "no.such.secret": plant("worker: an unknown property"),
    }


def connectors(plant: Planted, folder: Path, dead_letters: str) -> dict[str, dict[str, str]]:
    """Connectors that run, that fail and that are refused, with secrets in all kinds of options."""
    (folder / "values.properties").write_text(
        f"password={plant('provided: password')}\nurl=http://u:{plant('provided: URL')}@127.0.0.1:1/\n"
        f"jaas={plant('provided: JAAS')}\nnumber={plant('provided: a number')}\n"
        f"topic={plant('provided: a topic that is refused')} !\n"
    )
    (folder / "in.txt").write_text("one\ntwo\n")
    # A record that can't be converted, and whose text an error quotes, is a connector's password.
    (folder / "bad.txt").write_text((folder / "values.properties").read_text().splitlines()[0].partition("=")[2] + "\n")

    def refer_to(key: str) -> str:
        return f"${{file:{folder}/values.properties:{key}}}"

    running = {"connector.class": "datagen", "topic": "leaks", "tasks.max": "1", "records.per.second": "5"}
    mysql = {
        "connector.class": "mysql",
        "topic.prefix": "x",
        "database.hostname": "127.0.0.1",
        "database.port": "1",
        "database.user": "u",
        "errors.retry.timeout": "0",
    }
    avro = "io.confluent.connect.avro.AvroConverter"
    return {
        "running": {
            **running,
            "some.password": plant("undeclared: password"),
            "api.token": plant("undeclared: token"),
            "client.secret": plant("undeclared: secret"),
            "endpoint.url": f"https://u:{plant('url')}@example.org/x",
            "access.key": plant("undeclared: key"),
            "provided.password": refer_to("password"),
            "transforms": "hash",
            "transforms.hash.type": "org.apache.kafka.connect.transforms.InsertHeader",
            "transforms.hash.header": "h",
            "transforms.hash.value.literal": "v",
            "transforms.hash.salt.secret": plant("a transform's secret"),
            "admin.override.ssl.key.password": plant("admin.override"),
            "producer.override.sasl.jaas.config": jaas(plant("producer.override JAAS")),
        },
        "away": {
            **mysql,
            "database.password": plant("mysql: password"),
            "database.server.id": "77",
            "database.ssl.keystore.password": plant("mysql: keystore"),
        },
        "provided": {**mysql, "database.password": refer_to("password"), "database.server.id": "78"},
        "scylla": {
            "connector.class": "scylla",
            "topic.prefix": "x",
            "scylla.cluster.ip.addresses": "127.0.0.1:1",
            "scylla.table.names": "k.t",
            "scylla.user": "u",
            "scylla.password": plant("scylla: password"),
        },
        "cassandra": {
            "connector.class": "cassandra",
            "topic.prefix": "x",
            "cassandra.hosts": "127.0.0.1:1",
            "cdc.raw.directories": str(folder),
            "table.include.list": "k.t",
            "cassandra.user": "u",
            "cassandra.password": plant("cassandra: password"),
        },
        "registry": {
            "connector.class": "file",
            "file": str(folder / "in.txt"),
            "topic": "leaks2",
            "value.converter": avro,
            "value.converter.schema.registry.url": f"http://u:{plant('converter: URL')}@127.0.0.1:1",
            "value.converter.basic.auth.user.info": f"u:{plant('converter: user info')}",
            "errors.retry.timeout": "0",
        },
        "registry2": {
            "connector.class": "file",
            "file": str(folder / "in.txt"),
            "topic": "leaks2",
            "value.converter": avro,
            "value.converter.schema.registry.url": refer_to("url"),
            "errors.retry.timeout": "0",
        },
        "wrong": {
            **mysql,
            "database.port": refer_to("number"),
            "database.password": plant("mysql: refused password"),
            "connect.timeout.ms": plant("undeclared or wrong: a number").replace("x", "y"),
        },
        "quoted": {
            "connector.class": "file",
            "file": f"/nowhere/password={plant('a path that quotes')}",
            "topic": "leaks3",
        },
        "dead": {
            "connector.class": "file",
            "file": str(folder / "bad.txt"),
            "topic": "leaks4",
            "errors.tolerance": "all",
            "some.password": refer_to("password"),
            "errors.deadletterqueue.topic.name": dead_letters,
            "errors.deadletterqueue.topic.replication.factor": "1",
            "transforms": "cast",
            "errors.deadletterqueue.context.headers.enable": "true",
            "errors.log.enable": "true",
            "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
            "transforms.cast.spec": "int32",
        },
        "nothing": {
            "connector.class": f"org.acme.{SECRET_PREFIX}.None",
            "some.password": plant("unknown class: password"),
        },
        "topic": {**running, "topic": refer_to("topic")},
        "spark": {
            "connector.class": "spark_jobs.SparkJob",
            "source.topics": "t",
            "sink.type": "jdbc",
            "sink.jdbc.url": f"jdbc:postgresql://127.0.0.1:1/x?password={plant('spark: URL')}",
            "sink.jdbc.user": "u",
            "sink.jdbc.password": plant("spark: password"),
            "checkpoint.location": str(folder / "c"),
            "kafka.sasl.jaas.config": jaas(plant("spark: JAAS")),
            "spark.master": "local[1]",
        },
    }


class Rest:
    """Asks a worker and keeps every answer as text."""

    def __init__(self, worker: MillraceWorker) -> None:
        self._url = worker.url
        self.answers: list[tuple[str, str]] = []

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310
            self._url + path,
            data,
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - the worker under test
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        self.answers.append((f"{method} {path}", text))
        try:
            return json.loads(text)
        except ValueError:
            return text


@pytest.fixture(scope="module")
def aftermath(
    kafka: HasBootstrap,
    tmp_path_factory: pytest.TempPathFactory,
    plant: Planted,
) -> Iterator[tuple[MillraceWorker, Rest]]:
    """A worker that went through all of it."""
    from compose.local.worker import MillraceWorker

    folder = tmp_path_factory.mktemp("leaks")
    worker = MillraceWorker(
        folder / "worker",
        kafka.bootstrap,
        group=f"leaks-{token_hex(4)}",
        port=None,
        processes=1,
        properties=worker_properties(plant, folder),
    )
    configs = connectors(plant, folder, f"{worker.group}-dead")
    try:
        worker.start()
        rest = Rest(worker)
        created = set()
        for name, config in configs.items():
            answer = rest("PUT", f"/connectors/{name}/config", config)
            if "config" in answer:
                created.add(name)
            rest("POST", "/connectors", {"name": name, "config": config})
            rest(
                "PUT",
                f"/connector-plugins/{config['connector.class'].rpartition('.')[2]}/config/validate",
                {**config, "name": name},
            )
        worker.wait_running("running", 1)
        worker.wait_for(
            lambda: all(worker.states(name)[1] for name in created),
            30,
            "a connector has no tasks",
            lambda: [(name, worker.states(name)) for name in created],
        )
        everything(rest, sorted(configs), sorted(created))
        yield worker, rest
    finally:
        worker.kill()


def everything(rest: Rest, names: list[str], created: list[str]) -> None:
    """Every GET there is, and what answers with errors."""
    for path in (
        "/",
        "/health",
        "/connectors?expand=status&expand=info",
        "/connectors",
        "/connector-plugins",
        "/metrics",
        "/connector-plugins?connectorsOnly=false",
        "/admin/loggers",
        "/no/such/path",
        "/openapi.json",
    ):
        rest("GET", path)
    for name in names:
        for path in (
            "",
            "/config",
            "/status",
            "/tasks",
            "/tasks-config",
            "/topics",
            "/offsets",
            "/progress",
            "/lag",
            "/snapshots",
            "/tables",
            "/explain",
            "/tasks/0/status",
            "/tasks/9/status",
        ):
            rest("GET", f"/connectors/{name}{path}")
        rest("PATCH", f"/connectors/{name}/offsets", {"offsets": [{"partition": {"a": 1}, "offset": {"b": 2}}]})
        rest("POST", f"/connectors/{name}/snapshots", {"tables": ["a.b"]})
        rest("POST", f"/connectors/{name}/restart?includeTasks=true")
    assert created


def test_rest_shows_no_secret(aftermath: tuple[MillraceWorker, Rest], plant: Planted) -> None:
    """But a connector's configuration as its user wrote it, for whom it is shown as Kafka Connect shows it."""
    written = tuple({where for where in plant.where.values() if not where.startswith(("worker:", "provided:"))})
    leaks = [
        (path, leaked, text)
        for path, text in aftermath[1].answers
        if (leaked := plant.found_in(text, written if ECHO.match(path) and '"error_code"' not in text else ()))
    ]
    assert not leaks


def test_logs_show_no_secret(aftermath: tuple[MillraceWorker, Rest], plant: Planted) -> None:
    lines = aftermath[0].log_path.read_text(encoding="utf-8").splitlines()
    assert not [(line[:300], leaked) for line in lines if (leaked := plant.found_in(line))]


def content(bootstrap: str, topic: str, minimum: int = 0) -> list[Any]:
    """Read the records of a topic up to its end; waits until there are ``minimum``."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "leaks",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "topic.metadata.refresh.interval.ms": 200,
        }
    )
    try:
        open_ = set(consumer.list_topics(topic, 10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in open_])
        messages: list[Any] = []
        for _ in range(200):
            if not open_ and len(messages) >= minimum:
                break
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                messages.append(message)
            elif (
                message is not None
                and (error := message.error()) is not None
                and error.code() == KafkaError._PARTITION_EOF
            ):
                open_.discard(message.partition())
        return messages
    finally:
        consumer.close()


def test_topics_hold_only_what_users_wrote(
    aftermath: tuple[MillraceWorker, Rest], kafka: HasBootstrap, plant: Planted
) -> None:
    """The config topic has configurations as they were written: never what config providers gave, nor worker properties."""
    written = tuple({where for where in plant.where.values() if not where.startswith(("worker:", "provided:"))})
    for kind in ("configs", "status", "offsets"):
        text = "".join(
            f"{record.key()!r} {record.value()!r} {record.headers()!r}\n"
            for record in content(kafka.bootstrap, f"{aftermath[0].group}-{kind}")
        )
        assert not plant.found_in(text, written if kind == "configs" else ()), kind
        assert text


def test_dead_letters_headers_show_no_secret(
    aftermath: tuple[MillraceWorker, Rest], kafka: HasBootstrap, plant: Planted
) -> None:
    letters = content(kafka.bootstrap, f"{aftermath[0].group}-dead", 1)
    assert SECRET_PREFIX in str(letters[0].value())  # the record itself is data
    headers = str(letters[0].headers())
    assert "exception.stacktrace" in headers
    assert "[hidden]" in headers
    assert not plant.found_in(headers)
