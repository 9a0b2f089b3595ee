"""One call that makes the conformance tests of a connector. Needs pytest, and no plugin of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from connectors.testing.checks import CHECKS
from connectors.testing.declarations import DECLARATION_CHECKS
from connectors.testing.harness import Unsupported
from connectors.testing.snapshots import SNAPSHOT_CHECKS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
    from pathlib import Path

    from connectors.api import SourceConnector
    from connectors.testing.harness import Harness

#: What a check may take in all, seconds; only a check that hangs comes near it.
_LIMIT = 180.0


def connector_conformance(
    connector: type[SourceConnector], *, harness: Callable[[Path], Harness], waivers: Mapping[str, str] | None = None
) -> type[Any]:
    """A test class with one test for each promise a connector makes.

    Assign it to a name that pytest collects::

        TestFile = connector_conformance(FileStreamSourceConnector, harness=FileHarness)

    Args:
        connector: the connector's class.
        harness: makes a fresh source in an empty folder.
        waivers: check -> the reason why this connector can't pass it. A waived check still runs, and fails once it passes:
            a waiver that is not needed any more has to go.

    Raises:
        ValueError: a waiver names no check, or has no reason.
    """
    reasons = dict(waivers or {})
    unknown = reasons.keys() - CHECKS.keys() - DECLARATION_CHECKS.keys()
    if unknown:
        raise ValueError(
            f"no such checks: {', '.join(sorted(unknown))}; there are {', '.join([*CHECKS, *DECLARATION_CHECKS])}"
        )
    if not all(reasons.values()):
        raise ValueError("a waiver needs a reason")
    members: dict[str, Any] = {"__doc__": f"What every connector must do, for {connector.__name__}."}
    for name, check in CHECKS.items():
        members[f"test_{name}"] = _behaviour_test(connector, harness, check, reasons.get(name))
    for name, declared in DECLARATION_CHECKS.items():
        members[f"test_{name}"] = _declaration_test(connector, declared, reasons.get(name))
    return type(f"Test{connector.__name__}Conformance", (), members)


def snapshot_conformance(
    connector: type[SourceConnector], *, harness: Callable[[Path], Harness], waivers: Mapping[str, str] | None = None
) -> type[Any]:
    """A test class with one test for each promise about snapshots on request; see ``connector_conformance``.

    The harness needs ``table_pattern`` and ``snapshot_row``, and a configuration that takes no snapshot of its own.

    Raises:
        ValueError: a waiver names no check, or has no reason.
    """
    reasons = dict(waivers or {})
    if not (reasons.keys() <= SNAPSHOT_CHECKS.keys() and all(reasons.values())):
        raise ValueError(f"a waiver is a check's name with a reason; there are {', '.join(SNAPSHOT_CHECKS)}")
    members: dict[str, Any] = {"__doc__": f"Snapshots on request, for {connector.__name__}."}
    for name, check in SNAPSHOT_CHECKS.items():
        members[f"test_{name}"] = _behaviour_test(connector, harness, check, reasons.get(name))
    return type(f"Test{connector.__name__}Snapshots", (), members)


def _behaviour_test(
    connector: type[SourceConnector],
    harness: Callable[[Path], Harness],
    check: Callable[[type[SourceConnector], Harness], Awaitable[None]],
    reason: str | None,
) -> Callable[..., None]:
    async def run(source: Harness) -> None:
        await source.start()
        try:
            async with asyncio.timeout(_LIMIT):
                await check(connector, source)
        finally:
            await source.stop()

    def test(self: object, tmp_path: Path) -> None:
        del self
        _judge_check(lambda: _run_main(run(harness(tmp_path))), reason)

    test.__doc__ = check.__doc__
    return test


def _run_main(main: Coroutine[Any, Any, None]) -> None:
    """As ``asyncio.run``, but a task that does not end when it is cancelled does not keep the tests from ending."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=1.0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _declaration_test(
    connector: type[SourceConnector], check: Callable[[type[SourceConnector]], Iterable[str]], reason: str | None
) -> Callable[..., None]:
    def assert_none() -> None:
        problems = list(check(connector))
        if problems:
            raise AssertionError("\n".join(problems))

    def test(self: object) -> None:
        del self
        _judge_check(assert_none, reason)

    test.__doc__ = check.__doc__
    return test


def _judge_check(run: Callable[[], None], reason: str | None) -> None:
    """Run a check; a waived one must fail."""
    try:
        run()
    except Unsupported:
        if reason is None:
            pytest.fail(
                "the harness can't do what this check needs: write that method, or waive the check with a reason"
            )
        pytest.xfail(reason)
    except AssertionError:
        if reason is None:
            raise
        pytest.xfail(reason)
    if reason is not None:
        pytest.fail(f"this check is waived ({reason}) but passes: remove the waiver")
