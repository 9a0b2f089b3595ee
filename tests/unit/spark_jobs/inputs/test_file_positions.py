"""The files of a batch, and the numbers of their rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal
from spark_jobs.inputs.files.letters import PATH_HEADER, ROW_HEADER, FileLetters
from spark_jobs.inputs.files.log import Listed, batch_files
from spark_jobs.inputs.files.positions import UNIT, BatchFile, FileProbe, locate_row, number_files
from spark_jobs.inputs.positions import position_after, save_position
from spark_jobs.spark.checkpoint import LocalFolder

if TYPE_CHECKING:
    from pathlib import Path

FILES = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from("abcdef"), st.integers(0, 3 * UNIT)), min_size=1, max_size=6
)


def entry(path: str, modified: int, batch: int) -> str:
    return json.dumps({"path": path, "timestamp": modified, "batchId": batch})


def test_files_of_a_batch_are_those_of_its_entries_of_the_log(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    for batch, number in enumerate((0, 2)):
        folder.write(f"offsets/{batch}", f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{number}}}')
    folder.write("sources/0/0", "v1\n" + entry("file:/drop/a%20b.csv", 5, 0))
    folder.write("sources/0/1", "v1\n" + entry("file:///drop/z", 3, 1) + "\n" + entry("file:///drop/y", 3, 1))
    compacted = [entry("file:/drop/a%20b.csv", 5, 0), entry("file:///drop/z", 3, 1), entry("s3a://drop/x", 1, 2)]
    folder.write("sources/0/2.compact", "\n".join(["v1", *compacted]))
    assert batch_files(folder, 0) == [Listed(5, "file:///drop/a%20b.csv")]
    assert batch_files(folder, 1) == [
        Listed(1, "s3a://drop/x"),
        Listed(3, "file:///drop/y"),
        Listed(3, "file:///drop/z"),
    ]


def test_a_checkpoint_of_another_input_is_refused(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.write("offsets/0", 'v1\n{}\n{"topic":{"0":12}}')
    with pytest.raises(Fatal, match=r"another source\.type; give the job a checkpoint of its own"):
        batch_files(folder, 0)
    folder.write("offsets/0", 'v1\n{}\n{"logOffset":0}')
    with pytest.raises(Fatal, match="lacks entry 0"):
        batch_files(folder, 0)


@given(FILES, st.integers(0, 4 * UNIT))
def test_numbers_grow_from_row_to_row_and_are_the_same_again(files: list[tuple[int, str, int]], after: int) -> None:
    listed = sorted({Listed(modified, name) for modified, name, _ in files})
    probes = {file.path: FileProbe(rows) for file, (_, _, rows) in zip(listed, files, strict=False)}
    numbered = number_files(listed, probes, after)
    last = after
    for file in numbered.files:
        assert file.first >= max(last, file.modified_ms * UNIT)
        last = file.first + file.rows
        for row in {0, file.rows - 1} if file.rows else ():
            assert locate_row(numbered.files, file.first + row) == (file, row + 1)
    assert numbered.end >= last
    assert number_files(listed, probes, after) == numbered


@given(st.lists(st.integers(1, UNIT), min_size=1, max_size=8), st.integers(0, 8))
def test_numbers_do_not_depend_on_how_files_are_spread_over_batches(rows: list[int], cut: int) -> None:
    """Without a checkpoint all files come in one batch: their rows keep their numbers, so sinks know what they have."""
    listed = [Listed(number, f"f{number}") for number in range(len(rows))]
    probes = {file.path: FileProbe(count) for file, count in zip(listed, rows, strict=True)}
    whole = number_files(listed, probes, 0)
    first = number_files(listed[:cut], probes, 0)
    second = number_files(listed[cut:], probes, first.end)
    assert first.files + second.files == whole.files


def test_a_late_file_is_newer_than_what_was_read() -> None:
    numbered = number_files([Listed(5, "late")], {"late": FileProbe(2)}, 9 * UNIT)
    assert numbered.files[0].first == 9 * UNIT


def test_positions_are_kept_for_the_batches_that_may_be_done_again(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    assert position_after(folder, -1) == {}
    for batch in range(6):
        save_position(folder, batch, {("t", 0): batch * 10})
    assert position_after(folder, 5) == {("t", 0): 50}
    assert position_after(folder, 4) == {("t", 0): 40}
    with pytest.raises(Fatal, match="_millrace_positions/1"):
        position_after(folder, 1)


def test_a_dead_letter_names_file_and_row() -> None:
    letters = FileLetters("job", tolerant=False)
    letters.files = (BatchFile("s3a://drop/a%20b", 1, 100, 10), BatchFile("s3a://drop/c", 2, 200, 0, error="damaged"))
    assert letters.where("t", 0, 104) == "s3a://drop/a b row 5"
    assert letters.where("t", 0, 200) == "s3a://drop/c"
    headers = dict(letters.story("t", 0, 104, "bad", "VALUE_CONVERTER"))
    assert (headers[PATH_HEADER], headers[ROW_HEADER]) == (b"s3a://drop/a b", b"5")
    assert ROW_HEADER not in dict(letters.story("t", 0, 200, "bad", "TASK_POLL"))
    with pytest.raises(Fatal, match="the record at s3a://drop/a b row 5 can't be decoded: bad"):
        letters.report("t", 0, 104, None, b"", "bad")
    with pytest.raises(Fatal, match="the file s3a://drop/c can't be read: damaged"):
        letters.report_file("t", letters.files[1])
