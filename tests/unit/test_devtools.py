"""Decisions of the launcher's commands for developers."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from worker.development import commands as devtools
from worker.development.commands import (
    LIGHT,
    ROOT,
    SUITES,
    UNIT,
    exit_code,
    find_elsewhere,
    read_failed_tests,
    run_bench,
)

if TYPE_CHECKING:
    from pathlib import Path


def sessions_of(groups: tuple[tuple[str, ...], ...]) -> dict[Path, int]:
    """Test file -> in how many sessions it runs."""
    sessions: dict[Path, int] = {}
    for group in groups:
        left_out = [ROOT / "tests" / name for name in find_elsewhere(group, groups)]
        for name in group:
            folder = ROOT / "tests" / name
            assert folder.is_dir(), name
            for path in folder.rglob("test_*.py"):
                if not any(path.is_relative_to(other) for other in left_out):
                    sessions[path] = sessions.get(path, 0) + 1
    return sessions


def test_every_unit_test_is_run_in_one_session() -> None:
    assert sessions_of(UNIT) == dict.fromkeys((ROOT / "tests" / "unit").rglob("test_*.py"), 1)


def test_every_test_is_run_in_one_session() -> None:
    whole = {
        folder.name for folder in (ROOT / "tests").iterdir() if folder.is_dir() and list(folder.rglob("test_*.py"))
    }
    sessions = sessions_of(SUITES)
    # The example package's own tests are run by tests/integration/plugins, where it is installed.
    whole.discard("plugins")
    expected_paths = {path for name in whole for path in (ROOT / "tests" / name).rglob("test_*.py")} - set(
        (ROOT / "tests" / "bench").rglob("*.py")
    )
    assert set(sessions) == expected_paths
    assert set(sessions.values()) == {1}


def test_every_unit_test_folder_is_light_or_left_out_by_name() -> None:
    with_spark_or_servers = {
        "compose",
        "spark_jobs",
        "support",
        "test_command_arguments.py",
        "test_compatibility_page.py",
        "test_devtools.py",
        "test_documented_configurations.py",
        "test_page_names.py",
        "test_page_options.py",
        "test_pages.py",
        "test_reference_types.py",
        "test_site.py",
    }
    everything = {
        path.name
        for path in (ROOT / "tests" / "unit").iterdir()
        if path.name.startswith("test_") or (path.is_dir() and list(path.glob("**/test_*.py")))
    }
    assert {name.removeprefix("unit/") for group in LIGHT for name in group} == everything - with_spark_or_servers


@pytest.mark.parametrize(
    ("codes", "expected"), [([0, 0], 0), ([0, 1], 1), ([2, 1], 2), ([5, 0], 0), ([5, 1], 1), ([5, 5], 5)]
)
def test_sessions_give_one_exit_code(codes: list[int], expected: int) -> None:
    assert exit_code(codes) == expected


def test_failures_of_every_session_are_printed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, line in (("first", "assert 0, 'the reason'"), ("second", "pass")):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / f"test_{folder}.py").write_text(f"def test_it():\n    {line}\n")
    monkeypatch.setattr(devtools, "ROOT", tmp_path)
    monkeypatch.setattr(devtools, "UNIT", (("first",), ("second",)))
    monkeypatch.delenv("CI", raising=False)

    assert devtools.run_tests("unit", []) == 1

    lines = capsys.readouterr().out.splitlines()
    end = lines[lines.index("session 1 ended with exit code 1") :]
    assert end[1].startswith("1| FAILED tests/first/test_first.py::test_it - AssertionError: the reason")
    assert end[2:] == ["session 2 ended with exit code 0"]


@pytest.mark.parametrize(("line", "code"), [("assert found", 0), ("assert 0, 'always'", 1)], ids=["unstable", "broken"])
def test_what_fails_next_to_another_session_is_run_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], line: str, code: int
) -> None:
    for folder in ("first", "second"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    (tmp_path / "tests" / "conftest.py").write_text((ROOT / "tests" / "failures.py").read_text(encoding="utf-8"))
    (tmp_path / "tests" / "second" / "test_second.py").write_text("def test_it(): pass")
    (tmp_path / "tests" / "first" / "test_first.py").write_text(
        f"""
from pathlib import Path

def test_it():
    mark = Path({str(tmp_path / "mark")!r})
    found = mark.exists()
    mark.touch()
    {line}

def test_other(): pass
"""
    )
    monkeypatch.setattr(devtools, "ROOT", tmp_path)
    monkeypatch.setattr(devtools, "UNIT", (("first",), ("second",)))
    monkeypatch.delenv("CI", raising=False)

    assert devtools.run_tests("unit", []) == code

    output = capfd.readouterr().out
    assert "once more, without other sessions: tests/first/test_first.py::test_it\n" in output
    assert ("UNSTABLE: " in output) is (code == 0)


def test_only_a_few_failures_and_nothing_else_are_run_once_more(tmp_path: Path) -> None:
    file = tmp_path / "failed"
    failed = (1, ["1| FAILED tests/a.py::test[ x]"])
    assert read_failed_tests(file, [failed]) == []
    file.write_text("tests/a.py::test[ x]\nother.py::test\ntests/a.py::test[ x]\n")
    assert read_failed_tests(file, [failed, (0, [])]) == ["tests/a.py::test[ x]"]
    assert read_failed_tests(file, [(1, [*failed[1], "1| unexpected skip: the moon is full"])]) == []
    assert read_failed_tests(file, [failed, (2, ["2| ERROR tests/b.py"])]) == [], (
        "a session could not collect its tests"
    )
    assert read_failed_tests(file, [failed, (1, [])]) == [], "a session broke off"
    assert read_failed_tests(file, [failed, (-9, [])]) == [], "a session was killed"
    file.write_text("".join(f"tests/a.py::test_{number}\n" for number in range(9)))
    assert read_failed_tests(file, [failed]) == []


def test_folders_of_other_sessions() -> None:
    groups = (("a", "b"), ("c", "a/x", "b/y"))
    assert find_elsewhere(groups[0], groups) == ["a/x", "b/y"]
    assert find_elsewhere(groups[1], groups) == []


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "tests" / "bench").glob("[a-z]*.py")))
def test_every_benchmark_takes_what_the_command_line_gives(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_bench(name, ["--help"])
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_the_launcher_takes_no_other_python_than_the_named_one(tmp_path: Path) -> None:
    environment = {**os.environ, "MILLRACE_CACHE": str(tmp_path), "MILLRACE_PYTHON": "python-that-is-missing"}
    launched = subprocess.run(
        [ROOT / "millrace", "--version"], env=environment, capture_output=True, text=True, check=False
    )
    assert launched.returncode == 1
    assert "python-that-is-missing was not found" in launched.stderr
    assert not list(tmp_path.rglob("*"))
