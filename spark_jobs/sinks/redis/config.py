"""Options of the Redis sink, and what follows from them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, at_least, one_of
from spark_jobs.sinks.jdbc.config import INSERT, SOFT, UPSERT
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
    retry_keys,
    row_settings,
)
from spark_jobs.sinks.shared.templates import ROW_PARTS, Template, template_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.sinks.shared.options import RowSettings
    from spark_jobs.steps.lookup.model import LookupAccess

PREFIX: Final = "sink.redis."
HASH: Final = "hash"
JSON: Final = "json"
STRING: Final = "string"
SORTED_SET: Final = "sorted-set"
STREAM: Final = "stream"
FORMS: Final = (HASH, JSON, STRING, SORTED_SET, STREAM)
#: The key where none is given: of a row, or of the set or stream that rows of a table are in.
_ROW_KEY: Final = "${namespace}:${key}"
_TABLE_KEY: Final = "${namespace}"

_B, _S, _L = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LONG
_URL: Final = re.compile(r"rediss?://(?P<host>\[[^\]]+\]|[^/@:?#\[\]]+)(:(?P<port>\d{1,5}))?(/(?P<database>\d*))?\Z")


def _check_url(name: str, value: Any) -> str | None:
    if _URL.match(value or ""):
        return None
    # Not with the value: somebody may have put a password into it.
    return (
        f"Invalid value for configuration {name}: it must be redis://host:port/database or rediss://... (TLS), without a "
        f"login, which {PREFIX}user and {PREFIX}password have"
    )


CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey(
            name=f"{PREFIX}url",
            type=_S,
            importance=Importance.HIGH,
            group=WHERE,
            validator=_check_url,
            example="redis://redis.example:6379/0",
            doc="Where Redis (or Valkey) is: `redis://host:port/database`; `rediss://` with TLS.",
        ),
        ConfigKey(
            name=f"{PREFIX}cluster",
            type=_B,
            default=False,
            group=WHERE,
            doc="Whether it is a Redis Cluster; the address is that of any of its nodes.",
        ),
        *access_keys(PREFIX, "The login (ACL); empty: the default user."),
        ConfigKey(
            name=f"{PREFIX}form",
            type=_S,
            default=HASH,
            importance=Importance.HIGH,
            group=CONTENT,
            validator=one_of(*FORMS),
            doc="What a row becomes: `hash` (a field per column), `json` (a document), `string` (sink.redis.value), "
            "`sorted-set` (a member with a score), `stream` (an entry per change, images before an update as well).",
        ),
        ConfigKey(
            name=f"{PREFIX}key",
            type=_S,
            default=None,
            importance=Importance.HIGH,
            group=CONTENT,
            validator=template_validator(rows=("key",), columns=True, empty=True),
            example="{${table}}:${key}",
            doc="The key, by template: `${namespace}`, `${database}` and `${table}` are parts of the table's name, `${key}` is "
            "the row's key (several columns joined by `:`), `${column:<name>}` the value of a column, which must belong to the "
            f"key but for streams. Default: `{_ROW_KEY}`; of sorted sets and streams `{_TABLE_KEY}`.",
        ),
        key_columns_key(PREFIX),
        ConfigKey(
            name=f"{PREFIX}value",
            type=_S,
            default="",
            group=CONTENT,
            validator=template_validator(rows=ROW_PARTS, columns=True, empty=True),
            example="${column:price}",
            doc="`sink.redis.form=string`: the value, by template. A row in which one of its columns is null has no key.",
        ),
        ConfigKey(
            name=f"{PREFIX}json.command",
            type=_S,
            default="SET",
            group=CONTENT,
            validator=one_of("SET", "JSON.SET"),
            doc="`sink.redis.form=json`: `SET` writes a string; `JSON.SET` needs the module RedisJSON (Redis 8 has it).",
        ),
        ConfigKey(
            name=f"{PREFIX}member",
            type=_S,
            default="${key}",
            group=CONTENT,
            validator=template_validator(rows=("key",), columns=True),
            doc="`sink.redis.form=sorted-set`: the member, by template.",
        ),
        ConfigKey(
            name=f"{PREFIX}score.column",
            type=_S,
            default="",
            group=CONTENT,
            doc="`sink.redis.form=sorted-set`: the column with the score: a number, a date or a time (seconds since 1970).",
        ),
        ConfigKey(
            name=f"{PREFIX}ttl.ms",
            type=_L,
            default=0,
            unit="ms",
            group=CONTENT,
            validator=at_least(0),
            doc="How long a key lives after it was last written; 0: forever. After that the order number is forgotten, too, so "
            "it must be longer than any replay or delay of a source. Of sorted sets and streams the whole key expires.",
        ),
        ConfigKey(
            name=f"{PREFIX}stream.length",
            type=_L,
            default=0,
            unit="entries",
            group=CONTENT,
            validator=at_least(0),
            doc="`sink.redis.form=stream`: the oldest entries of a stream are removed when it has more than about that many; "
            "0: never.",
        ),
        delete_mode_key(PREFIX, note="`soft` is for hashes and JSON; a stream has an entry with ums_op_ = d."),
        delete_retention_key(PREFIX),
        *batch_keys(PREFIX, rows=10_000),
        *retry_keys(PREFIX),
    ]
)


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The options, parsed; picklable, its text holds no secret. Names as in ``CONFIG_DEF``.

    ``position``: the name under which the positions of streams are kept.
    """

    url: str
    cluster: bool
    access: LookupAccess = field(repr=False)
    form: str
    key: Template
    value: Template
    command: str
    member: Template
    score: str
    ttl_ms: int
    length: int
    retention_ms: int
    soft: bool
    rows: RowSettings
    position: str


def parse_settings(config: Mapping[str, Any], job: str = "") -> RedisSettings:
    """The parsed options. Pure.

    Args:
        config: parsed values.
        job: the job's name.
    """

    def get(name: str) -> Any:
        return config[f"{PREFIX}{name}"]

    form = get("form")
    in_row = form in (HASH, JSON, STRING)
    return RedisSettings(
        url=get("url"),
        cluster=get("cluster"),
        access=access_of(config, PREFIX, urlsplit(get("url")).netloc),
        form=form,
        key=Template(get("key") or (_ROW_KEY if in_row else _TABLE_KEY)),
        value=Template(get("value")),
        command=get("json.command"),
        member=Template(get("member")),
        score=get("score.column"),
        ttl_ms=get("ttl.ms"),
        length=get("stream.length"),
        retention_ms=get("delete.retention.ms"),
        soft=get("delete.mode") == SOFT,
        rows=row_settings(config, PREFIX, INSERT if form == STREAM else UPSERT),
        position=job,
    )


def check_options(config: Mapping[str, Any]) -> list[str]:
    """Options that don't go together, as ``<option>: <text>``. Pure."""
    problems = access_problems(config, PREFIX)
    chosen = parse_settings(config)
    if chosen.form == STRING and not chosen.value.text:
        problems.append(f"{PREFIX}value: {PREFIX}form=string needs a value, such as ${{column:price}}")
    if chosen.form == SORTED_SET and not chosen.score:
        problems.append(f"{PREFIX}score.column: {PREFIX}form=sorted-set needs the column with the score")
    if chosen.soft and chosen.form not in (HASH, JSON):
        problems.append(
            f"{PREFIX}delete.mode: soft marks a row in ums_active_, which {chosen.form} has not; use real or ignore"
        )
    if chosen.cluster and urlsplit(chosen.url).path not in ("", "/", "/0"):
        problems.append(f"{PREFIX}url: a Redis Cluster has the database 0 only")
    if chosen.form in (HASH, JSON, STRING) and not (chosen.key.columns or chosen.key.row_parts):
        problems.append(f"{PREFIX}key: all rows of a table would have one key; it needs ${{key}} or ${{column:<name>}}")
    return problems
