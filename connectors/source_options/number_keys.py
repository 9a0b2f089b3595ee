"""The options that sources share for the form of decimals, whole numbers without limits, uuids and times."""

from __future__ import annotations

from typing import Final

from connectors.options import ConfigKey, ConfigType, Importance, words

DECIMALS: Final = "decimal.handling.mode"
VARINTS: Final = "varint.handling.mode"


def decimals_key(default: str, group: str) -> ConfigKey:
    """The declaration of ``decimal.handling.mode`` for a source with this default, among the options of ``group``."""
    return ConfigKey(
        name=DECIMALS,
        type=ConfigType.STRING,
        default=default,
        validator=words("precise", "double", "string"),
        group=group,
        display_name="Decimals",
        doc="Debezium form: how decimals are written. precise keeps every digit: Kafka Connect's Decimal where the column has "
        "a fixed scale, else io.debezium.data.VariableScaleDecimal; double can lose digits; string is text.",
    )


def varints_key(default: str, group: str, *modes: str) -> ConfigKey:
    """The declaration of ``varint.handling.mode`` for a source that has these modes (of long, precise, string)."""
    said = {
        "long": "long holds 64 bits, and a value that needs more is a bad record",
        "precise": "precise is Kafka Connect's Decimal with scale 0",
        "string": "string is text",
    }
    return ConfigKey(
        name=VARINTS,
        type=ConfigType.STRING,
        default=default,
        validator=words(*modes),
        group=group,
        display_name="Varints",
        doc="Debezium form: how values of type varint are written. " + "; ".join(said[mode] for mode in modes) + ".",
    )


def logical_types_key(name: str, group: str, owner: str, types: str) -> ConfigKey:
    """The declaration of the option ``name`` by which types of CQL that have no name of their own in events get one.

    Args:
        name: of the option.
        group: of options.
        owner: the connector whose form is the default.
        types: the types that get names, and the names.
    """
    return ConfigKey(
        name=name,
        type=ConfigType.STRING,
        default="compatible",
        group=group,
        importance=Importance.LOW,
        validator=words("compatible", "named"),
        display_name="Names of types",
        doc="Debezium form: names of schemas by which sinks know types. "
        f"compatible: as {owner} writes them. named: {types} too. "
        "Values are the same.",
    )
