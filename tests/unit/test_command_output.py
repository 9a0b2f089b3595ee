"""Commands with arguments that can't work, and with an output that no one reads to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker.cli import main

_COMMAND = (sys.executable, "-m", "worker.cli")


@pytest.mark.parametrize("arguments", [("options", "mysql"), ("completion", "bash"), ("help",)])
def test_an_output_that_is_closed_ends_the_command_without_a_complaint(arguments: tuple[str, ...]) -> None:
    """As behind ``| head``: the exit code is that of a program which SIGPIPE ends."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([*_COMMAND, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", [("help",), ("--version",), ("worker", "--help")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_on_a_full_disk_is_an_error_of_one_line(unbuffered: str, arguments: tuple[str, ...]) -> None:
    """Also where the disk is full only when the buffer is flushed at the end."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [*_COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    assert (done.returncode, done.stderr) == (1, "millrace: [Errno 28] No space left on device\n")


@pytest.mark.parametrize(("command", "code"), [("help >&-", 0), ("worker /none.properties >&- 2>&-", 2)])
def test_files_that_are_closed_before_the_start_change_no_exit_code(command: str, code: int) -> None:
    """As by a supervisor that gives its programs no output."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m worker.cli {command}', sys.executable], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("worker", "worker.properties", "--processes", "-1"), "argument --processes: '-1' is not a number from 0 on"),
        (("worker", "worker.properties", "--processes", "x"), "argument --processes: 'x' is not a number from 0 on"),
        (("console", "--connect", "http://127.0.0.1:1", "--port", "65536"), "argument --port: '65536' is not a port"),
        (("console", "--connect", "http://127.0.0.1:1", "--port", "-1"), "argument --port: '-1' is not a port"),
        (
            ("migrate-check", "worker.properties", "--timeout", "-1"),
            "argument --timeout: '-1' is not a number of seconds",
        ),
        (("verify", "--timeout", "nan"), "argument --timeout: 'nan' is not a number of seconds"),
        (("verify", "--settle", "-1"), "argument --settle: '-1' is not a number of seconds above 0"),
        (("verify", "--examples", "-1"), "argument --examples: '-1' is not a number from 0 on"),
        (("verify", "--rate", "-5"), "argument --rate: '-5' is not a number from 0 on"),
        (("demo", "--writes", "-1"), "argument --writes: '-1' is not a number from 0 on"),
        (("fuzz", "--seconds", "-1"), "argument --seconds: '-1' is not a number of seconds above 0"),
        (("verify", "--timeout", "soon"), "argument --timeout: 'soon' is not a number of seconds"),
    ],
)
def test_numbers_that_can_not_work_are_refused(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit code of wrong arguments."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_an_unknown_connector_gets_the_names_of_those_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Not the classes of all plugins, which Kafka Connect's answer has."""
    assert main(["options", "mysqll"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("millrace: there is no connector 'mysqll'; there are: ")
    assert {"cassandra", "file", "logs", "mysql", "scylla"} <= set(line.partition("there are: ")[2].split(", "))


def test_a_warning_about_a_connector_is_in_the_checks_alone(tmp_path: Path) -> None:
    properties = tmp_path / "worker.properties"
    topics = "".join(f"{kind}.storage.topic={kind}\n" for kind in ("config", "offset", "status"))
    properties.write_text(
        f"bootstrap.servers=127.0.0.1:1\ngroup.id=c\n{topics}key.converter=JsonConverter\nvalue.converter=JsonConverter\n",
        encoding="utf-8",
    )
    connector = tmp_path / "lines.json"
    options = {"connector.class": "FileStreamSource", "file": "/lines", "topic": "lines", "topi": "x"}
    connector.write_text(json.dumps({"name": "lines", "config": options}), encoding="utf-8")
    done = subprocess.run(
        [*_COMMAND, "doctor", str(properties), str(connector)], capture_output=True, text=True, check=False
    )
    assert done.stdout.count("did you mean topic?") == 1
    assert "did you mean topic?" not in done.stderr


def test_a_connector_file_that_is_not_there_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its path and the reason."""
    properties, connector = tmp_path / "worker.properties", tmp_path / "connector.json"
    properties.touch()
    assert main(["worker", str(properties), str(connector)]) == 2
    assert capsys.readouterr().err == f"{connector}: No such file or directory\n"
