"""Headers that Debezium puts on every record of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.api import Header
from connectors.schema import STRING

if TYPE_CHECKING:
    from connectors.mysql.events.contract import MySqlEventSettings

_CONTEXT: Final = "__debezium.context."
#: Headers of the two records of an update that changes the key.
NEW_KEY: Final = "__debezium.newkey"
OLD_KEY: Final = "__debezium.oldkey"


def context_headers(settings: MySqlEventSettings, task: int, run: str) -> tuple[Header, ...]:
    """``extended.headers.enabled``: the headers of all records from rows and of schema changes; () if they are not wanted.

    Make them once per task: records share the objects.

    Args:
        settings: see ``MySqlEventSettings``.
        task: the task's number.
        run: an id of this run of the task (a UUID).
    """
    if not settings.context_headers or settings.output_format != "debezium":
        return ()
    values = {
        "connectorLogicalName": settings.topics.prefix,
        "taskId": str(task),
        "connectorName": settings.connector,
        "runId": run,
    }
    return tuple(Header(_CONTEXT + name, value, STRING) for name, value in values.items())
