"""Options of the JDBC sink, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from connectors.options import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    Password,
    at_least,
    between,
    invalid,
    non_empty,
    one_of,
)
from spark_jobs.namespaces import check_template
from spark_jobs.sinks.jdbc.address import JdbcAddress, parse_url
from spark_jobs.sinks.jdbc.branches import DIALECTS
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UPSERT: Final = "upsert"
INSERT: Final = "insert"
SPLIT: Final = "split"
SOFT: Final = "soft"
REAL: Final = "real"
EXACTLY_ONCE: Final = "exactly-once"
SSL_MODES: Final = ("disable", "prefer", "require", "verify-ca", "verify-full")

_B, _S, _I, _L, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
_HIGH, _LOW = Importance.HIGH, Importance.LOW
_WHERE, _CONTENT, _TABLES, _SPEED = "Connection", "What is written", "Tables", "Speed and failures"
_WEEK_MS: Final = 7 * 24 * 3_600_000


def _check_url(name: str, value: Any) -> str | None:
    try:
        parse_url(value or "")
    except ConfigInvalid as error:
        # Not with the value: somebody may have put a password into it.
        return f"Invalid value for configuration {name}: {error}"
    return None


def _check_name_template(name: str, value: Any) -> str | None:
    complaint = check_template(value or "")
    return None if complaint is None else invalid(name, value, complaint)


CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey(
            name="sink.jdbc.url",
            type=_S,
            importance=_HIGH,
            group=_WHERE,
            validator=_check_url,
            example="jdbc:postgresql://db.example:5432/shop",
            doc="Where the database is: jdbc:postgresql://host:port/database, jdbc:mariadb://..., jdbc:mysql://..., "
            "jdbc:sqlite:/path/of/file, or what a dialect of your own is called. PostgreSQL takes several hosts, separated "
            "by commas; the first that can be written to is used.",
        ),
        ConfigKey(
            name="sink.jdbc.user",
            type=_S,
            default="",
            importance=_HIGH,
            group=_WHERE,
            doc="The login; SQLite has none, all others need one.",
        ),
        ConfigKey(
            name="sink.jdbc.password",
            type=ConfigType.PASSWORD,
            default=Password(""),
            importance=_HIGH,
            group=_WHERE,
            doc="The login's password.",
        ),
        ConfigKey(
            name="sink.jdbc.ssl.mode",
            type=_S,
            default="prefer",
            group=_WHERE,
            validator=one_of(*SSL_MODES),
            doc="TLS, by libpq's names: disable; prefer (MariaDB and MySQL: none); require (encrypted, the server is not "
            "verified); verify-ca; verify-full (its name too).",
        ),
        ConfigKey(
            name="sink.jdbc.ssl.root.cert",
            type=_S,
            default=None,
            importance=_LOW,
            group=_WHERE,
            doc="File with the authorities that verify the server, on every machine that runs tasks.",
        ),
        ConfigKey(
            name="sink.jdbc.ssl.cert",
            type=_S,
            default=None,
            importance=_LOW,
            group=_WHERE,
            doc="File with the client's certificate, on every machine that runs tasks.",
        ),
        ConfigKey(
            name="sink.jdbc.ssl.key",
            type=_S,
            default=None,
            importance=_LOW,
            group=_WHERE,
            doc="File with the key of the client's certificate.",
        ),
        ConfigKey(
            name="sink.jdbc.connect.timeout.ms",
            type=_I,
            default=10_000,
            unit="ms",
            importance=_LOW,
            group=_WHERE,
            validator=at_least(1000),
            doc="How long a connection may take to be made.",
        ),
        ConfigKey(
            name="sink.jdbc.with.url",
            type=_S,
            default=None,
            group=_WHERE,
            validator=lambda name, value: None if value is None else _check_url(name, value),
            example="jdbc:mariadb://other.example:3306/shop",
            doc="A second database that gets the same rows. With guarantee=exactly-once a batch is one transaction over both, "
            "PostgreSQL and MariaDB in any combination: all of it is committed in both, or nothing in either. All other "
            "options hold for both.",
        ),
        ConfigKey(
            name="sink.jdbc.with.user",
            type=_S,
            default="",
            group=_WHERE,
            doc="The login of the second database.",
        ),
        ConfigKey(
            name="sink.jdbc.with.password",
            type=ConfigType.PASSWORD,
            default=Password(""),
            group=_WHERE,
            doc="The password of the second database's login.",
        ),
        ConfigKey(
            name="sink.jdbc.with.schema",
            type=_S,
            default="",
            group=_WHERE,
            validator=_check_name_template,
            doc="The schema of the second database; see sink.jdbc.schema.",
        ),
        ConfigKey(
            name="sink.jdbc.mode",
            type=_S,
            default=UPSERT,
            importance=_HIGH,
            group=_CONTENT,
            validator=one_of(UPSERT, INSERT, SPLIT),
            doc="upsert: one row per key, the one with the largest ums_id_. insert: every change is appended, each exactly "
            "once (a table of positions is written in the same transaction). split: like upsert, but the system fields "
            "stand in a side table, so that the table has the source's columns only.",
        ),
        ConfigKey(
            name="sink.jdbc.delete.mode",
            type=_S,
            default=SOFT,
            importance=_HIGH,
            group=_CONTENT,
            validator=one_of(SOFT, REAL),
            doc="upsert: soft keeps a deleted row with ums_active_ = 0; real removes it and remembers the delete in a side "
            "table. split: the row is removed always; soft keeps its line in the side table for good, real drops it "
            "after sink.jdbc.delete.retention.ms.",
        ),
        ConfigKey(
            name="sink.jdbc.delete.retention.ms",
            type=_L,
            default=_WEEK_MS,
            unit="ms",
            group=_CONTENT,
            validator=at_least(60_000),
            doc="How long real deletes are remembered. A change that arrives later than that after a newer delete of its key "
            "brings the row back, so it must be longer than any replay or delay of a source.",
        ),
        ConfigKey(
            name="sink.jdbc.position",
            type=_S,
            default="ums_id",
            importance=_LOW,
            group=_CONTENT,
            validator=one_of("ums_id", "kafka"),
            doc="What says which of two changes of a key is newer: ums_id (of the source), or kafka (the offset; only where "
            "all changes of a key are in one partition).",
        ),
        ConfigKey(
            name="sink.jdbc.kafka.columns",
            type=_B,
            default=False,
            importance=_LOW,
            group=_CONTENT,
            doc="Whether kafka_topic_, kafka_partition_ and kafka_offset_ are written as columns (not with split).",
        ),
        ConfigKey(
            name="sink.jdbc.table",
            type=_S,
            default="${table}",
            importance=_HIGH,
            group=_TABLES,
            validator=_check_name_template,
            example="${database}_${table}",
            doc="The table's name. ${table}, ${database}, ${instance} and ${type} are parts of the source's namespace, "
            "${namespace} is all of it (of UMS the first four parts) with _ for dots. Too long a name is cut and gets a hash.",
        ),
        ConfigKey(
            name="sink.jdbc.schema",
            type=_S,
            default="",
            group=_TABLES,
            validator=_check_name_template,
            example="${database}",
            doc="The schema (PostgreSQL) or database (MariaDB, MySQL) of the tables; empty for the connection's own (SQLite "
            "has none). It must exist. The same parts may be named as in sink.jdbc.table.",
        ),
        ConfigKey(
            name="sink.jdbc.table.shared",
            type=_B,
            default=False,
            importance=_LOW,
            group=_TABLES,
            doc="Whether several source tables may be written to one table (shards); their keys must differ.",
        ),
        ConfigKey(
            name="sink.jdbc.key.columns",
            type=_LIST,
            default=[],
            group=_TABLES,
            example="id",
            doc="Key columns of source tables that have no primary key; all tables without one must have them.",
        ),
        ConfigKey(
            name="sink.jdbc.key.length",
            type=_I,
            default=255,
            unit="characters",
            importance=_LOW,
            group=_TABLES,
            validator=between(1, 768),
            doc="MariaDB and MySQL: length of text and binary key columns whose source does not say one; all columns of a "
            "key may have 3072 bytes, so 768 characters.",
        ),
        ConfigKey(
            name="sink.jdbc.auto.create",
            type=_B,
            default=True,
            group=_TABLES,
            doc="Whether missing tables are made; else the job fails with the statement to run.",
        ),
        ConfigKey(
            name="sink.jdbc.auto.evolve",
            type=_B,
            default=True,
            group=_TABLES,
            doc="Whether missing columns are added and narrow ones widened; else the job fails with the statement to run.",
        ),
        ConfigKey(
            name="sink.jdbc.side.table.suffix",
            type=_S,
            default="_ums",
            importance=_LOW,
            group=_TABLES,
            validator=non_empty,
            doc="What is added to a table's name for its side table (split, and deletes of delete.mode real).",
        ),
        ConfigKey(
            name="sink.jdbc.commit.table",
            type=_S,
            default="millrace_commits",
            importance=_LOW,
            group=_TABLES,
            validator=non_empty,
            doc="The table of positions for mode insert, in the schema of each written table.",
        ),
        ConfigKey(
            name="sink.jdbc.connections",
            type=_I,
            default=2,
            group=_SPEED,
            validator=between(1, 64),
            doc="How many connections write one table at the same time, at most.",
        ),
        ConfigKey(
            name="sink.jdbc.parallel.tables",
            type=_I,
            default=1,
            importance=_LOW,
            group=_SPEED,
            validator=between(1, 32),
            doc="How many tables of a batch are written at the same time; each with sink.jdbc.connections connections.",
        ),
        ConfigKey(
            name="sink.jdbc.repartition",
            type=_S,
            default="auto",
            importance=_LOW,
            group=_SPEED,
            validator=one_of("auto", "always", "never"),
            doc="Whether rows are spread over the connections by a hash of their key: always; never (as they come from "
            "Kafka, at most sink.jdbc.connections at a time); auto when Kafka gives fewer parts than connections.",
        ),
        ConfigKey(
            name="sink.jdbc.batch.rows",
            type=_I,
            default=50_000,
            unit="rows",
            group=_SPEED,
            validator=between(1, 1_000_000),
            doc="Rows per transaction, at most.",
        ),
        ConfigKey(
            name="sink.jdbc.batch.bytes",
            type=_L,
            default=32 << 20,
            unit="bytes",
            importance=_LOW,
            group=_SPEED,
            validator=between(1 << 16, 512 << 20),
            doc="Bytes per transaction, about; a task needs some four times that of memory.",
        ),
        ConfigKey(
            name="sink.jdbc.retries",
            type=_I,
            default=5,
            group=_SPEED,
            validator=between(0, 100),
            doc="How often a transaction is retried after a deadlock, a lost connection and the like, before the batch "
            "is given back to the job (which waits, and retries it as errors.retry.* say).",
        ),
        ConfigKey(
            name="sink.jdbc.retry.backoff.ms",
            type=_I,
            default=100,
            unit="ms",
            importance=_LOW,
            group=_SPEED,
            validator=between(1, 60_000),
            doc="The first pause; each is twice as long as the one before, up to ten seconds.",
        ),
        ConfigKey(
            name="sink.jdbc.statement.timeout.ms",
            type=_I,
            default=120_000,
            unit="ms",
            group=_SPEED,
            validator=at_least(0),
            doc="How long a statement may take, waiting for locks included; 0 for any time. SQLite: how long the file's lock "
            "is waited for.",
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class Login:
    """All that a connection needs; picklable, its text holds no secret."""

    address: JdbcAddress
    user: str
    password: str = field(repr=False)
    ssl_mode: str
    ssl_root_cert: str | None
    ssl_cert: str | None
    ssl_key: str | None = field(repr=False)
    connect_timeout_ms: int
    statement_timeout_ms: int

    @property
    def text(self) -> str:
        """For messages."""
        return f"{self.address.text} as {self.user}" if self.user else self.address.text


@dataclass(frozen=True, slots=True)
class JdbcSettings:
    """The options, parsed; picklable. Names as in ``CONFIG_DEF``."""

    login: Login
    mode: str
    delete_mode: str
    delete_retention_ms: int
    position: str
    kafka_columns: bool
    table: str
    schema: str
    shared: bool
    key_columns: tuple[str, ...]
    key_length: int
    auto_create: bool
    auto_evolve: bool
    side_suffix: str
    commit_table: str
    connections: int
    parallel_tables: int
    repartition: str
    batch_rows: int
    batch_bytes: int
    retries: int
    backoff_ms: int
    exactly_once: bool
    #: Whether a batch is one transaction over several databases.
    together: bool


def all_settings(config: Mapping[str, Any]) -> list[JdbcSettings]:
    """The settings of each database. Pure; raises as ``parse_settings``."""
    first = parse_settings(config)
    url = config["sink.jdbc.with.url"]
    if not url:
        return [first]
    if first.exactly_once:
        # One connection per table: two parts of a transaction would wait for locks that both keep until its end.
        first = replace(first, together=True, connections=1, parallel_tables=1)
    login = replace(
        first.login,
        address=parse_url(url),
        user=config["sink.jdbc.with.user"],
        password=config["sink.jdbc.with.password"].value,
    )
    return [first, replace(first, login=login, schema=config["sink.jdbc.with.schema"])]


def parse_settings(config: Mapping[str, Any]) -> JdbcSettings:
    """Read the settings from the parsed options. Pure.

    Raises:
        ConfigInvalid: the URL is not valid.
    """

    def get(name: str) -> Any:
        return config[f"sink.jdbc.{name}"]

    password: Password = get("password")
    login = Login(
        address=parse_url(get("url")),
        user=get("user"),
        password=password.value,
        ssl_mode=get("ssl.mode"),
        ssl_root_cert=get("ssl.root.cert"),
        ssl_cert=get("ssl.cert"),
        ssl_key=get("ssl.key"),
        connect_timeout_ms=get("connect.timeout.ms"),
        statement_timeout_ms=get("statement.timeout.ms"),
    )
    return JdbcSettings(
        login=login,
        mode=get("mode"),
        delete_mode=get("delete.mode"),
        delete_retention_ms=get("delete.retention.ms"),
        position=get("position"),
        kafka_columns=get("kafka.columns"),
        table=get("table"),
        schema=get("schema"),
        shared=get("table.shared"),
        key_columns=tuple(get("key.columns")),
        key_length=get("key.length"),
        auto_create=get("auto.create"),
        auto_evolve=get("auto.evolve"),
        side_suffix=get("side.table.suffix"),
        commit_table=get("commit.table"),
        connections=get("connections"),
        parallel_tables=get("parallel.tables"),
        repartition=get("repartition"),
        batch_rows=get("batch.rows"),
        batch_bytes=get("batch.bytes"),
        retries=get("retries"),
        backoff_ms=get("retry.backoff.ms"),
        exactly_once=config.get("guarantee") in (None, EXACTLY_ONCE),
        together=False,
    )


def check_options(config: Mapping[str, Any]) -> list[str]:
    """Options that don't go together, as ``<option>: <text>``. Pure."""
    chosen = parse_settings(config)
    address = chosen.login.address
    problems = load_dialect(address.dialect).complaints(chosen, config)
    for name, _ in address.query:
        problems.append(
            f"sink.jdbc.url: the parameter '{name}' is not known; options are properties (sink.jdbc.ssl.mode ...)"
        )
    if chosen.kafka_columns and chosen.mode == SPLIT:
        problems.append(
            "sink.jdbc.kafka.columns: not with sink.jdbc.mode=split, whose table has the source's columns only"
        )
    if chosen.login.ssl_mode in ("verify-ca", "verify-full") and not chosen.login.ssl_root_cert:
        problems.append(
            f"sink.jdbc.ssl.root.cert: sink.jdbc.ssl.mode={chosen.login.ssl_mode} needs the file of authorities"
        )
    if bool(chosen.login.ssl_cert) != bool(chosen.login.ssl_key):
        problems.append(
            "sink.jdbc.ssl.cert: a client's certificate needs its key (sink.jdbc.ssl.key), and the other way round"
        )
    if not chosen.table:
        problems.append("sink.jdbc.table: is empty")
    return [*problems, *_complaints_together(all_settings(config), config)]


def _complaints_together(databases: Sequence[JdbcSettings], config: Mapping[str, Any]) -> list[str]:
    """Complaints about a second database. Pure."""
    if len(databases) == 1:
        names = ("sink.jdbc.with.user", "sink.jdbc.with.schema")
        return [f"{name}: it has no effect without sink.jdbc.with.url" for name in names if config[name]]
    first, second = databases
    messages = [
        complaint.replace("sink.jdbc.", "sink.jdbc.with.", 1)
        for complaint in load_dialect(second.login.address.dialect).complaints(second, config)
    ]
    if first.login.address == second.login.address and first.schema == second.schema:
        messages.append("sink.jdbc.with.url: it is the database of sink.jdbc.url; name another one")
    for option, chosen in (("sink.jdbc.url", first), ("sink.jdbc.with.url", second)):
        if chosen.together and chosen.login.address.dialect not in DIALECTS:
            messages.append(
                f"{option}: a transaction over two databases needs PostgreSQL or MariaDB, not "
                f"{chosen.login.address.dialect}; set guarantee=at-least-once to write both without one"
            )
    return messages
