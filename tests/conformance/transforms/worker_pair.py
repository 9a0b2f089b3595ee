"""Runs the same records through the transforms of Kafka Connect's worker and of Millrace's, as far as the bytes in Kafka.

A case is what ``generate_vectors.py`` makes::

    {"config": {"transforms": "t", "transforms.t.type": ..., "transforms.t....": ...},   # any connector properties
     "records": [{"topic": "a", "partition": None, "timestamp": None, "key": DATA, "value": DATA,
                  "headers": [{"key": "h", "value": DATA}]}]}

``DATA`` is None or ``{"schema": ..., "payload": ...}`` as JsonConverter reads it with ``schemas.enable``. The configuration may
also name converters (``key.converter`` ...) and ``errors.tolerance``; without them all converters are JsonConverter with
schemas, and refused records are skipped (``errors.tolerance=all``).

``run_java(cases, bootstrap, folder)`` and ``run_millrace(cases, bootstrap, folder)`` each start one worker, one connector per
case, and give one ``Outcome`` per case. ``compare`` gives the differences. Both block, and end the worker.

How: a source connector that reads a case from a file, in Java (``CaseSource.java``) and in Python (``plugin/case_source.py``),
and behind the case's transforms one more, ``CaseSource$Stamp``, which redirects each record to one topic of the run and puts a
header with its case, number, topic, partition and timestamp on it. All else is the worker's: chain, predicates, tolerance,
converters, producer.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from compose.local.connect import JavaConnect
from compose.local.process.jvm import Heap
from compose.local.worker import MillraceWorker
from tests.conformance.java_compiler import compiled
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import FAST_START, find_java
from worker.fetch.resolver import ArtifactResolver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message

Json = dict[str, Any]

_HERE: Final = Path(__file__).parent
_STAMP: Final = "stamp"
_STAMP_ALIAS: Final = "stamp"
_SERVICES: Final = {
    "META-INF/services/org.apache.kafka.connect.source.SourceConnector": "CaseSource\n",
    "META-INF/services/org.apache.kafka.connect.transforms.Transformation": "CaseSource$Stamp\n",
}
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_STARTERS: Final = 4  # threads that create connectors
_WAVE: Final = 128  # connectors at a time
_DEADLINE_S: Final = 120.0  # for each wave
_CAUSE: Final = re.compile(r"^(?:Caused by: )?([\w.$]+(?:Exception|Error|[A-Z]\w+)): (.*)$", re.MULTILINE)


class Sent(NamedTuple):
    """One record as Kafka stores it, and where it would have gone without the stamp.

    Attributes:
        key: the key's bytes.
        value: the value's.
        headers: names and bytes.
        topic: the topic after all transforms.
        partition: the partition that the record asks for.
        timestamp: the record's timestamp; None where the producer sets it.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str
    partition: int | None
    timestamp: int | None


@dataclass(slots=True)
class Outcome:
    """The outcome of one case.

    Attributes:
        refused: the worker's text, if it took the configuration for wrong.
        failed: the trace of the task, or of the connector, if it failed.
        records: one item per record of the case; None for one that was dropped or refused, or came after a failure.
        late: whether neither an end nor a failure was seen in time.
    """

    refused: str | None = None
    failed: str | None = None
    records: list[Sent | None] = field(default_factory=list)
    late: bool = False

    @property
    def verdict(self) -> str:
        """``refused``, ``failed``, ``late`` or ``done``. Connect finds many wrong options only when the task starts."""
        if self.refused is not None:
            return "refused"
        if self.failed is not None:
            return "failed"
        return "late" if self.late else "done"

    @property
    def causes(self) -> list[str]:
        """The messages of the errors that failed the task, the innermost last; without the worker's own around them."""
        return [text for _, text in _CAUSE.findall(self.failed or "") if text != "Tolerance exceeded in error handler"]

    @property
    def reason(self) -> str:
        """The text of the innermost error."""
        if self.refused is not None:
            return self.refused
        return self.causes[-1] if self.causes else self.failed or ""


def run_java(
    cases: Sequence[Json],
    bootstrap: str,
    folder: Path,
    *,
    plugins: Sequence[str] = (),
    extra_classpath: Sequence[Path] = (),
    timeout_s: float = _DEADLINE_S,
) -> list[Outcome]:
    """Run the cases in Kafka Connect's worker (standalone, one JVM).

    Args:
        cases: see the module.
        bootstrap: Kafka's addresses.
        folder: for the worker's files; made if need be.
        plugins: names of pinned sets in ``artifacts.toml`` for its class path (``debezium``).
        extra_classpath: further jars.
        timeout_s: seconds until what is not done of a wave of connectors counts as late.

    Raises:
        StackError: no Java, no jars, or the worker doesn't start.
    """
    java = find_java()
    # The connector is compiled against Connect itself, whatever else is on the worker's class path.
    jars = ArtifactResolver().fetch(load_manifest().members("connect"), "Kafka Connect (the Java reference)")
    classes = compiled(java, _HERE / "CaseSource.java", jars, _SERVICES)
    run = _Run(cases, bootstrap, folder)
    worker = JavaConnect(
        run.folder,
        bootstrap,
        group=run.topic,
        standalone=(),
        plugins=plugins,
        jvm_options=FAST_START,
        heap=Heap(128, 1024),
        extra_classpath=[*extra_classpath, classes],
        properties={"plugin.discovery": "service_load"},
    )
    worker.start()
    try:
        return run.outcomes(worker, timeout_s)
    finally:
        worker.kill()
        run.clean()


def run_millrace(
    cases: Sequence[Json], bootstrap: str, folder: Path, *, timeout_s: float = _DEADLINE_S
) -> list[Outcome]:
    """Run the cases in Millrace's worker; arguments and errors as ``run_java``."""
    run = _Run(cases, bootstrap, folder)
    worker = MillraceWorker(
        run.folder,
        bootstrap,
        group=run.topic,
        processes=1,
        properties={"plugin.path": str(_HERE / "plugin"), "offset.flush.interval.ms": "200"},
    )
    worker.start()
    try:
        return run.outcomes(worker, timeout_s)
    finally:
        worker.kill()
        run.clean()


def compare(java: Outcome, ours: Outcome, records: Sequence[Json]) -> list[str]:
    """Return the differences, one string each; empty if there are none.

    All is compared as bytes, except that the entries of maps may be in any order: Java's come from hash tables. A
    configuration may be refused by one and fail the task of the other: both mean that it can't be used.
    """
    usable = {"done": "done", "refused": "unusable", "failed": "unusable", "late": "late"}
    if usable[java.verdict] != usable[ours.verdict]:
        return [f"Java: {java.verdict} {java.reason}\nMillrace: {ours.verdict} {ours.reason}"]
    if java.verdict != "done":
        return []  # what was sent before a failure is left to chance
    differences = []
    for number, (theirs, mine) in enumerate(zip(java.records, ours.records, strict=True)):
        if not _same(theirs, mine):
            shown = json.dumps(records[number], ensure_ascii=False)
            differences.append(
                f"record {number}: {shown}\n  Java:     {_shown(theirs, mine)}\n  Millrace: {_shown(mine, theirs)}"
            )
    return differences


def _same(java: Sent | None, ours: Sent | None) -> bool:
    if java == ours:
        return True
    return java is not None and ours is not None and _ordered(java) == _ordered(ours)


def _ordered(sent: Sent) -> Sent:
    return sent._replace(
        key=_sorted(sent.key),
        value=_sorted(sent.value),
        headers=tuple((name, _sorted(data)) for name, data in sent.headers),
    )


def _sorted(data: bytes | None) -> bytes | None:
    """JSON with the entries of its maps in order; all else stays as it is written."""
    try:
        document = json.loads(data or b"", parse_float=_Verbatim, parse_constant=_Verbatim)
    except ValueError:
        return data
    if not isinstance(document, dict) or set(document) != {"schema", "payload"}:
        return data
    schema = document["schema"]
    return json.dumps({"schema": schema, "payload": _sorted_value(schema, document["payload"])}).encode()


class _Verbatim(str):
    """The text of a number."""

    __slots__ = ()


def _sorted_value(schema: Json | None, value: Any) -> Any:
    if schema is None:
        if isinstance(value, dict):
            return {name: _sorted_value(None, value[name]) for name in sorted(value)}
        return [_sorted_value(None, item) for item in value] if isinstance(value, list) else value
    kind = schema["type"]
    if value is None or kind not in {"struct", "map", "array"}:
        return value
    if kind == "struct":
        return {field["field"]: _sorted_value(field, value[field["field"]]) for field in schema["fields"]}
    if kind == "array":
        return [_sorted_value(schema["items"], item) for item in value]
    if isinstance(value, list):  # keys that are no strings
        return sorted(([key, _sorted_value(schema["values"], item)] for key, item in value), key=json.dumps)
    return {name: _sorted_value(schema["values"], value[name]) for name in sorted(value)}


def _shown(sent: Sent | None, other: Sent | None) -> str:
    """Describe the parts of a record that differ from the other's."""
    if sent is None or other is None:
        return "nothing" if sent is None else repr(tuple(sent))
    return ", ".join(
        f"{name}={getattr(sent, name)!r}" for name in Sent._fields if getattr(sent, name) != getattr(other, name)
    )


class _Run:
    """One worker's way through all cases."""

    def __init__(self, cases: Sequence[Json], bootstrap: str, folder: Path) -> None:
        self.cases = cases
        self.bootstrap = bootstrap
        self.topic = f"transforms-{secrets.token_hex(6)}"
        self.folder = folder / self.topic
        self.folder.mkdir(parents=True)
        for number, case in enumerate(cases):
            self._file(number).write_text(json.dumps(case["records"]), encoding="utf-8")
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in self.admin.create_topics([NewTopic(self.topic, 1, 1)]).values():
            future.result(30)

    def outcomes(self, worker: JavaConnect | MillraceWorker, timeout_s: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        with ThreadPoolExecutor(_STARTERS) as pool:
            for start in range(0, len(self.cases), _WAVE):
                wave = range(start, min(start + _WAVE, len(self.cases)))
                outcomes += self._through(worker, pool, wave, timeout_s)
                if wave.stop < len(self.cases):
                    list(pool.map(lambda number: self._delete(worker, number), wave))
        for message in self._messages():
            number, record, sent = _sent(message)
            outcomes[number].records[record] = sent
        return outcomes

    def _through(
        self, worker: JavaConnect | MillraceWorker, pool: ThreadPoolExecutor, wave: range, timeout_s: float
    ) -> list[Outcome]:
        """Run some cases and return their outcomes without records; their connectors still run."""
        deadline = time.monotonic() + timeout_s
        refusals = list(pool.map(lambda number: self._create(worker, number), wave))
        outcomes = {
            number: Outcome(refused, records=[None] * len(self.cases[number]["records"]))
            for number, refused in zip(wave, refusals, strict=True)
        }
        waiting = {number for number, outcome in outcomes.items() if outcome.refused is None}
        while waiting and time.monotonic() < deadline:
            waiting = {number for number in waiting if not Path(f"{self._file(number)}.done").exists()}
            if waiting:
                for number, trace in self._failures(worker, waiting).items():
                    outcomes[number].failed = trace
                    waiting.discard(number)
                time.sleep(0.1)
        for number in waiting:
            outcomes[number].late = True
        return list(outcomes.values())

    def clean(self) -> None:
        """Delete the run's topics, the worker's internal ones too."""
        names = [name for name in self.admin.list_topics(timeout=30).topics if name.startswith(self.topic)]
        for gone in self.admin.delete_topics(names).values():
            gone.result(30)

    def _file(self, number: int) -> Path:
        return self.folder.absolute() / f"case-{number}.json"

    def _create(self, worker: JavaConnect | MillraceWorker, number: int) -> str | None:
        """Start the connector of a case; the text if it was refused."""
        case_config = self.cases[number]["config"]
        chain = ",".join(filter(None, (case_config.get("transforms", ""), _STAMP_ALIAS)))
        config = {
            "connector.class": "CaseSource",
            "tasks.max": "1",
            "case": str(self._file(number)),
            "key.converter": _JSON,
            "value.converter": _JSON,
            "header.converter": _JSON,
            "errors.tolerance": "all",
            **case_config,
            "transforms": chain,
            f"transforms.{_STAMP_ALIAS}.type": "CaseSource$Stamp",
            f"transforms.{_STAMP_ALIAS}.topic": self.topic,
            f"transforms.{_STAMP_ALIAS}.case": str(number),
        }
        while True:
            status, body = worker.request("PUT", f"/connectors/{self._name(number)}/config", config, timeout=60)
            if status == 409:  # a rebalance
                time.sleep(0.1)
                continue
            if status in (200, 201):
                return None
            return str(body["message"] if isinstance(body, dict) else body)

    def _delete(self, worker: JavaConnect | MillraceWorker, number: int) -> None:
        worker.request("DELETE", f"/connectors/{self._name(number)}", timeout=60)

    def _name(self, number: int) -> str:
        return f"{self.topic}-{number}"

    def _failures(self, worker: JavaConnect | MillraceWorker, waiting: set[int]) -> dict[int, str]:
        status, body = worker.request("GET", "/connectors?expand=status")
        if status != 200:
            return {}
        traces = {}
        for number in waiting:
            state = body.get(self._name(number), {}).get("status")
            if state is None:
                continue
            for part in (state["connector"], *state["tasks"]):
                if part["state"] == "FAILED":
                    traces[number] = part.get("trace", "")
        return traces

    def _messages(self) -> list[Message]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.topic, "enable.auto.commit": False})
        try:
            partition = TopicPartition(self.topic, 0, 0)
            _, end = consumer.get_watermark_offsets(partition, timeout=30)
            consumer.assign([partition])
            messages: list[Message] = []
            while len(messages) < end:
                batch = consumer.consume(min(1000, end - len(messages)), timeout=30)
                if not batch:
                    raise TimeoutError(f"{self.topic} has {end} records, of which {len(messages)} could be read")
                messages += batch
            return messages
        finally:
            consumer.close()


def _sent(message: Message) -> tuple[int, int, Sent]:
    # confluent_kafka's stubs know headers only as what a producer takes.
    raw = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    if not raw or raw[-1][0] != _STAMP or raw[-1][1] is None:
        raise AssertionError(f"a record without a stamp: {raw}")
    described = json.loads(raw[-1][1])
    if "payload" in described:
        described = json.loads(described["payload"])
    timestamp = described["timestamp"]
    sent = Sent(
        message.key(),
        message.value(),
        tuple(raw[:-1]),
        described["topic"],
        described["partition"],
        None if timestamp is None else message.timestamp()[1],
    )
    return int(described["case"]), described["record"], sent
