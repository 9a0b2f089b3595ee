"""Plugins are described in a process of their own: one that crashes, hangs, prints or lies harms no other process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from worker.plugins.describe import describe_plugins
from worker.plugins.environments import Environment, scan_folders

from ._packages import package, transform

CODE = """
    import os, sys, time, threading
    from connectors.options import ConfigDef
    from worker.transforms.base import Predicate, Transform
    print("hello from a plugin")
    threading.Thread(target=time.sleep, args=(600,)).start()

    class Side(Transform):
        version = "3"
        sided = True
        config_def = ConfigDef()
        def compile(self):
            return lambda record: record
"""


def environment(folder: Path) -> Environment:
    (scanned,) = scan_folders([str(folder)], {}).environments.values()
    return scanned


async def test_what_an_environment_holds(tmp_path: Path) -> None:
    package(tmp_path, "plug", code=CODE, entries="[millrace.transforms]\nside = plug:Side\nagain = plug:Side\n")
    where = environment(tmp_path)
    described = await describe_plugins(where)
    assert described.failures == {}
    (plugin,) = described.plugins
    assert (plugin.kind, plugin.version) == ("transformation", "3")
    assert (plugin.environment, plugin.location) == (where.key, str(tmp_path))
    assert plugin.listed == ("plug.Side$Key", "plug.Side$Value")
    assert {"plug.Side", "plug.Side$Key", "plug:Side$Value"} <= set(plugin.names)


async def test_bad_plugins_are_left_out_one_by_one(tmp_path: Path) -> None:
    transform(tmp_path, "good")
    bad = {
        "crash": "import os; print('boom', flush=True); os._exit(9)",
        "hang": "import threading; threading.Event().wait()",
        "raise_it": "raise RuntimeError('no driver')",
        "leave": "raise SystemExit(4)",
        "abort": "import os; os.abort()",
    }
    for name, code in bad.items():
        package(tmp_path, name, code=code, entries=f"[millrace.transforms]\n{name} = {name}:Any\n")
    package(tmp_path, "wrong", code="Any = 7", entries="[millrace.transforms]\nwrong = wrong:Any\n")
    package(
        tmp_path,
        "odd",
        code="""
        from worker.transforms.base import Transform
        class Odd(Transform):
            version = 7
            config_def = None
            aliases = 5
            def compile(self): ...
    """,
        entries="[millrace.transforms]\nodd = odd:Odd\n",
    )
    described = await describe_plugins(environment(tmp_path), deadline_s=3)
    assert [plugin.class_name for plugin in described.plugins] == ["com.example.Shout"]
    failures = described.failures
    assert (
        failures["crash:Any"] == "the process that imported it ended with exit code 9. The end of what it printed: boom"
    )
    assert failures["hang:Any"].startswith("its import did not end within 3 s")
    assert failures["raise_it:Any"] == "RuntimeError: no driver"
    assert failures["leave:Any"] == "SystemExit: 4"
    assert failures["abort:Any"].startswith("the process that imported it was killed by signal 6")
    assert failures["wrong:Any"] == "it is a int, not a class"
    assert "odd:Odd" in failures
    assert len(failures) == 7


async def test_what_tells_no_version_has_that_of_its_package(tmp_path: Path) -> None:
    package(
        tmp_path,
        "acme-converter",
        version="7.4",
        code="""
        from connectors.options import ConfigDef
        from worker.converters.base import Converter

        class Packed(Converter):
            config_def = ConfigDef()
            def __init__(self, config, *, is_key): ...
            def encoder(self, topic, schema): ...
            def to_connect(self, topic, data): ...
    """,
        entries="[millrace.converters]\npacked = acme_converter:Packed\n",
    )
    described = await describe_plugins(environment(tmp_path))
    assert described.failures == {}
    assert [(plugin.class_name, plugin.version) for plugin in described.plugins] == [("acme_converter.Packed", "7.4")]


async def test_one_that_is_cancelled_before_its_child_begins_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = environment(transform(tmp_path, "plug"))

    async def create(*_arguments: Any, **_options: Any) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(asyncio.CancelledError):
        await describe_plugins(where)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
