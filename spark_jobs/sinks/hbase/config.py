"""Options of the HBase sink, and what follows from them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, between, one_of
from spark_jobs.sinks.jdbc.config import INSERT, SOFT
from spark_jobs.sinks.shared.options import (
    CONTENT,
    WHERE,
    access_keys,
    batch_keys,
    delete_mode_key,
    key_columns_key,
    mode_key,
    retry_keys,
    row_settings,
)
from spark_jobs.sinks.shared.templates import Template, template_validator
from spark_jobs.steps.lookup.model import LookupAccess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.sinks.shared.options import RowSettings

PREFIX: Final = "sink.hbase."
JOINED: Final = "joined"
REVERSED: Final = "reversed"
HASHED: Final = "hashed"
TEXT: Final = "text"
BINARY: Final = "binary"
#: DWS adds this to ``ums_id_``, so that the negative numbers of its snapshots become versions as well.
VERSION_OFFSET: Final = 10_000_000_000
_ADDRESS: Final = re.compile(r"(?P<host>\[[^\]]+\]|[^:/@\s]+):(?P<port>\d{1,5})\Z")
_FAMILY: Final = re.compile(r"[\w.-]+\Z")
#: Options of ``access_keys`` that HBase's Thrift server has no use for.
_NO_LOGIN: Final = (f"{PREFIX}user", f"{PREFIX}password")
_B, _I, _L, _S = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.STRING


def _address_problem(name: str, value: Any) -> str | None:
    match = _ADDRESS.match(value or "")
    if match is not None and 0 < int(match["port"]) < 1 << 16:
        return None
    return f"Invalid value {value} for configuration {name}: it must be host:port"


def _families_problem(name: str, value: Any) -> str | None:
    for pair in value or []:
        column, _, family = pair.rpartition("=")
        if not column or not _FAMILY.match(family):
            return f"Invalid value for configuration {name}: {pair!r} is not column=family"
    return None


CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey(
            name=f"{PREFIX}address",
            type=_S,
            importance=Importance.HIGH,
            group=WHERE,
            validator=_address_problem,
            example="hbase-thrift:9090",
            doc="Where HBase's Thrift 2 server (`hbase thrift2 start`) is: host:port.",
        ),
        ConfigKey(
            name=f"{PREFIX}framed",
            type=_B,
            default=False,
            importance=Importance.LOW,
            group=WHERE,
            doc="Whether the server takes framed requests (`-f`, `-hsha`, `-nonblocking`).",
        ),
        *(key for key in access_keys(PREFIX) if key.name not in _NO_LOGIN),
        ConfigKey(
            name=f"{PREFIX}table",
            type=_S,
            default="${namespace}",
            importance=Importance.HIGH,
            group=CONTENT,
            validator=template_validator(),
            doc="The table, by template: `${namespace}`, `${database}` and `${table}` are parts of the source table's name. "
            "`space:${table}` is in the namespace `space`, which must exist. Other letters than those of HBase's names become "
            "`_`, and the name ends with a hash then.",
        ),
        mode_key(PREFIX),
        key_columns_key(PREFIX),
        ConfigKey(
            name=f"{PREFIX}row.key",
            type=_S,
            default="${key}",
            importance=Importance.HIGH,
            group=CONTENT,
            validator=template_validator(rows=("key",), columns=True),
            example="${column:country}_${column:number}",
            doc="The row key, by template: `${key}` joins the columns of the key with `:`.",
        ),
        ConfigKey(
            name=f"{PREFIX}row.key.form",
            type=_S,
            default=JOINED,
            group=CONTENT,
            validator=one_of(JOINED, REVERSED, HASHED),
            doc="joined: the row key as `row.key` has it; reversed: its letters from the last to the first; hashed: eight "
            "digits of its MD5, then `_`, then the row key. The last two spread growing keys over regions.",
        ),
        ConfigKey(
            name=f"{PREFIX}family",
            type=_S,
            default="cf",
            group=CONTENT,
            validator=template_validator(),
            doc="The column family, by template of the table's name (`${table}`).",
        ),
        ConfigKey(
            name=f"{PREFIX}column.families",
            type=ConfigType.LIST,
            default=[],
            group=CONTENT,
            validator=_families_problem,
            example="street=address,city=address",
            doc="Columns in other families, as column=family.",
        ),
        ConfigKey(
            name=f"{PREFIX}values",
            type=_S,
            default=TEXT,
            group=CONTENT,
            validator=one_of(TEXT, BINARY),
            doc="text: values are strings; binary: numbers and booleans are as `Bytes.toBytes` of HBase's client has them.",
        ),
        delete_mode_key(PREFIX),
        ConfigKey(
            name=f"{PREFIX}version.offset",
            type=_L,
            default=VERSION_OFFSET,
            importance=Importance.LOW,
            group=CONTENT,
            validator=between(0, 1 << 62),
            doc="Added to a change's order number; the sum is the version (timestamp) of its cells and must not be negative. "
            "All jobs on a table need the same offset, for all time.",
        ),
        ConfigKey(
            name=f"{PREFIX}versions",
            type=_I,
            default=3,
            group=CONTENT,
            validator=between(1, 10_000),
            doc="Versions of a cell that families keep which the sink creates.",
        ),
        ConfigKey(
            name=f"{PREFIX}keep.deletes",
            type=_B,
            default=True,
            group=CONTENT,
            doc="Whether families that the sink creates keep the marks of deletes through major compactions. Without, an older "
            "change that arrives after one brings a deleted row back.",
        ),
        ConfigKey(
            name=f"{PREFIX}auto.create",
            type=_B,
            default=True,
            group=CONTENT,
            doc="Whether missing tables and families are created; else the job fails and says which.",
        ),
        *batch_keys(PREFIX, rows=2000),
        *retry_keys(PREFIX),
    ]
)


@dataclass(frozen=True, slots=True)
class HbaseSettings:
    """The options, parsed; picklable. Names as in ``CONFIG_DEF``."""

    host: str
    port: int
    framed: bool
    access: LookupAccess = field(repr=False)
    table: Template
    row_key: Template
    row_key_form: str
    family: Template
    families: Mapping[str, str]
    binary: bool
    version_offset: int
    versions: int
    keep_deletes: bool
    auto_create: bool
    append: bool
    soft: bool
    rows: RowSettings

    def family_of(self, column: str, namespace: str) -> str:
        """The family of a column of a table."""
        return self.families.get(column) or self.family.of_table(namespace)


def parse_settings(config: Mapping[str, Any]) -> HbaseSettings:
    """The parsed options. Pure.

    Args:
        config: parsed values.
    """

    def get(name: str) -> Any:
        return config[f"{PREFIX}{name}"]

    host, _, port = get("address").rpartition(":")
    pairs = [pair.rpartition("=") for pair in get("column.families")]
    return HbaseSettings(
        host=host.strip("[]"),
        port=int(port),
        framed=get("framed"),
        access=LookupAccess(
            address=get("address"),
            user="",
            password="",
            ssl_mode=get("ssl.mode"),
            ssl_root_cert=get("ssl.root.cert"),
            ssl_cert=get("ssl.cert"),
            ssl_key=get("ssl.key"),
            timeout_s=get("timeout.ms") / 1000,
        ),
        table=Template(get("table")),
        row_key=Template(get("row.key")),
        row_key_form=get("row.key.form"),
        family=Template(get("family")),
        families={column: family for column, _, family in pairs},
        binary=get("values") == BINARY,
        version_offset=get("version.offset"),
        versions=get("versions"),
        keep_deletes=get("keep.deletes"),
        auto_create=get("auto.create"),
        append=get("mode") == INSERT,
        soft=get("delete.mode") == SOFT,
        rows=row_settings(config, PREFIX),
    )


def check_options(config: Mapping[str, Any]) -> list[str]:
    """Options that don't go together, as ``<option>: <text>``. Pure."""
    problems = []
    if bool(config[f"{PREFIX}ssl.cert"]) != bool(config[f"{PREFIX}ssl.key"]):
        problems.append(
            f"{PREFIX}ssl.cert: a client's certificate needs its key ({PREFIX}ssl.key), and the other way round"
        )
    if config[f"{PREFIX}mode"] == INSERT and config[f"{PREFIX}delete.mode"] == SOFT:
        problems.append(f"{PREFIX}delete.mode: soft marks rows, and {PREFIX}mode=insert writes one for each change")
    family = config[f"{PREFIX}family"]
    if "${" not in family and not _FAMILY.match(family):
        problems.append(f"{PREFIX}family: {family} is no name of a family: it has letters, digits, '_', '-' and '.'")
    return problems
