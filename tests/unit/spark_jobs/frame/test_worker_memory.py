"""Objects of a Python worker that stay are looked at by the garbage collector once only."""

from __future__ import annotations

import gc
import secrets
from typing import TYPE_CHECKING

import pytest

from spark_jobs.spark.session import DEFAULTS
from spark_jobs.spark.worker_memory import frozen_after

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def doubled(batches: Iterator[int]) -> Iterator[int]:
    for batch in batches:
        yield 2 * batch


@pytest.mark.usefixtures("thawed")
def test_a_process_freezes_after_the_first_task_of_each_kind() -> None:
    kind = secrets.token_hex(4)
    before = gc.get_freeze_count()

    assert list(frozen_after(kind, doubled)(iter([1, 2]))) == [2, 4]
    first = gc.get_freeze_count()
    assert first > before

    kept = [[number] for number in range(10_000)]
    assert list(frozen_after(kind, doubled)(iter([3]))) == [6]
    assert gc.get_freeze_count() <= first, "the second task of a kind freezes nothing"

    assert list(frozen_after(f"{kind} other", doubled)(iter([4]))) == [8]
    assert gc.get_freeze_count() >= first + len(kept) - 100, "another kind has loaded modules of its own"


@pytest.mark.usefixtures("thawed")
def test_a_task_that_ends_early_freezes_nothing() -> None:
    rows = frozen_after(secrets.token_hex(4), doubled)(iter([1, 2]))
    before = gc.get_freeze_count()
    assert next(rows) == 2
    del rows
    assert gc.get_freeze_count() <= before


def test_options_of_the_jvm_can_be_overridden() -> None:
    # Spark puts spark.driver.extraJavaOptions, which is a job's, behind these: the last one of two counts in Java.
    assert DEFAULTS["spark.driver.defaultJavaOptions"] == "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    assert "spark.driver.extraJavaOptions" not in DEFAULTS
