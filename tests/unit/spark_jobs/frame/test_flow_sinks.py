"""Flows with several sinks: what each sink's job is, what is refused, and how far sinks may be apart. No Spark."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.api import TOGETHER_KEY
from connectors.errors import ConfigInvalid, Retriable
from connectors.job_api import JobProgress
from spark_jobs.cli import main
from spark_jobs.config import job_files as config
from spark_jobs.connector import SparkJob, groups_of, job_and_sink
from spark_jobs.control import Control
from spark_jobs.flows.address import address_of
from spark_jobs.flows.lag import demand_others
from spark_jobs.flows.sinks import FlowMembership, records_ahead
from spark_jobs.job import control_folder
from spark_jobs.metrics import JobNumbers, JoinedNumbers
from spark_jobs.spark.checkpoint import LocalFolder
from worker.control.herder.progress import shown_progress

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """\
name: orders
kafka.bootstrap.servers: broker:9092
source: {topics: orders, format: debezium}
errors.retry.delay.ms: 100
sinks:
  - name: database
    type: jdbc
    guarantee: at-least-once
    jdbc: {url: "jdbc:postgresql://db/shop", user: shop, password: secret}
  - name: history
    type: files
    files: {path: /data/history}
    errors.retry.delay.ms: 700
"""


def properties(text: str = FLOW, **more: str) -> dict[str, str]:
    return config.parse_text(text, "flow.yaml").properties | more


def refusals(text: str = FLOW, **more: str) -> list[str]:
    problems = config.check_flow(properties(text, **more))[1]
    return [f"{problem.name}: {problem.message}" for problem in problems]


# What each sink is.


def test_each_sink_is_a_job_with_its_own_state_and_options() -> None:
    database, history = config.build_flow(properties())
    assert (database.name, database.sink_name, database.guarantee) == ("orders.database", "jdbc", "at-least-once")
    assert (history.name, history.sink_name, history.guarantee) == ("orders.history", "files", "exactly-once")
    assert database.config["sink.jdbc.url"] == "jdbc:postgresql://db/shop"
    assert database.config["kafka.group.id"] == "millrace-orders.database"
    assert history.config["kafka.group.id"] == "millrace-orders.history"
    assert database.checkpoint.endswith("/orders.database/checkpoint")
    assert database.config["errors.retry.delay.ms"], history.config["errors.retry.delay.ms"] == (100, 700)
    assert database.membership == FlowMembership(
        "orders",
        "database",
        {"history": history.checkpoint},
        -1,
        {"database": "orders.database", "history": "orders.history"},
    )


def test_properties_and_json_say_the_same_as_yaml() -> None:
    flat = {
        "name": "orders",
        "kafka.bootstrap.servers": "broker:9092",
        "source.topics": "orders",
        "source.format": "debezium",
        "errors.retry.delay.ms": "100",
        "sinks": "database,history",
        "sink.database.type": "jdbc",
        "sink.database.guarantee": "at-least-once",
        "sink.database.jdbc.url": "jdbc:postgresql://db/shop",
        "sink.database.jdbc.user": "shop",
        "sink.database.jdbc.password": "secret",
        "sink.history.type": "files",
        "sink.history.files.path": "/data/history",
        "sink.history.errors.retry.delay.ms": "700",
    }
    assert properties() == flat
    text = (
        '{"name": "orders", "kafka.bootstrap.servers": "broker:9092", "source": {"topics": "orders", "format": "debezium"},'
        '"errors.retry.delay.ms": 100, "sinks": [{"name": "database", "type": "jdbc", "guarantee": "at-least-once", "jdbc": '
        '{"url": "jdbc:postgresql://db/shop", "user": "shop", "password": "secret"}}, {"name": "history", "type": "files", '
        '"files": {"path": "/data/history"}, "errors.retry.delay.ms": 700}]}'
    )
    assert config.parse_text(text, "flow.json", as_json=True).properties == flat


def test_state_of_the_flow_is_divided_among_its_sinks() -> None:
    more = {"checkpoint.location": "hdfs://n/flow/", "kafka.group.id": "g", "state.dir": "/cache"}
    jobs = config.build_flow(properties(**more))
    assert [(job.checkpoint, job.config["kafka.group.id"], job.config["state.dir"]) for job in jobs] == [
        ("hdfs://n/flow/database", "g.database", "/cache/database"),
        ("hdfs://n/flow/history", "g.history", "/cache/history"),
    ]


def test_a_flow_with_one_sink_is_the_job_that_it_was() -> None:
    single = {
        "name": "orders",
        "kafka.bootstrap.servers": "b:1",
        "source.topics": "t",
        "source.format": "plain",
        "sink.type": "console",
    }
    (job,) = config.build_flow(single)
    assert job.membership is None
    assert (job.name, job.config["kafka.group.id"]) == ("orders", "millrace-orders")
    assert job.checkpoint == config.build_job(single).checkpoint
    assert job.checkpoint.endswith("/jobs/orders/checkpoint")


def test_a_sink_can_take_over_the_state_of_a_flow_with_one_sink() -> None:
    job = config.build_flow(properties(**{"sink.database.job.name": "orders"}))[0]
    assert (job.name, job.config["kafka.group.id"]) == ("orders", "millrace-orders")
    assert job.checkpoint.endswith("/jobs/orders/checkpoint")


def test_some_of_the_sinks_can_be_chosen() -> None:
    (job,) = config.build_flow(properties(**{"sinks.only": "history"}))
    assert job.membership is not None
    assert (job.membership.sink, list(job.membership.others)) == ("history", ["database"])
    assert config.build_job(properties(**{"sinks.only": "history"})).name == "orders.history"
    with pytest.raises(ConfigInvalid, match=r"several sinks \(database, history\).*sinks\.only"):
        config.build_job(properties())


# What is refused.


def test_complaints_name_the_options_as_they_were_given() -> None:
    assert refusals() == []
    wrong = refusals(**{"sink.database.jdbc.mode": "replace", "sink.history.files.patth": "x", "source.format": "csv"})
    assert [text.split(":")[0] for text in wrong] == [
        "source.format",
        "sink.database.jdbc.mode",
        "sink.history.files.patth",
    ]
    assert "configuration sink.database.jdbc.mode:" in wrong[1]
    assert wrong[2].endswith("Unknown configuration sink.history.files.patth; did you mean sink.history.files.path?")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"sinks": "database,history,history"}, "sinks: .*history.*two sinks have this name"),
        ({"sinks": "database,history,a.b"}, "sinks: .*a.b.*a sink's name is"),
        ({"sinks.only": "lake"}, "sinks.only: .*lake.*names no such sink"),
        ({"sink.jdbc.url": "x"}, r"sink.jdbc.url: .*no sink that sinks names \(database, history\)"),
        ({"transform.type": "materialize"}, "sinks: .*materialize"),
        ({"sinks.max.lag.records": "-2"}, "sinks.max.lag.records: .*at least -1"),
        ({"sink.database.job.name": "orders.history"}, r"sink\.history\.job\.name: .*database and history"),
        ({"sink.history.guarantee": "sometimes"}, "sink.history.guarantee: .*sink.history.guarantee"),
    ],
)
def test_refused(more: dict[str, str], expected: str) -> None:
    assert any(re.match(expected, text) for text in refusals(**more)), refusals(**more)


def test_options_of_several_sinks_are_refused_with_one() -> None:
    single = "name: n\nkafka.bootstrap.servers: b:1\nsource: {topics: t, format: plain}\nsink.type: console\n"
    assert [text.split(":")[0] for text in refusals(single, **{"sinks.only": "a", "sinks.max.lag.records": "5"})] == [
        "sinks.only",
        "sinks.max.lag.records",
    ]


def test_a_list_of_sinks_needs_names() -> None:
    with pytest.raises(ConfigInvalid, match=r"flow\.yaml:2: sinks: each sink of the list needs a name"):
        config.parse_text("sinks:\n  - type: console\n", "flow.yaml")


# On the command line.


def test_commands_know_the_sinks_of_a_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW)
    assert main(["validate", str(path)]) == 0
    shown = capsys.readouterr().out
    assert f"{path}: sink database: job orders.database is valid" in shown
    assert f"{path}: sink history: job orders.history is valid" in shown
    for sink in ("database", "history"):
        Control(control_folder(f"orders.{sink}")).write({"job": f"orders.{sink}", "flow": "orders", "state": "stopped"})
    for given_name in ("orders", str(path)):
        assert main(["status", given_name, "--json"]) == 3
        assert list(json.loads(capsys.readouterr().out)) == ["orders.database", "orders.history"]


# Under a worker.


class _Context:
    def __init__(self, raw: dict[str, str]) -> None:
        self.config = SparkJob.definition(raw).parse(raw)


async def test_a_connector_has_a_task_for_each_sink_all_on_one_worker() -> None:
    connector = SparkJob(_Context(properties()))  # type: ignore[arg-type]  # it reads the configuration only
    assert await connector.task_configs(1) == [
        {TOGETHER_KEY: "sinks of orders", "sinks.only": "database"},
        {TOGETHER_KEY: "sinks of orders", "sinks.only": "history"},
    ]
    parsed = SparkJob.definition(properties()).parse(properties(**{"sinks.only": "history"}))
    assert job_and_sink(parsed) == ("orders.history", "history")
    assert groups_of(parsed) == {"database": "millrace-orders.database", "history": "millrace-orders.history"}
    assert "secret" not in repr(parsed)  # the password's type is known under the sink's name


def test_the_sinks_of_a_flow_share_the_process_that_it_has_of_its_own() -> None:
    dedicated = {"spark.application": "own"}
    first, second = (address_of(properties(**dedicated, **{"sinks.only": name})) for name in ("database", "history"))
    assert first is not None
    assert first == second
    other = address_of(properties(**dedicated) | {"name": "lines"})
    assert other is not None
    assert other.key != first.key
    assert address_of({"name": "orders", **dedicated}) is None


async def test_a_port_for_metrics_is_refused_where_each_sink_is_a_task() -> None:
    problems = await SparkJob.validate(properties(**{"metrics.port": "9404"}))
    assert [problem.name for problem in problems] == ["metrics.port"]


def test_progress_names_the_sink() -> None:
    assert shown_progress("w", JobProgress(sink="history"), 1).items() >= {("id", 1), ("sink", "history")}


# Metrics.


def test_metrics_of_all_sinks_are_one_text() -> None:
    both = JoinedNumbers()
    for sink in ("database", "history"):
        numbers = JobNumbers("orders", sink=sink)
        numbers.take({"event": "started"}, 0.0)
        both.add(numbers)
    lines = [line for line in both.text().splitlines() if "millrace_job_up" in line]
    assert lines[1:] == [
        "# TYPE millrace_job_up gauge",
        'millrace_job_up{job="orders",sink="database"} 1',
        'millrace_job_up{job="orders",sink="history"} 1',
    ]


# How far they may be apart.

positions = st.dictionaries(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2)), st.integers(0, 9))


@given(positions, positions)
def test_two_sinks_never_wait_for_each_other(left: dict[Any, int], right: dict[Any, int]) -> None:
    assert records_ahead(left, right) == -records_ahead(right, left)


def test_a_sink_waits_for_one_that_is_too_far_behind(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.write("sources/0/0", 'v1\n{"t":{"0":100}}')
    folder.write("offsets/0", 'v1\n{}\n{"t":{"0":130}}')
    member = FlowMembership("orders", "history", {"database": str(tmp_path)}, 50)
    session: Any = None  # a local checkpoint is read without it
    demand_others(member, {("t", 0): 150}, session)
    with pytest.raises(Retriable, match=r"waits for the sink database.*51 records behind.*sinks\.max\.lag\.records=50"):
        demand_others(member, {("t", 0): 151}, session)
    folder.write("commits/0", "v1\n{}")
    demand_others(member, {("t", 0): 180}, session)
