"""A worker with plugins in environments that can't be in one process: versions, clashes, loading while it runs."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

from tests.integration.control._cluster import wait_for
from worker.kafka.whole_topics import ReadRecord, read_topic

from .conftest import put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.worker import MillraceWorker

WHEEL = "millrace_example-2.0.0-py3-none-any.whl"
STRING = "org.apache.kafka.connect.storage.StringConverter"


def environments(worker: MillraceWorker) -> dict[str, Any]:
    status, body = worker.request("GET", "/admin/plugins")
    assert status == 200, body
    answer: dict[str, Any] = body
    return answer


def hosts(worker: MillraceWorker) -> dict[str, list[str]]:
    """Environment -> what runs in its hosts."""
    return {host["environment"]: host["units"] for host in environments(worker)["hosts"]}


def errors(worker: MillraceWorker, config: dict[str, str]) -> dict[str, list[str]]:
    status, body = worker.request(
        "PUT", f"/connector-plugins/{config['connector.class']}/config/validate", {"name": "asked", **config}
    )
    assert status == 200, body
    return {entry["value"]["name"]: entry["value"]["errors"] for entry in body["configs"] if entry["value"]["errors"]}


def versions(worker: MillraceWorker, name: str) -> list[str | None]:
    body = worker.request("GET", f"/connectors/{name}/status")[1]
    return [body["connector"].get("version"), *(task.get("version") for task in body["tasks"])]


def read(bootstrap: str, topic: str, count: int) -> list[ReadRecord]:
    records: list[ReadRecord] = []

    def enough() -> bool:
        records[:] = read_topic(bootstrap, topic)
        return len(records) >= count

    wait_for(enough, f"{count} records of {topic}")
    return records


def test_plugins_that_can_not_be_in_one_process(
    millrace: Callable[..., MillraceWorker],
    installed: Path,
    plugin_path: Path,
    unique: Callable[[str], str],
    bootstrap: str,
) -> None:
    for name in ("a", "b", "example-1.2.3", "millrace_example-2"):
        put(installed, name, plugin_path)
    worker = millrace(
        properties={
            "plugin.path": str(plugin_path),
            "plugin.environment.host.idle.ms": "1500",
            "key.converter": STRING,
            "value.converter": STRING,
            "config.providers": "back",
            "config.providers.back.class": "millrace_example.provider.ReversedProvider",
        }
    )
    assert environments(worker)["failures"] == {}
    assert [
        row["version"]
        for row in worker.request("GET", "/connector-plugins")[1]
        if row["class"] == "millrace_example.connector.CountdownConnector"
    ] == ["1.2.3", "2.0.0"]

    # Two versions of one library, at the same time, each in the process of the plugin that needs it.
    a, b = unique("a"), unique("b")
    worker.create(a, {"connector.class": "clash-a", "topic": a})
    source = plugin_path.parent / "lines.txt"
    source.write_text("one\n")
    worker.create(
        b,
        {
            "connector.class": "FileStreamSource",
            "file": str(source),
            "topic": b,
            "transforms": "t",
            "transforms.t.type": "example_b.ClashB",
        },
    )
    assert read(bootstrap, a, 1)[0].value == b"clash 1"
    assert read(bootstrap, b, 1)[0].headers == (("library", b"clash 2"),)
    # And not in one process.
    both = errors(worker, {"connector.class": "clash-a", "topic": a, "transforms": "t", "transforms.t.type": "clash-b"})
    (text,) = both["transforms.t.type"]
    assert "the environments a and b hold different versions of the distribution clash: 1.0 and 2.0" in text
    assert both.keys() == {"transforms.t.type"}

    # Versions: the latest unless one is asked for, and all parts of one connector in that version.
    old, new = unique("old"), unique("new")
    parts = {
        "connector.class": "countdown",
        "start": "3",
        "transforms": "s",
        "transforms.s.type": "com.example.Stamp",
        "transforms.s.text": "${back:kool}",
        "transforms.s.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "below",
        "value.converter": "bars",
    }
    worker.create(new, {**parts, "topic": new})
    worker.create(
        old,
        {
            **parts,
            "topic": old,
            "connector.plugin.version": "[1,2)",
            "value.converter.plugin.version": "[1,2)",
            "predicates.p.plugin.version": "[1,2)",
        },
    )
    assert [(record.value, record.headers) for record in read(bootstrap, new, 4)] == [
        (str(left).encode(), (("stamp", b"look by 2.0.0"),)) for left in (3, 2, 1, 0)
    ]
    assert {record.headers for record in read(bootstrap, old, 4)} == {(("stamp", b"look by 1.2.3"),)}
    worker.wait_running(old, 1)
    worker.wait_running(new, 1)
    assert (versions(worker, old), versions(worker, new)) == (["1.2.3", "1.2.3"], ["2.0.0", "2.0.0"])
    assert hosts(worker)["example-1.2.3"] == [old, f"{old}-0"]
    assert hosts(worker)[WHEEL] == [new, f"{new}-0"]
    metrics = worker.request("GET", "/metrics")[1]
    assert 'environment="example-1.2.3"} 1' in metrics
    missing = (
        "Plugin millrace_example.connector.CountdownConnector not found that matches the version range [3,), "
        "available versions: [1.2.3, 2.0.0]"
    )
    wrong = errors(worker, {**parts, "topic": "t", "connector.plugin.version": "[3,)"})
    assert wrong == {"connector.class": [missing], "connector.plugin.version": [missing]}
    assert worker.request("GET", "/connector-plugins/countdown/config?version=%5B3,)")[1]["message"] == missing
    assert worker.request("GET", "/connector-plugins/countdown/config?version=1.2.3")[0] == 200

    # When the host of an environment dies, no other host ends with it, and it is replaced.
    before = {host["environment"]: host["pid"] for host in environments(worker)["hosts"]}
    os.kill(before[WHEEL], signal.SIGKILL)
    wait_for(
        lambda: (
            worker.states(new) == ("RUNNING", ["RUNNING"])
            and {host["environment"]: host["pid"] for host in environments(worker)["hosts"]}.get(WHEEL)
            not in (None, before[WHEEL])
        ),
        "the host was replaced",
    )
    after = {host["environment"]: host["pid"] for host in environments(worker)["hosts"]}
    assert after["example-1.2.3"] == before["example-1.2.3"]

    # What nothing needs ends.
    for name in (a, b, old):
        assert worker.request("DELETE", f"/connectors/{name}")[0] == 204
    wait_for(lambda: hosts(worker).keys() == {WHEEL}, "hosts that nothing needs have ended")


def test_plugins_come_and_go_while_a_worker_runs(
    millrace: Callable[..., MillraceWorker], installed: Path, plugin_path: Path, unique: Callable[[str], str]
) -> None:
    worker = millrace(
        properties={
            "plugin.path": str(plugin_path),
            "plugin.scan.interval.ms": "300",
            "plugin.environment.hosts.max": "1",
            "plugin.environment.host.idle.ms": "60000",
            "key.converter": STRING,
            "value.converter": STRING,
        }
    )
    running = worker.hosts()
    name = unique("hot")
    config = {"connector.class": "countdown", "topic": name, "start": "1"}
    status, body = worker.request("PUT", f"/connectors/{name}/config", config)
    assert status == 400
    assert "Failed to find any class that implements Connector and which name matches countdown" in body["message"]

    put(installed, "example-1.2.3", plugin_path)
    wait_for(
        lambda: any(row["version"] == "1.2.3" for row in worker.request("GET", "/connector-plugins")[1]), "it is found"
    )
    worker.create(name, config)
    worker.wait_running(name, 1)
    first = environments(worker)["hosts"][0]["pid"]

    # A later version is added: running connectors continue as they were, and use it after a restart.
    put(installed, "millrace_example-2", plugin_path)
    status, body = worker.request("PUT", "/admin/plugins/refresh")
    assert [environment["name"] for environment in body["environments"]] == ["example-1.2.3", WHEEL]
    assert [host["pid"] for host in body["hosts"]] == [first]
    assert versions(worker, name) == ["1.2.3", "1.2.3"]
    # The one host that there may be has to end first: not before both units have left it.
    worker.request("POST", f"/connectors/{name}/restart?includeTasks=true")
    wait_for(
        lambda: versions(worker, name) == ["2.0.0", "2.0.0"] and worker.states(name) == ("RUNNING", ["RUNNING"]),
        "the later version runs",
    )
    second = environments(worker)["hosts"]
    assert [(host["environment"], host["pid"] != first) for host in second] == [(WHEEL, True)]

    # The version is removed: running connectors continue. After a restart they fail and say why; once it is back, a restart
    # makes them run again.
    (plugin_path / WHEEL).unlink()
    shutil.rmtree(plugin_path / "example-1.2.3")
    wait_for(lambda: environments(worker)["environments"] == [], "they have gone")
    assert worker.states(name) == ("RUNNING", ["RUNNING"])
    worker.request("POST", f"/connectors/{name}/restart?includeTasks=true")
    wait_for(lambda: worker.states(name) == ("FAILED", ["FAILED"]), "it fails")
    trace = worker.request("GET", f"/connectors/{name}/status")[1]["tasks"][0]["trace"]
    assert "which name matches countdown" in trace
    assert "put it into a folder of plugin.path, then restart the connector" in trace
    put(installed, "example-1.2.3", plugin_path)
    assert worker.request("PUT", "/admin/plugins/refresh")[0] == 200
    worker.request("POST", f"/connectors/{name}/restart?includeTasks=true")
    wait_for(
        lambda: worker.states(name) == ("RUNNING", ["RUNNING"]) and versions(worker, name) == ["1.2.3", "1.2.3"],
        "it runs again",
    )
    assert set(running) <= set(worker.hosts())


def test_one_process_has_one_environment(
    millrace: Callable[..., MillraceWorker], installed: Path, plugin_path: Path
) -> None:
    put(installed, "example-1.2.3", plugin_path)
    worker = millrace(processes=0, properties={"plugin.path": str(plugin_path)})
    problems = errors(
        worker,
        {
            "connector.class": "FileStreamSource",
            "file": "/nowhere",
            "topic": "t",
            "transforms": "s",
            "transforms.s.type": "stamp",
        },
    )
    assert "runs everything in one process (--processes 0" in problems["transforms.s.type"][0]
    status, body = worker.request("PUT", "/connectors/c/config", {"connector.class": "countdown", "topic": "t"})
    assert (status, "runs everything in one process" in body["message"]) == (400, True), body
