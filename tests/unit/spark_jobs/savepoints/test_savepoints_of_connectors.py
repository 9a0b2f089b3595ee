"""Savepoints by REST on the machine of the job, over its files; and the options of buckets by key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import ConfigInvalid, Retriable
from spark_jobs.config import job_files as job_config
from spark_jobs.control import Control
from spark_jobs.job import control_folder
from spark_jobs.materializer import config as options
from spark_jobs.savepoints import rest
from spark_jobs.savepoints.manifest import MANIFEST_FILE, SavepointManifest, encode_manifest
from spark_jobs.savepoints.requests import Inbox, SavepointAnswer
from spark_jobs.spark.checkpoint import LocalFolder

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))


def config(folder: Path, **more: str) -> Any:
    return job_config.build_job(properties(folder) | more).config


def properties(folder: Path) -> dict[str, str]:
    return {
        "name": "orders",
        "kafka.bootstrap.servers": "localhost:1",
        "source.topics": "in",
        "source.format": "partition-update",
        "transform.type": "materialize",
        "sink.type": "kafka",
        "sink.kafka.topic": "out",
        "checkpoint.location": str(folder / "checkpoint"),
        "state.dir": str(folder / "state"),
        "savepoint.location": str(folder / "savepoints"),
    }


@pytest.fixture
def running() -> Iterator[Inbox]:
    """The job runs: its lock is held."""
    control = Control(control_folder("orders"))
    control.lock.acquire("job orders")
    yield Inbox(control.folder)
    control.lock.release()


def sealed(name: str) -> str:
    return encode_manifest(
        SavepointManifest(
            id="1",
            name=name,
            job="orders",
            created_ms=1,
            versions={},
            sink="materializer",
            source_type="kafka",
            source_format="ums",
            inputs=["in"],
            batch=0,
            checkpoint={},
        )
    )


def test_a_running_job_is_asked_once_and_the_list_follows(tmp_path: Path, running: Inbox) -> None:
    of = config(tmp_path)
    where = f"{tmp_path}/savepoints/a"
    assert rest.create_savepoint(of, {"name": "a", "stop": True}) == {"name": "a", "location": where, "stop": True}
    assert rest.list_all(of) == [{"name": "a", "location": where, "state": "requested"}]
    with pytest.raises(Retriable, match="being made already"):
        rest.create_savepoint(of, {"name": "b"})
    request = running.next()
    assert request is not None
    assert (request.location, request.stop) == (where, True)
    running.answer(SavepointAnswer(request.id, request.name, error="no room"))
    assert rest.list_all(of) == [{"name": "a", "error": "no room"}]
    LocalFolder(Path(where)).write(MANIFEST_FILE, sealed("a"))
    running.answer(SavepointAnswer(request.id, request.name, {"name": "a"}))
    assert [(savepoint["name"], savepoint["batch"]) for savepoint in rest.list_all(of)] == [("a", 0)]
    with pytest.raises(Retriable, match="there is a savepoint a already"):
        rest.create_savepoint(of, {"name": "a"})
    assert rest.remove_savepoint(of, {"name": "a"})
    assert not rest.remove_savepoint(of, {"name": "a"})
    assert not Path(where).exists()


def test_what_is_not_possible_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Retriable, match="does not run"):
        rest.create_savepoint(config(tmp_path), {"name": "a"})
    for name in ("../a", ".a", "a/b", " "):
        with pytest.raises(ConfigInvalid, match="is not possible"):
            rest.remove_savepoint(config(tmp_path), {"name": name})
    with pytest.raises(ConfigInvalid, match="not on this machine"):
        rest.list_all(config(tmp_path, **{"savepoint.location": "hdfs://n/sp"}))


def test_buckets_by_key_need_the_partitioner_of_keys_and_stay(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"materializer.output.partitioner.*murmur2"):
        config(tmp_path, **{"materializer.buckets": "4"})
    by_key = {"materializer.buckets": "4", "materializer.output.partitioner": "murmur2"}
    assert config(tmp_path, **by_key)["materializer.buckets"] == 4
    checkpoint = LocalFolder(tmp_path / "checkpoint")
    checkpoint.write(options.BUCKETS_FILE, "4\n")
    assert config(tmp_path, **by_key)["materializer.buckets"] == 4
    for other in (by_key | {"materializer.buckets": "5"}, {}):
        with pytest.raises(
            ConfigInvalid, match=r"materializer.buckets: the state has 4 buckets by key.*make a savepoint"
        ):
            config(tmp_path, **other)
    checkpoint.write(options.BUCKETS_FILE, "0\n")
    with pytest.raises(ConfigInvalid, match="a bucket for each input partition"):
        config(tmp_path, **by_key)
