"""Processes and their children, as Linux lists them."""

from __future__ import annotations

from pathlib import Path


def list_children(pid: int) -> list[int]:
    """Process numbers of a process's direct children; none for a process that has ended, also while this looks."""
    pids = []
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
    for thread in threads:
        try:
            pids += [int(number) for number in (thread / "children").read_text().split()]
        except OSError:
            continue  # a thread that ended meanwhile
    return pids
