"""Workers and task hosts that die, drain or get stuck: their tasks resume elsewhere, and no other tasks move."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from compose.local.worker import MillraceWorker
from tests.integration.control._cluster import all_running, datagen, file_source, members, owners, wait_for

Factory = Callable[..., MillraceWorker]
NAMES = [f"c{number}" for number in range(6)]


def fill(worker: MillraceWorker, unique: Callable[[str], str]) -> None:
    for name in NAMES:
        worker.create(name, datagen(unique(name), 1))
    wait_for(lambda: all_running(worker, NAMES), "all run")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_leaders_tasks_move_and_come_back_without_moving_others(
    millrace: Factory, unique: Callable[[str], str]
) -> None:
    first, second, third = (millrace(group=unique("g")) for _ in range(3))
    wait_for(lambda: members(first) == 3, "three members")
    fill(second, unique)
    before = owners(second, NAMES)
    leader = second.request("GET", "/connectors/c0/explain")[1]["leader"]
    assert leader == first.worker_id
    kept = {name: where for name, where in before.items() if where != [leader]}
    assert 0 < len(kept) < len(NAMES)
    first.kill()
    wait_for(
        lambda: all_running(second, NAMES) and [leader] not in owners(second, NAMES).values(),
        "lost tasks run again",
        15,
    )
    moved = owners(second, NAMES)
    assert {name: moved[name] for name in kept} == kept
    assert third.request("PUT", "/connectors/c0/config", datagen(unique("c0"), 1))[0] == 200
    first.start()
    wait_for(
        lambda: list(owners(second, NAMES).values()).count([leader]) == 2 and all_running(second, NAMES),
        "the worker that is back gets its share",
    )
    back = owners(second, NAMES)
    assert all(back[name] == [leader] for name in NAMES if back[name] != moved[name])


def test_a_worker_that_is_asked_to_stop_hands_its_tasks_over_first(
    millrace: Factory, unique: Callable[[str], str]
) -> None:
    first, second = (millrace(group=unique("g")) for _ in range(2))
    wait_for(lambda: members(first) == 2, "two members")
    fill(second, unique)
    first.service.terminate()
    wait_for(
        lambda: all_running(second, NAMES) and set(map(tuple, owners(second, NAMES).values())) == {(second.worker_id,)},
        "all run on the other worker",
    )
    wait_for(lambda: not first.service.running, "it has ended")
    log = first.log_path.read_text()
    assert "The worker has stopped" in log
    assert "were not handed over" not in log


def test_drain_by_rest_keeps_the_worker_but_not_its_tasks(millrace: Factory, unique: Callable[[str], str]) -> None:
    first, second = (millrace(group=unique("g")) for _ in range(2))
    wait_for(lambda: members(first) == 2, "two members")
    fill(first, unique)
    status, body = second.request("PUT", "/admin/drain")
    assert (status, body["worker_id"], body["draining"]) == (202, second.worker_id, True)
    wait_for(
        lambda: all_running(first, NAMES) and set(map(tuple, owners(first, NAMES).values())) == {(first.worker_id,)},
        "all run on the other worker",
    )
    assert second.request("GET", "/connectors")[0] == 200


def test_a_killed_task_host_is_replaced_and_its_tasks_run_again(
    millrace: Factory, unique: Callable[[str], str], tmp_path: Path
) -> None:
    worker = millrace(group=unique("g"), properties={"offset.flush.interval.ms": "200"})
    source = tmp_path / "lines.txt"
    source.write_text("a\nb\n")
    worker.create("lines", file_source(source, unique("lines")))
    worker.wait_running("lines", 1)
    old = worker.hosts()
    os.kill(old[0], signal.SIGKILL)
    wait_for(lambda: worker.hosts() not in ([], old), "a new host")
    worker.wait_running("lines", 1)
    with source.open("a") as file:
        file.write("c\n")
    wait_for(
        lambda: worker.request("GET", "/connectors/lines/offsets")[1]["offsets"][0]["offset"] == {"position": 6},
        "it reads on",
    )


def test_a_task_that_blocks_its_loop_is_named_and_given_up_and_the_others_go_on(
    millrace: Factory, unique: Callable[[str], str]
) -> None:
    worker = millrace(
        group=unique("g"),
        properties={"task.host.stuck.ms": "2000", "task.host.crash.limit": "2", "task.host.restart.backoff.ms": "100"},
    )
    worker.create("good", datagen(unique("good"), 1))
    worker.create("blocker", {**datagen(unique("blocker"), 1), "fault.block.loop.after": "1"})
    wait_for(lambda: worker.states("blocker")[1] == ["FAILED"], "the blocker is given up", 40)
    trace = worker.request("GET", "/connectors/blocker/status")[1]["tasks"][0]["trace"]
    assert "blocker-0 on the CPU" in trace
    assert "happened too often" in trace
    worker.wait_running("good", 1)
    assert "faults.py" in worker.log_path.read_text()
    assert worker.request("GET", "/connectors/blocker/explain")[1]["tasks"][0]["why_not_running"].startswith(
        "it failed:"
    )


def test_hosts_do_not_outlive_their_control_process(millrace: Factory, unique: Callable[[str], str]) -> None:
    worker = millrace(group=unique("g"), processes=2)
    hosts = worker.hosts()
    assert len(hosts) == 2
    worker.kill_control()
    wait_for(lambda: not any(alive(pid) for pid in hosts), "the hosts have ended", 10)


def test_all_in_one_process(millrace: Factory, unique: Callable[[str], str]) -> None:
    worker = millrace(group=unique("g"), processes=0)
    worker.create("inside", datagen(unique("inside"), 1))
    worker.wait_running("inside", 1)
    assert worker.hosts() == []
    worker.service.terminate()
    wait_for(lambda: not worker.service.running, "it has ended")


def test_a_process_that_was_frozen_finds_its_place_again(millrace: Factory, unique: Callable[[str], str]) -> None:
    first, second = (millrace(group=unique("g")) for _ in range(2))
    wait_for(lambda: members(first) == 2, "two members")
    fill(first, unique)
    os.kill(second.pid, signal.SIGSTOP)
    wait_for(
        lambda: all_running(first, NAMES) and set(map(tuple, owners(first, NAMES).values())) == {(first.worker_id,)},
        "all run on the other worker",
        20,
    )
    os.kill(second.pid, signal.SIGCONT)
    wait_for(
        lambda: [second.worker_id] in owners(first, NAMES).values() and all_running(first, NAMES), "it works again", 40
    )
    assert all_running(second, NAMES)
