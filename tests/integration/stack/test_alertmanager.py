"""An alert's whole way: a metric, the shipped rule, the shipped receivers, a mail and a webhook."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from compose.local.commands.catalog import OFFERS, ServiceRequest
from compose.local.monitoring.alertmanager import Alertmanager, find_alertmanager
from compose.local.monitoring.prometheus import Prometheus, tell_alertmanager
from compose.local.ports import LOOPBACK
from tests.support.eventually import eventually
from tests.support.smtp_sink import smtp_sink
from worker.fetch.errors import Unavailable

COMPOSE = Path(__file__).parents[3] / "compose"


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return find_alertmanager()
    except Unavailable as reason:
        pytest.skip(str(reason))


@dataclass(slots=True)
class Outside:
    """A server that has a failed connector in its metrics for as long as `failed`, and keeps what a webhook is sent.

    Attributes:
        address: `host:port`.
        failed: Whether the connector has failed.
        calls: Bodies of the webhook's calls.
    """

    address: str = ""
    failed: bool = True
    calls: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def _outside() -> Iterator[Outside]:
    outside = Outside()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(f'kafka_connect_connector_status{{connector="c",status="failed"}} {int(outside.failed)}\n')

        def do_POST(self) -> None:
            outside.calls.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer("")

        def _answer(self, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        outside.address = f"{LOOPBACK}:{server.server_port}"
        try:
            yield outside
        finally:
            server.shutdown()
            thread.join()


def _receivers(mail: str, webhook: str) -> dict[str, Any]:
    """The shipped configuration as a user fills it in, without its waits."""
    config: dict[str, Any] = yaml.safe_load((COMPOSE / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8"))
    config["global"] |= {"smtp_smarthost": mail, "smtp_require_tls": False}
    config["route"] |= {"receiver": "mail-and-webhook", "group_wait": "100ms", "group_interval": "100ms"}
    for receiver in config["receivers"]:
        for entry in receiver.get("webhook_configs", ()):
            entry["url"] = f"http://{webhook}/"
    return config


def _impatient_rules(folder: Path) -> Path:
    """The shipped rules, which fire at once."""
    rules = yaml.safe_load((COMPOSE / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    path = folder / "alerts.yml"
    path.write_text(yaml.safe_dump(rules), encoding="utf-8")
    return path


@pytest.mark.usefixtures("program")
def test_an_alert_arrives_by_mail_and_at_a_webhook_and_so_does_its_end(
    prometheus: Callable[..., Prometheus], tmp_path: Path
) -> None:
    with smtp_sink() as sink, _outside() as outside:
        config = tmp_path / "alertmanager.yml"
        config.write_text(yaml.safe_dump(_receivers(sink.address, outside.address)), encoding="utf-8")
        with Alertmanager(tmp_path / "alertmanager", config, port=None) as manager:
            folder = tmp_path / "prometheus"
            tell_alertmanager(folder, manager.address)
            prometheus(state_dir=folder, targets=[outside.address], rules=[_impatient_rules(tmp_path)], interval=0.5)

            def is_notified(status: str) -> bool:
                return any(
                    (alert["labels"]["alertname"], alert["status"]) == ("MillraceConnectorFailed", status)
                    for call in outside.calls
                    for alert in call["alerts"]
                )

            def mailed(status: str) -> bool:
                return any(
                    mail["Subject"].startswith(f"[{status}") and "MillraceConnectorFailed" in mail["Subject"]
                    for mail in sink.mails
                )

            eventually(lambda: is_notified("firing"), "the webhook is notified of the alert", every=0.1)
            eventually(lambda: mailed("FIRING"), "the mail of the alert has come", every=0.1)
            outside.failed = False
            eventually(lambda: is_notified("resolved"), "the webhook is notified of the end", every=0.1)
            eventually(lambda: mailed("RESOLVED"), "the mail of the end has come", every=0.1)
        mail = sink.mails[0]
        assert (mail["From"], mail["To"]) == ("millrace@example.com", "operators@example.com")
        labels = outside.calls[0]["commonLabels"]
        assert (labels["connector"], labels["severity"]) == ("c", "critical")
        assert outside.calls[0]["alerts"][0]["annotations"]["summary"]


def test_the_shipped_receivers_are_valid(program: Path) -> None:
    amtool = shutil.which("amtool") or str(program.with_name("amtool"))
    command = [amtool, "check-config", str(COMPOSE / "alertmanager" / "alertmanager.yml")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.usefixtures("program")
def test_the_stacks_alertmanager_keeps_receivers_that_were_filled_in(tmp_path: Path) -> None:
    request = ServiceRequest(tmp_path, None, {}, {}, print)
    (part,) = OFFERS["alertmanager"].build(request)
    config = tmp_path / "alertmanager" / "alertmanager.yml"
    assert config.read_bytes() == (COMPOSE / "alertmanager" / "alertmanager.yml").read_bytes()
    (group,) = json.loads((tmp_path / "prometheus" / "alertmanagers.json").read_text(encoding="utf-8"))
    assert group["targets"] == [f"{LOOPBACK}:{part.port}"]
    config.write_text("route: {receiver: own}\nreceivers: [{name: own}]\n", encoding="utf-8")
    OFFERS["alertmanager"].build(request)
    assert "own" in config.read_text(encoding="utf-8")
