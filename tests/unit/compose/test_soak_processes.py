"""The resources that a soak reads of processes, and when it says that they have grown."""

import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from compose.soak.processes import Usage, find_growth, find_processes, list_descendants, measure

BEFORE = Usage(processes=8, memory_mib=1_000, files=400, sockets=100, threads=120)


def test_files_sockets_and_threads_of_this_process_are_counted() -> None:
    before = measure([os.getpid()])
    with socket.socket() as opened, socket.socket() as other:
        after = measure([os.getpid()])
        assert opened.fileno() != other.fileno()
    assert (after.files - before.files, after.sockets - before.sockets) == (2, 2)
    assert before.processes == 1
    assert before.memory_mib > 1
    assert before.threads >= 1


def test_a_process_that_has_ended_counts_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert measure([ended.pid]) == Usage()


def test_a_process_is_found_below_its_parent_and_by_its_arguments() -> None:
    argument = f"soak-argument-{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()  # it runs under its own arguments now
        assert child.pid in list_descendants(os.getpid())
        assert find_processes(argument) == [child.pid]
    assert find_processes(argument) == []


def test_what_stays_level_is_no_growth() -> None:
    after = Usage(processes=9, memory_mib=1_200, files=450, sockets=120, threads=140)
    assert find_growth("workers", BEFORE, after) == []
    assert find_growth("workers", BEFORE, Usage()) == []


@pytest.mark.parametrize(
    ("grown", "finding"),
    [
        ({"memory_mib": 1_400}, "workers: memory (MiB) went from 1000 to 1400"),
        ({"files": 600}, "workers: open files went from 400 to 600"),
        ({"sockets": 200}, "workers: sockets went from 100 to 200"),
        ({"threads": 200}, "workers: threads went from 120 to 200"),
        ({"processes": 20}, "workers: processes went from 8 to 20"),
    ],
)
def test_what_grows_is_named_with_both_numbers(grown: dict[str, int], finding: str) -> None:
    assert find_growth("workers", BEFORE, replace(BEFORE, **grown)) == [finding]
