"""Progress lines on a terminal, kept apart so that services can be used silently from tests."""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

# A sink for one line of progress. Services never print by themselves: whoever starts them says where lines go.
Say = Callable[[str], None]
_REDRAW_S: Final = 0.5
_REPEAT_S: Final = 15.0
_CLEAR: Final = "\r\033[K"


def drop_line(_line: str) -> None:
    """Drop the line."""


def say(line: str) -> None:
    """Write the line to standard error: whole lines only, so a log file or a CI page stays readable."""
    with _terminal.lock:
        _terminal.clear()
        print(f"{_prefix()} {line}", file=sys.stderr, flush=True)
        _terminal.draw()


def has_colours() -> bool:
    """Whether standard error may be coloured: it is a terminal and `NO_COLOR` is not set."""
    return rewritable() and not os.environ.get("NO_COLOR")


def rewritable() -> bool:
    """Whether a line of standard error can be written over: it is a terminal."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def rewrite(text: str) -> None:
    """Write the text over the last line of a terminal, an empty one to take it away; nothing elsewhere.

    For programs that can have no further thread; `progress` is for all others.
    """
    if rewritable():
        sys.stderr.write(f"{_CLEAR}{_prefix()} {text}" if text else _CLEAR)
        sys.stderr.flush()


def _prefix() -> str:
    return "\033[2mmillrace:\033[0m" if has_colours() else "millrace:"


@dataclass(slots=True, eq=False)
class Step:
    """Something that takes longer than two seconds.

    Attributes:
        text: What is done, such as `starting Kafka`.
        note: How far it is, such as `12 of 300 MB`; whoever does it changes it as it likes.
        began: Seconds of the monotonic clock.
    """

    text: str
    note: str = ""
    began: float = field(default_factory=time.monotonic)

    def line(self, now: float) -> str:
        """Return the line that describes it at the time `now`."""
        return f"{self.text}, {now - self.began:.0f} s" + (f": {self.note}" if self.note else "")


def live_line(steps: Sequence[Step], now: float, width: int) -> str:
    """The one line that a terminal of that width shows of the steps that run. Pure."""
    line = "; ".join(step.line(now) for step in steps)
    return line if len(line) < width else f"{line[: max(0, width - 4)]}..."


@contextmanager
def progress(text: str, out: Say = say, *, quiet_s: float = 0.0, every_s: float = _REPEAT_S) -> Iterator[Step]:
    """Show that something runs until the block is left: in a line that changes on a terminal, else in plain lines.

    A plain line comes at the beginning and again while it runs. What came of it is the caller's to say.

    Args:
        text: What is done.
        out: Where plain lines go; a terminal is written to only where that is `say`.
        quiet_s: Nothing is shown for that many seconds: for what is often over by then.
        every_s: Seconds between plain lines.
    """
    step = Step(text)
    ended = threading.Event()
    view = _terminal if out is say and rewritable() else _Lines(out)

    def watch() -> None:
        if quiet_s:
            if ended.wait(quiet_s):
                return
            view.show(step)
        while not ended.wait(_REDRAW_S if view is _terminal else every_s):
            view.refresh(step)

    if not quiet_s:
        view.show(step)
    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield step
    finally:
        ended.set()
        thread.join()
        view.hide(step)


class _Lines:
    """Plain lines."""

    def __init__(self, out: Say) -> None:
        self._out = out

    def show(self, step: Step) -> None:
        self._out(step.text)

    def refresh(self, step: Step) -> None:
        self._out(step.line(time.monotonic()))

    def hide(self, step: Step) -> None:
        pass


class _Terminal:
    """The last line of a terminal. `lock` is held around `clear` and `draw`, and around what is written between them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._steps: list[Step] = []
        self._drawn = False

    def show(self, step: Step) -> None:
        with self.lock:
            self._steps.append(step)
            self.draw()

    def refresh(self, _step: Step) -> None:
        with self.lock:
            self.draw()

    def hide(self, step: Step) -> None:
        with self.lock:
            self._steps = [shown for shown in self._steps if shown is not step]
            self.clear()
            self.draw()

    def clear(self) -> None:
        if self._drawn:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._drawn = False

    def draw(self) -> None:
        if self._steps:
            width = shutil.get_terminal_size().columns - len("millrace: ")
            sys.stderr.write(f"{_CLEAR}{_prefix()} {live_line(self._steps, time.monotonic(), width)}")
            sys.stderr.flush()
            self._drawn = True


_terminal: Final = _Terminal()
