"""Compares two captures of the world record by record, leaf by leaf; what may differ is named, with the reason."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.integration.mysql.debezium_world import Capture, Record

_ABSENT = "(absent)"


class Difference(NamedTuple):
    """One leaf that is not the same.

    Attributes:
        variant: whose options.
        topic: the topic.
        phase: of the record.
        number: of the record within topic and phase.
        path: where in the record, as ``value.after.id`` or ``value_schema.before.id.type``.
    """

    variant: str
    topic: str
    phase: str
    number: int
    path: str
    theirs: Any
    ours: Any

    def __str__(self) -> str:
        return (
            f"[{self.variant}] {self.topic} {self.phase} {self.number}: {self.path}\n"
            f"    theirs {_short(self.theirs)}\n    ours   {_short(self.ours)}"
        )


class Deliberate(NamedTuple):
    """A difference that is wanted.

    Attributes:
        name: what to call it.
        reason: why ours is as it is.
        topic: regular expression of the whole topic's name.
        path: regular expression of the whole path.
        variants: where it is met; () for all.
        phases: "snapshot", "stream" or both.
        when: says of theirs and ours whether this is it.
        chance: whether it is met only where the stream is behind the statements: it may be missing.
    """

    name: str
    reason: str
    topic: str
    path: str
    variants: tuple[str, ...] = ()
    phases: tuple[str, ...] = ("snapshot", "stream")
    when: Callable[[Any, Any], bool] = lambda _theirs, _ours: True
    chance: bool = False

    def covers(self, difference: Difference) -> bool:
        """Whether it explains the difference."""
        return (
            (not self.variants or difference.variant in self.variants)
            and difference.phase in self.phases
            and re.fullmatch(self.topic, difference.topic) is not None
            and re.fullmatch(self.path, difference.path) is not None
            and self.when(difference.theirs, difference.ours)
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


#: Leaves that are another each time, whoever made the records: they have to be there with the same type, and no more.
_CHANCE = [
    (re.compile(r"value\.ts_(ms|us|ns)"), "", re.compile(r"(?!server\.transaction$).*")),  # when it was handled
    (re.compile(r"value\.source\.ts_(ms|us|ns)"), "snapshot", re.compile(".*")),  # when the snapshot was taken
    (re.compile(r"headers\.__debezium\.context\.runId"), "", re.compile(".*")),
]
#: The time of the last event before, which is the snapshot's.
_FIRST_BEGIN = ("server.transaction", "stream", 0, "value.ts_ms")


def differences(variant: str, theirs: Capture, ours: Capture) -> list[Difference]:
    """Return the differences of two captures of the same variant, apart from those that are chance.

    Records are matched in order by what they are about, so that one more or less makes one difference: its path is "missing" or
    "extra".
    """
    collected: list[Difference] = []
    mine, other = _grouped(ours), _grouped(theirs)
    for topic, phase in sorted(mine.keys() | other.keys()):
        if topic.startswith("__debezium-heartbeat."):
            continue  # see heartbeats()
        left, right = other.get((topic, phase), []), mine.get((topic, phase), [])
        for number, (their_record, our_record) in enumerate(_matched(left, right)):
            if their_record is None or our_record is None:
                about = _about(their_record or our_record)
                collected.append(
                    Difference(
                        variant,
                        topic,
                        phase,
                        number,
                        "extra" if their_record is None else "missing",
                        about if their_record else None,
                        about if our_record else None,
                    )
                )
                continue
            for path, old, new in _walk(_comparable(their_record), _comparable(our_record), ""):
                if not _chance(path, phase, topic, old, new) and (topic, phase, number, path) != _FIRST_BEGIN:
                    collected.append(Difference(variant, topic, phase, number, path, old, new))
    return collected


def _about(record: Record | None) -> str:
    """Identify a record: key, operation and transaction; for a schema change the transaction."""
    assert record is not None
    value = record.value or {}
    source = value.get("source") or {}
    if "tableChanges" in value:
        return f"{source['gtid'] or source['table']} {value['ddl'].split(None, 1)[0]}"
    return " ".join(
        str(part)
        for part in (json.dumps(record.key, sort_keys=True), value.get("op"), value.get("status"), source.get("gtid"))
    )


def _matched(theirs: Sequence[Record], ours: Sequence[Record]) -> list[tuple[Record | None, Record | None]]:
    matcher = difflib.SequenceMatcher(
        None, [_about(record) for record in theirs], [_about(record) for record in ours], autojunk=False
    )
    pairs: list[tuple[Record | None, Record | None]] = []
    for kind, low, high, our_low, our_high in matcher.get_opcodes():
        if kind == "equal":
            pairs += zip(theirs[low:high], ours[our_low:our_high], strict=True)
        else:
            pairs += [(record, None) for record in theirs[low:high]]
            pairs += [(None, record) for record in ours[our_low:our_high]]
    return pairs


def unexplained(differences: Sequence[Difference], explanations: Sequence[Deliberate]) -> list[Difference]:
    """The differences that none of the known ones covers."""
    return [
        difference
        for difference in differences
        if not any(explanation.covers(difference) for explanation in explanations)
    ]


def unused(differences: Sequence[Difference], explanations: Sequence[Deliberate]) -> list[str]:
    """Names of known differences that are not met: they have to go from the list."""
    return [
        explanation.name
        for explanation in explanations
        if not explanation.chance and not any(explanation.covers(difference) for difference in differences)
    ]


def heartbeats(capture: Capture) -> list[tuple[Any, ...]]:
    """The heartbeats' distinct shapes: key and value without the time."""
    shapes = []
    for record in capture.records:
        if record.topic.startswith("__debezium-heartbeat."):
            shape = (record.topic, record.key_schema, record.key, record.value_schema, sorted(record.value))
            if shape not in shapes:
                shapes.append(shape)
    return shapes


def listing(differences: Sequence[Difference], most: int = 40) -> str:
    """For an assertion's message: differences of one kind (path and topic) once, with how often."""
    kinds: dict[tuple[str, str, str, str], list[Difference]] = {}
    for difference in differences:
        kinds.setdefault((difference.variant, difference.topic, difference.phase, difference.path), []).append(
            difference
        )
    lines = [f"{group[0]}" + (f"\n    and {len(group) - 1} more" if len(group) > 1 else "") for group in kinds.values()]
    rest = f"\n... and {len(lines) - most} more kinds" if len(lines) > most else ""
    return f"{len(differences)} differences of {len(lines)} kinds:\n" + "\n".join(lines[:most]) + rest


def _grouped(capture: Capture) -> dict[tuple[str, str], list[Record]]:
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in capture.records:
        groups.setdefault((record.topic, record.phase), []).append(record)
    return groups


def _comparable(record: Record) -> dict[str, Any]:
    return {
        "key_schema": record.key_schema,
        "key": record.key,
        "value_schema": record.value_schema,
        "value": record.value,
        "headers": dict(record.headers),
        "header names": [name for name, _ in record.headers],
    }


def _fields(value: Any) -> dict[str, Any] | None:
    """Schemas of a struct's fields by name, with their order; None for anything else."""
    if isinstance(value, list) and value and all(isinstance(field, dict) and "field" in field for field in value):
        return {**{field["field"]: field for field in value}, "(order)": ",".join(field["field"] for field in value)}
    return None


def _walk(theirs: Any, ours: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    left, right = _fields(theirs), _fields(ours)
    if left is not None and right is not None:
        theirs, ours = left, right
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            # A schema's fields are not a level of their own: value_schema.before.id.type.
            below = path if name == "fields" else f"{path}.{name}" if path else name
            yield from _walk(theirs.get(name, _ABSENT), ours.get(name, _ABSENT), below)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (their_value, our_value) in enumerate(zip(theirs, ours, strict=True)):
            yield from _walk(their_value, our_value, f"{path}[{number}]")
    elif type(theirs) is not type(ours) or theirs != ours:
        yield path, theirs, ours


def _chance(path: str, phase: str, topic: str, theirs: Any, ours: Any) -> bool:
    return type(theirs) is type(ours) and any(
        pattern.fullmatch(path) is not None and where in {"", phase} and topics.fullmatch(topic) is not None
        for pattern, where, topics in _CHANCE
    )
