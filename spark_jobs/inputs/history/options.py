"""The options of ``source.type=history``. Imports no Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from connectors.options import ConfigKey, ConfigType, Importance, invalid, non_empty

if TYPE_CHECKING:
    from connectors.options import Config

PATH: Final = "source.history.path"
SINCE: Final = "source.history.since"
UNTIL: Final = "source.history.until"
BEFORE: Final = "source.before.rows"
_GROUP: Final = "History"


def _check_time(name: str, value: Any) -> str | None:
    if value is None:
        return None
    try:
        parse_time(value)
    except ConfigInvalid as error:
        return invalid(name, value, str(error))
    return None


def parse_time(time_text: str | None) -> datetime | None:
    """A time in ISO 8601, in UTC where it has no offset; None for None.

    Raises:
        ConfigInvalid: it is not a time.
    """
    if time_text is None:
        return None
    try:
        when = datetime.fromisoformat(time_text.strip())
    except ValueError:
        raise ConfigInvalid("must be a time in ISO 8601, such as 2026-11-21T10:00:00Z or 2026-11-21") from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


HISTORY_KEYS: Final = (
    ConfigKey(
        name=PATH,
        type=ConfigType.STRING,
        importance=Importance.HIGH,
        group=_GROUP,
        validator=non_empty,
        example="hdfs://namenode/history",
        doc="The history to read: the `sink.files.path` of the job that wrote it, or the directory of one table. "
        "`source.tables` chooses tables by namespace or by directory.",
    ),
    ConfigKey(
        name=SINCE,
        type=ConfigType.STRING,
        default=None,
        importance=Importance.HIGH,
        group=_GROUP,
        validator=_check_time,
        example="2026-11-01T00:00:00Z",
        doc="Only changes made at that time or later (`ums_ts_`; ISO 8601, UTC where it has no offset). Not set: from the "
        "beginning.",
    ),
    ConfigKey(
        name=UNTIL,
        type=ConfigType.STRING,
        default=None,
        importance=Importance.HIGH,
        group=_GROUP,
        validator=_check_time,
        example="2026-11-21",
        doc="Only changes made before that time. Not set: up to what the history has when the job starts first.",
    ),
    ConfigKey(
        name=BEFORE,
        type=ConfigType.BOOLEAN,
        default=False,
        group=_GROUP,
        doc="Whether the images before updates that the history has (`ums_op_` b) are read too. For full histories.",
    ),
)


def check_options(config: Config) -> list[str]:
    """Complaints about options that don't go together, each as ``<option>: <text>``."""
    since, until = parse_time(config[SINCE]), parse_time(config[UNTIL])
    problems = []
    if since is not None and until is not None and since >= until:
        problems.append(f"{SINCE}: {config[SINCE]} is not before {UNTIL} ({config[UNTIL]}): no change is in between")
    if config.get("sink.files.path") and _same_folder(config["sink.files.path"], config[PATH]):
        problems.append("sink.files.path: the job would write the history that it reads; name another folder")
    if config.get("sink.jdbc.position") == "kafka":
        problems.append(
            "sink.jdbc.position: kafka compares offsets, and rows of a history have positions of their own; use ums_id"
        )
    return problems


def _same_folder(first: str, second: str) -> bool:
    return first.rstrip("/") == second.rstrip("/")
