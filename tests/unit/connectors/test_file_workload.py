"""A log under a random workload: whatever happens to its files, each line comes once and in order.

A writer appends, sometimes half a line; its files are renamed, copied and truncated, or reached by a link that moves; rotated
files are compressed and deleted. The reader takes steps between all that, is parked, and is killed and resumed from what was
saved, as with exactly-once delivery. Time passes when the test says so, so that a seed gives the same run each time.
"""

import gzip
import logging
import os
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from connectors.api import Batch, Position, SourceRecord, TaskContext
from connectors.schema import STRING
from connectors.text_files import reader as reader_module
from connectors.text_files.options import FileReadSettings
from connectors.text_files.reader import TextFileReader
from connectors.text_files.rotation import HEAD
from tests.support.clock import ManualClock

#: Seconds that a renamed file must be quiet; the writer moves to the new file within half of it.
_WAIT = 1.0
#: Longer than a reader waits between two looks at the file's name.
_LOOK = 0.6
_STEPS = 150
_LOGGER = logging.getLogger("workload")
_LOGGER.setLevel(logging.ERROR)


@dataclass(eq=False)
class Generation:
    """One file of the log: its text so far, and the name that it has now; "" when it was deleted."""

    name: str
    text: bytearray = field(default_factory=bytearray)

    def lines(self, encoding: str) -> list[str]:
        """Its lines; the last one also without its end."""
        if encoding == "utf-16-le":
            strings = re.split("\r\n|\r|\n", self.text.decode(encoding))
            return strings[:-1] if not strings[-1] else strings
        return [line.rstrip(b"\r\n").decode(encoding, "replace") for line in self.text.splitlines(keepends=True)]


class Log:
    """A log and its rotation. Names are ``app.log``, behind it ``.1`` and so on; with links the files' own names grow."""

    def __init__(self, folder: Path, rng: random.Random, clock: ManualClock, rotation: str, encoding: str) -> None:
        self.path = folder / "app.log"
        self.generations: list[Generation] = []
        self.encoding = encoding
        self._folder = folder
        self._rng = rng
        self._clock = clock
        self._rotation = rotation
        self._number = 0
        self._ticks = 0
        self._unfinished = False
        #: When the writer opened no file yet after a rename: it still has the one before.
        self._lags = False
        self._create_file()
        self._writer = self._generation

    @property
    def _generation(self) -> Generation:
        return self.generations[-1]

    def _file(self, generation: Generation) -> Path:
        return self._folder / generation.name

    def _create_file(self) -> None:
        self._number += 1
        name = f"app.log.{self._number:04}" if self._rotation == "link" else "app.log"
        self.generations.append(Generation(name))
        file = self._file(self._generation)
        file.touch()
        self._touch(file)
        if self._rotation == "link":
            link = self._folder / "next"
            link.symlink_to(name)
            link.replace(self.path)

    def _touch(self, file: Path) -> None:
        """Files have different times of modification, as they have where rotations are not within one tick of a kernel."""
        self._ticks += 1
        moment = int(self._clock.now * 1e9) + self._ticks
        os.utime(file, ns=(moment, moment))

    def append(self) -> None:
        """Write some lines, perhaps the last one only in part."""
        rng = self._rng
        data = bytearray()
        for _ in range(rng.choice((1, 1, 2, 5, 30))):
            self._number += 1
            size = rng.choice((0, 5, 40, 200, HEAD, 3 * HEAD, 140_000 if rng.random() < 0.05 else 10))
            end = rng.choice(("\n", "\n", "\n", "\r\n", "\r"))
            text = rng.choice("xé") * size
            data += f"{self.generations.index(self._writer) + 1}-{self._number} {text}{end}".encode(self.encoding)
        kept = rng.randrange(len(data)) & ~1 if rng.random() < 0.3 else len(data)
        file = self._file(self._writer)
        with file.open("ab") as opened:
            opened.write(data[:kept])
        self._writer.text += data[:kept]
        self._touch(file)

    def rotate(self) -> None:
        """Move on to another file, in one of the ways in which programs do it."""
        if self._lags:
            self.catch_up()
        way = self._rng.choice(("rename", "copy")) if self._rotation == "mixed" else self._rotation
        if way == "link":
            self._create_file()
            self._writer = self._generation
            return
        for generation in self.generations:
            if match := re.fullmatch(r"app\.log\.(\d+)((?:\.gz)?)", generation.name):
                old, generation.name = self._file(generation), f"app.log.{1000 - int(match[1])}{match[2]}"
                old.rename(self._folder / f"moving-{generation.name}")
        for generation in self.generations:
            if match := re.fullmatch(r"app\.log\.(\d+)((?:\.gz)?)", generation.name):
                moving = self._folder / f"moving-{generation.name}"
                generation.name = f"app.log.{1001 - int(match[1])}{match[2]}"
                moving.rename(self._file(generation))
        self._generation.name = "app.log.1"
        if way == "rename":
            self.path.rename(self._file(self._generation))
            self._lags = True
            if self._rng.random() < 0.5:
                self._create_file()
        else:
            copy = self._file(self._generation)
            shutil.copyfile(self.path, copy)
            self._touch(copy)
            self.generations.append(Generation("app.log"))
            os.truncate(self.path, 0)
            self._touch(self.path)
            self._writer = self._generation

    def catch_up(self) -> None:
        """Let the writer open the new file."""
        self._lags = False
        if self._generation.name != "app.log" and self._rotation != "link":
            self._create_file()
        self._writer = self._generation

    def compress(self) -> None:
        """Compress a rotated file."""
        rotated = [
            item
            for item in self.generations[:-1]
            if item is not self._writer and item.name and not item.name.endswith(".gz")
        ]
        if rotated and not self._lags:
            generation = self._rng.choice(rotated)
            file = self._file(generation)
            packed = file.with_name(f"{file.name}.gz")
            with packed.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb") as opened:
                opened.write(file.read_bytes())
            status = file.stat()
            os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
            file.unlink()
            generation.name = packed.name

    def delete(self, before: int) -> None:
        """Delete the files of the first generations."""
        for generation in self.generations[:before]:
            if generation.name and generation is not self._writer:
                self._file(generation).unlink()
                generation.name = ""

    def expected(self) -> list[str]:
        """All lines that were written."""
        return [line for generation in self.generations for line in generation.lines(self.encoding)]


class Reading:
    """The reader, what it delivered, and what of that is saved."""

    def __init__(self, log: Log, clock: ManualClock, rng: random.Random) -> None:
        self._log = log
        self._clock = clock
        self._rng = rng
        self.notes: list[str] = []
        #: Lines, and None for offsets that are saved without a line, each with its offset.
        self.delivered: list[tuple[str | None, Position]] = []
        self._saved = 0
        self.resume()

    def resume(self) -> None:
        """Start a reader at the saved offset."""
        self.running = True
        offset = self.delivered[self._saved - 1][1] if self._saved else None
        context = SimpleNamespace(log=_LOGGER, offsets=SimpleNamespace(get=lambda _partition: offset))
        settings = FileReadSettings(
            batch_size=self._rng.choice((1, 7, 2000)), encoding=self._log.encoding, replace_malformed=True,
            line_limit=1_048_576, split_long=False, compression="auto", tracking=True, rotated_pattern=None,
            rotation_wait=_WAIT, poll_interval=0.25, several=False, files=(str(self._log.path),),
        )  # fmt: skip
        self._reader = TextFileReader(
            cast("TaskContext", context), settings, settings.files[0], self._make_records, "unknown"
        )

    @staticmethod
    def _make_records(
        partition: Position, _before: Position, lines: list[str], offsets: Sequence[Position]
    ) -> list[SourceRecord]:
        return [
            SourceRecord(partition, offset, "lines", line, STRING) for line, offset in zip(lines, offsets, strict=True)
        ]

    def step(self) -> bool:
        """Take a step; returns whether anything came of it."""
        step = self._reader.follower.advance()
        if step.note:
            self.notes.append(step.note)
        for batch in self._reader.take(step):
            self._deliver(batch)
        return self._reader.more

    def _deliver(self, batch: Batch) -> None:
        assert not batch.bad
        self.delivered += [(cast("str", record.value), record.source_offset) for record in batch.records]
        self.delivered += [(None, cast("Position", offset)) for _, offset in batch.offsets]

    def kill(self) -> None:
        """End the reader; what it delivered after some moment was not saved, and is as if it had not been delivered."""
        self._saved = self._rng.randint(max(1, self._saved), len(self.delivered))
        del self.delivered[self._saved :]
        self.close()

    def close(self) -> None:
        """Release the files."""
        self.running = False
        self._reader.follower.close()

    def park(self) -> None:
        """Close the file until it changes. An empty one that is closed and renamed is not known (docs/connectors/file.md)."""
        if self._reader.idle_and_open and self._reader.follower.head:
            self._reader.follower.park()

    def finished_generations(self) -> int:
        """How many generations were read before the one of the last saved line."""
        left = sum(line is not None for line, _ in self.delivered[: self._saved])
        for number, generation in enumerate(self._log.generations):
            left -= len(generation.lines(self._log.encoding))
            if left <= 0:
                return number
        return 0

    def lines(self) -> list[str]:
        """The delivered lines."""
        return [line for line, _ in self.delivered if line is not None]


def draw_actions(seed: int) -> list[tuple[str, int]]:
    """Names of actions, each with a seed for what it needs of chance: any part of them can be run alone."""
    rng = random.Random(seed)
    names = ("append", "step", "pause", "rotate", "compress", "delete", "stop", "park")
    return [(name, rng.randrange(1 << 30)) for name in rng.choices(names, (9, 12, 3, 3, 2, 1, 2, 1), k=_STEPS)]


def run_workload(folder: Path, actions: Sequence[tuple[str, int]], rotation: str, encoding: str) -> str:
    """Run the actions, and compare what came with what was written: "" if each line came once and in order."""
    rng = random.Random(1)
    clock = ManualClock()
    log = Log(folder, rng, clock, rotation, encoding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "time", SimpleNamespace(monotonic=clock, time_ns=lambda: 0))
        reading = Reading(log, clock, rng)
        # Before its first position is saved, a source does not know a file that is renamed (docs/connectors/file.md).
        while not reading.delivered:
            log.append()
            reading.step()
        for action, seed in actions:
            rng.seed(seed)
            _act(action, log, reading, clock, rng)
        if not reading.running:
            reading.resume()
        # Rotations end the line that may be unfinished.
        for _ in range(2):
            _read_to_end(reading, clock)
            log.rotate()
            log.catch_up()
        _read_to_end(reading, clock)
        reading.close()
    expected, lines = log.expected(), reading.lines()
    if lines == expected:
        return ""
    differences = [index for index, pair in enumerate(zip(expected, lines, strict=False)) if pair[0] != pair[1]]
    at = differences[0] if differences else min(len(expected), len(lines))
    short = [[line[:30] for line in part[at : at + 4]] for part in (expected, lines)]
    return f"line {at}: {short[0]} were written, {short[1]} came; {reading.notes}"


def _look(reading: Reading, clock: ManualClock) -> None:
    clock.advance(_LOOK)
    if reading.running:
        reading.step()


def _act(action: str, log: Log, reading: Reading, clock: ManualClock, rng: random.Random) -> None:
    if action == "append":
        log.append()
    elif action == "rotate":
        # Two rotations are not within half a second, and a file with something in it is there for as long before it goes.
        _look(reading, clock)
        log.rotate()
        _look(reading, clock)
        if rng.random() < 0.5:
            log.append()
        # The writer moves on before the renamed file was quiet for long enough.
        log.catch_up()
    elif action == "compress":
        log.compress()
    elif action == "delete":
        log.delete(reading.finished_generations())
    elif action == "stop":
        if reading.running:
            reading.kill()
        else:
            reading.resume()
            reading.step()
    elif reading.running:
        if action == "step":
            for _ in range(rng.choice((1, 1, 5, 40))):
                reading.step()
        elif action == "pause":
            clock.advance(rng.choice((0.1, _LOOK, 2 * _WAIT)))
            reading.step()
        elif action == "park":
            reading.park()


def _read_to_end(reading: Reading, clock: ManualClock) -> None:
    quiet = 0
    while quiet < 6:
        quiet = 0 if reading.step() else quiet + 1
        clock.advance(_LOOK)


ROTATIONS = ("rename", "copy", "link", "mixed")
ENCODINGS = ("utf-8", "latin-1", "utf-16-le")


@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize("seed", range(6))
def test_each_line_comes_once(tmp_path: Path, seed: int, rotation: str) -> None:
    assert not run_workload(tmp_path, draw_actions(seed), rotation, ENCODINGS[seed % 3])


@pytest.mark.slow
@pytest.mark.parametrize("rotation", ROTATIONS)
def test_each_line_comes_once_with_many_seeds(tmp_path: Path, rotation: str) -> None:
    for seed in range(6, 200):
        folder = tmp_path / str(seed)
        folder.mkdir()
        difference = run_workload(folder, draw_actions(seed), rotation, ENCODINGS[seed % 3])
        assert not difference, f"seed {seed}: {difference}"
        shutil.rmtree(folder)
