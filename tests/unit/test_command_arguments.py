"""Arguments that can't work: every command, those of ``job`` included, names the one that is wrong, with exit code 2."""

from __future__ import annotations

import sys

import pytest

from spark_jobs.cli import COMMANDS
from worker.cli import build_parser, main
from worker.command_parser import find_unknown_option


def _commands() -> list[str]:
    """All commands; of ``job`` also its own."""
    return [*build_parser()[1], *(f"job {name}" for name in (*COMMANDS, "run", "validate", "plan", "status", "stop"))]


@pytest.mark.parametrize("command", _commands())
def test_an_unknown_option_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before arguments that are missing: whoever added those would only then hear of the option."""
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--xyzzy"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"millrace {command}: error: there is no option --xyzzy"


def test_an_option_that_looks_like_the_unknown_one_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["worker", "--proceses", "2"])
    assert capsys.readouterr().err.endswith("there is no option --proceses; did you mean --processes?\n")


@pytest.mark.parametrize(
    ("arguments", "unknown"),
    [
        (["--limit=3", "-v", "-v3", "--lim", "2", "-1", "-.5", "-"], None),
        (["-- a comment of SQL"], None),
        (["--", "--nope"], None),
        (["a", "--nope=3"], "--nope"),
        (["-x"], "-x"),
    ],
)
def test_values_and_known_options_are_not_unknown(arguments: list[str], unknown: str | None) -> None:
    assert find_unknown_option(arguments, ["-v", "--limit"], leads_on=False) == unknown


def test_options_of_another_parser_are_left_to_it() -> None:
    """Those of a command, and those of pytest."""
    assert find_unknown_option(["unit", "--nope"], ["-h"], leads_on=True) is None
    assert find_unknown_option(["--nope", "unit"], ["-h"], leads_on=True) == "--nope"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["worker"], "the following arguments are required: FILE.properties\n"),
        (["site", "nope"], "millrace site: it takes no argument 'nope'\n"),
        (
            ["sql", "nope", "SELECT 1"],
            "millrace: nope takes no statements; there are: cassandra, mariadb, postgres, scylla\n",
        ),
        (["bench", "nope"], "millrace: there is no benchmark 'nope'; there are: "),
        (["console", "--connect", "nope"], "millrace: --connect nope: an address such as http://host:8083 is needed\n"),
        (["licenses", "--sbom", "/nope/sbom.json"], "millrace: --sbom /nope/sbom.json: No such file or directory\n"),
        (["hash-token", "ada", "--expires", "soon"], "expires=soon is no time"),
        (["hash-password", "ada", "--role", "owner"], "owner"),
        (["up", "nope"], "there is no service 'nope'; there are: kafka"),
        (["job", "nope"], "invalid choice: 'nope'"),
        (["job", "stop", "orders", "--timeout", "-1"], "argument --timeout: '-1' is not a number of seconds above 0"),
        (["job", "state", "orders.yaml", "--show", "-1"], "argument --show: '-1' is not a number from 0 on"),
        (["job", "compact", "history", "--retention", "-1"], "argument --retention: '-1' is not a number from 0 on"),
        (["doctor", "/nope.properties", "--xyzzy"], "there is no option --xyzzy"),
    ],
)
def test_wrong_arguments_have_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # no command comes to a question
    try:
        code: object = main(arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert complaint in capsys.readouterr().err
