"""The options that a step's state depends on, and how those of a kept state differ from a configuration's. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def describe_differences(kept: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A phrase for each option whose value is another one now; empty: a state of ``kept`` can be used.

    Args:
        kept: ``Step.definition`` of the step that made the state.
        now: that of the step that shall continue with it.
    """
    return [
        f"{name}={_format_option(kept.get(name))} (now {_format_option(now.get(name))})"
        for name in dict.fromkeys([*kept, *now])
        if kept.get(name) != now.get(name)
    ]


def _format_option(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
