"""Type codes of binlog events, of MySQL and MariaDB."""

from __future__ import annotations

from typing import Final

UNKNOWN: Final = 0
START_V3: Final = 1
QUERY: Final = 2
STOP: Final = 3
ROTATE: Final = 4
INTVAR: Final = 5
LOAD: Final = 6
SLAVE: Final = 7
CREATE_FILE: Final = 8
APPEND_BLOCK: Final = 9
EXEC_LOAD: Final = 10
DELETE_FILE: Final = 11
NEW_LOAD: Final = 12
RAND: Final = 13
USER_VAR: Final = 14
FORMAT_DESCRIPTION: Final = 15
XID: Final = 16
BEGIN_LOAD_QUERY: Final = 17
EXECUTE_LOAD_QUERY: Final = 18
TABLE_MAP: Final = 19
PRE_GA_WRITE_ROWS: Final = 20
PRE_GA_UPDATE_ROWS: Final = 21
PRE_GA_DELETE_ROWS: Final = 22
WRITE_ROWS_V1: Final = 23
UPDATE_ROWS_V1: Final = 24
DELETE_ROWS_V1: Final = 25
INCIDENT: Final = 26
HEARTBEAT: Final = 27
IGNORABLE: Final = 28
ROWS_QUERY: Final = 29
WRITE_ROWS: Final = 30
UPDATE_ROWS: Final = 31
DELETE_ROWS: Final = 32
GTID: Final = 33
ANONYMOUS_GTID: Final = 34
PREVIOUS_GTIDS: Final = 35
TRANSACTION_CONTEXT: Final = 36
VIEW_CHANGE: Final = 37
XA_PREPARE: Final = 38
PARTIAL_UPDATE_ROWS: Final = 39
TRANSACTION_PAYLOAD: Final = 40
HEARTBEAT_V2: Final = 41
GTID_TAGGED: Final = 42

ANNOTATE_ROWS: Final = 160
BINLOG_CHECKPOINT: Final = 161
MARIADB_GTID: Final = 162
GTID_LIST: Final = 163
START_ENCRYPTION: Final = 164
QUERY_COMPRESSED: Final = 165
WRITE_ROWS_COMPRESSED_V1: Final = 166
UPDATE_ROWS_COMPRESSED_V1: Final = 167
DELETE_ROWS_COMPRESSED_V1: Final = 168
WRITE_ROWS_COMPRESSED: Final = 169
UPDATE_ROWS_COMPRESSED: Final = 170
DELETE_ROWS_COMPRESSED: Final = 171

#: Rows that are not compressed.
WRITES: Final = frozenset({WRITE_ROWS_V1, WRITE_ROWS})
UPDATES: Final = frozenset({UPDATE_ROWS_V1, UPDATE_ROWS, PARTIAL_UPDATE_ROWS})
DELETES: Final = frozenset({DELETE_ROWS_V1, DELETE_ROWS})
ROWS: Final = WRITES | UPDATES | DELETES
#: What ``binlog_events.uncompressed`` takes.
COMPRESSED: Final = frozenset(range(QUERY_COMPRESSED, DELETE_ROWS_COMPRESSED + 1))

#: Events that change no row and carry nothing that the stream needs.
IDLE: Final = frozenset({
    STOP, INTVAR, RAND, USER_VAR, HEARTBEAT, HEARTBEAT_V2, IGNORABLE, TRANSACTION_CONTEXT, VIEW_CHANGE,
    BINLOG_CHECKPOINT, GTID_LIST, START_ENCRYPTION, UNKNOWN, SLAVE, START_V3,
})  # fmt: skip

#: Flag of an event header: the server made it for this connection, it is in no file.
ARTIFICIAL: Final = 0x20
#: Flag of an event header: who doesn't know the type may skip the event.
MAY_IGNORE: Final = 0x80

_NAMES: Final = {value: name for name, value in list(globals().items()) if name.isupper() and type(value) is int
                 and name not in {"ARTIFICIAL", "MAY_IGNORE"}}  # fmt: skip


#: Where the bodies of rows events and TABLE_MAPs continue after the table's number, which a restart of the server changes.
AFTER_ID: Final = 25


def type_name(code: int) -> str:
    """The type's name, for messages: ``WRITE_ROWS (30)``."""
    return f"{_NAMES.get(code, 'unknown type')} ({code})"


def row_kind(code: int) -> str:
    """Return the decoder's name for a rows event of this type."""
    if code == PARTIAL_UPDATE_ROWS:
        return "partial"
    return "write" if code in WRITES else "update" if code in UPDATES else "delete"
