"""The conformance kit finds each kind of defect: a small connector passes, and fails exactly where it is made wrong."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from connectors.api import BadRecord, Batch, Position, SourceConnector, SourceRecord, SourceTask
from connectors.errors import ConfigInvalid, Fatal, Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType
from connectors.schema import INT32, INT64, STRING, Schema
from connectors.testing import Harness, Unsupported, connector_conformance, driver
from connectors.testing.checks import CHECKS

PARTITION: Position = {"queue": "q"}
DEFECT = "defect"


def folder_of(config: Config) -> Path:
    return Path(config["folder"])


class QueueTask(SourceTask):
    """Reads a file that stands for a queue; each line is a number, `bad` or a command."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        config = self.context.config
        defect = config[DEFECT]
        saved = self.context.offsets.get(PARTITION)
        at = 0 if saved is None else saved["line"]
        ahead: list[SourceRecord] = []
        cancelled = 0
        if defect == "logs an error":
            self.context.log.error("all is well")
        if defect == "tells its secret":
            self.context.log.debug("logging in with %s", config["password"].value)
        if defect == "leaves a task":
            self.kept = asyncio.create_task(asyncio.Event().wait())
        while True:
            if defect == "sleeps on the loop":
                time.sleep(0.001)  # noqa: ASYNC251 - the defect
            lines = await asyncio.to_thread(self._lines) if defect != "reads on the loop" else self._lines()
            if defect == "fails in an outage" and not lines:
                raise Fatal("the source is gone")
            if at >= len(lines):
                try:
                    await asyncio.sleep(0.005)  # how often this source looks for news
                except asyncio.CancelledError:
                    cancelled += 1
                    if defect != "does not end" or cancelled > 1:
                        raise
                continue
            if defect == "reads ahead":
                ahead += [self._record(number, line, lines) for _ in range(4) for number, line in enumerate(lines)]
            if lines[at] == "bad":
                at += 1
                bad = BadRecord(
                    PARTITION, {"line": at}, Skippable("bad") if defect != "wrong error class" else ValueError()
                )
                yield Batch([], (bad,), () if defect == "stays before bad input" else ((PARTITION, {"line": at}),))
                continue
            stop = next(
                (number for number in range(at, min(len(lines), at + 200)) if lines[number] == "bad"),
                min(len(lines), at + 200),
            )
            records = [
                self._record(number, lines[number], lines) for number in range(at, stop) if lines[number] != "change"
            ]
            at = stop
            sets_boundaries = self.context.transaction_boundary == "connector" or defect == "denies its transactions"
            yield Batch(records, transaction="commit" if sets_boundaries else "")
            if defect == "repeats":
                yield Batch(records[-1:])
            if defect == "counts an unknown metric":
                self.context.metrics.add("rows")

    def _lines(self) -> list[str]:
        try:
            return (folder_of(self.context.config) / "queue").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _record(self, number: int, line: str, lines: list[str]) -> SourceRecord:
        defect = self.context.config[DEFECT]
        schema: Schema = INT64 if "change" in lines[: min(number, 50)] and defect != "keeps the old schema" else INT32
        offset = {"line": number + (defect != "offset before the record") + (defect == "offset too far")}
        value: Any = line if defect == "value without its schema" else int(line)
        return SourceRecord(PARTITION, offset, "rows", value, schema, key=str(number), key_schema=STRING)


class QueueConnector(SourceConnector):
    """A connector that is right, or wrong in the way that its option says."""

    version = "1.0"
    task_class = QueueTask
    metrics: ClassVar[Mapping[str, tuple[str, str]]] = {"lines-read": ("counter", "lines")}
    config_def = ConfigDef(
        [
            ConfigKey(name="folder", type=ConfigType.STRING, doc="Where the queue is."),
            ConfigKey(name="password", type=ConfigType.PASSWORD, default=None, doc="A secret."),
            ConfigKey(name=DEFECT, type=ConfigType.STRING, default="", doc="What is wrong."),
        ]
    )

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        if self.context.config[DEFECT] == "too many tasks":
            return [{}] * (max_tasks + 1)
        return [{}]

    @classmethod
    async def validate(cls, config: Config) -> list[Any]:
        if not folder_of(config).exists():
            secret = config["password"].value if config[DEFECT] == "secret in an error" else config["password"]
            raise ConfigInvalid(f"{folder_of(config)} can't be opened with {secret}")
        return []

    @classmethod
    def exactly_once_support(cls, config: Config) -> bool:
        return bool(config[DEFECT] != "claims nothing")

    @classmethod
    def can_define_transaction_boundaries(cls, config: Config) -> bool:
        return bool(config[DEFECT] != "denies its transactions")

    @classmethod
    async def alter_offsets(cls, config: Config, offsets: Sequence[tuple[Position, Position | None]]) -> bool:
        for partition, offset in offsets:
            wrong = offset is not None and (partition != PARTITION or set(offset) != {"line"})
            if wrong and config[DEFECT] != "accepts nonsense":
                raise ConfigInvalid(f"{partition}: {offset}")
        return True


class Queue(Harness):
    defect = ""
    timeout = 2.0
    flood = 20_000

    def config(self) -> Mapping[str, str]:
        return {"folder": str(self.folder), "password": "tRoUbAdOr", DEFECT: self.defect}

    def wrong_config(self) -> Mapping[str, str]:
        return {**self.config(), "folder": str(self.folder / "not-there")}

    def _write(self, text: str) -> None:
        with (self.folder / "queue").open("a") as file:
            file.write(text)

    async def add(self, count: int) -> None:
        self._write("7\n" * count)

    async def poison(self) -> None:
        self._write("bad\n")

    async def change_schema(self) -> None:
        self._write("change\n")

    def outage(self) -> Any:
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def away() -> AsyncGenerator[None, None]:
            (self.folder / "queue").rename(self.folder / "away")
            yield
            (self.folder / "away").rename(self.folder / "queue")

        return away()


TestQueue = connector_conformance(QueueConnector, harness=Queue)


def run_check(name: str, defect: str, folder: Path, waivers: Mapping[str, str] | None = None) -> None:
    harness: Callable[[Path], Harness] = type("Broken", (Queue,), {"defect": defect})
    kit = connector_conformance(QueueConnector, harness=harness, waivers=waivers)
    getattr(kit(), f"test_{name}")(folder)


@pytest.mark.parametrize(
    ("defect", "check"),
    [
        ("logs an error", "reads_everything_in_order"),
        ("repeats", "reads_everything_in_order"),
        ("value without its schema", "reads_everything_in_order"),
        ("counts an unknown metric", "reads_everything_in_order"),
        ("offset too far", "resumes_from_every_offset"),
        ("offset before the record", "resumes_from_every_offset"),
        ("offset too far", "a_crash_repeats_only_what_was_not_committed"),
        ("offset before the record", "a_crash_repeats_only_what_was_not_committed"),
        ("offset before the record", "stops_and_goes_on_after_any_batch"),
        ("reads ahead", "holds_little_while_nobody_reads"),
        ("wrong error class", "reports_bad_input"),
        ("stays before bad input", "reports_bad_input"),
        ("keeps the old schema", "survives_a_schema_change"),
        ("fails in an outage", "survives_an_outage_of_its_source"),
        ("accepts nonsense", "checks_altered_offsets"),
        ("tells its secret", "keeps_secrets"),
        ("secret in an error", "keeps_secrets"),
        ("leaves a task", "ends_when_cancelled"),
        ("does not end", "ends_when_cancelled"),
        ("sleeps on the loop", "never_blocks_the_event_loop"),
        ("reads on the loop", "never_blocks_the_event_loop"),
        ("too many tasks", "splits_its_work"),
        ("offset before the record", "marks_transactions"),
        ("denies its transactions", "marks_transactions"),
    ],
)
def test_a_defect_fails_its_check(defect: str, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "STOP_DEADLINE", 0.3)
    with pytest.raises((AssertionError, Fatal)):
        run_check(check, defect, tmp_path)


def test_what_a_harness_cannot_do_has_to_be_waived(tmp_path: Path) -> None:
    class Plain(Queue):
        async def poison(self) -> None:
            raise Unsupported

    kit = connector_conformance(QueueConnector, harness=Plain)
    with pytest.raises(pytest.fail.Exception, match="waive the check"):
        kit().test_reports_bad_input(tmp_path)
    (tmp_path / "queue").unlink()
    waived = connector_conformance(QueueConnector, harness=Plain, waivers={"reports_bad_input": "numbers only"})
    with pytest.raises(pytest.xfail.Exception, match="numbers only"):
        waived().test_reports_bad_input(tmp_path)


def test_a_waiver_that_is_not_needed_fails(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="remove the waiver"):
        run_check("reports_bad_input", "", tmp_path, {"reports_bad_input": "no longer true"})


def test_waivers_name_checks_and_reasons() -> None:
    with pytest.raises(ValueError, match="no such checks: flies"):
        connector_conformance(QueueConnector, harness=Queue, waivers={"flies": "it does not"})
    with pytest.raises(ValueError, match="reason"):
        connector_conformance(QueueConnector, harness=Queue, waivers={next(iter(CHECKS)): ""})


class Careless(QueueConnector):
    version = "new"
    metrics: ClassVar[Mapping[str, tuple[str, str]]] = {"Rows": ("histogram", "")}
    config_def = ConfigDef(
        [
            ConfigKey(name="tasks.max", type=ConfigType.INT, doc="Taken.", unit="tasks"),
            ConfigKey(name="Wait", type=ConfigType.STRING, doc="Upper case."),
            ConfigKey(name="poll.ms", type=ConfigType.INT, default=1, doc="Unit.", unit="s"),
            ConfigKey(name="size", type=ConfigType.INT, default=1, doc="No unit."),
            ConfigKey(name="api.token", type=ConfigType.STRING, doc="Not masked."),
            ConfigKey(
                name="mode",
                type=ConfigType.STRING,
                default="c",
                doc="",
                validator=lambda name, value: f"{name} {value}",
            ),
            ConfigKey(name="level", type=ConfigType.INT, default=1, doc="Example.", unit="levels", example="high"),
        ]
    )


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (
            "names_follow_the_rules",
            ["'tasks.max' is the runtime's", "'Wait'", "'poll.ms'", "'api.token'", "'Rows'", "histogram"],
        ),
        ("options_and_metrics_are_documented", ["'mode' has no doc", "'size' is a number without a unit"]),
        ("attributes_fulfil_the_contract", ["version"]),
        ("options_fit_their_declarations", ["'mode': its default is refused", "'level': its example is refused"]),
    ],
)
def test_careless_declarations_fail(check: str, words: list[str]) -> None:
    kit = connector_conformance(Careless, harness=Queue)
    with pytest.raises(AssertionError) as caught:
        getattr(kit(), f"test_{check}")()
    assert not [word for word in words if word not in str(caught.value)]


def test_logging_stays_out_of_the_process_wide_loggers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(AssertionError):
        run_check("reads_everything_in_order", "logs an error", tmp_path)
    assert not [record for record in caplog.records if "all is well" in record.message]
