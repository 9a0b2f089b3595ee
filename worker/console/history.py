"""Earlier configurations of connectors, as far as Kafka still has them: what changed, without values of secrets."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Characters of all configurations that are kept; the oldest go first.
MOST_CHARACTERS: Final = 8_000_000
#: Of one connector in an answer.
MOST_VERSIONS: Final = 50


class PastConfig(NamedTuple):
    """A configuration from a time on; None: the connector was deleted."""

    name: str
    at_ms: int
    config: Mapping[str, str] | None
    size: int


class ConfigHistory:
    """All configurations that the config topic has had. Feed ``add`` in the order of the topic."""

    def __init__(self) -> None:
        self._versions: deque[PastConfig] = deque()
        self._size = 0
        self._last: dict[str, Mapping[str, str] | None] = {}

    def add(self, name: str, at_ms: int, config: Mapping[str, str] | None) -> None:
        """Take a record of the topic in; one that equals the one before is left out."""
        if self._last.get(name) == config:
            return
        self._last[name] = config
        if config is None:
            del self._last[name]
        size = len(name) + sum(len(key) + len(value or "") for key, value in (config or {}).items())
        self._versions.append(PastConfig(name, at_ms, config, size))
        self._size += size
        while self._size > MOST_CHARACTERS and len(self._versions) > 1:
            self._size -= self._versions.popleft().size

    def of(self, name: str) -> list[PastConfig]:
        """A connector's versions, the newest first."""
        return [version for version in reversed(self._versions) if version.name == name][:MOST_VERSIONS]


def show_versions(
    versions: Sequence[PastConfig], mask: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Versions as they are answered, each with what it changed of the one before. Pure.

    Args:
        versions: the newest first.
        mask: a configuration as it may be shown.
    """
    answer = []
    for number, version in enumerate(versions):
        before = versions[number + 1].config if number + 1 < len(versions) else None
        now = version.config
        answer.append(
            {
                "at_ms": version.at_ms,
                "deleted": now is None,
                "config": dict(mask(now or {})),
                "changes": [] if before is None or now is None else list_differences(before, now, mask),
            }
        )
    return answer


def list_differences(
    before: Mapping[str, str], now: Mapping[str, str], mask: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> list[dict[str, Any]]:
    """The properties that are not the same, by name, as they may be shown. Pure."""
    old, new = mask(before), mask(now)
    return [
        {"name": name, "before": old.get(name), "after": new.get(name)}
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
