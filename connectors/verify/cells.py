"""Compares two sets of writes that fit in no memory: what a source's rows say and what a topic says, cell by cell.

Writes are divided by partition over files on disk; then each file is merged and compared. Partitions that differ are kept (up
to a number), so that they can be looked at again once what was under way has come. Memory holds one file's partitions, and
those. Everything here blocks for as long as the disk takes: call it in a thread.
"""

from __future__ import annotations

import operator
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

import msgspec

from connectors.verify.differences import MOST_ROWS, differing_columns, row_difference
from connectors.verify.rows import NO_NUMBER, ChecksumRange, TableReport, digest_value
from connectors.verify.writes import Merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from connectors.verify.writes import CellTable, Write

#: Partitions that differ and are looked at again, at most.
MOST_OPEN: Final = 2_000
_HEAD: Final = struct.Struct("<BHII")
_SOURCE, _TOPIC = 0, 1
_KEY_LENGTH: Final = 200
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(list[Any]).decode

#: A partition: the number of its table, and its key as JSON.
Partition = tuple[int, bytes]


class Sides(msgspec.Struct):
    """The writes of one partition on both sides.

    Attributes:
        source: as its rows were read last.
        topic: all of the topic.
        settled: whether nothing has changed on either side since the look before.
        seen: what the writes added up to at the last look.
    """

    source: list[Any] = msgspec.field(default_factory=list)
    topic: list[Any] = msgspec.field(default_factory=list)
    settled: bool = False
    seen: bytes = b""


class AddedUp(Protocol):
    """The rows that writes add up to; see ``Merged``."""

    rows: dict[bytes, dict[str, Any]]
    unknown: bool


class WriteForms(NamedTuple):
    """How writes add up, are compared and kept.

    Attributes:
        add_up: of a table's partition, at a time.
        equal: whether a row of the source and one of the topic are equal; None stands for no row.
        differing: the columns in which they are not.
        pack: writes as bytes.
        unpack: the inverse.
    """

    add_up: Callable[[CellTable, list[Any], float], AddedUp] = Merged
    equal: Callable[[Any, Any], bool] = operator.eq
    differing: Callable[[Any, Any], tuple[Mapping[str, Any], Mapping[str, Any]]] = differing_columns
    pack: Callable[[list[Any]], bytes] = _pack
    unpack: Callable[[bytes], list[Any]] = _unpack


class CellComparison:
    """Collects the writes of both sides, in any order, then compares them. A context manager; not thread-safe.

    Args:
        tables: by name.
        expected: how many rows and messages will come, about: decides into how many files they are divided.
        examples: keys to keep of each kind of difference.
        folder: where to make the temporary folder; None: the system's place.
        forms: how writes add up, are compared and kept; by default those of ``connectors.verify.writes``.
    """

    def __init__(
        self,
        tables: Mapping[str, CellTable],
        *,
        expected: int = 0,
        examples: int = 5,
        folder: str | None = None,
        forms: WriteForms | None = None,
    ) -> None:
        self._forms = forms or WriteForms()
        self.reports = {name: TableReport(name) for name in tables}
        self._tables = list(tables.values())
        self._numbers = {name: number for number, name in enumerate(tables)}
        self._examples = examples
        self._count = min(max(expected // 50_000, 8), 512)
        self._folder = TemporaryDirectory(prefix="millrace-verify-", dir=folder)
        self._files: list[IO[bytes]] = []
        #: Partitions that differ, and are not in the reports yet.
        self.open: dict[Partition, Sides] = {}

    def __enter__(self) -> Self:
        for number in range(self._count):
            # Closed by __exit__: they live as long as the comparison.
            self._files.append(Path(self._folder.name, str(number)).open("w+b", buffering=1 << 16))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()
        self._folder.cleanup()

    def source(self, table: str, key: Mapping[str, Any], writes: list[Write]) -> None:
        """Add writes that rows of the source say."""
        self._put_writes(_SOURCE, table, key, writes)

    def topic(self, table: str, key: Mapping[str, Any], writes: list[Write]) -> None:
        """Add the writes of a message."""
        self._put_writes(_TOPIC, table, key, writes)

    def _put_writes(self, side: int, table: str, key: Mapping[str, Any], writes: list[Write]) -> None:
        identity, data = _encode(key), self._forms.pack(writes)
        file = self._files[int.from_bytes(digest_value(identity.decode())[:2], "little") % self._count]
        file.write(_HEAD.pack(side, self._numbers[table], len(identity), len(data)) + identity + data)

    def compare(self, now_s: float) -> Iterator[tuple[int, int]]:
        """Compare file by file; yields (files done, files) after each. What differs is in ``open`` at the end."""
        for done, file in enumerate(self._files, 1):
            file.seek(0)
            partitions: dict[Partition, Sides] = {}
            while head := file.read(_HEAD.size):
                side, table, length, size = _HEAD.unpack(head)
                sides = partitions.setdefault((table, file.read(length)), Sides())
                (sides.source if side == _SOURCE else sides.topic).append(file.read(size))
            for partition, sides in partitions.items():
                sides.source = [write for data in sides.source for write in self._forms.unpack(data)]
                sides.topic = [write for data in sides.topic for write in self._forms.unpack(data)]
                self._compare_partition(partition, sides, now_s)
            yield done, self._count

    # Partitions that differ.

    def reread(self) -> None:
        """Their rows are read again from the source: forget how they were."""
        for sides in self.open.values():
            sides.source = []

    def source_again(self, table: str, key: Mapping[str, Any], writes: list[Write]) -> None:
        """As ``source``, while partitions that differ are looked at again; others are passed over."""
        sides = self.open.get((self._numbers[table], _encode(key)))
        if sides is not None:
            sides.source += writes

    def topic_again(self, table: str, key: Mapping[str, Any], writes: list[Write]) -> None:
        """As ``topic``, while partitions that differ are looked at again; others are passed over."""
        sides = self.open.get((self._numbers[table], _encode(key)))
        if sides is not None:
            sides.topic += writes

    def look_again(self, now_s: float) -> int:
        """Compare those that differ; what is equal now goes into the reports. Returns how many differ and still change."""
        waiting = self.open
        self.open = {}
        for partition, sides in waiting.items():
            self._compare_partition(partition, sides, now_s)
        return sum(not sides.settled for sides in self.open.values())

    def finish(self, now_s: float) -> None:
        """Report those that differ: as unsettled if they have changed since the look before."""
        add_up = self._forms.add_up
        for (number, key), sides in self.open.items():
            table = self._tables[number]
            self._report_rows(table, key, add_up(table, sides.source, now_s), add_up(table, sides.topic, now_s), sides)
        self.open = {}

    def _compare_partition(self, partition: Partition, sides: Sides, now_s: float) -> None:
        number, key = partition
        table = self._tables[number]
        mine, theirs = self._forms.add_up(table, sides.source, now_s), self._forms.add_up(table, sides.topic, now_s)
        if len(self.open) < MOST_OPEN and not self._is_equal(mine, theirs):
            rows_digest = digest_value(repr([sorted(side.rows.items()) for side in (mine, theirs)]))
            sides.settled = rows_digest == sides.seen
            sides.seen = rows_digest
            self.open[partition] = sides
            return
        sides.settled = True
        self._report_rows(table, key, mine, theirs, sides)

    def _is_equal(self, mine: AddedUp, theirs: AddedUp) -> bool:
        equal = self._forms.equal
        return mine.rows.keys() == theirs.rows.keys() and all(
            equal(row, theirs.rows[name]) for name, row in mine.rows.items()
        )

    def _report_rows(self, table: CellTable, key: bytes, mine: AddedUp, theirs: AddedUp, sides: Sides) -> None:
        report = self.reports[table.name]
        first = next(iter(msgspec.json.decode(key).values()), None)
        number = first if type(first) is int and NO_NUMBER < first < -NO_NUMBER else NO_NUMBER
        for name in mine.rows.keys() | theirs.rows.keys():
            left, right = mine.rows.get(name), theirs.rows.get(name)
            equal = left is not None and right is not None and self._forms.equal(left, right)
            report.count(number, ChecksumRange(*_row_sums(name, left, left if equal else right)))
            if equal:
                continue
            kind = "missing" if right is None else "extra" if left is None else "different"
            if theirs.unknown or not sides.settled:
                kind = "unsettled"
            setattr(report, kind, getattr(report, kind) + 1)
            text = _row_key(table, key, name)
            report.example(kind, text, self._examples)
            if getattr(report, kind) <= min(MOST_ROWS, self._examples):
                report.differences.append(row_difference(kind, text, left, right, self._forms.differing))


def _row_sums(name: bytes, left: dict[str, Any] | None, right: dict[str, Any] | None) -> tuple[int, int, int, int]:
    """Rows of the source and the topic, and their checksums."""
    checksums = [
        0 if row is None else int.from_bytes(digest_value(repr((name, sorted(row.items()))))[:8], "little")
        for row in (left, right)
    ]
    return int(left is not None), int(right is not None), checksums[0], checksums[1]


def _row_key(table: CellTable, key: bytes, clustering: bytes) -> str:
    """A row's key as JSON, in the order of the primary key; that of static cells is the partition's."""
    partition = msgspec.json.decode(key)
    values = msgspec.json.decode(clustering) or []
    named = {name: partition.get(name) for name in table.key or partition}
    named |= dict(zip(table.clustering, values, strict=False))
    return msgspec.json.encode(named).decode()[:_KEY_LENGTH]
