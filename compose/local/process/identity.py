"""Tells a process from a later one that happens to get the same number."""

import os
import subprocess
from pathlib import Path


def start_mark(pid: int) -> str | None:
    """When the process started, as an opaque text that never changes while it lives; None when there is no such process.

    A process that has ended but was not collected by its parent yet (a zombie) counts as gone.
    """
    try:
        # The command's name is in parentheses and may hold anything: count the fields after the last one.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        if fields[0] in {"Z", "X"}:
            return None
        # The kernel counts from its own start, so the same figure may come again after a reboot.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{fields[19]}"
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except (OSError, IndexError):
        return None
    # No /proc (macOS): ps knows the same with a resolution of one second.
    result = subprocess.run(["ps", "-o", "lstart=,stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    *started, state = result.stdout.split() or ["Z"]
    return None if state.startswith("Z") or not started else " ".join(started)


def same_process(pid: int, expected_mark: str) -> bool:
    """Whether the process that had that start mark still runs."""
    return start_mark(pid) == expected_mark


def signal_group(pid: int, expected_mark: str, number: int) -> bool:
    """Send a signal to the process group that the process leads, or led; False if no process is left to get it.

    When the leader is gone its group may live on. The system gives no new process the number of a living group, so the
    group is the right one unless a later process has the leader's number.
    """
    now = start_mark(pid)
    if now is not None and now != expected_mark:
        return False
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
