"""Heartbeats: inputs that are in order, hosts that write heartbeat lines, and what becomes of positions meanwhile."""

from pathlib import Path
from typing import Any

from connectors.api import EVERY_PARTITION, Batch, SameAs, SourceRecord
from connectors.logs.config import CONFIG
from connectors.logs.connector import LogsConnector
from connectors.logs.heartbeats import LogHeartbeats, Look
from connectors.logs.metrics import DELAY, DELIVERED_ROWS, HEARTBEAT_AGE, HOST_HEARTBEAT_AGE, BatchDelivery, HostCounts
from connectors.testing import Run
from connectors.testing.contexts import RecordedMetrics

RULES = '{"tables": [{"name": "lines", "groups": [{"name": "all", "steps": [{"saveAs": {"columns": [{"name": "line"}]}}]}]}]}'
TOPIC = "__debezium-heartbeat.logs"
PARTITION = {"topic": "t", "partition": 0}


class World:
    """Heartbeats with a clock that the test moves."""

    def __init__(self, **options: str) -> None:
        named = {name.replace("_", "."): value for name, value in options.items()}
        self.now = 1_000_000
        self.metrics = RecordedMetrics(LogsConnector.metrics)
        config = CONFIG.parse({"topic.prefix": "logs", "rules": RULES, **named})
        self.heartbeats = LogHeartbeats(config, self.metrics, "here", lambda: self.now)

    def beat(self, seconds: float, *looks: Look) -> Batch | None:
        self.now += int(seconds * 1000)
        assert self.heartbeats.due
        return self.heartbeats.beat(looks)

    def age(self, name: str, host: str, source: str) -> float | None:
        return self.metrics.series.get((name, (("host", host), ("input", source))))

    def look(self, seen_ms: int, offset: int = 5, partition: int = 0) -> Look:
        return Look("t", {**PARTITION, "partition": partition}, {"offset": offset}, seen_ms)


def values(batch: Batch | None) -> list[tuple[Any, ...]]:
    assert batch is not None
    return [tuple(record.value[name] for name in ("ts_ms", "host", "input", "kind")) for record in batch.records]


def test_an_input_in_order_has_a_heartbeat_at_each_interval() -> None:
    world = World(heartbeat_interval_ms="10000")
    assert world.beat(0, world.look(1_000_000)) is None, "the first one is due after an interval"
    batch = world.beat(10, world.look(1_009_000))
    assert values(batch) == [(1_009_000, "here", "t", "input")]
    assert batch is not None
    (record,) = batch.records
    assert (record.topic, record.source_partition, record.source_offset) == (TOPIC, PARTITION, {"offset": 5})
    assert record.key == {"serverName": "logs", "host": "here", "input": "t"}
    assert record.value["last_line_ts_ms"] is None
    assert world.age(HEARTBEAT_AGE, "here", "t") == 1


def test_a_clock_that_is_set_back_delays_no_heartbeat() -> None:
    world = World(heartbeat_interval_ms="10000")
    world.now += 3_600_000
    assert world.beat(0, world.look(world.now)) is not None
    assert world.beat(-3_600, world.look(world.now)) is None
    assert world.age(HEARTBEAT_AGE, "here", "t") == 0
    seen_ms = world.now + 9_000
    assert values(world.beat(10, world.look(seen_ms))) == [(seen_ms, "here", "t", "input")]


def test_an_input_out_of_order_has_none_and_its_age_grows() -> None:
    world = World(heartbeat_interval_ms="10000")
    assert world.beat(0, world.look(0)) is None
    assert world.age(HEARTBEAT_AGE, "here", "t") == 0
    for seconds in (10, 20):
        assert world.beat(10, world.look(0)) is None
        assert world.age(HEARTBEAT_AGE, "here", "t") == seconds


def test_an_input_is_as_old_as_its_oldest_partition() -> None:
    world = World()
    assert world.beat(60, world.look(1_050_000), world.look(1_020_000, partition=1)) is None, "no records by default"
    assert world.age(HEARTBEAT_AGE, "here", "t") == 40


def test_a_heartbeat_line_counts_once_and_ages() -> None:
    world = World(heartbeat_interval_ms="10000", heartbeat_line="^beat")
    assert world.heartbeats.is_line is not None
    assert world.heartbeats.is_line("beat 1")
    assert not world.heartbeats.is_line("a beat")
    world.heartbeats.add_line("web-1", "t", PARTITION, 999_000)
    world.heartbeats.add_line("web-2", "t", PARTITION, 2_000_000)  # its clock is ahead
    batch = world.beat(10, world.look(1_010_000))
    assert values(batch)[1:] == [(999_000, "web-1", "t", "line"), (1_000_000, "web-2", "t", "line")]
    assert len(values(world.beat(10, world.look(1_020_000)))) == 1, "it is in a record already"
    assert world.age(HOST_HEARTBEAT_AGE, "web-1", "t") == 21
    world.heartbeats.add_line("web-1", "t", PARTITION, 500_000)  # late on its way: the newest one counts
    world.beat(10, world.look(1_030_000))
    assert world.age(HOST_HEARTBEAT_AGE, "web-1", "t") == 31


def test_the_delay_is_that_of_all_rows_until_kafka_has_them() -> None:
    metrics = RecordedMetrics(LogsConnector.metrics)
    counts = HostCounts()
    counts.rows = {"late": [2, 1_000 + 3_000], "ahead": [1, 9_000]}
    done: list[str] = []
    delivery = BatchDelivery(metrics, {"web-1": counts}, lambda: done.append("answered"), lambda: 5_000)
    assert not metrics.series
    delivery.confirm()
    labels = {table: (("host", "web-1"), ("table", table)) for table in counts.rows}
    assert metrics.series[DELIVERED_ROWS, labels["late"]] == 2
    assert metrics.series[DELAY, labels["late"]] == 6
    assert metrics.series[DELAY, labels["ahead"]] == 0
    assert done == ["answered"]


def config_of(folder: Path, **options: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return {
        "file": str(folder / "app.log"),
        "topic.prefix": "logs",
        "rules": RULES,
        "host": "web-1",
        "heartbeat.interval.ms": "20",
        **named,
    }


async def read_until_beats(run: Run, count: int) -> tuple[list[SourceRecord], list[SourceRecord]]:
    """Records until there are that many heartbeats or more: rows, heartbeats."""
    rows: list[SourceRecord] = []
    beats: list[SourceRecord] = []
    while len(beats) < count:
        for record in await run.read(1):
            (beats if record.topic == TOPIC else rows).append(record)
    return rows, beats


async def test_a_quiet_file_has_heartbeats_that_keep_its_position(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("first\nsecond\nnot whole")
    config = config_of(tmp_path)
    async with Run(LogsConnector, config) as run:
        rows, beats = await read_until_beats(run, 3)
        assert [row.value["line"] for row in rows] == ["first", "second"]
        assert beats[-1].source_offset["position"] == len("first\nsecond\n")
        assert (beats[-1].value["host"], beats[-1].value["input"]) == ("web-1", str(path))
        assert beats[-1].value["last_line_ts_ms"] <= beats[-1].value["ts_ms"]
        await run.stop_tasks()
        with path.open("a") as file:
            file.write(" yet\n")
        await run.start_tasks()
        rows, _ = await read_until_beats(run, 2)
        assert [row.value["line"] for row in rows] == ["not whole yet"]


async def test_an_empty_file_is_quiet(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.touch()
    async with Run(LogsConnector, config_of(tmp_path)) as run:
        rows, beats = await read_until_beats(run, 2)
        assert not rows
        assert beats[-1].source_offset["position"] == 0
        with path.open("a") as file:
            file.write("first\n")
        await run.stop_tasks()
        await run.start_tasks()
        rows, _ = await read_until_beats(run, 2)
        assert [row.value["line"] for row in rows] == ["first"]


async def test_lines_that_wait_for_their_event_are_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("event 1\n a\nevent 2\n b\n")
    config = config_of(tmp_path, multiline_start="^event", multiline_wait_ms="600000")
    async with Run(LogsConnector, config) as run:
        rows, beats = await read_until_beats(run, 2)
        assert [row.value["line"] for row in rows] == ["event 1\n a"]
        assert beats[-1].source_offset["position"] == len("event 1\n a\n")


async def test_heartbeat_lines_make_no_rows(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("one\nbeat\ntwo\nbeat\n")
    async with Run(LogsConnector, config_of(tmp_path, heartbeat_line="^beat$")) as run:
        rows, beats = await read_until_beats(run, 3)
        assert [row.value["line"] for row in rows] == ["one", "two"]
        assert [beat.value["kind"] for beat in beats].count("line") == 1
        assert run.metrics.series["logs_lines_total", (("host", "web-1"),)] == 4


async def test_ums_heartbeats_of_each_table(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("one\n")
    async with Run(LogsConnector, config_of(tmp_path, output="ums")) as run:
        first = [record for record in await run.read(12) if record.topic != TOPIC]
        row = next(record for record in first if record.value["payload"][0]["tuple"][0] == "0")
    beats = [record for record in first if record is not row]
    assert {(beat.topic, beat.key) for beat in beats} == {
        ("logs.lines", "data_increment_heartbeat.logs.logs.logs.lines.1.0.0"),
        ("logs.unknown_table", "data_increment_heartbeat.logs.logs.logs.unknown_table.1.0.0"),
    }
    assert all(beat.source_offset["position"] == 4 for beat in beats)
    lines = [beat for beat in beats if beat.topic == "logs.lines"]
    assert lines[0].partition == SameAs(row.key), "it follows the rows of its table"
    assert row.value["payload"][0]["tuple"][1] <= lines[-1].value["payload"][0]["tuple"][0]


async def test_ums_heartbeats_of_several_tasks_say_whose_they_are(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.log").touch()
    config = config_of(tmp_path, output="ums", row_key_template="{line}", directory=str(tmp_path))
    del config["file"]
    async with Run(LogsConnector, config, max_tasks=2) as run:
        beats = [record for record in await run.read(24) if record.topic == "logs.lines"]
    assert {beat.value["protocol"]["part"] for beat in beats} == {"0/2", "1/2"}
    assert {beat.key.rpartition(".")[2] for beat in beats} == {"0/2", "1/2"}
    assert {beat.partition for beat in beats} == {EVERY_PARTITION}, "by a template rows are in any partition"


def test_tables_have_no_heartbeats_while_an_input_is_out_of_order() -> None:
    world = World(heartbeat_interval_ms="10000")
    world.heartbeats.signals = lambda at, time_us: [SourceRecord(*at, "table", time_us)]
    assert world.beat(0, world.look(1_000_000)) is None
    batch = world.beat(10, world.look(1_009_000), world.look(1_008_000, partition=1))
    assert batch is not None
    assert [record.value for record in batch.records[2:]] == [1_008_000_000]
    batch = world.beat(10, world.look(1_019_000), world.look(1_008_000, partition=1))
    assert batch is not None
    assert [record.topic for record in batch.records] == [TOPIC]
