"""UMS 1.3, the message form of DBus and Wormhole: one JSON document with its schema and many rows.

A message is a struct of ``MESSAGE``, so any converter can write it: JsonConverter with ``schemas.enable=false`` gives the UMS
document itself. All functions are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.schema import BOOLEAN, OPTIONAL_INT64, OPTIONAL_STRING, STRING, array, struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: ``protocol.type``: changes, a snapshot, a later load of history.
INCREMENT: Final = "data_increment_data"
INITIAL: Final = "data_initial_data"
BATCH: Final = "data_batch_data"
INCREMENT_HEARTBEAT: Final = "data_increment_heartbeat"
INCREMENT_TERMINATION: Final = "data_increment_termination"
BATCH_TERMINATION: Final = "data_batch_termination"
#: Messages with rows, and those that carry only a time.
WITH_ROWS: Final = frozenset({INCREMENT, INITIAL, BATCH})
SIGNALS: Final = frozenset({INCREMENT_HEARTBEAT, INCREMENT_TERMINATION, BATCH_TERMINATION})
#: ``protocol.version``.
VERSION: Final = "1.3"

ID, TIMESTAMP, OPERATION, UID, ACTIVE = "ums_id_", "ums_ts_", "ums_op_", "ums_uid_", "ums_active_"
#: ``ums_op_``; ``b`` is the row before an update.
INSERT, UPDATE, DELETE, BEFORE = "i", "u", "d", "b"

TYPES: Final = ("string", "int", "long", "float", "double", "decimal", "boolean", "date", "datetime", "binary")
_PARTS: Final = 7
_ANY: Final = "*"
_DAY_US: Final = 86_400_000_000


def make_field(name: str, kind: str, *, nullable: bool = True) -> dict[str, Any]:
    """A member of ``schema.fields``.

    Raises:
        ValueError: there is no such type.
    """
    if kind not in TYPES:
        raise ValueError(f"UMS has no type {kind!r}; its types are {', '.join(TYPES)}")
    return {"name": name, "type": kind, "nullable": nullable}


#: The first fields of every message with rows.
SYSTEM_FIELDS: Final = (
    make_field(ID, "long", nullable=False),
    make_field(TIMESTAMP, "datetime", nullable=False),
    make_field(OPERATION, "string", nullable=False),
    make_field(UID, "string", nullable=False),
)
_NAME: Final = "io.millrace.ums"
_FIELD: Final = {"name": STRING, "type": STRING, "nullable": BOOLEAN}


def _message_schema(fields: dict[str, Any], name: str) -> Any:
    return struct(
        f"{_NAME}.{name}",
        {
            # What came later is optional and last: registries take it as a compatible change.
            "protocol": struct(
                f"{_NAME}.Protocol", {"type": STRING, "version": OPTIONAL_STRING, "part": OPTIONAL_STRING}
            ),
            "schema": struct(
                f"{_NAME}.Schema",
                {"namespace": STRING, "fields": array(struct(f"{_NAME}.Field", fields)), "batchId": OPTIONAL_INT64},
            ),
            "payload": array(struct(f"{_NAME}.Row", {"tuple": array(OPTIONAL_STRING)})),
        },
    )


#: The schema of every message.
MESSAGE: Final = _message_schema(_FIELD, "Message")
#: The same where fields may be masked: they have ``encoded`` too, as DBus says it.
MASKED_MESSAGE: Final = _message_schema({**_FIELD, "encoded": BOOLEAN}, "MaskedMessage")


class Namespace(NamedTuple):
    """The seven parts that name a table anywhere."""

    datastore: str
    instance: str
    database: str
    table: str
    version: str = "0"
    database_partition: str = "0"
    table_partition: str = "0"

    @property
    def text(self) -> str:
        """The parts joined by dots; dots inside a part become underscores, or it could not be read back."""
        return ".".join(part.replace(".", "_") or "_" for part in self)

    def matches(self, pattern: Namespace) -> bool:
        """Whether it is one of those that ``pattern`` names; ``*`` stands for any value of a part."""
        return all(
            pattern_part in {_ANY, part.replace(".", "_")} for part, pattern_part in zip(self, pattern, strict=True)
        )

    @classmethod
    def parse(cls, source: str) -> Namespace:
        """The namespace (or pattern) in ``source``.

        Raises:
            ValueError: it has not seven parts.
        """
        parts = source.split(".")
        if len(parts) != _PARTS or not all(parts):
            raise ValueError(
                f"{source!r} is no UMS namespace: seven parts are needed, datastore.instance.database.table.version."
                "database partition.table partition"
            )
        return cls(*parts)


def kafka_key(protocol: str, namespace: str, suffix: str = "") -> str:
    """The Kafka key of a message: ``<protocol>.<namespace>``, and ``...<suffix>`` where one namespace is spread out."""
    return f"{protocol}.{namespace}...{suffix}" if suffix else f"{protocol}.{namespace}"


def make_message(
    protocol: str,
    namespace: str,
    fields: Sequence[dict[str, Any]],
    tuples: Iterable[Sequence[str | None]],
    batch: int = 0,
) -> dict[str, Any]:
    """A message with rows; each row has a string or None for every field, in the fields' order.

    ``batch`` is the id of the snapshot that the rows are of: 0 for changes and for a table's first snapshot.
    """
    return {
        "protocol": {"type": protocol, "version": VERSION, "part": None},
        "schema": {"namespace": namespace, "fields": fields, "batchId": batch},
        "payload": [{"tuple": row} for row in tuples],
    }


def snapshot_protocol(batch: int) -> str:
    """``protocol.type`` of a snapshot's rows: the first one of a table has no id."""
    return BATCH if batch else INITIAL


def make_signal(
    protocol: str,
    namespace: str,
    time_us: int,
    *,
    batch: int = 0,
    part: str = "",
    masked: bool = False,
) -> dict[str, Any]:
    """A heartbeat or a termination of ``namespace``, with a time in µs since 1970.

    A heartbeat is the promise that every change committed before that time has been sent. ``part`` (``INDEX/COUNT``) says that
    one of several writers speaks, for its own rows. ``masked``: the message is one of ``MASKED_MESSAGE``.
    """
    only = {**SYSTEM_FIELDS[1], "encoded": False} if masked else SYSTEM_FIELDS[1]
    document = make_message(protocol, namespace, [only], [[datetime_text(time_us)]], batch)
    document["protocol"]["part"] = part or None
    return document


def date_text(days: int) -> str:
    """A day of the proleptic Gregorian calendar, from days since 1970, as ``YYYY-MM-DD``.

    Years before 1 have a minus, years after 9999 have more digits.
    """
    # Days are counted from 0000-03-01, so that the leap day is the last of its year; 146,097 days are 400 years.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    year += 400 * era + (month >= 10)
    sign = "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{(month + 2) % 12 + 1:02d}-{day - (153 * month + 2) // 5 + 1:02d}"


def datetime_text(time_us: int) -> str:
    """A moment (µs since 1970, UTC) as ``YYYY-MM-DD HH:MM:SS.ffffff``."""
    days, remainder = divmod(time_us, _DAY_US)
    seconds, micros = divmod(remainder, 1_000_000)
    return f"{date_text(days)} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"
