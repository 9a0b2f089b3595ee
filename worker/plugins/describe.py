"""Describes the plugins of an environment in a separate process, so that their imports can do no harm to this one.

The child (``python -m worker.plugins.isolation --environment FOLDER worker.plugins.describe --fd N``) imports one entry point
after the other and says before each which. One that ends the process or does not end is left out by the next child.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final

import msgspec

from worker.plugins.model import GROUPS, Description, PluginInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from worker.plugins.environments import Environment

#: Seconds that one import may take; a busy machine needs some for a large library.
DEADLINE_S: Final = 30.0
#: So much of what plugins print is kept, in characters: its end.
_OUTPUT: Final = 2000
_OUTPUT_S: Final = 1.0
_LINE_LIMIT: Final = 1 << 20


class _Started(msgspec.Struct, frozen=True, tag=True):
    """The import of an entry point begins."""

    value: str


class _PluginFound(msgspec.Struct, frozen=True, tag=True):
    """A plugin is usable."""

    plugin: PluginInfo


class _Failed(msgspec.Struct, frozen=True, tag=True):
    """An entry point's plugin is not usable."""

    value: str
    reason: str


class _Done(msgspec.Struct, frozen=True, tag=True):
    """All entry points were looked at."""


_Line = _Started | _PluginFound | _Failed | _Done


async def describe_plugins(environment: Environment, deadline_s: float = DEADLINE_S) -> Description:
    """Import the plugins of an environment in children and tell what they are. One child at a time; may take long.

    Args:
        environment: whose.
        deadline_s: how long a child may stay silent, in seconds; it says something before and after each import.
    """
    plugins: list[PluginInfo] = []
    failures: dict[str, str] = {}
    waiting = list(environment.entries)
    while waiting:
        lines, reason = await _ask_child(environment, waiting, deadline_s)
        started = [line.value for line in lines if isinstance(line, _Started)]
        plugins += [line.plugin for line in lines if isinstance(line, _PluginFound)]
        failures |= {line.value: line.reason for line in lines if isinstance(line, _Failed)}
        if lines and isinstance(lines[-1], _Done):
            break
        if not started:  # nothing was imported: it is not a plugin's doing
            failures |= {value: reason for _, _, value in waiting}
            break
        # Of a pair of entries with one value both are left out: they are one import.
        failures[started[-1]] = reason
        plugins = [plugin for plugin in plugins if plugin.location != started[-1]]
        waiting = [entry for entry in waiting if entry[2] not in started]
    return Description(
        [msgspec.structs.replace(plugin, environment=environment.key, location=environment.path) for plugin in plugins],
        failures,
    )


async def describe_all(
    environments: Iterable[Environment], deadline_s: float = DEADLINE_S
) -> Mapping[str, Description]:
    """``describe_plugins`` for several, by their keys; two at a time."""
    room = asyncio.Semaphore(2)

    async def describe_environment(environment: Environment) -> tuple[str, Description]:
        async with room:
            return environment.key, await describe_plugins(environment, deadline_s)

    return dict(await asyncio.gather(*map(describe_environment, environments)))


async def _ask_child(
    environment: Environment,
    entries: Sequence[tuple[str, str, str]],
    deadline_s: float,
) -> tuple[list[_Line], str]:
    """Return the lines that a child process reported, and why it stopped."""
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "worker.plugins.isolation",
            "--environment",
            environment.path,
            "worker.plugins.describe",
            "--fd",
            str(writing),
            "--entries",
            msgspec.json.encode(entries).decode(),
            pass_fds=(writing,),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        os.close(reading)
        return [], f"no process could be started to import it: {error}"
    except asyncio.CancelledError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    lines: list[_Line] = []
    printed = asyncio.create_task(_end_of(process.stdout))
    reader = asyncio.StreamReader(limit=_LINE_LIMIT)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb")
    )
    try:
        decoder = msgspec.json.Decoder(_Line)
        while True:
            # The child's own start is no plugin's fault.
            async with asyncio.timeout(deadline_s if lines else max(deadline_s, DEADLINE_S)):
                line = await reader.readline()
            if not line:
                break
            lines.append(decoder.decode(line))
        async with asyncio.timeout(deadline_s):
            code = await process.wait()
        reason = (
            f"the process that imported it was killed by signal {-code}"
            if code < 0
            else (f"the process that imported it ended with exit code {code}")
        )
    except TimeoutError:
        reason = f"its import did not end within {deadline_s:g} s"
    except (msgspec.DecodeError, ValueError) as error:
        reason = f"it wrote where it should not: {error}"
    finally:
        transport.close()
        # Whatever it has started goes with it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()
        # The pipe ends with its last writer; one that has left the group may live on.
        await asyncio.wait({printed}, timeout=_OUTPUT_S)
        printed.cancel()
    output = (await asyncio.gather(printed, return_exceptions=True))[0]
    return lines, reason + (
        f". The end of what it printed: {output.strip()}" if isinstance(output, str) and output.strip() else ""
    )


async def _end_of(stream: asyncio.StreamReader | None) -> str:
    end = b""
    try:
        while stream is not None and (chunk := await stream.read(1 << 16)):
            end = (end + chunk)[-_OUTPUT:]
    except asyncio.CancelledError:
        pass  # what was read is wanted
    return end.decode(errors="replace")


# The child.


def describe_entries(entries: Iterable[tuple[str, str, str]]) -> Iterable[_Line]:
    """Import entry points, one at each step, and tell of each. Runs foreign code."""
    from connectors.errors import ConfigInvalid
    from worker.plugins.registry import load_plugin, stage_info

    described: set[tuple[str, str]] = set()
    for group, name, value in entries:
        yield _Started(value)
        # With its package, whose version is that of a plugin that tells none.
        entry = next(
            (entry_point for entry_point in entry_points(group=group, name=name) if entry_point.value == value),
            EntryPoint(name, value, group),
        )
        try:
            plugin = load_plugin(entry, GROUPS[group], isolated=True)
            if plugin is None:
                continue
            info = (
                stage_info(plugin.kind, name, plugin.cls)
                if plugin.kind in ("transformation", "predicate")
                else plugin.info()
            )
        except ConfigInvalid as error:
            yield _Failed(value, str(error))
            continue
        except Exception as error:  # noqa: BLE001 - its declarations are foreign code too
            yield _Failed(value, f"{type(error).__name__}: {error}")
            continue
        if (info.kind, info.class_name) not in described:
            described.add((info.kind, info.class_name))
            yield _PluginFound(msgspec.structs.replace(info, location=value))
    yield _Done()


def main(arguments: Sequence[str]) -> None:
    """Entry point of the child."""
    parser = argparse.ArgumentParser(description="Tells what plugins are. Started by a worker, not by hand.")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--entries", required=True)
    options = parser.parse_args(arguments)
    entries = msgspec.json.decode(options.entries, type=list[tuple[str, str, str]])
    with os.fdopen(options.fd, "wb", buffering=0) as answer:
        for line in describe_entries(entries):
            answer.write(msgspec.json.encode(line) + b"\n")
    # Threads that a plugin has started must not keep the process.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
