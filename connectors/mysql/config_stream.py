"""The options that say how a task reads, as plain values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

import msgspec

from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java
from connectors.mysql import config_keys_connection as ck
from connectors.mysql import config_keys_events as ek
from connectors.mysql import config_keys_reading as rk
from connectors.mysql import shards
from connectors.mysql.config_keys_rules import is_condition, split_regexes
from connectors.mysql.model import MARIADB, MYSQL, Shard, TableName
from connectors.new_tables import NEW_TABLES
from connectors.options import invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.options import Config

Failures = Literal["fail", "warn", "skip"]

#: ``SELECT * FROM a.b [AS] c WHERE ...``: the one form of statement that can be read in chunks.
_SELECT: Final = re.compile(
    r"\s*SELECT\s+(?:\w+\.)?\*\s+FROM\s+(?P<name>[`\w$.]+)(?:\s+(?:AS\s+)?(?!WHERE\b|ORDER\b)(?P<alias>\w+))?"
    r"(?:\s+WHERE\s+(?P<condition>.*?))?(?:\s+ORDER\s+BY\s+[^()]+?)?\s*;?\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
_NOT_ROWS: Final = re.compile(r"\b(LIMIT|GROUP\s+BY|HAVING|UNION|PROCEDURE|INTO|FOR\s+UPDATE|WINDOW)\b", re.IGNORECASE)
_LITERALS: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`", re.DOTALL)


class SnapshotPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What ``snapshot.mode`` means.

    Attributes:
        pull: when tables are read at the start: never, without saved positions (``initial``), or always.
        stream: whether the stream is read (False: the task ends after the pull).
        on_purged: whether tables are read again, and the stream begins anew, when the saved position was purged.
        begin: where the stream begins without saved positions: at the server's position, or with its oldest binlog.
    """

    pull: Literal["never", "initial", "always"] = "initial"
    stream: bool = True
    on_purged: bool = False
    begin: Literal["now", "oldest"] = "now"


_PLANS: Final = {
    "initial": SnapshotPlan(),
    "always": SnapshotPlan(pull="always"),
    "initial_only": SnapshotPlan(stream=False),
    "when_needed": SnapshotPlan(on_purged=True),
    "no_data": SnapshotPlan(pull="never"),
    "recovery": SnapshotPlan(pull="never"),
    "never": SnapshotPlan(pull="never", begin="oldest"),
}


class Overrides(NamedTuple):
    """Rows of the first pull by table: ``database.table`` -> SQL condition, or a whole statement."""

    conditions: dict[str, str]
    selects: dict[str, str]


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a task reads. Times are in seconds.

    Attributes:
        prefix: ``topic.prefix``: the source's name in saved positions.
        shard: the part of the source that the task owns.
        max_batch: records per batch.
        max_queue: records made and not yet handed over.
        poll_s: how long a quiet task waits before it reports its position.
        rollback_rows: rows of an open transaction that are held back, in case it is rolled back; 0: none.
        failures: what to do with an event that can't be read; ``skip`` says nothing.
        inconsistent: what to do with changes of a table whose structure is unknown.
        snapshot_delay_s: wait before the first full pull.
        plan: see ``SnapshotPlan``.
        snapshot_tables: expressions of the tables of the first pull; () for all.
        new_tables: whether a table that is captured later gets a snapshot of its own.
        overrides: rows of the first pull.
        gtid_includes, gtid_excludes: expressions, matched against a source's UUID or ``domain-server``; () for all.
        gtid_filter: whether changes of other sources are left out.
        query: ``include.query``.
        channels: of ``source`` and ``kafka``: where signals come from.
        signal_table: the signal table, or None.
        signal_topic, signal_brokers, signal_group: of the channel ``kafka``.
        heartbeat_s: interval of heartbeat records; 0: none.
        heartbeat_table: the table whose rows are heartbeats, or None.
        version_topic: for records of table versions; "": none.
        progress_topic: for records of progress; "": none.
        progress_s: the least time between two of them.
        guardrail: most tables; 0: no limit.
        guardrail_fails: whether more stop the task, or only make a warning.
    """

    prefix: str
    shard: Shard = Shard()
    max_batch: int = 2_048
    max_queue: int = 8_192
    poll_s: float = 0.5
    rollback_rows: int = 0
    failures: Failures = "fail"
    inconsistent: Failures = "fail"
    snapshot_delay_s: float = 0.0
    plan: SnapshotPlan = SnapshotPlan()
    snapshot_tables: tuple[str, ...] = ()
    new_tables: bool = True
    overrides: Overrides = Overrides({}, {})
    gtid_includes: tuple[str, ...] = ()
    gtid_excludes: tuple[str, ...] = ()
    gtid_filter: bool = True
    query: bool = False
    channels: frozenset[str] = frozenset({"source"})
    signal_table: TableName | None = None
    signal_topic: str = ""
    signal_brokers: str = ""
    signal_group: str = "kafka-signal"
    heartbeat_s: float = 0.0
    heartbeat_table: TableName | None = None
    version_topic: str = ""
    progress_topic: str = ""
    progress_s: float = 5.0
    guardrail: int = 0
    guardrail_fails: bool = False


def text_of(config: Config, name: str) -> str:
    """An option as it stands in the configuration, since expressions may hold commas; "" if it is not set."""
    return str(config.raw.get(name) or "").strip()


def word(config: Config, name: str) -> str:
    """A word in lower case; "" if it is not set."""
    return str(config[name] or "").strip().lower()


def connector_class(config: Config) -> str:
    """The last part of ``connector.class`` as the user wrote it, in lower case; "" if it is not there."""
    return str(config.raw.get("connector.class") or "").rpartition(".")[2].lower()


def flavor(config: Config, server: str) -> Literal["mysql", "mariadb"]:
    """What events call the connector: as Debezium's class that is named, else as the server is."""
    name = str(config.raw.get("connector.class") or "")
    if name.startswith("io.debezium.connector.mariadb.") or connector_class(config) == "mariadbconnector":
        return MARIADB
    if name.startswith("io.debezium.connector.mysql."):
        return MYSQL
    return MARIADB if server == MARIADB else MYSQL


def shard(config: Config) -> Shard:
    """The part of the source that the task owns.

    Raises:
        ConfigInvalid: ``task.shard`` is none.
    """
    text = config[rk.TASK_SHARD]
    if not text:
        return Shard()
    try:
        return shards.parse(text)
    except ValueError as error:
        raise ConfigInvalid(invalid(rk.TASK_SHARD, text, str(error))) from None


def _failures(text: str) -> Failures:
    return cast("Failures", "skip" if text == "ignore" else text)


def table_name(text: str | None) -> TableName | None:
    """``database.table``, or None for nothing."""
    if not text:
        return None
    database, _, name = text.partition(".")
    return TableName(database.strip().strip("`"), name.strip().strip("`"))


def snapshot_plan(config: Config) -> SnapshotPlan:
    """What ``snapshot.mode`` means.

    Raises:
        ConfigInvalid: it names a Java class.
    """
    mode = word(config, rk.SNAPSHOT)
    mode = rk.OLD_MODES.get(mode, mode)
    if mode == "configuration_based":
        return SnapshotPlan(
            pull="initial" if config[rk.BASED_DATA] else "never",
            stream=config[rk.BASED_STREAM],
            on_purged=config[rk.BASED_DATA_ERROR],
        )
    plan = _PLANS.get(mode)
    if plan is None:
        raise ConfigInvalid(
            invalid(rk.SNAPSHOT, mode, "custom modes are Java classes, which can't run here; choose another mode")
        )
    return plan


def snapshot_overrides(config: Config) -> Overrides:
    """``snapshot.select.statement.overrides``: what can be read in chunks as conditions, the rest as statements.

    Raises:
        ConfigInvalid: a statement is missing, or no SELECT.
    """
    found = Overrides({}, {})
    for item in (part.strip() for part in str(config[rk.SNAPSHOT_SELECTS] or "").split(",")):
        if not item:
            continue
        option = f"{rk.SNAPSHOT_SELECTS}.{item}"
        statement = (config.raw.get(option) or "").strip().rstrip(";")
        if not re.match(r"\(*\s*(SELECT|WITH)\b", statement, re.IGNORECASE):
            raise ConfigInvalid(
                invalid(
                    option,
                    config.raw.get(option),
                    f"a SELECT of the columns of {item} is expected, since {rk.SNAPSHOT_SELECTS} names the table",
                )
            )
        condition = _condition(item, statement)
        if condition is None:
            found.selects[item] = statement
        elif condition:
            found.conditions[item] = condition
    return found


def _condition(table: str, statement: str) -> str | None:
    """The condition of a plain statement over one table, "" without one; None: it is no such statement."""
    match = _SELECT.match(statement)
    if match is None or match["name"].replace("`", "") not in (table, table.partition(".")[2]):
        return None
    condition = (match["condition"] or "").strip()
    bare = _LITERALS.sub("''", condition)
    if _NOT_ROWS.search(bare) is not None or (condition and not is_condition(condition)):
        return None
    alias = match["alias"]
    if alias and re.search(rf"(?<![\w.]){re.escape(alias)}\s*\.", bare):
        return None
    return condition


def version_topic(config: Config) -> str:
    """The topic of table versions; "": there is none."""
    given = config[ek.VERSION_TOPIC]
    if given is None:
        return f"{config[ek.PREFIX]}{config[ek.DELIMITER]}table-versions" if word(config, ek.OUTPUT) == "ums" else ""
    return "" if given.lower() == "none" else given


def stream_settings(config: Config) -> StreamSettings:
    """How a task reads.

    Raises:
        ConfigInvalid: ``snapshot.mode``, ``snapshot.select.statement.overrides`` or ``task.shard`` can't be used.
    """
    channels = frozenset(str(item).strip().lower() for item in config[rk.CHANNELS] or ())
    plan = snapshot_plan(config)
    return StreamSettings(
        prefix=config[ek.PREFIX],
        shard=shard(config),
        max_batch=config[rk.BATCH],
        max_queue=max(config[rk.QUEUE], config[rk.BATCH]),
        poll_s=config[rk.POLL] / 1000,
        rollback_rows=config[rk.BUFFER],
        failures=_failures(word(config, rk.FAILURES)),
        inconsistent=_failures(word(config, rk.INCONSISTENT)),
        snapshot_delay_s=config[rk.SNAPSHOT_DELAY] / 1000,
        plan=plan,
        snapshot_tables=tuple(split_regexes(text_of(config, rk.SNAPSHOT_TABLES))),
        new_tables=config[NEW_TABLES] and plan.pull != "never",
        overrides=snapshot_overrides(config),
        gtid_includes=tuple(split_regexes(text_of(config, ck.GTID_INCLUDES))),
        gtid_excludes=tuple(split_regexes(text_of(config, ck.GTID_EXCLUDES))),
        gtid_filter=config[ck.GTID_FILTER_DML],
        query=config[ek.QUERY],
        channels=channels & {"source", "kafka"},
        signal_table=table_name(config[rk.SIGNALS]) if "source" in channels else None,
        signal_topic=config[rk.SIGNAL_TOPIC] or f"{config[ek.PREFIX]}-signal",
        signal_brokers=config[rk.SIGNAL_BROKERS] or "",
        signal_group=config[rk.SIGNAL_GROUP],
        heartbeat_s=config[rk.HEARTBEAT] / 1000,
        heartbeat_table=table_name(config[rk.HEARTBEAT_TABLE]),
        version_topic=version_topic(config),
        progress_topic=config[rk.PROGRESS_TOPIC] or "",
        progress_s=config[rk.PROGRESS_INTERVAL] / 1000,
        guardrail=config[ck.GUARDRAIL],
        guardrail_fails=word(config, ck.GUARDRAIL_ACTION) == "fail",
    )


def gtid_source(settings: StreamSettings) -> Callable[[str], bool] | None:
    """Whether transactions of a source (a UUID, or ``domain-server``) are read; None: all are.

    Raises:
        ConfigInvalid: an expression has no equivalent here.
    """
    wanted = bool(settings.gtid_includes)
    texts = settings.gtid_includes or settings.gtid_excludes
    if not texts:
        return None
    patterns = [re.compile(found.pattern, found.flags | re.IGNORECASE) for found in map(compile_java, texts)]
    return lambda source: any(pattern.fullmatch(source) for pattern in patterns) is wanted
