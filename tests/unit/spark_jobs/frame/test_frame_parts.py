"""Causes of failures, events, metrics, the package of our code."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from importlib.metadata import distribution, distributions
from typing import TYPE_CHECKING, Any

import pytest

from connectors.entry_points import own_entries
from connectors.errors import ConfigInvalid, Fatal, Retriable, Skippable
from spark_jobs import cli
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.metrics import FRAME_METRICS, STEP_METRICS, TABLE_METRICS, Exporter, JobMetric, JobNumbers
from spark_jobs.reports.progress import EventWriter, Human, compute_lags, describe_event, nest_offsets
from spark_jobs.spark import package
from spark_jobs.spark.causes import cause_of, may_pass
from tests.support.prometheus_text import read_samples, rewrite
from worker.secrets.masking import mask_patterns

if TYPE_CHECKING:
    from pathlib import Path

IN_TASK = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
{name}: the table orders is locked
by session 5

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("connectors.errors.Fatal", Fatal),
        ("connectors.errors.Retriable", Retriable),
        ("connectors.errors.ConfigInvalid", ConfigInvalid),
        ("connectors.cql.cluster.failures.NodesAway", Retriable),
        ("connectors.cql.mutations.reference.Damaged", Skippable),
        ("spark_jobs.control.AlreadyRuns", Fatal),
        ("pyspark.errors.exceptions.base.PythonException: connectors.scylla.schema.tables.TableUnavailable", Retriable),
    ],
)
def test_our_errors_come_back_from_tasks(name: str, kind: type[Exception]) -> None:
    text = IN_TASK.format(name=name)
    error = cause_of(RuntimeError(text))
    assert type(error) is kind
    assert str(error) == "the table orders is locked\nby session 5"
    assert getattr(error, "trace", None) == text


def test_a_name_in_the_text_of_an_error_is_part_of_the_text() -> None:
    error = cause_of(RuntimeError("connectors.errors.Retriable: connectors.errors.Fatal: shop.orders: locked"))
    assert type(error) is Retriable
    assert str(error) == "connectors.errors.Fatal: shop.orders: locked"


@pytest.mark.parametrize("name", ["no_such_package.Error", "connectors.errors.NoSuchError", "pyarrow.lib.ArrowInvalid"])
def test_other_errors_of_tasks_stay_as_they_are(name: str) -> None:
    error = RuntimeError(IN_TASK.format(name=name))
    assert cause_of(error) is error


def test_causes_are_followed() -> None:
    inner, outer = Retriable("away"), RuntimeError("wrapped")
    outer.__cause__ = inner
    assert cause_of(outer) is inner
    plain = ValueError("connectors.errors.Fatal is only mentioned")
    assert cause_of(plain) is plain
    memory = cause_of(RuntimeError("x\njava.lang.OutOfMemoryError: Java heap space"))
    assert isinstance(memory, Fatal)
    assert "spark.driver.memory" in str(memory)


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (Retriable("x"), True),
        (Fatal("x"), False),
        (ConfigInvalid("x"), False),
        (ConnectionResetError("x"), True),
        (ValueError("x"), False),
        (KeyError("x"), False),
    ],
)
def test_what_may_pass(error: Exception, *, passing: bool) -> None:
    assert may_pass(error) is passing


def test_network_errors_of_the_gateway_may_pass() -> None:
    from py4j.protocol import Py4JNetworkError

    assert may_pass(Py4JNetworkError("Answer from Java side is empty"))


def test_events_are_lines_without_secrets() -> None:
    out = io.StringIO()
    seen_events: list[dict[str, Any]] = []
    events = EventWriter("j", out, scrub=lambda text: text.replace("hunter2", "[hidden]"), on_event=seen_events.append)
    events.emit("failed", error="password hunter2 is\nwrong", retriable=False)
    line = out.getvalue()
    assert line.count("\n") == 1
    assert json.loads(line)["error"] == "password [hidden] is\nwrong"
    assert seen_events == [json.loads(line)]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"error": 'refused: password="hunter2"'}, {"error": 'refused: password="[hidden]"'}),
        ({"error": "token: 'hunter2 cut", "retriable": True}, {"error": "token: '[hidden]'", "retriable": True}),
        ({"error": '{"password": "hunter2"}'}, {"error": '{"password": "[hidden]"}'}),
        ({"position": {"user-token": {"0": 5}}}, {"position": {"user-token": {"0": 5}}}),
        ({"lag": {"secret": 3}}, {"lag": {"secret": 3}}),
    ],
)
def test_events_are_whole_whatever_is_masked_in_them(fields: dict[str, Any], shown: dict[str, Any]) -> None:
    out = io.StringIO()
    seen_events: list[dict[str, Any]] = []
    EventWriter("j", out, scrub=mask_patterns, on_event=seen_events.append).emit("failed", **fields)
    assert seen_events == [json.loads(out.getvalue())]
    assert {name: seen_events[0][name] for name in fields} == shown


def test_events_that_no_one_reads_are_reported_once() -> None:
    broken: list[int] = []
    out = io.StringIO()
    out.close()
    events = EventWriter("j", out, on_broken=lambda: broken.append(1))
    events.emit("progress")
    events.emit("progress")
    assert broken == [1]


def progress(**more: object) -> dict[str, object]:
    return {
        "event": "progress",
        "job": "j",
        "batch": 4,
        "rows": 10,
        "written": 9,
        "duration_ms": 500,
        "rows_per_s": 20.0,
        "committed": True,
        "lag": {"t": {"0": 3, "1": 4}},
        "position": {"t": {"0": 7, "1": 8}},
        "lag_total": 7,
        "lag_max": 4,
        "metrics": {"files": 2},
        "spark_ms": {"addBatch": 400},
        **more,
    }


def test_metrics_text() -> None:
    numbers = JobNumbers('j"x', (JobMetric("files", "gauge", "files", "Files\nwritten."),))
    numbers.take({"event": "started"}, 1.0)
    numbers.take(progress(), 2.0)
    numbers.take(progress(batch=5), 3.0)
    numbers.take(progress(rows=0, committed=False, duration_ms=0), 4.5)
    numbers.take({"event": "retrying"}, 5.0)
    lines = numbers.text().splitlines()
    for expected in (
        'millrace_job_up{job="j\\"x"} 1',
        'millrace_job_records_total{job="j\\"x"} 20',
        'millrace_job_batches_total{job="j\\"x"} 2',
        'millrace_job_busy_seconds_total{job="j\\"x"} 1',
        'millrace_job_lag_records{job="j\\"x",topic="t",partition="1"} 4',
        'millrace_job_files{job="j\\"x"} 2',
        'millrace_job_phase_seconds{job="j\\"x",phase="addBatch"} 0.4',
        'millrace_job_retries_total{job="j\\"x"} 1',
        'millrace_job_progress_timestamp_seconds{job="j\\"x"} 4.5',
        'millrace_job_batch_records{job="j\\"x"} 10',
        "# TYPE millrace_job_records_total counter",
    ):
        assert expected in lines
    assert 'millrace_job_retrying{job="j\\"x"} 1' in lines
    # A sign of life is no recovery, and a lag that is not known is no 0.
    numbers.take(
        progress(rows=0, committed=False, duration_ms=0, lag={}, lag_total=None, retrying={"error": "away"}), 5.5
    )
    lines = numbers.text().splitlines()
    assert 'millrace_job_retrying{job="j\\"x"} 1' in lines
    assert not [
        line for line in lines if line.startswith(("millrace_job_offsets_behind_latest", "millrace_job_lag_records"))
    ]
    numbers.take(progress(rows=0, committed=False, duration_ms=0), 5.7)
    assert 'millrace_job_retrying{job="j\\"x"} 0' in numbers.text().splitlines()
    numbers.take({"event": "failed"}, 6.0)
    assert 'millrace_job_up{job="j\\"x"} 0' in numbers.text().splitlines()


def test_another_writer_of_the_format_says_the_same() -> None:
    numbers = JobNumbers('j"x\\', (JobMetric("files", "gauge", "files", "Files\nwritten, in C:\\data."),))
    numbers.take(progress(), 2.0)
    samples = read_samples(numbers.text())
    assert samples == read_samples(rewrite(numbers.text()))
    assert ("millrace_job_files", "gauge", "Files\nwritten, in C:\\data.") in samples


def test_every_declared_metric_is_fed() -> None:
    numbers = JobNumbers("j")
    step = {metric.name.removeprefix("step_"): 2.5 for metric in STEP_METRICS}
    table = {metric.name.removeprefix("table_"): 0.5 for metric in TABLE_METRICS}
    numbers.take(progress(metrics={"dead_letters_total": 1}, steps={"sums": step}, tables={"shop.orders": table}), 1.0)
    text = numbers.text()
    assert 'millrace_job_step_state_rows{job="j",step="sums"} 2.5' in text.splitlines()
    assert 'millrace_job_table_delay_seconds{job="j",table="shop.orders"} 0.5' in text.splitlines()
    assert [metric.name for metric in FRAME_METRICS if f"\nmillrace_job_{metric.name}{{" not in text] == []


def test_the_exporter_answers_and_a_taken_port_is_said() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    numbers = JobNumbers("j")
    exporter = Exporter("127.0.0.1", port, numbers)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert answer.read().decode() == numbers.text()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other")
        with pytest.raises(Fatal, match=f"metrics.port {port} of 127.0.0.1 can't be had"):
            Exporter("127.0.0.1", port, numbers)
    finally:
        exporter.close()


def test_lag_and_nesting() -> None:
    assert compute_lags({("t", 0): 5, ("t", 1): 9}, {("t", 0): 8, ("t", 1): 7, ("t", 2): 3}) == {
        ("t", 0): 3,
        ("t", 1): 0,
    }
    assert nest_offsets({("t", 10): 1, ("t", 9): 2, ("a", 0): 3}) == {"a": {"0": 3}, "t": {"9": 2, "10": 1}}


def test_words_for_people() -> None:
    assert describe_event(progress()) == "j: batch 4: 10 records in 0.5 s (20/s), 9 written, lag 7"
    out = io.StringIO()
    human = Human(out)
    for _ in range(3):
        human.write(json.dumps(progress(rows=0)))
    assert out.getvalue() == "millrace: j: records are waiting; lag 7\n"
    assert describe_event(progress(rows=0, lag_total=0)) == "j: no new records; lag 0"
    assert describe_event(progress(rows=0, lag_total=None)) == "j: no new records; lag unknown"
    trouble = {"part": "batch", "since": "2026-11-21T00:00:00.000Z", "attempts": 3, "error": "away"}
    assert (
        describe_event(progress(rows=0, retrying=trouble))
        == "j: batch: retrying since 2026-11-21T00:00:00.000Z: away; lag 7"
    )


def test_a_bad_record_stops_the_job_and_says_where() -> None:
    with pytest.raises(
        Fatal, match=r"the record at t-3 offset 17 can't be decoded: no JSON\. .* errors\.tolerance=all"
    ):
        DeadLetters("j", tolerant=False).report("t", 3, 17, None, b"x", ValueError("no JSON"))


def test_bad_records_without_a_topic_are_counted() -> None:
    class Counter:
        value = 0

        def add(self, more: int) -> None:
            self.value += more

    counter = Counter()
    with DeadLetters("j", tolerant=True, counter=counter) as letters:
        letters.report("t", 0, 1, None, None, "bad")
    assert counter.value == 1


def test_a_folder_for_the_package_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.json"
    file.touch()
    assert cli.main(["package", str(file)]) == cli.INVALID
    assert capsys.readouterr().err == f"millrace: {file}: File exists\n"


def test_the_package_is_complete_and_the_same_every_time(tmp_path: Path) -> None:
    first, second = package.zip_bytes(), package.zip_bytes()
    assert first == second
    path = package.build_zip(tmp_path)
    assert path == package.build_zip(tmp_path)
    names = zipfile.ZipFile(path).namelist()
    folders = {name.partition("/")[0] for name in names}
    assert {name for name in folders if not name.endswith(".dist-info")} == set(package.PACKAGES)
    assert not [name for name in names if "__pycache__" in name]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import spark_jobs.dead_letters, worker.converters.avro as it; "
        "print(it.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.startswith(str(path))
    # A Python worker of an executor has the zip alone: the masks' functions are found by its entry points.
    (described,) = distributions(path=[str(path)])
    assert (described.name, described.version) == ("millrace", distribution("millrace").version)
    declared = {entry.name for entry in described.entry_points if entry.group == "millrace.masks"}
    assert declared == set(own_entries("millrace.masks"))
