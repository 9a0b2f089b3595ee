"""The sink of docs/jobs/writing-a-sink.md, unchanged, passes the kit."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from spark_jobs.testing import cases, check_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[4] / "docs" / "jobs" / "writing-a-sink.md"


@pytest.mark.slow
def test_the_sink_of_the_page_passes_all_that_it_claims(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for path, code in re.findall(r"```python\n# (\S+)\n(.*?)```", text, re.DOTALL):
        file = tmp_path / "code" / path.replace("tests/", "")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    module = importlib.import_module("lite_sink.sink")
    # The shared session's Python workers do not know the folder.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        target = importlib.import_module("test_lite_sink").LiteTarget(tmp_path)
        report = check_sink(target, spark=spark, bootstrap=bootstrap)
    finally:
        for name in ("lite_sink.sink", "lite_sink", "test_lite_sink"):
            sys.modules.pop(name, None)
    without_server = ["refused_login", "server_down", "server_slow", "server_silent", "connection_breaks_at_every_step"]
    assert report.of("skipped") == without_server
    assert sorted(report.of("passed")) == sorted(set(cases()) - set(without_server))
    for name in cases():
        assert f"`{name}`" in text
