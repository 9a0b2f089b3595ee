"""Replays of the input on real workers and a real Kafka: all lines go through new rules, exactly once, through a crash."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.control._cluster import wait_for
from tests.integration.control._logs import RULES, logs, read_topic, write_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.worker import MillraceWorker

COUNT = 6000
#: As RULES, but for the table: their rows are not mixed with those that were made before.
CHANGED: dict[str, Any] = json.loads(json.dumps(RULES).replace('"requests"', '"again"'))
EXACTLY_ONCE = {"exactly.once.source.support": "enabled", "offset.flush.interval.ms": "200"}


@pytest.mark.slow
def test_files_are_replayed_exactly_once(
    millrace: Callable[..., MillraceWorker], unique: Callable[[str], str], tmp_path: Path, bootstrap: str
) -> None:
    """Three files of two tasks; the worker is killed in the middle of the replay, while the source continues."""
    name, rules, folder, group = unique("input"), unique("rules"), tmp_path / "logs", unique("group")
    folder.mkdir()
    for number in range(3):
        lines = (f"GET /{number}/{line}\n" for line in range(COUNT))
        (folder / f"{number}.log").write_text("".join(lines))
    worker = millrace(group=group, properties=EXACTLY_ONCE, processes=1)
    assert worker.request("PUT", f"/rules/{rules}", {"rules": RULES})[0] == 201
    options = {
        "directory": str(folder),
        "file.pattern": "*.log",
        "rules.name": rules,
        "tasks.max": "2",
        "batch.size": "100",
    }
    worker.create(name, logs(name, **options))
    wait_for(lambda: len(read_topic(bootstrap, f"{name}.requests")) == 3 * COUNT, "all lines are read", 60)
    before = {value["log_id"]: value["path"] for _, value in read_topic(bootstrap, f"{name}.requests")}
    wait_for(lambda: len(_saved(worker, name)) == 3, "the positions are saved")
    status, refused = worker.request(
        "POST", f"/connectors/{name}/replay", {"source": "input", "since": "2026-11-26T17:00:00Z"}
    )
    assert (status, "row.timestamp.column" in refused["message"]) == (400, True), refused
    assert worker.request("PUT", f"/rules/{rules}", {"rules": CHANGED})[0] == 200

    status, asked = worker.request("POST", f"/connectors/{name}/replay", {"source": "input", "id": "all"})
    assert (status, asked["replay"]) == (201, {"source": "input"}), asked
    wait_for(lambda: bool(read_topic(bootstrap, f"{name}.again")), "the replay has begun")
    worker.kill()
    with (folder / "0.log").open("a") as file:
        file.write("GET /later\n")
    worker = millrace(group=group, properties=EXACTLY_ONCE, processes=1)
    wait_for(lambda: _replay(worker, name, "all")["state"] == "completed", "the replay is done", 90)
    shown = _replay(worker, name, "all")
    assert (shown["lines"], shown["accepted"], shown["records_left"]) == (3 * COUNT, 3 * COUNT, 0)
    wait_for(lambda: len(read_topic(bootstrap, f"{name}.again")) > 3 * COUNT, "the source continues", 60)
    rows = [value for _, value in read_topic(bootstrap, f"{name}.again")]
    assert Counter(row["path"] for row in rows if row["path"] == "/later") == {"/later": 1}
    assert Counter((row["log_id"], row["path"]) for row in rows if row["path"] != "/later") == Counter(before.items())

    # Since a position: of one file, and no other.
    path = str(folder / "1.log")
    end = (folder / "1.log").read_text().index("GET /1/5000\n")
    position = {"partition": {"filename": path}, "offset": {"position": end}}
    request = {"source": "input", "id": "some", "positions": [position]}
    assert worker.request("POST", f"/connectors/{name}/replay", request)[0] == 201
    wait_for(lambda: _replay(worker, name, "some")["state"] == "completed", "the second replay is done", 60)
    rows = [value for _, value in read_topic(bootstrap, f"{name}.again")][len(rows) :]
    assert [row["path"] for row in rows] == [f"/1/{line}" for line in range(5000, COUNT)]
    assert {row["log_id"]: row["path"] for row in rows}.items() <= before.items()
    for replay in ("all", "some"):
        assert worker.request("DELETE", f"/connectors/{name}/snapshots/{replay}")[0] == 204
    wait_for(lambda: len(_offsets(worker, name)) == 3, "what is forgotten leaves no offsets")


def test_rows_of_earlier_rules_are_deleted(
    millrace: Callable[..., MillraceWorker], unique: Callable[[str], str], tmp_path: Path, bootstrap: str
) -> None:
    """All rows go to another table, with UMS; the worker is killed in the middle of the replay."""
    name, rules, source, group = unique("input"), unique("rules"), tmp_path / "app.log", unique("group")
    source.write_text("".join(f"GET /{line}\n" for line in range(COUNT)))
    worker = millrace(group=group, properties=EXACTLY_ONCE, processes=1)
    assert worker.request("PUT", f"/rules/{rules}", {"rules": RULES})[0] == 201
    options = {"file": str(source), "rules.name": rules, "batch.size": "100", "output": "ums"}
    worker.create(name, logs(name, **options))
    wait_for(lambda: len(_ums_rows(bootstrap, f"{name}.requests")) == COUNT, "all lines are read", 60)
    before = _ums_rows(bootstrap, f"{name}.requests")
    wait_for(lambda: len(_saved(worker, name)) == 1, "the position is saved")
    assert worker.request("PUT", f"/rules/{rules}", {"rules": CHANGED})[0] == 200
    for replaces in (2, 3):
        request = {"source": "input", "replaces": replaces}
        status, refused = worker.request("POST", f"/connectors/{name}/replay", request)
        assert (status, f"GET /rules/{rules}/versions" in refused["message"]) == (400, True), refused
    request = {"source": "input", "replaces": 1, "id": "all"}
    status, asked = worker.request("POST", f"/connectors/{name}/replay", request)
    assert (status, asked["replay"]) == (201, {"source": "input", "replaces": 1}), asked
    wait_for(lambda: bool(_ums_rows(bootstrap, f"{name}.again")), "the replay has begun")
    worker.kill()
    worker = millrace(group=group, properties=EXACTLY_ONCE, processes=1)
    wait_for(lambda: _replay(worker, name, "all")["state"] == "completed", "the replay is done", 90)
    inserts = _ums_rows(bootstrap, f"{name}.again")
    assert [(row["ums_op_"], row["log_id"], row["path"]) for row in inserts] == [
        ("i", row["log_id"], row["path"]) for row in before
    ]
    deletes = _ums_rows(bootstrap, f"{name}.requests")[COUNT:]
    assert [(row["ums_op_"], row["log_id"], row["path"]) for row in deletes] == [
        ("d", row["log_id"], row["path"]) for row in before
    ]
    assert all(int(new["ums_id_"]) > int(old["ums_id_"]) for new, old in zip(deletes, before, strict=True))


def test_topics_are_replayed_exactly_once(
    millrace: Callable[..., MillraceWorker], unique: Callable[[str], str], bootstrap: str
) -> None:
    """A topic, from its beginning, and since a time; the worker is killed in the middle of the replay."""
    name, rules, topic, group = unique("input"), unique("rules"), unique("lines"), unique("group")
    write_topic(bootstrap, topic, [f"GET /{line}" for line in range(COUNT)])
    worker = millrace(group=group, properties=EXACTLY_ONCE, processes=1)
    assert worker.request("PUT", f"/rules/{rules}", {"rules": RULES})[0] == 201
    options = {
        "input": "kafka",
        "kafka.bootstrap.servers": bootstrap,
        "kafka.topics": topic,
        "rules.name": rules,
        "batch.size": "100",
        "row.timestamp.column": "",
    }
    worker.create(name, logs(name, **options))
    wait_for(lambda: len(read_topic(bootstrap, f"{name}.requests")) == COUNT, "all lines are read", 60)
    before = [value for _, value in read_topic(bootstrap, f"{name}.requests")]
    wait_for(lambda: _saved(worker, name) == [COUNT], "the position is saved")
    assert worker.request("PUT", f"/rules/{rules}", {"rules": CHANGED})[0] == 200
    assert worker.request("POST", f"/connectors/{name}/replay", {"source": "INPUT", "id": "all"})[0] == 201
    wait_for(lambda: bool(read_topic(bootstrap, f"{name}.again")), "the replay has begun")
    worker.kill()
    write_topic(bootstrap, topic, ["GET /later"])
    worker = millrace(group=group, properties=EXACTLY_ONCE, processes=1)
    wait_for(lambda: _replay(worker, name, "all")["state"] == "completed", "the replay is done", 90)
    shown = _replay(worker, name, "all")
    assert (shown["lines"], shown["accepted"], shown["records_left"]) == (COUNT, COUNT, 0)
    wait_for(lambda: len(read_topic(bootstrap, f"{name}.again")) > COUNT, "the source continues", 60)
    rows = [value for _, value in read_topic(bootstrap, f"{name}.again")]
    assert sorted(_pairs(rows)) == sorted([*_pairs(before), (f"{topic}/0:{COUNT}:0", "/later")])

    # Since a time that is later than all records: none; since an offset: those behind it.
    late = {"source": "input", "id": "late", "since": "2100-01-01T00:00:00Z"}
    position = {"partition": {"topic": topic, "partition": 0}, "offset": {"offset": COUNT - 2}}
    behind = {"source": "input", "id": "some", "positions": [position]}
    for request, paths in ((late, []), (behind, [f"/{COUNT - 2}", f"/{COUNT - 1}", "/later"])):
        count = len(read_topic(bootstrap, f"{name}.again"))
        assert worker.request("POST", f"/connectors/{name}/replay", request)[0] == 201
        asked = str(request["id"])
        wait_for(lambda: _replay(worker, name, asked)["state"] == "completed", "it is done", 60)  # noqa: B023 - called here
        assert [value["path"] for _, value in read_topic(bootstrap, f"{name}.again")][count:] == paths


def test_the_network_can_not_be_replayed(millrace: Callable[..., MillraceWorker], unique: Callable[[str], str]) -> None:
    name = unique("listener")
    worker = millrace(group=unique("group"), processes=1)
    worker.create(name, logs(name, RULES, input="http", listen="http://127.0.0.1:0"))
    status, refused = worker.request("POST", f"/connectors/{name}/replay", {"source": "input"})
    assert (status, "takes lines from the network (input=http)" in refused["message"]) == (400, True), refused


def _ums_rows(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """The rows of a topic's UMS messages; heartbeats have none."""
    values = [value for _, value in read_topic(bootstrap, topic)]
    return [
        dict(zip([field["name"] for field in value["schema"]["fields"]], row["tuple"], strict=True))
        for value in values
        if value["protocol"]["type"] == "data_increment_data"
        for row in value["payload"]
    ]


def _pairs(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["log_id"], row["path"]) for row in rows]


def _replay(worker: MillraceWorker, name: str, replay: str) -> dict[str, Any]:
    status, body = worker.request("GET", f"/connectors/{name}/replay")
    if status != 200:
        raise LookupError(body)
    return next(entry for entry in body if entry["id"] == replay)


def _offsets(worker: MillraceWorker, name: str) -> list[dict[str, Any]]:
    offsets: list[dict[str, Any]] = worker.request("GET", f"/connectors/{name}/offsets")[1]["offsets"]
    return offsets


def _saved(worker: MillraceWorker, name: str) -> list[int]:
    """The saved positions of the source."""
    saved = [entry["offset"] for entry in _offsets(worker, name) if "replay" not in entry["partition"]]
    return [offset.get("offset", offset.get("position")) for offset in saved]
