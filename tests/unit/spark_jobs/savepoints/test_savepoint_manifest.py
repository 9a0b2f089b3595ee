"""The manifest of a savepoint, the position in it, and what refuses it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import Fatal
from spark_jobs.inputs.kafka import KafkaInput
from spark_jobs.savepoints import make
from spark_jobs.savepoints.manifest import (
    FORMAT,
    FORMAT_WITH_STEPS,
    MANIFEST_FILE,
    SavepointManifest,
    decode_manifest,
    encode_manifest,
    find_refusals,
    read_manifest,
)
from spark_jobs.savepoints.position import read_position, write_position
from spark_jobs.savepoints.requests import _REQUEST, Inbox, JobSavepointRequest, SavepointAnswer, request_savepoint
from spark_jobs.savepoints.steps import SavedStep, SavedTable
from spark_jobs.spark.checkpoint import LocalFolder

if TYPE_CHECKING:
    from pathlib import Path


def saved_step(**definition: Any) -> SavedStep:
    table = SavedTable(
        folder="state-1/sums/rows",
        files=["a.parquet"],
        rows=3,
        digest=-5,
        partitioned_by=[],
        properties={"delta.x": "1"},
    )
    return SavedStep(definition={"type": "window", **definition}, values={"watermark": None}, tables={"rows": table})


def manifest(**changes: Any) -> SavepointManifest:
    values: dict[str, Any] = {
        "id": "ab12",
        "name": "before-move",
        "job": "orders",
        "created_ms": 5,
        "versions": {"millrace": "0.1.0", "spark": "4.2.0"},
        "sink": "materializer",
        "source_type": "kafka",
        "source_format": "debezium",
        "inputs": ["shop.orders"],
        "batch": 3,
        "checkpoint": {"offsets/3": "v1\n{}\n{}", "sources/0/0": "\0v1\n{}"},
        "steps": {"sums": saved_step()},
        "state": {"layout": 1, "buckets": 2, "records": 7, "topics": {"t": {"digest": -(1 << 63)}}},
    }
    return SavepointManifest(**values | changes)


def checkpoint(folder: Path, batches: int) -> LocalFolder:
    folder_ = LocalFolder(folder)
    folder_.write("metadata", '{"id":"q"}')
    folder_.write("sources/0/0", '\0v1\n{"t":{"0":0}}')
    folder_.write("_millrace_topics", '{"t":"id"}')
    for number in range(batches):
        folder_.write(f"offsets/{number}", f'v1\n{{}}\n{{"t":{{"0":{number + 1}}}}}')
        folder_.write(f"commits/{number}", "v1\n{}")
    return folder_


def test_it_comes_back_as_it_was() -> None:
    assert decode_manifest(encode_manifest(manifest()), "d") == manifest()


@given(st.data())
def test_a_part_of_it_or_a_changed_one_is_never_accepted(data: st.DataObject) -> None:
    text = encode_manifest(manifest())
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(Fatal, match="incomplete or damaged"):
        decode_manifest(text[:cut], "d")
    body = text.index('"savepoint":') + len('"savepoint":')
    index = data.draw(st.integers(body, len(text) - 2))
    other = data.draw(st.characters(codec="ascii", exclude_characters=text[index] + " \t\n\r"))
    with pytest.raises(Fatal, match="damaged"):
        decode_manifest(text[:index] + other + text[index + 1 :], "d")


def test_another_layout_is_refused_before_anything_else_is_read() -> None:
    later = FORMAT_WITH_STEPS + 1
    body = msgspec.json.encode({"format": later, "new": "things"})
    text = json.dumps({"sha256": hashlib.sha256(body).hexdigest(), "savepoint": 0}).replace("0}", body.decode() + "}")
    with pytest.raises(Fatal, match=rf"has layout {later}, and this version of Millrace reads layouts {FORMAT} and"):
        decode_manifest(text, "d")


def test_a_folder_without_manifest_is_no_savepoint(tmp_path: Path) -> None:
    (tmp_path / "state-1").mkdir()
    with pytest.raises(Fatal, match=f"has no {MANIFEST_FILE}"):
        read_manifest(LocalFolder(tmp_path), "d")


def test_what_does_not_fit_is_named_all_at_once() -> None:
    fits: dict[str, Any] = {
        "sink": "materializer",
        "source_type": "kafka",
        "source_format": "debezium",
        "inputs": ["shop.orders"],
        "spark_version": "4.2.1",
    }
    assert find_refusals(manifest(), **fits) == []
    reasons = find_refusals(
        manifest(), sink="jdbc", source_type="files", source_format=None, inputs=["/drop"], spark_version="4.3.0"
    )
    for part, text in zip(("sink", "source.type", "source.format", "/drop", "Spark"), reasons, strict=True):
        assert part in text


def test_the_position_is_that_of_the_last_batch_done(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "a", 12)
    folder.write("offsets/12", "planned")
    folder.write("schemas/2.json", "old")
    folder.write("schemas/10.json", "new")
    folder.write("_millrace_schemas", "of the sink")
    batch, files = read_position(folder, KafkaInput)
    assert batch == 11
    assert set(files) == {
        "sources/0/0", "_millrace_topics", "offsets/10", "offsets/11", "commits/11", "schemas/10.json",
        "_millrace_schemas",
    }  # fmt: skip
    other = LocalFolder(tmp_path / "b")
    write_position(other, files)
    assert read_position(other, KafkaInput) == (batch, files)
    assert json.loads(other.read("metadata") or "")["id"] not in ("q", ""), "another query"


def test_a_position_is_complete_or_absent(tmp_path: Path) -> None:
    _, files = read_position(checkpoint(tmp_path / "a", 3), KafkaInput)
    written: list[str] = []

    class Recorder(LocalFolder):
        def write(self, name: str, text: str) -> None:
            del text
            written.append(name)

    write_position(Recorder(tmp_path / "b"), files)
    assert written[-1] == "commits/2"
    (tmp_path / "a" / "offsets" / "1").unlink()
    with pytest.raises(Fatal, match="lacks offsets/1"):
        read_position(LocalFolder(tmp_path / "a"), KafkaInput)


def test_a_job_without_a_batch_has_no_position(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 0)
    folder.write("offsets/0", "planned")
    assert read_position(folder, KafkaInput) == (None, {})


def test_lists_and_deletes(tmp_path: Path) -> None:
    for name, created in (("a", 1), ("b", 2)):
        LocalFolder(tmp_path / name).write(MANIFEST_FILE, encode_manifest(manifest(name=name, created_ms=created)))
    LocalFolder(tmp_path / "half").write("state-1/x", "")
    LocalFolder(tmp_path / "torn").write(MANIFEST_FILE, "{")
    savepoints = make.list_savepoints(tmp_path)
    assert [savepoint["name"] for savepoint in savepoints] == ["a", "b", "torn"]
    assert (savepoints[0]["records"], savepoints[0]["steps"]) == (7, {"sums": 3})
    assert "damaged" in savepoints[2]["error"]
    assert make.delete_savepoint(LocalFolder(tmp_path / "a"))
    assert not (tmp_path / "a").exists()
    assert not make.delete_savepoint(LocalFolder(tmp_path / "half"))


def test_a_savepoint_is_never_overwritten_and_leftovers_go(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.write("state-old/part", "")
    folder.write("mine", "")
    make._demand_free(folder, "d")
    assert folder.list("") == ["mine"]
    folder.write(MANIFEST_FILE, "")
    with pytest.raises(Fatal, match="already"):
        make._demand_free(folder, "d")


def test_a_running_job_is_asked_and_answers(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    request = JobSavepointRequest("r", "/to", "n", until=1e12)

    def alive() -> bool:
        got = inbox.next()
        if got is not None:
            assert got == request
            inbox.answer(SavepointAnswer("other", error="of somebody else"))
            inbox.answer(SavepointAnswer("r", "n", {"name": "n"}))
        return True

    assert request_savepoint(tmp_path, request, alive=alive, timeout_s=30) == {"name": "n"}
    assert inbox.next() is None


def test_the_caller_gets_the_reason_of_a_failure(tmp_path: Path) -> None:
    request = JobSavepointRequest("r", "/to", "n", until=1e12)
    with pytest.raises(Fatal, match="ended"):
        request_savepoint(tmp_path, request, alive=lambda: False, timeout_s=30)
    ticks = iter(range(100))
    with pytest.raises(Fatal, match="within 0 s"):
        request_savepoint(tmp_path, request, alive=lambda: True, timeout_s=0, clock=lambda: float(next(ticks)))
    inbox = Inbox(tmp_path)
    assert inbox.next() is None, "the request that was given up is gone"

    def alive() -> bool:
        if (got := inbox.next()) is not None:
            inbox.answer(SavepointAnswer(got.id, error="no room"))
        return True

    with pytest.raises(Fatal, match="no room"):
        request_savepoint(tmp_path, request, alive=alive, timeout_s=30)


def test_a_request_that_nobody_waits_for_is_dropped(tmp_path: Path) -> None:
    (tmp_path / _REQUEST).write_bytes(msgspec.json.encode(JobSavepointRequest("r", "/to", "n", until=100.0, stop=True)))
    assert Inbox(tmp_path, clock=lambda: 101.0).next() is None
