"""The Prometheus exposition: format, names of each family, values, and that everything is declared."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.job_api import JobPartition, JobProgress
from tests.integration.metrics.public_queries import EXPECTED_EMPTY
from tests.support.eventually import pass_turns
from tests.support.prometheus_text import read_samples, rewrite
from tests.unit.metrics.exposition import Exposed, parse
from worker.control.state.verifications import metric_values
from worker.metrics.exporter import (
    ConnectorNumbers,
    Options,
    ProcessNumbers,
    WorkerStats,
    collect_parts,
    format_number,
    process_numbers,
    render_exposition,
    render_parts,
)
from worker.metrics.reference import render_metrics as reference
from worker.metrics.registry import CONNECT, METRICS, MILLRACE, Family
from worker.metrics.windows import ClientWindow, TaskTable
from worker.protocol import ClientStats, CustomMetric, HostTaskId, ProcessStats, Stats, TaskStats

GROUP = ClientStats("connect-w1", "consumer", 1, 2, 1, 100, 200, 10, 9, 40, 1, 0)
PROCESS = ProcessNumbers(
    1.5,
    1 << 20,
    1000.0,
    12,
    1 << 30,
    ProcessStats(7, (5, 2, 1), (0.5, 0.25, 0.125)),
    9,
    (GROUP, ClientStats("a", "admin", 1)),
    ClientWindow(GROUP, 40.0),
)
WALL = 2_000.0


def worker(**changes: object) -> WorkerStats:
    stats = WorkerStats(
        client_id="connect-w1",
        version="0.1.0",
        commit="abc",
        started_at=1000.0,
        protocol="faust",
        leader_name="http://w1:8083/",
        last_rebalance_at=1990.0,
        verifications={"my-file": metric_values({"state": "completed", "ended_ms": 1000, "result": None})},
        rebalances=2,
        rebalance_s=3.0,
        rebalance_s_max=2.0,
        leader=True,
        assigned_connectors=1,
        assigned_tasks=2,
        topics={"connect-configs": (True, False, 3)},
        task_startup_attempts=4,
        task_startup_success=3,
        task_startup_failure=1,
    )
    for name, value in changes.items():
        setattr(stats, name, value)
    return stats


def task(number_: int = 0, **changes: object) -> TaskStats:
    return TaskStats(
        HostTaskId("my-file", number_),
        **{  # type: ignore[arg-type]
            "state": "RUNNING",
            "started_at": 1900.0,
            "running_s": 80.0,
            "paused_s": 20.0,
            "polled": 100,
            "polls": 10,
            "written": 90,
            "commits": 4,
            "commit_s": 0.4,
            "commit_buckets": [0, 0, 1, 1, 4, 4, 4, 4, 4, 4, 4, 4],
            "lag_ms": 250.0,
            "active": 10,
            "active_max": 30,
            "batch_size_max": 25,
            **changes,
        },
    )


def job(number_: int = 0, **changes: object) -> TaskStats:
    progress = JobProgress(
        phase="running",
        batch=7,
        batch_rows=50,
        batch_s=0.5,
        busy_s=4.0,
        starts=2,
        rows_per_s=100.0,
        progress_at=1999.0,
        partitions=[JobPartition("in", 0, 10, 3), JobPartition("in", 1, 20, 5)],
    )
    return task(number_, **{"job": progress, "poll_s": 4.0, "poll_s_max": 0.5, "lag_ms": -1.0, **changes})


def table(*tasks: TaskStats) -> TaskTable:
    result = TaskTable()
    clients = [
        ClientStats("connector-producer-my-file-0", "producer", 2, 3, 1, 1000, 2000, 20, 19, 80, 0, 0),
        ClientStats("connector-producer-my-file-1", "producer", 1, bytes_out=5),
    ]
    result.observe(
        0,
        Stats(
            list(tasks), cpu_s=2.0, rss_bytes=5, loop_lag_s=0.25, connectors=1, clients=clients, process=ProcessStats(3)
        ),
        now=50.0,
    )
    return result


def exposed(
    *families: Family,
    tasks: TaskTable | None = None,
    connectors: tuple[ConnectorNumbers, ...] | None = None,
    stats: WorkerStats | None = None,
) -> dict[str, Exposed]:
    text = render_exposition(
        stats or worker(),
        connectors
        if connectors is not None
        else (ConnectorNumbers("my-file", "RUNNING", "FileStreamSource", "4.1.2"),),
        tasks or table(task(0), task(1, state="FAILED")),
        PROCESS,
        options=Options(families or (Family.A,)),
        now=50.0,
        wall=WALL,
    )
    return parse(text)


def value(metrics: dict[str, Exposed], name: str, /, **labels: str) -> float:
    return metrics[name].samples[name, tuple(labels.items())]


def test_family_a_has_the_names_of_strimzis_dashboards_and_alerts() -> None:
    metrics = exposed(Family.A)
    assert value(metrics, "kafka_connect_connector_status", connector="my-file", status="running") == 1
    assert value(metrics, "kafka_connect_connector_task_status", connector="my-file", task="1", status="failed") == 1
    assert value(metrics, "kafka_connect_worker_connector_failed_task_count", connector="my-file") == 1
    assert value(metrics, "kafka_connect_worker_connector_running_task_count", connector="my-file") == 1
    assert value(metrics, "kafka_connect_worker_connector_total_task_count", connector="my-file") == 2
    assert value(metrics, "kafka_connect_worker_task_count") == 2
    assert value(metrics, "kafka_connect_worker_rebalance_completed_rebalances_total") == 2
    assert value(metrics, "kafka_connect_worker_rebalance_rebalance_avg_time_ms") == 1500
    assert value(metrics, "kafka_connect_worker_rebalance_time_since_last_rebalance_ms") == 10_000
    assert value(metrics, "kafka_connect_coordinator_assigned_tasks", clientid="connect-w1") == 2
    assert value(metrics, "kafka_connect_source_task_source_record_poll_total", connector="my-file", task="0") == 100
    assert metrics["kafka_connect_source_task_source_record_poll_total"].kind == "counter"
    assert metrics["kafka_connect_source_task_source_record_poll_rate"].kind == "gauge"
    assert value(metrics, "kafka_connect_connector_task_running_ratio", connector="my-file", task="0") == 0.8
    assert value(metrics, "kafka_connect_task_error_total_record_failures", connector="my-file", task="0") == 0
    assert (
        value(
            metrics, "kafka_connect_connector_connector_class", connector="my-file", connector_class="FileStreamSource"
        )
        == 1
    )
    assert not any("percentage" in name for name in metrics if "task_offset" in name)


def test_family_b_has_the_names_of_confluents_and_aivens_dashboards() -> None:
    metrics = exposed(Family.B)
    assert value(metrics, "kafka_connect_connect_worker_metrics_connector_count", connector="aggregate") == 1
    assert value(metrics, "kafka_connect_connect_worker_metrics_connector_failed_task_count", connector="my-file") == 1
    assert value(metrics, "kafka_connect_connector_metrics", connector="my-file", status="running") == 1
    assert value(metrics, "kafka_connect_connector_metrics", connector="my-file", connector_type="source") == 1
    assert (
        value(metrics, "kafka_connect_source_task_metrics_source_record_write_total", connector="my-file", task="0")
        == 90
    )
    assert (
        value(
            metrics,
            "kafka_connect_connector_task_metrics_offset_commit_success_percentage",
            connector="my-file",
            task="0",
        )
        == 1
    )
    assert value(metrics, "kafka_connect_connect_coordinator_metrics_assigned_tasks", client_id="connect-w1") == 2
    assert value(metrics, "kafka_connect_app_info", client_id="connect-w1", version="0.1.0") == 1
    assert "kafka_connect_connect_worker_rebalance_metrics_epoch" in metrics
    assert not any(name.startswith("kafka_connect_worker_") for name in metrics)


def test_family_c_ends_texts_in_info() -> None:
    metrics = exposed(Family.C)
    assert value(metrics, "kafka_connect_connector_metrics_status_info", connector="my-file", status="running") == 1
    assert (
        value(
            metrics, "kafka_connect_connector_task_metrics_status_info", connector="my-file", task="1", status="failed"
        )
        == 1
    )
    assert value(metrics, "kafka_connect_connect_worker_metrics_connector_count") == 1


def test_a_connector_that_moves_data_itself_has_a_sinks_metrics() -> None:
    state_rows = CustomMetric("millrace_job_state_rows", "gauge", 3.0, {})
    hidden = CustomMetric("millrace_job_up", "gauge", 9.0, {})
    metrics = exposed(Family.A, tasks=table(job(custom=[state_rows, hidden])))
    labels = {"connector": "my-file", "task": "0"}
    for name, expected in {
        "kafka_connect_sink_task_sink_record_read_total": 100,
        "kafka_connect_sink_task_sink_record_send_total": 90,
        "kafka_connect_sink_task_sink_record_lag_max": 5,
        "kafka_connect_sink_task_partition_count": 2,
        "kafka_connect_sink_task_offset_commit_seq_no": 7,
        "kafka_connect_sink_task_put_batch_max_time_ms": 500,
        "kafka_connect_sink_task_put_batch_avg_time_ms": 400,
        "millrace_job_up": 1,
        "millrace_job_lag_records": 8,
        "millrace_job_retrying": 0,
        "millrace_job_starts_total": 2,
        "millrace_job_busy_seconds_total": 4,
        "millrace_job_state_rows": 3,
    }.items():
        assert value(metrics, name, **labels) == expected, name
    assert not [name for name in metrics if name.startswith("kafka_connect_source_task")]
    away = JobProgress(phase="retrying", partitions=[JobPartition("in", 0, 10, -1), JobPartition("in", 1, 20, 5)])
    metrics = exposed(Family.A, Family.D, tasks=table(job(job=away)))
    assert value(metrics, "millrace_job_retrying", **labels) == 1
    assert not {"millrace_job_lag_records", "kafka_connect_sink_task_sink_record_lag_max"} & metrics.keys()
    metrics = exposed(Family.A, tasks=table(job(job=JobProgress(phase="failed"), state="FAILED")))
    assert value(metrics, "millrace_job_up", **labels) == 0
    assert value(metrics, "kafka_connect_sink_task_offset_commit_seq_no", **labels) == -1
    metrics = exposed(Family.B, tasks=table(job()))
    assert value(metrics, "kafka_connect_sink_task_metrics_sink_record_lag_max", **labels) == 5


def test_our_own_metrics_are_there_in_every_family() -> None:
    for families in ((Family.A,), (Family.B,), (Family.A, Family.B, Family.C)):
        metrics = exposed(*families)
        assert value(metrics, "millrace_worker_leader") == 1
        assert value(metrics, "millrace_topic_unreadable_records_total", topic="connect-configs") == 3
        assert value(metrics, "millrace_host_loop_lag_seconds", host="0", environment="main") == 0.25
        assert value(metrics, "millrace_task_lag_seconds", connector="my-file", task="0") == 0.25
        assert value(metrics, "process_resident_memory_bytes") == 1 << 20
        commits = metrics["millrace_task_commit_duration_seconds"].samples
        labels = (("connector", "my-file"), ("task", "0"))
        assert commits["millrace_task_commit_duration_seconds_bucket", (*labels, ("le", "0.025"))] == 1
        assert commits["millrace_task_commit_duration_seconds_count", labels] == 4
        assert commits["millrace_task_commit_duration_seconds_sum", labels] == 0.4
        lags = metrics["millrace_connector_lag_seconds"].samples
        assert lags["millrace_connector_lag_seconds_count", (("connector", "my-file"),)] == 2


@pytest.mark.parametrize("families", [(Family.A,), (Family.B,), (Family.C,), tuple(Family)])
def test_everything_exposed_is_declared_and_everything_declared_is_exposed(families: tuple[Family, ...]) -> None:
    metrics = exposed(*families, tasks=table(task(0), task(1, state="FAILED"), job(2)))
    assert set(metrics) == {name for metric in METRICS for family in families for name in metric.exposed(family)}
    for metric in METRICS:
        for family in families:
            for index, name in enumerate(metric.exposed(family)):
                if metric.kind != "text":
                    assert metrics[name].kind == (metric.kind if index == 0 else "gauge")


def test_declarations_are_unique_and_explained() -> None:
    for family in Family:
        names = [name for metric in METRICS if metric.kind != "text" for name in metric.exposed(family)]
        assert len(set(names)) == len(names)
    assert all(metric.help.endswith(".") for metric in METRICS)
    assert all(metric.families for metric in CONNECT)
    assert not any(metric.families for metric in MILLRACE)


def test_the_reference_names_every_metric() -> None:
    page = reference()
    for metric in METRICS:
        for family in Family:
            assert all(name in page for name in metric.exposed(family) or [metric.name])


def test_the_page_names_what_stays_empty_in_public_dashboards() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    names = {name.partition("[")[0].replace("_connect_worker_metrics_", "_worker_") for name in EXPECTED_EMPTY}
    assert all(name.replace("kafka_connect_worker_connector_destroyed", "..._destroyed") in page for name in names), (
        names
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_survives_as_a_label(name: str, text: str) -> None:
    tasks = TaskTable()
    tasks.observe(
        0,
        Stats([TaskStats(HostTaskId(name, 0), custom=[CustomMetric("x y", "gauge", 1.0, {"a-b": text})])], 0, 0, 0),
        0,
    )
    rendered = render_exposition(
        worker(), [ConnectorNumbers(name, "RUNNING", "c", "1")], tasks, PROCESS, now=0, wall=WALL
    )
    # the format's lines end with \n only
    assert all(line for line in rendered.split("\n")[:-1])
    metrics = parse_lines(rendered)
    assert value(metrics, "kafka_connect_connector_status", connector=name, status="running") == 1
    assert metrics["x_y"].samples["x_y", (("connector", name), ("task", "0"), ("a_b", text))] == 1


def parse_lines(text: str) -> dict[str, Exposed]:
    """``str.splitlines`` knows more line ends than the format: keep those out of the way."""
    line_ends = dict.fromkeys(map(ord, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))
    stand_ins = {char: chr(0xE000 + index) for index, char in enumerate(line_ends)}
    back = {ord(stand_in): chr(char) for char, stand_in in stand_ins.items()}
    return {
        name: Exposed(
            family.kind,
            family.text,
            {
                (sample, tuple((label, item.translate(back)) for label, item in labels)): number_
                for (sample, labels), number_ in family.samples.items()
            },
        )
        for name, family in parse(text.translate(stand_ins)).items()
    }


def test_custom_metrics_carry_their_kind_help_and_labels() -> None:
    custom = [CustomMetric("debezium_metrics_RowsScanned", "counter", 7, {"table": "a.b", "task": "ignored"})]
    text = render_exposition(
        worker(),
        [],
        table(task(0, custom=custom)),
        PROCESS,
        now=0,
        wall=WALL,
        options=Options(custom_help={"debezium_metrics_RowsScanned": "Rows read so far."}),
    )
    metric = parse(text)["debezium_metrics_RowsScanned"]
    assert (metric.kind, metric.text) == ("counter", "Rows read so far.")
    labels = (("connector", "my-file"), ("task", "0"), ("table", "a.b"))
    assert list(metric.samples) == [("debezium_metrics_RowsScanned", labels)]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
@example("1st", "2nd")
@example("", "")
def test_any_name_of_a_connector_is_made_one_that_scrapers_take(metric: str, label: str) -> None:
    text = render_exposition(
        worker(), [], table(task(0, custom=[CustomMetric(metric, "gauge", 7, {label: "x"})])), PROCESS, now=0, wall=WALL
    )
    assert 7 in [number_ for family in parse(text).values() for number_ in family.samples.values()]


def test_kafka_clients_have_their_names_in_each_family() -> None:
    metrics = exposed(Family.A)
    client = {"clientid": "connector-producer-my-file-0"}
    assert value(metrics, "kafka_producer_outgoing_byte_total", **client) == 2000
    assert value(metrics, "kafka_producer_connection_count", **client) == 2
    assert value(metrics, "kafka_consumer_incoming_byte_total", clientid="connect-w1") == 100
    assert value(metrics, "kafka_admin_client_connection_count", clientid="a") == 1
    metrics = exposed(Family.B, Family.C)
    for name in (
        "kafka_producer_producer_metrics_outgoing_byte",
        "kafka_producer_producer_metrics_outgoing_byte_total",
        "kafka_producer_producer_node_metrics_outgoing_byte",
    ):
        assert value(metrics, name, client_id="connector-producer-my-file-0") == 2000
    assert value(metrics, "kafka_connect_connect_metrics_connection_count", client_id="connect-w1") == 1
    assert value(metrics, "kafka_connect_connect_metrics_failed_authentication", client_id="connect-w1") == 0
    metrics = exposed(Family.D)
    window = ClientWindow(GROUP, 10.0)
    window.observe(ClientStats("connect-w1", "consumer", bytes_in=1100, bytes_out=200), 20.0)
    text = render_exposition(
        worker(), [], table(), replace(PROCESS, group=window), options=Options((Family.D,)), now=50.0, wall=WALL
    )
    assert value(parse(text), "kafka_connect_metrics_incoming_byte_rate", client="connect-w1") == 100
    assert value(metrics, "kafka_connect_worker_metrics_task_count") == 2


def test_clients_beyond_the_bound_share_a_series() -> None:
    text = render_exposition(
        worker(), [], table(), PROCESS, options=Options((Family.A,), most_clients=1), now=50.0, wall=WALL
    )
    samples = parse(text)["kafka_producer_outgoing_byte_total"].samples
    assert {labels: number_ for (_, labels), number_ in samples.items()} == {
        (("clientid", "connector-producer-my-file-0"),): 2000,
        (("clientid", "other"),): 5,
    }


def test_the_series_of_all_other_clients_never_falls() -> None:
    numbers = TaskTable()

    def count_others(host: int, **sent: int) -> float:
        clients = [ClientStats(name, "producer", 1, bytes_out=count) for name, count in sent.items()]
        numbers.observe(host, Stats([], cpu_s=0, rss_bytes=0, loop_lag_s=0, connectors=0, clients=clients), now=50.0)
        options = Options((Family.A,), most_clients=1)
        text = render_exposition(worker(), [], numbers, PROCESS, options=options, now=50.0, wall=WALL)
        samples = parse(text)["kafka_producer_outgoing_byte_total"].samples
        return {labels[0][1]: count for (_, labels), count in samples.items()}.get("other", 0)

    assert count_others(0, first=100) == 0
    assert count_others(1, second=1000, third=10) == 1010
    assert count_others(1, second=1000, third=15) == 1015
    assert count_others(0) == 1015, "another one has the first client's series, and leaves its part"
    assert count_others(1, second=1100, third=16) == 1016
    assert count_others(1, second=3, third=2) == 1018, "the host was replaced: its clients count from 0"
    assert count_others(1) == 1018


def test_both_generations_of_the_exporter() -> None:
    metrics = exposed(Family.B)
    for name in ("kafka_connect_app_info", "kafka_connect_app"):
        assert value(metrics, name, client_id="connect-w1", version="0.1.0") == 1
        assert value(metrics, name, client_id="connect-w1", start_time_ms="1000000") == 1
        assert value(metrics, name, client_id="connect-w1", commit_id="abc") == 1
    for name in (
        "kafka_connect_connect_worker_rebalance_metrics_completed_rebalances",
        "kafka_connect_connect_worker_rebalance_metrics_completed_rebalances_total",
    ):
        assert value(metrics, name) == 2
    metrics = exposed(Family.A)
    assert value(metrics, "kafka_connect_version_info", clientid="connect-w1", version="0.1.0") == 1
    assert value(metrics, "kafka_connect_start_time_seconds", clientid="connect-w1") == 1000


def test_stand_ins_for_a_jvm_can_be_left_out() -> None:
    metrics = exposed(Family.A)
    assert value(metrics, "jvm_memory_used_bytes", process="control", area="heap") == 1 << 20
    assert value(metrics, "jvm_memory_bytes_max", process="host-0", area="heap") == 1 << 30
    assert value(metrics, "jvm_threads_current", process="host-0") == 3
    assert value(metrics, "jvm_threads_peak", process="control") == 9
    assert value(metrics, "jvm_gc_collection_seconds_sum", process="control", gc="python generation 1") == 0.25
    text = render_exposition(worker(), [], table(), PROCESS, options=Options(jvm=False), now=50.0, wall=WALL)
    assert "jvm_" not in text


def test_debezium_metrics_bring_the_queue_and_can_be_left_out() -> None:
    labels = {"plugin": "mysql", "name": "crm", "context": "streaming"}
    custom = [
        CustomMetric("debezium_metrics_Connected", "gauge", 1, labels),
        CustomMetric("debezium_metrics_SnapshotRunning", "gauge", 0, {**labels, "context": "snapshot"}),
    ]
    tasks = table(task(0, custom=custom, active=10, active_limit=100, active_bytes=7, active_limit_bytes=50))
    metrics = exposed(Family.D, tasks=tasks)
    at = {"connector": "my-file", "task": "0", **labels}
    assert value(metrics, "debezium_metrics_Connected", **at) == 1
    assert value(metrics, "debezium_metrics_QueueTotalCapacity", **at) == 100
    assert value(metrics, "debezium_metrics_QueueRemainingCapacity", **{**at, "context": "snapshot"}) == 90
    assert value(metrics, "debezium_metrics_CurrentQueueSizeInBytes", **at) == 7
    assert not [name for name in exposed(Family.A, tasks=tasks) if name.startswith("debezium_")]


async def test_a_large_exposition_lets_other_work_in() -> None:
    table_ = table(*(task(number_) for number_ in range(3000)))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await pass_turns()

    running = asyncio.create_task(other())
    body, longest = await collect_parts(render_parts(worker(), [], table_, PROCESS, now=50.0, wall=WALL))
    running.cancel()
    assert turns > 3
    assert longest > 0
    assert body.decode() == render_exposition(worker(), [], table_, PROCESS, now=50.0, wall=WALL)
    assert body.count(b"\nkafka_connect_source_task_source_record_poll_total{") == 3000


def test_nothing_runs_nothing_fails() -> None:
    metrics = exposed(tasks=TaskTable(), connectors=(), stats=WorkerStats())
    assert value(metrics, "kafka_connect_worker_task_count") == 0
    assert "kafka_connect_connector_status" not in metrics
    assert "kafka_connect_worker_rebalance_time_since_last_rebalance_ms" not in metrics


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (True, "1"),
        (False, "0"),
        (3, "3"),
        (0.5, "0.5"),
        (float("nan"), "NaN"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (1e22, "1e+22"),
    ],
)
def test_numbers_are_written_as_the_format_has_them(number: float, text: str) -> None:
    assert format_number(number) == text


def test_the_process_measures_itself() -> None:
    numbers = process_numbers(5.0)
    assert numbers.cpu_s > 0
    assert numbers.rss_bytes > 1 << 20
    assert numbers.started_at == 5.0


def test_another_writer_of_the_format_says_the_same() -> None:
    custom = CustomMetric("rows_total", "counter", 3.5, {"table": 'a"b\\c\nd'})
    text = render_exposition(
        worker(),
        (),
        table(task(0, custom=[custom]), job(1)),
        PROCESS,
        options=Options(tuple(Family)),
        now=50.0,
        wall=WALL,
    )
    samples = read_samples(text)
    assert samples == read_samples(rewrite(text))
    assert sum(map(len, samples.values())) == sum(not line.startswith("#") for line in text.splitlines()) > 500
