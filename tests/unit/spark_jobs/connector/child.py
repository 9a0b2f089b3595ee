"""A job's process without Spark: speaks as ``spark_jobs.run`` does, and does what its configuration says.

Reads its configuration as one line of JSON from standard input, and ends on SIGTERM and at the end of standard input unless
an option forbids it. Options: ``do`` (run, fail, retriable, die, refuse, end), ``deaf`` (ignores being asked to end),
``grandchild`` (starts a process in its group, which would live forever; its number goes to that file), ``say`` (printed to
standard output).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

events = os.fdopen(int(sys.argv[1]), "w", buffering=1)
config = json.loads(sys.stdin.readline())
ended = threading.Event()
deaf = config.get("deaf") == "true"


def emit(event: str, **fields: object) -> None:
    with contextlib.suppress(BrokenPipeError):  # the supervisor is gone
        events.write(json.dumps({"event": event, "job": "child", **fields}) + "\n")


def leave(code: int) -> None:
    sys.stdout.flush()
    os._exit(code)  # the thread that reads standard input would hold up a normal exit


def wait_for_the_end_of_stdin() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    if not deaf:
        ended.set()


signal.signal(signal.SIGTERM, lambda *_: None if deaf else ended.set())
threading.Thread(target=wait_for_the_end_of_stdin, daemon=True).start()
if config.get("say"):
    print(config["say"], flush=True)
if config.get("grandchild"):
    other = subprocess.Popen(["sleep", "1000"])
    Path(config["grandchild"]).write_text(str(other.pid))
action = config.get("do", "run")
if action == "refuse":
    emit("failed", error="Missing required configuration", kind="ConfigInvalid", trace="", retriable=False)
    leave(2)
emit("started", pid=os.getpid(), batch=None)
if action in {"fail", "retriable"}:
    emit(
        "failed",
        error="the target says no",
        kind="Fatal",
        trace="Traceback of the job\nFatal: the target says no",
        retriable=action == "retriable",
    )
    leave(1)
if action == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if action in ("end", "savepoint"):
    emit("stopped", reason="savepoint" if action == "savepoint" else "done", batch=0)
    leave(0)
if action == "trouble":
    trouble = {"part": "batch", "since": "2026-11-21T00:00:00.000Z", "error": "the target is away"}
    for attempt in (1, 2):
        emit("retrying", attempt=attempt, batch=None, pause_s=0.1, **trouble)
    emit(
        "progress",
        rows=0,
        duration_ms=0,
        rows_per_s=0.0,
        position={},
        lag={},
        lag_total=None,
        metrics={},
        retrying={**trouble, "attempts": 2},
    )
number = 0
while not ended.wait(0.02):
    emit(
        "progress",
        batch=number,
        rows=10,
        written=9,
        duration_ms=100,
        rows_per_s=100.0,
        position={"in": {"0": 10 * (number + 1)}},
        lag={"in": {"0": 5, "1": 2}},
        lag_total=7,
        lag_max=5,
        metrics={"state_rows": 3.0},
    )
    number += 1
emit("stopped", reason="signal", batch=number - 1)
leave(0)
