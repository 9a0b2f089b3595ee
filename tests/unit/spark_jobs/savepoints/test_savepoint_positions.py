"""The position of files and histories in a savepoint: which files of the checkpoint it needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal
from spark_jobs.inputs.files.log import batch_files, log_files
from spark_jobs.inputs.files.source import FilesInput
from spark_jobs.inputs.history.source import HistoryInput
from spark_jobs.inputs.positions import position_file, save_position
from spark_jobs.rows.schema_watch import FILE
from spark_jobs.savepoints.position import read_position, write_position
from spark_jobs.spark.checkpoint import LocalFolder

if TYPE_CHECKING:
    from pathlib import Path

#: Spark's default: each tenth entry holds all before it.
COMPACTED = 10


def entry(number: int) -> str:
    return json.dumps({"path": f"file:///drop/{number}.csv", "timestamp": number, "batchId": number})


def checkpoint(path: Path, batches: list[int], *, planned: int = 0) -> LocalFolder:
    """A checkpoint of files, as Spark has it.

    Args:
        path: where to.
        batches: of each batch how many entries of the log it has.
        planned: entries of a batch that is not done.
    """
    folder = LocalFolder(path)
    last = -1
    for batch, count in enumerate([*batches, planned] if planned else batches):
        for number in range(last + 1, last + count + 1):
            compact = number % COMPACTED == COMPACTED - 1
            lines = [entry(old) for old in (range(number + 1) if compact else [number])]
            folder.write(f"sources/0/{number}{'.compact' if compact else ''}", "\n".join(["v1", *lines]))
            folder.write(f"sources/0/.{number}.crc", "x")
        last += count
        folder.write(f"offsets/{batch}", f'v1\n{{}}\n{{"logOffset":{last}}}')
        if batch < len(batches):
            folder.write(f"commits/{batch}", "v1\n{}")
            save_position(folder, batch, {("drop.rows", 0): last * 100})
    return folder


@given(batches=st.lists(st.integers(1, 7), min_size=1, max_size=12), planned=st.integers(0, 5))
def test_a_savepoint_knows_every_file_that_was_read_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], planned: int
) -> None:
    folder = checkpoint(tmp_path_factory.mktemp("a"), batches, planned=planned)
    batch, files = read_position(folder, FilesInput)
    assert batch == len(batches) - 1
    other = LocalFolder(tmp_path_factory.mktemp("b"))
    write_position(other, files)
    names = other.list("sources/0")
    listed_entries = {
        json.loads(line)["batchId"]
        for name in names
        for line in (other.read(f"sources/0/{name}") or "").splitlines()[1:]
    }
    assert listed_entries == set(range(sum(batches)))
    assert batch_files(other, batch) == batch_files(folder, batch), "Spark reads the last batch's entries again"
    assert len([name for name in names if name.endswith(".compact")]) <= 1 + batches[-1] // COMPACTED + 1
    assert FilesInput.position_files(other, batch) == FilesInput.position_files(folder, batch)
    assert other.read(position_file(batch)) == folder.read(position_file(batch))


def test_what_an_earlier_compaction_holds_is_left_out(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, [1] * 23)
    assert log_files(folder, 22) == [f"sources/0/{name}" for name in ("19.compact", "20", "21", "22")]


def test_a_history_keeps_its_plan_and_its_chunks_and_names_those_of_the_new_checkpoint(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "a", [1, 1, 1], planned=1)
    folder.write("_millrace_history", "plan")
    for number in range(5):
        folder.write(f"millrace_chunks/{number:08d}", "")
    batch, files = read_position(folder, HistoryInput)
    ticks = {name for name in files if name.startswith("millrace_chunks")}
    assert ticks == {f"millrace_chunks/{number:08d}" for number in range(5)}
    assert files["_millrace_history"] == "plan"
    other = LocalFolder(tmp_path / "b c")
    write_position(other, HistoryInput.moved(files, str(other.folder)))
    (listed,) = batch_files(other, batch or 0)
    assert listed.path == f"file://{tmp_path}/b%20c/millrace_chunks/2.csv"
    assert {name for name in files if HistoryInput.moved(files, "/x")[name] != files[name]} == {
        "sources/0/0",
        "sources/0/1",
        "sources/0/2",
    }


def test_a_position_without_its_number_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, [1, 1])
    folder.delete(position_file(1))
    with pytest.raises(Fatal, match="lacks _millrace_positions/1"):
        read_position(folder, FilesInput)


def test_a_start_from_another_savepoint_leaves_nothing_of_one_that_was_killed(tmp_path: Path) -> None:
    _, later = read_position(checkpoint(tmp_path / "later", [1, 1, 1, 1]), FilesInput)
    batch, earlier = read_position(checkpoint(tmp_path / "earlier", [1, 1]), FilesInput)
    later |= {"schemas/7.json": "{}", FILE: "{}"}
    folder = LocalFolder(tmp_path / "job")
    write_position(folder, later)
    write_position(folder, earlier)
    assert read_position(folder, FilesInput) == (batch, earlier)
    assert {name: folder.read(name) for name in later if name not in earlier} == dict.fromkeys(later.keys() - earlier)
