"""A small mutation fuzzer: it changes inputs, runs a parser on them, and keeps those that end in a new ending.

A finding is an exception that the parser does not declare, more than ``LONGEST_S`` of CPU for one input, or memory that grows
by more than ``MOST_BYTES`` at one input.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from connectors.errors import MillraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

#: CPU of this process that one input may take.
LONGEST_S: Final = 5.0
MOST_BYTES: Final = 256 << 20
#: Inputs that are kept, with those that a target begins with.
_MOST_KEPT: Final = 2000
_LONGEST_INPUT: Final = 1 << 16
CORPUS: Final = Path(__file__).with_name("corpus")
_NUMBERS: Final = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFB,
    0xFC,
    0xFD,
    0xFE,
    0xFF,
    0x100,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
)
_LARGE: Final = (0xFFFFFFFF, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


class Hang(BaseException):
    """An input takes too long. No ``Exception``, so that no parser takes it for a mistake in its bytes."""


@dataclass(frozen=True)
class Target:
    """One parser.

    Attributes:
        name: what it is called.
        run: reads an input.
        inputs: what is changed; at least one of them is valid.
        declared: what ``run`` may raise, with the classes of ``MillraceError``.
        words: byte strings that mean something to the parser.
        quick: inputs that take about a second.
    """

    name: str
    run: Callable[[bytes], object]
    inputs: Callable[[], Sequence[bytes]]
    declared: tuple[type[Exception], ...] = ()
    words: tuple[bytes, ...] = ()
    quick: int = 3000


@dataclass(frozen=True)
class Finding:
    """An input that is not handled.

    Attributes:
        reason: the exception, or what else is wrong.
        ending: file and line; the same ending is reported once.
        data: the input.
    """

    reason: str
    ending: str
    data: bytes

    def __str__(self) -> str:
        shown = self.data if len(self.data) <= 400 else self.data[:400] + b"..."
        return f"{self.reason} at {self.ending}, {len(self.data)} bytes: {shown!r}"


@dataclass
class Report:
    """The result of a run.

    Attributes:
        inputs: how many were run.
        kept: how many ended in a new ending.
        findings: one for each ending.
    """

    inputs: int = 0
    kept: int = 0
    findings: list[Finding] = field(default_factory=list)


def fuzz(target: Target, *, seed: int, inputs: int | None = None, seconds: float = 0.0) -> Report:
    """Run a target on changed inputs. For the main thread of a process: it uses a signal.

    Args:
        target: the parser.
        seed: the same gives the same inputs.
        inputs: how many to run; None: as many as there is time for.
        seconds: how long to run, if ``inputs`` is None.
    """
    rng = random.Random(seed)
    pool = [*target.inputs(), *saved_inputs(target.name)]
    report = Report()
    endings: set[tuple[object, ...]] = set()
    deadline = time.monotonic() + seconds
    with _alarm():
        for data in pool:
            _, ending = _check(target, data, report)
            endings.add(ending)
        while report.inputs < inputs if inputs is not None else time.monotonic() < deadline:
            data = mutate(rng, rng.choice(pool), pool, target.words)
            _, ending = _check(target, data, report)
            if ending not in endings:
                endings.add(ending)
                report.kept += 1
                if report.kept <= _MOST_KEPT:
                    pool.append(data)
    return report


def saved_inputs(name: str) -> list[bytes]:
    """The inputs of a target that are kept in the repository: those that led to a finding."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


def check_input(target: Target, data: bytes) -> Finding | None:
    """Run one input; returns None if it ends as the parser declares."""
    report = Report()
    with _alarm():
        finding, _ = _check(target, data, report)
    return finding


@contextmanager
def _alarm() -> Iterator[None]:
    """Raise ``Hang`` in this thread when the timer ends."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _check(target: Target, data: bytes, report: Report) -> tuple[Finding | None, tuple[object, ...]]:
    """Run one input; returns what is wrong and where it ended."""
    report.inputs += 1
    memory = _memory()
    reason = ""
    ending: tuple[object, ...] = ("read",)
    try:
        # Again and again: an exception in a callback of the garbage collector is lost.
        signal.setitimer(signal.ITIMER_PROF, LONGEST_S, LONGEST_S)
        try:
            result = target.run(data)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        ending = (
            "read",
            min(result, 20) if isinstance(result, int) else result if isinstance(result, str) else type(result),
        )
    except Hang as error:
        reason, ending = f"it takes more than {LONGEST_S:.0f} s of CPU", ("hang", *_lines(error))
    except Exception as error:  # noqa: BLE001 - all of them are looked at
        ending = (type(error), *_lines(error))
        if not isinstance(error, (MillraceError, *target.declared)):
            reason = f"{type(error).__name__}: {error}"
    if not reason and _memory() - memory > MOST_BYTES:
        reason, ending = "memory grows by more than 256 MiB", ("memory", ending[0])
    if not reason:
        return None, ending
    finding = Finding(reason[:300], " < ".join(str(part) for part in ending[-1:]) or "?", data)
    if all(other.ending != finding.ending for other in report.findings):
        report.findings.append(finding)
    return finding, ending


def _lines(error: BaseException) -> list[str]:
    """The origin of an exception: the lines of all calls, the innermost last."""
    lines: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        # A recursion is one ending.
        line = f"{'/'.join(file.split('/')[-3:])}:{trace.tb_lineno}"
        if "tests/fuzz/engine" not in line and line not in lines[-4:]:
            lines.append(line)
        trace = trace.tb_next
    return lines[:20] + lines[-1:]


def _memory() -> int:
    """The most bytes that this process has had in memory."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def mutate(rng: random.Random, data: bytes, pool: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Some changes of an input: bits, numbers, parts that are lost, doubled or from another input, and words."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        _change(rng, changed, pool, words)
    return bytes(changed[:_LONGEST_INPUT])


def _change(rng: random.Random, data: bytearray, pool: Sequence[bytes], words: Sequence[bytes]) -> None:
    kind = rng.randrange(10)
    at = rng.randrange(len(data) + 1)
    size = rng.choice((1, 1, 2, 4, 8, 16, rng.randrange(1, 64)))
    if kind == 0 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = rng.choice(_NUMBERS) & 0xFF
    elif kind == 2:
        width = rng.choice((1, 2, 4, 8))
        number = rng.choice((*_NUMBERS, *_LARGE, len(data), len(data) - at)) & ((1 << 8 * width) - 1)
        data[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
    elif kind == 3:
        del data[at : at + size]
    elif kind == 4:
        data[at:at] = rng.randbytes(size)
    elif kind == 5:
        data[at:at] = data[at : at + size] * rng.choice((1, 2, 8, 64))
    elif kind == 6:
        other = rng.choice(pool)
        start = rng.randrange(len(other) + 1)
        data[at : at + rng.choice((0, size))] = other[start : start + size * rng.choice((1, 4))]
    elif kind == 7 and words:
        data[at : at + rng.choice((0, size))] = rng.choice(words)
    elif kind == 8:
        del data[at:]
    else:
        data[at : at + size] = rng.randbytes(size)
