"""The option that all sources share for tables that they begin to capture after their first start."""

from __future__ import annotations

from typing import Final

from connectors.options import ConfigKey, ConfigType, Importance

NEW_TABLES: Final = "snapshot.new.tables"


def new_tables_key(group: str) -> ConfigKey:
    """The declaration of ``snapshot.new.tables`` for a source whose snapshot options are in ``group``."""
    return ConfigKey(
        name=NEW_TABLES,
        type=ConfigType.BOOLEAN,
        default=True,
        group=group,
        importance=Importance.MEDIUM,
        display_name="Snapshot of new tables",
        doc="Whether a table that the connector begins to capture after its first start gets a snapshot of its own, next to "
        "the stream: a new table that the list matches, a table whose change capture was switched on, or one that a longer "
        "list names. Only where snapshot.mode reads data at all; with false such a table begins with its next change.",
    )
