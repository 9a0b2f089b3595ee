"""Files that are read again when they change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from worker.rest.security.files import FileWatch, read_fingerprints, watch_files

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_what_fails_unforeseen_keeps_no_other_file_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("worker.rest.security.files.LOOK_S", 0.01)
    broken, good = tmp_path / "broken", tmp_path / "good"
    read = asyncio.Event()

    async def fail() -> None:
        raise TypeError("nobody thought of it")

    async def take() -> None:
        read.set()

    watches = [
        FileWatch("broken files", lambda: [str(broken)], fail),
        FileWatch("good files", lambda: [str(good)], take),
    ]
    task = asyncio.create_task(watch_files(watches, read_fingerprints(watches)))
    try:
        for content in ("one", "two and more"):
            read.clear()
            broken.write_text(content)
            good.write_text(content)
            await asyncio.wait_for(read.wait(), 10)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert "The broken files have changed and can't be used" in caplog.text
