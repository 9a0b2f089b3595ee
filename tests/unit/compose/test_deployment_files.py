"""docker-compose.yml and what it mounts: they parse, fit each other, and use versions and metric names that exist."""

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from connectors import debezium_metrics as debezium
from connectors.cassandra.metrics import METRICS as CASSANDRA
from connectors.logs.metrics import METRICS as LOGS
from connectors.mysql.metrics import METRICS as MYSQL
from connectors.scylla.metrics import METRICS as SCYLLA
from spark_jobs.metrics import TABLE_METRICS
from worker.config.worker_config import parse_worker
from worker.fetch.artifacts import load_manifest
from worker.metrics.registry import METRICS, Family
from worker.metrics.topics import TOPICS
from worker.properties import parse_properties

QUEUE = ("QueueTotalCapacity", "QueueRemainingCapacity", "MaxQueueSizeInBytes", "CurrentQueueSizeInBytes")
COMPOSE = Path(__file__).parents[3] / "compose"

DASHBOARDS = sorted((COMPOSE / "grafana" / "dashboards").glob("*.json"))
#: Metric names of the default families, of connectors, and of Prometheus itself.
KNOWN_METRICS = {
    *(name for metric in METRICS for family in (Family.A, Family.D) for name in metric.exposed(family)),
    *CASSANDRA, *LOGS, *MYSQL, *SCYLLA, *TOPICS, *(f"{debezium.PREFIX}{name}" for name in QUEUE),
    *(f"millrace_job_{metric.name}" for metric in TABLE_METRICS),
    "millrace_connector_lag_seconds_bucket", "up", "scrape_duration_seconds",
}  # fmt: skip
_WORDS = {
    "sum", "rate", "increase", "count", "vector", "time", "timestamp", "deriv", "delta", "histogram_quantile",
    "min", "max", "min_over_time", "max_over_time", "avg_over_time", "last_over_time",
    "absent", "offset", "by", "on", "and", "or", "unless", "group_left", "le",
}  # fmt: skip


def _yaml(name: str) -> Any:
    return yaml.safe_load((COMPOSE / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def compose() -> Any:
    return _yaml("docker-compose.yml")


@pytest.fixture(scope="module", params=DASHBOARDS, ids=lambda path: path.stem)
def dashboard(request: pytest.FixtureRequest) -> Any:
    return json.loads(request.param.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    return [rule for group in _yaml("prometheus/alerts.yml")["groups"] for rule in group["rules"]]


def _mounts(service: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for volume in service.get("volumes", []):
        source, target, *_ = volume.split(":")
        yield source, target


def test_images_are_those_of_the_manifest(compose: Any) -> None:
    images = load_manifest().images
    built = {"worker-1", "worker-2", "spark", "spark-worker"}
    assert {name: service["image"] for name, service in compose["services"].items() if name not in built} == {
        name: image for name, image in images.items() if name != "python"
    }
    assert f"ARG PYTHON_IMAGE={images['python']}\n" in (COMPOSE / "Dockerfile").read_text(encoding="utf-8")
    assert not any(image.endswith(":latest") or ":" not in image for image in images.values())


def test_everything_mounted_or_copied_exists(compose: Any) -> None:
    for name, service in compose["services"].items():
        for source, _ in _mounts(service):
            if source.startswith("."):
                assert (COMPOSE / source).exists(), f"{name} mounts {source}"
            else:
                assert source in compose["volumes"], f"{name} uses the undeclared volume {source}"
        if "build" in service:
            assert (COMPOSE / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    root = COMPOSE.parent
    for line in (COMPOSE / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            *sources, _ = line.split()[1:]
            missing = [source for source in sources if not (root / source).exists()]
            assert missing in ([], ["README.md"]), line


def test_the_compose_file_is_valid() -> None:
    """Against the schema that the Compose project publishes."""
    check = ["check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE / "docker-compose.yml")]
    done = subprocess.run([sys.executable, "-m", *check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_sources_and_targets_start_only_when_asked_for(compose: Any) -> None:
    always = {name for name, service in compose["services"].items() if "profiles" not in service}
    assert always == {"kafka", "worker-1", "worker-2", "prometheus", "alertmanager", "grafana"}
    profiles = {profile for service in compose["services"].values() for profile in service.get("profiles", ())}
    comment = (
        (COMPOSE / "docker-compose.yml").read_text(encoding="utf-8").partition("# There are: ")[2].partition(".\n")[0]
    )
    assert set(re.findall(r"[a-z]+", comment)) - {"sources", "targets"} == profiles


def test_the_dockerfile_passes_its_linter() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([str(linter), str(COMPOSE / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture(scope="module")
def kubernetes() -> dict[str, Any]:
    """The objects for Kubernetes, by kind and name."""
    text = (COMPOSE / "kubernetes" / "millrace.yml").read_text(encoding="utf-8")
    return {f"{item['kind']} {item['metadata']['name']}": item for item in yaml.safe_load_all(text)}


def test_the_objects_for_kubernetes_are_valid(kubernetes: dict[str, Any]) -> None:
    assert len(kubernetes) == 6
    for item in kubernetes.values():
        kubernetes_validate.validate(item, kubernetes_validate.latest_version(), strict=True)


def test_the_objects_for_kubernetes_fit_each_other(kubernetes: dict[str, Any]) -> None:
    workers = kubernetes["StatefulSet millrace"]["spec"]
    pod = workers["template"]["spec"]
    (container,) = pod["containers"]
    labels = workers["template"]["metadata"]["labels"].items()
    for name in ("Service millrace", "Service millrace-workers"):
        assert kubernetes[name]["spec"]["selector"].items() <= labels
    assert kubernetes["PodDisruptionBudget millrace"]["spec"]["selector"]["matchLabels"].items() <= labels
    assert f"Service {workers['serviceName']}" in kubernetes
    advertised = next(item["value"] for item in container["env"] if item["name"].endswith("ADVERTISED_HOST_NAME"))
    assert advertised == f"$(POD_NAME).{workers['serviceName']}"
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    properties = _properties(kubernetes["ConfigMap millrace"]["data"]["worker.properties"])
    config, _ = parse_worker(properties)
    assert pod["terminationGracePeriodSeconds"] * 1000 > (
        config["drain.timeout.ms"] + config["task.shutdown.graceful.timeout.ms"]
    )
    (port,) = container["ports"]
    assert properties["listeners"].endswith(f":{port['containerPort']}")


def test_ports_are_published_once_and_on_loopback_only(compose: Any) -> None:
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    numbers = [port.split(":")[1] for port in published]
    assert len(set(numbers)) == len(numbers)


def test_services_depend_on_services(compose: Any) -> None:
    for service in compose["services"].values():
        assert set(service.get("depends_on", [])) <= set(compose["services"])
    workers = [service for name, service in compose["services"].items() if name.startswith("worker-")]
    assert len(workers) == 2
    assert "healthcheck" in compose["services"]["kafka"]


def test_workers_use_the_listener_kafka_advertises_to_containers(compose: Any) -> None:
    environment = compose["services"]["kafka"]["environment"]
    advertised = dict(listener.split("://") for listener in environment["KAFKA_ADVERTISED_LISTENERS"].split(","))
    protocols = dict(entry.split(":") for entry in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    listeners = dict(listener.split("://") for listener in environment["KAFKA_LISTENERS"].split(","))
    assert set(listeners) == set(protocols) == {*advertised, environment["KAFKA_CONTROLLER_LISTENER_NAMES"]}
    properties = _properties((COMPOSE / "worker.properties").read_text(encoding="utf-8"))
    assert properties["bootstrap.servers"] == advertised["INTERNAL"]
    assert properties["listeners"].endswith(":8083")


def test_prometheus_scrapes_the_workers_with_the_mounted_files(compose: Any) -> None:
    config = _yaml("prometheus/prometheus.yml")
    service = compose["services"]["prometheus"]
    targets = {target for source, target in _mounts(service) if source.startswith(".")}
    (path,) = [argument.split("=")[1] for argument in service["command"] if argument.startswith("--config.file")]
    assert path in targets
    assert {f"{Path(path).parent}/{file}" for file in config["rule_files"]} <= targets
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    scraped = {target for static_config in jobs["millrace"]["static_configs"] for target in static_config["targets"]}
    assert scraped == {f"{name}:8083" for name in compose["services"] if name.startswith("worker-")}


def test_prometheus_sends_alerts_to_the_alertmanager_with_the_mounted_file(compose: Any) -> None:
    service = compose["services"]["alertmanager"]
    (path,) = [argument.split("=")[1] for argument in service["command"] if argument.startswith("--config.file")]
    assert dict(_mounts(service))["./alertmanager/alertmanager.yml"] == path
    (group,) = _yaml("prometheus/prometheus.yml")["alerting"]["alertmanagers"]
    assert [target for static_config in group["static_configs"] for target in static_config["targets"]] == [
        "alertmanager:9093"
    ]
    assert service["ports"] == ["127.0.0.1:9093:9093"]


def test_the_alertmanager_sends_nothing_until_a_receiver_is_chosen() -> None:
    config = _yaml("alertmanager/alertmanager.yml")
    receivers = {receiver.pop("name"): receiver for receiver in config["receivers"]}
    assert {name: set(receiver) for name, receiver in receivers.items()} == {
        "shown-only": set(),
        "mail": {"email_configs"},
        "webhook": {"webhook_configs"},
        "mail-and-webhook": {"email_configs", "webhook_configs"},
    }
    assert config["route"]["receiver"] == "shown-only"
    assert not any("receiver" in route for route in config["route"]["routes"])


def test_grafana_finds_its_datasource_and_dashboards(compose: Any) -> None:
    service = compose["services"]["grafana"]
    mounts = dict(_mounts(service))
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    (source,) = _yaml("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    host, port = source["url"].removeprefix("http://").split(":")
    assert compose["services"][host]["ports"] == [f"127.0.0.1:{port}:{port}"]
    (provider,) = _yaml("grafana/provisioning/dashboards/millrace.yml")["providers"]
    assert provider["options"]["path"] == mounts["./grafana/dashboards"]
    home = Path(service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == mounts["./grafana/dashboards"]
    assert (COMPOSE / "grafana" / "dashboards" / home.name).exists()
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS]
    assert len({document["uid"] for document in documents}) == len(documents) == 5
    assert all(
        document["links"][0]["tags"] == ["millrace"] and "millrace" in document["tags"] for document in documents
    )


def test_alerts_say_what_where_and_where_to_look(rules: list[dict[str, Any]]) -> None:
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names)
    for rule in rules:
        assert rule["alert"].startswith("Millrace")
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
    needed_alerts = {
        "WorkerDown", "MetricsAbsent", "MetricsStale", "RebalanceLoop", "ConnectorFailed", "TaskFailed", "DeadLetters",
        "OffsetCommitFailures",
    }  # fmt: skip
    assert {f"Millrace{name}" for name in needed_alerts} <= set(names)


def test_the_operations_page_says_what_to_do_about_every_alert(rules: list[dict[str, Any]]) -> None:
    page = (COMPOSE.parent / "docs" / "operations.md").read_text(encoding="utf-8")
    assert sorted(
        re.findall(r"`(Millrace\w+)`", page.partition("what to do first |")[2].partition("\n\n")[0])
    ) == sorted(rule["alert"] for rule in rules)


def _metrics(expression: str) -> set[str]:
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\b(by|on|group_left) *\([^)]*\)", "", expression)
    return set(re.findall(r"\b[a-z][A-Za-z_]+", bare)) - _WORDS


def test_alerts_use_known_metrics(rules: list[dict[str, Any]]) -> None:
    used = set(itertools.chain.from_iterable(_metrics(rule["expr"]) for rule in rules))
    assert len(used) > 20
    assert used <= KNOWN_METRICS, used - KNOWN_METRICS


def test_every_alert_has_a_test_in_which_it_fires(rules: list[dict[str, Any]]) -> None:
    path = COMPOSE.parent / "tests" / "integration" / "stack" / "alerts_test.yml"
    firing: set[str] = set()
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
        firing |= {test["alertname"] for test in group.get("alert_rule_test", ()) if test["exp_alerts"]}
        for test in group.get("promql_expr_test", ()):
            for sample in test["exp_samples"]:
                if sample["value"]:
                    named = re.findall(r'alertname="(\w+)"', sample["labels"])
                    firing.update(named or re.findall(r'alertname="(\w+)"', test["expr"]))
    assert firing == {rule["alert"] for rule in rules}


def test_dashboards_use_known_metrics(dashboard: Any) -> None:
    used = set(
        itertools.chain.from_iterable(
            _metrics(target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])
        )
    )
    assert len(used) > 5
    assert used <= KNOWN_METRICS, used - KNOWN_METRICS
    for query in dashboard["templating"]["list"]:
        if query["type"] == "query":
            assert re.fullmatch(r"label_values\((.*), \w+\)", query["definition"])[1] in KNOWN_METRICS  # type: ignore[index]


def test_descriptions_of_alerts_name_metrics_that_exist(rules: list[dict[str, Any]]) -> None:
    descriptions = [rule["annotations"]["description"] for rule in rules]
    used = {
        name
        for description in descriptions
        for name in re.findall(r"\b(?:cassandra|scylla|mysql|millrace)_[a-z_]+", description)
    }
    assert len(used) > 3
    assert used <= KNOWN_METRICS, used - KNOWN_METRICS


def test_panels_are_described_and_do_not_overlap(dashboard: Any) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        grid = panel["gridPos"]
        panel_cells = set(
            itertools.product(range(grid["x"], grid["x"] + grid["w"]), range(grid["y"], grid["y"] + grid["h"]))
        )
        assert not panel_cells & cells, panel["title"]
        assert grid["x"] + grid["w"] <= 24
        cells |= panel_cells
        if panel["type"] != "row":
            assert panel["description"].endswith(".")
            assert panel["datasource"]["uid"] == "${datasource}"


def _properties(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_the_entrypoint_adds_the_host_name_and_what_the_environment_sets(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "millrace"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$1" "$3"\ncat "$2"\n', encoding="utf-8")
    fake.chmod(0o755)
    result = subprocess.run(
        ["sh", str(COMPOSE / "entrypoint.sh"), str(COMPOSE / "worker.properties"), "more"],
        env={
            "PATH": f"{fake.parent}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(tmp_path),
            "MILLRACE_PROPERTY_GROUP_ID": "blue = green",
            "MILLRACE_PROPERTY_SASL_PASSWORD": r"a\b\\n ",
            "MILLRACE_PROPERTY_SSL_KEYSTORE_KEY": "-----BEGIN\nabc\n",
            "UNRELATED": "x",
        },
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    command, argument, text = result.stdout.split("\n", 2)
    assert (command, argument) == ("worker", "more")
    properties = parse_properties(text)
    assert properties["sasl.password"] == r"a\b\\n ", "backslashes and blanks are those of the value"
    assert properties["ssl.keystore.key"] == "-----BEGIN\nabc\n", "all lines of it"
    assert properties["rest.advertised.host.name"]
    assert properties["group.id"] == "blue = green", "the last one wins"
    assert properties["bootstrap.servers"] == "kafka:9093"
    assert "unrelated" not in text
