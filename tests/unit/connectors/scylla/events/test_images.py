"""Old and new images find their events: by the row's identity and the place in the batch, however the rows arrive."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from connectors.scylla.events import build_events
from connectors.scylla.model import INSERT, POSTIMAGE, PREIMAGE, ROW_DELETE, UPDATE, LogRow, StreamRun
from connectors.scylla.positions import OFFSET_SEQ, OFFSET_TIME
from tests.support.settings import scylla_events
from tests.unit.connectors.scylla.events.making import OFFSET, PARTITION, STREAM, make, row, table, time_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import BadRecord, SourceRecord
    from connectors.scylla.events.contract import ScyllaEventSettings

TABLE = table()
FULL: dict[str, Any] = {"output_format": "advanced", "include_before": "full", "include_after": "full"}
OTHER = b"t" * 16


def images(records: list[SourceRecord]) -> list[tuple[Any, ...]]:
    """(op, c2 of the key, v before, v after) of all that are no tombstones."""
    return [
        (
            record.value["op"],
            record.key["c2"],
            *((image and image["v"]) for image in (record.value["before"], record.value["after"])),
        )
        for record in records
        if record.value is not None
    ]


def test_update_of_a_row_without_old_image_has_none_at_once() -> None:
    rows = [
        row(TABLE, 1, 0, UPDATE, pk=1, c1="a", c2=1, v="x"),
        row(TABLE, 1, 1, POSTIMAGE, end=True, pk=1, c1="a", c2=1, v="x"),
        row(TABLE, 2, 0, PREIMAGE, pk=1, c1="a", c2=1, v="x"),
        row(TABLE, 2, 1, UPDATE, pk=1, c1="a", c2=1, v="y"),
        row(TABLE, 2, 2, POSTIMAGE, end=True, pk=1, c1="a", c2=1, v="y"),
    ]
    assert images(make(TABLE, rows[:2], **FULL)) == [("u", 1, None, "x")]
    assert images(make(TABLE, rows, **FULL)) == [("u", 1, None, "x"), ("u", 1, "x", "y")]


def test_deletion_of_a_missing_row_is_emitted() -> None:
    rows = [row(TABLE, 1, 0, ROW_DELETE, end=True, pk=1, c1="a", c2=1)]
    assert images(make(TABLE, rows, **FULL)) == [("d", 1, None, None)]


def test_several_rows_of_a_batch_get_their_own_images() -> None:
    """Scylla writes all old images first and all new images last."""
    rows = [
        row(TABLE, 1, 0, PREIMAGE, pk=1, c1="a", c2=1, v="1"),
        row(TABLE, 1, 1, PREIMAGE, pk=1, c1="a", c2=3, v="3"),
        row(TABLE, 1, 2, UPDATE, pk=1, c1="a", c2=1, v="1b"),
        row(TABLE, 1, 3, INSERT, pk=1, c1="a", c2=2, v="2b"),
        row(TABLE, 1, 4, ROW_DELETE, pk=1, c1="a", c2=3),
        row(TABLE, 1, 5, POSTIMAGE, pk=1, c1="a", c2=2, v="2b"),
        row(TABLE, 1, 6, POSTIMAGE, end=True, pk=1, c1="a", c2=1, v="1b"),
    ]
    records = make(TABLE, rows, **FULL)
    assert images(records) == [("u", 1, "1", "1b"), ("c", 2, None, "2b"), ("d", 3, "3", None)]
    assert [record.source_offset[OFFSET_SEQ] for record in records] == [2, 3, 3, 4]  # the deletion, then its tombstone


def test_static_row_is_a_row_of_its_own() -> None:
    rows = [
        row(TABLE, 1, 0, PREIMAGE, pk=1, st="s"),
        row(TABLE, 1, 1, PREIMAGE, pk=1, c1="a", c2=1, v="x"),
        row(TABLE, 1, 2, UPDATE, pk=1, st="S"),
        row(TABLE, 1, 3, UPDATE, end=True, pk=1, c1="a", c2=1, v="y"),
    ]
    static, other = make(TABLE, rows, output_format="advanced", include_before="full")
    assert (static.value["before"]["st"], static.value["before"]["v"], static.key["c2"]) == ("s", None, None)
    assert (other.value["before"]["st"], other.value["before"]["v"], other.key["c2"]) == (None, "x", 1)


def test_a_row_written_twice_in_a_change_shares_the_images_around_it() -> None:
    rows = [
        row(TABLE, 1, 0, PREIMAGE, pk=1, c1="a", c2=1, v="0"),
        row(TABLE, 1, 1, UPDATE, pk=1, c1="a", c2=1, v="1"),
        row(TABLE, 1, 2, UPDATE, ttl=9, pk=1, c1="a", c2=1, n=1),
        row(TABLE, 1, 3, POSTIMAGE, end=True, pk=1, c1="a", c2=1, v="1", n=1),
    ]
    assert images(make(TABLE, rows, **FULL)) == [("u", 1, "0", "1"), ("u", 1, "1", "1")]


def test_images_written_per_statement_do_not_cross() -> None:
    rows = [
        row(TABLE, 1, 0, PREIMAGE, pk=1, c1="a", c2=1, v="0"),
        row(TABLE, 1, 1, UPDATE, pk=1, c1="a", c2=1, v="1"),
        row(TABLE, 1, 2, POSTIMAGE, pk=1, c1="a", c2=1, v="1"),
        row(TABLE, 1, 3, PREIMAGE, pk=1, c1="a", c2=1, v="1"),
        row(TABLE, 1, 4, ROW_DELETE, pk=1, c1="a", c2=1),
        row(TABLE, 1, 5, INSERT, pk=1, c1="a", c2=1, v="2"),
        row(TABLE, 1, 6, POSTIMAGE, end=True, pk=1, c1="a", c2=1, v="2"),
    ]
    assert images(make(TABLE, rows, **FULL)) == [("u", 1, "0", "1"), ("d", 1, "1", None), ("c", 1, None, "2")]


def test_old_image_of_another_change_is_not_taken() -> None:
    rows = [
        row(TABLE, 1, 0, PREIMAGE, pk=1, c1="a", c2=1, v="0"),
        row(TABLE, 2, 0, UPDATE, end=True, pk=1, c1="a", c2=1, v="1"),
    ]
    assert images(make(TABLE, rows, output_format="advanced", include_before="full")) == [("u", 1, None, None)]


def test_legacy_old_image_says_null_only_for_what_the_change_deleted() -> None:
    rows = [
        row(TABLE, 1, 0, PREIMAGE, pk=1, c1="a", c2=1, v="x"),
        row(TABLE, 1, 1, UPDATE, end=True, pk=1, c1="a", c2=1, deleted_v=True, deleted_n=True),
    ]
    (record,) = make(TABLE, rows, preimages=True)
    assert record.value["before"] == {
        "c1": "a",
        "c2": 1,
        "n": {"value": None},
        "pk": 1,
        "st": None,
        "v": {"value": "x"},
    }
    assert record.value["after"] == {
        "c1": "a",
        "c2": 1,
        "n": {"value": None},
        "pk": 1,
        "st": None,
        "v": {"value": None},
    }
    assert record.value["ts_us"] is None


def test_only_updated_has_what_was_written_deleted_or_lost_elements() -> None:
    old: dict[str, Any] = {"v": "x", "n": 1, "m": [{"key": "k", "value": 1}], "s": ["q"], "l": [(b"1" * 16, 5)]}
    new: dict[str, Any] = {"v": None, "n": 1, "m": None, "s": ["q"], "l": [(b"1" * 16, 5), (b"2" * 16, 6)]}
    key: dict[str, Any] = {"pk": 1, "c1": "a", "c2": 1}
    rows = [
        row(TABLE, 1, 0, PREIMAGE, **key, **old),
        row(TABLE, 1, 1, UPDATE, **key, deleted_v=True, deleted_elements_m=["k"], l=[(b"2" * 16, 6)]),
        row(TABLE, 1, 2, POSTIMAGE, end=True, **key, **new),
    ]
    (record,) = make(TABLE, rows, output_format="advanced", include_before="only-updated", include_after="only-updated")
    empty = dict.fromkeys(("fu", "n", "s", "st", "u"))
    assert record.value["before"] == {**key, **empty, "v": "x", "m": [{"key": "k", "value": 1}], "l": [5]}
    assert record.value["after"] == {**key, **empty, "v": None, "m": None, "l": [5, 6]}
    (record,) = make(
        TABLE,
        rows,
        output_format="advanced",
        include_before="full",
        include_after="only-updated",
        key_placement=frozenset({"kafka-key"}),
    )
    assert record.value["before"] == {**empty, "n": 1, "s": ["q"], "v": "x", "m": [{"key": "k", "value": 1}], "l": [5]}
    assert "pk" not in record.value["after"]


# -- any batches, cut anywhere

#: A write: which row (None: the static one), what, whether it has images.
WRITES = st.lists(
    st.tuples(
        st.sampled_from([None, 1, 2, 3]), st.sampled_from([UPDATE, INSERT, ROW_DELETE]), st.booleans(), st.booleans()
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def logs(draw: st.DrawFn) -> list[LogRow]:
    """Rows of two streams, by stream as a page has them; values tell which image belongs to which write."""
    rows: list[LogRow] = []
    for stream in (STREAM, OTHER):
        for number in range(draw(st.integers(0, 4))):
            batch: list[tuple[int, dict[str, Any]]] = []
            writes = [(c2, UPDATE if c2 is None else operation, old, new) for c2, operation, old, new in draw(WRITES)]
            batch += [
                (PREIMAGE, {**key_of(c2), "v": f"old {stream[:1]!r}{number} {c2}"})
                for c2 in dict.fromkeys(c2 for c2, _, old, _ in writes if old)
            ]
            batch += [
                (operation, {**key_of(c2), **({} if operation == ROW_DELETE else {"n": index})})
                for index, (c2, operation, _, _) in enumerate(writes)
            ]
            batch += [
                (POSTIMAGE, {**key_of(c2), "v": f"new {stream[:1]!r}{number} {c2}"})
                for c2 in dict.fromkeys(c2 for c2, operation, _, new in writes if new and operation != ROW_DELETE)
            ]
            marked = draw(st.booleans())
            for seq, (operation, cells) in enumerate(batch):
                rows.append(
                    row(TABLE, number, seq, operation, end=marked and seq == len(batch) - 1, stream=stream, **cells)
                )
    return rows


def key_of(c2: int | None) -> dict[str, Any]:
    return {"pk": 1} if c2 is None else {"pk": 1, "c1": "a", "c2": c2}


def event_settings(draw: Callable[[st.SearchStrategy[Any]], Any]) -> ScyllaEventSettings:
    modes: st.SearchStrategy[Literal["none", "full", "only-updated"]] = st.sampled_from(
        ["none", "full", "only-updated"]
    )
    if draw(st.booleans()):
        return scylla_events(topic_prefix="p", preimages=True)
    return scylla_events(
        topic_prefix="p", output_format="advanced", include_before=draw(modes), include_after=draw(modes)
    )


def runs(rows: list[LogRow], cuts: list[int]) -> list[StreamRun]:
    """Rows cut into runs: always between streams, and at ``cuts``; the last run of a stream says so."""
    result: list[StreamRun] = []
    for stream in (STREAM, OTHER):
        mine = [log_row for log_row in rows if log_row[0] == stream]
        edges = sorted({0, len(mine), *(cut % (len(mine) + 1) for cut in cuts)})
        result += [
            StreamRun(PARTITION, OFFSET, mine[start:end], None, last=end == len(mine)) for start, end in pairwise(edges)
        ]
    return result


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.data())
def test_cut_anywhere_the_events_are_the_same(data: st.DataObject) -> None:
    rows = data.draw(logs())
    options = event_settings(data.draw)
    cuts = data.draw(st.lists(st.integers(0, 200), max_size=5))
    whole: list[SourceRecord] = []
    divided: list[SourceRecord] = []
    bad: list[BadRecord] = []
    for out, parts in ((whole, runs(rows, [])), (divided, runs(rows, cuts))):
        maker = build_events(TABLE, options, lambda: 5.0)
        for run in parts:
            maker.feed(run, out, bad)
    assert not bad
    assert divided == whole
    assert sum(record.value is not None for record in whole) == sum(
        log_row[3] in {UPDATE, INSERT, ROW_DELETE} for log_row in rows
    )
    for record in whole:
        value = record.value or {}
        for image in (value.get("before"), value.get("after")):
            if image is not None and options.output_format == "advanced" and image["v"] is not None:
                assert image["v"].split()[2] == str(record.key["c2"])  # the image of this row


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.data())
def test_resumed_after_any_record_nothing_is_lost_and_only_a_split_deletion_repeats(data: st.DataObject) -> None:
    rows = [log_row for log_row in data.draw(logs()) if log_row[0] == STREAM]
    options = event_settings(data.draw)
    whole: list[SourceRecord] = []
    build_events(TABLE, options, lambda: 5.0).feed(StreamRun(PARTITION, OFFSET, rows, None, last=True), whole, [])
    for count, last in enumerate(whole, 1):
        time = bytes.fromhex(last.source_offset[OFFSET_TIME].replace("-", ""))
        resumed_rows = [log_row for log_row in rows if log_row[1] >= time]
        rest: list[SourceRecord] = []
        build_events(TABLE, options, lambda: 5.0).feed(
            StreamRun(PARTITION, OFFSET, resumed_rows, (time, last.source_offset[OFFSET_SEQ]), last=True), rest, []
        )
        split = last.value is not None and last.value["op"] == "d"  # its tombstone was not delivered
        assert rest == whole[count - split :]


def test_empty_run_gives_out_what_is_held() -> None:
    maker = build_events(TABLE, scylla_events(topic_prefix="p", **FULL), lambda: 5.0)
    out: list[SourceRecord] = []
    maker.feed(StreamRun(PARTITION, OFFSET, [row(TABLE, 1, 0, UPDATE, pk=1, c1="a", c2=1, v="x")]), out, [])
    assert out == []
    maker.feed(StreamRun(PARTITION, OFFSET, [], last=True), out, [])
    assert images(out) == [("u", 1, None, None)]


def test_reset_forgets_what_is_held() -> None:
    maker = build_events(TABLE, scylla_events(topic_prefix="p", **FULL), lambda: 5.0)
    out: list[SourceRecord] = []
    maker.feed(StreamRun(PARTITION, OFFSET, [row(TABLE, 1, 0, PREIMAGE, pk=1, c1="a", c2=1, v="x")]), out, [])
    maker.reset()
    maker.feed(StreamRun(PARTITION, OFFSET, [row(TABLE, 1, 1, UPDATE, end=True, pk=1, c1="a", c2=1, v="x")]), out, [])
    assert images(out) == [("u", 1, None, None)]
    assert out[0].source_offset[OFFSET_TIME].replace("-", "") == time_of(1).hex()
