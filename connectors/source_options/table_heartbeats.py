"""The option of heartbeats in the topics of tables (``connectors.formats.table_heartbeats``), and its check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.options import ConfigKey, ConfigProblem, ConfigType, Importance

if TYPE_CHECKING:
    from connectors.options import Config

HEARTBEAT_TO_TABLES: Final = "heartbeat.to.tables"

_DOC: Final = (
    "Whether a heartbeat goes to each partition of each captured table's topic at heartbeat.interval.ms: a record without key "
    "and value whose header __millrace.heartbeat says up to when all changes were sent. Flows measure the delay from source to "
    "target by them. Not for compacted topics, which refuse records without a key."
)
_UMS_DOC: Final = " With output.format=ums such topics have UMS heartbeats whatever this says."
_POLICY: Final = "topic.creation.default.cleanup.policy"


def table_heartbeats_key(group: str, *, ums: bool) -> ConfigKey:
    """The declaration of ``heartbeat.to.tables`` for a source whose heartbeats are in ``group``; ``ums``: it has that form."""
    return ConfigKey(
        name=HEARTBEAT_TO_TABLES,
        type=ConfigType.BOOLEAN,
        default=False,
        group=group,
        importance=Importance.MEDIUM,
        display_name="Heartbeats to tables",
        doc=_DOC + (_UMS_DOC if ums else ""),
    )


def find_compacted_topics(config: Config) -> list[ConfigProblem]:
    """Return the problem of heartbeats with tables' topics that the connector would create compacted; [] without it.

    Only the default group is for tables' topics for sure. Of all other topics the error of the first heartbeat says it.
    """
    policy = str(config.raw.get(_POLICY, ""))
    if not config[HEARTBEAT_TO_TABLES] or "compact" not in policy:
        return []
    return [
        ConfigProblem(
            HEARTBEAT_TO_TABLES,
            f"{HEARTBEAT_TO_TABLES}=true writes records without a key, which compacted topics refuse, and {_POLICY}={policy} "
            f"creates the tables' topics compacted. Set {_POLICY}=delete, or {HEARTBEAT_TO_TABLES}=false",
        )
    ]
