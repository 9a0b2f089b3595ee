"""Options of the MongoDB sink, and what follows from them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, one_of
from spark_jobs.sinks.jdbc.config import INSERT, REAL, SOFT
from spark_jobs.sinks.shared.options import (
    CONTENT,
    WHERE,
    access_keys,
    access_of,
    access_problems,
    batch_keys,
    delete_mode_key,
    delete_retention_key,
    key_columns_key,
    mode_key,
    retry_keys,
    row_settings,
)
from spark_jobs.sinks.shared.templates import Template, template_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.sinks.shared.options import RowSettings
    from spark_jobs.steps.lookup.model import LookupAccess

PREFIX: Final = "sink.mongodb."
NAME: Final = "MongoDB"
DECIMAL128: Final = "decimal128"
DECIMALS: Final = (DECIMAL128, "string")
_S: Final = ConfigType.STRING
_URL: Final = re.compile(r"mongodb(\+srv)?://(?P<hosts>[^/@?]+)(/[^@?]*)?(\?[^@]*)?\Z")


def _check_url(name: str, value: Any) -> str | None:
    if _URL.match(value or ""):
        return None
    # Not with the value: it may have a password in it.
    return (
        f"Invalid value for configuration {name}: it must be mongodb://host:port,host:port/?options or mongodb+srv://host/, "
        f"without a login, which {PREFIX}user and {PREFIX}password have"
    )


CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey(
            name=f"{PREFIX}url",
            type=_S,
            importance=Importance.HIGH,
            group=WHERE,
            validator=_check_url,
            example="mongodb://node-1.example:27017,node-2.example:27017/?replicaSet=rs0",
            doc="Where MongoDB is: a connection string with its options (`replicaSet`, `authSource`, `w`, `compressors`), "
            "without a login. Writes wait for a majority unless `w` says otherwise.",
        ),
        *access_keys(PREFIX),
        ConfigKey(
            name=f"{PREFIX}database",
            type=_S,
            importance=Importance.HIGH,
            group=CONTENT,
            validator=template_validator(),
            example="shop",
            doc="The database, by name or by template (`${database}` is that of the source); MongoDB creates it. Characters "
            "that no database may have become `_`.",
        ),
        ConfigKey(
            name=f"{PREFIX}collection",
            type=_S,
            default="${table}",
            importance=Importance.HIGH,
            group=CONTENT,
            validator=template_validator(),
            example="${database}_${table}",
            doc="The collection of a table's rows, by template: `${namespace}`, `${database}` and `${table}` are parts of the "
            "table's name. MongoDB creates it; a dollar becomes `_`, and names that are too long are cut and end with a hash.",
        ),
        ConfigKey(
            name=f"{PREFIX}id",
            type=_S,
            default="",
            importance=Importance.HIGH,
            group=CONTENT,
            validator=template_validator(rows=("key",), columns=True, empty=True),
            example="${table}:${key}",
            doc="The document's `_id` as text, by template. Default: the key's value with its type; of several columns a "
            "document with their values.",
        ),
        ConfigKey(
            name=f"{PREFIX}id.document",
            type=ConfigType.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            group=CONTENT,
            doc="Whether the `_id` is a document, `{<column>: <value>}`, also where the key is one column, as MongoDB's own "
            "Kafka sink has it.",
        ),
        key_columns_key(PREFIX),
        ConfigKey(
            name=f"{PREFIX}decimals",
            type=_S,
            default=DECIMAL128,
            group=CONTENT,
            validator=one_of(*DECIMALS),
            doc="What decimals become: `decimal128` (one of more than 34 digits becomes text), or `string`, for servers with "
            "MongoDB's protocol and without Decimal128.",
        ),
        mode_key(PREFIX),
        delete_mode_key(PREFIX),
        delete_retention_key(PREFIX),
        *batch_keys(PREFIX, rows=2000, size=8 << 20),
        *retry_keys(PREFIX),
    ]
)


@dataclass(frozen=True, slots=True)
class MongoSettings:
    """The options, parsed; picklable, its text holds no secret. Names as in ``CONFIG_DEF``.

    ``decimals``: whether decimals are Decimal128. ``remembers``: whether deletes are kept in a collection of their own.
    """

    url: str
    access: LookupAccess = field(repr=False)
    database: Template
    collection: Template
    id: Template
    id_document: bool
    decimals: bool
    retention_ms: int
    append: bool
    soft: bool
    remembers: bool
    rows: RowSettings


def parse_settings(config: Mapping[str, Any]) -> MongoSettings:
    """The parsed options. Pure."""

    def get(name: str) -> Any:
        return config[f"{PREFIX}{name}"]

    match = _URL.match(get("url"))
    append = get("mode") == INSERT
    return MongoSettings(
        url=get("url"),
        access=access_of(config, PREFIX, match["hosts"] if match else ""),
        database=Template(get("database")),
        collection=Template(get("collection")),
        id=Template(get("id")),
        id_document=get("id.document"),
        decimals=get("decimals") == DECIMAL128,
        retention_ms=get("delete.retention.ms"),
        append=append,
        soft=get("delete.mode") == SOFT,
        remembers=not append and get("delete.mode") == REAL,
        rows=row_settings(config, PREFIX),
    )


def check_options(config: Mapping[str, Any]) -> list[str]:
    """Options that don't go together, as ``<option>: <text>``. Pure."""
    problems = access_problems(config, PREFIX)
    chosen = parse_settings(config)
    if chosen.id.text and chosen.id_document:
        problems.append(
            f"{PREFIX}id.document: {PREFIX}id makes text of the key, which is no document; leave one of them out"
        )
    if chosen.id.text and not chosen.append and not (chosen.id.columns or chosen.id.row_parts):
        problems.append(
            f"{PREFIX}id: all rows of a table would be one document; it needs ${{key}} or ${{column:<name>}}"
        )
    return problems
