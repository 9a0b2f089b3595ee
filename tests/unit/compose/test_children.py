"""Looking at processes while they come and go."""

from __future__ import annotations

import os
import subprocess
import sys

from worker.process_tree import list_children


def test_the_children_of_a_living_process_are_seen() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in list_children(os.getpid())
    finally:
        child.communicate(b"\n")


def test_a_process_that_has_ended_has_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert list_children(child.pid) == []
