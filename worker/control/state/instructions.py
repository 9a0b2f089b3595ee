"""Instructions that operators sent to connectors over REST (snapshots), as records of the placement topic. Pure.

One record for each connector, ``instructions-CONNECTOR``, written by the leader: the complete list, as ``SourceTask.instruct``
gets it. It never goes into the config topic, which Java workers read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offsets.records import Pair

_KEY: Final = "instructions-"
#: Of a connector without any, as ``InstructionTable.encoded`` gives it.
NONE: Final = b"[]"
#: Requests of one connector; beyond, those that have ended are forgotten, the oldest first.
KEPT: Final = 100
#: Bytes of one record: well below what brokers accept by default.
MOST_BYTES: Final = 700_000


class InstructionTable:
    """The records folded. Nothing blocks."""

    def __init__(self) -> None:
        self._encoded: dict[str, bytes] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> bool:
        """Fold one record in; False if it is of another kind. An unreadable one changes nothing."""
        name = (key or b"").decode(errors="replace")
        if not name.startswith(_KEY):
            return False
        connector = name[len(_KEY) :]
        if value is None:
            self._encoded.pop(connector, None)
            return True
        try:
            rows = orjson.loads(value)["instructions"]
            if not all(isinstance(row, dict) and isinstance(row["id"], str) for row in rows):
                return True
        except (orjson.JSONDecodeError, LookupError, TypeError):
            return True
        self._encoded[connector] = orjson.dumps(rows)
        return True

    def connectors(self) -> list[str]:
        """Connectors that have instructions."""
        return list(self._encoded)

    def encoded(self, connector: str) -> bytes:
        """The connector's list as JSON; equal bytes are equal lists."""
        return self._encoded.get(connector, NONE)

    def get(self, connector: str) -> list[dict[str, Any]]:
        """The connector's list, to be changed freely."""
        rows: list[dict[str, Any]] = orjson.loads(self.encoded(connector))
        return rows


def instructions_record(connector: str, rows: Sequence[Mapping[str, Any]]) -> Pair:
    """The record of a connector's list; an empty one deletes it."""
    return (_KEY + connector).encode(), orjson.dumps({"instructions": list(rows)}) if rows else None


def with_state(
    rows: Sequence[Mapping[str, Any]], of: Mapping[str, Any], state: str, now_ms: int
) -> list[dict[str, Any]]:
    """The list with another state of one snapshot; one that the connector started itself gets an entry.

    Args:
        rows: the list so far.
        of: the snapshot as the connector shows it, or its entry.
        state: the state that is asked for.
        now_ms: milliseconds since 1970.
    """
    changed = [{**row, "state": state} if row["id"] == of["id"] else dict(row) for row in rows]
    if all(row["id"] != of["id"] for row in rows):
        changed.append(
            {"id": of["id"], "state": state, "origin": str(of.get("origin") or "connector"), "created_ms": now_ms}
        )
    return changed


def prune_rows(rows: Sequence[Mapping[str, Any]], ended: frozenset[str], kept: int = KEPT) -> list[dict[str, Any]]:
    """The list without the oldest of those that have ended, as far as there are more than ``kept`` in all.

    Args:
        rows: the list, oldest first.
        ended: ids of snapshots that have come to their end.
        kept: how many there may be.
    """
    surplus = len(rows) - kept
    result = []
    for row in rows:
        if surplus > 0 and row["id"] in ended:
            surplus -= 1
        else:
            result.append(dict(row))
    return result
