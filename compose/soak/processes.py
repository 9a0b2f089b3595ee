"""Memory, files, sockets and threads of processes, read from ``/proc``."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.process_tree import list_children

if TYPE_CHECKING:
    from collections.abc import Iterable

_PROC: Final = Path("/proc")
#: What a group of processes may have more of at the end, as a part of what it had and on top of it: caches fill, pools grow.
_GROWTH: Final = 0.25
_MEMORY_SLACK_MIB: Final = 96
_COUNT_SLACK: Final = 24


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources of a group of processes at one moment.

    Attributes:
        processes: How many they are.
        memory_mib: Their memory; what several share counts once (proportional set size).
        files: Open file descriptors, sockets among them.
        sockets: Open sockets.
        threads: Threads.
    """

    processes: int = 0
    memory_mib: int = 0
    files: int = 0
    sockets: int = 0
    threads: int = 0


def list_descendants(pid: int) -> list[int]:
    """The process and all processes below it; those that end meanwhile may be missing."""
    pids = [pid]
    for parent in pids:
        pids += list_children(parent)
    return pids


def read_arguments(pid: int) -> str:
    """The command line of a process; nothing for one that has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def find_processes(text: str) -> list[int]:
    """All processes of this machine whose arguments hold the text, this one left out."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and text in read_arguments(pid)]


def measure(pids: Iterable[int]) -> Usage:
    """Return the present resources of the processes; those that end meanwhile count as far as they were read."""
    processes = memory_kib = files = sockets = threads = 0
    for pid in pids:
        folder = _PROC / str(pid)
        with contextlib.suppress(OSError, ValueError):
            memory_kib += _read_pss_kib(folder)
            threads += sum(1 for _ in (folder / "task").iterdir())
            for descriptor in (folder / "fd").iterdir():
                files += 1
                with contextlib.suppress(OSError):
                    sockets += str(descriptor.readlink()).startswith("socket:")
            processes += 1
    return Usage(processes, memory_kib // 1024, files, sockets, threads)


def _read_pss_kib(folder: Path) -> int:
    for line in (folder / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def find_growth(name: str, before: Usage, after: Usage) -> list[str]:
    """Return each resource that has grown by more than caches and pools explain; empty where all is level.

    Args:
        name: The group, for people.
        before: After warming up.
        after: At the end, under the same load.
    """
    return [
        f"{name}: {resource} went from {old} to {new}"
        for resource, old, new, slack in (
            ("memory (MiB)", before.memory_mib, after.memory_mib, _MEMORY_SLACK_MIB),
            ("open files", before.files, after.files, _COUNT_SLACK),
            ("sockets", before.sockets, after.sockets, _COUNT_SLACK),
            ("threads", before.threads, after.threads, _COUNT_SLACK),
            ("processes", before.processes, after.processes, 2),
        )
        if new > old * (1 + _GROWTH) + slack
    ]
