"""The reports of Spark's and Java's errors: the cause, the fix, and whether the batch is retried."""

from __future__ import annotations

import pytest

from connectors.errors import Fatal, Retriable
from spark_jobs.spark.causes import JavaCause, WorkerCrashed, cause_of, describe_error, java_causes, known_cause
from spark_jobs.spark.jvm import ended_text, explain_start

LOST = (
    "An error occurred while calling o130.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage "
    "failure: Task 1 in stage 3.0 failed 1 times, most recent failure: Lost task 1.0 in stage 3.0 (TID 7) (10.0.0.1 "
    "executor driver): {cause}\n\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.x(PythonRunner.scala:7)\n"
)
CRASHED = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"


def test_a_crashed_worker_is_another_error_than_one_that_the_watchdog_ended() -> None:
    crashed = cause_of(RuntimeError(LOST.format(cause=f"{CRASHED}: ")))
    assert type(crashed) is WorkerCrashed
    assert str(crashed).startswith("a Python worker process died without saying why")
    fault = cause_of(RuntimeError(LOST.format(cause=f"{CRASHED}: Fatal Python error: Segmentation fault\n\nThread 1")))
    assert type(fault) is WorkerCrashed
    assert "died: Fatal Python error: Segmentation fault" in str(fault)
    said = (
        "millrace watchdog: commit_transaction of j-0 did not return within 30 s; this Python worker (process 1) ends"
    )
    ended = cause_of(RuntimeError(LOST.format(cause=f"{CRASHED}: {said}")))
    assert type(ended) is Retriable
    assert str(ended).startswith(
        "a call into Kafka's client hung: commit_transaction of j-0 did not return within 30 s"
    )
    advice = f"{CRASHED}. Consider setting 'spark.sql.execution.pyspark.udf.faulthandler.enabled' for the traceback."
    assert "without saying why" in str(cause_of(RuntimeError(LOST.format(cause=advice))))


@pytest.mark.parametrize("kind", ["java.io.EOFException", "java.net.SocketException: Broken pipe"])
def test_a_worker_that_dies_while_it_starts_has_crashed_too(kind: str) -> None:
    text = (
        f"Job aborted: x\nCaused by: {kind}\n\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)\n"
        "\tat org.apache.spark.api.python.PythonWorkerFactory.createWorker$1(PythonWorkerFactory.scala:195)\n"
    )
    assert type(cause_of(RuntimeError(text))) is WorkerCrashed
    other = (
        f"Job aborted: x\nCaused by: {kind}\n\tat org.apache.hadoop.hdfs.DFSInputStream.read(DFSInputStream.java:1)\n"
    )
    assert type(cause_of(RuntimeError(other))) is not WorkerCrashed


def test_a_worker_that_dies_before_its_first_task_has_crashed_too() -> None:
    cause = "java.lang.IllegalStateException: Python daemon failed to launch worker."
    assert type(cause_of(RuntimeError(LOST.format(cause=cause)))) is WorkerCrashed


@pytest.mark.parametrize(
    ("chain", "kind", "words"),
    [
        (
            [
                JavaCause("java.lang.RuntimeException", "java.lang.ClassNotFoundException: Class x"),
                JavaCause("java.lang.ClassNotFoundException", "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"),
            ],
            Fatal,
            ["S3AFileSystem not found", "org.apache.hadoop:hadoop-aws:3"],
        ),
        (
            [JavaCause("java.lang.IllegalArgumentException", "System memory 419430400 must be at least 471859200.")],
            Fatal,
            ["System memory 419430400", "spark.driver.memory"],
        ),
        (
            [
                JavaCause("org.apache.spark.SparkException", "Job aborted"),
                JavaCause("java.io.IOException", "No space left on device"),
            ],
            Retriable,
            ["No space left on device", "make room"],
        ),
        (
            [
                JavaCause(
                    "org.apache.spark.SparkException",
                    "Job aborted: Lost task 0.0 (TID 1) (h executor driver): "
                    "java.lang.OutOfMemoryError: Java heap space\n\tat x",
                )
            ],
            Fatal,
            ["Java heap space", "spark.driver.memory"],
        ),
        (
            [JavaCause("org.apache.hadoop.fs.UnsupportedFileSystemException", 'No FileSystem for scheme "s4"')],
            Fatal,
            ['"s4"', "checkpoint.location"],
        ),
        (
            [
                JavaCause("java.util.concurrent.ExecutionException", "x"),
                JavaCause("org.apache.kafka.common.errors.TimeoutException", "Call(callName=describeTopics) timed out"),
            ],
            Retriable,
            ["describeTopics", "kafka.bootstrap.servers"],
        ),
        (
            [JavaCause("org.apache.kafka.common.errors.SaslAuthenticationException", "Authentication failed")],
            Fatal,
            ["Authentication failed", "kafka.sasl"],
        ),
        (
            [JavaCause("java.net.ConnectException", "Connection refused")],
            Retriable,
            ["Connection refused", "the server runs"],
        ),
    ],
)
def test_known_errors_of_java_name_the_cause_and_the_fix(
    chain: list[JavaCause], kind: type[Exception], words: list[str]
) -> None:
    error = known_cause(chain, "the trace")
    assert type(error) is kind
    assert [word for word in words if word not in str(error)] == []
    assert getattr(error, "trace", None) == "the trace"


def test_unknown_errors_of_java_are_shown_by_their_innermost_cause() -> None:
    text = (
        "An error occurred while calling o39.getFileSystem.\n: java.lang.RuntimeException: outer\n\tat x.y(Z.java:1)\n"
        "Caused by: com.acme.OddException: the cupboard is bare\n\t... 3 more\n"
    )
    error = RuntimeError(text)
    assert [cause.kind for cause in java_causes(error)] == ["java.lang.RuntimeException", "com.acme.OddException"]
    assert cause_of(error) is error
    assert describe_error(error) == (
        "com.acme.OddException: the cupboard is bare (Spark was in getFileSystem; java.lang.RuntimeException: outer)"
    )
    assert describe_error(ValueError("plain")) == "plain"
    assert describe_error(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (-9, "", ["process 7", "killed by signal 9 (SIGKILL)", "wrote nothing", "ran out of memory"]),
        (-6, "# SIGSEGV (0xb)", ["killed by signal 6 (SIGABRT)", "# SIGSEGV (0xb)", "hs_err_pid"]),
        (1, "Invalid maximum heap size: -Xmx1x", ["exit code 1", "Invalid maximum heap size", "spark.driver.memory"]),
    ],
)
def test_how_a_jvm_ended(code: int, said: str, words: list[str]) -> None:
    text = ended_text(7, code, said)
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ("", Retriable, ["was killed before it was up", "ran out of memory"]),
        ("/pyspark/bin/spark-class: line 97: CMD: bad array subscript", Retriable, ["was killed before it was up"]),
        ("Too small maximum heap", Fatal, ["it says:\nToo small maximum heap", "Correct spark.driver.memory"]),
        ("java: not found\nspark-class: line 97: CMD: bad array subscript", Fatal, ["java: not found", "JAVA_HOME"]),
    ],
)
def test_why_a_jvm_did_not_start(said: str, error: type[Exception], words: list[str]) -> None:
    explained = explain_start(said)
    assert type(explained) is error
    assert [word for word in words if word not in str(explained)] == []
