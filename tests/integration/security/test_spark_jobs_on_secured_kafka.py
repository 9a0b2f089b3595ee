"""Whole Spark jobs on a Kafka that asks for logins and certificates, and where their secrets may not be seen.

In the slow suite only: each test starts a JVM.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stub forgets one
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from compose.local.security.kafka_security import MUTUAL, SCRAM, KafkaListener, jaas_config
from compose.local.worker import MillraceWorker
from spark_jobs.spark import package
from spark_jobs.spark.session import fetch_jars
from tests.integration.security.conftest import USERS, SecuredKafka
from tests.integration.spark_jobs.frame.standalone_cluster import submit_command
from tests.support.job_process import family
from tests.support.update_topic import Load, check, fill
from worker.fetch.java import FAST_START
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

KEY_PASSWORD: Final = "key-Secret-7"
ROWS: Final = 400
_LOAD: Final = Load(2_000, 150, 2, "json")
#: What a job leaves behind that somebody might read.
_ANSWERS: Final = ("", "/config", "/tasks", "/tasks-config", "/status", "/progress", "/explain", "/offsets", "/topics")


def login(kind: KafkaListener, kafka: SecuredKafka, folder: Path) -> dict[str, str]:
    """Java client properties for a listener, with their secrets behind references to a file; PEM stores without their type."""
    folder.mkdir(parents=True, exist_ok=True)
    secrets_file = folder / "held.properties"
    secrets_file.write_text(f"kafka={USERS['worker']}\nkey={KEY_PASSWORD}\n")
    trust = {"ssl.truststore.location": str(kafka.stores / "trust.pem")}
    if kind is SCRAM:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            **trust,
            "sasl.jaas.config": jaas_config("worker", "HERE", "SCRAM-SHA-512").replace(
                "HERE", f"${{file:{secrets_file}:kafka}}"
            ),
        }
    store = kafka.authority.issue("worker").write_pem(folder / "worker.pem", KEY_PASSWORD)
    return {
        "security.protocol": "SSL",
        **trust,
        "ssl.keystore.location": str(store),
        "ssl.key.password": f"${{file:{secrets_file}:key}}",
    }


def spark(folder: Path) -> dict[str, str]:
    """A small local session that writes an event log."""
    events = folder / "events"
    events.mkdir(parents=True, exist_ok=True)
    return {
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(FAST_START),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }


def seen(folder: Path) -> dict[str, str]:
    """All files below a folder as text."""
    return {str(path): path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}


def of_processes(pids: list[int]) -> dict[str, str]:
    """Arguments and environments of processes, as everybody or the same user may see them."""
    contents = {}
    for pid in pids:
        for name in ("cmdline", "environ"):
            try:
                contents[f"/proc/{pid}/{name}"] = (
                    Path(f"/proc/{pid}/{name}").read_text(errors="replace").replace("\0", " ")
                )
            except OSError:
                continue
    return contents


def leaks(contents: dict[str, str], folder: Path) -> list[tuple[str, str]]:
    """Find secrets in the content of files: passwords, and the client's private key in its unencrypted form."""
    planted = [USERS["worker"], KEY_PASSWORD]
    if (folder / "worker.pem").exists():
        key = load_pem_private_key((folder / "worker.pem").read_bytes(), KEY_PASSWORD.encode())
        planted += key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode().splitlines()[1:-1]
    return [(where, secret) for where, text in contents.items() for secret in planted if secret in text]


def records(
    kafka: SecuredKafka, topic: str
) -> list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]]:
    """Committed records, sorted: partition, key, value, headers."""
    return sorted(
        (
            (record.partition, record.key, record.value, record.headers)
            for record in read_topic(kafka.cluster.bootstrap, topic, committed=True)
        ),
        key=repr,
    )


def send(kafka: SecuredKafka, topic: str, first: int, count: int) -> None:
    """Write records, each with a key and a header, every fiftieth a tombstone."""
    producer = Producer({"bootstrap.servers": kafka.cluster.bootstrap})
    for number in range(first, first + count):
        value = None if number % 50 == 49 else json.dumps({"id": number, "text": "é" * (number % 7)}).encode()
        producer.produce(topic, value, f"k{number}".encode(), number % 2, headers=[("h", b"%d" % number)])
    assert producer.flush(20) == 0


@pytest.fixture(params=[SCRAM, MUTUAL], ids=lambda kind: kind.name)
def worker(
    request: pytest.FixtureRequest, secured: SecuredKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MillraceWorker]:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    worker = MillraceWorker(tmp_path / "worker", secured.cluster.secured(request.param), group=f"jobs-{secrets.token_hex(4)}",
                          port=None, processes=1, properties={
        "config.providers": "file", "config.providers.file.class": "FileConfigProvider",
        "task.shutdown.graceful.timeout.ms": "20000", **login(request.param, secured, tmp_path / "login")})  # fmt: skip
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def test_a_connector_s_job_takes_the_worker_s_login(
    secured: SecuredKafka, worker: MillraceWorker, tmp_path: Path
) -> None:
    """It says nothing of Kafka: brokers, login and stores are the worker's."""
    topic = f"secured-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": secured.cluster.bootstrap})  # must live until the answer is there
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(20)
    send(secured, topic, 0, ROWS // 2)
    worker.create(
        "copy",
        {
            "connector.class": "spark_jobs.SparkJob",
            "source.topics": topic,
            "source.format": "plain",
            "sink.type": "kafka",
            "sink.kafka.topic": f"{topic}.copy",
            "trigger.interval.ms": "200",
            **spark(tmp_path),
        },
    )

    def progress() -> dict[str, Any]:
        body = worker.request("GET", "/connectors/copy/progress")[1]
        assert worker.states("copy")[1] != ["FAILED"], worker.request("GET", "/connectors/copy/status")
        first_task: dict[str, Any] = body["tasks"][0] if body.get("tasks") else {}
        return first_task

    def copied(count: int) -> None:
        worker.wait_for(
            lambda: progress().get("records_written") == count and progress()["lag"]["total"] == 0,
            150,
            f"the job did not write {count} records",
            progress,
        )

    copied(ROWS // 2)
    send(secured, topic, ROWS // 2, ROWS // 2)
    copied(ROWS)
    source, target = records(secured, topic), records(secured, f"{topic}.copy")
    assert len(source) == ROWS
    assert target == source

    job = progress()["pid"]
    processes = of_processes([worker.pid, *worker.hosts(), *family(job)])
    assert any("java" in text for text in processes.values())
    answers = {path: json.dumps(worker.request("GET", f"/connectors/copy{path}")[1]) for path in _ANSWERS}
    answers["/metrics"] = str(worker.request("GET", "/metrics")[1])
    assert "millrace_job_up" in answers["/metrics"]
    assert worker.request("GET", "/connectors/copy/offsets")[1]["offsets"]
    assert worker.request("PUT", "/connectors/copy/stop")[0] == 204
    worker.wait_for(
        lambda: worker.states("copy") == ("STOPPED", []), 60, "it did not stop", lambda: worker.states("copy")
    )
    events = seen(tmp_path / "events")
    assert any("SparkListenerJobEnd" in text for text in events.values())
    assert (
        leaks(processes | answers | events | seen(tmp_path / "home") | seen(tmp_path / "worker"), tmp_path / "login")
        == []
    )


@pytest.mark.parametrize("worker", [SCRAM], indirect=True, ids=lambda kind: kind.name)
def test_flows_of_one_application_have_logins_of_their_own(
    secured: SecuredKafka, worker: MillraceWorker, tmp_path: Path
) -> None:
    """Each reads and writes what its own user may, whatever the others of the driver may; a wrong login stops one flow."""
    run_id = secrets.token_hex(4)
    admin = AdminClient({"bootstrap.servers": secured.cluster.bootstrap})
    for user in ("alice", "bob"):
        secured.allow(user, "TOPIC", f"{user}-", "READ", "WRITE", "DESCRIBE", "CREATE")
        secured.allow(user, "TOPIC", f"millrace-{user}-", "READ", "WRITE", "DESCRIBE", "CREATE")  # of positions written
        secured.allow(user, "GROUP", f"millrace-{user}-", "READ", "DESCRIBE")
        secured.allow(user, "TRANSACTIONAL_ID", f"{user}-", "WRITE", "DESCRIBE")
        admin.create_topics([NewTopic(f"{user}-{run_id}", 2, 1)])[f"{user}-{run_id}"].result(20)
        send(secured, f"{user}-{run_id}", 0, 100)

    def create(name: str, topic: str, guarantee: str, **kafka: str) -> None:
        """A copy within the one application."""
        worker.create(
            name,
            {
                "connector.class": "spark_jobs.SparkJob",
                "source.topics": topic,
                "source.format": "plain",
                "sink.type": "kafka",
                "sink.kafka.topic": f"{name}.copy",
                "guarantee": guarantee,
                "trigger.interval.ms": "200",
                "errors.retry.timeout.ms": "10000",
                "spark.application": run_id,
                **spark(tmp_path),
                **{f"kafka.{option.replace('_', '.')}": value for option, value in kafka.items()},
            },
        )

    def of(user: str, password: str = "") -> dict[str, str]:
        return {"sasl_jaas_config": jaas_config(user, password or USERS[user], "SCRAM-SHA-512")}

    def about(name: str) -> Any:
        return [worker.request("GET", f"/connectors/{name}/{path}")[1] for path in ("status", "progress")]

    def running(name: str, count: int) -> int:
        """The flow's process, once it has written all."""

        def done() -> bool:
            assert worker.states(name)[1] != ["FAILED"], about(name)
            tasks = about(name)[1].get("tasks")
            return bool(tasks) and tasks[0].get("records_written") == count

        worker.wait_for(done, 150, f"{name} did not write {count} records", lambda: about(name))
        return int(about(name)[1]["tasks"][0]["pid"])

    def failed(name: str) -> str:
        worker.wait_for(lambda: worker.states(name)[1] == ["FAILED"], 120, f"{name} runs", lambda: about(name))
        return str(about(name)[0]["tasks"][0]["trace"])

    flows = {}
    for user in ("alice", "bob"):
        # Tasks of both guarantees keep their producers in Python workers that all flows of the driver share.
        for guarantee in ("exactly-once", "at-least-once"):
            name = f"{user}-{run_id}-{guarantee}"
            flows[name] = f"{user}-{run_id}"
            create(name, flows[name], guarantee, **of(user))
    # A certificate at another listener, next to passwords.
    flows[f"certificate-{run_id}"] = f"alice-{run_id}"
    by_certificate = {name.replace(".", "_"): value for name, value in login(MUTUAL, secured, tmp_path / "tls").items()}
    by_certificate["bootstrap_servers"] = secured.cluster.secured(MUTUAL)
    create(f"certificate-{run_id}", f"alice-{run_id}", "exactly-once", **by_certificate)
    (process,) = {running(name, 100) for name in flows}

    # Bob may not read alice's topic, nor write to hers with his producers, though hers are in the same Python workers.
    create(f"bob-{run_id}-reads", f"alice-{run_id}", "at-least-once", **of("bob"))
    create(f"alice-{run_id}-writes", f"bob-{run_id}", "at-least-once", **of("bob"))
    create(f"alice-{run_id}-wrong", f"alice-{run_id}", "at-least-once", **of("alice", "not-the-Password"))
    assert "authori" in failed(f"bob-{run_id}-reads").lower()
    assert "authori" in failed(f"alice-{run_id}-writes").lower()
    wrong = failed(f"alice-{run_id}-wrong")
    assert f"Kafka at {secured.cluster.secured(SCRAM)} refuses the login of alice: " in wrong
    assert "correct kafka.sasl.jaas.config" in wrong
    assert "not-the-Password" not in wrong
    for user in ("alice", "bob"):
        send(secured, f"{user}-{run_id}", 100, 100)
    assert {running(name, 200) for name in flows} == {process}
    for name, topic in flows.items():
        assert records(secured, f"{name}.copy") == records(secured, topic)


@pytest.mark.parametrize("kind", [SCRAM, MUTUAL], ids=lambda kind: kind.name)
def test_the_materializer_by_spark_submit(
    secured: SecuredKafka, kind: KafkaListener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events are those of the model, row by row; what it prints, leaves and shows of itself holds no secret."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    topic = f"secured-{secrets.token_hex(4)}"
    fill(_LOAD, secured.cluster.bootstrap, "", topic)
    file = tmp_path / "job.yaml"
    schema = tmp_path / "update.avsc"
    schema.write_text(_LOAD.schema)
    kafka_options = {"bootstrap.servers": secured.cluster.secured(kind), **login(kind, secured, tmp_path / "login")}
    file.write_text(
        json.dumps(
            {
                "name": topic,
                "kafka": kafka_options,
                "source": {"topics": topic, "format": "partition-update"},
                "transform": {"type": "materialize"},
                "materializer": {"output.encoding": "json", "input.schemas": str(schema)},
                "sink": {"type": "kafka", "kafka": {"topic": f"{topic}.rows"}},
                "trigger": {"mode": "available-now"},
                "checkpoint": {"location": str(tmp_path / "checkpoint")},
                "state": {"dir": str(tmp_path / "state")},
            }
        )
    )
    command, environment = submit_command(
        "local[2]",
        fetch_jars(),
        package.build_zip(tmp_path),
        Path(package.find_package_root()) / "spark_jobs" / "run.py",
        str(file),
    )
    settings = [
        part
        for name, value in spark(tmp_path).items()
        if name.startswith("spark.eventLog")
        for part in ("--conf", f"{name}={value}")
    ]
    out, err = tmp_path / "out.txt", tmp_path / "err.txt"
    with out.open("wb") as output, err.open("wb") as errors:
        process = subprocess.Popen([command[0], *settings, *command[1:]], stdout=output, stderr=errors, env=environment)
        processes: dict[str, str] = {}
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(0.2):
                processes.update(of_processes(family(process.pid)))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            code = process.wait(180)
        finally:
            ended.set()
            looking.join()
            if process.poll() is None:
                process.kill()
    assert code == 0, out.read_text()[-2000:] + err.read_text()[-4000:]
    assert [
        event["event"]
        for line in out.read_text().splitlines()
        if line.startswith("{") and (event := json.loads(line))["event"] != "progress"
    ] == ["started", "stopped"]
    assert check(_LOAD, secured.cluster.bootstrap, f"{topic}.rows")[0] == _LOAD.events()
    assert any("java" in text for text in processes.values())
    event_files = seen(tmp_path / "events")
    assert any("SparkListenerJobEnd" in text for text in event_files.values())
    left = seen(tmp_path / "home") | seen(tmp_path / "checkpoint") | seen(tmp_path / "state")
    assert (
        leaks(processes | event_files | left | {"output": out.read_text(), "log": err.read_text()}, tmp_path / "login")
        == []
    )
