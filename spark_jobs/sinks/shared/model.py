"""Rows and tables as tasks have them, and the duties of a client of a system. Plain, picklable data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from connectors.errors import Retriable
from spark_jobs.namespaces import find_identity

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RowTable:
    """A table as tasks know it.

    Attributes:
        namespace: its name.
        columns: the source's columns.
        keys: those that make the key; empty where rows have none.
    """

    namespace: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]


@dataclass(slots=True)
class SinkRow:
    """One change of a row.

    Attributes:
        values: by the source's column names, as Arrow gives them (``datetime``, ``Decimal``, lists, dictionaries).
        order: ``ums_id_``, the order number.
        time: ``ums_ts_``, UTC.
        op: ``ums_op_``: i, u, d, and b with insert.
        uid: ``ums_uid_``.
        topic, partition, offset: where the record stood in Kafka.
        number: which row of its record it is, from 0; only where rows are ordered (``RowSettings.ordered``).
    """

    values: dict[str, Any]
    order: int
    time: datetime
    op: str
    uid: str
    topic: str
    partition: int
    offset: int
    number: int

    @property
    def deleted(self) -> bool:
        """Whether it is a delete."""
        return self.op == "d"

    @property
    def position(self) -> str:
        """Where it stood in Kafka, for messages."""
        return f"{self.topic}-{self.partition} offset {self.offset}"


def change_id(row: SinkRow, table: RowTable) -> str:
    """The identity of a change, the same in every replay: table, topic, partition, offset, and number within the record.

    Steps may make rows of several tables out of one record.
    """
    return f"{find_identity(table.namespace)}/{row.topic}-{row.partition}-{row.offset}-{row.number}"


@dataclass(slots=True)
class WriteCounts:
    """The fate of rows: written, or left out because the target has newer ones (or had them already); requests made."""

    rows: int = 0
    stale: int = 0
    requests: int = 0


class Unfinished(Retriable):
    """Some of the rows are written, and the rest may be, later.

    Attributes:
        left: the rows that are not written, in their order.
        done: what became of the others.
        after_s: how long the system asks to wait, in seconds.
    """

    def __init__(self, message: str, left: Sequence[SinkRow], done: WriteCounts, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.left = left
        self.done = done
        self.after_s = after_s


#: Puts rows aside with the reasons, or raises ``Fatal`` where bad rows are not tolerated. Blocks until they are in the dead
#: letter topic. A sink that keeps positions calls it before it moves them beyond these rows.
Refuse = Callable[[Sequence[tuple[SinkRow, str]]], None]


class RowClient(Protocol):
    """A connection to a system, in a task. Used by one thread."""

    def write(self, rows: Sequence[SinkRow], refuse: Refuse) -> WriteCounts:
        """Write rows; with upsert at most one per key, with insert in the order of Kafka's offsets. Blocks.

        Rows that the system refuses, each for a value of its own, go to ``refuse`` with the reason (without a full stop).

        Raises:
            Retriable: the system is unavailable; ``Unfinished`` where some of the rows are written.
            Fatal: it refuses the login or all rows.
        """

    def close(self) -> None:
        """Let the connection go; the next ``write`` makes another one."""


class ArrowClient(Protocol):
    """As ``RowClient``, for a target that takes Arrow and finds the newest row of each key itself."""

    def write(self, rows: pa.Table, refuse: Refuse) -> WriteCounts:
        """Write rows: the table's columns, then ``task.SYSTEM``, then ``task.NUMBER``; otherwise as ``RowClient.write``."""

    def close(self) -> None:
        """Let the connection go; the next ``write`` makes another one."""


#: Makes the client of a table, in a task; connects with the first ``write``.
OpenClient = Callable[[RowTable], "RowClient | ArrowClient"]
