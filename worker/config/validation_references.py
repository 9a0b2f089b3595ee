"""References to config providers in the answers of validation: shown in place of what the providers returned for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from worker.secrets.masking import SHORTEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Options whose items are part of other options' names, and their prefix there.
_NAMING: Final = {"transforms": "transforms", "predicates": "predicates", "topic.creation.groups": "topic.creation"}


def hide_resolved(entries: Iterable[dict[str, Any]], config: Mapping[str, str], actual: Mapping[str, str]) -> None:
    """Show references instead of what config providers gave for them, in values and in complaints."""
    changed = {name: reference for name, reference in config.items() if actual.get(name, reference) != reference}
    if not changed:
        return
    for entry in entries:
        value = entry["value"]
        if value["name"] in changed and value["value"] is not None:
            value["value"] = changed[value["name"]]
        for name, reference in changed.items():
            if actual[name]:
                value["errors"] = [error.replace(actual[name], reference) for error in value["errors"]]


def hide_names(
    entries: Iterable[dict[str, Any]], groups: list[str], config: Mapping[str, str], actual: Mapping[str, str]
) -> None:
    """The same for names that are part of other options' names: of transforms, predicates and groups of topics."""
    for option, prefix in _NAMING.items():
        written = config.get(option, "")
        names = set(_split_items(actual.get(option, ""))).difference(_split_items(written))
        # Shorter ones are no secrets (docs/secrets.md), and are in half of all messages.
        for name in (name for name in names if len(name) >= SHORTEST):
            for entry in entries:
                if entry["value"]["name"].startswith((f"{prefix}.{name}.", option)):
                    entry.update(_replace_strings(entry, name, written))
            groups[:] = [group.replace(name, written) for group in groups]


def _split_items(raw: str) -> list[str]:
    return [item.strip() for item in raw.split(",") if item.strip()]


def _replace_strings(value: Any, old: str, new: str) -> Any:
    """``value`` with all its strings changed."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [_replace_strings(item, old, new) for item in value]
    return {key: _replace_strings(item, old, new) for key, item in value.items()} if isinstance(value, dict) else value
