from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from connectors.verify.rows import (
    Comparison,
    Sample,
    Structures,
    TableReport,
    digest_value,
    message_position,
    split_position,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

COLUMNS = ("id", "name")


def run(
    fill: Callable[[Comparison], None], folder: Path, *, columns: Sequence[str] = COLUMNS, examples: int = 5
) -> TableReport:
    with Comparison({"a.t": columns, "a.u": columns}, examples=examples, folder=str(folder)) as comparison:
        fill(comparison)
        steps = list(comparison.compare())
        assert steps[-1] == (len(steps), len(steps))
        assert comparison.reports["a.u"].total.source_rows == 0
    assert not list(folder.iterdir())
    return comparison.reports["a.t"]


def row(number: int, name: str | None = "x") -> dict[str, Any]:
    return {"id": number, "name": name}


def key(number: int) -> dict[str, Any]:
    return {"id": number}


def test_equal_sides_in_any_order(tmp_path: Path) -> None:
    numbers = list(range(-300, 3000))

    def fill(comparison: Comparison) -> None:
        for number in random.Random(1).sample(numbers, len(numbers)):
            comparison.topics.row("a.t", key(number), row(number, "old"))
            comparison.topics.row("a.t", key(number), {"name": f"{number}", "id": number})
        for number in numbers:
            comparison.source("a.t", key(number), row(number, f"{number}"))

    report = run(fill, tmp_path)
    assert report.equal
    assert report.total.source_rows == report.total.topic_rows == len(numbers)
    assert report.total.source_checksum == report.total.topic_checksum != 0
    assert report.bad_ranges() == []
    assert report.examples == {}


def test_missing_extra_and_different(tmp_path: Path) -> None:
    def fill(comparison: Comparison) -> None:
        for number in (1, 2, 3, 50_000, 7):
            comparison.topics.row("a.t", key(number), row(number))
        comparison.topics.gone("a.t", key(3))
        comparison.topics.row("a.t", key(7), row(7, "y"))
        for number in (1, 3, 7, 9):
            comparison.source("a.t", key(number), row(number))

    report = run(fill, tmp_path)
    assert (report.missing, report.extra, report.different, report.unsettled) == (2, 2, 1, 0)
    assert sorted(report.examples["missing"]) == ['{"id":3}', '{"id":9}']
    assert sorted(report.examples["extra"]) == ['{"id":2}', '{"id":50000}']
    assert report.examples["different"] == ['{"id":7}']
    assert report.bad_ranges() == [(0, 4095), (49152, 53247)]
    assert not report.equal
    assert (report.total.source_rows, report.total.topic_rows) == (4, 4)
    assert report.total.source_checksum != report.total.topic_checksum


def test_examples_are_limited_and_counts_are_not(tmp_path: Path) -> None:
    def fill(comparison: Comparison) -> None:
        for number in range(100):
            comparison.source("a.t", key(number), row(number))

    report = run(fill, tmp_path, examples=3)
    assert report.missing == 100
    assert len(report.examples["missing"]) == 3


def test_rows_that_differ_are_kept_with_the_position_of_their_last_message(tmp_path: Path) -> None:
    with Comparison({"a.t": COLUMNS}, examples=2, folder=str(tmp_path)) as comparison:
        for offset, number in enumerate((1, 2, 3, 1)):
            comparison.topics.row("a.t", key(number), row(number, f"{offset}"), message_position(3, offset))
        comparison.topics.gone("a.t", key(3))
        comparison.topics.later("a.t", key(2))
        for number in (1, 2, 3, 4, 5):
            comparison.source("a.t", key(number), row(number))
        list(comparison.compare())
        samples = {sample.key: sample for sample in comparison.samples["a.t"]}
    assert {sample.kind for sample in samples.values()} == {"different", "unsettled", "missing"}
    assert samples['{"id":1}'].position == message_position(3, 3)
    assert samples['{"id":2}'].position == message_position(3, 1)
    # Of three that are missing two are kept.
    missing = [sample for sample in samples.values() if sample.kind == "missing"]
    assert [(sample.position, sample.in_source) for sample in missing] == [(None, True)] * 2


def test_a_row_of_a_sample_is_read_where_its_side_has_it() -> None:
    sample = Sample("different", "{}", b"", in_source=True, position=0)
    assert not sample.is_read()
    sample.source = sample.topic = row(1)
    assert sample.is_read()
    assert not Sample("missing", "{}", b"", in_source=True, position=None, topic=row(1)).is_read()
    assert Sample("extra", "{}", b"", in_source=False, position=7, topic=row(1)).is_read()


@pytest.mark.parametrize("message", [(0, 0), (5, 1), (65_000, (1 << 48) - 1)])
def test_the_position_of_a_message_is_one_number(message: tuple[int, int]) -> None:
    assert split_position(message_position(*message)) == message


def test_rows_of_a_key_that_is_the_whole_row(tmp_path: Path) -> None:
    def fill(comparison: Comparison) -> None:
        comparison.topics.row("a.t", key(1), key(1))
        comparison.source("a.t", key(1), key(1))
        comparison.source("a.t", key(2), key(2))

    report = run(fill, tmp_path, columns=["id"])
    assert (report.missing, report.extra, report.different) == (1, 0, 0)


def test_ranges_grow_wider_instead_of_more(tmp_path: Path) -> None:
    def fill(comparison: Comparison) -> None:
        for number in range(0, 1 << 40, 1 << 32):
            comparison.topics.row("a.t", key(number), row(number))
            comparison.source("a.t", key(number), row(number, "x" if number else "z"))

    report = run(fill, tmp_path)
    assert len(report.ranges) <= 64
    assert sum(sums.source_rows for sums in report.ranges.values()) == 256
    low, high = report.bad_ranges()[0]
    assert len(report.bad_ranges()) == 1
    assert low <= 0 <= high


@pytest.mark.parametrize("name", ["x", None])
def test_rows_of_an_older_structure_are_compared_on_common_columns(tmp_path: Path, name: str | None) -> None:
    def fill(comparison: Comparison) -> None:
        comparison.topics.row("a.t", key(1), {"id": 1, "gone": 5})
        comparison.topics.row("a.t", key(2), {"id": 2, "gone": 5, "name": "other"})
        comparison.topics.row("a.t", key(3), {"id": 3, "gone": 6, "name": name})
        for number in (1, 2, 3):
            comparison.source("a.t", key(number), row(number, name))

    report = run(fill, tmp_path)
    # Row 2 has all of today's columns and one more: it is compared on today's.
    assert (report.missing, report.extra, report.different, report.older_structure) == (0, 0, 1, 1)
    assert report.examples == {"different": ['{"id":2}']}


def test_rows_changed_later_are_not_held_against_a_compacted_topic(tmp_path: Path) -> None:
    def fill(comparison: Comparison) -> None:
        comparison.topics.later("a.t", key(1))  # its state at the place was compacted away
        comparison.source("a.t", key(1), row(1))
        comparison.topics.row("a.t", key(2), row(2))
        comparison.topics.later("a.t", key(2))  # still there, and equal
        comparison.source("a.t", key(2), row(2))
        comparison.topics.row("a.t", key(3), row(3))
        comparison.topics.later("a.t", key(3))  # its deletion may have been compacted away
        comparison.topics.later("a.t", key(4))  # inserted later

    report = run(fill, tmp_path)
    assert (report.missing, report.extra, report.different, report.unsettled) == (0, 0, 0, 2)
    assert report.equal
    assert report.total.topic_rows == 2


def test_tables_without_key_are_compared_as_sets_with_repetitions(tmp_path: Path) -> None:
    def fill(comparison: Comparison) -> None:
        for _ in range(3):
            comparison.topics.row("a.t", None, row(1))
        comparison.topics.gone("a.t", None, row(1))
        comparison.topics.row("a.t", None, row(2))
        comparison.topics.row("a.t", None, row(3))
        comparison.topics.gone("a.t", None, row(3))
        for number in (1, 1, 4):
            comparison.source("a.t", None, row(number))

    report = run(fill, tmp_path)
    assert (report.missing, report.extra) == (1, 1)
    assert report.examples == {"extra": ['{"id":2,"name":"x"}'], "missing": ['{"id":4,"name":"x"}']}
    assert (report.total.source_rows, report.total.topic_rows) == (3, 3)


def test_older_rows_without_key_are_counted_and_not_called_missing(tmp_path: Path) -> None:
    def fill(comparison: Comparison) -> None:
        comparison.topics.row("a.t", None, {"id": 1})
        comparison.source("a.t", None, row(1))
        comparison.source("a.t", None, row(2))

    report = run(fill, tmp_path)
    assert (report.missing, report.unsettled) == (1, 1)
    assert "1 rows have an older structure" in report.note


def test_digest_does_not_depend_on_the_order_of_members() -> None:
    assert digest_value({"a": 1, "b": [1.5, None]}) == digest_value({"b": [1.5, None], "a": 1})
    assert digest_value({"a": 1}) != digest_value({"a": "1"}) != digest_value({"a": None})


def test_more_rows_than_are_written_at_once_stay_in_their_order(tmp_path: Path) -> None:
    def fill(comparison: Comparison) -> None:
        for round_number in range(3):
            for number in range(2_000):
                comparison.topics.row("a.t", key(number), row(number, f"{round_number}"))
        for number in range(2_000):
            if number % 3 == 0:
                comparison.topics.gone("a.t", key(number))
            if number % 6 == 0:
                comparison.topics.row("a.t", key(number), row(number, "again"))
        for number in range(2_000):
            if number % 3 or number % 6 == 0:
                comparison.source("a.t", key(number), row(number, "2" if number % 3 else "again"))

    report = run(fill, tmp_path)
    assert report.equal
    assert report.total.topic_rows == 2_000 - 333


@pytest.mark.parametrize("long", ["x" * 300, "x" * 60, "é" * 40])
def test_keys_of_any_length_and_form_are_distinct(tmp_path: Path, long: str) -> None:
    keys: list[Any] = [{"k": long}, {"k": long + "a"}, {"k": long + "b"}, long, long + "a", [long], 7]

    def fill(comparison: Comparison) -> None:
        for row_key in keys[1:]:
            comparison.topics.row("a.t", row_key, row(1))
        for row_key in keys[:-1]:
            comparison.source("a.t", row_key, row(1))

    report = run(fill, tmp_path)
    assert (report.missing, report.extra, report.different) == (1, 1, 0)
    assert report.examples["extra"] == ["7"]
    # A long key is cut, and may be cut within a character.
    assert report.examples["missing"][0].startswith('{"k":"' + long[:40])


def test_tables_in_one_topic_are_distinct(tmp_path: Path) -> None:
    with Comparison({"a.t": COLUMNS, "a.u": COLUMNS}, folder=str(tmp_path)) as comparison:
        for number in range(10):
            comparison.topics.row("a.t", key(number), row(number))
            comparison.topics.row("a.u", key(number), row(number, "u"))
            comparison.topics.later("a.t", key(number))
        for number in range(10):
            comparison.source("a.t", key(number), row(number))
            comparison.source("a.u", key(number), row(number))
        list(comparison.compare())
    assert comparison.reports["a.t"].equal
    assert (comparison.reports["a.u"].different, comparison.reports["a.u"].unsettled) == (10, 0)


def test_rows_that_a_mask_gives_one_key_are_one_row_on_the_topic(tmp_path: Path) -> None:
    def fill(comparison: Comparison) -> None:
        comparison.topics.row("a.t", key(1), row(1))
        for _ in range(2):
            comparison.source("a.t", key(1), row(1))

    report = run(fill, tmp_path)
    assert (report.missing, report.extra, report.total.source_rows, report.total.topic_rows) == (1, 0, 2, 1)


def test_columns_in_another_order_are_no_other_structure() -> None:
    structures = Structures(COLUMNS)
    assert structures.number({"name": "x", "id": 1}) == structures.number(row(1)) == 0
    assert not structures.have_older()
    assert structures.number({"id": 1}) == structures.number({"gone": 1, "id": 1}) == 1
    assert structures.have_older()
    assert structures.digests(row(1)) == digest_value(row(1)) + digest_value({"id": 1})
