"""A bench for each test of the frame; the tests' own sink and source where job processes find them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark import cloudpickle

from tests.integration.spark_jobs.frame.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator

PLUGIN = Path(__file__).parent / "plugin"
sys.path.insert(0, str(PLUGIN))

import frame_parts  # type: ignore[import-not-found]  # noqa: E402 - found by the line above

# The shared session's Python workers do not know the folder.
cloudpickle.register_pickle_by_value(frame_parts)  # type: ignore[no-untyped-call]


@pytest.fixture
def bench(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN))
    quiet: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
    bench = Bench(bootstrap, tmp_path, AdminClient(quiet), Producer(quiet))
    yield bench
    if bench.topics:
        for future in bench.admin.delete_topics(list(dict.fromkeys(bench.topics))).values():
            future.exception(30)
