"""Options and their values in Kafka Connect's form, as answers have them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectors.options import MASK, ConfigType, java_string
from worker.secrets.masking import mask_patterns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import ConfigKey, ConfigValue


def describe_options(values: Mapping[str, ConfigValue], keys: Mapping[str, ConfigKey]) -> list[dict[str, Any]]:
    """The entries of an answer: values of options that do not exist, then the options."""
    entries = [describe_option(value, None) for value in values.values() if value.name not in keys]
    return entries + [describe_option(values[key.name], key) for key in keys.values()]


def describe_option(value: ConfigValue, key: ConfigKey | None, prefix: str = "") -> dict[str, Any]:
    """An entry of an answer: an option's declaration, None where there is no such option, and its value.

    Args:
        value: its value.
        key: its declaration.
        prefix: of the option's name, where its declaration lacks it.
    """
    return {"definition": None if key is None else definition_info(key, prefix), "value": _value_info(value, key)}


def definition_info(key: ConfigKey, prefix: str = "") -> dict[str, Any]:
    """An option's declaration in Connect's form."""
    return {
        "name": prefix + key.name,
        "type": str(key.type),
        "required": key.required,
        "default_value": None if key.required else text_of(key.default, key.type),
        "importance": str(key.importance),
        "documentation": key.doc,
        "group": key.group,
        "width": str(key.width),
        "display_name": key.display_name or key.name,
        "dependents": list(key.dependents),
        "order": key.order,
    }


def _value_info(value: ConfigValue, key: ConfigKey | None) -> dict[str, Any]:
    """An option's value in Connect's form."""
    kind = ConfigType.STRING if key is None else key.type
    item = ConfigType.STRING if kind is ConfigType.LIST else kind
    value_text = text_of(value.value, kind)
    return {
        "name": value.name,
        "value": None if value_text is None else mask_patterns(value_text),
        "recommended_values": [text_of(choice, item) for choice in value.recommended],
        "errors": [mask_patterns(error) for error in value.errors],
        "visible": value.visible,
    }


def text_of(value: Any, kind: ConfigType) -> str | None:
    """A parsed value as text: lists joined by commas, secrets hidden."""
    if value is None:
        return None
    if kind is ConfigType.PASSWORD:
        return MASK
    if isinstance(value, list | tuple):
        return ",".join(java_string(item) for item in value)
    return java_string(value)
