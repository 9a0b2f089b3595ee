"""The file connector as a whole, in memory: records, offsets and errors; its form is Kafka Connect's."""

import asyncio
import gzip
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal, Skippable
from connectors.file import task as task_module
from connectors.file.connector import FileStreamSourceConnector
from connectors.file.stdin import StandardInput
from connectors.schema import STRING
from connectors.testing import Run, SavedOffsets
from connectors.text_files import reader as reader_module
from connectors.text_files import watch as watch_module
from connectors.text_files.directory import assign_files, match_files
from connectors.text_files.reader import _Thread
from connectors.text_files.rotation import fingerprint_head
from tests.support.eventually import pass_turns

if TYPE_CHECKING:
    from connectors.api import BadRecord, Batch

File = FileStreamSourceConnector


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in.txt"


def config_for(path: Path, **options: str) -> dict[str, str]:
    return {"file": str(path), "topic": "lines", **{name.replace("_", "."): value for name, value in options.items()}}


def saved(path: Path, offset: Mapping[str, Any]) -> SavedOffsets:
    offsets = SavedOffsets()
    offsets.put({"filename": str(path)}, dict(offset))
    return offsets


async def lines_of(config: Mapping[str, str], count: int, offsets: SavedOffsets | None = None) -> list[str]:
    async with Run(File, config, offsets=offsets) as run:
        return [record.value for record in await run.read(count)]


async def test_records_are_kafka_connects(path: Path) -> None:
    path.write_text("one\nzw\u00f6lf\r\nthree\n", encoding="utf-8")
    async with Run(File, config_for(path)) as run:
        records = await run.read(3)
    assert [record.value for record in records] == ["one", "zw\u00f6lf", "three"]
    assert [record.source_offset for record in records] == [{"position": 4}, {"position": 12}, {"position": 18}]
    for record in records:
        assert (record.topic, record.key, record.key_schema) == ("lines", None, None)
        assert (record.partition, record.headers) == (None, ())
        assert record.value_schema is STRING
        assert record.source_partition == {"filename": str(path)}
        assert record.source_partition is records[0].source_partition
        assert isinstance(record.timestamp, int)


async def test_batches_have_at_most_batch_size_records(path: Path) -> None:
    path.write_text("x\n" * 10)
    async with Run(File, config_for(path, batch_size="4")) as run:
        sizes: list[int] = []
        while sum(sizes) < 10:
            delivery = await run.take(10)
            assert delivery is not None
            sizes += [len(delivery[1].records)] if delivery[1].records else []
    assert sizes == [4, 4, 2]


async def test_goes_on_from_kafka_connects_offset(path: Path) -> None:
    path.write_text("one\ntwo\nthree\n")
    assert await lines_of(config_for(path), 1, saved(path, {"position": 8})) == ["three"]


async def test_a_null_position_is_the_beginning(path: Path) -> None:
    path.write_text("one\n")
    assert await lines_of(config_for(path), 1, saved(path, {"position": None})) == ["one"]


@pytest.mark.parametrize("position", ["8", 1.5, True, -1])
async def test_a_position_of_another_type_is_fatal(path: Path, position: object) -> None:
    path.write_text("one\n")
    async with Run(File, config_for(path), offsets=saved(path, {"position": position})) as run:
        with pytest.raises(Fatal, match="Offset position is the incorrect type"):
            await run.take(10)


async def test_a_position_inside_a_line_is_noted(path: Path) -> None:
    path.write_text("one\ntwo\n")
    async with Run(File, config_for(path), offsets=saved(path, {"position": 5})) as run:
        assert [record.value for record in await run.read(1)] == ["wo"]
    assert "inside a line" in run.log.text()


async def test_a_file_that_is_not_there_is_waited_for_and_logged_once(path: Path) -> None:
    async with Run(File, config_for(path)) as run:
        assert await run.take(0.3) is None
        path.write_text("here\n")
        assert [record.value for record in await run.read(1)] == ["here"]
    assert run.log.text().count("Couldn't find file") == 1
    assert [level for level, _ in run.log.lines] == [logging.WARNING]


async def test_malformed_bytes_are_replaced_as_java_does(path: Path) -> None:
    path.write_bytes(b"a\xffb\n")
    assert await lines_of(config_for(path), 1) == ["a\ufffdb"]


async def test_malformed_bytes_are_reported_with_bytes_and_position(path: Path) -> None:
    path.write_bytes(b"good\nb\xffd\nfine\nal\xfeso\n")
    async with Run(File, config_for(path, file_encoding_errors="report", batch_size="1")) as run:
        batches: list[Batch] = []
        while sum(len(batch.records) for batch in batches) < 2 or sum(len(batch.bad) for batch in batches) < 2:
            delivery = await run.take(10)
            assert delivery is not None
            batches.append(delivery[1])
    bad = [item for batch in batches for item in batch.bad]
    assert [(item.raw, item.source_offset, item.topic) for item in bad] == [
        (b"b\xffd", {"position": 9}, "lines"),
        (b"al\xfeso", {"position": 20}, "lines"),
    ]
    assert all(isinstance(item.error, Skippable) and str(path) in str(item.error) for item in bad)
    assert run.offsets.items() == [({"filename": str(path)}, {"position": 20})]
    # A bad line is never handed over before the good lines that stand before it.
    assert [[record.value for record in batch.records] for batch in batches if batch.records] == [["good"], ["fine"]]


async def test_long_lines_are_split_or_reported(path: Path) -> None:
    path.write_text("x" * 150 + "\nshort\n")
    assert await lines_of(config_for(path, line_max_bytes="64", line_too_long="split"), 4) == [
        "x" * 64,
        "x" * 64,
        "x" * 22,
        "short",
    ]
    assert await lines_of(config_for(path, line_max_bytes="64"), 1) == ["short"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "latin-1", "cp1252", "utf-8-sig", "shift_jis"])
async def test_encodings(path: Path, encoding: str) -> None:
    text = ["\u30c6\u30b9\u30c8" if encoding == "shift_jis" else "gr\u00fc\u00dfe", "", "end"]
    path.write_text("".join(f"{line}\n" for line in text), encoding=encoding)
    config = config_for(path, file_encoding=encoding)
    async with Run(File, config) as run:
        records = await run.read(3)
    assert [record.value for record in records] == text
    assert records[-1].source_offset == {"position": path.stat().st_size}
    assert await lines_of(config, 2, saved(path, records[0].source_offset)) == text[1:]


@pytest.mark.parametrize(
    ("encoding", "written_as"), [("utf-16", "utf-16-be"), ("utf-32", "utf-32-be"), ("utf-8-sig", "utf-8")]
)
async def test_a_byte_order_mark_may_come_byte_by_byte(path: Path, encoding: str, written_as: str) -> None:
    text = "\ufeffgr\u00fc\u00dfe\nend\n".encode(written_as)
    path.write_bytes(b"")
    async with Run(File, config_for(path, file_encoding=encoding, poll_interval_max_ms="10")) as run:
        for byte in text[:4]:
            with path.open("ab") as file:
                file.write(bytes([byte]))
            assert await run.take(0.1) is None
        with path.open("ab") as file:
            file.write(text[4:])
        records = await run.read(2)
    assert [record.value for record in records] == ["gr\u00fc\u00dfe", "end"]
    assert records[-1].source_offset == {"position": len(text)}


async def test_a_compressed_file_ends_with_its_last_line(path: Path) -> None:
    path.write_bytes(gzip.compress(b"one\ntwo"))
    config = config_for(path)
    async with Run(File, config) as run:
        records = await run.read(2)
    assert [(record.value, record.source_offset["position"]) for record in records] == [("one", 4), ("two", 7)]
    with path.open("ab") as file:
        file.write(gzip.compress(b"three\n"))
    assert await lines_of(config, 1, run.offsets) == ["three"]


async def test_damaged_gzip_is_a_bad_record(path: Path) -> None:
    packed = bytearray(gzip.compress(b"first\nsecond\n"))
    packed[-6] ^= 0xFF
    path.write_bytes(packed)
    async with Run(File, config_for(path)) as run:
        while True:
            delivery = await run.take(10)
            assert delivery is not None
            if delivery[1].bad:
                break
    assert "can't be decompressed" in str(delivery[1].bad[0].error)


@pytest.mark.parametrize("behind", ["rotated", "deleted"])
async def test_gzip_that_ends_early_is_a_bad_record(tmp_path: Path, behind: str) -> None:
    """While it may still be written it is waited for; once another file follows, or it is deleted, its rest is lost."""
    text = b"".join(b"old %d\n" % number for number in range(10_000))
    packed = gzip.compress(text)[:-1000]
    path, old = tmp_path / "app.log", tmp_path / "app.log.1.gz"
    old.write_bytes(packed)
    config, offsets = directory_config(tmp_path, file_pattern="*.gz"), None
    if behind == "rotated":
        path.write_text("new\n")
        config = config_for(path, rotation_tracking="true", rotation_wait_ms="100")
        offsets = saved(path, {"position": 6, "fingerprint": fingerprint_head(text, 6)})
    bad: list[BadRecord] = []
    async with Run(File, config, offsets=offsets) as run:
        assert (await run.read(1))[0].value.startswith("old")
        old.unlink()
        while not bad:
            delivery = await run.take(10)
            assert delivery is not None
            bad += delivery[1].bad
        if behind == "rotated":
            assert [record.value for record in await run.read(1)] == ["new"]
    assert len(bad) == 1
    assert "can't be decompressed" in str(bad[0].error)
    assert "its end is missing" in str(bad[0].error)


async def test_rotation_while_running_moves_the_position_to_the_new_file(path: Path) -> None:
    path.write_text("one\nunfinished")
    config = config_for(path, rotation_wait_ms="0")
    async with Run(File, config) as run:
        await run.read(1)
        path.rename(path.with_name("in.txt.1"))
        path.write_text("")
        while run.offsets.get({"filename": str(path)}) != {"position": 0}:
            assert await run.take(10) is not None
        path.write_text("new\n")
        assert [record.value for record in await run.read(1)] == ["new"]
    assert "was rotated" in run.log.text()


async def test_the_unfinished_line_of_a_rotated_file_is_a_line(path: Path) -> None:
    path.write_text("one\nunfinished")
    async with Run(File, config_for(path, rotation_wait_ms="0")) as run:
        await run.read(1)
        path.rename(path.with_name("in.txt.1"))
        path.write_text("new\n")
        assert [record.value for record in await run.read(2)] == ["unfinished", "new"]


async def test_tracked_rotation_while_nothing_runs_loses_nothing(path: Path) -> None:
    written_lines = [f"line number {number}" for number in range(400)]
    config = config_for(path, rotation_tracking="true", rotation_wait_ms="0")
    offsets = SavedOffsets()
    seen: list[str] = []
    for rotation in range(4):
        with path.open("a") as file:
            file.writelines(f"{line}\n" for line in written_lines[rotation * 100 : rotation * 100 + 50])
        if rotation % 2 == 0:  # every second time nothing is read before the file is rotated
            seen += await lines_of(config, rotation * 100 + 50 - len(seen), offsets)
        with path.open("a") as file:
            file.writelines(f"{line}\n" for line in written_lines[rotation * 100 + 50 : rotation * 100 + 100])
        target = path.with_name(f"in.txt.{rotation}.gz")
        target.write_bytes(gzip.compress(path.read_bytes()))
        os.utime(target, (1000 + rotation, 1000 + rotation))
        path.unlink()
        path.write_text("")
    path.write_text("last\n")
    seen += await lines_of(config, 401 - len(seen), offsets)
    assert seen == [*written_lines, "last"]
    position = offsets.get({"filename": str(path)})
    assert position is not None
    assert position.keys() == {"position", "fingerprint"}


async def test_a_file_that_is_rotated_before_a_line_of_it_was_read_is_found(path: Path) -> None:
    config = config_for(path, rotation_tracking="true", rotation_wait_ms="0")
    offsets = SavedOffsets()
    path.write_text("one\n")
    async with Run(File, config, offsets=offsets) as run:
        await run.read(1)
        path.rename(path.with_name("in.txt.2"))
        path.write_text("")
        while "was rotated" not in run.log.text():
            await run.take(0.05)
    with path.open("a") as file:
        file.write("between\n")
    path.rename(path.with_name("in.txt.1"))
    path.write_text("last\n")
    for number in (1, 2):
        os.utime(path.with_name(f"in.txt.{number}"), (2000 - number, 2000 - number))
    assert await lines_of(config, 2, offsets) == ["between", "last"]


def test_standard_input() -> None:
    script = """
import asyncio
from connectors.file.connector import FileStreamSourceConnector
from connectors.testing import Run
async def main():
    async with Run(FileStreamSourceConnector, {"topic": "t"}) as run:
        for record in await run.read(3):
            print(record.value, record.source_partition, record.source_offset)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], input=b"one\r\ntwo\nthree", capture_output=True, timeout=60, check=True
    )
    assert done.stdout.decode().splitlines() == [
        f"{line} {{'filename': None}} {{'position': None}}" for line in ("one", "two", "three")
    ]


@pytest.mark.parametrize(
    ("encoding", "written_as"), [("utf-16", "utf-16-be"), ("utf-16", "utf-16-le"), ("utf-8-sig", "utf-8")]
)
async def test_standard_input_with_a_byte_order_mark(
    monkeypatch: pytest.MonkeyPatch, encoding: str, written_as: str
) -> None:
    read_end, write_end = os.pipe()
    monkeypatch.setattr(task_module, "StandardInput", partial(StandardInput, read_end))
    try:
        async with Run(File, {"topic": "t", "file.encoding": encoding}) as run:
            for byte in "\ufeff\u0a0a\ntwo\nlast".encode(written_as):
                os.write(write_end, bytes([byte]))
            os.close(write_end)
            assert [record.value for record in await run.read(3)] == ["\u0a0a", "two", "last"]
    finally:
        os.close(read_end)


async def test_a_read_that_is_under_way_outlives_the_task_and_then_closes() -> None:
    thread = _Thread()
    released, closed = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    call = asyncio.create_task(thread.call(lambda: asyncio.run_coroutine_threadsafe(released.wait(), loop).result()))
    await pass_turns()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    thread.afterwards(closed.set)
    assert not closed.is_set()
    released.set()
    await asyncio.wait_for(closed.wait(), 10)


# A directory.


def directory_config(folder: Path, **options: str) -> dict[str, str]:
    return {
        "directory": str(folder),
        "file.pattern": "*.log*",
        "topic": "lines",
        "directory.scan.interval.ms": "100",
        "rotation.wait.ms": "0",
        **{name.replace("_", "."): value for name, value in options.items()},
    }


async def test_a_directory_is_split_and_new_files_are_noticed(tmp_path: Path) -> None:
    for name in ("a.log", "b.log", "c.log.gz", "d.txt", ".e.log"):
        text = f"{name}\n".encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    async with Run(File, directory_config(tmp_path), max_tasks=2) as run:
        assert len(run.tasks) == 2
        assert {record.value for record in await run.read(3)} == {"a.log", "b.log", "c.log.gz"}
        (tmp_path / "f.log").write_text("f.log\n")
        records = await run.read(1)
    assert [(record.value, record.source_partition) for record in records] == [
        ("f.log", {"filename": str(tmp_path / "f.log")})
    ]


@pytest.mark.parametrize(("scan_ms", "wait_ms"), [("60000", "0"), ("100", "500")])
async def test_offsets_of_deleted_files_are_deleted_and_new_files_of_the_name_read(
    tmp_path: Path, scan_ms: str, wait_ms: str
) -> None:
    """Also where the directory is listed before the task is sure that the file is gone."""
    (tmp_path / "a.log").write_text("one\ntwo\n")
    (tmp_path / "b.log").write_text("stays\n")
    partition = {"filename": str(tmp_path / "a.log")}
    async with Run(
        File, directory_config(tmp_path, directory_scan_interval_ms=scan_ms, rotation_wait_ms=wait_ms)
    ) as run:
        await run.read(3)
        (tmp_path / "a.log").unlink()
        while run.offsets.get(partition) is not None:
            assert await run.take(10) is not None
        (tmp_path / "a.log").write_text("three is new\n")
        assert [record.value for record in await run.read(1)] == ["three is new"]


@pytest.mark.parametrize("open_files", [128, 1])
@pytest.mark.parametrize("leaves_empty", [False, True])
async def test_a_directory_that_is_gone_for_a_while_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_files: int, leaves_empty: bool
) -> None:
    """Such as one that is not mounted, which leaves an empty one in its place: its files are not deleted."""
    monkeypatch.setattr(reader_module, "_OPEN_FILES", open_files)
    folder, aside = tmp_path / "logs", tmp_path / "aside"
    folder.mkdir()
    for name in ("a.log", "b.log"):
        (folder / name).write_text("one\n")
    async with Run(File, directory_config(folder)) as run:
        await run.read(2)
        folder.rename(aside)
        if leaves_empty:
            folder.mkdir()
        assert await run.take(1) is None
        assert len(run.offsets.items()) == 2
        assert run.log.text().count("Couldn't find file") == 2
        aside.rename(folder)
        for name in ("a.log", "b.log"):
            with (folder / name).open("a") as file:
                file.write("two\n")
        assert [record.value for record in await run.read(2)] == ["two", "two"]


async def test_a_deleted_file_leaves_its_task_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_GRACE_S", 0.3)
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(f"{name}\n")
    async with Run(File, directory_config(tmp_path)) as run:
        await run.read(2)
        (tmp_path / "a.log").unlink()
        while "a.log" in run.tasks[0].context.config["task.files"]:
            await run.take(0.1)
        task = run.tasks[0]
        await run.take(0.5)
        assert run.tasks[0] is task, "the same files as before ask for no other tasks"


async def test_a_file_replaced_while_nothing_runs_is_read_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("one\n")
    offsets = SavedOffsets()
    config = directory_config(tmp_path)
    assert await lines_of(config, 1, offsets) == ["one"]
    (tmp_path / "a.log").write_text("another and longer\n")
    assert await lines_of(config, 1, offsets) == ["another and longer"]


async def test_a_file_whose_name_is_not_utf_8_is_left_out_and_logged_once(tmp_path: Path) -> None:
    """An offset, which is JSON, can't name it."""
    (tmp_path / os.fsdecode(b"b\xfcro.log")).write_text("unnamed\n")
    (tmp_path / "a.log").write_text("one\n")
    async with Run(File, directory_config(tmp_path)) as run:
        assert [record.value for record in await run.read(1)] == ["one"]
        assert await run.take(0.5) is None
    assert run.log.text().count("UTF-8") == 1
    assert "b\\xfcro.log" in run.log.text()


def count_open(folder: Path) -> int:
    """How many files of a folder this process has open."""
    return sum(link.resolve().parent == folder for link in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("kind", ["lines", "gzip", "unfinished"])
async def test_few_files_are_held_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Whatever is in them: text, gzip, or a last line whose end has not come."""
    monkeypatch.setattr(reader_module, "_OPEN_FILES", 4)
    names = [tmp_path / f"{number:02}.log" for number in range(20)]
    pack = gzip.compress if kind == "gzip" else bytes
    unfinished = b"sec" if kind == "unfinished" else b""
    for name in names:
        name.write_bytes(pack(b"first\n" + unfinished))
    async with Run(File, directory_config(tmp_path)) as run:
        await run.read(20)
        while count_open(tmp_path) > 4:
            assert await run.take(0.05) is None
        for name in names:
            with name.open("ab") as file:
                file.write(pack(b"second\n".removeprefix(unfinished)))
        assert [record.value for record in await run.read(20)] == ["second"] * 20
        assert await run.take(0.3) is None


async def test_more_files_than_descriptors_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that opened them all at its start would leave none for the connections of its process."""
    monkeypatch.setattr(reader_module, "_OPEN_FILES", 8)
    for number in range(100):
        (tmp_path / f"{number:03}.log").write_text(f"{number}\n" * 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 40, hard))
    try:
        async with Run(File, directory_config(tmp_path)) as run:
            records = await run.read(200)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sorted(record.value for record in records) == sorted(str(number) for number in range(100) for _ in (1, 2))
    assert run.log.text() == ""


async def test_the_unfinished_line_of_a_closed_file_is_a_line_when_the_file_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_OPEN_FILES", 1)
    names = [tmp_path / f"{number}.log" for number in range(4)]
    for name in names:
        name.write_bytes(b"first\nlast")
    async with Run(File, directory_config(tmp_path)) as run:
        await run.read(4)
        while count_open(tmp_path) > 1:
            assert await run.take(0.05) is None
        for name in names:
            name.unlink()
        assert [record.value for record in await run.read(4)] == ["last"] * 4


def test_a_directory_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert match_files(str(tmp_path / "none"), "*") == []


FILES = st.lists(st.sampled_from([f"/in/file-{number}" for number in range(30)]), unique=True)


@given(files=FILES, others=FILES, tasks=st.integers(1, 12))
def test_files_are_divided_evenly_and_stay_where_they_are(files: list[str], others: list[str], tasks: int) -> None:
    groups: list[list[str]] = []
    for now in (files, others):
        before, groups = groups, assign_files(now, tasks, groups)
        assert sorted(name for group in groups for name in group) == sorted(now)
        assert len(groups) == min(tasks, len(now))
        assert not groups or max(map(len, groups)) - min(map(len, groups)) <= 1
        assert assign_files(now, tasks, groups) == groups
        if set(now) >= {name for group in before for name in group} and len(before) == len(groups):
            assert all(new[: len(old)] == old for old, new in zip(before, groups, strict=True)), (
                "a file moved without need"
            )


async def test_the_unfinished_line_of_a_rotated_file_is_saved_with_its_own_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("first\nunfinished")
    config = {"file": str(path), "topic": "t", "rotation.tracking": "true", "rotation.wait.ms": "0"}
    async with Run(File, config) as run:
        await run.read(1)
        path.rename(tmp_path / "app.log.1")
        path.write_text("a new file that is longer than the old one\n")
        records = await run.read(2)
    assert [record.value for record in records] == ["unfinished", "a new file that is longer than the old one"]
    assert records[0].source_offset == {"position": 16, "fingerprint": fingerprint_head(b"first\nunfinished", 16)}
    # A restart between the two finds the rotated file, and not the middle of the new one.
    offsets = SavedOffsets()
    offsets.put(records[0].source_partition, records[0].source_offset)
    assert await lines_of(config, 1, offsets) == ["a new file that is longer than the old one"]
