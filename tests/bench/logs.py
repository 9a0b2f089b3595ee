"""CPU time from a raw line to a row: rule sets of 1 and 51 groups on log4j-like lines of 119 bytes, compiled; and a preview.

With ``--kafka`` also the whole way: a task of a task host reads the lines of a file, and Kafka has the rows in Avro.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from compose.local.kafka import KafkaCluster
from compose.local.registry import SchemaRegistry
from connectors.logs.config import CONFIG
from connectors.logs.connector import LogsConnector
from connectors.logs.direct_rows import FileLines
from connectors.logs.rows import RowMaker
from connectors.logs.rules.built import BuiltRules, build_rules
from connectors.logs.rules.compiled import CompiledRules, compile_rules
from connectors.logs.rules.model import read_rules
from connectors.logs.rules.records import LineOrigin
from connectors.logs.rules.tools.preview import preview_rules
from connectors.testing.contexts import RecordedMetrics
from tests.bench import task_path
from tests.bench._common import environment, spread
from worker.metrics.process import settle_heap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.api import Position, SourceRecord

_GROUPS: Final = 51
_LINE_BYTES: Final = 119
_TARGET_US: Final = 3.0
_TARGET_PREVIEW_MS: Final = 300
_TARGET_KAFKA_US: Final = 5.0
_ROUNDS: Final = 5
_TASKS: Final = 3
_BATCH: Final = 1000
_AVRO: Final = "io.confluent.connect.avro.AvroConverter"
_HEAD: Final = (
    r"^(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \[(?P<thread>[^\]]+)\] (?P<level>[A-Z]+) +(?P<logger>\S+) - "
)
_ORIGIN: Final = LineOrigin("web-1", "/var/log/app.log", 0, 1_795_714_140_000)


def make_rule_set(groups: int, *, steps_before: int = 0) -> dict[str, Any]:
    """A table with many groups that differ in their messages; each extracts eight fields and makes a row of eight columns."""
    columns = [
        {"name": "time", "type": "datetime", "formats": ["yyyy-MM-dd HH:mm:ss,SSS"]},
        *({"name": name} for name in ("thread", "level", "logger")),
        {"name": "took", "type": "int"},
        *({"name": name} for name in ("user", "ip", "path")),
    ]
    tail = r" took (?P<took>\d+) ms for (?P<user>\w+) from (?P<ip>[0-9.]+): (?P<path>\S+)$"
    return {
        "tables": [
            {
                "name": "requests",
                "groups": [
                    {
                        "name": f"group{number}",
                        "steps": [
                            {"regexExtract": {"pattern": rf"{_HEAD}event{number:02d}{tail}"}},
                            *[{"trim": {"field": "user"}}] * steps_before,
                            {"saveAs": {"columns": columns}},
                        ],
                    }
                    for number in range(groups)
                ],
            }
        ]
    }


def make_rules(groups: int, *, steps_before: int = 0) -> BuiltRules:
    """The rule set, checked."""
    return build_rules(read_rules(make_rule_set(groups, steps_before=steps_before)))


def make_lines(count: int, groups: int) -> list[str]:
    """Lines of 119 bytes that match the groups in turn, a thousand to a second."""
    lines: list[str] = []
    for number in range(count):
        second, thousandth = divmod(number, 1000)
        line = (
            f"2026-11-26 17:{second // 60 % 60:02d}:{second % 60:02d},{thousandth:03d} [worker-{number % 16:02d}] INFO  "
            f"shop.api.Handler - event{number % groups:02d} took {number % 97} ms for u{number % 1000:03d} from "
            f"10.0.{number % 200}.{number % 250}: /"
        )
        lines.append(line + "x" * (_LINE_BYTES - len(line)))
    return lines


def time_lines(function: Callable[[Any], Any], lines: Sequence[Any]) -> list[float]:
    """CPU microseconds for each line, of several rounds after a first one that is not counted."""
    figures: list[float] = []
    for _ in range(_ROUNDS + 1):
        started = time.process_time()
        for line in lines:
            function(line)
        figures.append((time.process_time() - started) * 1_000_000 / len(lines))
    return figures[1:]


def time_compiled(rules: CompiledRules, lines: Sequence[str]) -> list[float]:
    """From a line to its rows."""
    apply = rules.apply
    return time_lines(lambda line: apply(line, _ORIGIN), lines)


def time_records(rules: CompiledRules, lines: Sequence[str]) -> list[float]:
    """From a line to the connector's record."""
    rows = RowMaker(rules, CONFIG.parse({"topic.prefix": "logs", "rules": "-"}), RecordedMetrics(LogsConnector.metrics))
    source = FileLines(_ORIGIN.host, _ORIGIN.file, {"filename": _ORIGIN.file}, _ORIGIN.timestamp)
    before: Position = {"position": 0, "fingerprint": "00000000"}

    def add(batch: Sequence[str]) -> None:
        records: list[SourceRecord] = []
        rows.add_file_lines(records, source, before, batch, [before] * len(batch), 0)

    batches = [lines[at : at + _BATCH] for at in range(0, len(lines), _BATCH)]
    return [figure / _BATCH for figure in time_lines(add, batches)]


def time_preview() -> list[float]:
    """Milliseconds for 1,000 lines through 20 steps."""
    rules = make_rules(1, steps_before=18)
    lines = make_lines(1000, 1)
    figures: list[float] = []
    for _ in range(_ROUNDS):
        started = time.process_time()
        preview = preview_rules(rules, lines)
        figures.append((time.process_time() - started) * 1000)
        if preview.groups[0].accepted != len(lines):
            raise RuntimeError("the rules do not accept the lines")
    return figures


def time_tasks(lines: Sequence[str], folder: Path, profile: str | None) -> list[dict[str, float]]:
    """Figures of a task that reads the lines from a file, until Kafka has them in Avro; see ``task_path``."""
    path, rules = folder / "app.log", folder / "rules.json"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    rules.write_text(json.dumps(make_rule_set(_GROUPS)), encoding="ascii")
    with (
        KafkaCluster(folder / "kafka", count=1, port=None) as kafka,
        SchemaRegistry(folder / "registry", port=None) as registry,
    ):
        avro = [
            item
            for side in ("key", "value")
            for item in (f"{side}.converter={_AVRO}", f"{side}.converter.schema.registry.url={registry.url}")
        ]
        arguments = argparse.Namespace(
            bootstrap=kafka.bootstrap,
            source="datagen",
            converter="string",
            rows=len(lines),
            bytes=_LINE_BYTES,
            skip=len(lines) // 10,  # the rules are compiled before
            worker=avro,
            option=["connector.class=logs", f"file={path}", "topic.prefix=bench", f"rules.file={rules}", "host=web-1"],
            profile=profile,
        )
        settle_heap()  # as a task host does
        return [uvloop.run(task_path.run(arguments, folder)) for _ in range(_TASKS)]


def main(arguments: list[str]) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="millrace bench logs", description=__doc__)
    parser.add_argument("--lines", type=int, default=50_000, help="lines of each round")
    parser.add_argument("--kafka", action="store_true", help="also the whole way into a Kafka that is started for it")
    parser.add_argument("--profile", help="with --kafka: write cProfile's data of the last run to this file")
    options = parser.parse_args(arguments)
    print(environment())
    lines = make_lines(options.lines, _GROUPS)
    rules = make_rules(_GROUPS)
    compiled = compile_rules(rules)
    if any(not compiled.apply(line, _ORIGIN) for line in lines[:1000]) or {len(line) for line in lines} != {
        _LINE_BYTES
    }:
        raise RuntimeError("the rules do not accept the lines")
    single = compile_rules(make_rules(1))
    alone = make_lines(options.lines, 1)
    match = re.compile(_HEAD).match
    print(f"{options.lines} lines of {_LINE_BYTES} bytes, CPU us a line, median (min-max) of {_ROUNDS} rounds:")
    print(f"  one call of a function that does nothing: {spread(time_lines(len, lines))}")
    print(f"  re, the first four groups only:           {spread(time_lines(match, lines))}")
    print(f"  line to row, 1 group:                     {spread(time_compiled(single, alone))}")
    rows = time_compiled(compiled, lines)
    megabytes = _LINE_BYTES / sorted(rows)[len(rows) // 2]
    print(
        f"  line to row, {_GROUPS} groups:                   {spread(rows)}  target {_TARGET_US}; {megabytes:.0f} MB/s"
    )
    print(f"  line to record of the connector, {_GROUPS} groups: {spread(time_records(compiled, lines))}")
    print(f"preview of 1,000 lines through 20 steps, ms: {spread(time_preview(), 0)}  target {_TARGET_PREVIEW_MS}")
    if options.kafka:
        with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
            figures = time_tasks(make_lines(10 * options.lines, _GROUPS), Path(folder), options.profile)
        print(
            f"file to Avro rows in Kafka, {_GROUPS} groups, {10 * options.lines} lines, {_TASKS} tasks one after the other:"
        )
        for name, digits in (("CPU us/row", 2), ("rows/s", 0), ("poll", 2), ("convert", 2), ("append", 2)):
            target = f"  target {_TARGET_KAFKA_US}" if name == "CPU us/row" else ""
            print(f"  {name:>10} {spread([figure[name] for figure in figures], digits)}{target}")
    return 0
