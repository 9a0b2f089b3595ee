"""Shared by the JDBC sinks of Debezium, Confluent and Aiven: URL, keys, modes, deletes, columns. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from spark_jobs.java_sinks.translation.converters import BYTES
from spark_jobs.java_sinks.translation.model import ENVELOPE, FLAT

if TYPE_CHECKING:
    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

URL: Final = "connection.url"
_MODE: Final = "sink.jdbc.mode"
_KEYS: Final = "source.key.columns"
#: Modes in which the record's key has no part in the row.
_NO_KEY: Final = ("none", "kafka")
#: Parameters of drivers -> options of ours.
_PARAMETERS: Final = {
    "user": "sink.jdbc.user",
    "password": "sink.jdbc.password",
    "sslmode": "sink.jdbc.ssl.mode",
    "sslrootcert": "sink.jdbc.ssl.root.cert",
    "sslcert": "sink.jdbc.ssl.cert",
    "sslkey": "sink.jdbc.ssl.key",
    "currentschema": "sink.jdbc.schema",
}
#: Values of ``sslMode`` of the drivers of MySQL and MariaDB -> ours, which are libpq's.
_SSL_MODES: Final = {
    "allow": "prefer",
    "preferred": "prefer",
    "required": "require",
    "disabled": "disable",
    "trust": "require",
    "verify_ca": "verify-ca",
    "verify_identity": "verify-full",
}
#: Parameters that change what is written or how it is protected: they can't be left out silently.
_REFUSED: Final = ("usessl", "requiressl", "stringtype", "connectiontimezone", "servertimezone", "sessionvariables")


@dataclass(frozen=True, slots=True)
class JavaOptionNames:
    """The options of one JDBC sink that have another name in the others.

    Attributes:
        key_mode: what the key is made of.
        key_fields: its columns.
    """

    key_mode: str
    key_fields: str


def translate_url(request: TranslationRequest, answer: TranslatedJob) -> None:
    """The URL without its parameters, which become options."""
    url, separator, query = request.text(URL).partition("?")
    if not url:
        return
    answer.put("sink.jdbc.url", url, URL)
    for name, value in parse_qsl(query, keep_blank_values=True) if separator else ():
        translate_parameter(URL, name, value, answer)


def translate_parameter(origin: str, name: str, value: str, answer: TranslatedJob) -> None:
    """A parameter of the JDBC driver."""
    lowered = name.lower()
    option = _PARAMETERS.get(lowered)
    if option == "sink.jdbc.ssl.mode":
        value = _SSL_MODES.get(value.lower(), value.lower())
    if option is not None:
        answer.put(option, value, origin)
    elif lowered in _REFUSED:
        answer.refuse(
            origin,
            f"the driver's parameter {name} can't be translated: set sink.jdbc.ssl.* and the session of the database's user "
            "in its place, and remove it",
        )
    else:
        answer.note(origin, f"the driver's parameter {name} has no effect: the sink uses a driver of its own")


def translate_rows(request: TranslationRequest, names: JavaOptionNames, answer: TranslatedJob) -> None:
    """Mode, keys and deletes."""
    mode = request.text("insert.mode").lower()
    key_mode = request.text(names.key_mode).lower()
    fields = request.items(names.key_fields)
    deletes = request.flag("delete.enabled")
    if mode == "update":
        answer.refuse(
            "insert.mode",
            "insert.mode=update has no counterpart: rows that are not in the target would be inserted. Use upsert",
        )
    elif mode not in ("insert", "multi", "upsert"):
        answer.refuse("insert.mode", f"Invalid value {mode} for configuration insert.mode: must be insert or upsert")
    elif mode == "upsert" and key_mode == "none":
        answer.refuse(
            names.key_mode, f"insert.mode=upsert needs a key: set {names.key_mode}=record_key or record_value"
        )
    if key_mode not in ("none", "kafka", "record_key", "record_value"):
        answer.refuse(
            names.key_mode,
            f"{names.key_mode}={key_mode} has no counterpart: keys come from record_key or record_value",
        )
    by_offset = key_mode == "kafka"
    if mode == "upsert" and not by_offset:
        # The table keeps the columns that Java has made; the system fields are in a table of their own.
        answer.put(_MODE, "split", "insert.mode")
        answer.put("sink.jdbc.delete.mode", "real", "delete.enabled")
    else:
        _append_rows(by_offset=by_offset, deletes=deletes, answer=answer)
    _translate_keys(names, key_mode, fields, answer)
    _translate_deletes(request, names, deletes=deletes, key_mode=key_mode, answer=answer)


def _append_rows(*, by_offset: bool, deletes: bool, answer: TranslatedJob) -> None:
    answer.put(_MODE, "insert", "insert.mode")
    columns = "ums_id_, ums_ts_, ums_op_ and ums_uid_"
    if by_offset:
        answer.put("sink.jdbc.kafka.columns", "true", "insert.mode")
        columns += ", and kafka_topic_, kafka_partition_ and kafka_offset_ in place of Java's three columns"
    answer.note(
        "insert.mode",
        f"rows are appended, each once; tables get the columns {columns}. A table that the job makes has no primary key",
    )
    if deletes:
        answer.refuse("delete.enabled", "deletes need insert.mode=upsert with a key: appended rows are never removed")


def _translate_keys(names: JavaOptionNames, key_mode: str, fields: list[str], answer: TranslatedJob) -> None:
    if key_mode == "record_value":
        if not fields:
            answer.refuse(
                names.key_fields,
                f"{names.key_mode}=record_value: name the columns of the key, which Java takes to be all",
            )
        answer.put("source.key.encoding", BYTES, names.key_mode)
    elif key_mode in _NO_KEY:
        # Rows have no key, and only the columns of the value.
        answer.put("source.key.encoding", BYTES, names.key_mode)
    elif key_mode == "record_key" and not fields and answer.properties.get("source.key.encoding") == BYTES:
        answer.refuse(
            names.key_fields,
            "keys that this key.converter reads have no columns, or are written in another encoding than the values: name "
            f"the columns of the key, which must be in the row, in {names.key_fields}",
        )
    if fields and key_mode in ("record_key", "record_value"):
        answer.put(_KEYS, ",".join(fields), names.key_fields)


def _translate_deletes(
    request: TranslationRequest, names: JavaOptionNames, *, deletes: bool, key_mode: str, answer: TranslatedJob
) -> None:
    if deletes and key_mode != "record_key":
        answer.refuse("delete.enabled", f"deletes need {names.key_mode}=record_key, as in Java")
    if request.form == ENVELOPE:
        if not deletes or request.drops_deletes:
            answer.add_step("without_deletes", "filter", {"condition": "ums_op_ <> 'd'"}, "delete.enabled")
    elif request.form == FLAT:
        if not deletes:
            answer.put("source.tombstones", "ignore", "delete.enabled")
        elif answer.properties.get("source.key.encoding") == BYTES and "source.tombstones" not in answer.properties:
            answer.refuse(
                "key.converter",
                "a delete is a record without a value, so its key must be readable: use JsonConverter or AvroConverter for "
                "keys, as for values",
            )


def translate_columns(option: str, request: TranslationRequest, names: JavaOptionNames, answer: TranslatedJob) -> None:
    """A list of the columns to write, the key aside."""
    columns = request.items(option)
    if not columns:
        return
    keyless = request.text(names.key_mode).lower() in _NO_KEY
    keys = [] if keyless else request.items(names.key_fields)
    if not keys and not keyless:
        answer.refuse(
            option, f"{option} needs the columns of the key by name, too: without them there is no key to write by"
        )
        return
    chosen = [*keys, *(column for column in columns if column not in keys)]
    answer.add_step("columns", "select", {"columns": ", ".join(f"`{name}`" for name in chosen)}, option)
