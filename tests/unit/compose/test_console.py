"""Progress: a line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from tests.support.eventually import eventually
from worker.terminal import Step, live_line, progress, say


class Terminal(io.StringIO):
    """The output that a user would have seen, with the codes that moved the cursor."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    screen = Terminal()
    # Not that of the interpreter: pytest puts its own there between a fixture and its test.
    monkeypatch.setattr("worker.terminal.sys", SimpleNamespace(stderr=screen))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    return screen


def test_the_line_of_a_terminal_holds_all_steps_and_fits() -> None:
    steps = [Step("downloading Kafka", "3 of 90 MB", began=100.0), Step("starting Cassandra", began=110.0)]
    assert live_line(steps, 112.4, 80) == "downloading Kafka, 12 s: 3 of 90 MB; starting Cassandra, 2 s"
    assert live_line(steps, 112.4, 24) == "downloading Kafka, 1..."
    assert all(len(live_line(steps, 112.4, width)) < width for width in range(5, 80))


def test_a_terminal_has_one_line_that_changes_and_goes(terminal: Terminal) -> None:
    with progress("starting Kafka") as step:
        assert terminal.getvalue() == "\r\033[Kmillrace: starting Kafka, 0 s"
        step.note = "listening"
        eventually(lambda: "listening" in terminal.getvalue(), "the line is written again with its note")
        say("a line that stays")
        before, _, after = terminal.getvalue().partition("millrace: a line that stays\n")
        assert before.endswith("\r\033[K")
        assert after.startswith("\r\033[Kmillrace: starting Kafka")
    assert terminal.getvalue().endswith("\r\033[K")
    assert terminal.getvalue().count("\n") == 1


def test_steps_that_run_side_by_side_share_the_line(terminal: Terminal) -> None:
    with progress("first"):
        with progress("second"):
            assert terminal.getvalue().endswith("millrace: first, 0 s; second, 0 s")
        assert terminal.getvalue().endswith("\r\033[Kmillrace: first, 0 s")


def test_what_is_over_soon_is_not_shown(terminal: Terminal) -> None:
    with progress("asking the servers", quiet_s=60):
        pass
    assert terminal.getvalue() == ""


def test_plain_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("starting Kafka"):
        say("a line that stays")
    assert capsys.readouterr().err == "millrace: starting Kafka\nmillrace: a line that stays\n"


def test_a_plain_line_comes_again_while_it_lasts() -> None:
    lines: list[str] = []
    with progress("downloading Kafka", lines.append, every_s=0.01) as step:
        step.note = "3 of 90 MB"
        eventually(lambda: len(lines) > 2, "there are further lines")
    assert lines[0] == "downloading Kafka"
    assert lines[-1].startswith("downloading Kafka, ")
    assert lines[-1].endswith(" s: 3 of 90 MB")


def test_a_line_that_was_held_back_comes_when_it_lasts() -> None:
    lines: list[str] = []
    with progress("asking the servers", lines.append, quiet_s=0.01):
        eventually(lambda: lines == ["asking the servers"], "the line comes late")


def test_a_failure_takes_the_line_away(terminal: Terminal) -> None:
    with pytest.raises(OSError, match="away"), progress("starting Kafka"):
        raise OSError("away")
    assert terminal.getvalue().endswith("\r\033[K")
