"""The worker's look at plugin.path: what is just being copied is not taken half."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from worker.control import plugins
from worker.control.plugins import PluginWatch
from worker.plugins.environments import Scan, scan_folders
from worker.plugins.model import Description

from ._packages import transform

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from worker.plugins.environments import Environment


async def test_the_first_environment_is_not_taken_half_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[tuple[str, ...]] = []

    async def describe(environment: Environment) -> Description:
        described.append(tuple(value for _, _, value in environment.entries))
        return Description([], {})

    copied: list[int] = []

    def scan_while_it_is_copied(*args: Any) -> Scan:
        seen = scan_folders(*args)
        if seen.environments and not copied:
            copied.append(1)
            transform(folder, "second")
        return seen

    monkeypatch.setattr(plugins, "describe_plugins", describe)
    monkeypatch.setattr(plugins, "scan_folders", scan_while_it_is_copied)
    monkeypatch.setattr(plugins, "_SETTLED_S", 0)
    watch = PluginWatch([str(tmp_path)], {}, 0, lambda: None)
    await watch.start(Description([], {}))
    folder = transform(tmp_path / "env", "first")
    assert await watch.refresh(5)
    await watch.stop()
    assert described == [("first:Shout", "second:Shout")]


async def test_what_is_there_at_the_start_is_taken_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def describe(_environment: Environment) -> Description:
        return Description([], {})

    monkeypatch.setattr(plugins, "describe_plugins", describe)
    monkeypatch.setattr(plugins, "_SETTLED_S", 600.0)
    transform(tmp_path / "env", "plug")
    watch = PluginWatch([str(tmp_path)], {}, 0, lambda: None)
    await asyncio.wait_for(watch.start(Description([], {})), 30)
    await watch.stop()
    assert [environment["name"] for environment in watch.report()["environments"]] == ["env"]
