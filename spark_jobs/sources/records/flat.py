"""Flat rows: which of a value's members are the row, and which say what happened to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Skippable
from spark_jobs.contract import UMS_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


_TIMES: Final = ("__source_ts_us", "__source_ts_ns", "__source_ts_ms", "__ts_us", "__ts_ns", "__ts_ms")
_WORDS: Final = {
    word: op
    for op, words in {
        "i": ("c", "r", "i", "insert", "create", "read"),
        "u": ("u", "update"),
        "d": ("d", "delete"),
        "b": ("b", "before"),
    }.items()
    for word in words
}


@dataclass(frozen=True, slots=True)
class Flat:
    """How flat rows of one schema say what happened; each is the name of a member, or empty.

    Attributes:
        op: what happened (``WORDS``); without it every row is an insert.
        deleted: true (or the text ``true``) for a deleted row.
        time: when: a number, in the unit that ``up`` and ``down`` say, or text in ISO 8601.
        order: a number that grows with the order of changes.
        up: microseconds are ``time * up // down``.
        down: see ``up``.
        hidden: members that are no columns.
    """

    op: str = ""
    deleted: str = ""
    time: str = ""
    order: str = ""
    up: int = 1000
    down: int = 1
    hidden: frozenset[str] = frozenset()


def flat_of(names: Collection[str], config: Mapping[str, Any]) -> Flat:
    """The rule for rows with the members ``names``.

    Raises:
        Skippable: an option names a member that the rows lack.
    """

    def named(option: str, *defaults: str) -> str:
        option_value = config.get(option)
        if option_value:
            if option_value not in names:
                raise Skippable(
                    f"{option}={option_value}: the rows have no such member; they have {', '.join(sorted(names))}."
                )
            return str(option_value)
        return next((name for name in defaults if name in names), "")

    op = named("source.op.field", "__op", "ums_op_")
    time = named("source.time.field", "ums_ts_", *_TIMES)
    order = named("source.order.field", "ums_id_", "__source_ums_id")
    deleted = "__deleted" if "__deleted" in names else ""
    unit = (
        "us"
        if time.endswith("_us")
        else "ns"
        if time.endswith("_ns")
        else "ms"
        if time.endswith("_ms")
        else str(config.get("source.timestamp.unit") or "ms")
    )
    up, down = {"us": (1, 1), "ms": (1000, 1), "ns": (1, 1000)}[unit]
    debezium_names = {name for name in (op, deleted, time, order) if name.startswith("__")}
    hidden = frozenset({*debezium_names, *(name for name in names if name in UMS_COLUMNS)})
    return Flat(op, deleted, time, order, up, down, hidden)


def op_of(word: Any, deleted: Any) -> str:
    """``ums_op_`` of a row.

    Raises:
        Skippable: the operation is not a known word.
    """
    if deleted is True or (isinstance(deleted, str) and deleted.lower() == "true"):
        return "d"
    if word is None:
        return "i"
    operation = _WORDS.get(word.lower()) if isinstance(word, str) else None
    if operation is None:
        raise Skippable(f"What happened to the row is {word!r}; known are {', '.join(_WORDS)}.")
    return operation


#: Words for operations, lower case, and what each means.
WORDS: Final = dict(_WORDS)
