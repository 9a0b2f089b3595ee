"""Options of the file connector. The first three are Kafka Connect's, with its descriptions."""

from __future__ import annotations

from typing import Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, non_empty
from connectors.text_files.options import BATCH_SIZE, FILE, READING_KEYS

TOPIC: Final = "topic"

CONFIG: Final = ConfigDef(
    [
        ConfigKey(
            name=FILE,
            type=ConfigType.STRING,
            default=None,
            importance=Importance.HIGH,
            doc="Path of the file to read. Without it and directory: the worker's standard input.",
            example="/var/log/app.log",
        ),
        ConfigKey(
            name=TOPIC,
            type=ConfigType.STRING,
            validator=non_empty,
            importance=Importance.HIGH,
            doc="The topic that the lines go to.",
            example="app-log",
        ),
        ConfigKey(
            name=BATCH_SIZE,
            type=ConfigType.INT,
            default=2000,
            importance=Importance.LOW,
            unit="rows",
            doc="How many lines a batch holds at the most.",
        ),
        *READING_KEYS,
    ]
)
