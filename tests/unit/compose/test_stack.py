"""The detached stack: what it remembers, what it leaves alone, what it starts again. With small real servers."""

import argparse
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from compose.local.commands import stack_commands as commands
from compose.local.commands.catalog import OFFERS, Offer, ServicePart, ServiceRequest
from compose.local.commands.stack import ProcessHealth, Stack, check_health
from compose.local.commands.state import StackEntry, StateFile
from compose.local.ports import LOOPBACK, accepts_connections, free_port
from compose.local.process.identity import start_mark
from compose.local.process.service import Service
from tests.support.eventually import eventually
from worker.fetch.errors import StackError

SERVER = (
    "import signal, socket, sys\ns = socket.create_server(('127.0.0.1', int(sys.argv[1])))\nwhile True: signal.pause()"
)


@dataclass
class Lab:
    """A stack with two small services, `base` and `top` (which needs it), and `twins` of two processes."""

    home: Path
    lines: list[str] = field(default_factory=list)
    program: str = SERVER
    seen: list[ServiceRequest] = field(default_factory=list)

    @property
    def state(self) -> StateFile:
        return StateFile(self.home)

    def stack(self) -> Stack:
        """A new one each time, as each command makes its own."""
        offers = [
            Offer("base", "", lambda request: self.build("base", ["server"], request)),
            Offer("top", "", lambda request: self.build("top", ["server"], request), ("base",)),
            Offer("twins", "", lambda request: self.build("twins", ["one", "two"], request)),
        ]
        return Stack(self.home, self.lines.append, {offer.name: offer for offer in offers})

    def build(self, name: str, names: Sequence[str], request: ServiceRequest) -> Sequence[ServicePart]:
        self.seen.append(request)
        return [self._part(name, part, request) for part in names]

    def _part(self, name: str, part: str, request: ServiceRequest) -> ServicePart:
        port = request.earlier_entries[part].port if part in request.earlier_entries else free_port()
        if part not in request.previous:
            port = free_port(port)
        service = Service(
            name=f"{name} {part}",
            command=[sys.executable, "-c", self.program, str(port)],
            log_path=self.home / name / f"{part}.log",
            ready=lambda: accepts_connections(port),
            detached=True,
            start_timeout=20,
        )
        return ServicePart(part, service, f"{LOOPBACK}:{port}", port, {"client": port})


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "home")
    yield lab
    lab.stack().down()


def test_up_starts_needs_first_and_repeating_it_changes_nothing(lab: Lab) -> None:
    first = lab.stack().up(["top"])
    assert [entry.service for entry in first] == ["base", "top"]
    assert all(check_health(entry) is ProcessHealth.RUNNING for entry in first)
    assert lab.seen[1].addresses["base"] == first[0].address
    assert lab.stack().up(["top"]) == first
    assert any("already runs" in line for line in lab.lines)


def test_down_stops_the_last_started_first_and_may_be_repeated(lab: Lab) -> None:
    entries = lab.stack().up(["top", "twins"])
    stopped = lab.stack().down()
    assert [entry.service for entry in stopped] == ["twins", "twins", "top", "base"]
    assert not any(entry.alive for entry in entries)
    assert lab.stack().down() == []
    assert lab.state.load() == []


def test_down_of_one_service_leaves_the_others(lab: Lab) -> None:
    lab.stack().up(["base", "twins"])
    lab.stack().down(["twins"])
    assert [entry.service for entry, state in lab.stack().status() if state is ProcessHealth.RUNNING] == ["base"]


def test_a_process_that_ended_is_started_again_on_its_port_and_the_others_are_left_alone(lab: Lab) -> None:
    first, second = lab.stack().up(["twins"])
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: not first.alive, "the process has ended", 10)
    assert {entry.part: state for entry, state in lab.stack().status()} == {
        "one": ProcessHealth.ENDED,
        "two": ProcessHealth.RUNNING,
    }
    after = {entry.part: entry for entry in lab.stack().up(["twins"])}
    assert after["two"] == second
    assert after["one"].pid != first.pid
    assert after["one"].port == first.port


def test_a_service_keeps_its_ports_over_down_and_up(lab: Lab) -> None:
    before = {entry.part: entry.port for entry in lab.stack().up(["twins"])}
    lab.stack().up(["base"])
    for _ in range(2):
        lab.stack().down()
        assert lab.stack().status() == []
        assert lab.stack().up(["twins"])
        assert {entry.part: entry.port for entry in lab.state.load()} == before
    assert [entry.service for entry in lab.state.stopped()] == ["base"]


def test_a_kept_port_that_is_taken_is_named(lab: Lab) -> None:
    first, second = lab.stack().up(["twins"])
    lab.stack().down()
    with socket.create_server((LOOPBACK, first.port)):
        after = {entry.part: entry.port for entry in lab.stack().up(["twins"])}
    assert after["one"] != first.port
    assert after["two"] == second.port
    assert f"twins (one) had port {first.port}, which is taken now; it uses {after['one']}" in lab.lines


def test_with_its_data_the_ports_of_a_service_are_forgotten(lab: Lab) -> None:
    lab.stack().up(["base", "twins"])
    lab.stack().down()
    lab.stack().down(["twins"], remove_data=True)
    assert [entry.service for entry in lab.state.stopped()] == ["base"]


def test_a_state_file_of_before_has_nothing_that_was_stopped(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text('{"format": 1, "entries": []}', encoding="utf-8")
    assert StateFile(tmp_path).stopped() == []


def test_down_never_touches_a_process_that_only_has_the_number(lab: Lab) -> None:
    (entry,) = lab.stack().up(["base"])
    # As after a reboot: the number is somebody else's now.
    lab.state.save([replace(entry, start_mark="another start")])
    assert lab.stack().status()[0][1] is ProcessHealth.ENDED
    assert lab.stack().down() == []
    assert entry.alive
    lab.state.save([entry])


def test_a_service_that_fails_to_start_leaves_those_before_it(lab: Lab) -> None:
    lab.stack().up(["base"])
    lab.program = "raise SystemExit('no room')"
    with pytest.raises(StackError, match=r"(?s)twins one ended while starting.*no room"):
        lab.stack().up(["base", "twins"])
    states = {(entry.service, entry.part): state for entry, state in lab.stack().status()}
    assert states.pop(("base", "server")) is ProcessHealth.RUNNING
    assert set(states.values()) <= {ProcessHealth.ENDED}


def test_a_process_that_lives_but_does_not_answer_is_not_replaced(lab: Lab) -> None:
    (entry,) = lab.stack().up(["base"])
    lab.state.save([replace(entry, port=free_port())])
    assert lab.stack().status()[0][1] is ProcessHealth.SILENT
    with pytest.raises(StackError, match=r"runs but does not answer on port .*millrace down base"):
        lab.stack().up(["base"])
    assert entry.alive


def test_a_start_is_written_down_before_the_service_is_ready(lab: Lab) -> None:
    seen: list[list[StackEntry]] = []
    build = lab.build

    def watched(name: str, names: Sequence[str], request: ServiceRequest) -> Sequence[ServicePart]:
        (part,) = build(name, names, request)

        def ready() -> bool:
            seen.append(lab.state.load())
            return True

        part.service.ready = ready
        return [part]

    lab.build = watched  # type: ignore[method-assign]
    (entry,) = lab.stack().up(["base"])
    assert seen[0] == [entry]


def test_data_is_removed_only_on_request(lab: Lab) -> None:
    lab.stack().up(["base"])
    (lab.home / "base-3").mkdir()
    (lab.home / "basement").mkdir()
    lab.stack().down()
    assert (lab.home / "base" / "server.log").exists()
    lab.stack().down(remove_data=True)
    assert not (lab.home / "base").exists()
    assert not (lab.home / "base-3").exists()
    assert (lab.home / "basement").exists()


def test_an_unknown_service_names_the_known_ones(lab: Lab) -> None:
    with pytest.raises(StackError, match="no service 'mysql'; there are: base, top, twins"):
        lab.stack().up(["mysql"])


def _entry(**changes: object) -> StackEntry:
    process_mark = start_mark(os.getpid())
    assert process_mark is not None
    entry = StackEntry("kafka", "broker-1", os.getpid(), process_mark, "127.0.0.1:1", 1, {"client": 1}, "/log")
    return replace(entry, **changes)  # type: ignore[arg-type]


def test_the_state_file_round_trips_and_replaces_parts(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "home")
    assert state.load() == []
    first, second = _entry(), _entry(part="broker-2")
    state.put(first)
    state.put(second)
    state.put(replace(first, port=2))
    assert state.load() == [second, replace(first, port=2)]
    state.remove(second)
    assert state.load() == [replace(first, port=2)]
    assert [path.name for path in state.folder.iterdir()] == ["stack.json"]


def test_entries_of_ended_and_replaced_processes_are_not_alive() -> None:
    assert _entry().alive
    assert not _entry(start_mark="another start").alive
    assert not _entry(pid=2**22 + 5).alive


@pytest.mark.parametrize("content", ["", "[]", "{", '{"format": 1, "entries": [{"pid": 1}]}', '{"entries": []}'])
def test_a_damaged_state_file_says_how_to_fix_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "stack.json").write_text(content, encoding="utf-8")
    with pytest.raises(StackError, match=r"stack\.json is damaged .*remove it"):
        StateFile(tmp_path).load()


def test_a_state_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text('{"format": 99, "entries": []}', encoding="utf-8")
    with pytest.raises(StackError, match="another version"):
        StateFile(tmp_path).load()


def test_two_commands_do_not_change_the_stack_at_once(tmp_path: Path) -> None:
    state = StateFile(tmp_path)
    lines: list[str] = []
    with state.locked(), pytest.raises(StackError, match="another command"), state.locked(lines.append, timeout=0.3):
        pytest.fail("both had the lock")
    assert len(lines) == 1
    with state.locked(timeout=0):
        pass


def _parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    commands.add_commands(parser.add_subparsers(required=True))
    return parser.parse_args(arguments)


def test_commands_parse_and_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert _parse("up").services == []
    assert _parse("up", "kafka", "registry", "--brokers", "3").brokers == 3
    assert _parse("down", "--remove-data").remove_data
    for wrong, text in ((("up", "kafak"), "no service 'kafak'"), (("up", "--brokers", "0"), "not a number of brokers")):
        with pytest.raises(SystemExit) as caught:
            _parse(*wrong)
        assert caught.value.code == 2
        assert text in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_help_lists_every_service_and_the_places(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(command, "--help")
    text = capsys.readouterr().out
    assert all(offer.summary in text for offer in OFFERS.values())
    assert "MILLRACE_HOME" in text


def test_status_exit_codes_table_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    options = _parse("status")
    assert options.run(options) == 0
    assert "nothing was started" in capsys.readouterr().out
    options = _parse("status", "kafka")
    assert options.run(options) == 1, "a service that was asked for and does not run"
    capsys.readouterr()

    StateFile(tmp_path).put(_entry(start_mark="another start"))
    options = _parse("status")
    assert options.run(options) == 1
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["SERVICE", "PART", "STATE", "PID", "ADDRESS", "STARTED", "LOG"]
    assert row.split()[:4] == ["kafka", "broker-1", "ended", "-"]
    options = _parse("status", "--json")
    assert options.run(options) == 1
    assert json.loads(capsys.readouterr().out)[0]["state"] == "ended"

    StateFile(tmp_path).put(replace(_entry(start_mark="another start"), folders={"cdc_raw": "/data/cdc_raw"}))
    options = _parse("status")
    options.run(options)
    assert capsys.readouterr().out.splitlines()[-1] == "kafka broker-1: cdc_raw in /data/cdc_raw"

    (tmp_path / "stack.json").write_text("{", encoding="utf-8")
    for command in ("status", "down", "up"):
        options = _parse(command)
        assert options.run(options) == 1
        assert "damaged" in capsys.readouterr().err
