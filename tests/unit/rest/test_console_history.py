"""Earlier configurations: what is kept, what each changed, and that no secret is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.console.history import (
    MOST_CHARACTERS,
    MOST_VERSIONS,
    ConfigHistory,
    PastConfig,
    list_differences,
    show_versions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .conftest import Rest
    from .memory_herder import MemoryHerder


def hide(config: Mapping[str, str]) -> dict[str, str]:
    return {name: "[hidden]" if name == "password" else value for name, value in config.items()}


def test_versions_are_kept_in_order_and_what_says_the_same_is_none() -> None:
    history = ConfigHistory()
    for at, config in ((1, {"a": "1"}), (2, {"a": "1"}), (3, {"a": "2"}), (4, None), (5, {"a": "2"})):
        history.add("x", at, config)
    history.add("y", 6, {})
    assert [(version.at_ms, version.config) for version in history.of("x")] == [
        (5, {"a": "2"}),
        (4, None),
        (3, {"a": "2"}),
        (1, {"a": "1"}),
    ]


def test_memory_is_bounded() -> None:
    history = ConfigHistory()
    for number in range(40):
        history.add("x", number, {"a": str(number) + "v" * (MOST_CHARACTERS // 20)})
    kept = history.of("x")
    assert 15 <= len(kept) <= 20
    assert kept[0].at_ms == 39
    for number in range(100):
        history.add("y", number, {"a": str(number)})
    assert len(history.of("y")) == MOST_VERSIONS


def test_a_changed_secret_is_reported_and_not_shown() -> None:
    assert list_differences({"password": "old", "a": "1"}, {"password": "new", "b": "2"}, hide) == [
        {"name": "a", "before": "1", "after": None},
        {"name": "b", "before": None, "after": "2"},
        {"name": "password", "before": "[hidden]", "after": "[hidden]"},
    ]


def test_a_version_after_a_deletion_changes_nothing_that_is_known() -> None:
    versions = [PastConfig("x", 3, {"a": "1"}, 1), PastConfig("x", 2, None, 1), PastConfig("x", 1, {"a": "0"}, 1)]
    assert [(version["deleted"], version["changes"]) for version in show_versions(versions, hide)] == [
        (False, []),
        (True, []),
        (False, []),
    ]


async def test_no_secret_leaves_the_worker(rest: tuple[Rest, MemoryHerder]) -> None:
    call, herder = rest
    herder.configs["a"], herder.states["a"] = {"connector.class": "B"}, "RUNNING"
    reply = await call("GET", "/console/connectors/a/history")
    assert reply.status == 200
    assert reply.json[0]["changes"][-1]["name"] == "password"
    assert b'"new"' not in reply.raw
    assert b'"old"' not in reply.raw
    assert (await call("GET", "/console/connectors/b/history")).status == 404
