"""The simulated cluster: seeds reproduce runs, and all of some seeds hold every rule."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.control import worker_properties
from tests.simulation.delivery import find_set_back, run_delivery
from tests.simulation.run import Verdict, run_plan, run_seed
from tests.simulation.schedule import Event, Plan, make_plan
from tests.support.eventually import eventually
from worker import cli
from worker.control.herder.verify import VerifyOperations
from worker.control.placement.reconciler import LocalRun, Reconciler
from worker.control.state.rule_sets import version_record
from worker.host.delivery.exactly_once import TransactionalSession
from worker.host.delivery.producer import Producer
from worker.host.delivery.session import TaskSession
from worker.process_tree import list_children

_ROOT: Final = Path(__file__).resolve().parents[2]
#: The first seeds are run at each commit, or as many of them as fit into the time on a busy machine.
_SEEDS: Final = 1000
_SECONDS: Final = 100


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("seed", [3, 8])
def test_a_seed_gives_the_same_run_in_every_process(seed: int) -> None:
    first, second = (_run("--seed", str(seed), "--seeds", "1", "--trace").stdout for _ in range(2))
    assert first.splitlines()[:-1] == second.splitlines()[:-1]
    assert len(first.splitlines()) > 10


def test_a_seed_gives_the_same_run_after_other_runs() -> None:
    first = run_seed(5)
    run_seed(6)
    second = run_seed(5)
    assert (first.digest, first.trace, first.steps) == (second.digest, second.trace, second.steps)
    assert run_seed(6).digest != first.digest


@pytest.mark.timeout(300)
def test_all_rules_hold_in_many_runs() -> None:
    result = _run("--seeds", str(_SEEDS), "--seconds", str(_SECONDS))
    assert result.returncode == 0, result.stdout + result.stderr


def test_its_processes_end_with_it() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "100000", "--processes", "2"]
    with subprocess.Popen(
        command, cwd=_ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, stdout=subprocess.DEVNULL
    ) as run:
        eventually(lambda: len(list_children(run.pid)) == 2, "both processes run")
        children = list_children(run.pid)
        run.terminate()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "both processes have ended")


@pytest.mark.parametrize(
    "arguments", [("simulate", "--seeds", "100000", "--processes", "1"), ("fuzz", "--seconds", "600")]
)
def test_a_command_that_is_ended_leaves_no_process_behind(arguments: tuple[str, ...]) -> None:
    module = "tests.simulation" if arguments[0] == "simulate" else "tests.fuzz"
    with subprocess.Popen(
        [sys.executable, "-m", "worker.cli", *arguments], cwd=_ROOT, stdout=subprocess.DEVNULL
    ) as command:
        eventually(lambda: bool(_find_running(command.pid, module)), "the module runs")
        running = _find_running(command.pid, module)
        command.terminate()
    assert command.returncode == -signal.SIGTERM
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in running), "all of its processes have ended")


def _find_running(pid: int, module: str) -> list[int]:
    """Those of a process and its children that run a module."""
    return [
        member
        for member in (pid, *list_children(pid))
        if module in Path(f"/proc/{member}/cmdline").read_text(encoding="utf-8").split("\0")
    ]


@pytest.mark.parametrize("module", ["simulation", "fuzz"])
def test_the_command_offers_all_options(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = "simulate" if module == "simulation" else module
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    offered = re.findall(r"--[a-z]+", capsys.readouterr().out)
    result = subprocess.run(
        [sys.executable, "-m", f"tests.{module}", "--help"], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    assert set(offered) == set(re.findall(r"--[a-z]+", result.stdout))


def test_a_broken_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that takes a unit before its owner has let it go."""
    monkeypatch.setattr("worker.control.placement.table.is_released", lambda *_: True)
    plan = make_plan(1)
    events = (
        Event(4.0, "request create", 0, 0),
        Event(4.1, "request create", 1, 0),
        *(Event(8.0 + 4 * number, "drain worker", number, 0) for number in range(6)),
    )
    verdicts: list[Verdict] = []
    for seed in range(1, 30):
        verdict = run_plan(type(plan)(seed, 3, False, events, 40.0))
        verdicts.append(verdict)
        if verdict.broken:
            break
    assert any(verdict.broken and "while it runs in" in verdict.broken for verdict in verdicts)


def test_a_request_that_a_task_does_not_get_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def instruct_nobody(_: Reconciler, __: object, local_run: LocalRun, instructions: bytes) -> None:
        local_run.instructions = instructions

    monkeypatch.setattr(Reconciler, "_instruct_unit", instruct_nobody)
    events = (Event(4.0, "request create", 0, 0), Event(20.0, "request snapshot", 0, 0))
    broken = run_plan(Plan(1, 2, exactly_once=False, events=events, end_s=25.0)).broken
    assert broken is not None
    assert "has the instructions b'[]'" in broken


def test_a_record_that_real_hosts_write_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts deliver at least once where exactly once is promised."""
    monkeypatch.setattr(
        "tests.simulation.world.worker_properties",
        lambda addresses, exactly_once: worker_properties(addresses, exactly_once=not exactly_once),
    )
    plans = (replace(make_plan(seed), real_hosts=True, exactly_once=True) for seed in range(3, 30))
    assert any("not all numbers once in order" in (run_plan(plan).broken or "") for plan in plans)


def _one_fault(kind: str, at_s: float, length_s: float, seed: int) -> Verdict:
    """Two connectors, and one fault of the worker that leads (as in most runs) or of another."""
    events = (
        Event(4.0, "request create", 0, 0),
        Event(4.1, "request create", 1, 1),
        Event(at_s, kind, seed, 0, length_s),
    )
    return run_plan(type(make_plan(1))(seed, 3, False, events, at_s + length_s))


def _after(verdict: Verdict, fault: str, event: str) -> list[float]:
    """Seconds from a fault to each of some events."""
    began = next(at for at, _, text in verdict.trace if text.startswith("fault: ") and fault in text)
    return [at - began for at, _, text in verdict.trace if at > began and event in text]


@pytest.mark.parametrize("seed", range(3))
def test_units_of_a_killed_worker_run_again_before_its_session_is_over(seed: int) -> None:
    verdict = _one_fault("kill worker", 20.0, 12.0, seed)
    assert verdict.broken is None
    starts = [seconds for seconds in _after(verdict, "kill worker", " starts") if seconds < 12]
    assert starts
    assert max(starts) < 5, "its session ends five to six seconds after it was killed"


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_whose_address_refuses_connections_loses_nothing_but_a_rebalance(seed: int) -> None:
    verdict = _one_fault("refuse connections", 20.0, 12.0, seed)
    assert verdict.broken is None
    assert _after(verdict, "refuse connections", " leaves the group"), "nobody put it out"
    assert not _after(verdict, "refuse connections", " stops"), "a unit was stopped"
    assert not _after(verdict, "refuse connections", " starts"), "a unit was moved"


def test_a_takeover_that_does_not_wait_for_a_worker_that_lives_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.control.leader.LeaderDuties._waits_for_return", lambda _: False)
    verdicts = [_one_fault("refuse connections", 20.0, 12.0, seed) for seed in range(6)]
    assert any(verdict.broken and "while it runs in" in verdict.broken for verdict in verdicts)


def test_a_delivery_is_the_same_again() -> None:
    first, second = run_delivery(4), run_delivery(4)
    assert first == second
    assert first.records > 100


def test_a_record_that_overtakes_a_refused_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send_at_once(*_: object) -> None:
        """Without waiting for the batches before."""

    monkeypatch.setattr(Producer, "_wait_for_turn", send_at_once)
    monkeypatch.setattr("worker.host.delivery.producer.stop_sender", lambda _: None)
    broken = [run_delivery(seed).broken or "" for seed in (2, 6, 15)]
    assert any("is written before" in rule for rule in broken)


def test_a_position_that_goes_back_is_found() -> None:
    """Also behind one of another producer; not where that one has set it back."""
    assert find_set_back([(1, 3), (1, 7), (2, 9), (2, 12)]) is None
    assert find_set_back([(1, 3), (1, 7), (2, 5), (1, 6), (1, 8)]) is None, "a dead host's last request came late"
    assert find_set_back([(1, 3), (1, 7), (1, 6)]) == 6
    assert find_set_back([(1, 7), (2, 5), (1, 4)]) == 4
    assert find_set_back([(1, 7), (2, 9), (1, 6)]) == 6


def test_a_receipt_before_the_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionalSession, "confirm", TaskSession.confirm)
    assert any("are reported to task" in (run_delivery(seed).broken or "") for seed in range(1, 40))


def _run_late_returns() -> list[Verdict]:
    """A worker that was put out of the group joins again while the leader's writes are slow."""
    events = (
        Event(4.0, "request create", 0, 60171),
        Event(9.236, "request change", 64736, 21309),
        Event(12.948, "pause machine", 55450, 20749, 4.436),
        Event(15.175, "request restart", 11069, 23570),
        Event(15.321, "slow network", 43052, 33265, 10.919),
        Event(15.331, "refuse connections", 23749, 38056, 8.972),
        Event(17.054, "cut worker from Kafka", 30411, 23774, 2.568),
        Event(17.086, "move coordinators", 4716, 51865, 0.45),
    )
    return [run_plan(Plan(seed, 3, exactly_once=True, events=events, end_s=30.0)) for seed in range(1, 32)]


def test_statuses_are_right_when_a_lost_worker_is_back_before_its_units_are_given_away() -> None:
    events = (
        Event(0.25, "request create", 0, 4803),
        Event(0.35, "request create", 1, 36007),
        Event(0.838, "request change", 44387, 53094),
        Event(1.325, "request change", 53157, 7678),
        Event(3.976, "request resume", 34363, 42786),
        Event(4.33, "refuse connections", 4629, 61974, 4.011),
        Event(4.533, "request delete", 19578, 56207),
        Event(5.224, "pause worker", 57121, 16509, 9.311),
        Event(5.702, "cut worker from broker", 38690, 27080, 3.895),
        Event(5.879, "request restart", 20020, 40425),
        Event(6.109, "refuse connections", 46142, 45604, 11.172),
        Event(6.929, "request delete", 49169, 29462),
        Event(8.863, "request snapshot", 20227, 5559),
        Event(9.121, "stop broker", 3331, 49483, 0.891),
        Event(14.612, "cut worker from Kafka", 50260, 23687, 0.875),
    )
    assert run_plan(Plan(40125, 3, exactly_once=True, events=events, end_s=14.985)).broken is None


@pytest.mark.parametrize("seed", [8, 14])
def test_statuses_are_right_when_the_leader_runs_the_units_of_a_lost_worker_at_once(seed: int) -> None:
    events = (
        Event(4.0, "request create", 0, 0),
        Event(4.1, "request create", 1, 0),
        Event(12.0, "kill worker", seed % 2, 0, 3.0),
    )
    assert run_plan(Plan(seed, 2, exactly_once=False, events=events, end_s=16.0)).broken is None


_VERIFY: Final = (Event(4.0, "request create", 0, 0), Event(8.0, "request verify", 0, 0))


def test_a_verification_that_nobody_continues_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VerifyOperations, "watch_verifications", lambda _: None)
    events = (*_VERIFY, *(Event(8.5, "kill worker", number, 0, 1.0) for number in range(2)))
    broken = run_plan(Plan(1, 2, exactly_once=False, events=events, end_s=12.0)).broken
    assert broken is not None
    assert "a verification of alpha still runs" in broken


def test_a_verification_of_a_deleted_connector_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VerifyOperations, "deletion_records", lambda *_: [])
    events = (*_VERIFY, Event(14.0, "request delete", 0, 0))
    broken = run_plan(Plan(1, 2, exactly_once=False, events=events, end_s=16.0)).broken
    assert broken is not None
    assert "the verification of alpha is" in broken


def test_a_scheduled_verification_that_does_not_start_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.control.herder.verify.due_ms", lambda *_: None)
    events = tuple(Event(4.0 + number, "request create", number, 0) for number in range(3))
    broken = run_plan(Plan(1, 2, exactly_once=False, events=events, end_s=8.0)).broken
    assert broken is not None
    assert "no verification of gamma is scheduled" in broken


def test_a_rule_set_that_is_overwritten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "worker.control.herder.rule_sets.version_record", lambda name, _, version: version_record(name, 1, version)
    )
    events = (Event(4.0, "request rules", 0, 0), Event(8.0, "request rules", 0, 0))
    broken = run_plan(Plan(1, 2, exactly_once=False, events=events, end_s=10.0)).broken
    assert broken is not None
    assert "the rule set alpha" in broken


@pytest.mark.slow  # half a minute
def test_units_are_not_given_away_while_their_worker_joins_again() -> None:
    assert [verdict.broken for verdict in _run_late_returns() if verdict.broken] == []


@pytest.mark.slow  # half a minute
def test_a_leader_that_gives_units_away_though_the_group_changes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.control.leader_writer._still_hold", lambda _: True)
    assert any("while it runs in" in (verdict.broken or "") for verdict in _run_late_returns())


@pytest.mark.slow  # a minute
def test_a_task_that_reads_its_position_before_it_fences_its_predecessor_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def open_unfenced(session: TransactionalSession) -> None:
        session._receipts = []
        await session.persist(session.plan.offsets.load)
        await session._start_producer()

    monkeypatch.setattr(TransactionalSession, "open", open_unfenced)
    assert any(run_delivery(seed).broken for seed in range(1, 60))
