"""A rotation between any two calls of the operating system, while a reader starts or reads: each line comes once."""

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from connectors.text_files.follower import Follower, StepKind
from connectors.text_files.rotation import HEAD, fingerprint_head
from tests.support.clock import ManualClock

_CALLS: Final = ("open", "stat", "scandir", "pread", "fstat")
_QUIET: Final = (StepKind.IDLE, StepKind.COMPLETE, StepKind.MISSING)
#: Steps without anything new, half a second apart, after which all was read.
_PATIENCE: Final = 8


class Log:
    """A log that is rotated at once; files have different times of modification."""

    def __init__(self, folder: Path, way: str) -> None:
        folder.mkdir()
        self.path = folder / "app.log"
        self.text = b""
        self._way = way
        self._files = 0
        self._write_file()

    def rotate(self) -> None:
        """Move on to another file, as logrotate does."""
        for number in (3, 2, 1):
            for end in ("", ".gz"):
                rotated = self._rotated(number, end)
                if rotated.exists():
                    rotated.rename(self._rotated(number + 1, end))
        newest = self._rotated(1)
        if self._way == "copy":
            shutil.copy2(self.path, newest)
        else:
            self.path.rename(newest)
        self._write_file()
        if self._way == "compressed":
            packed = self._rotated(1, ".gz")
            packed.write_bytes(gzip.compress(newest.read_bytes()))
            shutil.copystat(newest, packed)
            newest.unlink()

    def _rotated(self, number: int, end: str = "") -> Path:
        return self.path.with_name(f"app.log.{number}{end}")

    def _write_file(self) -> None:
        self._files += 1
        lines = b"".join(b"file %d, line %d\n" % (self._files, number) for number in range(100))
        self.path.write_bytes(lines)
        self.text += lines
        os.utime(self.path, (1000 * self._files, 1000 * self._files))


class Interruption:
    """Rotates a log at a call of the operating system.

    Args:
        number: of the call, from 1.
        rotate: what to do.
    """

    def __init__(self, number: int, rotate: Callable[[], None]) -> None:
        self._left = number
        self._rotate = rotate
        self._patch = pytest.MonkeyPatch()

    @property
    def over(self) -> bool:
        """Whether there was such a call."""
        return self._left <= 0

    def __enter__(self) -> None:
        for name in _CALLS:
            self._patch.setattr(os, name, self._counted(getattr(os, name)))

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def function(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if not self._left:
                self._patch.undo()
                self._rotate()
            return call(*arguments, **named)

        return function


def read_text(path: Path, position: int, fingerprint: str, interruption: Interruption) -> bytes:
    """The text that a follower brings until nothing is new for a while."""
    clock = ManualClock()
    follower = Follower(
        str(path), compression="auto", position=position, saved_fingerprint=fingerprint, wait=1.0, clock=clock
    )
    text = b""
    quiet = 0
    with interruption:
        while quiet < _PATIENCE:
            before = interruption.over
            step = follower.advance()
            text += step.data
            quiet = quiet + 1 if step.kind in _QUIET and interruption.over == before else 0
            clock.advance(0.6)
    follower.close()
    return text


@pytest.mark.parametrize("way", ["rename", "copy", "compressed"])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_each_line_comes_once(tmp_path: Path, way: str, before: int) -> None:
    """The file of the saved position may have been rotated several times before."""
    position = 1100
    wrong: list[int] = []
    number = 0
    over = True
    while over:
        number += 1
        log = Log(tmp_path / str(number), way)
        fingerprint = fingerprint_head(log.text[:HEAD], position)
        for _ in range(before):
            log.rotate()
        interruption = Interruption(number, log.rotate)
        text = read_text(log.path, position, fingerprint, interruption)
        if text != log.text[position:]:
            wrong.append(number)
        over = interruption.over
    assert number > 20
    assert not wrong
