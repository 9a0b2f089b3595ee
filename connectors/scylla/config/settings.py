"""The connector's options as plain values for its parts, and the checks that need more than one option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from connectors.cql.debezium_names import ValueForms
from connectors.formats.masks import masking
from connectors.options import ConfigProblem, invalid
from connectors.scylla.config import keys
from connectors.scylla.config.keys import CONFIG
from connectors.scylla.config.names import contact_points, table_names
from connectors.scylla.events.contract import ScyllaEventSettings
from connectors.source_options.new_tables import NEW_TABLES
from connectors.source_options.number_keys import DECIMALS, VARINTS
from connectors.source_options.table_heartbeats import find_compacted_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.cql.cluster.session import SessionSettings
    from connectors.options import Config
    from connectors.scylla.model import TableId

__all__ = [
    "CONFIG",
    "ScyllaReadSettings",
    "event_settings",
    "find_problems",
    "parse_tables",
    "read_settings",
    "session_settings",
]

#: Rows per page where the option says 0; the drivers' own default.
DEFAULT_FETCH_SIZE: Final = 5_000


class ScyllaReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How logs and tables are read. Times are whole milliseconds (``_ms``) or seconds (``_s``), as the names say."""

    #: Upper-case name.
    consistency: str
    #: Rows per page.
    fetch_size: int
    query_timeout_s: float
    streams_per_query: int
    #: Queries that a task may have under way.
    max_queries: int
    #: Records per batch, and rows read ahead.
    max_batch: int
    max_queue: int
    #: Width of every window, or None: between the two bounds.
    window_ms: int | None
    window_min_ms: int
    window_max_ms: int
    #: The confidence window, or None: between the two bounds.
    confidence_ms: int | None
    confidence_min_ms: int
    confidence_max_ms: int
    #: Pause between two windows of a group.
    minimal_wait_ms: int
    #: Where to begin without offsets: this long ago; 0: as far back as the log goes.
    lookback_ms: int
    #: How often positions of quiet groups are saved.
    heartbeat_ms: int
    #: How often to look for generations and dropped tables.
    discovery_ms: int
    retry_base_ms: int
    retry_max_ms: int
    #: Up to this share of a pause is taken off at random.
    retry_jitter: float
    #: Tries of one query, or None for no limit.
    max_tries: int | None
    #: Operations (``c``, ``u``, ``d``, ``r``) whose events are left out; ``ScyllaEventSettings`` has the same.
    skipped: frozenset[str]
    snapshot: Literal["never", "initial"]
    snapshot_rows: int
    #: Rows per second and task; 0: no limit.
    snapshot_rate: int
    snapshot_chunks: int
    snapshot_new_tables: bool


def parse_tables(config: Mapping[str, Any]) -> tuple[TableId, ...]:
    """The tables to read.

    Raises:
        ConfigInvalid: ``scylla.table.names`` is not a list of tables.
    """
    return table_names(config[keys.TABLES])


def _parse_words(value: Any) -> frozenset[str]:
    return frozenset(str(item).strip().lower() for item in value or () if str(item).strip())


def _output_format(config: Mapping[str, Any]) -> str:
    output = str(config[keys.OUTPUT]).lower()
    return str(config[keys.FORMAT]).lower() if output == "debezium" else output


def event_settings(config: Config) -> ScyllaEventSettings:
    """Return the options that determine the form of events.

    Args:
        config: the parsed configuration of the connector or of a task.

    Raises:
        ConfigInvalid: a masking rule can't be used.
    """

    def word(name: str) -> str:
        return str(config[name]).strip().lower()

    return ScyllaEventSettings(
        topic_prefix=config[keys.PREFIX],
        output_format=cast('Literal["legacy", "advanced", "ums", "partition-update"]', _output_format(config)),
        include_before=config[keys.BEFORE].lower(),
        include_after=config[keys.AFTER].lower(),
        key_placement=_parse_words(config[keys.PLACEMENT]) - {"payload-diff"},
        payload_key_name=config[keys.KEY_NAME],
        preimages=config[keys.PREIMAGES],
        tombstones=config[keys.TOMBSTONES],
        deletes_mode=config[keys.DELETES].lower(),
        collections_mode=config[keys.COLLECTIONS].lower(),
        legacy_columns=config[keys.LEGACY_COLUMNS].lower(),
        skipped_operations=_parse_words(config[keys.SKIPPED]) & frozenset("cudr"),
        compat=_parse_words(config[keys.COMPAT]),
        names=ValueForms(word(DECIMALS), word(VARINTS), word(keys.LOGICAL) == "named"),
        masks=masking.parse_rules(config.raw, debezium=False),
    )


def session_settings(config: Mapping[str, Any]) -> SessionSettings:
    """How to connect; equal for all connectors and tasks that connect alike, which then share a session.

    Raises:
        ConfigInvalid: ``scylla.cluster.ip.addresses`` is not a list of nodes.
    """
    return keys.CLUSTER_KEYS.session(
        config,
        contact_points(config[keys.HOSTS]),
        config[keys.CONSISTENCY].upper(),
        use_keystore=config[keys.SSL_PROVIDER].upper() == "JDK",
    )


def read_settings(config: Mapping[str, Any]) -> ScyllaReadSettings:
    """How to read."""
    window, confidence = config[keys.WINDOW], config[keys.CONFIDENCE]
    tries = config[keys.RETRIES]
    return ScyllaReadSettings(
        consistency=config[keys.CONSISTENCY].upper(),
        fetch_size=config[keys.FETCH_SIZE] or DEFAULT_FETCH_SIZE,
        query_timeout_s=config[keys.QUERY_TIMEOUT] / 1000,
        streams_per_query=config[keys.STREAMS_PER_QUERY],
        max_queries=config[keys.QUERIES],
        max_batch=config[keys.BATCH],
        max_queue=max(config[keys.QUEUE], config[keys.BATCH]),
        window_ms=window,
        window_min_ms=config[keys.WINDOW_MIN],
        window_max_ms=max(config[keys.WINDOW_MAX], config[keys.WINDOW_MIN]),
        confidence_ms=confidence,
        confidence_min_ms=config[keys.CONFIDENCE_FLOOR],
        confidence_max_ms=max(config[keys.CONFIDENCE_CEILING], config[keys.CONFIDENCE_FLOOR]),
        minimal_wait_ms=config[keys.MINIMAL_WAIT],
        lookback_ms=config[keys.LOOKBACK],
        heartbeat_ms=config[keys.HEARTBEAT],
        discovery_ms=config[keys.DISCOVERY_INTERVAL],
        retry_base_ms=config[keys.RETRY_BASE],
        retry_max_ms=max(config[keys.RETRY_MAX], config[keys.RETRY_BASE]),
        retry_jitter=config[keys.RETRY_JITTER] / 100,
        max_tries=None if tries < 0 else tries,
        skipped=_parse_words(config[keys.SKIPPED]) & frozenset("cudr"),
        snapshot="initial" if config[keys.SNAPSHOT].lower() == "initial" else "never",
        snapshot_rows=config[keys.SNAPSHOT_ROWS],
        snapshot_rate=config[keys.SNAPSHOT_RATE],
        snapshot_chunks=config[keys.SNAPSHOT_CHUNKS],
        snapshot_new_tables=config[NEW_TABLES],
    )


def find_problems(config: Config) -> list[ConfigProblem]:
    """Return the problems of options that contradict each other."""
    complaints = masking.find_problems(config.raw, debezium=False)

    def complain(name: str, reason: str) -> None:
        complaints.append(ConfigProblem(name, invalid(name, config[name], reason)))

    if config[keys.USER] is None and config[keys.PASSWORD] is not None:
        complaints.append(
            ConfigProblem(keys.USER, f"{keys.PASSWORD} is given, {keys.USER} is not: give both or neither")
        )
    elif config[keys.USER] is not None and config[keys.PASSWORD] is None:
        complaints.append(
            ConfigProblem(keys.PASSWORD, f"{keys.USER} is given, {keys.PASSWORD} is not: give both or neither")
        )
    output = _output_format(config)
    if output != "ums":
        complaints += find_compacted_topics(config)
    if output == "legacy":
        for name, requirement in (
            (keys.BEFORE, f"; preimages of the legacy form are {keys.PREIMAGES}"),
            (keys.AFTER, ""),
        ):
            if config[name].lower() != "none":
                complain(
                    name,
                    f"must be none with {keys.FORMAT}=legacy{requirement}; for both images set {keys.FORMAT}=advanced",
                )
        if _parse_words(config[keys.PLACEMENT]) != set(keys.DEFAULT_PLACEMENT):
            complain(
                keys.PLACEMENT,
                f"must be left at {','.join(keys.DEFAULT_PLACEMENT)} with {keys.FORMAT}=legacy; "
                f"other places need {keys.FORMAT}=advanced",
            )
    elif output == "advanced" and config[keys.PREIMAGES]:
        complain(keys.PREIMAGES, f"is for {keys.FORMAT}=legacy; with advanced set {keys.BEFORE} and {keys.AFTER}")
    if config[keys.WINDOW_MIN] > config[keys.WINDOW_MAX]:
        complain(keys.WINDOW_MIN, f"must not be above {keys.WINDOW_MAX} ({config[keys.WINDOW_MAX]})")
    if config[keys.CONFIDENCE_FLOOR] > config[keys.CONFIDENCE_CEILING]:
        complain(
            keys.CONFIDENCE_FLOOR, f"must not be above {keys.CONFIDENCE_CEILING} ({config[keys.CONFIDENCE_CEILING]})"
        )
    provider = config[keys.SSL_PROVIDER].upper()
    if config[keys.SSL] and (config[keys.CERTIFICATE] is None) != (config[keys.PRIVATE_KEY] is None):
        missing = keys.CERTIFICATE if config[keys.CERTIFICATE] is None else keys.PRIVATE_KEY
        complaints.append(
            ConfigProblem(missing, f"{keys.CERTIFICATE} and {keys.PRIVATE_KEY} belong together: give both or neither")
        )
    if config[keys.SSL] and provider != "JDK" and config[keys.KEYSTORE] is not None:
        complain(
            keys.KEYSTORE,
            f"is for {keys.SSL_PROVIDER}=JDK; with {provider} the certificate comes from {keys.CERTIFICATE}",
        )
    if config[keys.SSL] and config[keys.KEYSTORE] is not None and config[keys.CERTIFICATE] is not None:
        complain(
            keys.KEYSTORE, f"must not be given together with {keys.CERTIFICATE}: both name the worker's certificate"
        )
    return complaints
