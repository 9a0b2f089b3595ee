"""References to config providers in the answers of validation: shown in place of what the providers returned for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from worker.secrets.masking import SHORTEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.options import ConfigKey, ConfigProblem

#: Options whose items are part of other options' names, and their prefix there.
_NAMING: Final = {
    "transforms": "transforms",
    "predicates": "predicates",
    "topic.creation.groups": "topic.creation",
    "transform.steps": "transform.step",
    "sinks": "sink",
}


def hide_resolved(
    entries: Iterable[dict[str, Any]],
    config: Mapping[str, str],
    actual: Mapping[str, str],
    aliases: Mapping[str, str],
) -> None:
    """Show references instead of what config providers gave for them, in values and in complaints.

    Args:
        entries: the answer's.
        config: the configuration as it was written.
        actual: the same, resolved.
        aliases: other names of options, and the names under which their values are shown.
    """
    changed = _changed_values(config, actual)
    if not changed:
        return
    shown = {aliases[name]: reference for name, reference in changed.items() if name in aliases} | changed
    for entry in entries:
        value = entry["value"]
        if value["name"] in shown and value["value"] is not None:
            value["value"] = shown[value["name"]]
        value["errors"] = hide_in_messages(value["errors"], config, actual)


def hide_in_messages(messages: Iterable[str], config: Mapping[str, str], actual: Mapping[str, str]) -> list[str]:
    """Messages with references instead of what config providers gave for them."""
    hidden = list(messages)
    for name, reference in _changed_values(config, actual).items():
        for form in _quoted_forms(actual[name], reference):
            hidden = [message.replace(form, reference) for message in hidden]
    return hidden


def _changed_values(config: Mapping[str, str], actual: Mapping[str, str]) -> dict[str, str]:
    return {name: reference for name, reference in config.items() if actual.get(name, reference) != reference}


def _quoted_forms(value: str, reference: str) -> list[str]:
    """How a message may quote a value: whole, as options take it (a file's last line end is not part of it), or an item."""
    items = {item for item in _split_items(value) if len(item) >= SHORTEST}.difference(_split_items(reference))
    return sorted({value, value.strip(), *items} - {""}, key=len, reverse=True)


def add_warnings(
    body: dict[str, Any], noted: Sequence[ConfigProblem], config: Mapping[str, str], actual: Mapping[str, str]
) -> dict[str, Any]:
    """``body`` with warnings. Kafka Connect has no such member: it is there only where there is something to say."""
    messages = hide_in_messages((problem.message for problem in noted), config, actual)
    warnings = [{"name": problem.name, "message": message} for problem, message in zip(noted, messages, strict=True)]
    return {**body, "warnings": warnings} if warnings else body


def list_aliases(keys: Iterable[ConfigKey], prefix: str = "") -> dict[str, str]:
    """The other names of options, each with the name that it stands for."""
    return {prefix + alias: prefix + key.name for key in keys for alias in key.aliases}


def hide_names(
    entries: Iterable[dict[str, Any]], groups: list[str], config: Mapping[str, str], actual: Mapping[str, str]
) -> None:
    """The same for names that are part of other options' names: of transforms, predicates, groups of topics, steps, sinks."""
    for option, prefix in _NAMING.items():
        if option not in config:
            continue
        written = config[option]
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
