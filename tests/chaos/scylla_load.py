"""A writer to a Scylla table in a thread of its own, and the comparison of what it wrote with what is in Kafka."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compose.local.scylla.client import Emulation, now_us
from compose.local.scylla.writes import Delete, Insert, Update
from worker.kafka.whole_topics import ReadRecord, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compose.local.scylla.writes import Write

#: (write time in microseconds, key as JSON): names one change of one row.
Change = tuple[int, str]


@dataclass
class ScyllaLoad:
    """Writes to ``table`` until stopped; every change is remembered; compare after ``stop``.

    Attributes:
        address: of the Scylla.
        table: ``keyspace.table`` with (pk int, ck int, v text, n bigint).
        prefix: ``topic.prefix`` of the connector that reads it.
        skew_ms: how far a write's own timestamp may lie from now, to both sides.
        rows: how many different rows there are.
    """

    address: str
    table: str
    prefix: str
    skew_ms: int = 0
    rows: int = 40
    seed: int = 1
    expected: list[Change] = field(default_factory=list)
    failure: BaseException | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def topic(self) -> str:
        """Where the events go."""
        return f"{self.prefix}.{self.table}"

    def start(self) -> None:
        """Begin to write."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._write, daemon=True, name="scylla-load")
        self._thread.start()

    def stop(self) -> None:
        """End writing; a statement that was started is finished first.

        Raises:
            BaseException: what made the writer fail.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _write(self) -> None:
        chance = random.Random(self.seed + len(self.expected))
        client = Emulation(self.address)
        try:
            last = 0
            while not self._stop.is_set():
                last = max(last + 1, now_us())
                moment = last
                if self.skew_ms:
                    moment += chance.randrange(-1000 * self.skew_ms, 1000 * self.skew_ms)
                writes = self._writes(chance)
                client.apply(*writes, timestamp_us=moment)
                # The table's key columns in alphabetical order, as the legacy form has them.
                self.expected += [
                    (moment, json.dumps({"ck": key["ck"], "pk": key["pk"]})) for key in map(key_of, writes)
                ]
                self._stop.wait(0.004)
        except BaseException as error:  # noqa: BLE001 - raised by stop()
            self.failure = error
        finally:
            client.close()

    def _writes(self, chance: random.Random) -> list[Write]:
        pk = chance.randrange(self.rows // 4)
        writes: list[Write] = []
        for ck in chance.sample(range(4), chance.choice([1, 1, 1, 3])):
            key, number = {"pk": pk, "ck": ck}, chance.randrange(10**6)
            kinds: list[Write] = [
                Insert(self.table, {**key, "v": f"i{number}", "n": number}),
                Update(self.table, key, {"v": f"u{number}"}),
                Update(self.table, key, {"n": None}),
                Delete(self.table, key),
            ]
            writes.append(chance.choice(kinds))
        return writes


def key_of(write: Write) -> dict[str, Any]:
    """The row that a write is of."""
    row = write.values if isinstance(write, Insert) else write.key
    return {"pk": row["pk"], "ck": row["ck"]}


def changes(records: Sequence[ReadRecord]) -> list[tuple[Change, dict[str, Any]]]:
    """The change that each record of a topic describes, and its payload; tombstones left out."""
    pairs = []
    for record in records:
        if record.value is not None:
            value = json.loads(record.value)
            pairs.append(((value["source"]["ts_us"], json.dumps(json.loads(record.key or b"{}"))), value))
    return pairs


def fold(events: Sequence[dict[str, Any]]) -> dict[tuple[int, int], dict[str, Any]]:
    """The table that events of the legacy form lead to; a column's own write time decides, as in the database."""
    rows: dict[tuple[int, int], dict[str, tuple[int, Any]]] = {}
    deleted: dict[tuple[int, int], int] = {}
    for event in events:
        state, when = event["after"] or event["before"], event["source"]["ts_us"]
        key = (state["pk"], state["ck"])
        cells = rows.setdefault(key, {})
        if event["op"] == "d":
            deleted[key] = max(deleted.get(key, 0), when)
            continue
        news: dict[str, Any] = {name: state[name]["value"] for name in ("v", "n") if state[name] is not None}
        if event["op"] == "c":
            news["pk"] = key[0]  # the row marker
        for name, value in news.items():
            if when >= cells.get(name, (0, None))[0]:
                cells[name] = (when, value)
    table = {}
    for key, cells in rows.items():
        living = {
            name: value for name, (when, value) in cells.items() if when > deleted.get(key, 0) and value is not None
        }
        if living:
            table[key] = {"pk": key[0], "ck": key[1], "v": living.get("v"), "n": living.get("n")}
    return table


def verify(load: ScyllaLoad, bootstrap: str, base: Sequence[dict[str, Any]], *, exactly_once: bool) -> int:
    """Compare the topic with what was written and with the base table; returns how many events came again.

    Raises:
        AssertionError: a change is missing, was never written, or came twice where it must not; a row's changes are out of
            order; or the fold is not the base table.
    """
    events = changes(read_topic(bootstrap, load.topic, committed=exactly_once))
    counted, expected = Counter(change for change, _ in events), set(load.expected)
    lost = expected - counted.keys()
    assert not lost, f"{len(lost)} of {len(expected)} changes are lost, for example {sorted(lost)[:3]}"
    strange = counted.keys() - expected
    assert not strange, f"{len(strange)} events are of changes that nobody made, for example {sorted(strange)[:3]}"
    repeated = sum(counted.values()) - len(counted)
    assert not (exactly_once and repeated), f"{repeated} events came more than once"
    if not load.skew_ms:
        newest: dict[str, int] = {}
        seen: set[Change] = set()
        for (when, key), _ in events:
            if (when, key) not in seen:
                assert when > newest.get(key, 0), f"the change of {key} at {when} came behind that at {newest[key]}"
                newest[key] = when
                seen.add((when, key))
    table = {(row["pk"], row["ck"]): row for row in base}
    assert fold([value for _, value in events]) == table
    return repeated


def until_all_there(
    load: ScyllaLoad, bootstrap: str, wait: Callable[[Callable[[], bool], str], None], *, exactly_once: bool
) -> None:
    """Wait until every change is in the topic."""

    def there() -> bool:
        arrived = {change for change, _ in changes(read_topic(bootstrap, load.topic, committed=exactly_once))}
        return set(load.expected) <= arrived

    wait(there, f"all changes of {load.table} come to {load.topic}")
