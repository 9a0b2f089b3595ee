"""The Java Connect worker, the schema registry and Prometheus as the stack starts them."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from compose.local.connect import JavaConnect
from compose.local.monitoring.prometheus import Prometheus, find_prometheus
from compose.local.ports import LOOPBACK
from compose.local.process.http import send_request
from compose.local.registry import SchemaRegistry
from tests.support.eventually import eventually
from worker.fetch.errors import Unavailable

Unique = Callable[[str], str]
COMPOSE = Path(__file__).parents[3] / "compose"


@pytest.fixture(scope="module")
def worker(java_connect: Callable[..., JavaConnect]) -> JavaConnect:
    return java_connect(properties={"offset.flush.interval.ms": "500"})


def test_the_reference_runs_a_connector(worker: JavaConnect, tmp_path: Path, unique: Unique) -> None:
    name, target = unique("file"), tmp_path / "out.txt"
    source = tmp_path / "in.txt"
    source.write_text("one\ntwo\n", encoding="utf-8")
    common = {"tasks.max": "1", "value.converter": "org.apache.kafka.connect.storage.StringConverter"}
    status, body = worker.request(
        "POST", "/connectors",
        {"name": name, "config": {**common, "connector.class": "FileStreamSource", "file": str(source), "topic": name}},
    )  # fmt: skip
    assert status == 201, body
    status, body = worker.request(
        "PUT", f"/connectors/{name}-sink/config",
        {**common, "connector.class": "FileStreamSink", "file": str(target), "topics": name},
    )  # fmt: skip
    assert status == 201, body
    eventually(
        lambda: target.exists() and target.read_text(encoding="utf-8") == "one\ntwo\n", "the file is copied", every=0.1
    )
    eventually(
        lambda: bool(worker.request("GET", f"/connectors/{name}/offsets")[1]["offsets"]),
        "an offset is saved",
        every=0.1,
    )
    for connector in (name, f"{name}-sink"):
        assert worker.request("DELETE", f"/connectors/{connector}") == (204, None)
    status, body = worker.request("GET", f"/connectors/{name}")
    assert status == 404
    assert body["error_code"] == 404


def test_the_reference_has_its_plugins(worker: JavaConnect) -> None:
    _, plugins = worker.request("GET", "/connector-plugins?connectorsOnly=false")
    names = {plugin["class"].rpartition(".")[2] for plugin in plugins}
    assert {"FileStreamSourceConnector", "FileStreamSinkConnector", "MirrorSourceConnector"} <= names
    assert {"JsonConverter", "StringConverter", "RegexRouter", "TopicNameMatches"} <= names
    assert worker.request("GET", "/")[1]["version"] == "4.1.2"


def test_the_runtimes_own_test_connectors_can_be_used(worker: JavaConnect, unique: Unique) -> None:
    name = unique("verifiable")
    config = {
        "connector.class": "org.apache.kafka.connect.tools.VerifiableSourceConnector",
        "tasks.max": "1", "topic": name, "throughput": "100",
    }  # fmt: skip
    status, body = worker.request("PUT", f"/connectors/{name}/config", config)
    assert status == 201, body

    def running() -> bool:
        _, body = worker.request("GET", f"/connectors/{name}/status")
        return [task["state"] for task in body.get("tasks", [])] == ["RUNNING"]

    eventually(running, "it runs", every=0.1)
    assert worker.request("DELETE", f"/connectors/{name}")[0] == 204


@pytest.mark.slow
def test_two_workers_of_a_group_are_a_cluster(java_connect: Callable[..., JavaConnect], unique: Unique) -> None:
    group = unique("cluster")
    first, second = java_connect(group=group), java_connect(group=group)
    name = unique("c")
    config = {"connector.class": "FileStreamSource", "file": "/dev/null", "topic": name, "tasks.max": "1"}
    eventually(
        lambda: first.request("PUT", f"/connectors/{name}/config", config)[0] in {200, 201},
        "the connector is accepted",
        every=0.2,
    )
    eventually(lambda: second.request("GET", "/connectors")[1] == [name], "the other worker knows it", every=0.1)
    first.stop()
    second.stop()


def test_the_reference_runs_standalone(
    java_connect: Callable[..., JavaConnect], tmp_path: Path, unique: Unique
) -> None:
    name = unique("standalone")
    source = tmp_path / "in.txt"
    source.write_text("one\n", encoding="utf-8")
    connector = {
        "name": name, "connector.class": "FileStreamSource", "file": str(source), "topic": name, "tasks.max": "1",
    }  # fmt: skip
    worker = java_connect(standalone=[connector])
    eventually(lambda: worker.request("GET", "/connectors")[1] == [name], "the worker knows it again", every=0.1)
    worker.stop()


@pytest.mark.slow
def test_the_registry_keeps_schemas_over_a_kill(tmp_path: Path) -> None:
    with SchemaRegistry(tmp_path, port=None) as registry:
        status, body = send_request("POST", f"{registry.url}/subjects/kept-value/versions", {"schema": '"string"'})
        assert status == 200
        registry.kill()
        registry.start()
        assert send_request("GET", f"{registry.url}/schemas/ids/{body['id']}") == (200, {"schema": '"string"'})


def test_the_registry_speaks_confluents_api(registry: SchemaRegistry, unique: Unique) -> None:
    subject = unique("orders") + "-value"
    versions = f"{registry.url}/subjects/{subject}/versions"
    record = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'
    first = send_request("POST", versions, {"schema": record})
    assert first[0] == 200
    assert send_request("POST", versions, {"schema": record}) == first, "the same schema gets the same id"
    assert subject in send_request("GET", f"{registry.url}/subjects")[1]
    assert send_request("GET", versions)[1] == [1]
    assert send_request("GET", f"{registry.url}/subjects/none-{subject}/versions")[0] == 404


@pytest.fixture
def exporter() -> Iterator[str]:
    """A server with one metric, as a worker that has a failed connector would have."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = b'kafka_connect_connector_status{connector="c",status="failed"} 1\n'
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"{LOOPBACK}:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_prometheus_scrapes_and_the_shipped_alert_fires(prometheus: Callable[..., Prometheus], exporter: str) -> None:
    server = prometheus(targets=[exporter], rules=[COMPOSE / "prometheus" / "alerts.yml"], interval=0.5)
    query = 'kafka_connect_connector_status{status="failed"}'
    eventually(lambda: bool(server.query(query)), "the query has an answer", every=0.1)
    ((labels, value),) = server.query(query)
    assert (labels["connector"], value) == ("c", 1.0)

    def alerts() -> set[str]:
        return {alert["labels"]["alertname"] for alert in server.get("alerts")[1]["data"]["alerts"]}

    eventually(lambda: "MillraceConnectorFailed" in alerts(), "the alert fires", every=0.1)

    def healthy() -> bool:
        _, rules = server.get("rules")
        return {rule["health"] for group in rules["data"]["groups"] for rule in group["rules"]} == {"ok"}

    eventually(healthy, "the worker is well again", every=0.1)


@pytest.fixture(scope="module")
def promtool() -> Path:
    try:
        return find_prometheus() / "promtool"
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_the_shipped_configuration_is_valid(promtool: Path) -> None:
    command = [str(promtool), "check", "config", str(COMPOSE / "prometheus" / "prometheus.yml")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_alerts_fire_when_they_should_and_only_then(promtool: Path, tmp_path: Path) -> None:
    shutil.copy(COMPOSE / "prometheus" / "alerts.yml", tmp_path)
    shutil.copy(Path(__file__).with_name("alerts_test.yml"), tmp_path)
    command = [str(promtool), "test", "rules", "alerts_test.yml"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
