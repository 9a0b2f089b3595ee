"""Rule sets behind REST on real workers: versions, golden lines, the registry, the take-over by a running task, and replays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.process.http import send_request
from tests.integration.control._cluster import all_running, members, owners, wait_for
from tests.integration.control._logs import RULES, logs, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.registry import SchemaRegistry
    from compose.local.worker import MillraceWorker

#: RULES and one table more: jobs, which makes two rows of each line.
JOBS: dict[str, Any] = {
    "tables": [
        *RULES["tables"],
        {
            "name": "jobs",
            "groups": [
                {
                    "name": "job",
                    "steps": [
                        {"regexExtract": {"pattern": r"^job (?P<id>\d+) (?P<step>\S+)$"}},
                        {"set": {"fields": {"both": '["{id}", "{step}"]'}}},
                        {"flattenJsonArray": {"field": "both"}},
                        {"saveAs": {"columns": [{"name": "part", "field": "both"}]}},
                    ],
                }
            ],
        },
    ]
}


def test_a_running_task_takes_a_new_version_over(
    millrace: Callable[..., MillraceWorker], unique: Callable[[str], str], tmp_path: Path, bootstrap: str
) -> None:
    name, rules, source = unique("taken"), unique("rules"), tmp_path / "app.log"
    properties = {"exactly.once.source.support": "enabled"}
    group = unique("group")
    leader = millrace(group=group, properties=properties, processes=1)
    follower = millrace(group=group, properties=properties, processes=1)
    wait_for(lambda: members(leader) == members(follower) == 2, "both are members")
    options = {"file": str(source), "rules.name": rules}
    status, body = follower.request("PUT", f"/connectors/{name}/config", logs(name, **options))
    assert (status, f"There is no rule set {rules}" in body["message"]) == (400, True), body

    status, saved = follower.request("PUT", f"/rules/{rules}", {"rules": RULES, "comment": "first"})
    assert (status, saved["version"], saved["connectors"]) == (201, 1, {}), saved
    source.write_text("GET /1\njob 1 one\n")
    follower.create(name, logs(name, **options))
    wait_for(lambda: len(read_topic(bootstrap, f"{name}.unknown_table")) == 1, "the first version runs")
    status, body = follower.request(
        "PUT", f"/connectors/{name}/config", logs(name, **options, **{"rules.version": "9"})
    )
    assert (status, "has no version 9" in body["message"]) == (400, True), body
    (owner,) = owners(leader, [name])[name]
    runs = leader if owner == leader.worker_id else follower

    # Golden lines, and the way out.
    golden = {"line": "GET /1", "rows": {"requests": [{"path": "/2"}]}}
    status, body = leader.request("PUT", f"/rules/{rules}", {"rules": {**JOBS, "golden": [golden]}})
    assert status == 400
    assert (
        "'GET /1' must make {'requests': [{'path': '/2'}]} and makes {'requests': [{'path': '/1'}]}" in body["message"]
    )
    status, saved = leader.request("PUT", f"/rules/{rules}?force=true", {"rules": {**JOBS, "golden": [golden]}})
    assert (status, saved["version"], saved["forced"], saved["connectors"]) == (200, 2, True, {name: 2}), saved
    wait_for(lambda: _version(runs, name) == 2, "the task runs version 2")
    with source.open("a") as file:
        file.write("job 2 two\n")
    wait_for(lambda: len(read_topic(bootstrap, f"{name}.jobs")) == 2, "its rows come")
    assert [value["part"] for _, value in read_topic(bootstrap, f"{name}.jobs")] == ["2", "two"]
    assert len(read_topic(bootstrap, f"{name}.unknown_table")) == 1
    # A column of the connector's renamed is refused, named with the connector.
    renamed = json.loads(json.dumps(RULES).replace('"path"', '"log_id"').replace("<path>", "<log_id>"))
    status, body = leader.request("PUT", f"/rules/{rules}", {"rules": {**renamed, "golden": [golden | {"rows": {}}]}})
    assert (status, f"connector {name}: " in body["message"], "log_id" in body["message"]) == (400, True, True), body

    # Both workers know all of it, and so do later ones.
    for worker in (leader, follower):
        status, versions = worker.request("GET", f"/rules/{rules}/versions")
        assert (status, [entry["version"] for entry in versions]) == (200, [2, 1])
        assert worker.request("GET", f"/rules/{rules}/versions/1")[1]["rules"] == RULES
        assert rules in [entry["name"] for entry in worker.request("GET", "/rules")[1]]
        assert worker.request("DELETE", f"/rules/{rules}")[0] == 409
    runs.kill()
    other = follower if runs is leader else leader
    wait_for(lambda: owners(other, [name]) == {name: [other.worker_id]} and all_running(other, [name]), "it moved", 60)
    wait_for(lambda: _version(other, name) == 2, "the other worker has the rules", 60)
    assert other.request("DELETE", f"/connectors/{name}")[0] == 204
    assert other.request("DELETE", f"/rules/{rules}")[0] == 204
    assert other.request("GET", f"/rules/{rules}")[0] == 404


def test_the_registry_is_asked_before_rules_are_saved(
    millrace: Callable[..., MillraceWorker],
    unique: Callable[[str], str],
    tmp_path: Path,
    bootstrap: str,
    registry: SchemaRegistry,
) -> None:
    name, rules, source = unique("registered"), unique("rules"), tmp_path / "app.log"
    source.write_text("GET /1\n")
    # The registry takes no name with a hyphen.
    prefix = name.replace("-", "_")
    avro = {
        "value.converter": "AvroConverter",
        "value.converter.schema.registry.url": registry.url,
        "topic.prefix": prefix,
    }
    worker = millrace(group=unique("group"), processes=1)
    assert worker.request("PUT", f"/rules/{rules}", {"rules": RULES})[0] == 201
    worker.create(name, logs(name, **{"file": str(source), "rules.name": rules, **avro}))
    wait_for(lambda: bool(read_topic(bootstrap, f"{prefix}.requests")), "the schema is registered")
    config = f"{registry.url}/config/{prefix}.requests-value"
    assert send_request("PUT", config, {"compatibility": "BACKWARD"}, 30)[0] == 200
    changed = json.loads(json.dumps(RULES).replace('{"name": "path"}', '{"name": "path", "type": "int"}'))
    changed["tables"][0]["version"] = 2
    status, body = worker.request("PUT", f"/rules/{rules}", {"rules": changed})
    assert status == 400, body
    assert f"connector {name}: table requests: The schema registry would refuse" in body["message"]
    body = worker.request("POST", "/rules/preview", {"rules": changed, "connector": name})[1]
    assert "table requests: The schema registry would refuse" in body["conflicts"][0], body
    # A column that may be missing is compatible.
    changed = json.loads(
        json.dumps(RULES).replace('{"name": "path"}', '{"name": "path"}, {"name": "q", "optional": true}')
    )
    changed["tables"][0]["version"] = 2
    changed["tables"][0]["groups"][0]["steps"].insert(1, {"set": {"fields": {"q": "x"}}})
    status, body = worker.request("PUT", f"/rules/{rules}", {"rules": changed})
    assert (status, body["version"]) == (200, 2), body
    assert body["warnings"] == []
    wait_for(lambda: _version(worker, name) == 2, "it is taken over")
    # Schemas that transforms make are not known here: the answer says so.
    transforms = {"transforms": "t", "transforms.t.type": "InsertField$Value", "transforms.t.static.field": "s"}
    options = {"file": str(source), "rules.name": rules, **avro, **transforms, "transforms.t.static.value": "x"}
    assert worker.request("PUT", f"/connectors/{name}/config", logs(name, **options))[0] == 200
    status, body = worker.request("PUT", f"/rules/{rules}?force=true", {"rules": RULES})
    assert (status, len(body["warnings"])) == (200, 1), body
    assert body["warnings"][0].startswith(f"connector {name}: its transforms make schemas of their own"), body
    assert worker.request("POST", "/rules/preview", {"rules": RULES, "connector": name})[1]["warnings"], body


@pytest.mark.parametrize(
    "form", ["debezium", *(pytest.param(form, marks=pytest.mark.slow) for form in ("plain", "ums"))]
)
def test_unknown_lines_are_replayed_exactly_once(
    millrace: Callable[..., MillraceWorker], unique: Callable[[str], str], tmp_path: Path, bootstrap: str, form: str
) -> None:
    """A replay of 6,000 lines, each with two rows; its worker is killed in the middle of it."""
    name, rules, source = unique("replayed"), unique("rules"), tmp_path / "app.log"
    group = unique("group")
    properties = {"exactly.once.source.support": "enabled", "offset.flush.interval.ms": "200"}
    worker = millrace(group=group, properties=properties, processes=1)
    assert worker.request("PUT", f"/rules/{rules}", {"rules": RULES})[0] == 201
    source.write_text("".join(f"job {number} s\n" for number in range(6000)) + "never known\n")
    worker.create(name, logs(name, **{"file": str(source), "rules.name": rules, "output": form}))
    wait_for(lambda: len(read_topic(bootstrap, f"{name}.unknown_table")) == 6001, "all lines are unknown", 60)
    before = read_topic(bootstrap, f"{name}.unknown_table")
    assert worker.request("POST", f"/connectors/{name}/snapshots", {"tables": ["x"]})[0] == 400
    assert worker.request("POST", f"/connectors/{name}/replay", {"since": "yesterday"})[0] == 400

    assert worker.request("PUT", f"/rules/{rules}", {"rules": JOBS})[0] == 200
    wait_for(lambda: _version(worker, name) == 2, "version 2 runs")
    status, asked = worker.request("POST", f"/connectors/{name}/replay", {"id": "first"})
    assert (status, asked["state"]) == (201, "running"), asked
    wait_for(lambda: bool(read_topic(bootstrap, f"{name}.jobs")), "the replay has begun")
    worker.kill()
    worker = millrace(group=group, properties=properties, processes=1)
    wait_for(lambda: _replay(worker, name, "first")["state"] == "completed", "the replay is done", 90)
    shown = _replay(worker, name, "first")
    assert (shown["lines"], shown["accepted"], shown["records_left"]) == (6001, 6000, 0)

    def row(value: dict[str, Any]) -> dict[str, Any]:
        if form == "ums":
            names = (field["name"] for field in value["schema"]["fields"])
            return dict(zip(names, value["payload"][0]["tuple"], strict=True))
        columns: dict[str, Any] = value["after"] if form == "debezium" else value
        return columns

    jobs = [row(value) for _, value in read_topic(bootstrap, f"{name}.jobs")]
    assert len(jobs) == 12_000
    # A row's identity is the position of its line and its number among the rows of that line.
    names = {row(value)["log_id"].removesuffix(":0"): row(value)["line"].split() for _, value in before}
    assert {job["log_id"]: job["part"] for job in jobs} == {
        f"{identity}:{number}": part
        for identity, words in names.items()
        if words[0] == "job"
        for number, part in enumerate(words[1:])
    }
    # Lines that are known now are deleted in unknown_table, and are in no later replay.
    unknown_table = read_topic(bootstrap, f"{name}.unknown_table")
    if form == "ums":
        gone = [row(value)["log_id"] for _, value in unknown_table if row(value)["ums_op_"] == "d"]
    else:
        gone = [key["log_id"] for key, value in unknown_table if value is None]
    assert len(gone) == len(set(gone)) == 6000
    status, unknown = worker.request("GET", f"/connectors/{name}/unknown?lines=10000")
    assert [pattern["pattern"] for pattern in unknown["patterns"]] == ["never known"]
    assert worker.request("POST", f"/connectors/{name}/replay", {"id": "second"})[0] == 201
    wait_for(lambda: _replay(worker, name, "second")["state"] == "completed", "the second replay is done", 60)
    assert (_replay(worker, name, "second")["lines"], _replay(worker, name, "second")["accepted"]) == (1, 0)
    assert len(read_topic(bootstrap, f"{name}.jobs")) == 12_000
    # The source continues.
    with source.open("a") as file:
        file.write("job 7000 s\n")
    wait_for(lambda: len(read_topic(bootstrap, f"{name}.jobs")) == 12_002, "the source continues")
    # What is forgotten leaves no offsets.
    for replay in ("first", "second"):
        assert worker.request("DELETE", f"/connectors/{name}/snapshots/{replay}")[0] == 204
    wait_for(lambda: _replay_offsets(worker, name) == [], "their offsets are gone")


def _replay(worker: MillraceWorker, name: str, replay: str) -> dict[str, Any]:
    status, body = worker.request("GET", f"/connectors/{name}/replay")
    if status != 200:
        raise LookupError(body)
    return next(entry for entry in body if entry["id"] == replay)


def _replay_offsets(worker: MillraceWorker, name: str) -> list[Any]:
    offsets = worker.request("GET", f"/connectors/{name}/offsets")[1]["offsets"]
    return [entry for entry in offsets if "replay" in entry["partition"]]


def _version(worker: MillraceWorker, name: str) -> int:
    """The version of its rules that the connector's task runs on this worker."""
    metrics = worker.request("GET", "/metrics")[1]
    for line in metrics.splitlines():
        if "logs_rules_version{" in line and f'connector="{name}"' in line:
            return int(float(line.rpartition(" ")[2]))
    return 0
