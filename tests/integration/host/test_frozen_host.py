"""A process that the kernel stops for a while: its watch blames no task for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

_HANGS = """
import asyncio, os, sys
from worker.host.watch import LoopWatch

async def main():
    watch = LoopWatch(asyncio.get_running_loop(), 2.5, lambda frame: os.write(1, b"stuck\\n"), None, 2.5)
    watch.start()
    os.write(1, b"ready\\n")
    while await asyncio.to_thread(os.read, 0, 1):
        os.write(1, b"turn\\n")
    watch.stop()

asyncio.run(main())
"""


def test_a_frozen_process_is_not_reported() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HANGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        os.kill(child.pid, signal.SIGSTOP)
        try:
            time.sleep(4)  # the fault: longer than both limits
        finally:
            os.kill(child.pid, signal.SIGCONT)
        # The watch looks twice a second: it has looked when a second is over.
        for _ in range(3):
            child.stdin.write("x")
            child.stdin.flush()
            assert child.stdout.readline() == "turn\n"
            time.sleep(0.5)
        child.stdin.close()
        assert child.stdout.read() == ""
