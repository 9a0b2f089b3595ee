"""Plans and previews of flows over REST, by a real worker, Kafka and Spark: nothing outside of the answer changes."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # the module has them

from tests.support.eventually import eventually
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compose.local.worker import MillraceWorker

PLUGIN = Path(__file__).with_name("plugin")
SECRET = "not-to-be-seen-by-anybody"
STEPS = {
    "transform.steps": "paid,typed,by_region",
    "transform.step.paid.type": "filter",
    "transform.step.paid.condition": "amount > 0 AND status IS NOT NULL",
    "transform.step.typed.type": "sql",
    "transform.step.typed.sql": "SELECT id, CAST(code AS int) AS code, region, card, phone FROM orders",
    "transform.step.by_region.type": "route",
    "transform.step.by_region.to": "${table}_${column:region}",
}
#: What the rows are for: passes, fails the filter, is null in the filter, fails the cast, is no JSON, deletes.
ROWS: list[tuple[str, Any]] = [
    ("1", {"id": 1, "amount": 5, "status": "x", "region": "eu", "code": "7", "card": "4111", "phone": "+49"}),
    ("2", {"id": 2, "amount": -1, "status": "x", "region": "eu", "code": "8", "card": "4222", "phone": "+49"}),
    ("3", {"id": 3, "amount": 5, "status": None, "region": "us", "code": "9", "card": "4333", "phone": "+49"}),
    ("4", {"id": 4, "amount": 5, "status": "x", "region": "us", "code": "nine", "card": "4444", "phone": "+49"}),
    ("5", "{no json"),
    ("6", {"id": 6, "amount": 5, "status": "x", "region": "us", "code": "1", "card": "4666", "phone": "+49"}),
]


class Setup:
    """A worker, a topic with rows, and a view of all that a preview must leave alone."""

    def __init__(self, worker: MillraceWorker, bootstrap: str, home: Path) -> None:
        self.worker = worker
        self.home = home
        self.name = f"preview-{secrets.token_hex(4)}"
        self.topic = f"{self.name}.orders"
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in self.admin.create_topics([NewTopic(self.topic, 2, 1)]).values():
            future.result()
        self.send(ROWS)

    def send(self, rows: list[tuple[str, Any]]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for key, row in rows:
            value = row if isinstance(row, str) else json.dumps(row)
            producer.produce(self.topic, value.encode(), key.encode(), partition=int(key) % 2)
        assert producer.flush(10) == 0

    def config(self, **more: str) -> dict[str, str]:
        return {
            "connector.class": "spark_jobs.SparkJob",
            "name": self.name,
            "source.topics": self.topic,
            "source.format": "plain",
            "source.key.encoding": "bytes",
            "source.key.columns": "id,region",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{self.name}-dead",
            "sink.type": "kafka",
            "sink.kafka.topic": f"{self.name}-out",
            "sink.kafka.content": "rows",
            "spark.master": "local[2]",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": " ".join(FAST_START),
            "spark.application": self.name,
            **more,
        }

    def ask(self, path: str, body: Mapping[str, Any], status: int = 200) -> Any:
        answered, answer = self.worker.request("POST", f"/flows/{path}", body, timeout=120)
        assert answered == status, answer
        return answer

    def preview(self, config: Mapping[str, str], **more: Any) -> Any:
        return self.ask("preview", {"config": config, **more})

    def outside(self) -> tuple[Any, ...]:
        """Consumer groups with their offsets, topics with their ends, and files of flows."""
        groups = sorted(group.group_id for group in self.admin.list_consumer_groups().result().valid)
        group = f"millrace-{self.name}"
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        offsets = [(part.topic, part.partition, part.offset) for part in asked[group].result().topic_partitions]
        topics = sorted(name for name in self.admin.list_topics(timeout=10).topics if name.startswith(self.name))
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "not-used"})
        described = self.admin.list_topics(timeout=10).topics
        ends = [
            (name, number, consumer.get_watermark_offsets(TopicPartition(name, number), timeout=10))
            for name in topics
            for number in described[name].partitions
        ]
        consumer.close()
        files = sorted(
            (str(path.relative_to(self.home)), path.stat().st_mtime_ns if "checkpoint" in path.parts else 0)
            for path in self.home.rglob("*")
        )
        return groups, offsets, ends, files

    def applications(self) -> list[int]:
        """Processes of applications for previews that this test started."""
        result = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                command, environment = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
            except OSError:
                continue
            if b"--previews" in command and f"MILLRACE_HOME={self.home}".encode() in environment:
                result.append(int(path.name))
        return result


@pytest.fixture
def setup(
    millrace: Callable[..., MillraceWorker], bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Setup:
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN))
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    worker = millrace(properties={"task.shutdown.graceful.timeout.ms": "20000", "validate.timeout.ms": "90000"})
    return Setup(worker, bootstrap, tmp_path / "home")


def rows_of(step: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {
        table["table"].rpartition(".")[2]: sorted((row["values"] for row in table["rows"]), key=lambda row: row["id"])
        for table in step["tables"]
    }


def test_a_preview_shows_every_step_and_touches_nothing(setup: Setup, tmp_path: Path) -> None:
    masks = {
        "mask.rules": "cards",
        "mask.cards.columns": ".*card",
        "mask.cards.type": "chars",
        "mask.cards.length": "3",
    }
    login = {"kafka.sasl.jaas.config": f'org.example.Plain required password="{SECRET}";'}
    config = setup.config(**STEPS, **login, **{"preview.idle.ms": "5000"})
    before = setup.outside()

    # A plan before the first run: valid, and honest about what is not known.
    plan = setup.ask("plan", config)
    assert plan["valid"], plan
    assert plan["edit"] is None
    assert plan["sinks"][0]["guarantee"] == "exactly-once"
    assert any("no table has been seen yet" in text for text in plan["warnings"])
    assert any(f"{setup.topic}: 2 partitions" in line and "6 records to read" in line for line in plan["source"])

    # The first preview starts an application; rows go through filter, sql and route, each loss with its reason.
    cold = setup.preview(config)
    assert (cold["warm"], cold["application"], cold["source"], cold["records"]) == (False, "preview", "newest", 6), cold
    (table,) = cold["inputs"]
    assert (table["count"], table["key"]) == (5, ["id", "region"])
    (bad,) = cold["errors"]
    assert bad["record"].startswith(f"{setup.topic}-1 offset")
    assert bad["values"] == {"key": "5", "value": "{no json"}
    paid, typed, routed = cold["steps"]
    assert [(step["rows_in"], step["rows_out"]) for step in cold["steps"]] == [(5, 3), (3, 2), (2, 2)]
    assert sorted((row["values"]["id"], row["reason"]) for row in paid["dropped"]) == [
        (2, "the condition amount > 0 is false"),
        (3, "the condition NOT status IS NULL is false"),
    ]
    (failing,) = typed["errors"]
    assert (failing["values"]["id"], failing["values"]["code"]) == (4, "nine")
    assert "CAST_INVALID_INPUT" in failing["reason"]
    routes = rows_of(routed)
    assert {name: [row["id"] for row in rows] for name, rows in routes.items()} == {"typed_eu": [1], "typed_us": [6]}
    assert routes["typed_eu"] == [{"id": 1, "code": 7, "region": "eu", "card": "4111", "phone": "+49"}]
    columns = {column["name"]: column["type"] for column in typed["tables"][0]["columns"]}
    assert columns == {"id": "bigint", "code": "int", "region": "string", "card": "string", "phone": "string"}
    assert SECRET not in json.dumps(cold)

    # The next ones are warm. Masked columns are masked from the first table on, and reasons that may quote values are
    # kept back; a column that only a later step masks is hidden before it.
    hidden = {
        **{name: value for name, value in config.items() if "by_region" not in name},
        "transform.steps": "paid,typed,phones",
        "transform.step.phones.type": "mask",
        "transform.step.phones.rules": "p",
        "transform.step.phones.p.columns": ".*phone",
        "transform.step.phones.p.type": "md5",
    }
    masked = setup.preview({**hidden, **masks})
    assert masked["warm"], masked
    assert {row["values"]["card"] for row in masked["inputs"][0]["rows"]} == {"***"}
    assert {row["values"]["phone"] for row in masked["inputs"][0]["rows"]} == {"***"}
    assert [len(row["phone"]) for row in rows_of(masked["steps"][2])["typed"]] == [32, 32]
    text = json.dumps(masked)
    assert not any(value in text for value in ("4111", "4222", "4444", "+49", "{no json", "nine'"))
    assert "columns are masked" in masked["steps"][1]["errors"][0]["reason"]

    # Rows of the request: an update that does not pass becomes a delete; a row that does not fit is refused.
    rows = [
        {"table": "orders", "op": "u", "row": {"id": 9, "amount": -5, "region": "eu"}},
        {"table": "orders", "row": {"id": 10, "amount": 5, "status": "x", "region": "eu", "code": "3"}},
    ]
    answer = setup.preview(config, rows=rows)
    # The topic has a record that is not JSON; given rows do not need it.
    assert (answer["source"], answer["records"], answer["errors"]) == ("given", 2, [])
    (changed,) = answer["steps"][0]["changed"]
    assert (changed["op"], changed["reason"]) == ("u", "becomes d: the condition amount > 0 is false")
    routed_rows = [row for table in answer["steps"][2]["tables"] for row in table["rows"]]
    assert sorted((row["op"], row["values"]["id"]) for row in routed_rows) == [("d", 9), ("i", 10)]
    wrong = setup.ask(
        "preview", {"config": config, "rows": [{"table": "orders", "row": {"id": "x", "region": "eu"}}]}, status=400
    )
    assert "row 1 does not fit table" in wrong["message"]

    # Limits: records, time, and a configuration that can't work.
    smaller = setup.preview(config, limit=2)
    assert smaller["records"] == 2
    late = setup.preview(config, timeout_ms=100)
    ends = [late.get("error", ""), *(step.get("error", "") for step in late["steps"])]
    assert any("the time limit of 0.1 s is over" in text for text in ends), late
    invalid = setup.ask("preview", {"config": {**config, "trigger.interval.ms": "soon"}}, status=400)
    assert "trigger.interval.ms" in invalid["message"]

    # The command shares the application with the worker, and prints tables.
    job, rows_file = tmp_path / "job.json", tmp_path / "rows.json"
    job.write_text(json.dumps({**config, "kafka.bootstrap.servers": setup.bootstrap}))
    rows_file.write_text(json.dumps(rows))
    command = [sys.executable, "-m", "worker.cli", "job", "preview", str(job), "--rows", str(rows_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert "step paid (filter): 2 rows in, 2 out" in done.stdout
    assert f"(given)-0 offset 1, table {setup.topic}, u: becomes d: the condition amount > 0 is false" in done.stdout

    # Nothing happened outside: groups and their offsets, topics (of the sink, of dead letters), files.
    assert setup.outside() == before
    # The application for previews ends when no preview is asked for.
    assert setup.applications()
    eventually(lambda: not setup.applications(), "the application for previews ended")


@pytest.mark.slow
def test_a_preview_of_a_running_flow_uses_its_application_and_leaves_it_alone(setup: Setup) -> None:
    config = setup.config(**STEPS, **{"trigger.interval.ms": "100"})
    running = {name: value for name, value in config.items() if not name.startswith("transform")}
    status, body = setup.worker.request("POST", "/connectors", {"name": setup.name, "config": running})
    assert status == 201, body

    def committed() -> Any:
        asked = setup.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"millrace-{setup.name}")])
        positions = asked[f"millrace-{setup.name}"].result().topic_partitions
        return sum(position.offset for position in positions) == len(ROWS)

    eventually(committed, "the flow wrote and committed", within=120)
    # Spark writes its files of the batch after the group has its offsets.
    eventually(lambda: list(setup.home.rglob("commits/0")), "the checkpoint has the batch")
    eventually(lambda: setup.outside() == setup.outside(), "the flow is idle")
    before = setup.outside()
    answer = setup.preview(config)
    assert (answer["application"], answer["warm"]) == (setup.name, True)
    assert [(step["rows_in"], step["rows_out"]) for step in answer["steps"]] == [(5, 3), (3, 2), (2, 2)]
    assert setup.outside() == before
    assert not setup.applications()

    # The plan knows the tables that the flow has seen, and compares with it.
    plan = setup.ask("plan", config)
    assert plan["valid"], plan
    assert [[table["table"].rpartition(".")[2] for table in step["tables"]] for step in plan["steps"]][1] == ["typed"]
    code = next(column for column in plan["steps"][1]["tables"][0]["columns"] if column["name"] == "code")
    assert (code["type"], code["from"]) == ("int", [{"table": plan["tables"][0]["table"], "column": "code"}])
    effects = {(effect["part"], effect["effect"]) for effect in plan["edit"]["effects"]}
    assert {("position", "kept"), ("steps", "changed"), ("state", "kept"), ("sink", "kept")} <= effects
    assert "transform.steps" in plan["edit"]["changed"]

    # The flow runs on.
    setup.send([("8", {"id": 8, "amount": 1, "region": "eu", "code": "1", "card": "1", "phone": "1"})])
    eventually(lambda: setup.outside()[1] != before[1], "the flow committed the next batch")
