"""Standard input, output and error of a command: files that may be closed, full, or read by no one."""

from __future__ import annotations

import os
import select
import sys


def discard_output() -> None:
    """Let what is still in the buffer go nowhere, so that the interpreter's own flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_standard_files() -> None:
    """Let what was closed before the start (as by ``>&-``) lead nowhere: the next file that opens would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def is_output_closed() -> bool:
    """Whether the other end of the standard output is closed, as by ``head``."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in output.poll(0))
