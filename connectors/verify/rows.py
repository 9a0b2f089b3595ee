"""Compares the rows of a topic with those of a table, both larger than memory.

Both sides are reduced to digests and divided by key over files on disk; then the files are compared one at a time. Only one
file's keys are in memory. Everything here blocks for as long as the disk takes: call it in a thread.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Final, Self
from zlib import crc32

import msgspec

from connectors.verify.differences import MOST_ROWS, RowDifference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    #: A row or event as it is in a file: its kind, table and structure, the number that its key begins with, its identity,
    #: the row's digests, the key as text (empty where the identity says it), and the place of the message.
    _Entry = tuple[int, int, int, int, bytes, bytes, bytes, int]

_SIZE: Final = 16
#: Entries of a file that are written and read at once, and the bytes of their length before them.
_BLOCK: Final = 128
_HEAD: Final = 4
_SOURCE, _SET, _GONE, _LATER, _PLUS, _MINUS, _LOOSE = range(7)
_LOOSE_STEPS: Final = {_PLUS: 1, _MINUS: -1, _LOOSE: -1}
#: Stands for a key whose first column is no integer.
NO_NUMBER: Final = -(1 << 63)
#: Ranges of a table at most; beyond it they are made twice as wide.
_MOST_RANGES: Final = 64
_FIRST_WIDTH: Final = 4096
_KEY_TEXT: Final = 200
#: Up to this length a key's text costs less than its digest.
_SHORT_TEXT: Final = 64
_BITS: Final = (1 << 64) - 1
#: Bits of a message's offset in its place; those above are the partition.
_OFFSET_BITS: Final = 48
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(list[tuple[int, int, int, int, bytes, bytes, bytes, int]]).decode
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def digest_value(value: Any) -> bytes:
    """16 bytes for a JSON-like value; the order of an object's members has no part in it."""
    return blake2b(_encode(value), digest_size=_SIZE).digest()


def key_identity(key: Any) -> bytes:
    """The bytes that a row is known by: its key as text, or the digest of a long one."""
    return _identity_of_text(_encode(key))


def _identity_of_text(text: bytes) -> bytes:
    return text if len(text) <= _SHORT_TEXT else blake2b(text, digest_size=_SIZE).digest()


class ChecksumRange(msgspec.Struct):
    """Sums over the rows of one range of keys; the checksums don't depend on the order of rows."""

    source_rows: int = 0
    topic_rows: int = 0
    source_checksum: int = 0
    topic_checksum: int = 0

    def add(self, addend: ChecksumRange) -> None:
        """Take in another one's rows."""
        self.source_rows += addend.source_rows
        self.topic_rows += addend.topic_rows
        self.source_checksum = self.source_checksum + addend.source_checksum & _BITS
        self.topic_checksum = self.topic_checksum + addend.topic_checksum & _BITS


class Sample(msgspec.Struct):
    """A row that differs, to be read again to show it.

    Attributes:
        kind: of the difference.
        key: as text.
        identity: see ``key_identity``.
        in_source: whether the source has it.
        position: of the message that says how it is on the topic (``message_position``); None: it is not there.
        source: the row, once it is read again.
        topic: likewise.
    """

    kind: str
    key: str
    identity: bytes
    in_source: bool
    position: int | None
    source: Mapping[str, Any] | None = None
    topic: Mapping[str, Any] | None = None

    def is_read(self) -> bool:
        """Whether the row is read again on each side that has it."""
        return self.in_source == (self.source is not None) and (self.position is None) == (self.topic is None)


class TableReport(msgspec.Struct):
    """The result of the comparison of one table.

    Attributes:
        table: ``database.table``.
        topics: where its rows are.
        total: sums over all rows.
        missing: rows of the source that the topic lacks.
        extra: rows of the topic that the source lacks.
        different: rows with the same key and other contents.
        unsettled: rows that differ but were changed again after the position of the comparison, on a topic that may be
            compacted.
        older_structure: equal rows that were compared on the columns both structures have.
        examples: keys of rows that differ, by kind.
        differences: some of these rows, with what both sides say.
        width: how many numbers of the first key column make a range; 0: the key begins with no integer.
        ranges: by number of the range (first key divided by ``width``).
        condition: of the rows that a snapshot would send again to repair what differs; empty: the whole table; None: the source
            takes no snapshots on request.
        source_table: of a flow, whose ``table`` is a topic: the table of the source whose rows the topic has.
        note: what else is to be known.
    """

    table: str
    topics: list[str] = msgspec.field(default_factory=list)
    total: ChecksumRange = msgspec.field(default_factory=ChecksumRange)
    missing: int = 0
    extra: int = 0
    different: int = 0
    unsettled: int = 0
    older_structure: int = 0
    examples: dict[str, list[str]] = msgspec.field(default_factory=dict)
    differences: list[RowDifference] = msgspec.field(default_factory=list)
    width: int = 0
    ranges: dict[int, ChecksumRange] = msgspec.field(default_factory=dict)
    condition: str | None = None
    source_table: str | None = None
    note: str = ""

    @property
    def equal(self) -> bool:
        """Whether nothing differs for sure."""
        return not (self.missing or self.extra or self.different)

    def to_send_again(self) -> list[str]:
        """Keys of all rows that are missing or differ; none where not all of them were kept as examples."""
        keys = [*self.examples.get("missing", ()), *self.examples.get("different", ())]
        return keys if len(keys) == self.missing + self.different else []

    def bad_ranges(self) -> list[tuple[int, int]]:
        """First and last number of the ranges whose counts or checksums differ."""
        return [
            (number * self.width, (number + 1) * self.width - 1)
            for number, sums in sorted(self.ranges.items())
            if (sums.source_rows, sums.source_checksum) != (sums.topic_rows, sums.topic_checksum)
        ]

    def count(self, number: int, sums: ChecksumRange) -> None:
        """Add sums to the total and to the range of a first key."""
        self.total.add(sums)
        if number == NO_NUMBER:
            return
        self.width = self.width or _FIRST_WIDTH
        self.ranges.setdefault(number // self.width, ChecksumRange()).add(sums)
        while len(self.ranges) > _MOST_RANGES:
            self.width *= 2
            wider: dict[int, ChecksumRange] = {}
            for old, sums_of_range in self.ranges.items():
                wider.setdefault(old // 2, ChecksumRange()).add(sums_of_range)
            self.ranges = wider

    def example(self, kind: str, key: str, max_examples: int) -> None:
        """Keep a key as an example."""
        examples_of_kind = self.examples.setdefault(kind, [])
        if len(examples_of_kind) < max_examples:
            examples_of_kind.append(key)


def message_position(partition: int, offset: int) -> int:
    """A message of a topic as one number."""
    return partition << _OFFSET_BITS | offset


def split_position(position: int) -> tuple[int, int]:
    """The partition and the offset of ``message_position``."""
    return position >> _OFFSET_BITS, position & ((1 << _OFFSET_BITS) - 1)


class Structures:
    """The sets of columns that a table's rows have on the topic: number 0 is that of the source now."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.now = frozenset(columns)
        self._common: list[frozenset[str]] = [self.now]
        #: By the columns in a row's order.
        self._numbers: dict[tuple[str, ...], int] = {tuple(columns): 0}

    def number(self, row: Mapping[str, Any]) -> int:
        """The number of a topic row's structure."""
        names = tuple(row)
        structure_number = self._numbers.get(names)
        if structure_number is None:
            common = self.now.intersection(names)
            structure_number = self._common.index(common) if common in self._common else len(self._common)
            if structure_number == len(self._common):
                self._common.append(common)
            self._numbers[names] = structure_number
        return structure_number

    def digest(self, row: Mapping[str, Any], number: int) -> bytes:
        """The digest of a row's columns that structure ``number`` shares with the source."""
        common = self._common[number]
        return digest_value(
            row if len(row) == len(common) else {name: value for name, value in row.items() if name in common}
        )

    def digests(self, row: Mapping[str, Any]) -> bytes:
        """A source row's digests for all structures met so far."""
        if len(self._common) == 1:
            return self.digest(row, 0)
        return b"".join([self.digest(row, number) for number in range(len(self._common))])

    def have_older(self) -> bool:
        """Whether a row had other columns than the source has now."""
        return len(self._common) > 1


class RowFiles:
    """One side's rows, divided by key over files of a folder.

    Args:
        folder: where.
        side: the first part of the files' names.
        count: how many files.
        tables: names of all tables, in the order of their numbers.
    """

    def __init__(self, folder: str, side: str, count: int, tables: Sequence[str]) -> None:
        self._numbers = {name: number for number, name in enumerate(tables)}
        self._count = count
        # Closed by ``close``: they live as long as the comparison.
        self._files: list[IO[bytes]] = [
            Path(folder, f"{side}{number}").open("wb")  # noqa: SIM115
            for number in range(count)
        ]
        #: What is not written yet, of each file.
        self._blocks: list[list[_Entry]] = [[] for _ in range(count)]

    def put(self, kind: int, table: str, key: Any, structure: int = 0, digests: bytes = b"", position: int = 0) -> None:
        """Write one row or event of a table with a key."""
        number = NO_NUMBER
        if isinstance(key, dict):
            for first in key.values():
                if type(first) is int and NO_NUMBER < first < -NO_NUMBER:
                    number = first
                break
        text = _encode(key)
        identity = _identity_of_text(text)
        shown = b"" if identity is text else text[:_KEY_TEXT]
        self._add((kind, self._numbers[table], structure, number, identity, digests, shown, position))

    def put_loose(self, kind: int, table: str, row: Mapping[str, Any], structure: int, digest: bytes) -> None:
        """Write one row or event of a table without key."""
        text = _encode(row)[:_KEY_TEXT]
        self._add((kind, self._numbers[table], structure, NO_NUMBER, digest, b"", text, 0))

    def _add(self, entry: _Entry) -> None:
        number = crc32(entry[4]) % self._count
        block = self._blocks[number]
        block.append(entry)
        if len(block) == _BLOCK:
            self._write(number)

    def _write(self, number: int) -> None:
        data = _pack(self._blocks[number])
        self._files[number].write(len(data).to_bytes(_HEAD, "little") + data)
        self._blocks[number] = []

    def flush(self) -> None:
        """Make everything readable in the files."""
        for number, file in enumerate(self._files):
            if self._blocks[number]:
                self._write(number)
            file.flush()

    def clear(self) -> None:
        """Forget all rows."""
        self._blocks = [[] for _ in self._files]
        for file in self._files:
            file.seek(0)
            file.truncate()

    def close(self) -> None:
        """Close the files, with everything written."""
        self.flush()
        for file in self._files:
            file.close()


def read_entries(path: Path) -> Iterator[list[_Entry]]:
    """Yield the entries that ``RowFiles`` has put into a file, some at a time."""
    with path.open("rb") as file:
        while head := file.read(_HEAD):
            yield _unpack(file.read(int.from_bytes(head, "little")))


class TopicRows:
    """The topic's side: what it says of rows, in the order of its messages. Not thread-safe.

    Args:
        folder: of the comparison.
        count: how many files it has.
        tables: name -> its columns as the topic would show them now.
    """

    def __init__(self, folder: str, count: int, tables: Mapping[str, Sequence[str]]) -> None:
        self.files = RowFiles(folder, "topic", count, list(tables))
        self.structures = {name: Structures(columns) for name, columns in tables.items()}

    def row(self, table: str, key: Any, row: Mapping[str, Any], position: int = 0) -> None:
        """The row is like this now; for a table without key (None), there is one more like it.

        Args:
            table: its name.
            key: the row's.
            row: the row.
            position: of the message (``message_position``).
        """
        structures = self.structures[table]
        number = structures.number(row)
        digest = structures.digest(row, number)
        if key is None:
            self.files.put_loose(_PLUS, table, row, number, digest)
        else:
            self.files.put(_SET, table, key, number, digest, position)

    def gone(self, table: str, key: Any, row: Mapping[str, Any] | None = None) -> None:
        """The row is deleted; ``row`` is needed for a table without key."""
        if key is not None:
            self.files.put(_GONE, table, key)
        elif row is not None:
            structures = self.structures[table]
            number = structures.number(row)
            self.files.put_loose(_MINUS, table, row, number, structures.digest(row, number))

    def later(self, table: str, key: Any) -> None:
        """The row was changed after the place of comparison: earlier events of it may have been compacted away."""
        if key is not None:
            self.files.put(_LATER, table, key)


class Comparison:
    """Collects the rows of both sides, the topic's first, then compares them. A context manager; not thread-safe.

    Where another process collects the topic's (``TopicRows`` with ``folder`` and ``count``), both may be read at the same time;
    ``adopt`` then says whether the source's have to be read once more.

    Args:
        tables: name -> its columns as the topic would show them now.
        expected: how many rows and events will come, about: decides into how many files they are divided.
        examples: keys to keep of each kind of difference.
        folder: where to make the temporary folder; None: the system's place.
    """

    def __init__(
        self, tables: Mapping[str, Sequence[str]], *, expected: int = 0, examples: int = 5, folder: str | None = None
    ) -> None:
        self.reports = {name: TableReport(name) for name in tables}
        self._names = list(tables)
        self._columns = tables
        self._examples = examples
        self.count = min(max(expected // 200_000, 8), 512)
        self._temporary = TemporaryDirectory(prefix="millrace-verify-", dir=folder)
        self.folder = self._temporary.name
        self._older: Counter[int] = Counter()
        #: Rows that differ, by table: some of each kind, of tables with a key.
        self.samples: dict[str, list[Sample]] = {name: [] for name in tables}

    def __enter__(self) -> Self:
        self.topics = TopicRows(self.folder, self.count, self._columns)
        self._source = RowFiles(self.folder, "source", self.count, self._names)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.topics.files.close()
        self._source.close()
        self._temporary.cleanup()

    def source(self, table: str, key: Any, row: Mapping[str, Any]) -> None:
        """A row of the source. All rows of the topic must have come before it, but see ``adopt``."""
        structures = self.topics.structures[table]
        if key is None:
            self._source.put_loose(_LOOSE, table, row, 0, structures.digest(row, 0))
        else:
            self._source.put(_SOURCE, table, key, 0, structures.digests(row))

    def adopt(self, structures: Mapping[str, Structures]) -> bool:
        """Take the structures of rows that another process has met on the topic.

        Returns:
            Whether the source's rows have to be read again, for the columns that an older structure shares with them: those
            that came before are forgotten.
        """
        self.topics.structures = dict(structures)
        older = any(item.have_older() for item in structures.values())
        if older:
            self._source.clear()
        return older

    def compare(self) -> Iterator[tuple[int, int]]:
        """Compare file by file; yields (files done, files) after each. The reports are complete at the end."""
        self.topics.files.flush()
        self._source.flush()
        for number in range(self.count):
            self._compare_file(number)
            if number + 1 == self.count:
                self._settle_older()
            yield number + 1, self.count

    def _compare_file(self, number: int) -> None:
        #: By table and key: the last that the topic says of a row; rows that were changed later.
        states: list[dict[bytes, _Entry]] = [{} for _ in self._names]
        later: set[tuple[int, bytes]] = set()
        loose: Counter[tuple[int, int, bytes]] = Counter()
        keys_json: dict[tuple[int, int, bytes], bytes] = {}
        for block in read_entries(Path(self.folder, f"topic{number}")):
            for entry in block:
                kind, table, _, _, identity, *_ = entry
                if kind in (_SET, _GONE):
                    states[table][identity] = entry
                elif kind == _LATER:
                    later.add((table, identity))
                    states[table].setdefault(identity, entry)
                else:
                    self._loose_row(entry, loose, keys_json)
        equal = [_EqualRows(self.reports[name]) for name in self._names]
        for block in read_entries(Path(self.folder, f"source{number}")):
            for entry in block:
                kind, table, _, first, identity, digests, _, _ = entry
                if kind != _SOURCE:
                    self._loose_row(entry, loose, keys_json)
                    continue
                state = states[table].pop(identity, None)
                # An older structure's digest is one of several.
                if state is not None and state[5] == digests and state[0] == _SET:
                    equal[table].add(first, digests)
                else:
                    self._source_row(entry, state, is_later=(table, identity) in later)
        for rows in equal:
            rows.report()
        self._report_left(states, later, loose, keys_json)

    def _loose_row(
        self, entry: _Entry, loose: Counter[tuple[int, int, bytes]], keys_json: dict[tuple[int, int, bytes], bytes]
    ) -> None:
        """Count a row of a table without key."""
        kind, table, structure, _, identity, _, text, _ = entry
        step = _LOOSE_STEPS[kind]
        loose[table, structure, identity] += step
        keys_json.setdefault((table, structure, identity), text)
        if kind == _LOOSE:
            sums = ChecksumRange(source_rows=1, source_checksum=_to_sum(identity))
        else:
            sums = ChecksumRange(topic_rows=step, topic_checksum=step * _to_sum(identity))
        self.reports[self._names[table]].total.add(sums)

    def _source_row(self, entry: _Entry, state: _Entry | None, *, is_later: bool) -> None:
        """Report a row of the source with what the topic says of it, if that is not plainly equal."""
        _, table, _, number, identity, digests, text, _ = entry
        report = self.reports[self._names[table]]
        full = _to_sum(digests)
        sums = ChecksumRange(source_rows=1, source_checksum=full)
        kind, position = "missing", None
        if state is not None and state[0] == _SET:
            _, _, structure, _, _, topic_digest, _, position = state
            if digests[structure * _SIZE : (structure + 1) * _SIZE] == topic_digest:
                kind = ""
                sums.topic_rows, sums.topic_checksum = 1, full
                report.older_structure += structure > 0
            else:
                kind = "different"
                sums.topic_rows, sums.topic_checksum = 1, _to_sum(topic_digest)
        report.count(number, sums)
        if kind:
            self._keyed(report, kind, text or identity, identity, is_later, in_source=True, position=position)

    def _keyed(
        self,
        report: TableReport,
        kind: str,
        text: bytes,
        identity: bytes,
        later: bool,  # noqa: FBT001 - a part of the row's state
        *,
        in_source: bool,
        position: int | None,
    ) -> None:
        """Report a row with a key."""
        kind = "unsettled" if later else kind
        self._report_difference(report, kind, text)
        samples = self.samples[report.table]
        if getattr(report, kind) <= min(MOST_ROWS, self._examples):
            samples.append(Sample(kind, text.decode("utf-8", "replace"), identity, in_source, position))

    def _report_difference(self, report: TableReport, kind: str, key_json: bytes, *, times: int = 1) -> None:
        setattr(report, kind, getattr(report, kind) + times)
        report.example(kind, key_json.decode("utf-8", "replace"), self._examples)

    def _report_left(
        self,
        states: Sequence[Mapping[bytes, _Entry]],
        later: set[tuple[int, bytes]],
        loose: Counter[tuple[int, int, bytes]],
        keys_json: Mapping[tuple[int, int, bytes], bytes],
    ) -> None:
        for entries in states:
            for kind, table, _, number, identity, digest, text, position in entries.values():
                if kind == _SET:
                    report = self.reports[self._names[table]]
                    report.count(number, ChecksumRange(topic_rows=1, topic_checksum=_to_sum(digest)))
                    is_later = (table, identity) in later
                    self._keyed(
                        report, "extra", text or identity, identity, is_later, in_source=False, position=position
                    )
        for (table, structure, identity), count in loose.items():
            report = self.reports[self._names[table]]
            if structure and count:
                # Without the columns that it lacks, the matching row of the source is unknown.
                self._report_difference(report, "unsettled", keys_json[table, structure, identity], times=abs(count))
                self._older[table] += count
            elif count:
                self._report_difference(
                    report, "extra" if count > 0 else "missing", keys_json[table, structure, identity], times=abs(count)
                )

    def _settle_older(self) -> None:
        """Rows without key that the topic has in an older structure are not missing."""
        for table, count in self._older.items():
            report = self.reports[self._names[table]]
            report.missing -= min(max(count, 0), report.missing)
            if not report.missing:
                report.examples.pop("missing", None)
            report.note = (
                f"{count} rows have an older structure on the topic and the table has no key: these rows were "
                "counted and not compared"
            )


class _EqualRows:
    """Sums over the rows of one table in one file that are equal, kept apart until the report gets them all at once."""

    def __init__(self, report: TableReport) -> None:
        self._report = report
        self._width = report.width or _FIRST_WIDTH
        #: By range: its number of rows and their checksum.
        self._ranges: dict[int, list[int]] = {}

    def add(self, first: int, digest: bytes) -> None:
        """Count a row; its key begins with ``first``."""
        number = NO_NUMBER if first == NO_NUMBER else first // self._width
        sums = self._ranges.get(number)
        if sums is None:
            sums = self._ranges[number] = [0, 0]
        sums[0] += 1
        sums[1] += int.from_bytes(digest[:8], "little")

    def report(self) -> None:
        """Add them to the report."""
        for number, (rows, checksum) in self._ranges.items():
            first = NO_NUMBER if number == NO_NUMBER else number * self._width
            self._report.count(first, ChecksumRange(rows, rows, checksum & _BITS, checksum & _BITS))


def _to_sum(value: bytes) -> int:
    return int.from_bytes(value[:8], "little")
