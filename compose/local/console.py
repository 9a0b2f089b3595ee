"""Progress lines for people, kept apart so that services can be used silently from tests."""

import os
import sys
from collections.abc import Callable

# A sink for one line of progress. Services never print by themselves: whoever starts them says where lines go.
Say = Callable[[str], None]


def silent(_line: str) -> None:
    """Drop the line."""


def say(line: str) -> None:
    """Write the line to standard error: whole lines only, so a log file or a CI page stays readable."""
    prefix = "\033[2mmillrace:\033[0m" if colours() else "millrace:"
    print(f"{prefix} {line}", file=sys.stderr, flush=True)


def colours() -> bool:
    """Whether standard error may be coloured: it is a terminal and `NO_COLOR` is not set."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
