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
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

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


async def test_an_earlier_version_of_another_class_is_hidden_by_the_options_of_that_class(
    rest: tuple[Rest, MemoryHerder], monkeypatch: pytest.MonkeyPatch
) -> None:
    call, herder = rest

    async def versions(name: str) -> list[PastConfig]:
        return [
            PastConfig(name, 2, {"connector.class": "other", "plain": "hunter2"}, 1),
            PastConfig(name, 1, {"connector.class": "B", "x": "hunter1"}, 1),
        ]

    monkeypatch.setattr(herder, "config_history", versions)
    reply = await call("GET", "/console/connectors/a/history")
    assert reply.status == 200
    # What B declares as a password has a harmless name, and what another plugin declares says nothing of it.
    assert b"hunter1" not in reply.raw
    assert reply.json[0]["config"]["plain"] == "hunter2"


async def test_no_history_is_shown_while_it_is_not_known_which_options_are_secret(
    rest: tuple[Rest, MemoryHerder], monkeypatch: pytest.MonkeyPatch
) -> None:
    call, herder = rest
    herder.configs["a"], herder.states["a"] = {"connector.class": "B", "x": "hunter2"}, "RUNNING"

    async def unavailable(plugin: str, version: str | None) -> list[dict[str, str]]:
        raise RestError(503, f"No task host is ready for {plugin} {version}")

    monkeypatch.setattr(herder, "plugin_config", unavailable)
    reply = await call("GET", "/console/connectors/a/history")
    assert reply.status == 503
    assert b"hunter2" not in reply.raw
