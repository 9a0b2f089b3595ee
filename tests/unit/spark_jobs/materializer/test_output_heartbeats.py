"""Heartbeats of the materializer's output: what every part of the source has promised in every input partition."""

from __future__ import annotations

import pytest

from spark_jobs.materializer.output_heartbeats import InputPromises
from spark_jobs.materializer.topics import Topic, heartbeat_complaints
from spark_jobs.reports.met_heartbeats import MetHeartbeat


def note(promises: InputPromises, partition: int, part: str, sent_us: int) -> int | None:
    promises.note(MetHeartbeat("t", partition, part, sent_us, sent_us))
    return promises.next_us()


def test_an_output_is_complete_up_to_the_earliest_promise_once_all_are_there() -> None:
    promises = InputPromises(2)
    assert promises.next_us() is None
    assert note(promises, 0, "0/2", 10) is None
    assert note(promises, 0, "1/2", 20) is None
    assert note(promises, 1, "1/2", 30) is None
    assert note(promises, 1, "0/2", 15) == 10
    assert note(promises, 1, "0/2", 40) is None  # the other partition is where it was
    assert note(promises, 0, "0/2", 5) is None  # a restarted source repeats itself
    assert note(promises, 0, "0/2", 50) == 20


def test_another_number_of_tasks_begins_again() -> None:
    promises = InputPromises(1)
    assert note(promises, 0, "0/2", 10) is None
    assert note(promises, 0, "1/2", 10) == 10
    assert note(promises, 0, "", 9) is None  # one task reads all now, and repeats itself
    assert note(promises, 0, "", 11) == 11
    assert note(promises, 0, "0/2", 12) is None


@pytest.mark.parametrize(("policy", "is_refused"), [("delete", False), ("compact", True), ("compact,delete", True)])
def test_a_compacted_output_is_refused(policy: str, is_refused: bool) -> None:
    complaints = heartbeat_complaints(Topic("t", "id", 1, {"cleanup.policy": policy}))
    assert bool(complaints) == is_refused
    assert all("materializer.output.heartbeats=false" in complaint for complaint in complaints)
