"""Environments by their metadata: where they are, what can't be used and why, and when one has changed."""

from __future__ import annotations

import os
import sys
import zipfile
from email.message import Message
from typing import TYPE_CHECKING, Any

import pytest

from worker.plugins.environments import Environment, find_clash, scan_folders

from ._packages import package, transform

if TYPE_CHECKING:
    from pathlib import Path

    from worker.plugins.environments import Scan

SHARED_VERSIONS = {"millrace": "0.1.0", "aiohttp": "3.12.0"}
ENTRIES = "[millrace.transforms]\nshout = none_such:Shout\n"


def look(*items: object, before: Scan | None = None) -> Scan:
    return scan_folders([str(item) for item in items], SHARED_VERSIONS, before)


def names(scan: Scan) -> list[str]:
    return sorted(environment.name for environment in scan.environments.values())


def test_where_environments_are(tmp_path: Path) -> None:
    transform(tmp_path / "all" / "flat", "one")
    site = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    transform(tmp_path / "all" / "venv" / "lib" / site / "site-packages", "two")
    (tmp_path / "all" / "venv" / "pyvenv.cfg").write_text("")
    (tmp_path / "all" / "kafka-jars").mkdir()
    (tmp_path / "all" / "kafka-jars" / "some.jar").write_bytes(b"PK")
    wheel = transform(tmp_path / "wheel", "three")
    with zipfile.ZipFile(tmp_path / "all" / "three-1.0-py3-none-any.whl", "w") as archive:
        for file in wheel.rglob("*"):
            archive.write(file, file.relative_to(wheel))
    with zipfile.ZipFile(tmp_path / "all" / "debezium.zip", "w") as archive:
        archive.writestr("debezium/some.jar", b"")
    scan = look(tmp_path / "all", "some.module:Class", "entry")
    assert names(scan) == ["flat", "three-1.0-py3-none-any.whl", "venv"]
    assert scan.failures == {}
    assert {entry for environment in scan.environments.values() for entry in environment.entries} == {
        ("millrace.transforms", "shout", f"{name}:Shout") for name in ("one", "two", "three")
    }
    # An item may be an environment itself.
    assert names(look(tmp_path / "all" / "flat")) == ["flat"]


@pytest.mark.parametrize(
    ("requires", "python", "text"),
    [
        (["aiohttp>=4"], "", "needs aiohttp>=4, but Millrace itself runs on aiohttp 3.12.0"),
        (["aiohttp>=4; python_version < '3'"], "", None),
        (["aiohttp>=3,<4", "millrace"], "", None),
        (["aiohttp>=4; extra == 'speed'"], "", None),
        (["MILLRACE>=7"], "", "needs MILLRACE>=7"),
        ([], "<3", "needs Python <3"),
        ([], ">=3.11", None),
    ],
)
def test_what_millrace_runs_on_is_shared(tmp_path: Path, requires: list[str], python: str, text: str | None) -> None:
    package(tmp_path / "env", "plug", entries=ENTRIES, requires=requires, python=python)
    scan = look(tmp_path)
    if text is None:
        assert (names(scan), scan.failures) == (["env"], {})
    else:
        assert scan.environments == {}
        assert text in scan.failures[str(tmp_path / "env")]


def test_a_copy_of_what_millrace_runs_on_is_not_used(tmp_path: Path) -> None:
    transform(tmp_path / "env", "plug", requires=["aiohttp>=3"])
    package(tmp_path / "env", "aiohttp", version="4.0", requires=["millrace>=99"])
    assert (names(look(tmp_path)), look(tmp_path).failures) == (["env"], {})


def test_an_environment_that_does_not_agree_with_itself_is_reported_and_used(tmp_path: Path) -> None:
    transform(tmp_path / "env", "plug", requires=["lib>=2"])
    package(tmp_path / "env", "lib", version="1.5")
    scan = look(tmp_path)
    assert names(scan) == ["env"]
    assert scan.failures == {"env: plug 1.0 needs lib>=2": "1.5 is there. Install the environment again with pip"}


def test_what_can_not_be_an_environment(tmp_path: Path) -> None:
    package(tmp_path / "no-plugins", "lib")
    (tmp_path / "old" / "lib" / "python2.7" / "site-packages").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "fast.whl", "w") as archive:
        archive.writestr("fast/_speed.so", b"")
    (tmp_path / "broken.whl").write_bytes(b"no archive")
    scan = look(tmp_path, tmp_path / "nowhere")
    assert scan.environments == {}
    assert "does not exist" in scan.failures[str(tmp_path / "nowhere")]
    assert "none of its packages declares a plugin" in scan.failures[str(tmp_path / "no-plugins")]
    assert "was made for python2.7" in scan.failures[str(tmp_path / "old")]
    assert (
        f"pip install --target {tmp_path / 'fast'} {tmp_path / 'fast.whl'}" in scan.failures[str(tmp_path / "fast.whl")]
    )
    assert str(tmp_path / "broken.whl") in scan.failures


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("entry_points.txt", b"[millrace.transforms]\nshout\n"),
        ("METADATA", b"\xff\xfe\0Name"),
        ("RECORD", b"plug.py,,1x\n"),
        ("RECORD", b"a,b,c,d,e\n"),
    ],
)
def test_broken_metadata_hides_no_other_environment(tmp_path: Path, file: str, content: bytes) -> None:
    transform(tmp_path / "good", "plug")
    broken = transform(tmp_path / "half", "plug")
    (broken / "plug-1.0.dist-info" / file).write_bytes(content)
    scan = look(tmp_path)
    assert names(scan) == ["good"]
    assert "its packages' metadata can't be read" in scan.failures[str(broken)]


@pytest.mark.parametrize("python", ["", ">=3.11"])
def test_metadata_without_a_field_is_read_where_python_raises_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    package(tmp_path / "good", "plug", entries=ENTRIES, python=python)
    (tmp_path / "nameless" / "odd-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "nameless" / "odd-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nVersion: 1.0\n")
    read = Message.__getitem__

    def strict(self: Message, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return read(self, name)

    monkeypatch.setattr(Message, "__getitem__", strict)
    assert names(look(tmp_path)) == ["good"]


def test_a_broken_archive_hides_no_other_environment(tmp_path: Path) -> None:
    transform(tmp_path / "good", "plug")
    wheel = tmp_path / "half-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("half-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: half\nVersion: 1.0\n" * 50)
    content = bytearray(wheel.read_bytes())
    content[70:90] = bytes(byte ^ 0xFF for byte in content[70:90])
    wheel.write_bytes(content)
    scan = look(tmp_path)
    assert names(scan) == ["good"]
    assert str(wheel) in scan.failures


@pytest.mark.parametrize(
    ("error", "reported"), [(FileNotFoundError("gone"), False), (PermissionError("not yours"), True)]
)
def test_a_folder_that_goes_or_can_not_be_read_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reported: bool
) -> None:
    transform(tmp_path / "good", "plug")
    other = transform(tmp_path / "other", "plug")
    scandir = os.scandir

    def failing(path: str | Path) -> Any:
        if str(path) == str(other):
            raise error
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    scan = look(tmp_path)
    assert names(scan) == ["good"]
    assert (str(other) in scan.failures) is reported


def test_a_change_makes_another_environment(tmp_path: Path) -> None:
    folder = transform(tmp_path / "env", "plug")
    transform(tmp_path / "other", "plug")
    first = look(tmp_path)
    second = look(tmp_path, before=first)
    assert second.environments == first.environments
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "plug.cpython-311.pyc").write_bytes(b"")
    assert look(tmp_path, before=first).environments == first.environments, "importing changes nothing"
    (folder / "plug.py").write_text("# changed")
    changed = look(tmp_path, before=first)
    assert len(changed.environments.keys() - first.environments.keys()) == 1
    assert len(changed.environments.keys() & first.environments.keys()) == 1
    package(folder, "lib", version="2")
    assert changed.environments.keys() - look(tmp_path, before=changed).environments.keys()


def test_a_change_that_keeps_the_time(tmp_path: Path) -> None:
    folder = transform(tmp_path / "env", "plug")
    first = look(tmp_path)
    status = (folder / "plug.py").stat()
    (folder / "plug.py").write_text("# changed")
    os.utime(folder / "plug.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not first.environments.keys() & look(tmp_path, before=first).environments.keys()


def test_two_folders_of_one_name(tmp_path: Path) -> None:
    for parent in ("first", "second"):
        transform(tmp_path / parent / "env", "plug")
    assert names(look(tmp_path / "first", tmp_path / "second")) == ["first/env", "second/env"]


def test_which_environments_can_be_in_one_process() -> None:
    first = Environment("one", "/1", "f", {"lib": "1", "same": "3", "aiohttp": "3"})
    second = Environment("two", "/2", "f", {"lib": "2", "same": "3", "aiohttp": "4"})
    third = Environment("three", "/3", "f", {"same": "3"})
    assert find_clash([first, third], SHARED_VERSIONS) is None
    assert find_clash([first], SHARED_VERSIONS) is None
    shared = [Environment(name, f"/{name}", "f", {"aiohttp": name}) for name in ("3", "4")]
    assert find_clash(shared, SHARED_VERSIONS) is None
    assert find_clash(shared, []) is not None
    text = find_clash([third, first, second], SHARED_VERSIONS)
    assert text is not None
    assert "the environments one and two hold different versions of the distribution lib: 1 and 2" in text
    assert "Install them into one folder" in text
