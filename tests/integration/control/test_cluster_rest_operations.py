"""A cluster of two workers, driven by REST: what clients of Kafka Connect do, through leader and follower."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaProducer

from compose.local.worker import MillraceWorker
from offsets.records import connector_status_record, task_status_record
from tests.integration.control._cluster import all_running, datagen, file_source, members, owners, wait_for
from worker.kafka.whole_topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """The cluster."""

    leader: MillraceWorker
    follower: MillraceWorker
    source: Path
    group: str

    def topic(self, name: str) -> str:
        return f"{self.group}-{name}"


@pytest.fixture(scope="module")
def pair(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    group = f"pair-{secrets.token_hex(4)}"
    source = folder / "lines.txt"
    source.write_text("".join(f"{number}\n" for number in range(100)))
    workers = [
        MillraceWorker(
            state_dir=folder / name,
            bootstrap=bootstrap,
            group=group,
            processes=1,
            properties={"offset.flush.interval.ms": "200"},
        )
        for name in "ab"
    ]
    try:
        for worker in workers:
            worker.start()
        wait_for(lambda: members(workers[0]) == 2, "two members")
        yield Pair(workers[0], workers[1], source, group)
    finally:
        for worker in workers:
            worker.kill()


def count_task_starts(pair: Pair) -> int:
    """Starts of tasks at both workers so far."""
    metric = "kafka_connect_worker_task_startup_attempts_total "
    lines = [
        line for worker in (pair.leader, pair.follower) for line in worker.request("GET", "/metrics")[1].splitlines()
    ]
    return sum(int(float(line.removeprefix(metric))) for line in lines if line.startswith(metric))


def test_a_changed_configuration_starts_a_task_once(pair: Pair) -> None:
    config = datagen(pair.topic("changed"), 1)
    pair.leader.create("changed", config)
    pair.leader.wait_running("changed", 1)
    before = count_task_starts(pair)
    assert pair.follower.request("PUT", "/connectors/changed/config", {**config, "rate": "7"})[0] == 200

    def is_changed() -> bool:
        tasks = pair.leader.request("GET", "/connectors/changed/tasks")[1]
        return bool(tasks[0]["config"].get("rate") == "7" and count_task_starts(pair) > before)

    wait_for(is_changed, "the task has its new configuration")
    pair.leader.wait_running("changed", 1)
    assert count_task_starts(pair) == before + 1
    assert pair.leader.request("DELETE", "/connectors/changed")[0] == 204


def test_created_at_the_follower_it_has_a_status_at_once_and_runs(pair: Pair) -> None:
    status, body = pair.follower.request(
        "POST", "/connectors", {"name": "made", "config": file_source(pair.source, pair.topic("made"))}
    )
    assert (status, body["name"], body["type"], body["tasks"]) == (201, "made", "source", [])
    for worker in (pair.follower, pair.leader):
        status, body = worker.request("GET", "/connectors/made/status")
        assert status == 200
        assert body["connector"]["state"] in ("UNASSIGNED", "RUNNING")
    pair.follower.wait_running("made", 1)
    assert pair.follower.request("POST", "/connectors", {"name": "made", "config": file_source(pair.source, "t")}) == (
        409,
        {"error_code": 409, "message": "Connector made already exists"},
    )
    assert pair.follower.request("GET", "/connectors/made/tasks")[1][0]["id"] == {"connector": "made", "task": 0}
    wait_for(
        lambda: pair.leader.request("GET", "/connectors/made/topics")[1] == {"made": {"topics": [pair.topic("made")]}},
        "the topic is known",
    )
    for worker in (pair.leader, pair.follower):
        _reset_topics_and_write_on(pair, worker)
    assert pair.follower.request("DELETE", "/connectors/made")[0] == 204
    assert "made" not in pair.follower.request("GET", "/connectors")[1]
    assert pair.follower.request("GET", "/connectors/made") == (
        404,
        {"error_code": 404, "message": "Connector made not found"},
    )


def _reset_topics_and_write_on(pair: Pair, worker: MillraceWorker) -> None:
    """After a reset the topic is active again with the next records, on both workers and without a restart."""
    assert worker.request("PUT", "/connectors/made/topics/reset")[0] == 202
    for member in (pair.leader, pair.follower):
        wait_for(
            lambda member=member: member.request("GET", "/connectors/made/topics")[1] == {"made": {"topics": []}},  # type: ignore[misc]
            "no active topics",
        )
    before = _polled(pair, "made")

    def active_again() -> bool:
        with pair.source.open("a") as file:  # again and again: records may overtake the reset on its way to the task
            file.write("more\n")
        return all(
            member.request("GET", "/connectors/made/topics")[1] == {"made": {"topics": [pair.topic("made")]}}
            for member in (pair.leader, pair.follower)
        )

    wait_for(active_again, "the topic is active again")
    wait_for(lambda: _polled(pair, "made") > before, "the same task goes on")


def test_adding_changing_and_deleting_moves_and_restarts_nobody_else(pair: Pair) -> None:
    names = [f"steady{number}" for number in range(4)]
    for name in names:
        pair.leader.create(name, datagen(pair.topic(name), 1))
    wait_for(lambda: all_running(pair.leader, names), "all run")
    before = owners(pair.leader, names)
    assert {worker for workers in before.values() for worker in workers} == {
        pair.leader.worker_id,
        pair.follower.worker_id,
    }
    polled = {name: _polled(pair, name) for name in names}
    pair.leader.create("passing", datagen(pair.topic("passing"), 3))
    wait_for(lambda: all_running(pair.leader, ["passing"], 3), "passing runs")
    pair.leader.create("passing", datagen(pair.topic("passing"), 2))
    wait_for(lambda: all_running(pair.leader, ["passing"], 2), "passing runs with two tasks")
    assert pair.leader.request("DELETE", "/connectors/passing")[0] == 204
    wait_for(lambda: all(_polled(pair, name) > polled[name] for name in names), "the others go on")
    assert owners(pair.leader, names) == before
    for name in names:
        pair.leader.request("DELETE", f"/connectors/{name}")


def _polled(pair: Pair, name: str) -> float:
    """Records read by the connector's task since its start: a restart would begin again from 0."""
    for worker in (pair.leader, pair.follower):
        for line in worker.request("GET", "/metrics")[1].splitlines():
            if line.startswith(f'kafka_connect_source_task_source_record_poll_total{{connector="{name}"'):
                return float(line.split()[1])
    return 0.0


def test_pause_resume_stop_and_restart(pair: Pair) -> None:
    worker = pair.follower
    worker.create("steered", file_source(pair.source, pair.topic("steered")))
    worker.wait_running("steered", 1)
    for action, status, state in (
        ("pause", 202, ("PAUSED", ["PAUSED"])),
        ("resume", 202, ("RUNNING", ["RUNNING"])),
        ("stop", 204, ("STOPPED", [])),
        ("resume", 202, ("RUNNING", ["RUNNING"])),
    ):
        assert worker.request("PUT", f"/connectors/steered/{action}")[0] == status
        wait_for(lambda state=state: worker.states("steered") == state, f"{action} leads to {state}")  # type: ignore[misc]
    for side in (pair.leader, pair.follower):
        assert side.request("POST", "/connectors/steered/restart")[0] == 204
        assert side.request("POST", "/connectors/steered/tasks/0/restart")[0] == 204
        status, body = side.request("POST", "/connectors/steered/restart?includeTasks=true")
        assert (status, body["connector"]["state"], body["tasks"][0]["state"]) == (202, "RESTARTING", "RESTARTING")
        side.wait_running("steered", 1)
    assert worker.request("POST", "/connectors/steered/tasks/7/restart")[0] == 404
    assert worker.request("PUT", "/connectors/nobody/pause")[0] == 404
    worker.request("DELETE", "/connectors/steered")


def test_a_stop_right_after_a_change_leaves_no_tasks(pair: Pair) -> None:
    """The tasks that a connector asked for before it was stopped may be on their way to the leader then."""
    for number in range(12):
        name = f"hasty{number}"
        pair.leader.create(name, datagen(pair.topic("hasty"), tasks=1))
        for pause_s in (0.0, 0.01 * number):
            pair.leader.create(name, datagen(pair.topic("hasty"), tasks=2 + number % 2))
            time.sleep(
                pause_s
            )  # tasks are asked for some time after the change: the stop comes at another moment each time
            assert pair.leader.request("PUT", f"/connectors/{name}/stop")[0] == 204
            wait_for(lambda name=name: pair.leader.states(name) == ("STOPPED", []), "it is stopped")  # type: ignore[misc]
            assert pair.leader.request("PUT", f"/connectors/{name}/resume")[0] == 202
        assert pair.leader.request("DELETE", f"/connectors/{name}")[0] == 204


def test_initial_states(pair: Pair) -> None:
    for state, expected in (("PAUSED", "PAUSED"), ("STOPPED", "STOPPED"), ("RUNNING", "RUNNING")):
        name = f"begins-{state}"
        assert (
            pair.leader.request(
                "POST",
                "/connectors",
                {"name": name, "config": file_source(pair.source, pair.topic(name)), "initial_state": state},
            )[0]
            == 201
        )
        wait_for(lambda name=name, expected=expected: pair.leader.states(name)[0] == expected, name)  # type: ignore[misc]
        pair.leader.request("DELETE", f"/connectors/{name}")


def test_offsets_can_be_read_changed_and_reset(pair: Pair) -> None:
    worker, path = pair.follower, "/connectors/positions/offsets"
    worker.create("positions", file_source(pair.source, pair.topic("positions")))
    partition, end = {"filename": str(pair.source)}, pair.source.stat().st_size
    wait_for(
        lambda: worker.request("GET", path)[1]["offsets"] == [{"partition": partition, "offset": {"position": end}}],
        "the end is saved",
    )
    change = {"offsets": [{"partition": partition, "offset": {"position": 10}}]}
    status, body = worker.request("PATCH", path, change)
    assert (status, body["message"][:36]) == (400, "Connectors must be in the STOPPED st")
    worker.request("PUT", "/connectors/positions/stop")
    assert worker.request("PATCH", path, change)[0] == 200
    assert worker.request("GET", path)[1]["offsets"] == [{"partition": partition, "offset": {"position": 10}}]
    assert worker.request("DELETE", path)[0] == 200
    assert worker.request("GET", path)[1] == {"offsets": []}
    worker.request("PUT", "/connectors/positions/resume")
    wait_for(
        lambda: worker.request("GET", path)[1]["offsets"] == [{"partition": partition, "offset": {"position": end}}],
        "it reads from the beginning",
    )
    worker.request("DELETE", "/connectors/positions")


def test_an_invalid_configuration_is_refused_with_kafkas_text(pair: Pair) -> None:
    status, body = pair.follower.request(
        "POST",
        "/connectors",
        {"name": "bad", "config": {"connector.class": "FileStreamSource", "topic": "t", "tasks.max": "0"}},
    )
    assert status == 400
    assert body["message"].startswith("Connector configuration is invalid and contains the following 1 error(s):\n")
    assert "tasks.max" in body["message"]
    assert body["message"].endswith(
        "\nYou can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )
    assert pair.follower.request("GET", "/connectors/bad")[0] == 404


def test_levels_with_cluster_scope_reach_every_worker(pair: Pair) -> None:
    assert pair.follower.request("PUT", "/admin/loggers/a.logger.of.tests?scope=cluster", {"level": "WARN"}) == (
        204,
        None,
    )
    for worker in (pair.leader, pair.follower):
        wait_for(
            lambda worker=worker: (
                worker.request(  # type: ignore[misc]
                    "GET", "/admin/loggers/a.logger.of.tests"
                )[1].get("level")
                == "WARN"
            ),
            "the level is set",
        )


def test_explain_names_place_and_reason(pair: Pair) -> None:
    pair.leader.create("nowhere", {**datagen(pair.topic("nowhere"), 1), "millrace.labels": "zone=moon"})

    def explained() -> dict[str, Any]:
        status, body = pair.follower.request("GET", "/connectors/nowhere/explain")
        assert status == 200
        return dict(body)

    wait_for(
        lambda: "zone=moon" in explained()["connector"]["why_not_running"], "the reason"
    )  # placed soon after the 201
    body = explained()
    assert body["connector"]["worker_id"] is None
    assert body["leader"] == pair.leader.worker_id
    pair.leader.request("DELETE", "/connectors/nowhere")


def test_root_health_and_plugins(pair: Pair) -> None:
    status, root = pair.follower.request("GET", "/")
    assert status == 200
    assert len(root["kafka_cluster_id"]) == 22
    wait_for(lambda: pair.follower.request("GET", "/health")[1].get("status") == "healthy", "healthy")
    classes = [plugin["class"] for plugin in pair.follower.request("GET", "/connector-plugins")[1]]
    assert "org.apache.kafka.connect.file.FileStreamSourceConnector" in classes
    status, infos = pair.follower.request(
        "PUT",
        "/connector-plugins/FileStreamSource/config/validate",
        {"connector.class": "FileStreamSource", "name": "x", "topic": ""},
    )
    assert (status, infos["error_count"] > 0) == (200, True)


def test_a_status_that_is_removed_behind_its_owners_back_is_reported_again(pair: Pair, bootstrap: str) -> None:
    """A slow worker deletes the status of a connector that has been recreated meanwhile."""
    pair.leader.create("told", datagen(pair.topic("told"), 2))
    wait_for(lambda: all_running(pair.follower, ["told"], 2), "told runs")
    topic = f"{pair.group}-status"
    connector, tasks = (
        connector_status_record("told", None)[0],
        [task_status_record("told", task, None)[0] for task in (0, 1)],
    )

    def kept() -> set[bytes]:
        last = {record.key: record.value for record in read_topic(bootstrap, topic)}
        return {key for key in (connector, *tasks) if last.get(key) is not None}

    for removed in ([connector], [connector, *tasks], [tasks[1]]):
        asyncio.run(_remove(bootstrap, topic, removed))
        wait_for(lambda: kept() == {connector, *tasks}, "all is told again")
        for worker in (pair.leader, pair.follower):
            wait_for(partial(all_running, worker, ["told"], 2), f"{worker.worker_id} shows it")
    assert pair.leader.request("DELETE", "/connectors/told")[0] == 204
    wait_for(lambda: not kept(), "told is forgotten")
    assert pair.follower.request("GET", "/connectors/told/status")[0] == 404


async def _remove(bootstrap: str, topic: str, keys: Sequence[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for key in keys:
            await producer.send_and_wait(topic, None, key=key)
