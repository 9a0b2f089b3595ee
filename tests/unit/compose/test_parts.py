"""Small pure parts: ports, Java versions, properties files, archives, console."""

import io
import itertools
import json
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from compose.local import ports
from compose.local.ports import LOOPBACK, accepts_connections, free_port, free_ports, is_free
from compose.local.process.jvm import write_properties
from worker.fetch.errors import StackError
from worker.fetch.java import find_java, parse_version
from worker.fetch.paths import cache_dir, home_dir
from worker.fetch.unpack import unpack_tar
from worker.terminal import has_colours, say


def test_a_taken_port_is_replaced() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        taken_port = server.getsockname()[1]
        assert not is_free(taken_port)
        assert accepts_connections(taken_port)
        assert free_port(taken_port) != taken_port
    assert is_free(taken_port)
    assert not accepts_connections(taken_port)
    assert free_port(taken_port) == taken_port
    assert free_port(taken_port, used_ports={taken_port}) != taken_port


def test_chosen_ports_are_different_and_below_those_of_outgoing_connections() -> None:
    chosen = free_ports([None] * 50)
    assert len(set(chosen)) == 50
    assert all(port < ports._ephemeral_start() for port in chosen)


def test_ports_that_another_program_has_chosen_are_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path))
    program = "import sys; from compose.local.ports import free_port; print(free_port(), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        last = itertools.count(theirs)
        monkeypatch.setattr(ports, "_RANDOM", SimpleNamespace(randint=lambda *_: next(last)))
        assert free_port() > theirs, "it is chosen, though nobody listens yet"
    last = itertools.count(theirs)
    assert free_port() == theirs, "who had chosen it has ended"
    assert free_port(theirs) == theirs, "who names one gets it"


def test_a_list_of_chosen_ports_that_is_broken_or_can_not_be_kept_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path))
    for broken in (b'{"1": [', b"[1]", b'{"1": 2}', b"\xff\x00", b'{"one": [0, 1, "x"]}'):
        (tmp_path / "ports.json").write_bytes(broken)
        chosen = free_port()
        assert list(json.loads((tmp_path / "ports.json").read_text())) == [str(chosen)]
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "ports.json" / "no folder"))
    assert free_port() > 0


def test_no_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda *_: False)
    with pytest.raises(StackError, match="no free port"):
        free_port()


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25" 2025-09-16', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("command not found", None),
    ],
)
def test_java_versions(output: str, version: int | None) -> None:
    assert parse_version(output) == version


def _fake_java(folder: Path, version: str) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    binary.chmod(0o755)
    return folder


def test_java_home_wins_when_new_enough_else_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = _fake_java(tmp_path / "old", "11.0.2"), _fake_java(tmp_path / "new", "99.1")
    monkeypatch.setenv("JAVA_HOME", str(new))
    java = find_java(17)
    assert (java.version, java.origin, java.home) == (99, "JAVA_HOME", new)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{new / 'bin'}{os.pathsep}{os.environ['PATH']}")
    java = find_java(17)
    assert (java.version, java.origin) == (99, "PATH")


def test_a_java_that_nobody_has_says_what_to_do() -> None:
    with pytest.raises(StackError, match=r"Java 1000 or later was not found.*JAVA_HOME"):
        find_java(1000)


def test_properties_are_escaped_as_java_reads_them(tmp_path: Path) -> None:
    path = write_properties(
        tmp_path / "new" / "a.properties",
        {"plain": "a=b:c#d!e", "a b:c=d": "  x ", "lines": "one\ntwo\ttab\\", "wide": "é€😀", "empty": ""},
    )
    assert path.read_text(encoding="ascii").splitlines() == [
        "plain=a=b:c#d!e",
        r"a\ b\:c\=d=\  x ",
        r"lines=one\ntwo\ttab\\",
        r"wide=\u00e9\u20ac\ud83d\ude00",
        "empty=",
    ]


def _tar(path: Path, name: str, content: bytes) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return path


def test_an_archive_is_unpacked_once_and_whole(tmp_path: Path) -> None:
    archive = _tar(tmp_path / "a.tar.gz", "in/side.txt", b"text")
    folder = unpack_tar(archive, tmp_path / "out" / "a")
    assert (folder / "in" / "side.txt").read_bytes() == b"text"
    archive.unlink()
    assert unpack_tar(archive, folder) == folder


@pytest.mark.parametrize("name", ["../outside.txt", "/absolute.txt"])
def test_an_archive_cannot_write_outside_its_folder(tmp_path: Path, name: str) -> None:
    archive = _tar(tmp_path / "a.tar.gz", name, b"text")
    if name.startswith("/"):  # the leading slash is dropped
        assert (unpack_tar(archive, tmp_path / "out") / "absolute.txt").exists()
    else:
        with pytest.raises(StackError, match="could not be unpacked"):
            unpack_tar(archive, tmp_path / "out")
    assert not (tmp_path / "outside.txt").exists()


def test_a_damaged_archive_leaves_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(b"not an archive")
    with pytest.raises(StackError, match=r"(?s)a\.tar\.gz could not be unpacked .*remove"):
        unpack_tar(archive, tmp_path / "out" / "a")
    assert list((tmp_path / "out").iterdir()) == []


def test_folders_follow_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MILLRACE_CACHE", "MILLRACE_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "millrace"
    assert home_dir() == tmp_path / ".local" / "state" / "millrace"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xc")
    monkeypatch.setenv("XDG_STATE_HOME", "/xs")
    assert (cache_dir(), home_dir()) == (Path("/xc/millrace"), Path("/xs/millrace"))
    monkeypatch.setenv("MILLRACE_CACHE", "/c")
    monkeypatch.setenv("MILLRACE_HOME", "/h")
    assert (cache_dir(), home_dir()) == (Path("/c"), Path("/h"))


def test_progress_is_plain_lines_unless_a_terminal_wants_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say("text")
    assert capsys.readouterr().err == "millrace: text\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert has_colours()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colours()
