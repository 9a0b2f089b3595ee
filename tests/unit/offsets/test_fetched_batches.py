"""The visible records of a fetched chunk of a log, and the position to continue from."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from aiokafka.errors import CorruptRecordException
from hypothesis import given
from hypothesis import strategies as st

from offsets.fetch import visible_batches
from tests.unit.offsets.raw_log import LogRecord, batch, marker


def read(data: bytes, position: int = 0, aborted: list[tuple[int, int]] | None = None) -> tuple[list[LogRecord], int]:
    batches, following = visible_batches(data, position, aborted)
    return [LogRecord(record.offset, record.key, record.value) for group in batches for record in group], following


def records(*offsets: int) -> list[LogRecord]:
    return [LogRecord(offset, b"k%d" % (offset % 3), b"v%d" % offset) for offset in offsets]


def test_plain_batches_are_read_in_order() -> None:
    data = batch(0, records(0, 1, 2)) + batch(3, records(3))
    assert read(data) == (records(0, 1, 2, 3), 4)


def test_a_position_inside_a_batch_skips_what_was_read() -> None:
    assert read(batch(0, records(0, 1, 2)), position=2) == (records(2), 3)


def test_holes_left_by_compaction_are_passed_over() -> None:
    data = batch(10, records(11), last=19) + batch(30, [], last=39) + batch(40, records(42), last=44)
    assert read(data, position=10) == (records(11, 42), 45)


def test_a_cut_off_batch_is_left_for_the_next_fetch() -> None:
    whole, cut = batch(0, records(0, 1)), batch(2, records(2, 3))
    for length in (1, 11, 12, 60, len(cut) - 1):
        assert read(whole + cut[:length]) == (records(0, 1), 2)
    assert read(cut[:40], position=2) == ([], 2)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_are_read(codec: int) -> None:
    assert read(batch(0, records(*range(100)), compression=codec)) == (records(*range(100)), 100)


def test_tombstones_and_missing_keys_come_through() -> None:
    records = [LogRecord(0, b"k", None), LogRecord(1, None, b"v"), LogRecord(2, b"", b"")]
    assert read(batch(0, records)) == (records, 3)


def test_a_damaged_batch_is_an_error_not_a_loss() -> None:
    data = bytearray(batch(0, records(0, 1, 2)))
    data[-3] ^= 1
    with pytest.raises(CorruptRecordException, match="after offset 0"):
        visible_batches(bytes(data), 0, None)


def test_aborted_records_and_markers_are_left_out() -> None:
    data = (
        batch(0, records(0), producer=7, transactional=True)
        + batch(1, records(1))
        + marker(2, 7, commit=False)
        + batch(3, records(3), producer=7, transactional=True)
        + marker(4, 7, commit=True)
    )
    assert read(data, aborted=[(7, 0)]) == (records(1, 3), 5)


def test_an_aborted_transaction_that_began_before_the_position_stays_aborted() -> None:
    data = batch(5, records(5, 6), producer=7, transactional=True) + marker(7, 7, commit=False)
    assert read(data, position=6, aborted=[(7, 2)]) == ([], 8)


def test_read_uncommitted_sees_everything_but_markers() -> None:
    data = batch(0, records(0), producer=7, transactional=True) + marker(1, 7, commit=False)
    assert read(data) == (records(0), 2)


@dataclass
class Model:
    """A log as a broker would write it, with what a committed reader must see."""

    data: list[tuple[int, bytes]] = field(default_factory=list)
    next: int = 0
    open: dict[int, int] = field(default_factory=dict)
    pending: dict[int, list[LogRecord]] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    visible: list[LogRecord] = field(default_factory=list)

    def write(self, producer: int, values: list[tuple[bytes, bytes | None]], kept: list[bool]) -> None:
        base = self.next
        written = [LogRecord(base + index, key, value) for index, (key, value) in enumerate(values)]
        self.next += len(written)
        # as compaction would, some records are gone; the batch keeps its bounds
        left = [record for record, keep in zip(written, kept, strict=False) if keep]
        self.data.append((base, batch(base, left, last=self.next - 1, producer=producer, transactional=producer > 0)))
        if producer > 0:
            self.open.setdefault(producer, base)
            self.pending.setdefault(producer, []).extend(left)
        else:
            self.visible += left

    def end(self, producer: int, *, commit: bool) -> None:
        if producer not in self.open:
            return
        began = self.open.pop(producer)
        mine = self.pending.pop(producer)
        if commit:
            self.visible += mine
        else:
            self.aborted.append((producer, began, self.next))
        self.data.append((self.next, marker(self.next, producer, commit=commit)))
        self.next += 1


KEYS = st.sampled_from([b"a", b"b", b"c"])
ROUNDS = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"),
            st.integers(0, 2),
            st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=4))), min_size=1, max_size=4),
            st.lists(st.booleans(), min_size=4, max_size=4),
        ),
        st.tuples(st.just("end"), st.integers(1, 2), st.booleans(), st.none()),
    ),
    max_size=14,
)


@given(ROUNDS, st.data())
def test_any_interleaving_reads_as_the_model_says(
    rounds: list[tuple[str, int, object, object]], draw: st.DataObject
) -> None:
    """Compacted, tombstoned and aborted records, fetched in chunks that end anywhere: state and position are the model's."""
    model = Model()
    for kind, producer, key, kept in rounds:
        if kind == "write":
            model.write(producer, key, kept)  # type: ignore[arg-type]
        else:
            model.end(producer, commit=bool(key))
    for producer in list(model.open):  # a committed reader is never given records of an open transaction
        model.end(producer, commit=draw.draw(st.booleans()))
    position = 0
    seen: list[LogRecord] = []
    while position < model.next:
        # a fetch begins at the batch that holds the position and is cut at any byte after at least one batch
        start = max(base for base, _ in model.data if base <= position)
        batches = [data for base, data in model.data if base >= start]
        whole = b"".join(batches)
        data = whole[: draw.draw(st.integers(len(batches[0]), len(whole)))]
        aborted = [(producer, began) for producer, began, ended in model.aborted if ended >= position]
        records, following = read(data, position, aborted)
        assert following > position
        seen += records
        position = following
    assert position == model.next
    assert sorted(seen, key=lambda record: record.offset) == sorted(model.visible, key=lambda record: record.offset)
    assert [record.offset for record in seen] == sorted(record.offset for record in seen)
