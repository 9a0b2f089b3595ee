"""The help of ``./millrace`` and what it says about an unknown command."""

from __future__ import annotations

import pytest

from worker.cli import build_parser, main
from worker.command_help import GROUPS


def test_every_command_is_in_one_group() -> None:
    """A new command needs a place in the help."""
    _, summaries = build_parser()
    assert sorted(name for _, names in GROUPS for name in names) == sorted(summaries)
    assert all(summaries.values())


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_the_help_lists_all_commands_in_groups(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No argument is no mistake: exit code 0, and lines that fit a terminal."""
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    _, summaries = build_parser()
    assert {line.split()[0] for line in lines if line.startswith("  ")} == set(summaries)
    assert {title for title, _ in GROUPS} <= set(lines)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("wrker", "there is no command 'wrker'; did you mean worker?"),
        ("hash-tokn", "there is no command 'hash-tokn'; did you mean hash-token"),
        ("stop", "there is no command 'stop'; "),
        ("xyzzy", "there is no command 'xyzzy'; millrace without arguments lists the commands"),
    ],
)
def test_a_mistyped_command_gets_the_nearest(word: str, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, with the exit code of wrong arguments."""
    assert main([word]) == 2
    output = capsys.readouterr()
    assert output.err.startswith(f"millrace: {answer}")
    assert not output.out
