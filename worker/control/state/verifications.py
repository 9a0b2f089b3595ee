"""Verifications of connectors: their options, and their state and results as records of the placement topic. Pure.

One record for each connector, ``verification-CONNECTOR``, written by the leader: what REST shows of its last verification. A
leader that takes over continues with the tables that are not compared yet.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import ConfigInvalid
from connectors.options import ConfigKey, ConfigType, Importance, at_least
from worker.protocol import VERIFICATION

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from offsets.records import Pair

_KEY: Final = "verification-"
_GROUP: Final = "Common"
INTERVAL: Final = "verify.interval.ms"
TABLES: Final = "verify.tables"
RATE: Final = "verify.rows.per.second"
REPAIR: Final = "verify.repair"
#: Bytes of one record: well below what brokers accept by default.
MOST_BYTES: Final = 500_000
#: Bytes of values of rows that are shown of one verification, about.
MOST_VALUE_BYTES: Final = 1_000_000
#: Keys that are kept of each kind of difference of a table where all of them are too much.
_EXAMPLES_OF_LARGE: Final = 10
SCHEDULED: Final = "scheduled"
RUNNING: Final = "running"
_LEAST_MS: Final = 1_000


def _check_interval(name: str, value: Any) -> str | None:
    return None if value == 0 else at_least(_LEAST_MS)(name, value)


VERIFY_KEYS: Final = (
    ConfigKey(
        name=INTERVAL,
        type=ConfigType.LONG,
        default=0,
        unit="ms",
        validator=_check_interval,
        importance=Importance.MEDIUM,
        group=_GROUP,
        order=17,
        display_name="Interval of verifications",
        doc="How often the tables are compared with their topics, from the start of one verification to the start of the next "
        "(MySQL, MariaDB, Scylla and Cassandra); at least a second. 0: only when somebody asks.",
        example="86400000",
    ),
    ConfigKey(
        name=TABLES,
        type=ConfigType.STRING,
        default="",
        importance=Importance.LOW,
        group=_GROUP,
        order=18,
        display_name="Tables to verify",
        doc="A regular expression for whole names of the tables that are compared; empty: all.",
        example=r"shop\.orders",
    ),
    ConfigKey(
        name=RATE,
        type=ConfigType.INT,
        default=0,
        unit="rows",
        validator=at_least(0),
        importance=Importance.LOW,
        group=_GROUP,
        order=19,
        display_name="Rows per second of a verification",
        doc="How many rows a scheduled verification reads of the source per second at most. 0: no limit.",
    ),
    ConfigKey(
        name=REPAIR,
        type=ConfigType.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        group=_GROUP,
        order=20,
        display_name="Repair what differs",
        doc="Whether rows that differ after a scheduled verification are sent again, by a snapshot of them.",
    ),
)


class VerificationTable:
    """The records folded. Nothing blocks."""

    def __init__(self) -> None:
        self._encoded: dict[str, bytes] = {}
        #: State and start of each, and its values of metrics: bodies are too large to be decoded at each look.
        self._summaries: dict[str, dict[str, Any]] = {}
        self._numbers: dict[str, dict[str, float]] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> bool:
        """Fold one record in; False if it is of another kind. An unreadable one changes nothing."""
        name = (key or b"").decode(errors="replace")
        if not name.startswith(_KEY):
            return False
        connector = name[len(_KEY) :]
        if value is None:
            for kept in (self._encoded, self._summaries, self._numbers):
                kept.pop(connector, None)
            return True
        try:
            body = _decode_body(value)
            summary = {"state": str(body["state"]), "started_ms": int(body["started_ms"])}
            values = metric_values(body)
        except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, zlib.error):
            return True
        self._encoded[connector], self._summaries[connector], self._numbers[connector] = value, summary, values
        return True

    def connectors(self) -> list[str]:
        """Connectors with a verification."""
        return list(self._encoded)

    def get(self, connector: str) -> dict[str, Any] | None:
        """The last verification as REST shows it, to be changed freely; None: there was no verification."""
        encoded = self._encoded.get(connector)
        return None if encoded is None else dict(_decode_body(encoded))

    def summary(self, connector: str) -> dict[str, Any] | None:
        """``state`` and ``started_ms`` of the last verification; None: there was no verification."""
        return self._summaries.get(connector)

    def numbers(self) -> dict[str, dict[str, float]]:
        """Values of metrics by connector."""
        return dict(self._numbers)

    def instructions(self, connector: str, encoded: bytes) -> bytes:
        """The instructions of a connector's tasks, with one that a verification waits for their offsets, while one does."""
        summary = self._summaries.get(connector)
        if summary is None or summary["state"] != RUNNING:
            return encoded
        return orjson.dumps(
            [*orjson.loads(encoded), {"id": VERIFICATION, "state": "running", "origin": VERIFICATION, "created_ms": 0}]
        )


def verification_record(connector: str, body: Mapping[str, Any] | None) -> Pair:
    """The record of a connector's verification; None deletes it.

    Values of rows are not among it, and fewer keys of rows where it would be too large. That of thousands of
    tables is compressed.
    """
    key = (_KEY + connector).encode()
    if body is None:
        return key, None
    kept = without_values(body)
    encoded = orjson.dumps(kept)
    if len(encoded) > MOST_BYTES:
        encoded = orjson.dumps(shorten_body(kept))
    return key, encoded if len(encoded) <= MOST_BYTES else zlib.compress(encoded)


def _decode_body(value: bytes) -> Any:
    return orjson.loads(value if value.startswith(b"{") else zlib.decompress(value))


def without_values(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body without what both sides say of rows: not everybody who may read the placement topic may see them."""
    result = body["result"]
    if result is None:
        return dict(body)
    return {**body, "result": {**result, "tables": [{**table, "differences": []} for table in result["tables"]]}}


def bounded(table: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A result of a table without values of rows, if those of the tables before it take the space for them."""
    size = sum(len(orjson.dumps(other.get("differences") or [])) for other in before)
    return dict(table) if size < MOST_VALUE_BYTES else {**table, "differences": []}


def shorten_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with a few keys of each kind of difference; without the key ranges, and without repairs by key."""
    result = body["result"]
    if result is None:
        return dict(body)
    tables = [
        {
            **table,
            "examples": {kind: keys[:_EXAMPLES_OF_LARGE] for kind, keys in table["examples"].items()},
            "key_ranges": [],
            "condition": "" if table["condition"] else table["condition"],
        }
        for table in result["tables"]
    ]
    return {**body, "result": {**result, "notes": result["notes"][:_EXAMPLES_OF_LARGE], "tables": tables}}


def due_ms(config: Mapping[str, str], body: Mapping[str, Any] | None, now_ms: int) -> int | None:
    """When a connector's next verification starts, milliseconds since 1970; None: no one is scheduled, or one runs."""
    raw = config.get(INTERVAL, "").strip()
    interval = int(raw) if raw.isascii() and raw.isdecimal() else 0
    if interval <= 0 or (body is not None and body["state"] == RUNNING):
        return None
    return (now_ms if body is None else body["started_ms"]) + interval


def scheduled_request(config: Mapping[str, str]) -> dict[str, Any]:
    """The request of a scheduled verification of a connector."""
    rate = config.get(RATE, "").strip()
    return {
        "tables": config.get(TABLES, ""),
        "examples": 100,
        "timeout_s": 3600,
        "rows_per_s": int(rate) if rate.isascii() and rate.isdecimal() else 0,
        "repair": config.get(REPAIR, "").strip().lower() == "true",
    }


def metric_values(body: Mapping[str, Any]) -> dict[str, float]:
    """A verification as values of metrics."""
    result = body["result"] or {"tables": []}
    tables = result["tables"]
    return {
        "millrace_verify_running": float(body["state"] == RUNNING),
        "millrace_verify_failed": float(body["state"] == "failed"),
        "millrace_verify_end_time_seconds": (body["ended_ms"] or 0) / 1000,
        "millrace_verify_rows": float(sum(table["rows"]["source"] for table in tables)),
        **{
            f"millrace_verify_{kind}_rows": float(sum(table[kind] for table in tables))
            for kind in ("missing", "extra", "different", "unsettled")
        },
    }


def repair_request(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The request for a snapshot (``POST .../snapshots``) that sends again what a verification found to differ; None: nothing.

    Rows that are only on the topic are not among it: a snapshot deletes nothing.
    """
    tables: list[str] = []
    conditions: dict[str, str] = {}
    for table in (result or {"tables": []})["tables"]:
        condition = table["condition"]
        if condition is None or not table["missing"] + table["different"]:
            continue
        name = _exact_pattern(table.get("source_table") or table["table"])
        tables.append(name)
        if condition:
            conditions[name] = condition
    if not tables:
        return None
    return {"tables": tables, "priority": 1, **({"conditions": conditions} if conditions else {})}


def topics_to_repair(result: Mapping[str, Any] | None) -> list[str]:
    """Of a flow's verification: the topics with rows that a snapshot sends again; none of a source's."""
    tables = (result or {"tables": []})["tables"]
    return [table["table"] for table in tables if table.get("source_table") and table["missing"] + table["different"]]


def choose_sender(topics: Sequence[str], writers: Mapping[str, Container[str]]) -> str:
    """The source connector that can send the rows of a flow's topics again.

    Args:
        topics: the topics, at least one.
        writers: the topics that each source connector of the cluster writes.

    Raises:
        ConfigInvalid: no connector writes one of them, or they have several.
    """
    senders: set[str] = set()
    for topic in topics:
        names = sorted(name for name, written in writers.items() if topic in written)
        if not names:
            raise ConfigInvalid(
                f"no connector of this cluster writes {topic}, as far as its tracked topics say: ask the one that does for "
                "a snapshot"
            )
        senders.update(names)
    if len(senders) > 1:
        raise ConfigInvalid(
            f"the rows of {', '.join(topics)} come from several connectors ({', '.join(sorted(senders))}): verify the "
            "topics of one of them (tables), or ask each for a snapshot"
        )
    return senders.pop()


def _exact_pattern(table: str) -> str:
    """A table's name as an expression that fits it alone, in Java's syntax as well."""
    return "".join(letter if letter.isalnum() or letter == "_" else f"\\{letter}" for letter in table)
