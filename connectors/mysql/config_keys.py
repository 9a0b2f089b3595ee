"""The options of the connector: one declaration each. Debezium's names, defaults and words keep their meaning."""

from __future__ import annotations

from typing import Final

from connectors.formats.masking import SOURCE_KEYS as MASK_KEYS
from connectors.mysql import config_keys_accepted, config_keys_connection, config_keys_events, config_keys_reading
from connectors.mysql.config_keys_rules import NOTES
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance

__all__ = ["CONFIG", "NOTES"]

_REFUSED: Final = tuple(
    ConfigKey(
        name=name,
        type=ConfigType.STRING,
        default=None,
        importance=Importance.LOW,
        group="Refused",
        doc=f"Refused, since the result would be other data: {why}.",
    )
    for name, why in config_keys_accepted.REFUSED.items()
)

CONFIG: Final = ConfigDef(
    [
        *config_keys_connection.KEYS,
        *config_keys_events.KEYS,
        *MASK_KEYS,
        *config_keys_reading.KEYS,
        *config_keys_accepted.KEYS,
        *_REFUSED,
    ]
)
