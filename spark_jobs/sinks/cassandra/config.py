"""Options of the Cassandra sink, and what follows from them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.cql.cluster.tls import CqlTlsSettings
from connectors.cql.options import session_settings
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, Password, at_least, between, one_of
from spark_jobs.sinks.jdbc.config import INSERT, SOFT
from spark_jobs.sinks.shared.options import (
    CONTENT,
    SPEED,
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

    from connectors.cql.cluster.session import SessionSettings
    from spark_jobs.sinks.shared.options import RowSettings
    from spark_jobs.steps.lookup.model import LookupAccess

PREFIX: Final = "sink.cassandra."
_PORT: Final = 9042
_HOST: Final = re.compile(r"(?P<host>\[[^\]]+\]|[^:/@\s]+)(:(?P<port>\d{1,5}))?\Z")
_REPLICATION: Final = re.compile(r"(?P<plain>\d+)|(?P<centres>[\w.-]+:\d+(,[\w.-]+:\d+)*)\Z")
_LEVELS: Final = ("ANY", "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "LOCAL_ONE")
#: Twenty years, the longest that servers take.
LONGEST_TTL_S: Final = 630_720_000
_B, _I, _L, _S = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.STRING


def _host_problem(name: str, value: Any) -> str | None:
    for host in value or []:
        match = _HOST.match(host)
        if match is None or not 0 < int(match["port"] or _PORT) < 1 << 16:
            return f"Invalid value for configuration {name}: {host!r} is not host or host:port"
    return None if value else f"Invalid value for configuration {name}: it names no host"


def _replication_problem(name: str, value: Any) -> str | None:
    if not value or _REPLICATION.fullmatch(value):
        return None
    return f"Invalid value {value} for configuration {name}: it must be a number, such as 3, or dc1:3,dc2:2"


CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey(
            name=f"{PREFIX}hosts",
            type=ConfigType.LIST,
            importance=Importance.HIGH,
            group=WHERE,
            validator=_host_problem,
            example="cassandra-1:9042,cassandra-2:9042",
            doc="Some nodes of the cluster, as host:port; the others are found through them. The port of all nodes is that of "
            f"the first ({_PORT} where it has none).",
        ),
        ConfigKey(
            name=f"{PREFIX}datacenter",
            type=_S,
            default="",
            group=WHERE,
            doc="The data centre whose nodes are used. Empty: that of the hosts.",
        ),
        *access_keys(PREFIX),
        ConfigKey(
            name=f"{PREFIX}consistency",
            type=_S,
            default="LOCAL_QUORUM",
            group=WHERE,
            validator=one_of(*_LEVELS),
            doc="The consistency level of writes.",
        ),
        ConfigKey(
            name=f"{PREFIX}keyspace",
            type=_S,
            default="${database}",
            importance=Importance.HIGH,
            group=CONTENT,
            validator=template_validator(),
            doc="The keyspace, by template: `${namespace}`, `${database}` and `${table}` are parts of the table's name.",
        ),
        ConfigKey(
            name=f"{PREFIX}table",
            type=_S,
            default="${table}",
            importance=Importance.HIGH,
            group=CONTENT,
            validator=template_validator(),
            doc="The table, by template. Letters that a name can't have become `_`; then, and where it is longer than 48 "
            "letters, it ends with a hash of the whole name.",
        ),
        mode_key(PREFIX),
        key_columns_key(PREFIX),
        ConfigKey(
            name=f"{PREFIX}partition.columns",
            type=ConfigType.LIST,
            default=[],
            group=CONTENT,
            example="customer",
            doc="The columns of the key that make the partition; the others are clustering columns. Empty: the whole key, or "
            "as an existing table has it.",
        ),
        delete_mode_key(PREFIX),
        delete_retention_key(PREFIX),
        ConfigKey(
            name=f"{PREFIX}ttl.ms",
            type=_L,
            default=0,
            unit="ms",
            group=CONTENT,
            validator=between(0, LONGEST_TTL_S * 1000),
            doc="How long a row lives after it was written, in whole seconds (rounded up); 0: as the table says.",
        ),
        ConfigKey(
            name=f"{PREFIX}ttl.column",
            type=_S,
            default="",
            group=CONTENT,
            doc="The column with the seconds that a row lives (0: forever). Where it is null, `ttl.ms` counts.",
        ),
        ConfigKey(
            name=f"{PREFIX}timestamp.offset",
            type=_L,
            default=0,
            unit="µs",
            importance=Importance.LOW,
            group=CONTENT,
            doc="Added to the order number of a change, which is the write time of its cells. Scylla refuses times that are "
            "more than three days ahead, so order numbers above the time (late in 2026 binlog files from the 1,797th on) need "
            "a negative one there. All jobs on a table need the same offset, for all time.",
        ),
        ConfigKey(
            name=f"{PREFIX}auto.create",
            type=_B,
            default=True,
            group=CONTENT,
            doc="Whether missing tables are created; else the job fails with the statement to run.",
        ),
        ConfigKey(
            name=f"{PREFIX}auto.evolve",
            type=_B,
            default=True,
            group=CONTENT,
            doc="Whether missing columns are added; else the job fails with the statement to run.",
        ),
        ConfigKey(
            name=f"{PREFIX}replication",
            type=_S,
            default="",
            group=CONTENT,
            validator=_replication_problem,
            example="dc1:3,dc2:3",
            doc="The replication of keyspaces that are created: a number for every data centre, or one for each. Empty: "
            "keyspaces are not created.",
        ),
        *batch_keys(PREFIX, rows=2000),
        ConfigKey(
            name=f"{PREFIX}statement.bytes",
            type=_I,
            default=32_768,
            unit="bytes",
            importance=Importance.LOW,
            group=SPEED,
            validator=between(0, 16 << 20),
            doc="Rows whose first replica is the same node are sent to it in one unlogged batch of this size, at most. It "
            "must be below the servers' `batch_size_fail_threshold` (50 KiB). 0: each row is a request.",
        ),
        ConfigKey(
            name=f"{PREFIX}requests",
            type=_I,
            default=8,
            group=SPEED,
            validator=at_least(1),
            doc="Requests of a task that wait for an answer at the same time, at most.",
        ),
        *retry_keys(PREFIX),
    ]
)


@dataclass(frozen=True, slots=True)
class CassandraSinkSettings:
    """The options, parsed; picklable, its text holds no secret. Names as in ``CONFIG_DEF``."""

    hosts: tuple[tuple[str, int], ...]
    datacenter: str
    access: LookupAccess = field(repr=False)
    consistency: str
    keyspace: Template
    table: Template
    partition_columns: tuple[str, ...]
    retention_s: int
    ttl_s: int
    ttl_column: str
    timestamp_offset: int
    auto_create: bool
    auto_evolve: bool
    replication: str
    statement_bytes: int
    requests: int
    soft: bool
    rows: RowSettings

    @property
    def session(self) -> SessionSettings:
        """How to connect."""
        access = self.access
        tls = None
        if access.ssl_mode not in ("disable", "prefer"):
            tls = CqlTlsSettings(
                truststore=access.ssl_root_cert,
                truststore_password=None,
                keystore=None,
                keystore_password=None,
                certificate=access.ssl_cert,
                private_key=access.ssl_key,
                ciphers=(),
                check_hostname=access.ssl_mode == "verify-full",
                verify=access.ssl_mode != "require",
            )
        return session_settings(
            contact_points=self.hosts,
            user=access.user or None,
            password=Password(access.password) if access.user else None,
            local_dc=self.datacenter or None,
            consistency=self.consistency,
            compression="none",
            request_timeout_s=access.timeout_s,
            connect_timeout_s=access.timeout_s,
            tls=tls,
        )


def parse_settings(config: Mapping[str, Any]) -> CassandraSinkSettings:
    """The parsed options. Pure.

    Args:
        config: parsed values.
    """

    def get(name: str) -> Any:
        return config[f"{PREFIX}{name}"]

    hosts = []
    for host in get("hosts"):
        match = _HOST.match(host)
        if match is not None:
            hosts.append((match["host"].strip("[]"), int(match["port"] or _PORT)))
    return CassandraSinkSettings(
        hosts=tuple(hosts),
        datacenter=get("datacenter"),
        access=access_of(config, PREFIX, ",".join(f"{host}:{port}" for host, port in hosts)),
        consistency=get("consistency"),
        keyspace=Template(get("keyspace")),
        table=Template(get("table")),
        partition_columns=tuple(get("partition.columns")),
        retention_s=get("delete.retention.ms") // 1000,
        ttl_s=-(-get("ttl.ms") // 1000),
        ttl_column=get("ttl.column"),
        timestamp_offset=get("timestamp.offset"),
        auto_create=get("auto.create"),
        auto_evolve=get("auto.evolve"),
        replication=get("replication"),
        statement_bytes=get("statement.bytes"),
        requests=get("requests"),
        soft=get("delete.mode") == SOFT,
        rows=row_settings(config, PREFIX),
    )


def check_options(config: Mapping[str, Any]) -> list[str]:
    """Options that don't go together, as ``<option>: <text>``. Pure."""
    problems = access_problems(config, PREFIX)
    keys = config[f"{PREFIX}key.columns"]
    others = [name for name in config[f"{PREFIX}partition.columns"] if keys and name not in keys]
    if others:
        problems.append(
            f"{PREFIX}partition.columns: {', '.join(others)} is not in {PREFIX}key.columns ({', '.join(keys)})"
        )
    if config[f"{PREFIX}mode"] == INSERT and config[f"{PREFIX}delete.mode"] == SOFT:
        problems.append(f"{PREFIX}delete.mode: soft marks rows, and {PREFIX}mode=insert writes one for each change")
    return problems
