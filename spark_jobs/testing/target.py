"""The part that the tests of a sink supply: its options, how to read back what it wrote, and how to harm its server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from spark_jobs.contract import Column, TableSchema
    from spark_jobs.testing.gate import Gate


class Unsupported(Exception):
    """The target has no such thing; the case that asked is skipped, with this text."""


@dataclass(frozen=True, slots=True)
class Supports:
    """The abilities of a sink. Cases that need others are skipped, and the report says so.

    Attributes:
        upsert: the target holds one row per key, the newest; without, one row per change.
        delete: a delete removes its row (``SinkTarget.rows`` leaves out rows that are only marked as deleted).
        ordering: of two changes of a key the one with the larger ``ums_id_`` wins, in whatever order they come.
        remembers_deletes: an older change that comes after a delete does not bring the row back.
        evolution: columns that a source adds are added to the target.
        widening: a column follows when the source's type grows (int to long).
        transactions: the rows of one table in one batch become visible at once, or not at all.
        writes_in_jvm: Spark's JVM writes, not a Python worker: the case of kills has to kill it as well.
    """

    upsert: bool = True
    delete: bool = True
    ordering: bool = True
    remembers_deletes: bool = True
    evolution: bool = True
    widening: bool = True
    transactions: bool = False
    writes_in_jvm: bool = False


class SinkTarget(ABC):
    """One server (or folder) that a sink writes to. It may be shared: the kit's tables have names of their own.

    Only ``sink_type``, ``options`` and ``rows`` are needed. Each thing that is left out skips the cases that need it, and the
    report says which and why.
    """

    #: ``sink.type``: a name, or ``module:Class``.
    sink_type: ClassVar[str]
    supports: Supports = Supports()
    #: Types of columns (``DataType.typeName()``) that the sink can't write -> why.
    unsupported_types: ClassVar[Mapping[str, str]] = {}
    #: Case -> why this sink can't pass it. A waived case still runs, and fails once it passes.
    waivers: Mapping[str, str] = {}
    #: Between the sink and its server; the sink's options name its port. None: the server is harmed by the methods below.
    gate: Gate | None = None
    #: The topic that changes pretend to come from, of two partitions, for a sink that needs it to exist; empty: any name.
    topic: str = ""
    #: The longest that the sink may take to report that its server is unavailable or does not answer, in seconds.
    limit_s: float = 30.0

    def start(self) -> None:
        """Called once before the first case. May block."""

    def stop(self) -> None:
        """Called once at the end, also after a failure."""

    @abstractmethod
    def options(self) -> Mapping[str, str]:
        """The sink's options (``sink.*``, and ``guarantee`` where it is not the strongest), as in a job file."""

    @abstractmethod
    def rows(self, schema: TableSchema) -> list[dict[str, Any]]:
        """All rows of a source table in the target, by the source's column names; empty where the table does not exist yet.

        Of an append-only sink with ``ums_id_`` and ``ums_op_``. Further columns are not looked at. Waits until what was written
        can be read, where the target shows it later. May block.
        """

    def stored(self, column: Column, value: Any) -> Any:
        """Return what a value of the source (never None) becomes when read back: override it if the target has other types."""
        del column
        return value

    def wrong_login(self) -> Mapping[str, str]:
        """Options that replace some of ``options``, so that the server refuses the login.

        Raises:
            Unsupported: there is no login.
        """
        raise Unsupported("the target has no wrong_login")

    def refused_row(self) -> Mapping[str, Any]:
        """Columns of ``{id: int, name: string, amount: double}`` with a value that the server refuses, without ``id``.

        Raises:
            Unsupported: it takes every value.
        """
        raise Unsupported("the target has no refused_row: its server takes every value")

    def folder(self) -> Path:
        """The folder that the sink writes to, of sinks without a server: its changes are the steps at which the sink is killed.

        Raises:
            Unsupported: it writes to no folder.
        """
        raise Unsupported("the target has neither a gate nor a folder, so its steps can't be seen")

    def outage(self) -> AbstractContextManager[None]:
        """While it is entered, the server refuses connections and has closed the present ones; nothing is lost in it.

        Raises:
            Unsupported: there is no server.
        """
        return self._get_gate().closed()

    def slowness(self) -> AbstractContextManager[None]:
        """While it is entered, the server answers, but late. Raises as ``outage``."""
        return self._get_gate().delayed(0.05)

    def silence(self) -> AbstractContextManager[None]:
        """While it is entered, the server takes connections and requests, and does not answer. Raises as ``outage``."""
        return self._get_gate().silent()

    def _get_gate(self) -> Gate:
        if self.gate is None:
            raise Unsupported("the target has no gate, and does not say how its server is harmed")
        return self.gate
