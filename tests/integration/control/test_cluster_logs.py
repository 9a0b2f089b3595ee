"""Logs over REST on a real worker and a real Kafka: unknown lines by pattern, and rules tried on a connector's own lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.control._cluster import all_running, wait_for
from tests.integration.control._logs import RULES, by_table, logs, read_topic, write_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.worker import MillraceWorker


@pytest.mark.parametrize("form", ["plain", "debezium", "ums"])
def test_unknown_lines_and_previews_of_files(
    millrace: Callable[..., MillraceWorker], unique: Callable[[str], str], tmp_path: Path, bootstrap: str, form: str
) -> None:
    name, source = unique("files"), tmp_path / "app.log"
    source.write_text("".join(f"GET /{number}\n" for number in range(50)))
    worker = millrace(group=unique("group"), processes=1, properties={"exactly.once.source.support": "enabled"})
    worker.create(name, logs(name, RULES, file=str(source), output=form))
    with source.open("a") as file:
        file.writelines(f"job {number} took={number * 3}ms\n" for number in range(200))
        file.write("something else\n")
    wait_for(lambda: len(read_topic(bootstrap, f"{name}.unknown_table")) == 201, "all unknown lines are in Kafka")

    status, unknown = worker.request("GET", f"/connectors/{name}/unknown?table=jobs")
    assert status == 200, unknown
    assert (unknown["topic"], unknown["lines"], unknown["unreadable"]) == (f"{name}.unknown_table", 201, 0)
    jobs, other = unknown["patterns"]
    assert (jobs["pattern"], jobs["count"], jobs["examples"][0]) == ("job <*> <*>", 200, "job 0 took=0ms")
    assert (other["pattern"], other["count"]) == ("something else", 1)
    (failure,) = unknown["failures"]
    assert (failure["table"], failure["group"], failure["step"], failure["lines"]) == ("requests", "get", 1, 201)
    # Only the newest are looked at.
    status, newest = worker.request("GET", f"/connectors/{name}/unknown?lines=11")
    assert sorted(pattern["count"] for pattern in newest["patterns"]) == [1, 10]

    # The proposed rule on the same lines, and on the newest of the file.
    body = {"rules": jobs["rules"], "connector": name}
    status, shown = worker.request("POST", "/rules/preview", {**body, "source": "unknown"})
    assert (status, shown["groups"][0]["accepted"], len(shown["lines"])) == (200, 200, 201), shown
    status, shown = worker.request("POST", "/rules/preview", {**body, "count": 220})
    assert (status, shown["groups"][0]["accepted"], len(shown["lines"])) == (200, 200, 220), shown
    assert (shown["lines"][0]["line"], shown["lines"][-1]["line"]) == ("GET /31", "something else")
    status, shown = worker.request("POST", "/rules/diff", {"before": RULES, "after": jobs["rules"], "connector": name})
    assert (status, len(shown["lines"])) == (200, 250), shown


def test_previews_of_topics_and_of_the_network(
    millrace: Callable[..., MillraceWorker], unique: Callable[[str], str], bootstrap: str
) -> None:
    name, network, raw = unique("topics"), unique("network"), unique("raw")
    values = [json.dumps({"@timestamp": "2026-11-26T17:29:00Z", "message": f"GET /{number}"}) for number in range(99)]
    write_topic(bootstrap, raw, values)
    worker = millrace(group=unique("group"), processes=1)
    worker.create(name, logs(name, RULES, input="kafka", **{"kafka.bootstrap.servers": bootstrap, "kafka.topics": raw}))
    worker.create(network, logs(network, RULES, input="syslog", listen="tcp://127.0.0.1:0"))
    wait_for(lambda: all_running(worker, [name, network]), "they run")

    status, shown = worker.request("POST", "/rules/preview", {"rules": RULES, "connector": name, "count": 10})
    assert (status, [line["line"] for line in shown["lines"]]) == (200, [f"GET /{number}" for number in range(89, 99)])
    status, refused = worker.request("POST", "/rules/preview", {"rules": RULES, "connector": network})
    assert (status, "nothing can be read back" in refused["message"]) == (400, True), refused
    status, shown = worker.request(
        "POST", "/rules/preview", {"rules": RULES, "connector": network, "source": "unknown"}
    )
    assert (status, shown["lines"]) == (200, [])
    status, unknown = worker.request("GET", f"/connectors/{network}/unknown")
    assert (status, unknown["lines"], unknown["patterns"]) == (200, 0, [])
    # What has no lines.
    generated: dict[str, Any] = {"connector.class": "datagen", "topic": unique("t"), "tasks.max": "1"}
    other = unique("other")
    worker.create(other, generated)
    status, refused = worker.request("GET", f"/connectors/{other}/unknown")
    assert (status, "it must be one of class logs" in refused["message"]) == (400, True), refused
    assert worker.request("GET", "/connectors/nobody/unknown")[0] == 404
    assert by_table(bootstrap, name, ["requests"])["requests"]
