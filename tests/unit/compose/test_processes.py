"""Services as processes: readiness, ends, signals, guards, identity. With real processes, small ones."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from compose.local.process.identity import same_process, signal_group, start_mark
from compose.local.process.service import PATIENCE, Service, log_tail, wait_until
from tests.support.eventually import eventually
from worker.fetch.errors import StackError

ROOT = Path(__file__).parents[3]
LOOP = "print('up', flush=True)\nimport signal\nwhile True: signal.pause()\n"


class Maker:
    """Makes services out of small programs and kills them at the end of the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack

    def __call__(self, program: str, ready_line: str = "up", timeout: float = 20.0, **more: bool) -> Service:
        log = self.folder / "service.log"
        service = Service(
            name="small service",
            command=[sys.executable, "-c", program],
            log_path=log,
            ready=lambda: ready_line in log_tail(log),
            start_timeout=timeout,
            detached=more.get("detached", False),
        )
        self.stack.callback(service.kill)
        return service


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Maker]:
    with ExitStack() as stack:
        yield Maker(tmp_path, stack)


def test_start_stop_and_start_again(make: Maker) -> None:
    service = make(LOOP).start()
    first = service.pid
    assert os.getpgid(first) == first, "it leads a group of its own, so Ctrl-C in the terminal does not reach it"
    assert service.start().pid == first
    service.stop()
    assert not service.running
    with pytest.raises(StackError, match="small service is not running"):
        _ = service.pid
    assert service.start().pid != first


def test_an_early_end_shows_the_exit_code_and_the_end_of_the_log(make: Maker) -> None:
    program = "for n in range(100): print('line', n)\nraise SystemExit('port 99 is taken')"
    with pytest.raises(StackError) as caught:
        make(program).start()
    text = str(caught.value)
    assert "small service ended while starting (exit code 1)" in text
    assert "port 99 is taken" in text
    assert "line 99" in text
    assert "line 10\n" not in text
    assert "service.log" in text


def test_a_service_that_ends_while_starting_may_be_revised(make: Maker) -> None:
    said: list[str] = []

    def revise(service: Service, text: str) -> bool:
        said.append(text)
        service.command = [sys.executable, "-c", LOOP if len(said) == 2 else "raise SystemExit('second')"]
        return True

    service = make("raise SystemExit('first')")
    service.revise = revise
    assert service.start().running
    assert said == ["first\n", "second\n"]


@pytest.mark.parametrize(("answer", "tries"), [(True, 3), (False, 1)])
def test_a_service_is_revised_three_times_at_most(answer: bool, tries: int, make: Maker) -> None:
    asked: list[str] = []
    service = make("raise SystemExit('no')")
    service.revise = lambda _, text: asked.append(text) or answer  # type: ignore[func-returns-value]
    with pytest.raises(StackError, match=r"ended while starting \(exit code 1\)"):
        service.start()
    assert asked == ["no\n"] * tries
    assert not service.running


def test_a_service_that_is_never_ready_is_killed(make: Maker) -> None:
    service = make(LOOP, ready_line="never printed", timeout=0.3)
    with pytest.raises(StackError, match=f"was not ready after {0.3 * PATIENCE:g} s"):
        service.start()
    assert not service.running


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    service = Service("nothing", ["/nonexistent/program"], tmp_path / "log", ready=lambda: True)
    with pytest.raises(StackError, match=r"nothing cannot be started: .*/nonexistent/program"):
        service.start()


def test_a_service_deaf_to_sigterm_is_killed_after_the_timeout(make: Maker) -> None:
    service = make("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LOOP).start()
    service.stop(timeout=0.2)
    assert not service.running


def test_kill_takes_children_too_even_when_the_leader_is_gone(make: Maker, tmp_path: Path) -> None:
    marker = tmp_path / "child"
    program = textwrap.dedent(f"""
        import pathlib, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        pathlib.Path({str(marker)!r}).write_text(str(child.pid))
        print("up", flush=True)
        child.wait()
    """)
    service = make(program).start()
    child = int(marker.read_text())
    child_mark = start_mark(child)
    assert child_mark is not None
    os.kill(service.pid, signal.SIGKILL)
    eventually(lambda: not service.running, "the leader has ended", 10)
    assert same_process(child, child_mark)
    service.kill()
    eventually(lambda: not same_process(child, child_mark), "the child has ended", 10)


def test_pause_freezes_and_stop_works_on_a_frozen_service(make: Maker) -> None:
    service = make(LOOP).start()
    service.pause()
    state = Path(f"/proc/{service.pid}/stat")
    if state.exists():
        eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "the process is stopped", 5)
    service.stop(timeout=10)
    assert not service.running


@pytest.mark.parametrize(
    ("detached", "afterwards", "survives"), [(False, "", False), (True, "", True), (False, "service.detach()", True)]
)
def test_only_a_detached_service_outlives_a_killed_starter(
    tmp_path: Path, *, detached: bool, afterwards: str, survives: bool
) -> None:
    starter = textwrap.dedent(f"""
        import os, signal, sys
        from pathlib import Path
        from compose.local.process.service import Service
        service = Service("s", [sys.executable, "-c", "import signal; signal.pause()"], Path({str(tmp_path / "log")!r}),
                          ready=lambda: True, detached={detached}).start()
        {afterwards}
        print(service.pid, service.start_mark, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    result = subprocess.run(
        [sys.executable, "-c", starter], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == -signal.SIGKILL, result.stderr
    number, process_mark = result.stdout.split()
    pid = int(number)
    try:
        assert wait_until(lambda: not same_process(pid, process_mark), 1.0 if survives else 20.0) is not survives
    finally:
        signal_group(pid, process_mark, signal.SIGKILL)


def test_a_long_log_is_set_aside_at_the_next_start(make: Maker, tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    with log.open("wb") as out:
        out.truncate(33 << 20)
    make(LOOP).start()
    assert (tmp_path / "service.old.log").stat().st_size == 33 << 20
    assert log.stat().st_size < 100


def test_adopt_takes_only_the_very_process(make: Maker, tmp_path: Path) -> None:
    service = make(LOOP, detached=True).start()
    pid, process_mark = service.pid, service.start_mark
    other = Service("again", (), tmp_path / "service.log", ready=lambda: True)
    assert not other.adopt(pid, "another mark")
    assert not other.running
    assert other.adopt(pid, process_mark)
    assert other.pid == pid
    other.stop()
    assert not service.running


def test_identity_of_processes_gone_and_unknown() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        process_mark = start_mark(process.pid)
        assert process_mark is not None
        assert same_process(process.pid, process_mark)
        assert not signal_group(process.pid, "another mark", signal.SIGKILL)
        process.kill()
        # Not collected by us yet, a zombie, which is as good as gone.
        eventually(lambda: start_mark(process.pid) is None, "the process counts as ended", 10)
    assert start_mark(process.pid) is None
    assert not signal_group(process.pid, process_mark, signal.SIGTERM)


def test_log_tail_of_a_missing_and_an_odd_file(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "none") == ""
    path = tmp_path / "odd"
    path.write_bytes(b"a\n\xff\xfe\n" + b"z" * 10)
    assert log_tail(path, 2) == "\ufffd\ufffd\nzzzzzzzzzz"
