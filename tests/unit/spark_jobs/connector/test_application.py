"""Flows of one application: which one, whether a flow fits, and the protocol with a real process, without Spark."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import stat
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal
from connectors.options import Config
from spark_jobs.application import Application
from spark_jobs.cli import main
from spark_jobs.config.keys import FRAME
from spark_jobs.connector import SparkJob
from spark_jobs.control import Control, process_age
from spark_jobs.flows.address import (
    DEDICATED,
    ApplicationAddress,
    address_of,
    describe_differences,
    describe_refusal,
    make_private,
    runtime_path,
    spark_settings,
    why_end,
)
from spark_jobs.flows.client import FlowConnection
from spark_jobs.flows.output import FLOW, FlowLines, FlowOutput
from spark_jobs.job import control_folder
from tests.support.eventually import eventually_async
from worker.config.job_config import job_properties

if TYPE_CHECKING:
    from pathlib import Path

LOG = logging.LoggerAdapter(logging.getLogger("tests.application"), {})
_names = st.sampled_from(["spark.master", "spark.driver.memory", "spark.sql.shuffle.partitions", "spark.application"])
_properties = st.dictionaries(_names, st.sampled_from(["", "local[*]", "1g", "2g", "4", "own"]))


# Decisions.


@given(_properties, _properties)
def test_flows_that_name_no_application_share_one_if_and_only_if_they_fit(
    left: dict[str, str], right: dict[str, str]
) -> None:
    for properties in (left, right):
        properties.pop("spark.application", None)
    first, second = address_of(left), address_of(right)
    assert first is not None
    assert second is not None
    settings = spark_settings(left), spark_settings(right)
    assert (first.key == second.key) == (not describe_differences(*settings))
    assert bool(describe_refusal("shared", "flow", *settings)) == bool(describe_differences(*settings))


def test_a_name_means_one_application_whatever_the_settings_and_own_means_none() -> None:
    first = address_of({"spark.application": "orders", "spark.driver.memory": "1g"})
    second = address_of({"spark.application": " orders ", "spark.driver.memory": "2g", "name": "x"})
    other = address_of({"spark.application": "lines"})
    assert first is not None
    assert other is not None
    assert first == second
    assert (first.name, other.name) == ("orders", "lines")
    assert first.key != other.key
    assert address_of({"spark.application": DEDICATED}) is None
    shared = address_of({"name": "x"})
    assert shared is not None
    assert shared.name == "shared"
    assert len(str(shared.socket)) < 100


def test_a_refusal_names_setting_values_and_both_fixes() -> None:
    text = describe_refusal(
        "orders",
        "late",
        spark_settings({"spark.driver.memory": "1g"}),
        spark_settings({"spark.driver.memory": "2g", "spark.master": "local[2]", "spark.application": "orders"}),
    )
    assert "the flow late does not fit into the running Spark application orders" in text
    assert "spark.driver.memory is 1g there and 2g here; spark.master is local[*] there and local[2] here" in text
    assert "the same settings, or a driver of its own (spark.application=own, or another name)" in text


def test_when_an_application_ends() -> None:
    calm = {"flows": 0, "idle_s": 1.0, "longest_idle_s": 60.0, "starter_gone": False, "asked": "", "broken": ""}

    def reason(**more: Any) -> str:
        return why_end(**{**calm, **more})

    assert reason() == ""
    assert reason(idle_s=61.0) == "it has had no flow for 60 s"
    assert reason(flows=1, idle_s=61.0, starter_gone=True) == ""
    assert "worker that started it is gone" in reason(starter_gone=True)
    assert reason(flows=3, asked="a signal") == "a signal"
    assert reason(flows=3, asked="a signal", broken="the JVM is gone") == "the JVM is gone"


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    make_private(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "new")
    for name in ("open", "link"):
        with pytest.raises(Fatal, match=r"must be a folder that only this user can enter .*remove it, or set"):
            make_private(tmp_path / name)


@pytest.mark.parametrize(
    ("application", "task"),
    [(None, {}), (DEDICATED, {}), ("orders", {"millrace.together": "Spark application orders"})],
)
async def test_flows_of_a_named_application_ask_for_one_worker(application: str | None, task: dict[str, str]) -> None:
    class Context:
        config: ClassVar[Config] = Config({"spark.application": application}, {})

    assert await SparkJob(Context()).task_configs(4) == [task]  # type: ignore[arg-type]  # all that it reads
    assert job_properties({"source.topics": "a", **task}, FRAME) == {"source.topics": "a"}


def test_one_flow_is_not_stopped_by_a_signal_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    control = Control(control_folder("orders"))
    control.lock.acquire("job orders")
    control.write({"pid": os.getpid(), "age": process_age(os.getpid()), "application": "shared"})
    assert main(["stop", "orders"]) == 1
    assert "is a flow of the Spark application shared" in (text := capsys.readouterr().err)
    assert "pause, stop or delete its connector" in text
    control.lock.release()


# Log lines.


def test_a_line_goes_to_the_flow_of_the_thread_that_wrote_it() -> None:
    others: list[str] = []
    output = FlowOutput(others.append)
    pairs = [socket.socketpair() for _ in range(2)]

    def write(number: int) -> None:
        FLOW.set(FlowLines(pairs[number][0]))
        for part in (f"flow {number} ", "writes\n\nin", " parts\n", "unfinished"):
            output.write(part)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    output.write("of no flow\n")
    assert others == ["of no flow"]
    for number, (theirs, ours) in enumerate(pairs):
        theirs.close()
        with ours, ours.makefile() as lines:
            assert lines.read() == (
                f'{{"event": "log", "line": "flow {number} writes"}}\n{{"event": "log", "line": "in parts"}}\n'
            )


def test_a_client_that_is_gone_breaks_events_and_not_log_lines() -> None:
    ours, theirs = socket.socketpair()
    lines = FlowLines(ours)
    theirs.close()
    others: list[str] = []
    output = FlowOutput(others.append)
    token = FLOW.set(lines)
    output.write("the last words of a flow\n")
    FLOW.reset(token)
    assert others == ["the last words of a flow"]
    with pytest.raises(BrokenPipeError):
        lines.write("{}\n")
    ours.close()


# The protocol.


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ApplicationAddress:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    shared = address_of({"spark.application": "tests"})
    assert shared is not None
    assert shared.folder == runtime_path()
    return shared


async def refused(address: ApplicationAddress, events: list[dict[str, Any]]) -> FlowConnection:
    """A flow that ends at once, because its configuration is refused."""
    flow = FlowConnection(address, {"name": "orders", "sink.type": "console"}, events.append, LOG)
    await flow.start()
    assert await flow.wait() == 2
    await flow.close()
    return flow


async def test_flows_that_start_at_once_find_one_application_and_each_reads_its_own_events(
    address: ApplicationAddress,
) -> None:
    received: list[list[dict[str, Any]]] = [[], [], []]
    flows = await asyncio.gather(*(refused(address, events) for events in received))
    pid = flows[0].pid
    try:
        assert {flow.pid for flow in flows} == {pid}
        for flow, events in zip(flows, received, strict=True):
            assert [(event["event"], event["kind"]) for event in events] == [("failed", "ConfigInvalid")]
            assert "source.format" in events[0]["error"]
            assert flow.end_text(2) == "ended with exit code 2 without saying why"
        assert stat.S_IMODE(address.socket.stat().st_mode) == 0o600
        os.kill(pid, signal.SIGTERM)
        await eventually_async(lambda: not process_age(pid), "the process is gone")
        assert not address.socket.exists()
        later = await refused(address, [])  # another one starts
        assert later.pid != pid
        pid = later.pid
    finally:
        os.kill(pid, signal.SIGTERM)
    await eventually_async(lambda: not process_age(pid), "the process is gone")


async def test_a_flow_whose_application_is_killed_before_it_answers_starts_it_again(
    address: ApplicationAddress,
) -> None:
    first = await refused(address, [])
    waiting = FlowConnection(address, {"name": "x"}, lambda _: None, LOG)
    os.kill(first.pid, signal.SIGSTOP)  # its next flow stays where it is
    start = asyncio.create_task(waiting.start())
    os.kill(first.pid, signal.SIGKILL)
    await start
    try:
        assert waiting.pid != first.pid
        assert await waiting.wait() == 2
        await waiting.close()
        assert waiting.end_text(2) == "ended with exit code 2 without saying why"
    finally:
        os.kill(waiting.pid, signal.SIGKILL)


async def test_a_process_that_can_not_start_says_why(
    address: ApplicationAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.flows.client.command", lambda _: ["sh", "-c", "echo no room for this >&2; exit 3"])
    flow = FlowConnection(address, {}, lambda _: None, LOG)
    with pytest.raises(OSError, match="ended with exit code 3 at its start; it says: no room for this"):
        await flow.start()
    await flow.close()


async def test_an_application_that_ends_in_the_middle_of_its_answer_has_not_accepted(
    address: ApplicationAddress,
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'{"event": "accep')
        writer.close()

    make_private(address.folder)
    async with await asyncio.start_unix_server(answer, address.socket):
        assert not await FlowConnection(address, {"name": "x"}, lambda _: None, LOG).join()


def test_what_the_jvm_writes_while_no_flow_runs_goes_to_standard_error_once(capfd: pytest.CaptureFixture[str]) -> None:
    application = Application("a", 1.0)
    with application.output.captured():
        os.write(2, b"first line\n")
        os.write(1, b"second line\n")
    application.output.end()
    assert capfd.readouterr().err == "first line\nsecond line\n"
