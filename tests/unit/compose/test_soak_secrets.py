"""The search for planted secrets in what leaves a pipeline."""

from pathlib import Path

import pytest

from compose.soak import secrets
from compose.soak.secrets import find_leaks, read_files

PLANTED = {"password of A": "Planted111", "password of B": "Planted222"}


def test_a_leak_is_named_once_with_its_location() -> None:
    locations = [
        ("a log", b"x Planted111 y"),
        ("a log", b"Planted111"),
        ("a topic", b"Planted22"),
        ("REST", b"Planted222"),
    ]
    assert find_leaks(locations, PLANTED) == ["the password of A is in a log", "the password of B is in REST"]
    assert find_leaks([("a log", b"Planted")], PLANTED) == []


def test_files_are_searched_but_those_of_the_databases(tmp_path: Path) -> None:
    for name in ("worker-1/worker.log", "jobs/a/b/core.17", "mariadb/mysql/user.ibd"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\0Planted111\0")
    (tmp_path / "secrets.properties").write_text("a=Planted111")
    assert find_leaks(read_files(tmp_path), PLANTED) == [
        "the password of A is in jobs/a/b/core.17",
        "the password of A is in worker-1/worker.log",
    ]


def test_a_secret_between_two_chunks_of_a_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_CHUNK_BYTES", 512)
    (tmp_path / "large.log").write_bytes(b"x" * 507 + b"Planted222" + b"x" * 2000)
    assert find_leaks(read_files(tmp_path), PLANTED) == ["the password of B is in large.log"]
