"""The materializer's latencies by stage: what is sampled of which change, and the sums and quantiles of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateRow
from spark_jobs.materializer.job import MaterializerSink
from spark_jobs.materializer.metrics import TOTALS
from spark_jobs.materializer.passes import Result
from spark_jobs.materializer.stages import StageHistogram, StageNumbers, Stages
from tests.support.materializer import PLAIN, Bench, MemoryRegistry, Written, source


@given(st.lists(st.integers(-5, 1 << 40), min_size=1), st.floats(0.01, 1))
def test_quantiles_are_a_little_too_high_at_most(values: list[int], share: float) -> None:
    halves = StageHistogram(), StageHistogram()
    for number, value in enumerate(values):
        halves[number % 2].add(value)
    merged = StageHistogram()
    for half in halves:
        merged.merge(half)
    ordered = sorted(max(value, 0) for value in values)
    exact = ordered[math.ceil(share * len(values) - 1e-9) - 1]
    assert exact <= merged.quantile(share) <= max(exact * 1.125, exact)
    assert (merged.count, merged.total, merged.largest) == (len(values), sum(ordered), ordered[-1])
    assert StageHistogram().quantile(share) == 0


@pytest.mark.parametrize("appended", [False, True])
def test_a_change_gives_its_way_once(appended: bool) -> None:
    """Copies from other replicas and snapshot rows report no latencies; a topic may say when it got a record."""
    bench = Bench(registry=(registry := MemoryRegistry()), input_encoding="avro")
    written = Written(PLAIN, registry)

    def record(at_ms: int, *, snapshot: bool = False) -> None:
        when = CellStamp(at_ms * 1000)
        message = written.record(
            PartitionUpdate(
                source=source(snapshot=snapshot),
                key=("a",),
                write_time=when.write_time,
                rows=(UpdateRow((), when, None, (Cell("n", None, at_ms, when),)),),
            )
        )
        bench.apply(message._replace(timestamp_ms=5 if appended else at_ms))  # all were read at 7 ms
        bench.now_s += 1

    bench.now_s = 1
    for at_ms in (3, 3, 2, 4):
        record(at_ms)
    record(5, snapshot=True)
    histograms = bench.engine.stages.take()
    ways = {stage: (histogram.count, histogram.total) for stage, histogram in histograms.items()}
    assert ways == {"write_to_rows": (2, 997 + 3996), "write_to_read": (2, 4 + 3), "read_to_rows": (2, 993 + 3993)}
    assert bench.engine.stages.take() == {}


def test_the_topics_own_time_counts_where_it_is_one() -> None:
    stages = Stages()
    stages.sample(1_000_000, 1_200, 1_250, 2_000_000_000)
    assert stages.due_ns == 2_001_000_000
    totals = {stage: histogram.total for stage, histogram in stages.take().items()}
    assert totals == {
        "write_to_read": 200,
        "read_to_topic": 50,
        "topic_to_rows": 750,
        "read_to_rows": 800,
        "write_to_rows": 1000,
    }


def test_numbers_of_a_job_are_of_the_last_batch_and_since_the_start() -> None:
    numbers = StageNumbers()

    def batch(*values: int) -> dict[str, float]:
        stages = Stages()
        for value in values:
            stages.sample(0, None, 0, value * 1_000_000)
        return numbers.metrics([stages.take(), {}])

    assert batch() == {}
    assert batch(2, 4, 6)["materializer_latency_write_to_rows_ms_p50"] == 4
    assert batch(100) == {
        "materializer_latency_write_to_rows_ms_p50": 100,
        "materializer_latency_write_to_rows_ms_p99": 100,
        "materializer_latency_write_to_rows_ms_max": 100,
        "materializer_latency_write_to_rows_ms_total": 112,
        "materializer_latency_write_to_rows_samples_total": 4,
    }


def test_what_the_materializer_counts_is_declared() -> None:
    """So that the reference has it, and Prometheus its type and meaning."""
    assert set(TOTALS) <= set(Result.__struct_fields__)
    stages = Stages()
    stages.sample(1_000_000, 1_500, 1_600, 2_000_000_000)
    numbers = StageNumbers().metrics([stages.take()])
    assert len(numbers) == 25
    assert set(numbers) <= {metric.name for metric in MaterializerSink.metrics}
