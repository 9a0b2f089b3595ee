"""Savepoints of a flow with several sinks: one for each, by command and by REST."""

from __future__ import annotations

import io
import json
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid, Retriable
from spark_jobs.cli import describe_job
from spark_jobs.config import job_files as job_config
from spark_jobs.connector import SparkJob
from spark_jobs.control import Control
from spark_jobs.job import control_folder
from spark_jobs.run import Attendance, run_attended, run_file
from spark_jobs.savepoints import commands, rest
from spark_jobs.savepoints.manifest import MANIFEST_FILE
from spark_jobs.savepoints.requests import Inbox, JobSavepointRequest, SavepointAnswer
from spark_jobs.spark.checkpoint import LocalFolder
from tests.support.eventually import eventually
from tests.unit.spark_jobs.savepoints.test_savepoints_of_connectors import sealed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from spark_jobs.runner import Runner

SINKS = ("keep", "show")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))


def properties(folder: Path, **more: str) -> dict[str, str]:
    return {
        "name": "orders",
        "kafka.bootstrap.servers": "localhost:1",
        "source.topics": "in",
        "source.format": "debezium",
        "sinks": "keep,show",
        "sink.keep.type": "files",
        "sink.keep.files.path": str(folder / "out"),
        "sink.show.type": "console",
        "savepoint.location": str(folder / "savepoints"),
    } | more


def connector_config(folder: Path) -> Any:
    flow = properties(folder)
    return SparkJob.definition(flow).parse(flow)


@pytest.fixture
def running() -> Iterator[dict[str, Inbox]]:
    """Both sinks run: their locks are held."""
    controls = {sink: Control(control_folder(f"orders.{sink}")) for sink in SINKS}
    for sink, control in controls.items():
        control.lock.acquire(f"job orders.{sink}")
        control.write({"job": f"orders.{sink}", "flow": "orders", "sink": sink, "file": ""})
    yield {sink: Inbox(control.folder) for sink, control in controls.items()}
    for control in controls.values():
        control.lock.release()


def test_each_sink_starts_from_its_part(tmp_path: Path) -> None:
    flow = properties(tmp_path, **{"source.savepoint": "/backup/orders-1", "sink.show.source.savepoint": "/backup/old"})
    keep, show = job_config.build_flow(flow)
    assert (keep.config["source.savepoint"], show.config["source.savepoint"]) == (
        "/backup/orders-1/keep",
        "/backup/old",
    )


def test_the_command_asks_the_job_of_each_sink(
    tmp_path: Path, running: dict[str, Inbox], capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[JobSavepointRequest] = []

    def answer(inbox: Inbox) -> None:
        request = eventually(inbox.next, "a request")
        asked.append(request)
        result = {"name": request.name, "job": "j", "location": request.location, "batch": 3, "records": None}
        inbox.answer(SavepointAnswer(request.id, request.name, result))

    threads = [threading.Thread(target=answer, args=(inbox,)) for inbox in running.values()]
    for thread in threads:
        thread.start()
    assert commands.main(["orders", "--to", str(tmp_path / "one"), "--timeout", "60"]) == 0
    for thread in threads:
        thread.join(60)
    assert [(request.location, request.name) for request in asked] == [
        (str(tmp_path / "one" / sink), "one") for sink in SINKS
    ]
    assert len(capsys.readouterr().out.splitlines()) == len(SINKS)


def test_a_flow_is_found_by_its_file_and_its_name(tmp_path: Path, running: dict[str, Inbox]) -> None:
    del running
    file = tmp_path / "orders.json"
    file.write_text(json.dumps(properties(tmp_path)))
    for flow in (str(file), "orders"):
        assert [(part.name, part.sink, part.job is not None) for part in commands.find_parts(flow)] == [
            (f"orders.{sink}", sink, flow != "orders") for sink in SINKS
        ]
    assert commands.find_parts("orders.show") == [commands.SavepointPart("orders.show")]
    assert commands.find_parts("other") == [commands.SavepointPart("other")]


class Ended(Exception):
    """The end of a run right after its start."""


def test_a_flow_that_is_just_starting_is_found_with_all_of_its_sinks(tmp_path: Path) -> None:
    keep, show = job_config.build_flow(properties(tmp_path))
    flow_parts = []

    def begin(runner: Runner) -> None:
        assert describe_job(runner.job.name)["state"] == "starting"
        flow_parts.append(commands.find_parts("orders"))
        raise Ended

    for job in (keep, show):  # the first one's status alone names both
        with pytest.raises(Ended):
            run_attended(job, io.StringIO(), Attendance(begin))
    parts = [commands.SavepointPart(f"orders.{sink}", sink) for sink in SINKS]
    assert flow_parts == [parts, parts]
    assert describe_job(show.name)["state"] == "died"


def test_no_sink_of_a_stopped_flow_starts_while_savepoints_are_made(tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text(json.dumps(properties(tmp_path)))
    parts = commands.find_parts(str(file))
    events = io.StringIO()
    with ExitStack() as locks:
        jobs = [commands.lock_stopped(part, locks) for part in parts]
        assert [job and job.name for job in jobs] == [f"orders.{sink}" for sink in SINKS]
        assert run_file(str(file), events) == 1
        assert events.getvalue().count("is in use by process") == len(SINKS)


def test_a_job_that_starts_while_its_file_is_read_is_not_taken_for_a_stopped_one(tmp_path: Path) -> None:
    show = job_config.build_flow(properties(tmp_path))[1]
    control = Control(show.folder)

    class Starting(commands.SavepointPart):
        """A job that starts when it is asked for."""

        @property
        def job(self) -> Any:
            control.lock.acquire("the job")
            return show

    with ExitStack() as locks:
        assert commands.lock_stopped(Starting(show.name, "show"), locks) is None
    control.lock.release()


def test_rest_asks_all_sinks_or_none(tmp_path: Path, running: dict[str, Inbox]) -> None:
    config = connector_config(tmp_path)
    where = tmp_path / "savepoints"
    assert rest.create_savepoint(config, {"name": "a"}) == {"name": "a", "location": str(where / "a"), "stop": False}
    for sink, inbox in running.items():
        request = inbox.next()
        assert request is not None
        assert request.location == str(where / "a" / sink)
    assert [(row["sink"], row["state"]) for row in rest.list_all(config)] == [(sink, "requested") for sink in SINKS]
    for sink, inbox in running.items():
        request = inbox.next()
        assert request is not None
        LocalFolder(where / "a" / sink).write(MANIFEST_FILE, sealed("a"))
        inbox.answer(SavepointAnswer(request.id, "a", {"name": "a"}))
    assert [(row["sink"], row["name"], row["batch"]) for row in rest.list_all(config)] == [
        (sink, "a", 0) for sink in SINKS
    ]
    with pytest.raises(Retriable, match="there is a savepoint a already"):
        rest.create_savepoint(config, {"name": "a"})
    assert rest.remove_savepoint(config, {"name": "a"})
    assert not (where / "a").exists()
    assert not rest.remove_savepoint(config, {"name": "a"})


def test_a_sink_that_does_not_run_is_named_and_nothing_is_asked(tmp_path: Path, running: dict[str, Inbox]) -> None:
    control = Control(control_folder("orders.late"))
    assert not control.running()
    flow = properties(tmp_path, sinks="keep,show,late") | {"sink.late.type": "console"}
    with pytest.raises(Retriable, match=r"the job orders\.late does not run"):
        rest.create_savepoint(SparkJob.definition(flow).parse(flow), {"name": "a"})
    assert [inbox.next() for inbox in running.values()] == [None, None]
    with pytest.raises(ConfigInvalid, match="no job orders runs on this machine, and its file is not known"):
        commands._load_of(Control(control_folder("orders")), "orders")
